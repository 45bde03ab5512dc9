//! Which executors can run a pipeline on a device, and why the others cannot. Every command uses these answers.

use std::fmt::Write;

use super::space::{dependences, executors};
use super::{chain, decode, in_turn, search};
use crate::check::{Executor, How};
use crate::device::Profile;
use crate::graph::{Resolved, ResolvedStage, StageId, Tensor, TensorId, View};
use crate::obstacle::Obstacle;

/// The first reason why an executor cannot run a pipeline on a device; `None` if [`super::candidate`] has a choice
/// that it can run.
pub fn obstacle(resolved: &Resolved, device: &Profile, executor: Executor) -> Option<Obstacle> {
    unplanned(resolved, device, executor).or_else(|| match executor {
        Executor::Cpu => None,
        Executor::Serial
        | Executor::Library
        | Executor::Streams
        | Executor::Programmatic
        | Executor::Fused
        | Executor::Copilot => owners(resolved),
    })
}

/// [`obstacle`] of every executor that has one, in the order of [`Executor::ALL`].
pub fn obstacles(resolved: &Resolved, device: &Profile) -> Vec<(Executor, Obstacle)> {
    let one = |executor| Some((executor, obstacle(resolved, device, executor)?));
    Executor::ALL.into_iter().filter_map(one).collect()
}

/// If no executor of the device runs the pipeline, the executor to plan it for when none is requested, and a sentence
/// that explains why; otherwise `None`. One-by-one kernels are chosen for pipelines with user kernels, `cpu` for the
/// rest.
pub fn fallback(resolved: &Resolved, device: &Profile) -> Option<(Executor, String)> {
    let mut obstacles = Vec::new();
    for executor in executors(device) {
        obstacles.push((executor, obstacle(resolved, device, executor)?));
    }
    let own = one_by_one(device);
    let other = if unplanned(resolved, device, own).is_none() { own } else { Executor::Cpu };
    Some((other, note(resolved, device, &obstacles)))
}

/// The executor that runs a pipeline, regardless of predicted times: the device's usual one or, if that cannot,
/// `fused`, `serial` or `cpu`.
pub fn usual_executor(resolved: &Resolved, device: &Profile) -> Executor {
    let usual = [one_by_one(device), Executor::Fused, Executor::Serial];
    let runs = |executor: &Executor| unplanned(resolved, device, *executor).is_none();
    usual.into_iter().find(runs).unwrap_or(Executor::Cpu)
}

/// The usual executor of a device for kernels launched one by one.
pub fn one_by_one(device: &Profile) -> Executor {
    if device.arch >= 90 { Executor::Programmatic } else { Executor::Streams }
}

/// `cannot run on h200: fused: stage ...; serial, library: stage ...`, with the executors that got furthest first.
fn note(resolved: &Resolved, device: &Profile, obstacles: &[(Executor, Obstacle)]) -> String {
    let mut groups: Vec<(&Obstacle, Vec<&str>)> = Vec::new();
    for (executor, obstacle) in obstacles {
        match groups.iter_mut().find(|(other, _)| *other == obstacle) {
            Some((_, names)) => names.push(executor.name()),
            None => groups.push((obstacle, vec![executor.name()])),
        }
    }
    groups.sort_by_key(|(obstacle, _)| std::cmp::Reverse(stage_index(resolved, obstacle)));
    let mut text = format!("cannot run on {}", device.name);
    for (number, (obstacle, names)) in groups.iter().enumerate() {
        let sign = if number == 0 { ":" } else { ";" };
        // Writing to a string cannot fail.
        let _ = match groups.len() {
            1 => write!(text, ": {obstacle}"),
            _ => write!(text, "{sign} {}: {obstacle}", names.join(", ")),
        };
    }
    text
}

/// Index of the stage that an obstacle concerns; one past the last stage if it concerns the whole pipeline.
fn stage_index(resolved: &Resolved, obstacle: &Obstacle) -> usize {
    let stage = |name: &String| resolved.stages.iter().position(|s| s.name.value == *name);
    obstacle.stage.as_ref().and_then(stage).unwrap_or(resolved.stages.len())
}

/// The obstacle of whichever of two launch methods gets further through the stages; the first one on a tie.
fn further(resolved: &Resolved, a: Option<Obstacle>, b: Option<Obstacle>) -> Option<Obstacle> {
    let (a, b) = (a?, b?);
    Some(if stage_index(resolved, &b) > stage_index(resolved, &a) { b } else { a })
}

/// The first stage with rows, or an activation, that no kernel of the library takes.
pub(super) fn beyond_kernels(resolved: &Resolved) -> Option<Obstacle> {
    let unfit = |stage: &ResolvedStage| {
        let shown = |id: TensorId, view: Option<View>| {
            let tensor = &resolved.tensors[id.0];
            (tensor, view.map_or(tensor.cols, |view| view.cols))
        };
        let reads = stage.reads.iter().map(|read| shown(read.tensor, read.view));
        let rows = stage.op.unfit_rows(reads.chain([shown(stage.out.value, None)]));
        rows.or_else(|| stage.op.unfit_activation()).map(|why| why.of_stage(&stage.name.value))
    };
    resolved.stages.iter().find_map(unfit)
}

/// Why an executor has no plan.
pub(super) fn unplanned(resolved: &Resolved, device: &Profile, executor: Executor) -> Option<Obstacle> {
    if let Some(why) = beyond_kernels(resolved).filter(|_| executor != Executor::Cpu) {
        return Some(why);
    }
    if let Some(summed) = summed(resolved).filter(|_| !matches!(executor, Executor::Cpu | Executor::Fused)) {
        return Some(summed);
    }
    match executor {
        Executor::Cpu => search::unfit(resolved, device, How::Host),
        Executor::Serial => one_after_the_other(resolved, device, How::Serial),
        Executor::Library => one_after_the_other(resolved, device, How::Library),
        Executor::Streams => own_kernels(resolved, device, How::STREAMS).or_else(|| gates(resolved, device)),
        Executor::Programmatic if device.arch < 90 => {
            let text =
                format!("programmatic launches begin with sm_90, and {} is sm_{}", device.name, device.arch);
            Some(Obstacle::new(text).numbers(device.arch, 90u32))
        }
        Executor::Programmatic => own_kernels(resolved, device, How::Programmatic),
        Executor::Fused => without_lists(device).or_else(|| {
            let few = decode::unfit(resolved, device)?;
            let many = chain::unfit(resolved, device);
            let decodes_only = |s: &ResolvedStage| !s.op.in_chain() && s.op.has_kernel(device.arch, executor);
            // Report the decode kernel's obstacle if no chain kernel has a stage's operation, or if the chain kernel's
            // obstacle comes earlier.
            match resolved.stages.iter().any(decodes_only) {
                true => many.and(Some(few)),
                false => further(resolved, many, Some(few)),
            }
        }),
        Executor::Copilot => {
            without_lists(device).or_else(|| jobs(resolved)).or_else(|| decode::unfit(resolved, device))
        }
    }
}

/// The obstacle of devices without chain and decode kernels.
pub(super) fn without_lists(device: &Profile) -> Option<Obstacle> {
    let text = || {
        format!(
            "there are no kernels for {} (sm_{}) that run all stages, only for sm_90",
            device.name, device.arch
        )
    };
    (device.arch != 90).then(|| Obstacle::new(text()).numbers(device.arch, 90u32))
}

/// The first stage that session jobs cannot run: they are decode kernels for products only.
fn jobs(resolved: &Resolved) -> Option<Obstacle> {
    let jobless = |stage: &ResolvedStage| {
        let text = || format!("is {}, and jobs of a session are products alone", stage.op.name());
        let other = (!stage.op.is_gemm()).then(|| Obstacle::new(text()));
        other.or_else(|| stage.op.unfit_beside_others()).map(|why| why.of_stage(&stage.name.value))
    };
    resolved.stages.iter().find_map(jobless)
}

/// The obstacle of `serial` and `library`, which launch each stage's own kernel or, if one is missing, one kernel per
/// stage that runs between kernel boundaries only.
fn one_after_the_other(resolved: &Resolved, device: &Profile, how: How) -> Option<Obstacle> {
    let own = own_kernels(resolved, device, how);
    if resolved.own_kernels(device) || device.arch != 90 {
        return own;
    }
    let in_library = |s: &ResolvedStage| s.op.in_library(s.reads.iter().map(|read| read.kind));
    further(resolved, one_a_stage(resolved, device), own.clone()).or_else(|| {
        let own = own.filter(|_| how == How::Library && !resolved.stages.iter().any(in_library))?;
        let reason = format!("{}, and no stage is a product that cuBLASLt computes", own.reason);
        Some(Obstacle { reason, ..own })
    })
}

/// The obstacle of one kernel per stage between kernel boundaries.
pub(super) fn one_a_stage(resolved: &Resolved, device: &Profile) -> Option<Obstacle> {
    let stages = (0..resolved.stages.len()).map(StageId);
    stages.filter_map(|stage| in_turn::unfit(&resolved.only(stage), device)).next()
}

/// The obstacle of a separate kernel for each stage.
fn own_kernels(resolved: &Resolved, device: &Profile, how: How) -> Option<Obstacle> {
    let without = |stage: &&ResolvedStage| !stage.op.has_kernel(device.arch, how.executor());
    let Some(stage) = resolved.stages.iter().find(without) else {
        return search::unfit(resolved, device, how);
    };
    let none = || {
        Obstacle::new(format!("is {}, which has no kernel of its own on {}", stage.op.name(), device.name))
    };
    // Kernels that run alone are for sm_90 only.
    let alone = stage.op.unfit_beside_others().filter(|_| device.arch == 90);
    let why = alone.map(|alone| stage.op.unfit_in_any().unwrap_or(alone));
    Some(why.unwrap_or_else(none).of_stage(&stage.name.value))
}

/// The obstacle of consumers' gates, which must not occupy every SM (`crowded_by_gates` of `check`).
fn gates(resolved: &Resolved, device: &Profile) -> Option<Obstacle> {
    let mut gated: Vec<usize> = dependences(resolved).map(|d| d.consumer.0).collect();
    gated.dedup();
    let (have, most) = (gated.len(), device.sms.saturating_sub(1));
    let crowded = device.arch < 90 && have > most as usize;
    crowded.then(|| {
        let text = format!("{have} stages wait at gates, which leave no SM of {} free", device.sms);
        Obstacle::new(text).numbers(have as u64, most).help("cut the pipeline in two")
    })
}

/// Stages that the user must run, as the library has no kernel for them: all Custom stages whose kernel is not given.
fn owners(resolved: &Resolved) -> Option<Obstacle> {
    let mut stages = resolved.stages.iter();
    let custom = stages.find(|stage| stage.custom.is_some() && !stage.has_own_kernel).map(|stage| {
        let name = &stage.name.value;
        Obstacle::new("is Custom: your own kernel, of which nothing is known")
            .help(format!("`cusync run --kernel {name}=FILE.cu` runs it"))
            .of_stage(name)
    });
    let split = || {
        let stage = resolved.stages.iter().find(|stage| stage.split_k.value > 1)?;
        let ways = stage.split_k.value;
        let text = format!("is split {ways} ways along k, which your own kernel has to do");
        Some(Obstacle::new(text).numbers(ways, 1u32).of_stage(&stage.name.value))
    };
    custom.or_else(split).or_else(|| {
        let tensors = &resolved.tensors;
        let elements = |t: &Tensor| u64::from(t.rows) * u64::from(t.cols);
        let of_other_size = |t: &&Tensor| t.alias.is_some_and(|a| elements(&tensors[a.0]) != elements(t));
        let shared = tensors.iter().find(of_other_size)?;
        let text = format!("`{}` takes the memory of a tensor of another size", shared.name);
        Some(Obstacle::new(text).help("share memory among tensors of one size"))
    })
}

/// The first stage with sums over devices, which only decode kernels and host threads exchange.
fn summed(resolved: &Resolved) -> Option<Obstacle> {
    let stage = resolved.stages.iter().find(|stage| stage.devices > 1)?;
    let text = format!("is summed over {} devices, which only decode kernels do", stage.devices);
    Some(Obstacle::new(text).numbers(stage.devices, 1u32).of_stage(&stage.name.value))
}

/// Features that no chain kernel supports with any tile.
pub(super) fn beyond_chains(resolved: &Resolved) -> Option<Obstacle> {
    if let Some(summed) = summed(resolved) {
        return Some(summed);
    }
    let stage = resolved.stages.iter().find(|stage| stage.split_k.value > 1)?;
    let ways = stage.split_k.value;
    let text = format!("is split {ways} ways along k, which no chain kernel does as stated");
    Some(Obstacle::new(text).numbers(ways, 1u32).of_stage(&stage.name.value))
}
