//! Pipelines built in code, with the same checks as those read from a file: a builder writes an equivalent
//! page of RON, and that page is parsed.
//!
//! ```
//! use cusync::prelude::*;
//!
//! let mlp = PipelineBuilder::new("mlp")
//!     .dim("M", 16)
//!     .dim("H", 64)
//!     .stage(Stage::gemm("up", "X(M,H)", "W1(H,4*H)", "Y(M,4*H)").word("epilogue", "Gelu"))
//!     .stage(Stage::gemm("down", "Y(M,4*H)", "W2(4*H,H)", "Z(M,H)"));
//! let mut session = Session::on_host(&mlp.text(), &[("M", 32)])?;
//! assert_eq!(session.shape("Z")?, (32, 64));
//! assert!(session.run().is_err(), "nothing is bound yet");
//! # Ok::<(), cusync::SessionError>(())
//! ```

use std::fmt::Write;

use cusync_gen::graph::Element;

/// A stage under construction: its kind, name and fields, as listed in `docs/spec.md`.
#[derive(Clone, Debug)]
pub struct Stage {
    kind: String,
    fields: Vec<(String, String)>,
}

impl Stage {
    /// A stage of any kind, such as `RmsNorm`.
    pub fn new(kind: &str, name: &str) -> Stage {
        Stage { kind: kind.into(), fields: Vec::new() }.text("name", name)
    }

    /// `out = a b`. Tensors are written as in a file, `"X(M,K)"`.
    pub fn gemm(name: &str, a: &str, b: &str, out: &str) -> Stage {
        Stage::new("Gemm", name).text("a", a).text("b", b).text("out", out)
    }

    /// `out = silu(a gate) * (a up)`.
    pub fn gated_gemm(name: &str, a: &str, gate: &str, up: &str, out: &str) -> Stage {
        Stage::new("GatedGemm", name).text("a", a).text("gate", gate).text("up", up).text("out", out)
    }

    /// Adds a field with a quoted value, such as a tensor.
    pub fn text(mut self, field: &str, value: &str) -> Stage {
        self.fields.push((field.into(), format!("{value:?}")));
        self
    }

    /// Adds a field with an unquoted value, such as a number or an `epilogue`.
    pub fn word(mut self, field: &str, value: impl ToString) -> Stage {
        self.fields.push((field.into(), value.to_string()));
        self
    }

    /// Kind of the stage, as named in `docs/spec.md`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Fields as in the file, including the name.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(field, value)| (field.as_str(), value.as_str()))
    }

    /// The same stage with other field values.
    pub fn map(&self, value: impl Fn(&str, &str) -> String) -> Stage {
        let fields = self.fields().map(|(field, old)| (field.to_owned(), value(field, old)));
        Stage { kind: self.kind.clone(), fields: fields.collect() }
    }

    /// `Kind(field: value, ...)`.
    fn read(text: &str) -> Option<Stage> {
        let (kind, fields) = text.split_once('(')?;
        let fields = parts(fields.strip_suffix(')')?).into_iter().map(pair).collect();
        Some(Stage { kind: kind.trim().into(), fields })
    }
}

/// Elements of a list, split at commas outside of quotes and brackets.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut begin, mut found) = (0, false, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(&list[begin..]);
    found.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// `name: value`.
fn pair(text: &str) -> (String, String) {
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    (name.trim().into(), value.trim().into())
}

/// A pipeline under construction.
#[derive(Clone, Debug)]
pub struct PipelineBuilder {
    name: String,
    element: Element,
    dims: Vec<(String, u64)>,
    devices: u32,
    stages: Vec<Stage>,
}

impl PipelineBuilder {
    /// An fp16 pipeline without stages, for one device.
    pub fn new(name: &str) -> PipelineBuilder {
        let (dims, stages) = (Vec::new(), Vec::new());
        PipelineBuilder { name: name.into(), element: Element::F16, dims, devices: 1, stages }
    }

    /// Sets the element type of every tensor.
    pub fn element(mut self, element: Element) -> PipelineBuilder {
        self.element = element;
        self
    }

    /// Adds a dim with its default.
    pub fn dim(mut self, name: &str, default: u64) -> PipelineBuilder {
        self.dims.push((name.into(), default));
        self
    }

    /// Sets the number of devices that run it at once, with sums over them (`all_reduce` of a stage).
    pub fn devices(mut self, devices: u32) -> PipelineBuilder {
        self.devices = devices;
        self
    }

    /// Adds the next stage.
    pub fn stage(mut self, stage: Stage) -> PipelineBuilder {
        self.stages.push(stage);
        self
    }

    /// A shipped pipeline, as a base for others; `None` if it states more than its element, dims, devices and
    /// stages, such as policies or tiles.
    pub fn shipped(name: &str) -> Option<PipelineBuilder> {
        let text = crate::runtime::shipped(name)?;
        let page: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let mut built = PipelineBuilder::new(name);
        for (field, value) in
            parts(page.trim().strip_prefix("Pipeline(")?.strip_suffix(')')?).into_iter().map(pair)
        {
            let list = |open, close| Some(parts(value.strip_prefix(open)?.strip_suffix(close)?));
            match (field.as_str(), value.as_str()) {
                ("name", _) | ("element", "F16") => {}
                ("element", "Bf16") => built.element = Element::Bf16,
                ("devices", number) => built.devices = number.parse().ok()?,
                ("dims", _) => {
                    for (dim, default) in list('{', '}')?.into_iter().map(pair) {
                        built = built.dim(dim.trim_matches('"'), default.parse().ok()?);
                    }
                }
                ("stages", _) => {
                    built.stages = list('[', ']')?.into_iter().map(Stage::read).collect::<Option<_>>()?;
                }
                _ => return None,
            }
        }
        Some(built)
    }

    /// Stages in order.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Replaces the stages and the name.
    pub fn with_stages(self, name: &str, stages: Vec<Stage>) -> PipelineBuilder {
        PipelineBuilder { name: name.into(), stages, ..self }
    }

    /// The page of RON.
    pub fn text(&self) -> String {
        let element = match self.element {
            Element::F16 => "F16",
            Element::Bf16 => "Bf16",
        };
        let dims: Vec<String> = self.dims.iter().map(|(name, value)| format!("{name:?}: {value}")).collect();
        let mut text = format!(
            "Pipeline(\n    name: {:?},\n    element: {element},\n    dims: {{ {} }},\n",
            self.name,
            dims.join(", ")
        );
        if self.devices > 1 {
            let _ = writeln!(text, "    devices: {},", self.devices);
        }
        text += "    stages: [\n";
        for Stage { kind, fields } in &self.stages {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "        {kind}({}),", fields.join(", "));
        }
        text + "    ],\n)\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stages without their source locations.
    fn without_places(pipeline: &cusync_gen::graph::Resolved) -> String {
        let text = format!("{:?}", pipeline.stages);
        let mut pieces = text.split("Span {");
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.fold(first, |all, piece| all + piece.split_once('}').expect("a place ends").1)
    }

    #[test]
    fn what_ships_is_read_as_it_is_parsed() {
        let mut read = 0;
        for (name, text) in crate::runtime::SHIPPED {
            let Some(built) = PipelineBuilder::shipped(name) else { continue };
            let resolved = |text: &str| {
                let resolved = cusync_gen::spec::parse(text, name).and_then(|spec| spec.resolve(&[]));
                resolved.unwrap_or_else(|e| panic!("{name}: {e}"))
            };
            let (built, shipped) = (resolved(&built.text()), resolved(text));
            assert_eq!(without_places(&built), without_places(&shipped));
            assert_eq!((built.name, built.element), (shipped.name, shipped.element));
            read += 1;
        }
        assert!(read >= 12, "attention blocks, layers and MLPs state nothing but dims and stages");
    }

    #[test]
    fn what_is_built_is_read_like_a_file_and_refused_like_one() {
        let good = PipelineBuilder::new("two")
            .element(Element::Bf16)
            .dim("M", 64)
            .stage(Stage::gemm("first", "A(M,M)", "B(M,M)", "C(M,M)").word("epilogue", "Relu"))
            .stage(
                Stage::new("RmsNorm", "norm")
                    .text("x", "C(M,M)")
                    .text("gain", "g(M)")
                    .text("out", "N(M,M)")
                    .word("epsilon", 1e-5),
            );
        let resolved =
            cusync_gen::spec::parse(&good.text(), "built").and_then(|s| s.resolve(&[])).expect("valid");
        assert_eq!(
            (resolved.name.as_str(), resolved.element, resolved.stages.len()),
            ("two", Element::Bf16, 2)
        );
        let sum = Stage::gemm("sum", "N(M,M)", "D(M,M)", "E(M,M)").word("all_reduce", true);
        let on_two = good.clone().devices(2).stage(sum);
        let resolved =
            cusync_gen::spec::parse(&on_two.text(), "built").and_then(|s| s.resolve(&[])).expect("valid");
        assert_eq!(resolved.devices(), 2);
        let bad = good.stage(Stage::gemm("a\"b", "C(M,M)", "D(M,M)", "E(M,M)"));
        let refused = cusync_gen::spec::parse(&bad.text(), "built").and_then(|s| s.resolve(&[]));
        assert!(refused.is_err(), "a quote stays inside its string, and the name is no identifier");
    }
}
