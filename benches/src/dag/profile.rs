//! Durations of kernels, measured one by one.

use std::sync::Arc;

use cusync_dag::GraphPlan;

use crate::{Result, percentile};
use cusync::device::{Event, Stream};
use cusync::programs::BoundRecording;

/// Repetitions of a kernel; the difference between the two cancels the launch cost of the graph.
const REPEATS: [usize; 2] = [3, 19];
/// From the end of a node of a graph to the start of the next, microseconds: not part of the kernel. Taken
/// from chains of kernels that record their times.
const EDGE_US: f64 = 1.25;
/// Minimum duration: launching an empty kernel takes less than the edge.
const LEAST_US: f64 = 0.2;

/// Measures every node alone and stores the durations in the program. The buffers' contents are arbitrary
/// afterward. Nodes with the same kernel and shape are measured once.
pub(super) fn measure_durations(bound: &mut BoundRecording, main: &Arc<Stream>) -> Result<Vec<f64>> {
    let device = bound.device().clone();
    let events = [Event::timing(&device)?, Event::timing(&device)?];
    let mut known: Vec<((String, cusync_dag::LaunchConfig, u64), f64)> = Vec::new();
    let mut all = Vec::new();
    let nodes: Vec<_> = bound.program().ids().collect();
    for id in nodes {
        let node = bound.program().node(id);
        let Some(kernel) = node.kernel() else {
            all.push(node.us);
            continue;
        };
        // Spin kernels differ in their rounds, which their estimate identifies.
        let key = (node.name.clone(), kernel.launch, kernel.traffic_bytes ^ node.us.to_bits());
        let us = match known.iter().find(|(k, _)| *k == key) {
            Some((_, us)) => *us,
            None => {
                let mut total = [0.0; 2];
                for (repeats, total) in REPEATS.into_iter().zip(&mut total) {
                    let plan = GraphPlan::chain((0..repeats).collect());
                    let exec = bound.calls().repeated(id, repeats)?.planned(main, plan)?;
                    let mut times = Vec::new();
                    for _ in 0..5 {
                        main.record(&events[0])?;
                        exec.launch()?;
                        main.record(&events[1])?;
                        exec.synchronize()?;
                        times.push(events[1].us_since(&events[0])?);
                    }
                    *total = percentile(&mut times, 0.5);
                }
                let each = (total[1] - total[0]) / (REPEATS[1] - REPEATS[0]) as f64;
                let us = (each - EDGE_US).max(LEAST_US);
                known.push((key, us));
                us
            }
        };
        bound.set_us(id, us)?;
        all.push(us);
    }
    Ok(all)
}
