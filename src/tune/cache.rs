//! Tuned plans by key, and the text of their file.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::key::Key;
use crate::runtime::Summary;
use cusync_gen::choose::Config;

/// Version of the file format. Version 1 used other names for policies, orders and waits; version 2
/// paired executors and kernels freely.
pub const VERSION: u64 = 3;

/// Format name in the file.
const FORMAT: &str = "cusync tuned plans";

/// A measured configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tried {
    /// The configuration.
    pub config: Config,
    /// Predicted time, microseconds.
    pub predicted_us: f64,
    /// Measured time of one run, in the rested regime of the benchmarks.
    pub time: Summary,
}

/// Entry of one key: the fastest of the measured configurations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheEntry {
    /// Name of the pipeline, for human readers.
    pub pipeline: String,
    /// Key of the entry.
    pub key: Key,
    /// Time of the measurement: UTC, RFC 3339.
    pub measured: String,
    /// The fastest configuration.
    pub best: Tried,
    /// The other configurations, fastest first.
    pub others: Vec<Tried>,
}

impl CacheEntry {
    /// Number of measured configurations.
    pub fn candidates(&self) -> usize {
        1 + self.others.len()
    }

    /// Day of the measurement, such as `2026-11-21`.
    pub fn day(&self) -> &str {
        self.measured.get(..10).unwrap_or(&self.measured)
    }

    /// Inconsistency of the entry, if any.
    fn fault(&self) -> Option<String> {
        let sane = |t: &Tried| {
            let times = [t.predicted_us, t.time.median_us, t.time.p10_us, t.time.p90_us];
            times.iter().all(|us| us.is_finite() && *us > 0.0) && t.time.samples > 0
        };
        let CacheEntry { pipeline, measured, .. } = self;
        if humantime::parse_rfc3339(measured).is_err() {
            return Some(format!("the entry of {pipeline} was measured at `{measured}`, which is no time"));
        }
        let insane = std::iter::once(&self.best).chain(&self.others).find(|t| !sane(t));
        insane.map(|t| format!("the entry of {pipeline} has a time that is none: {}", t.config))
    }

    /// Precedence among entries of one key: the later one, or within one second the faster one.
    fn rank(&self) -> (&str, std::cmp::Reverse<u64>, String) {
        // Positive floats are ordered like their bits.
        let us = std::cmp::Reverse(self.best.time.median_us.to_bits());
        (&self.measured, us, self.best.config.to_string())
    }
}

/// Current time in the format of [`CacheEntry::measured`].
pub(super) fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Tuned plans, one per key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanCache {
    entries: BTreeMap<String, CacheEntry>,
}

/// Structure of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    version: u64,
    entries: Vec<CacheEntry>,
}

/// Reason why a text is not a cache.
#[derive(Debug, PartialEq)]
pub(super) enum CacheFault {
    /// Description of the error, with line and column if known.
    Corrupt(String, Option<(usize, usize)>),
    Version(u64),
}

impl PlanCache {
    /// All entries, sorted by machine, graph, dims and executor.
    pub fn entries(&self) -> impl Iterator<Item = &CacheEntry> {
        self.entries.values()
    }

    /// Entry of a key.
    pub fn get(&self, key: &Key) -> Option<&CacheEntry> {
        self.entries.get(&key.sort_text()).filter(|entry| entry.key == *key)
    }

    /// Inserts an entry unless there is a later one with its key; returns whether it was inserted.
    pub fn insert(&mut self, entry: CacheEntry) -> bool {
        let place = entry.key.sort_text();
        let newer = self.entries.get(&place).is_none_or(|old| old.rank() < entry.rank());
        if newer {
            self.entries.insert(place, entry);
        }
        newer
    }

    /// Merges another cache, keeping the later entry of each key; returns the number of inserted entries. The
    /// order of merges does not matter.
    pub fn merge(&mut self, other: PlanCache) -> usize {
        other.entries.into_values().map(|entry| self.insert(entry)).filter(|taken| *taken).count()
    }

    /// Text of the file.
    pub(super) fn text(&self) -> serde_json::Result<String> {
        let entries = self.entries.values().cloned().collect();
        let document = Document { format: FORMAT.into(), version: VERSION, entries };
        serde_json::to_string_pretty(&document).map(|text| text + "\n")
    }

    /// Parses the text of a file.
    pub(super) fn parse(text: &str) -> Result<PlanCache, CacheFault> {
        let corrupt = |e: serde_json::Error| CacheFault::Corrupt(e.to_string(), Some((e.line(), e.column())));
        let wrong = |why: String| Err(CacheFault::Corrupt(why, None));
        // The version first: a file of another version may differ in everything else.
        let value: serde_json::Value = serde_json::from_str(text).map_err(corrupt)?;
        if value.get("format").and_then(|f| f.as_str()) != Some(FORMAT) {
            return wrong(format!("there is no `\"format\": \"{FORMAT}\"` in it"));
        }
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(VERSION) => {}
            Some(other) => return Err(CacheFault::Version(other)),
            None => return wrong("there is no `\"version\"` in it".into()),
        }
        // Parsed from the text again so that errors have line numbers.
        let document: Document = serde_json::from_str(text).map_err(corrupt)?;
        let mut cache = PlanCache::default();
        for entry in document.entries {
            if let Some(fault) = entry.fault() {
                return wrong(fault);
            }
            let place = entry.key.sort_text();
            if let Some(twice) = cache.entries.insert(place, entry) {
                return wrong(format!("two entries of one key, of {}", twice.pipeline));
            }
        }
        Ok(cache)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::key::tests::{machine, resolved};
    use super::*;
    use crate::runtime::Overlap;

    /// An entry of `gpt3_mlp` at a size.
    pub(crate) fn entry(m: u64, measured: &str, median_us: f64) -> CacheEntry {
        let time = Summary { median_us, p10_us: median_us, p90_us: median_us, samples: 9 };
        CacheEntry {
            pipeline: "gpt3_mlp".into(),
            key: Key::new(&resolved("gpt3_mlp", m), &machine(), None, Overlap::Plain),
            measured: measured.into(),
            best: Tried { config: Config::Decode, predicted_us: 40.0, time },
            others: Vec::new(),
        }
    }

    const EARLY: &str = "2026-11-20T08:00:00Z";
    const LATE: &str = "2026-11-21T08:00:00Z";

    fn cache_of(entries: &[CacheEntry]) -> PlanCache {
        let mut cache = PlanCache::default();
        entries.iter().for_each(|e| assert!(cache.insert(e.clone())));
        cache
    }

    #[test]
    fn a_cache_is_read_as_it_was_written() {
        let cache = cache_of(&[entry(8, EARLY, 41.0), entry(16, LATE, 42.0)]);
        let text = cache.text().expect("plain values");
        assert_eq!(PlanCache::parse(&text), Ok(cache.clone()));
        assert!(
            text.contains("\"gpu\": \"NVIDIA H200\"") && text.contains("\"config\": \"decode\""),
            "{text}"
        );
        let found = cache.get(&entry(8, LATE, 1.0).key).expect("its key is there");
        assert_eq!((found.best.time.median_us, found.day(), found.candidates()), (41.0, "2026-11-20", 1));
        assert!(cache.get(&entry(9, LATE, 1.0).key).is_none());
        assert_eq!(
            PlanCache::parse(&PlanCache::default().text().expect("plain values")),
            Ok(PlanCache::default())
        );
    }

    #[test]
    fn merging_keeps_the_later_answer_in_whatever_order() {
        let (a, b) =
            (cache_of(&[entry(8, EARLY, 41.0), entry(16, LATE, 42.0)]), cache_of(&[entry(8, LATE, 50.0)]));
        let c = cache_of(&[entry(16, LATE, 40.0), entry(32, EARLY, 60.0)]);
        let merged = |order: [&PlanCache; 3]| {
            let mut all = PlanCache::default();
            order.iter().for_each(|cache| {
                all.merge((*cache).clone());
            });
            all
        };
        let all = merged([&a, &b, &c]);
        for order in [[&a, &c, &b], [&b, &a, &c], [&b, &c, &a], [&c, &a, &b], [&c, &b, &a]] {
            assert_eq!(merged(order), all);
        }
        let times: Vec<f64> = [8, 16, 32]
            .iter()
            .filter_map(|&m| all.get(&entry(m, LATE, 1.0).key))
            .map(|e| e.best.time.median_us)
            .collect();
        assert_eq!(times, [50.0, 40.0, 60.0]);
        let mut again = all.clone();
        assert_eq!((again.merge(all.clone()), again), (0, all), "merging twice changes nothing");
    }

    #[test]
    fn what_is_not_a_cache_is_refused_with_the_place() {
        let good = cache_of(&[entry(8, EARLY, 41.0)]).text().expect("plain values");
        let corrupt = |text: &str| match PlanCache::parse(text) {
            Err(CacheFault::Corrupt(why, _)) => why,
            other => panic!("{other:?} of {text}"),
        };
        assert!(corrupt(&good[..good.len() / 2]).contains("line"));
        assert!(corrupt("").contains("line 1"));
        assert!(corrupt("{}").contains("format"));
        assert!(corrupt(&good.replace("cusync tuned", "other")).contains("format"));
        assert!(corrupt(&good.replace("\"samples\": 9", "\"samples\": -9")).contains("line"));
        assert!(corrupt(&good.replace("\"samples\": 9", "\"samp1es\": 9")).contains("line"));
        assert!(corrupt(&good.replace("\"decode\"", "\"dec0de\"")).contains("line"));
        let on_host = r#"{ "stages": { "executor": "cpu", "stages": [], "edges": [] } }"#;
        assert!(corrupt(&good.replace("\"decode\"", on_host)).contains("cpu"));
        assert!(corrupt(&good.replace("41.0", "-41.0")).contains("time"));
        assert!(corrupt(&good.replace(EARLY, "yesterday")).contains("yesterday"));
        let (head, tail) = good.split_once("\"entries\": [").expect("there is a list");
        let twice = tail.trim_end().trim_end_matches('}').trim_end().trim_end_matches(']');
        let doubled = format!("{head}\"entries\": [{twice}, {twice}] }}");
        assert!(corrupt(&doubled).contains("two entries"));
        assert_eq!(
            PlanCache::parse(&good.replace("\"version\": 3", "\"version\": 7")),
            Err(CacheFault::Version(7))
        );
        // Other fields in a newer version must not be reported as corruption.
        let newer = r#"{ "format": "cusync tuned plans", "version": 4, "plans": {} }"#;
        assert_eq!(PlanCache::parse(newer), Err(CacheFault::Version(4)));
    }
}
