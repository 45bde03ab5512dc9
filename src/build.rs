//! Pipelines built in code, held to the same checks as those read from a file: a builder writes the page of RON that it
//! stands for, and that page is parsed.
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

/// A stage under construction: its kind, its name and its fields, as `docs/spec.md` lists them.
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

    /// `out = a b`. Tensors are stated as in a file, `"X(M,K)"`.
    pub fn gemm(name: &str, a: &str, b: &str, out: &str) -> Stage {
        Stage::new("Gemm", name).text("a", a).text("b", b).text("out", out)
    }

    /// `out = silu(a gate) * (a up)`.
    pub fn gated_gemm(name: &str, a: &str, gate: &str, up: &str, out: &str) -> Stage {
        Stage::new("GatedGemm", name).text("a", a).text("gate", gate).text("up", up).text("out", out)
    }

    /// A field whose value stands in quotes, such as a tensor.
    pub fn text(mut self, field: &str, value: &str) -> Stage {
        self.fields.push((field.into(), format!("{value:?}")));
        self
    }

    /// A field whose value does not, such as a number or an `epilogue`.
    pub fn word(mut self, field: &str, value: impl ToString) -> Stage {
        self.fields.push((field.into(), value.to_string()));
        self
    }
}

/// A pipeline under construction.
#[derive(Clone, Debug)]
pub struct PipelineBuilder {
    name: String,
    element: Element,
    dims: Vec<(String, u64)>,
    stages: Vec<Stage>,
}

impl PipelineBuilder {
    /// A pipeline without stages, of fp16.
    pub fn new(name: &str) -> PipelineBuilder {
        PipelineBuilder { name: name.into(), element: Element::F16, dims: Vec::new(), stages: Vec::new() }
    }

    /// The element type of every tensor.
    pub fn element(mut self, element: Element) -> PipelineBuilder {
        self.element = element;
        self
    }

    /// A dim with its default.
    pub fn dim(mut self, name: &str, default: u64) -> PipelineBuilder {
        self.dims.push((name.into(), default));
        self
    }

    /// The next stage.
    pub fn stage(mut self, stage: Stage) -> PipelineBuilder {
        self.stages.push(stage);
        self
    }

    /// The page of RON.
    pub fn text(&self) -> String {
        let element = match self.element {
            Element::F16 => "F16",
            Element::Bf16 => "Bf16",
        };
        let dims: Vec<String> = self.dims.iter().map(|(name, value)| format!("{name:?}: {value}")).collect();
        let mut text = format!(
            "Pipeline(\n    name: {:?},\n    element: {element},\n    dims: {{ {} }},\n    stages: [\n",
            self.name,
            dims.join(", ")
        );
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
        let bad = good.stage(Stage::gemm("a\"b", "C(M,M)", "D(M,M)", "E(M,M)"));
        let refused = cusync_gen::spec::parse(&bad.text(), "built").and_then(|s| s.resolve(&[]));
        assert!(refused.is_err(), "a quote stays inside its string, and the name is no identifier");
    }
}
