//! Measures the two rates behind every floor.

use std::time::Duration;

use cusync_gen::check::Executor;
use cusync_gen::graph::Graph;

use super::turns::{Regime, interleaved};
use super::variant::{GraphVariant, PipelineVariant, Variant};
use super::{Error, Result, percentile};
use crate::device::{CublasLt, Device, DeviceBuffer, Stream, helpers};
use crate::runtime::{InputSets, Overrides, Pipeline, element_code, plan_text};

/// A square GEMM, large enough that its ends do not matter.
const RATE: &str = r#"Pipeline(
    name: "rate",
    dims: { "N": 8192 },
    stages: [Gemm(name: "square", a: "A(N,N)", b: "B(N,N)", out: "C(N,N)")],
)"#;

/// Tile with the highest arithmetic intensity among those available on every architecture.
const TILE: (u32, u32) = (128, 256);

/// Bytes of the read test: many times the L2 cache.
const READ_BYTES: usize = 2 << 30;

/// The rates of one regime.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Ceiling {
    /// Dense fp16 rate of a GEMM of 8192 cubed, TFLOP/s: the better of this project's kernel and cuBLASLt's,
    /// if installed.
    pub matrix_tflops: f64,
    /// Streaming read, TB/s.
    pub read_tbs: f64,
}

/// The rates of both regimes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Ceilings {
    /// After 3 ms of idle time.
    pub rested: Ceiling,
    /// Back to back.
    pub sustained: Ceiling,
}

impl Ceilings {
    /// Measures both regimes; takes about half a second of GPU time.
    pub fn measure(device: &Device) -> Result<Ceilings> {
        let profile = device.profile().ok_or_else(|| {
            Error::Argument(format!("{} is older than compute capability 8.0", device.name()))
        })?;
        let overrides = Overrides { tiles: Some(vec![TILE]), ..Overrides::default() };
        let plan = plan_text(RATE, "rate.ron", &overrides, &profile, Executor::Serial)?;
        let flop = plan.graph().flop();
        let mut pipeline = Pipeline::new(&plan, device)?;
        let inputs = InputSets::random(plan.graph(), device, 1, 7)?;
        inputs.bind(&mut pipeline)?;
        pipeline.prepare()?;
        let peer = library(&pipeline, device)?;
        let matrix = PipelineVariant::new(pipeline, Executor::Serial, true, 1)?;

        let data = DeviceBuffer::<u16>::new(device, READ_BYTES / 2, "the read test")?;
        let sink = DeviceBuffer::<u32>::zeroed(device, 64, "the read test's sink")?;
        let stream = Stream::new(device)?;
        helpers::fill_random(&data, element_code(plan.graph().element), 1.0, 8, &stream)?;
        stream.synchronize()?;
        let graph = stream.capture(|| Ok::<_, Error>(helpers::stream_read(&data, &sink, &stream)?))?;
        let read = GraphVariant { graph, stream, owner: (data, sink) };

        let mut variants: Vec<Box<dyn Variant>> = vec![Box::new(read), Box::new(matrix)];
        variants.extend(peer);
        let mut measured = |regime| -> Result<Ceiling> {
            let window = Duration::from_millis(150);
            let mut times = interleaved(device, &mut variants, regime, 9, window)?;
            let read_us = percentile(&mut times[0], 0.5);
            let matrix_us = times[1..].iter_mut().map(|t| percentile(t, 0.5)).fold(f64::INFINITY, f64::min);
            Ok(Ceiling {
                matrix_tflops: flop / matrix_us * 1e-6,
                read_tbs: READ_BYTES as f64 / read_us * 1e-6,
            })
        };
        Ok(Ceilings { rested: measured(Regime::Rested)?, sustained: measured(Regime::Sustained)? })
    }

    /// Rates of one regime.
    pub fn in_regime(&self, regime: Regime) -> Ceiling {
        match regime {
            Regime::Rested => self.rested,
            Regime::Sustained => self.sustained,
        }
    }
}

/// The same product by cuBLASLt, if installed.
fn library(pipeline: &Pipeline, device: &Device) -> Result<Option<Box<dyn Variant>>> {
    let gemm = match CublasLt::new(device, pipeline.bound_stage(0, 0)?, true) {
        Ok(gemm) => gemm,
        Err(crate::device::Error::NoLibrary(_)) => return Ok(None),
        Err(other) => return Err(other.into()),
    };
    let stream = Stream::new(device)?;
    let graph = stream.capture(|| Ok::<_, Error>(gemm.launch(&stream)?))?;
    Ok(Some(Box::new(GraphVariant { graph, stream, owner: gemm })))
}

/// Lower bound of a graph's run time, microseconds: its arithmetic, or its inputs, weights and results.
pub fn floor_us(graph: &Graph, ceiling: Ceiling) -> f64 {
    (graph.flop() / ceiling.matrix_tflops).max(graph.compulsory_bytes() / ceiling.read_tbs) * 1e-6
}
