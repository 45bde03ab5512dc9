//! Things that can be timed against each other.

use cusync_gen::check::Executor;

use super::Result;
use crate::device::{GraphExec, Stream};
use crate::runtime::{Captured, Pipeline};

/// One way of computing what all variants of a comparison compute.
pub trait Variant {
    /// Queues one sample on [`Variant::stream`]: runs of every weight set, equally many for all variants of a comparison.
    fn enqueue(&mut self) -> Result<()>;
    /// Where samples go.
    fn stream(&self) -> &Stream;
    /// Waits for what was queued, with the best error there is.
    fn synchronize(&mut self) -> Result<()>;
}

/// A pipeline, queued eagerly or replayed as one graph of all weight sets.
pub struct PipelineVariant {
    pipeline: Pipeline,
    executor: Executor,
    graph: Option<Captured>,
    /// Runs of each weight set in a sample.
    rounds: usize,
}

impl PipelineVariant {
    /// Prepares `rounds` runs of each weight set a sample, as one graph or to be queued one by one.
    pub fn new(mut pipeline: Pipeline, executor: Executor, as_graph: bool, rounds: usize) -> Result<Self> {
        pipeline.prepare()?;
        let sets: Vec<usize> = (0..rounds).flat_map(|_| 0..pipeline.sets()).collect();
        let graph = as_graph.then(|| pipeline.capture(executor, &sets)).transpose()?;
        Ok(PipelineVariant { pipeline, executor, graph, rounds })
    }
}

impl Variant for PipelineVariant {
    fn enqueue(&mut self) -> Result<()> {
        match &self.graph {
            Some(graph) => self.pipeline.replay(graph)?,
            None => {
                for run in 0..self.rounds * self.pipeline.sets() {
                    self.pipeline.run_set(self.executor, run % self.pipeline.sets())?;
                }
            }
        }
        Ok(())
    }

    fn stream(&self) -> &Stream {
        self.pipeline.stream()
    }

    fn synchronize(&mut self) -> Result<()> {
        Ok(self.pipeline.synchronize()?)
    }
}

/// A captured graph with whatever it uses.
pub struct GraphVariant<T> {
    /// A sample.
    pub graph: GraphExec,
    /// Where it is launched.
    pub stream: Stream,
    /// Keeps the graph's memory alive.
    pub owner: T,
}

impl<T> Variant for GraphVariant<T> {
    fn enqueue(&mut self) -> Result<()> {
        Ok(self.graph.launch(&self.stream)?)
    }

    fn stream(&self) -> &Stream {
        &self.stream
    }

    fn synchronize(&mut self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }
}
