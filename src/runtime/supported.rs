//! Requirements that a pipeline checks before it allocates: the right GPU, stages with kernels, valid memory
//! sharing.

use cusync_gen::check::{Plan, StageKernel};
use cusync_gen::graph::{Op, OperandKind, StageId};

use super::error::{Error, Result};
use crate::device::Device;

/// Checks that the proof is for this device. If each worker has its own SM, a plan may leave SMs free.
pub(super) fn suits(plan: &Plan, device: &Device) -> Result<()> {
    let (profile, (major, minor)) = (plan.device(), device.capability());
    let family = match profile.arch {
        90 => major == 9,
        _ => major >= 8,
    };
    let free = plan.launch().shares().is_some() && profile.sms < device.sms();
    if family && (profile.sms == device.sms() || free) {
        return Ok(());
    }
    Err(Error::OtherDevice {
        plan: format!("{} (sm_{}, {} SMs)", profile.name, profile.arch, profile.sms),
        gpu: format!("{} (compute capability {major}.{minor}, {} SMs)", device.name(), device.sms()),
    })
}

/// Checks that the built-in kernels run a stage, or that the user's may.
pub(super) fn runnable(plan: &Plan, id: StageId) -> Result<()> {
    let stage = &plan.graph().stages[id.0];
    let unsupported = |why: &str| Err(Error::Unsupported(format!("stage {}: {why}", stage.name)));
    let launch = plan.launch();
    let runs = match launch.kernel(id).map(|launched| &launched.kernel) {
        Some(StageKernel::Alone) => stage.op.runs_alone(stage.n),
        Some(StageKernel::Lists(_)) => stage.op.in_chain(),
        Some(StageKernel::Ordered) | None => stage.op.has_kernel(plan.device().arch, launch.executor()),
    };
    if !runs {
        let kind = stage.op.name();
        return unsupported(&format!("{kind} has no CUDA kernel yet; the cpu executor runs it"));
    }
    let tensors = &plan.graph().tensors;
    let reads = stage.operands.iter().map(|operand| {
        let tensor = &tensors[operand.tensor.0];
        (tensor, operand.shape(tensor).1)
    });
    let out = &tensors[stage.out.0];
    let rows = stage.op.unfit_rows(reads.chain([(out, out.cols)]));
    if let Some(why) = rows.or_else(|| stage.op.unfit_activation()) {
        return unsupported(&why.to_string());
    }
    match stage.op {
        Op::Custom if launch.kernel(id).is_none() => {
            return unsupported("the kernel of a Custom stage has a launch to itself");
        }
        Op::GatedGemm(_) => {
            let produced = |kind| {
                stage.operand(kind).is_some_and(|o| plan.graph().tensors[o.tensor.0].producer.is_some())
            };
            if produced(OperandKind::B) || produced(OperandKind::Up) {
                return unsupported(
                    "gate and up weights are interleaved before the run, so no stage may produce them",
                );
            }
        }
        Op::Gemm(_)
        | Op::NormedGemm(_)
        | Op::RotatedGemm(_)
        | Op::Conv2d(_)
        | Op::GroupedConv(_)
        | Op::Attention(_)
        | Op::Attend(_)
        | Op::Norm(_)
        | Op::GroupNorm(_)
        | Op::Pool(_)
        | Op::Experts(_)
        | Op::Custom => {}
    }
    if stage.split_k != 1 {
        return unsupported("split-K stages have no kernel");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cusync_gen::check::Executor;
    use cusync_gen::device::Profile;

    use super::*;
    use crate::runtime::{Overrides, SHIPPED, plan_text};

    #[test]
    fn stages_without_a_kernel_are_refused_by_name_and_the_others_are_not() {
        let profile = Profile::named("h200").expect("the profile ships");
        for (name, source) in SHIPPED {
            let plan =
                plan_text(source, name, &Overrides::default(), profile, Executor::Cpu).expect("proved");
            for (index, stage) in plan.graph().stages.iter().enumerate() {
                match (stage.op.has_kernel(90, Executor::Serial), runnable(&plan, StageId(index))) {
                    (true, ran) => assert_eq!(ran, Ok(()), "{name} {}", stage.name),
                    (false, ran) => {
                        let text = ran.expect_err("no kernel").to_string();
                        let words = [stage.name.as_str(), stage.op.name(), "no CUDA kernel", "cpu executor"];
                        assert!(words.iter().all(|w| text.contains(w)), "{text}");
                    }
                }
            }
        }
    }
}
