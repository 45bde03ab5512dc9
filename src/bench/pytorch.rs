//! PyTorch's times, measured by `benches/pytorch_mlp.py` and `pytorch_conv.py` beside the benchmark.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::record::{LayerReport, Record, Role, Size};
use super::{Error, Regime, Result, Summary};

/// Name of the variant.
pub(super) const VARIANT: &str = "pytorch graph";

#[derive(Deserialize)]
struct File {
    records: Vec<Entry>,
    #[serde(default)]
    skipped: Vec<String>,
}

#[derive(Deserialize)]
struct Entry {
    pipeline: String,
    /// As the spec calls them; all that the script states.
    dims: BTreeMap<String, u32>,
    element: String,
    layout: String,
    regime: Regime,
    #[serde(flatten)]
    time: Summary,
}

/// Adds a record to every size and regime that both measured: the faster of PyTorch's weight layouts.
///
/// # Errors
/// The text is not what the script writes.
pub fn add_pytorch(report: &mut LayerReport, text: &str) -> Result<()> {
    let file: File = serde_json::from_str(text).map_err(|e| {
        Error::Argument(format!("not a file of benches/pytorch_mlp.py or pytorch_conv.py: {e}"))
    })?;
    let mut added: Vec<Record> = Vec::new();
    for like in report.records.iter().filter(|r| r.variant != VARIANT) {
        if added.iter().any(|r| r.beside(like)) {
            continue;
        }
        let of_size = file.records.iter().filter(|e| {
            let dims: Size = e.dims.clone().into_iter().collect();
            (e.pipeline == like.pipeline && e.element == like.element)
                && (e.regime == like.regime && like.has(&dims))
        });
        let Some(best) = of_size.min_by(|a, b| a.time.median_us.total_cmp(&b.time.median_us)) else {
            continue;
        };
        added.push(Record {
            variant: VARIANT.into(),
            role: Role::Peer,
            overlap: false,
            tiles: vec![format!("weights {}", best.layout)],
            policies: Vec::new(),
            config: None,
            schedule: None,
            time: best.time,
            speedup: like.baseline_us.map(|us| us / best.time.median_us),
            max_rel_err: None,
            ..like.clone()
        });
    }
    // What this file measured again is replaced; what other files brought stays.
    let again = |r: &Record| added.iter().any(|a| a.beside(r));
    report.records.retain(|r| r.variant != VARIANT || !again(r));
    report.records.extend(added);
    report.skipped.extend(file.skipped.into_iter().map(|s| format!("pytorch: {s}")));
    Ok(())
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

    #[test]
    fn the_faster_layout_joins_the_sizes_that_were_measured() {
        let mut all = report(vec![
            record("gpt3_mlp", 8, Regime::Rested, "fused graph", Role::Fused, 70.0),
            record("gpt3_mlp", 8, Regime::Sustained, "fused graph", Role::Fused, 70.0),
        ]);
        add_pytorch(&mut all, TEXT).expect("the script's form");
        // Reading the same file again changes nothing.
        add_pytorch(&mut all, TEXT).expect("the script's form");
        let peers: Vec<_> = all.records.iter().filter(|r| r.variant == VARIANT).collect();
        assert_eq!(peers.len(), 1, "one size in one regime was measured by both");
        assert_eq!(
            (peers[0].time.median_us, peers[0].size(), peers[0].role),
            (86.0, vec![("M".to_owned(), 8)], Role::Peer)
        );
        // Another file's sizes come beside these.
        all.records.push(record("llama65_mlp", 8, Regime::Rested, "fused graph", Role::Fused, 40.0));
        add_pytorch(&mut all, &TEXT.replace("gpt3_mlp", "llama65_mlp")).expect("the script's form");
        assert_eq!(all.records.iter().filter(|r| r.variant == VARIANT).count(), 2);
        assert!(add_pytorch(&mut all, "[]").is_err());
    }
}
