//! Pipelines that several devices run at once, each on its own part of some reductions.

use super::resolved::Resolved;
use crate::diagnostic::Diagnostic;
use crate::spec::{Spec, StageKind};

/// Most devices of a pipeline, as `CUSYNC_MAX_DEVICES`.
pub const MAX_DEVICES: u32 = 8;

/// Attaches the number of devices to the stages whose products are summed over them.
pub(super) fn apply(spec: &Spec, resolved: &mut Resolved) -> Result<(), Diagnostic> {
    for stage in &spec.stages {
        let Some(all_reduce) = stage.all_reduce.as_ref().filter(|stated| stated.value) else { continue };
        let refused = |message: String, label: &str, help: &str| {
            Err(Diagnostic::new("all-reduce", message).at(all_reduce.span, label).help(help))
        };
        let name = &stage.name.value;
        let Some(devices) = &spec.devices else {
            let message = format!("`{name}` is summed over devices, and the pipeline has one");
            return refused(message, "no number of devices is stated", "state `devices: 2` in the pipeline");
        };
        if matches!(stage.kind, StageKind::NormedGemm { .. }) {
            let message = format!("`{name}` normalizes rows of which a device has a part");
            let help = "let an RmsNorm stage normalize whole rows on every device";
            return refused(message, "its reduction is divided among the devices", help);
        }
        let same = resolved.stages.iter_mut().filter(|resolved| resolved.name.value == *name);
        same.for_each(|resolved| resolved.devices = devices.value);
    }
    let Some(devices) = &spec.devices else { return Ok(()) };
    let refused = |message: String, help: String| {
        let label = format!("{} here", devices.value);
        Err(Diagnostic::new("devices", message).at(devices.span, label).help(help))
    };
    if !(1..=MAX_DEVICES).contains(&devices.value) {
        let message = format!("a pipeline runs on 1 to {MAX_DEVICES} devices");
        return refused(message, format!("state at most {MAX_DEVICES}"));
    }
    if devices.value > 1 && resolved.stages.iter().all(|stage| stage.devices == 1) {
        let message = "no stage is summed over the devices".into();
        return refused(message, "state `all_reduce: true` in a Gemm, or leave `devices` out".into());
    }
    match spec.alias.first().filter(|_| devices.value > 1) {
        Some((name, _)) => Err(Diagnostic::new("devices", "tensors of several devices share no memory")
            .at(name.span, "shares memory")
            .also(devices.span, "several devices")
            .help("leave `alias` out")),
        None => Ok(()),
    }
}

impl Resolved {
    /// Devices that run the pipeline at once, each with tensors of its own.
    pub fn devices(&self) -> u32 {
        self.stages.iter().map(|stage| stage.devices).max().unwrap_or(1)
    }
}

impl super::Graph {
    /// See [`Resolved::devices`].
    pub fn devices(&self) -> u32 {
        self.stages.iter().map(|stage| stage.devices).max().unwrap_or(1)
    }

    /// The area in which a device receives sums: the first word of each stage's matrices (`None`: not summed), and the
    /// number of words. A stage has two sets, for alternate runs, with an `m` x `n` matrix from each device.
    pub fn area(&self) -> (Vec<Option<u64>>, u64) {
        let mut words = 0;
        let first = self.stages.iter().map(|stage| {
            let first = (stage.devices > 1).then_some(words);
            words += first.map_or(0, |_| 2 * u64::from(stage.devices) * stage.summed_words());
            first
        });
        (first.collect(), words)
    }
}

impl super::Stage {
    /// Words that a device sends to each device in a run, and sums that it adds from each.
    pub fn summed_words(&self) -> u64 {
        if self.devices > 1 { u64::from(self.m) * u64::from(self.n) } else { 0 }
    }
}
