//! Pipelines of one plan on several GPUs, which sum some of their products: see [`crate::Group`].

use std::sync::Arc;

use cusync_gen::check::Plan;
use cusync_gen::graph::Graph;

use super::error::{Error, Result};
use super::pipeline::Pipeline;
use crate::device::{Device, GroupMember};

impl Pipeline {
    /// Whether its runs wait for those of other GPUs.
    pub fn in_group(&self) -> bool {
        self.group.is_some()
    }

    /// Lets pipelines of one plan, each on a GPU of its own, run as a group. From then on all of them must run equally
    /// often: each run waits for the sums of the same run on the other GPUs. Kernels made before are made again.
    ///
    /// # Errors
    /// The plan is for another number of devices, the pipelines have different plans, two are on one GPU, or two GPUs
    /// are not connected.
    pub fn form_group(pipelines: &mut [&mut Pipeline]) -> Result<()> {
        let refused = |why: String| Err(Error::Unsupported(why));
        let Some(first) = pipelines.first() else { return Ok(()) };
        let (graph, want) = (first.plan.graph().clone(), first.plan.graph().devices() as usize);
        if want != pipelines.len() {
            return refused(format!(
                "{} is planned for {want} devices, and there are {}",
                graph.name,
                pipelines.len()
            ));
        }
        let launch = first.plan.launch().clone();
        let Some(shares) = launch.shares() else {
            return refused(format!("{} is no decode plan: only decode kernels sum over GPUs", graph.name));
        };
        // Words have the same places on all devices.
        let sizes = |graph: &Graph| -> Vec<_> {
            graph.stages.iter().map(|stage| (stage.m, stage.n, stage.k, stage.devices)).collect()
        };
        let like = |other: &Plan| *other.launch() == launch && sizes(other.graph()) == sizes(&graph);
        if !pipelines.iter().all(|other| like(&other.plan)) {
            return refused(format!(
                "the devices of {} have different plans\n  help: use GPUs of one kind",
                graph.name
            ));
        }
        let devices: Vec<Device> = pipelines.iter().map(|pipeline| pipeline.device.clone()).collect();
        let twice = |(n, device): (usize, &Device)| {
            devices[..n].iter().any(|other| other.as_raw() == device.as_raw())
        };
        if devices.iter().enumerate().any(twice) {
            return refused(
                "two devices of a group are the same GPU: their kernels would wait for its SMs".into(),
            );
        }
        let members = GroupMember::of_group(&devices, graph.area(), shares.workers() as usize)?;
        for (pipeline, member) in pipelines.iter_mut().zip(members) {
            pipeline.group = Some(Arc::new(member));
            pipeline.sets.iter_mut().for_each(super::pipeline::Set::changed);
        }
        Ok(())
    }
}
