//! Chains for the decode kernels with random operands, and the reference that verifies them.
#![allow(unreachable_pub)]

use std::sync::Arc;

use cusync::device::{
    BoundStage, DecodeTuning, Delays, Deviations, Device, DeviceBuffer, Event, Kernel, KernelArgs,
    LaunchAttributes, OperandSource, RepackedWeights, Stream, Synchronisation, TimeoutReport,
    WorkDistribution, decode_id, helpers, kernels_of, resident,
};
use cusync::element::Bits;
use cusync::ffi;
use cusync::reference::{Accuracy, Matrix, gemm, judge};
use cusync_gen::graph::{Activation, Element, Op, OperandKind, Partition, Stage, TensorId};

/// An ordinary run.
pub const RUN: Deviations = Deviations {
    starve: false,
    skip_waits: false,
    stream_only: false,
    delays: Delays { seed: 0, limit_ns: 0 },
};
pub const SKIP_WAITS: Deviations = Deviations { skip_waits: true, ..RUN };
pub const STREAM_ONLY: Deviations = Deviations { stream_only: true, ..RUN };
pub const STARVE: Deviations = Deviations { starve: true, ..RUN };

/// One GEMM of a chain; its K is the previous N.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    pub n: u32,
    pub gated: bool,
    pub activation: Activation,
    pub bias: bool,
    /// The added tensor: 0 is the chain's input, i + 1 the output of layer i.
    pub residual: Option<usize>,
}

/// A chain, defined by its widths.
#[derive(Clone, Debug)]
pub struct Model {
    pub name: &'static str,
    pub k: u32,
    pub layers: Vec<Layer>,
}

/// A plain GEMM.
pub fn plain(n: u32, activation: Activation) -> Layer {
    Layer { n, gated: false, activation, bias: false, residual: None }
}

/// A gated one.
pub fn gated(n: u32) -> Layer {
    Layer { n, gated: true, activation: Activation::Identity, bias: false, residual: None }
}

/// The measured MLPs.
pub fn models() -> Vec<Model> {
    let down = |n| plain(n, Activation::Identity);
    vec![
        Model { name: "gpt3", k: 12288, layers: vec![plain(6144, Activation::GeluTanh), down(12288)] },
        Model { name: "llama65", k: 8192, layers: vec![gated(2752), down(8192)] },
        Model { name: "llama3_70b", k: 8192, layers: vec![gated(3584), down(8192)] },
    ]
}

type Values = Arc<DeviceBuffer<u16>>;

/// The weights of one layer in spec layout.
#[derive(Debug)]
struct Original {
    weights: Values,
    up: Option<Values>,
}

/// A model on a GPU: tensors, weight sets, and the reference for the outputs.
pub struct Rig {
    device: Device,
    pub stream: Stream,
    pub model: Model,
    element: u32,
    m: u32,
    /// The input, then each layer's output.
    tensors: Vec<Values>,
    biases: Vec<Option<Values>>,
    /// The sources of weight set 0.
    sources: Vec<Original>,
    /// The weights of each set, layer by layer.
    sets: Vec<Vec<Arc<RepackedWeights>>>,
    id: ffi::cusync_kernel_id,
    workers: u32,
    sync: Synchronisation,
}

impl Rig {
    /// Operands for `m` tokens.
    pub fn new(device: &Device, model: &Model, m: u32, element: u32, sets: usize) -> Rig {
        let stream = Stream::new(device).expect("a stream");
        let widths = kernels_of(ffi::CUSYNC_FAMILY_DECODE).into_iter().map(|k| k.id.width);
        let width = widths.filter(|&w| w >= m).min().expect("a kernel holds so many tokens");
        let id = decode_id(element, width);
        let workers = resident(device, &id).expect("the device answers");
        let random = |len: usize, scale: f32, seed: u32| {
            let buffer = DeviceBuffer::<u16>::new(device, len, "a random operand").expect("fits");
            helpers::fill_random(&buffer, element, scale, seed, &stream).expect("fills");
            Arc::new(buffer)
        };
        let rows = m as usize;
        let mut tensors = vec![random(rows * model.k as usize, 1.0, 1)];
        for (i, layer) in model.layers.iter().enumerate() {
            tensors.push(random(rows * layer.n as usize, 1.0, 2 + i as u32));
        }
        let seeds = |layer: usize| 100 + layer as u32;
        let bias = |(i, l): (usize, &Layer)| l.bias.then(|| random(l.n as usize, 0.5, seeds(i)));
        let biases = model.layers.iter().enumerate().map(bias).collect();
        let mut sources = Vec::new();
        let mut laid_out = Vec::new();
        for set in 0..sets {
            let mut k = model.k;
            let mut layers = Vec::new();
            for (i, layer) in model.layers.iter().enumerate() {
                // Outputs keep the inputs' scale: a sum of k products of uniform values. A gated layer multiplies two
                // such sums, and a chain of them must not exceed the range of fp16.
                let scale = if layer.gated { 1.5 } else { 3.0 } / (k as f32).sqrt();
                let seed = 1000 + 100 * set as u32 + 2 * i as u32;
                let area = k as usize * layer.n as usize;
                let weights = random(area, scale, seed);
                let up = layer.gated.then(|| random(area, scale, seed + 1));
                let shape = (k, layer.n);
                let laid = RepackedWeights::new(&weights, up.as_deref(), None, shape, workers, &stream);
                layers.push(Arc::new(laid.expect("weights lay out")));
                stream.synchronize().expect("the layout ends");
                if set == 0 {
                    sources.push(Original { weights, up });
                }
                k = layer.n;
            }
            laid_out.push(layers);
        }
        let slots = model.layers.iter().map(|l| l.n.div_ceil(64) as usize).sum();
        let zeroed = |len| Arc::new(DeviceBuffer::zeroed(device, len, "semaphores").expect("fits"));
        let sync = Synchronisation {
            semaphores: Some(zeroed(slots)),
            epochs: Some(zeroed(workers as usize)),
            report: Some(Arc::new(TimeoutReport::new(device).expect("a report"))),
            ..Synchronisation::default()
        };
        let (device, model) = (device.clone(), model.clone());
        Rig { device, stream, model, element, m, tensors, biases, sources, sets: laid_out, id, workers, sync }
    }

    fn element(&self) -> Element {
        if self.element == ffi::CUSYNC_BF16 { Element::Bf16 } else { Element::F16 }
    }

    /// A layer's output slots: one per 64 columns, after the slots of the layers before it.
    fn slots(&self, layer: usize) -> ffi::cusync_policy {
        let count = |l: &Layer| l.n.div_ceil(64);
        let tiles = count(&self.model.layers[layer]);
        ffi::cusync_policy {
            grid_m: 1,
            grid_n: self.workers,
            block_m: 1,
            block_n: 1,
            slots_n: tiles,
            slot_base: self.model.layers[..layer].iter().map(count).sum(),
            slot_count: tiles,
            width: 64,
            columns: self.model.layers[layer].n,
            ..Default::default()
        }
    }

    /// A layer's wait for the previous layer.
    fn wait(&self, layer: usize) -> ffi::cusync_edge {
        let k = self.model.layers[layer - 1].n;
        ffi::cusync_edge {
            policy: self.slots(layer - 1),
            id: layer as u32 - 1,
            operand: ffi::CUSYNC_OPERAND_A,
            wait_at: ffi::CUSYNC_WAIT_PER_K_BLOCK,
            tile_rows: self.m,
            tile_cols: 64,
            tensor_rows: self.m,
            tensor_cols: k,
            k_blocks: k.div_ceil(64),
            rows: ffi::cusync_axis { extent: self.m as i32, ..Default::default() },
            cols: ffi::cusync_axis { k: 64, extent: 64, ..Default::default() },
        }
    }

    /// Layer `i` with these weights and no dependences.
    fn stage(&self, i: usize, weights: OperandSource) -> BoundStage {
        let layer = self.model.layers[i];
        let k = if i == 0 { self.model.k } else { self.model.layers[i - 1].n };
        let mut operands =
            vec![(OperandKind::A, OperandSource::Matrix(self.tensors[i].clone())), (OperandKind::B, weights)];
        operands.extend(self.biases[i].clone().map(|b| (OperandKind::Bias, OperandSource::Matrix(b))));
        let residual = layer.residual.map(|t| self.tensors[t].clone());
        operands.extend(residual.map(|r| (OperandKind::Residual, OperandSource::Matrix(r))));
        let partition = Partition::Even { parts: self.workers };
        let stage = Stage {
            name: format!("{} {i}", self.model.name),
            op: if layer.gated { Op::GatedGemm(Activation::Silu) } else { Op::Gemm(layer.activation.into()) },
            m: self.m,
            n: layer.n,
            k,
            mma_tile: (64, 64, 64),
            partition,
            grid: partition.grid((self.m, layer.n)),
            k_blocks: k.div_ceil(64),
            split_k: 1,
            devices: 1,
            operands: Vec::new(),
            out: TensorId(i),
        };
        BoundStage {
            stage,
            element: self.element(),
            index: i as u32,
            round: (0, 1),
            operands,
            out: self.tensors[i + 1].clone(),
            waits: Vec::new(),
            posts: Vec::new(),
        }
    }

    pub fn args(&self, set: usize, tuning: DecodeTuning, deviations: Deviations) -> KernelArgs {
        let layers = self.model.layers.len();
        let stage = |i: usize| BoundStage {
            waits: (i > 0).then(|| self.wait(i)).into_iter().collect(),
            posts: (i + 1 < layers).then(|| self.slots(i)).into_iter().collect(),
            ..self.stage(i, OperandSource::Repacked(self.sets[set][i].clone()))
        };
        KernelArgs {
            scratch: None,
            name: self.model.name.into(),
            id: self.id,
            stages: (0..layers).map(stage).collect(),
            work: WorkDistribution::Shares { workers: self.workers, tuning, slabs: None, jobs: None },
            sync: Synchronisation { deviations, ..self.sync.clone() },
            tables: Vec::new(),
        }
    }

    /// The chain over weight set `set`.
    pub fn chain(&self, set: usize, tuning: DecodeTuning, deviations: Deviations) -> Kernel {
        Kernel::new(&self.device, self.args(set, tuning, deviations))
            .unwrap_or_else(|e| panic!("{} at M = {}: {e}", self.model.name, self.m))
    }

    pub fn weight_bytes(&self) -> usize {
        self.args(0, DecodeTuning::default(), RUN).weight_bytes()
    }

    /// Fills every output with NaNs.
    pub fn poison(&self) {
        for tensor in &self.tensors[1..] {
            tensor.fill_bytes(0xFF, &self.stream).expect("fills");
        }
    }

    /// A new random input.
    pub fn refill(&self, seed: u32) {
        helpers::fill_random(&self.tensors[0], self.element, 1.0, seed, &self.stream).expect("fills");
    }

    pub fn launch(&self, chain: &Kernel, programmatic: bool) {
        let launch = LaunchAttributes { stream: &self.stream, started: None, programmatic };
        chain.launch(launch).unwrap_or_else(|e| panic!("{} at M = {}: {e}", self.model.name, self.m));
    }

    pub fn synchronize(&self, label: &str) {
        if let Err(error) = self.stream.synchronize() {
            let report = self.report();
            panic!("{label}: {error}; report {report:?}");
        }
    }

    /// The bits of every output.
    pub fn outputs(&self) -> Vec<Vec<u16>> {
        let download = |tensor: &Values| {
            let mut bits = vec![0; tensor.len()];
            tensor.download(&mut bits).expect("downloads");
            bits
        };
        self.tensors[1..].iter().map(download).collect()
    }

    pub fn report(&self) -> Option<ffi::cusync_report> {
        self.sync.report.as_ref()?.read()
    }

    /// Each layer's output (of weight set 0), verified against the inputs that the layer actually read.
    pub fn judged(&self) -> Vec<Accuracy> {
        (0..self.model.layers.len()).map(|i| self.judge(i)).collect()
    }

    fn judge(&self, i: usize) -> Accuracy {
        let layer = self.model.layers[i];
        let (k, n) = (if i == 0 { self.model.k } else { self.model.layers[i - 1].n }, layer.n);
        let element = self.element();
        let values = |bits: &DeviceBuffer<u16>, rows: u32| {
            let (mut host, mut data) = (vec![0; bits.len()], vec![0.0; bits.len()]);
            bits.download(&mut host).expect("downloads");
            element.widen(&host, &mut data);
            Matrix { rows: rows as usize, cols: data.len() / rows as usize, data }
        };
        let product = |weights: &DeviceBuffer<u16>| {
            let (shape, factors) = ((self.m, n, k), (&*self.tensors[i], weights));
            let made = helpers::reference_product(factors, shape, self.element, &self.stream);
            let (sums, largest) = made.expect("the reference runs");
            self.synchronize("reference");
            let floats = |from: &DeviceBuffer<f32>| {
                let mut to = vec![0.0; from.len()];
                from.download(&mut to).expect("downloads");
                to
            };
            let values = Matrix { rows: self.m as usize, cols: n as usize, data: floats(&sums) };
            gemm::summed(gemm::Sums { values, largest: floats(&largest) }, k as usize, None)
        };
        let source = &self.sources[i];
        let sums = product(&source.weights);
        let expected = match &source.up {
            Some(up) => gemm::gated(Activation::Silu, sums, &product(up)),
            None => {
                let bias = self.biases[i].as_ref().map(|bias| values(bias, 1));
                let residual = layer.residual.map(|from| values(&self.tensors[from], self.m));
                gemm::finish(sums, layer.activation.into(), bias.as_ref(), residual.as_ref())
            }
        };
        let largest = expected.values.data.iter().fold(0f32, |most, x| most.max(x.abs()));
        assert!(
            largest > 0.0 && largest.is_finite(),
            "layer {i} is {largest} at most: the test's data are no good"
        );
        let found = values(&self.tensors[i + 1], self.m);
        judge(&format!("layer {i}"), element, &found.data, &expected)
    }

    /// Panics on the first wrong layer.
    pub fn assert_right(&self, label: &str) {
        for judged in self.judged() {
            assert!(judged.verified, "{label}: {} M = {}: {judged}", self.model.name, self.m);
        }
    }

    /// Time breakdown of one run over weight set `set`, after runs over the other sets.
    pub fn trace(&self, set: usize, tuning: DecodeTuning) -> Vec<ffi::cusync_trace> {
        let args = self.args(set, tuning, RUN);
        let records = args.trace_records();
        let trace = DeviceBuffer::zeroed(&self.device, records, "trace").expect("fits");
        let trace = Arc::new(trace);
        let sync = Synchronisation { trace: Some(trace.clone()), ..args.sync.clone() };
        let traced = Kernel::new(&self.device, KernelArgs { sync, ..args });
        let traced = traced.unwrap_or_else(|e| panic!("{}: {e}", self.model.name));
        let before: Vec<_> = (0..set).map(|s| self.chain(s, tuning, RUN)).collect();
        for chain in before.iter().chain([&traced]) {
            self.launch(chain, false);
        }
        self.synchronize("trace");
        let mut host = vec![ffi::cusync_trace::default(); records];
        trace.download(&mut host).expect("downloads");
        host
    }

    /// Median microseconds of one launch, over replays of a graph of 20 launches that alternate between the chains.
    pub fn time(&self, chains: &[Kernel], programmatic: bool) -> f64 {
        const LAUNCHES: usize = 20;
        let graph = self.stream.capture(|| -> cusync::device::Result<()> {
            for i in 0..LAUNCHES {
                let launch = LaunchAttributes { stream: &self.stream, started: None, programmatic };
                chains[i % chains.len()].launch(launch)?;
            }
            Ok(())
        });
        let graph = graph.expect("captures");
        let (begin, end) =
            (Event::timing(&self.device).expect("an event"), Event::timing(&self.device).expect("two"));
        let mut times = Vec::new();
        for replay in 0..13 {
            self.stream.record(&begin).expect("records");
            graph.launch(&self.stream).expect("launches");
            self.stream.record(&end).expect("records");
            self.synchronize(self.model.name);
            if replay >= 2 {
                times.push(end.us_since(&begin).expect("both happened") / LAUNCHES as f64);
            }
        }
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}
