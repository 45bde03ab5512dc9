//! Variants that can be timed against each other.

use cusync_gen::check::Executor;

use super::Result;
use crate::device::{GraphExec, Stream};
use crate::runtime::{Captured, Pipeline};

/// One implementation among the variants of a comparison, which all compute the same result.
pub trait Variant {
    /// Queues one sample on [`Variant::stream`]: runs of every weight set, the same number for all variants
    /// of a comparison.
    fn enqueue(&mut self) -> Result<()>;
    /// Stream of the samples.
    fn stream(&self) -> &Stream;
    /// Waits for queued samples, and reports errors as precisely as possible.
    fn synchronize(&mut self) -> Result<()>;
}

/// A pipeline, queued eagerly or replayed as one graph of all weight sets.
pub struct PipelineVariant {
    pipeline: Pipeline,
    executor: Executor,
    graph: Option<Captured>,
    /// Runs of each weight set per sample.
    rounds: usize,
}

impl PipelineVariant {
    /// Prepares `rounds` runs of each weight set per sample, as one graph or queued one by one.
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

/// A captured graph with everything it uses.
pub struct GraphVariant<T> {
    /// One sample.
    pub graph: GraphExec,
    /// Stream that it is launched on.
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
