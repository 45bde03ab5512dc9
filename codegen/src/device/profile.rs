//! Device profiles: RON files with the numbers behind choices, `progress` and predictions.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::{CostModel, L2Cost, Operations, ProgramCost, TileRate};
use crate::diagnostic::{Diagnostic, Span};

/// A device profile: the numbers behind choices, `progress` and predictions. The files in `codegen/profiles` ship with
/// the crate; others are read with [`Profile::from_ron`] and written with [`Profile::to_ron`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Short name, as used by `--device`.
    pub name: String,
    /// Origin of the numbers.
    pub source: String,
    /// Whether they were measured on such a device; otherwise they are scaled from public data.
    pub measured: bool,
    /// Kernel family: 80 or 90 (meaning sm_90a).
    pub arch: u32,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Shared memory available to all CTAs of an SM, bytes.
    pub shared_per_sm: u32,
    /// Maximum threads of all CTAs of an SM.
    #[serde(default = "sm_threads")]
    pub threads_per_sm: u32,
    /// Maximum CTAs per SM.
    #[serde(default = "sm_ctas")]
    pub ctas_per_sm: u32,
    /// Dense fp16 rate with float32 accumulation in TFLOP/s: achieved by a tile's main loop, not the datasheet value.
    pub tflops: f64,
    /// Rate of a single busy SM, TFLOP/s: more than its share, because a few busy SMs do not reach the power limit.
    pub sm_tflops: f64,
    /// Streaming read bandwidth, TB/s.
    pub read_tbs: f64,
    /// Boundary between dependent kernels of one stream, microseconds.
    pub boundary_us: f64,
    /// One semaphore hand-off, from the post until the waiter sees it, microseconds.
    pub handoff_us: f64,
    /// From the end of a tile in a separately launched kernel until it is stored and posted, microseconds.
    #[serde(default)]
    pub post_us: f64,
    /// From the launch of a CTA to its first main-loop step, microseconds.
    pub launch_us: f64,
    /// Time to fill and drain a tile's ring, microseconds.
    pub tile_us: f64,
    /// Relative rate and epilogue time of each tile shape if kernels are launched one by one. Unlisted shapes use the
    /// rate of the largest listed one and the epilogue time for their area.
    pub rates: Vec<TileRate>,
    /// Fraction of the shorter of arithmetic and traffic that the longer one does not hide.
    pub unhidden: f64,
    /// Fraction of the rested clock available under sustained pure arithmetic: the power limit.
    pub sustained: f64,
    /// From the issue of a bulk or asynchronous copy to its arrival under load, microseconds.
    pub load_latency_us: f64,
    /// Cost of an already satisfied wait to a tile, microseconds: negligible if a dedicated warp waits ahead of the
    /// loads, a ring stall if the main loop itself waits.
    pub wait_us: f64,
    /// Cost of each further slot of a wait, microseconds: slots are polled one after another.
    #[serde(default)]
    pub look_us: f64,
    /// L2 rates for kernels launched one by one.
    #[serde(default)]
    pub l2: L2Cost,
    /// Costs of the chain kernels of the `fused` executor.
    pub fused: CostModel,
    /// Costs of its decode kernels.
    pub decode: DecodeCost,
    /// Costs of cuBLASLt; `None` if it was not measured, and then it is used only on request.
    #[serde(default)]
    pub library: Option<LibraryCost>,
    /// Costs of kernel-level scheduling.
    pub programs: ProgramCost,
}

/// Costs of decode kernels.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DecodeCost {
    /// Streaming read bandwidth of the weights, TB/s: bulk copies alone exceed [`Profile::read_tbs`].
    pub read_tbs: f64,
    /// Rate at which all SMs together read activations, TB/s.
    pub l2_tbs: f64,
    /// From the launch to the first weights, microseconds.
    pub launch_us: f64,
    /// End of a stage: sums, epilogue, post and hand-off, microseconds.
    pub stage_us: f64,
    /// Extra time at the end of an attention to combine the parts of its heads, microseconds.
    #[serde(default)]
    pub attend_us: f64,
    /// Extra time of a stage whose sums are exchanged with other devices, microseconds.
    #[serde(default)]
    pub exchange_us: f64,
}

/// Costs of matrix products by cuBLASLt.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryCost {
    /// From the launch to the first arithmetic plus from the last arithmetic to the end, microseconds.
    pub launch_us: f64,
    /// Rate of an SM, TFLOP/s.
    pub sm_tflops: f64,
    /// Streaming read bandwidth, TB/s.
    pub read_tbs: f64,
    /// Maximum read rate of one SM, GB/s; relevant if there are fewer tiles than SMs. `None`: no limit.
    #[serde(default)]
    pub sm_read_gbs: Option<f64>,
}

/// The shipped profiles; rendered files are planned for the first.
pub static DEVICES: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    let files = [
        include_str!("../../profiles/h200.ron"),
        include_str!("../../profiles/h100.ron"),
        include_str!("../../profiles/a100.ron"),
        include_str!("../../profiles/l40s.ron"),
        include_str!("../../profiles/rtx4090.ron"),
    ];
    // A test reads each of them.
    files.into_iter().filter_map(|text| Profile::from_ron(text).ok()).collect()
});

/// Threads per SM on sm_80 and sm_90; other parts state theirs.
fn sm_threads() -> u32 {
    2048
}

/// CTAs per SM on sm_80 and sm_90.
fn sm_ctas() -> u32 {
    32
}

impl Profile {
    /// Registers per SM: the same on every part that kernels are built for.
    pub const REGISTERS_PER_SM: u32 = 65536;

    /// Number of resident clusters of `ctas` CTAs, each of which fills an SM, while nothing else runs. A cluster lies
    /// inside one of the at most 8 GPCs of a Hopper GPU. Their sizes vary between parts and are even, so the count is
    /// exact for pairs and a lower bound for larger clusters.
    pub fn resident_clusters(&self, ctas: u32) -> u32 {
        const GPCS: u32 = 8;
        match ctas {
            0 => 0,
            1 => self.sms,
            2..=8 if self.arch >= 90 => {
                let most_left = ctas - if ctas.is_multiple_of(2) { 2 } else { 1 };
                self.sms.saturating_sub(GPCS * most_left) / ctas
            }
            _ => 0,
        }
    }

    /// The shipped profile with this name.
    pub fn named(name: &str) -> Option<&'static Profile> {
        DEVICES.iter().find(|d| d.name.eq_ignore_ascii_case(name))
    }

    /// Costs of a tile shape if kernels are launched one by one: its epilogue only converts and stores sums.
    pub fn tile_rate(&self, tile: (u32, u32)) -> TileRate {
        let area = |t: (u32, u32)| f64::from(t.0) * f64::from(t.1);
        let like = self.rates.iter().find(|r| r.tile == tile);
        let largest = self.rates.iter().max_by(|a, b| area(a.tile).total_cmp(&area(b.tile)));
        match (like, largest) {
            (Some(rate), _) => *rate,
            (None, Some(other)) => {
                TileRate { tile, epilogue_us: other.epilogue_us * area(tile) / area(other.tile), ..*other }
            }
            (None, None) => TileRate {
                tile,
                cluster: (1, 1),
                rate: 1.0,
                epilogue_us: 0.0,
                gate_us: 0.0,
                first_us: 0.0,
                slabs: 1.0,
            },
        }
    }

    /// Costs used by the list scheduler of the `fused` executor on this device, for a kernel that runs these
    /// operations.
    pub fn cost_model(&self, operations: Operations) -> CostModel {
        let read_tbs = if self.fused.read_tbs > 0.0 { self.fused.read_tbs } else { self.read_tbs };
        CostModel { read_tbs, ..self.fused.clone().for_operations(operations) }
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// The location of the first fault: invalid RON, a missing or unknown field, or an impossible number.
    pub fn from_ron(text: &str) -> Result<Profile, Diagnostic> {
        let device: Profile = ron::from_str(text).map_err(|error| {
            let at = |p: ron::error::Position| offset(text, p.line, p.col);
            let span = Span::new(at(error.span.start), at(error.span.end));
            Diagnostic::new("bad-profile", format!("this is no device profile: {}", error.code))
                .at(span, "here")
                .help("start from a file of codegen/profiles, such as h200.ron")
        })?;
        match device.fault() {
            None => Ok(device),
            Some((field, fault)) => {
                let begin = text.find(&format!("{field}:")).unwrap_or(0);
                let message = format!("`{field}` {fault}");
                Err(Diagnostic::new("bad-profile", message)
                    .at(Span::new(begin, begin + field.len()), "here")
                    .help("`cusync calibrate` measures the numbers of a GPU; codegen/profiles has those of others"))
            }
        }
    }

    /// The profile in the format of [`Profile::from_ron`].
    pub fn to_ron(&self) -> String {
        // Serializing plain numbers, strings and lists into a string cannot fail.
        ron::ser::to_string_pretty(self, ron::ser::PrettyConfig::new().struct_names(false))
            .unwrap_or_default()
    }

    /// The first field with an impossible value, and the fault.
    fn fault(&self) -> Option<(String, String)> {
        if self.arch != 80 && self.arch != 90 {
            return Some(("arch".into(), format!("is {}; kernels are built for 80 and 90", self.arch)));
        }
        if self.sms == 0 || self.sms > 4096 {
            return Some(("sms".into(), format!("is {}; it has to be between 1 and 4096", self.sms)));
        }
        let c = &self.fused;
        // Items count the parts of a tile in one byte.
        if c.max_parts > 255 {
            return Some(("max_parts".into(), format!("is {}; it has to be at most 255", c.max_parts)));
        }
        let windows = || c.windows.iter();
        let rates =
            || c.rates.iter().chain([&c.other]).chain(&self.rates).chain(windows().flat_map(|w| &w.rates));
        let positive_rates = rates().map(|r| ("rate", r.rate));
        let positive = [
            ("sm_gbs", c.rows.sm_gbs),
            ("tflops", self.tflops),
            ("sm_tflops", self.sm_tflops),
            ("read_tbs", self.read_tbs),
            ("sm_tflops", c.sm_tflops),
            ("read_tbs", self.decode.read_tbs),
            ("l2_tbs", self.decode.l2_tbs),
            ("sustained", self.sustained),
            ("host_tbs", self.programs.host_tbs),
            ("resident_kernels", self.programs.resident_kernels as f64),
        ];
        let library = self.library.iter();
        let library = library.flat_map(|l| [("sm_tflops", l.sm_tflops), ("read_tbs", l.read_tbs)]);
        let none = |(_, value): &(&str, f64)| !(SLOWEST..).contains(value);
        if let Some((field, value)) = positive.into_iter().chain(positive_rates).chain(library).find(none) {
            return Some((field.into(), format!("is {value}; it has to be more than 0, {SLOWEST} or more")));
        }
        ron::from_str(&self.to_ron()).ok().and_then(|value| out_of_range("", &value))
    }
}

/// The smallest allowed rate.
const SLOWEST: f64 = 1e-3;

/// The smallest allowed nonzero number.
const SMALLEST: f64 = 1e-9;

/// The largest allowed number: all products and sums of times and rates stay far from infinity.
const LARGEST: f64 = 1e6;

/// The first number that is negative, NaN, too small or too large, and its field.
fn out_of_range(field: &str, value: &ron::Value) -> Option<(String, String)> {
    use ron::Value;
    match value {
        Value::Number(number) => {
            let number = number.into_f64();
            let why = match number {
                _ if number == 0.0 || (SMALLEST..=LARGEST).contains(&number) => return None,
                _ if number < 0.0 => "it cannot be negative".to_owned(),
                _ => format!("it has to be 0, or a number from {SMALLEST} to {LARGEST}"),
            };
            Some((field.to_owned(), format!("is {number}; {why}")))
        }
        Value::Map(map) => map.iter().find_map(|(key, value)| match key {
            Value::String(name) => out_of_range(name, value),
            _ => out_of_range(field, value),
        }),
        Value::Seq(list) => list.iter().find_map(|value| out_of_range(field, value)),
        Value::Option(Some(value)) => out_of_range(field, value),
        Value::Option(None) | Value::Bool(_) | Value::Char(_) | Value::String(_) => None,
        Value::Bytes(_) | Value::Unit => None,
    }
}

/// The byte offset of a line and column, both starting at 1.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let rest = text.get(before..).unwrap_or("");
    let within: usize = rest.chars().take(column.saturating_sub(1)).map(char::len_utf8).sum();
    (before + within).min(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_profile_is_read_and_says_where_it_comes_from() {
        let names: Vec<&str> = DEVICES.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["h200", "h100", "a100", "l40s", "rtx4090"]);
        for device in DEVICES.iter() {
            assert_eq!(Profile::from_ron(&device.to_ron()).expect("written and read"), *device);
            assert_eq!(device.measured, !device.source.starts_with("public data"), "{}", device.source);
        }
    }

    #[test]
    fn a_faulty_profile_is_refused_with_its_place() {
        let good = DEVICES[0].to_ron();
        let line_of = |field: &str| good.lines().position(|l| l.contains(field)).expect("stated") + 1;
        for (from, to, line, says) in [
            ("arch: 90", "arch: 75", 5, "kernels are built for 80 and 90"),
            ("sms: 132", "sms: 0", 6, "between 1 and 4096"),
            ("sms: 132", "smz: 132", 6, "smz"),
            ("sms: 132", "sms: many", 6, "Expected integer"),
            ("boundary_us: ", "boundary_us: -", 0, "cannot be negative"),
            ("max_parts: 8", "max_parts: 256", 0, "at most 255"),
            ("host_tbs: ", "host_tbs: -", 0, "has to be more than 0"),
            ("interference: ", "interference: -", 0, "cannot be negative"),
        ] {
            let line = if line == 0 { line_of(from) } else { line };
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good, "{from}");
            let shown = Profile::from_ron(&text).expect_err(says).render(&text, "profile", false);
            assert!(shown.contains(says), "{shown}");
            assert!(shown.contains(&format!("profile:{line}:")), "{shown}");
        }
    }
}
