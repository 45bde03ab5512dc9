//! Things that can be timed against each other.

use cusync_gen::check::Executor;

use super::Result;
use crate::device::{GraphExec, Stream};
use crate::runtime::{Captured, Pipeline};

/// One way of computing what all variants of a comparison compute.
pub trait Variant {
    /// Queues one sample on [`Variant::stream`]: one run of every weight set.
    fn enqueue(&mut self) -> Result<()>;
    /// Where samples go.
    fn stream(&self) -> &Stream;
    /// Waits for what was queued, with the best error there is.
    fn synchronize(&mut self) -> Result<()>;
}

/// A pipeline, queued eagerly or replayed as one graph of all weight sets.
pub(super) struct PipelineVariant {
    pipeline: Pipeline,
    executor: Executor,
    graph: Option<Captured>,
}

impl PipelineVariant {
    pub(super) fn new(mut pipeline: Pipeline, executor: Executor, as_graph: bool) -> Result<Self> {
        pipeline.prepare()?;
        let sets: Vec<usize> = (0..pipeline.sets()).collect();
        let graph = as_graph.then(|| pipeline.capture(executor, &sets)).transpose()?;
        Ok(PipelineVariant { pipeline, executor, graph })
    }
}

impl Variant for PipelineVariant {
    fn enqueue(&mut self) -> Result<()> {
        match &self.graph {
            Some(graph) => self.pipeline.replay(graph)?,
            None => {
                for set in 0..self.pipeline.sets() {
                    self.pipeline.run_set(self.executor, set)?;
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
pub(super) struct GraphVariant<T> {
    pub(super) graph: GraphExec,
    pub(super) stream: Stream,
    /// Keeps the graph's memory alive.
    pub(super) _owner: T,
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
