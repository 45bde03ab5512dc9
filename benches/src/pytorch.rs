//! PyTorch times, measured by the scripts in `benches`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::record::{LayerReport, Record, Role, Size};
use super::{Regime, Summary};

/// Name of the variant, or prefix of the names if there are several.
pub(super) const VARIANT: &str = "pytorch graph";
pub(super) const VARIANTS: &str = "pytorch";

/// The script that measures language models in transformers, for `cusync model bench`, which starts it.
pub const PYTORCH_MODELS: &str = include_str!("../pytorch_models.py");

#[derive(Deserialize)]
struct File {
    records: Vec<Entry>,
    #[serde(default)]
    skipped: Vec<String>,
}

#[derive(Deserialize)]
struct Entry {
    pipeline: String,
    /// Dims as named in the spec; only those stated by the script.
    dims: BTreeMap<String, u32>,
    element: String,
    /// Memory layout of weights or pixels.
    layout: Option<String>,
    /// Execution of a layer: `eager` or `compiled`, and the kind of attention.
    way: Option<String>,
    regime: Regime,
    #[serde(flatten)]
    time: Summary,
}

impl Entry {
    /// Name of the variant, with the first word of `way` if present.
    fn variant(&self) -> String {
        let word = self.way.as_deref().and_then(|words| words.split(',').next());
        word.map_or_else(|| VARIANT.into(), |word| format!("{VARIANTS} {word} graph"))
    }

    fn is_of(&self, record: &Record) -> bool {
        let dims: Size = self.dims.clone().into_iter().collect();
        (self.pipeline == record.pipeline && self.element == record.element)
            && (self.regime == record.regime && record.has(&dims))
    }
}

/// Output of a script in `benches`.
pub struct PytorchTimes(File);

impl PytorchTimes {
    /// Parses the output.
    ///
    /// # Errors
    /// The text is not in the scripts' format.
    pub fn parse(text: &str) -> std::result::Result<PytorchTimes, serde_json::Error> {
        serde_json::from_str(text).map(PytorchTimes)
    }
}

/// Adds a record to every size and regime that both measured: the fastest of PyTorch's weight layouts and,
/// for eager and compiled each, of its kinds of attention.
pub fn add_pytorch(report: &mut LayerReport, PytorchTimes(file): PytorchTimes) {
    let mut added: Vec<Record> = Vec::new();
    let ours = |r: &&Record| !r.variant.starts_with(VARIANTS);
    for entry in &file.records {
        let Some(like) = report.records.iter().filter(ours).find(|r| entry.is_of(r)) else { continue };
        let record = Record {
            variant: entry.variant(),
            role: Role::Peer,
            overlap: false,
            tiles: entry.layout.iter().map(|l| format!("weights {l}")).chain(entry.way.clone()).collect(),
            policies: Vec::new(),
            config: None,
            schedule: None,
            time: entry.time,
            speedup: like.baseline_us.map(|us| us / entry.time.median_us),
            clock_mhz: None,
            max_rel_err: None,
            ..like.clone()
        };
        match added.iter_mut().find(|r| r.variant == record.variant && r.beside(&record)) {
            Some(best) if record.time.median_us < best.time.median_us => *best = record,
            Some(_) => {}
            None => added.push(record),
        }
    }
    // Replaces earlier records of the same measurements; those from other files stay.
    report.records.retain(|r| !added.iter().any(|a| a.variant == r.variant && a.beside(r)));
    report.records.extend(added);
    report.skipped.extend(file.skipped.into_iter().map(|s| format!("pytorch: {s}")));
}

#[cfg(test)]
mod tests {
    use super::super::target::tests::{record, report};
    use super::*;

    const TEXT: &str = r#"{ "torch": "2.11", "records": [
        { "pipeline": "gpt3_mlp", "dims": { "M": 8 }, "element": "f16", "layout": "KxN", "activation": "gelu", "regime": "rested",
          "median_us": 90.0, "p10_us": 89.0, "p90_us": 91.0, "samples": 15, "rel_l2_err": 4e-4 },
        { "pipeline": "gpt3_mlp", "dims": { "M": 8 }, "element": "f16", "layout": "NxK", "activation": "gelu", "regime": "rested",
          "median_us": 86.0, "p10_us": 85.0, "p90_us": 87.0, "samples": 15, "rel_l2_err": 4e-4 },
        { "pipeline": "gpt3_mlp", "dims": { "M": 64 }, "element": "f16", "layout": "NxK", "activation": "gelu", "regime": "rested",
          "median_us": 95.0, "p10_us": 85.0, "p90_us": 97.0, "samples": 15, "rel_l2_err": 4e-4 }
    ], "skipped": ["x"] }"#;

    fn times(text: &str) -> PytorchTimes {
        PytorchTimes::parse(text).expect("the script's form")
    }

    #[test]
    fn the_faster_layout_joins_the_sizes_that_were_measured() {
        let mut all = report(vec![
            record("gpt3_mlp", 8, Regime::Rested, "fused graph", Role::Fused, 70.0),
            record("gpt3_mlp", 8, Regime::Sustained, "fused graph", Role::Fused, 70.0),
        ]);
        add_pytorch(&mut all, times(TEXT));
        // Reading the same file again changes nothing.
        add_pytorch(&mut all, times(TEXT));
        let peers: Vec<_> = all.records.iter().filter(|r| r.variant == VARIANT).collect();
        assert_eq!(peers.len(), 1, "one size in one regime was measured by both");
        assert_eq!(
            (peers[0].time.median_us, peers[0].size(), peers[0].role),
            (86.0, vec![("M".to_owned(), 8)], Role::Peer)
        );
        // Sizes from another file are added.
        all.records.push(record("llama65_mlp", 8, Regime::Rested, "fused graph", Role::Fused, 40.0));
        add_pytorch(&mut all, times(&TEXT.replace("gpt3_mlp", "llama65_mlp")));
        assert_eq!(all.records.iter().filter(|r| r.variant == VARIANT).count(), 2);
        assert!(PytorchTimes::parse("[]").is_err());
        // Eager and compiled are two variants, each at its best.
        let layer = |mode: &str, us: f64| {
            format!(
                r#"{{ "pipeline": "gpt3_mlp", "dims": {{ "M": 8 }}, "element": "f16", "way": "{mode}", "regime": "rested",
                "median_us": {us}, "p10_us": {us}, "p90_us": {us}, "samples": 15 }}"#
            )
        };
        let records = [layer("eager, cudnn", 80.0), layer("eager, flash", 82.0), layer("compiled", 79.0)];
        add_pytorch(&mut all, times(&format!(r#"{{ "records": [{}] }}"#, records.join(","))));
        let tiles_of = |name: &str| {
            all.records.iter().find(|r| r.variant == name).map(|r| (r.tiles.clone(), r.time.median_us))
        };
        assert_eq!(tiles_of("pytorch eager graph"), Some((vec!["eager, cudnn".to_owned()], 80.0)));
        assert_eq!(tiles_of("pytorch compiled graph").map(|(_, us)| us), Some(79.0));
    }
}
