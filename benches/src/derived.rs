//! Pipelines derived from the stages of shipped ones, so that a benchmark measured next to a layer is a part
//! of that layer.

use std::borrow::Cow;

use cusync::runtime::shipped;
use cusync::{PipelineBuilder, Stage};

/// Layers of a `_layers` pipeline.
pub(super) const LAYERS: usize = 4;

/// Text of a shipped pipeline, or of one derived from it:
///
/// | name | stages |
/// |---|---|
/// | `MODEL_block`, `MODEL_prompt_block` | those of `MODEL_layer`, `MODEL_prompt_layer`, up to the projection
/// and its residual |
/// | `MODEL_layers`, `MODEL_prompt_layers` | those of four consecutive layers, each with its own weights and
/// caches |
/// | `MODEL_attend` | the attention stage of `MODEL_attention` |
pub fn source_of(name: &str) -> Option<Cow<'static, str>> {
    if let Some(text) = shipped(name) {
        return Some(Cow::Borrowed(text));
    }
    let base_of =
        |end: &str, base: &str| PipelineBuilder::shipped(&format!("{}{base}", name.strip_suffix(end)?));
    let (page, stages) = if let Some(page) = base_of("_block", "_layer") {
        let is_projection = |stage: &Stage| stage.fields().any(|field| field == ("name", "\"project\""));
        let end = page.stages().iter().position(is_projection)?;
        let stages = page.stages()[..=end].to_vec();
        (page, stages)
    } else if let Some(page) = base_of("_layers", "_layer") {
        let in_layers =
            (1..=LAYERS).flat_map(|layer| page.stages().iter().map(move |stage| in_layer(stage, layer)));
        let stages = in_layers.collect();
        (page, stages)
    } else {
        let page = base_of("_attend", "_attention")?;
        let stages = page.stages().iter().filter(|stage| stage.kind() == "Attention").cloned().collect();
        (page, stages)
    };
    Some(Cow::Owned(page.with_stages(name, stages).text()))
}

/// A stage as part of layer `layer`: its name and tensors become specific to the layer, except for tensors
/// that all layers share; the input of the first layer becomes the output of the previous one.
fn in_layer(stage: &Stage, layer: usize) -> Stage {
    // After splitting at quotes, every second part was quoted: a tensor, or the name of a dim.
    let rename = |(at, quoted): (usize, &str)| match quoted.split_once('(') {
        _ if at % 2 == 0 => quoted.to_owned(),
        Some(("cs" | "n", _)) => quoted.to_owned(),
        Some(("X", shape)) if layer == 1 => format!("X({shape}"),
        Some(("X", shape)) => format!("Z{}({shape}", layer - 1),
        Some((tensor, shape)) => format!("{tensor}{layer}({shape}"),
        None => quoted.to_owned(),
    };
    stage.map(|field, value| match field {
        "name" => format!("{:?}", format!("{}{layer}", value.trim_matches('"'))),
        _ => value.split('"').enumerate().map(rename).collect::<Vec<_>>().join("\""),
    })
}

#[cfg(test)]
mod tests {
    use cusync_gen::graph::Resolved;
    use cusync_gen::spec::parse;

    use super::*;

    fn resolved(name: &str) -> Resolved {
        let text = source_of(name).expect("it is derived");
        parse(&text, name)
            .and_then(|spec| spec.resolve(&[]))
            .unwrap_or_else(|e| panic!("{name}: {e}\n{text}"))
    }

    #[test]
    fn parts_and_rows_of_layers_are_specs() {
        for model in ["gpt3", "llama65", "llama3_70b"] {
            for kind in ["", "prompt_"] {
                let layer = resolved(&format!("{model}_{kind}layer"));
                let block = resolved(&format!("{model}_{kind}block"));
                assert_eq!(block.stages.len(), 4, "norm, QKV, attention, projection");
                let layers = resolved(&format!("{model}_{kind}layers"));
                assert_eq!(layers.stages.len(), LAYERS * layer.stages.len());
                let inputs = |resolved: &Resolved| {
                    let graph = resolved.graph(&resolved.tiles_in((128, 128, 64), 132)).expect("tiles fit");
                    (graph.tensors.len(), graph.dependences.len())
                };
                let ((one, within), (all, dependences)) = (inputs(&layer), inputs(&layers));
                let shared = 1 + usize::from(model != "gpt3") + usize::from(kind.is_empty());
                assert_eq!(
                    all,
                    LAYERS * (one - shared) + shared,
                    "the input, the table and the lengths are shared"
                );
                assert!(dependences > LAYERS * within, "layers depend on the ones before");
            }
            assert_eq!(resolved(&format!("{model}_attend")).stages.len(), 1);
        }
        assert!(source_of("llama65_blocks").is_none() && source_of("block").is_none());
    }
}
