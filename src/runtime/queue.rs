//! How the kernels of a plan with one per stage are queued: streams, the starts that each waits for, and how
//! early it may begin.

use cusync_gen::check::{Executor, How, Plan, StageLaunch, StartGuarantee};
use cusync_gen::graph::{Dependence, StageId};

/// How the kernel of a stage is queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queued {
    pub(super) stage: usize,
    /// 0 is the main stream.
    pub(super) stream: usize,
    /// Producers launched earlier; all their CTAs must have started.
    pub(super) after: Vec<usize>,
    /// Whether other stages wait for the start of its CTAs.
    pub(super) announces: bool,
    /// Whether it waits and posts.
    pub(super) tiled: bool,
    /// Whether cuBLASLt may compute it.
    pub(super) library: bool,
    /// Whether it may begin when the CTAs of the previous kernel have issued their triggers.
    pub(super) programmatic: bool,
    /// Whether it may begin early where [`super::Overlap`] allows it: it waits for the end of the previous
    /// kernel.
    pub(super) early: bool,
    /// Whether its workers never wait, so that it may begin early behind another launch of its run regardless
    /// of [`super::Overlap`].
    pub(super) apart: bool,
}

/// Whether an executor queues a plan's kernels on several streams.
pub(super) fn side_by_side(plan: &Plan, executor: Executor) -> bool {
    let streams = matches!(plan.launch().how(), Some(How::Streams(_)));
    streams && executor != Executor::Serial && plan.launch().kernels().len() > 1
}

/// Queue of a plan with one kernel per stage: the proved launches, in their order.
pub(super) fn queue(plan: &Plan, executor: Executor) -> Vec<Queued> {
    let launch = plan.launch();
    // Every executor runs a serial chain serially, and `serial` runs every plan that way.
    let how = if executor == Executor::Serial { Some(How::Serial) } else { launch.how() };
    let one = |(place, kernel): (usize, &StageLaunch)| {
        let stage = kernel.stage;
        let plain = Queued {
            stage: stage.0,
            stream: 0,
            after: Vec::new(),
            announces: false,
            tiled: true,
            library: false,
            programmatic: false,
            early: plan.may_begin_early(stage),
            apart: plan.works_apart(stage),
        };
        match how {
            None | Some(How::Host | How::Serial) => Queued { tiled: false, ..plain },
            Some(How::Library) => Queued { tiled: false, library: true, ..plain },
            Some(How::Programmatic) => Queued { programmatic: place > 0, ..plain },
            Some(How::Streams(guarantee)) => {
                let others = |own: fn(&Dependence) -> (StageId, StageId)| {
                    let ends = plan.edges().iter().map(move |e| own(e.dependence()));
                    ends.filter(|(this, _)| *this == stage).map(|(_, other)| other)
                };
                let mut after: Vec<usize> = match guarantee {
                    StartGuarantee::None => Vec::new(),
                    // A kernel launched later has no start to wait for; the proof does not rely on one.
                    StartGuarantee::AllProducersStarted => others(|d| (d.consumer, d.producer))
                        .filter(|producer| launch.position(*producer) < place)
                        .map(|producer| producer.0)
                        .collect(),
                };
                after.sort_unstable();
                after.dedup();
                let announces = others(|d| (d.producer, d.consumer)).next().is_some();
                Queued { stream: place, after, announces, ..plain }
            }
        }
    };
    launch.kernels().iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use cusync_gen::check::{Candidate, check};
    use cusync_gen::device::Profile;

    use super::*;

    /// Proved launches of a diamond whose graph lists its last stage first.
    fn queued(how: How, launched: [usize; 4], executor: Executor) -> Vec<Queued> {
        let source = r#"Pipeline(name: "diamond", dims: { "M": 256 }, stages: [
            Gemm(name: "top", a: "X(M,M)", b: "W0(M,M)", out: "T(M,M)"),
            Gemm(name: "left", a: "T(M,M)", b: "W1(M,M)", out: "L(M,M)"),
            Gemm(name: "right", a: "T(M,M)", b: "W2(M,M)", out: "R(M,M)"),
            Gemm(name: "join", a: "L(M,M)", b: "R(M,M)", out: "Z(M,M)"),
        ])"#;
        let resolved = cusync_gen::spec::parse(source, "test").and_then(|s| s.resolve(&[])).expect("valid");
        let mut graph = resolved.graph(&[(128, 128, 64); 4]).expect("small");
        let turned = |stage: StageId| StageId(3 - stage.0);
        graph.stages.reverse();
        graph.tensors.iter_mut().for_each(|t| t.producer = t.producer.map(turned));
        for d in &mut graph.dependences {
            (d.producer, d.consumer) = (turned(d.producer), turned(d.consumer));
        }
        let mut c = Candidate::new(graph, Profile::named("h200").expect("shipped").clone(), how);
        c.launch.kernels_mut().iter_mut().zip(launched).for_each(|(kernel, s)| kernel.stage = StageId(s));
        queue(&check(c).expect("proved"), executor)
    }

    fn order(queue: &[Queued]) -> Vec<usize> {
        queue.iter().map(|queued| queued.stage).collect()
    }

    #[test]
    fn what_is_queued_is_what_was_proved() {
        // Stage 3 is `top`, stage 0 `join`.
        let serial = queued(How::Serial, [3, 1, 2, 0], Executor::Serial);
        assert_eq!(order(&serial), [3, 1, 2, 0]);
        assert!(serial.iter().all(|q| q.stream == 0 && !q.tiled && !q.programmatic));
        // A serial chain stays serial under every executor; `serial` runs other plans in their order.
        assert_eq!(queued(How::Serial, [3, 1, 2, 0], Executor::Programmatic), serial);
        assert_eq!(queued(How::STREAMS, [3, 1, 2, 0], Executor::Serial), serial);
        let programmatic = queued(How::Programmatic, [3, 2, 1, 0], Executor::Programmatic);
        assert_eq!(order(&programmatic), [3, 2, 1, 0]);
        let early: Vec<bool> = programmatic.iter().map(|q| q.programmatic).collect();
        assert_eq!(early, [false, true, true, true]);
        assert!(programmatic.iter().all(|q| q.tiled && q.stream == 0));
    }

    #[test]
    fn streams_wait_for_the_starts_of_producers_launched_before() {
        let streams = queued(How::STREAMS, [3, 1, 2, 0], Executor::Streams);
        let waits: Vec<_> =
            streams.iter().map(|q| (q.stage, q.stream, q.after.clone(), q.announces)).collect();
        let expected =
            [(3, 0, vec![], true), (1, 1, vec![3], true), (2, 2, vec![3], true), (0, 3, vec![1, 2], false)];
        assert_eq!(waits, expected);
        // No stage waits for a start that is still to come: such a plan is proved without it.
        let late = queued(How::STREAMS, [0, 3, 1, 2], Executor::Streams);
        assert_eq!((late[0].stage, late[0].after.len()), (0, 0));
        let free = queued(How::Streams(StartGuarantee::None), [3, 1, 2, 0], Executor::Streams);
        assert!(free.iter().all(|q| q.after.is_empty() && q.tiled));
    }
}
