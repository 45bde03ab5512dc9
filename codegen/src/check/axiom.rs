//! Premises that a verdict assumes and does not prove.

use super::Obligation::{self, *};
use super::{How, Launch, StartGuarantee};
use crate::graph::{Graph, Stage};

/// A premise of a proof: about the GPU, about other work on it, or about kernels and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axiom {
    /// The kernels make exactly the judged posts, waits, loads and stores, in that order.
    Program,
    /// The kernels fence and wait as their contract states.
    Practice,
    /// Release and acquire at device scope, proxy fences and full bulk waits order memory as the PTX manual specifies.
    MemoryModel,
    /// A CTA that holds an SM and can run does run, and a CTA that fits an SM is placed there.
    Fairness,
    /// Work that waits for a kernel's trigger begins only after every CTA of that kernel has issued it or exited.
    Trigger,
    /// Where a programmatic edge lets the kernel begin before all SMs that its workers need are free, no other work
    /// holds those SMs forever. Launches without such edges are cooperative.
    Residency,
    /// A kernel begins after all earlier kernels on its stream have ended, and sees everything they stored.
    KernelBoundary,
    /// `griddepcontrol.wait` returns after the previous runs have ended, and makes everything they stored visible.
    GridDependency,
    /// Bound memory does not overlap anything a stage writes, and nothing outside the run writes to it, to an output
    /// or to a cache while the run uses it.
    Memory,
    /// Runs of a pipeline, eager or replayed, follow each other, ordered by the stream or by events.
    Runs,
    /// A page to which a run appends a token belongs to one sequence only; read-only pages may be shared.
    Pages,
    /// All devices of a group run the plan equally often, and a 64-bit word that one writes to another's memory arrives
    /// there, whole.
    Group,
    /// Host threads make progress, and host atomics order memory as the language specifies.
    Host,
}

impl Axiom {
    /// The stable name.
    pub fn id(self) -> &'static str {
        match self {
            Axiom::Program => "program",
            Axiom::Practice => "practice",
            Axiom::MemoryModel => "memory-model",
            Axiom::Fairness => "fairness",
            Axiom::Trigger => "trigger",
            Axiom::Residency => "residency",
            Axiom::KernelBoundary => "kernel-boundary",
            Axiom::GridDependency => "grid-dependency",
            Axiom::Memory => "memory",
            Axiom::Runs => "runs",
            Axiom::Pages => "pages",
            Axiom::Group => "group",
            Axiom::Host => "host",
        }
    }

    /// The premise as a sentence without a full stop.
    pub fn statement(self) -> &'static str {
        match self {
            Axiom::Program => "the kernels post, wait, load and store what was judged, in that order",
            Axiom::Practice => "the kernels fence and wait as their contract says",
            Axiom::MemoryModel => {
                "release, acquire, proxy fences and full bulk waits order memory as the PTX manual says"
            }
            Axiom::Fairness => "a CTA that can go on does, and one that fits an SM is placed there",
            Axiom::Trigger => {
                "what waits for a kernel's trigger begins only when every CTA of that kernel has issued it or ended"
            }
            Axiom::Residency => {
                "no other work keeps the SMs forever that the workers of a programmatic launch need"
            }
            Axiom::KernelBoundary => {
                "a kernel begins when those before it on its stream have ended, and sees what they stored"
            }
            Axiom::GridDependency => {
                "`griddepcontrol.wait` returns when the runs before have ended, and what they stored is seen"
            }
            Axiom::Memory => {
                "what is bound overlaps no output, and nobody else writes to bound memory or outputs while a run uses them"
            }
            Axiom::Runs => "runs of a pipeline, eager or replayed, follow each other",
            Axiom::Pages => "a page to which a run appends a token of one sequence is no other sequence's",
            Axiom::Group => {
                "all devices run the plan equally often, and a 64-bit word for another device arrives there whole"
            }
            Axiom::Host => "threads of the host go on, and atomics order memory as the language says",
        }
    }

    /// The obligations that assume it.
    pub fn used_by(self) -> &'static [Obligation] {
        match self {
            Axiom::Program => &[Order, Bounds, Cover, Count, Acyclic, Progress, Reuse],
            Axiom::Practice => &[Reuse, Replay, Visible],
            Axiom::MemoryModel => &[Cover, Reuse, Visible],
            Axiom::Fairness | Axiom::Trigger | Axiom::Residency => &[Progress],
            Axiom::KernelBoundary => &[Cover, Progress, Reuse, Replay],
            Axiom::GridDependency => &[Reuse, Replay],
            Axiom::Memory => &[Cover, Reuse, Replay],
            Axiom::Runs => &[Reuse, Replay, Visible],
            Axiom::Pages => &[Reuse, Replay],
            Axiom::Group => &[Progress, Reuse, Visible],
            Axiom::Host => &[Progress, Visible],
        }
    }

    /// The premises of a proof of this launch on a GPU of this architecture.
    pub fn for_launch(graph: &Graph, launch: &Launch, arch: u32) -> Vec<Axiom> {
        let paged = |stage: &Stage| stage.op.cache().is_some_and(|cache| cache.pages.is_some());
        let mut all = Axiom::of_launch(launch, arch);
        if launch.on_gpu() {
            all.push(Axiom::Runs);
        }
        if graph.stages.iter().any(paged) {
            all.push(Axiom::Pages);
        }
        if graph.devices() > 1 {
            all.push(Axiom::Group);
        }
        all
    }

    fn of_launch(launch: &Launch, arch: u32) -> Vec<Axiom> {
        use Axiom::*;
        match launch {
            Launch::Stages { how, .. } => match how {
                How::Host => vec![Program, Host],
                // Workers of a chain kernel pass partial sums to each other.
                How::Serial | How::Library if launch.is_in_turn() => vec![
                    Program,
                    Practice,
                    MemoryModel,
                    Fairness,
                    Residency,
                    KernelBoundary,
                    GridDependency,
                    Memory,
                ],
                How::Serial | How::Library => vec![Program, KernelBoundary, Memory],
                How::Streams(start) => {
                    let mut all = vec![Program, Practice, MemoryModel, Fairness];
                    match start {
                        // A gate thread waits; the kernel queued after it on the stream begins once it ends.
                        StartGuarantee::AllProducersStarted if launch.has_gates(arch) => {}
                        StartGuarantee::AllProducersStarted => all.push(Trigger),
                        StartGuarantee::None => {}
                    }
                    all.extend([KernelBoundary, Memory]);
                    all
                }
                How::Programmatic => {
                    vec![Program, Practice, MemoryModel, Fairness, Trigger, KernelBoundary, Memory]
                }
            },
            Launch::Lists(_) | Launch::Shares(_) => {
                vec![Program, Practice, MemoryModel, Fairness, Residency, GridDependency, Memory]
            }
        }
    }
}
