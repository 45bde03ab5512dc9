//! Canonical text of a pipeline, which depends only on its computation and its statements.

use std::fmt::Write;

use super::Tensor;
use super::resolved::{Read, Resolved, ResolvedStage, StatedEdge};

impl Resolved {
    /// Shapes, operations, reads and statements, one per line. Two specs have equal text exactly if all open choices
    /// are the same for both. It omits formatting, comments, dims replaced by values, the names of the pipeline and
    /// its tensors, and the element type. It includes stage names, because results refer to them.
    pub fn canonical(&self) -> String {
        // Destructured without `..`, here and below, so that a new field is either included or left out on purpose.
        let Resolved { name: _, element: _, dims: _, tensors, stages, edges } = self;
        let mut text = String::new();
        // Element types and in-place changes follow from the operands. Runs read transposed tensors as others.
        for Tensor { name: _, rows, cols, producer, alias, data: _, state: _, transposed: _ } in tensors {
            line(&mut text, format_args!("tensor {rows} x {cols} {producer:?} {alias:?}"));
        }
        for stage in stages {
            let ResolvedStage {
                name,
                op,
                m,
                n,
                k,
                reads,
                out,
                custom,
                has_own_kernel: _,
                split_k,
                devices,
                stated_tile,
                stated_order,
            } = stage;
            let tile = stated_tile.as_ref().map(|s| s.value);
            let order = stated_order.as_ref().map(|s| &s.value);
            line(&mut text, format_args!("stage {} {op:?} {m} x {n} x {k} {custom:?}", name.value));
            line(
                &mut text,
                format_args!("  to {:?} in {} on {devices} {tile:?} {order:?}", out.value, split_k.value),
            );
            for Read { kind, tensor, view, span: _, footprint } in reads {
                line(&mut text, format_args!("  read {kind:?} {tensor:?} {view:?} {footprint:?}"));
            }
        }
        // The order in which edges are stated is irrelevant.
        let mut stated: Vec<String> = edges
            .iter()
            .map(|StatedEdge { span: _, producer, consumer, operand, policy, wait_at }| {
                let policy = policy.as_ref().map(|p| &p.value);
                let wait_at = wait_at.as_ref().map(|w| w.value);
                format!("edge {producer:?} {consumer:?} {operand:?} {policy:?} {wait_at:?}")
            })
            .collect();
        stated.sort_unstable();
        stated.iter().for_each(|s| line(&mut text, format_args!("{s}")));
        text
    }
}

fn line(text: &mut String, args: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{args}");
}

#[cfg(test)]
mod tests {
    use crate::spec::parse;

    fn canonical(source: &str, dims: &[(String, u64)]) -> String {
        let spec = parse(source, "test.ron").unwrap_or_else(|e| panic!("{}", e.message));
        spec.resolve(dims).unwrap_or_else(|e| panic!("{}", e.message)).canonical()
    }

    const PLAIN: &str = r#"Pipeline(name: "p", dims: { "M": 256 }, stages: [
        Gemm(name: "up", a: "X(M,512)", b: "W1(512,512)", out: "Y(M,512)"),
        Gemm(name: "down", a: "Y(M,512)", b: "W2(512,512)", out: "Z(M,512)"),
    ])"#;

    #[test]
    fn names_of_tensors_layout_and_the_way_to_a_size_do_not_count() {
        let renamed =
            PLAIN.replace('X', "In").replace("\"p\"", "\"q\"").replace("stages", "\n  // same\n stages");
        assert_eq!(canonical(PLAIN, &[]), canonical(&renamed, &[]));
        let by_dim = PLAIN.replace("256", "17");
        assert_eq!(canonical(PLAIN, &[]), canonical(&by_dim, &[("M".into(), 256)]));
    }

    #[test]
    fn whatever_changes_the_question_counts() {
        let changed = [
            PLAIN.replace("256", "257"),
            PLAIN.replace("out: \"Y(M,512)\")", "out: \"Y(M,512)\", epilogue: Gelu)"),
            PLAIN.replace("\"down\"", "\"fall\""),
            PLAIN.replace("    ])", "    ], tiles: { \"up\": (128, 256) })"),
            PLAIN.replace("    ])", "    ], orders: { \"up\": RowMajor })"),
            PLAIN.replace("    ])", "    ], sync: [ Edge(from: \"up\", to: \"down\", policy: Row) ])"),
            PLAIN.replace("    ])", "    ], sync: [ Edge(from: \"up\", to: \"down\", policy: Tile) ])"),
        ];
        let mut all: Vec<String> = changed.iter().map(|source| canonical(source, &[])).collect();
        all.push(canonical(PLAIN, &[]));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), changed.len() + 1);
    }
}
