//! The layer benchmark: the fused and all other executors against the serial pipeline and third-party
//! kernels.

use std::time::{Duration, Instant};

use cusync_gen::device::Profile;
use cusync_gen::graph::Element;

use super::point::Point;
use super::record::{LayerReport, Size, size_text};
use super::{Error, Result};
use cusync::device::Device;
use cusync::measure::{Ceilings, Regime};
use cusync::tune::PlanCache;

/// MLP sizes, tokens in flight.
pub const SIZES: [u32; 16] = [1, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 3072, 4096];

/// Sizes of convolution chains, images.
pub const BATCHES: [u32; 9] = [1, 4, 8, 12, 16, 20, 24, 28, 32];

/// Sizes of network bodies, images.
const BODY_BATCHES: [u32; 3] = [1, 8, 32];

/// Measured MLPs.
const MLPS: [&str; 3] = ["gpt3_mlp", "llama65_mlp", "llama3_70b_mlp"];

/// Chains of two and four 3 x 3 convolutions, at each (pixels along an image, channels).
const CHAINS: [&str; 2] = ["resnet_layer", "vgg_layer"];
const SHAPES: [(u32, u32); 4] = [(56, 64), (28, 128), (14, 256), (7, 512)];

const BODIES: [&str; 2] = ["resnet38_body", "vgg19_body"];

const MODELS: [&str; 3] = ["gpt3", "llama65", "llama3_70b"];

/// Sequences that generate one token each, and the capacity of their caches, which hold one token less; and
/// prompt lengths in tokens.
const CACHES: [(u32, u32); 4] = [(1, 513), (1, 2049), (4, 2049), (32, 2049)];
const PROMPT_TOKENS: [u32; 3] = [512, 1024, 2048];
/// Sequences and cache capacities for whole transformer layers.
const LAYER_CACHES: [(u32, u32); 3] = [(1, 2049), (8, 2049), (32, 2049)];
const LAYER_TOKENS: [u32; 2] = [512, 2048];

/// Benchmarks of a model by suffix of the pipeline's name: for token generation, and for prompts.
type Kinds = (&'static [&'static str], &'static [(u32, u32)], &'static [(&'static str, &'static [u32])]);
const BLOCKS: Kinds = (
    &["generate", "block"],
    &CACHES,
    &[("attention", &PROMPT_TOKENS), ("prompt_block", &PROMPT_TOKENS), ("attend", &[2048])],
);
const WHOLE_LAYERS: Kinds = (&["layer", "layers"], &LAYER_CACHES, &[("prompt_layer", &LAYER_TOKENS)]);

/// A pipeline with the dims of its size.
pub type LayerPoint = (String, Size);

/// MLPs at the given sizes; if empty, at the usual ones.
pub fn mlps(pipelines: &[String], sizes: &[u32]) -> Vec<LayerPoint> {
    let names = if pipelines.is_empty() { MLPS.map(str::to_owned).to_vec() } else { pipelines.to_vec() };
    let sizes = if sizes.is_empty() { &SIZES } else { sizes };
    let size = |m: &u32| vec![("M".to_owned(), *m)];
    names.iter().flat_map(|name| sizes.iter().map(move |m| (name.clone(), size(m)))).collect()
}

/// Convolution chains and network bodies at the given numbers of images; if empty, at the usual ones.
pub fn convolutions(pipelines: &[String], batches: &[u32]) -> Vec<LayerPoint> {
    let wanted = |name: &str| pipelines.is_empty() || pipelines.iter().any(|p| p == name);
    let or = |usual: &[u32]| if batches.is_empty() { usual.to_vec() } else { batches.to_vec() };
    let dims = |list: &[(&str, u32)]| list.iter().map(|(dim, value)| ((*dim).to_owned(), *value)).collect();
    let mut points: Vec<LayerPoint> = Vec::new();
    for name in CHAINS.into_iter().filter(|name| wanted(name)) {
        for (hw, c) in SHAPES {
            let point = |b: u32| (name.to_owned(), dims(&[("B", b), ("HW", hw), ("C", c)]));
            points.extend(or(&BATCHES).into_iter().map(point));
        }
    }
    for name in BODIES.into_iter().filter(|name| wanted(name)) {
        points.extend(or(&BODY_BATCHES).into_iter().map(|b| (name.to_owned(), dims(&[("B", b)]))));
    }
    points
}

/// Attention blocks or whole transformer layers, generating at the given numbers of sequences and for prompts
/// of the given numbers of tokens; if empty, at the usual ones.
pub fn attentions(layers: bool, pipelines: &[String], batches: &[u32], tokens: &[u32]) -> Vec<LayerPoint> {
    let (generating, caches, prompts) = if layers { WHOLE_LAYERS } else { BLOCKS };
    let dim = |name: &str, value: u32| (name.to_owned(), value);
    let capacities = || tokens.iter().map(|t| t + 1);
    let mut cached: Vec<(u32, u32)> = match (batches, tokens) {
        ([], []) => caches.to_vec(),
        ([], _) => caches.iter().flat_map(|&(b, _)| capacities().map(move |s| (b, s))).collect(),
        (_, []) => batches.iter().flat_map(|&b| caches.iter().map(move |&(_, s)| (b, s))).collect(),
        _ => batches.iter().flat_map(|&b| capacities().map(move |s| (b, s))).collect(),
    };
    cached.sort_unstable();
    cached.dedup();
    let of_cache = |&(b, s): &(u32, u32)| vec![dim("B", b), dim("S", s)];
    let generating = generating.iter().map(|kind| (*kind, cached.iter().map(of_cache).collect::<Vec<_>>()));
    let of_prompts = |&(kind, usual): &(&'static str, &[u32])| {
        let lengths = if tokens.is_empty() { usual } else { tokens };
        (kind, lengths.iter().map(|&s| vec![dim("S", s)]).collect())
    };
    let mut points = Vec::new();
    for (kind, sizes) in generating.chain(prompts.iter().map(of_prompts)) {
        for name in MODELS.map(|model| format!("{model}_{kind}")) {
            if pipelines.is_empty() || pipelines.contains(&name) {
                points.extend(sizes.iter().map(|size| (name.clone(), size.clone())));
            }
        }
    }
    points
}

/// Arguments of the layer benchmark.
#[derive(Clone, Debug)]
pub struct LayerArgs {
    /// Index of the GPU.
    pub gpu: u32,
    /// Pipelines with the dims of a size.
    pub points: Vec<LayerPoint>,
    /// Element type of all tensors.
    pub element: Element,
    /// Measured regimes.
    pub regimes: Vec<Regime>,
    /// Time limit of the whole benchmark; sizes that do not fit are listed, not measured.
    pub seconds: Option<f64>,
    /// Only variants whose name contains one of these; empty: all.
    pub only: Vec<String>,
    /// Excludes variants whose name contains one of these.
    pub without: Vec<String>,
    /// Also queue every variant without a graph. The serial and automatic ones always are.
    pub all_eager: bool,
    /// Also try every chain kernel, mode and split, and measure the fastest: the model's choice may not be
    /// the fastest.
    pub tune: bool,
    /// Weight sets in rotation.
    pub sets: usize,
    /// Number of configurations to sample per size in place of the usual variants, regardless of their
    /// predictions, for comparing predictions with times.
    pub spread: Option<usize>,
    /// Samples of each variant, rested.
    pub samples: usize,
    /// Tuned plans; measured in addition if there is one for a size.
    pub tuned: PlanCache,
}

impl Default for LayerArgs {
    fn default() -> Self {
        LayerArgs {
            gpu: 0,
            points: mlps(&[], &[]),
            element: Element::F16,
            regimes: vec![Regime::Rested, Regime::Sustained],
            seconds: None,
            only: Vec::new(),
            without: Vec::new(),
            all_eager: false,
            tune: false,
            sets: 4,
            spread: None,
            samples: 16,
            tuned: PlanCache::default(),
        }
    }
}

impl LayerArgs {
    /// Whether a variant is to be measured.
    pub(super) fn wants(&self, variant: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|word| variant.contains(word.as_str()));
        (self.only.is_empty() || named(&self.only)) && !named(&self.without)
    }
}

/// Progress of the benchmark.
#[derive(Debug)]
pub enum LayerProgress<'a> {
    /// A size begins: (pipeline, dims, number of finished sizes, total number).
    Begin(&'a str, &'a Size, usize, usize),
    /// A size is done: the report so far.
    Done(&'a LayerReport),
}

/// A GPU with its profile and its ceilings.
pub(super) fn opened(gpu: u32) -> Result<(Device, Profile, Ceilings)> {
    let device = Device::open(gpu)?;
    let profile = device
        .profile()
        .ok_or_else(|| Error::Argument(format!("{} is older than compute capability 8.0", device.name())))?;
    let ceilings = Ceilings::measure(&device)?;
    Ok((device, profile, ceilings))
}

/// Runs the benchmark. Every variant is verified before it is timed; wrong variants are named and not timed.
/// A GPU error ends the benchmark and is recorded in the report, so that earlier measurements are kept.
pub fn bench_layers(args: &LayerArgs, progress: &mut dyn FnMut(LayerProgress<'_>)) -> Result<LayerReport> {
    let began = Instant::now();
    let (device, profile, ceilings) = opened(args.gpu)?;
    let mut report = LayerReport {
        device: device.name().into(),
        profile: Some(profile.clone()),
        ceilings,
        records: Vec::new(),
        tuned: Vec::new(),
        skipped: Vec::new(),
        wrong: Vec::new(),
        fault: None,
    };
    let mut slowest = Duration::ZERO;
    let points = &args.points;
    for (done, (name, size)) in points.iter().enumerate() {
        let left = args.seconds.map(|s| s - began.elapsed().as_secs_f64());
        if left.is_some_and(|left| left < slowest.as_secs_f64()) {
            report.skipped.push(format!("{name} {}: the time limit", size_text(size)));
            continue;
        }
        progress(LayerProgress::Begin(name, size, done, points.len()));
        let started = Instant::now();
        let share = left.map(|left| left / (points.len() - done) as f64);
        let point = Point::new(args, &device, &profile, &ceilings, name, size);
        match point.run(share, &mut report) {
            Ok(records) => {
                report.records.extend(records);
                progress(LayerProgress::Done(&report));
            }
            // Without any record there is nothing to keep.
            Err(e) if report.records.is_empty() => return Err(e),
            Err(e) => {
                report.fault = Some(format!("{name} {}: {e}", size_text(size)));
                break;
            }
        }
        slowest = slowest.max(started.elapsed());
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_of_pipelines_with_these_dims() {
        let attention = [false, true].map(|layers| attentions(layers, &[], &[], &[])).concat();
        let all = [mlps(&[], &[]), convolutions(&[], &[]), attention].concat();
        assert_eq!(all.len(), 3 * 16 + 2 * 4 * 9 + 2 * 3 + 3 * (2 * (4 + 3) + 1) + 3 * (2 * 3 + 2));
        for (name, size) in all {
            let source = super::super::source_of(&name).expect("it ships, or is a part of what does");
            let spec = cusync_gen::spec::parse(&source, &name);
            let spec = spec.expect("well-formed");
            assert!(
                size.iter().all(|(dim, _)| spec.dims().any(|(known, _)| known == dim)),
                "{name} {size:?}"
            );
        }
        let few = convolutions(&["vgg19_body".into()], &[3]);
        assert_eq!(few, [("vgg19_body".to_owned(), vec![("B".to_owned(), 3)])]);
        let few = attentions(false, &["llama65_generate".into()], &[2], &[100]);
        assert_eq!(few, [("llama65_generate".to_owned(), vec![("B".to_owned(), 2), ("S".to_owned(), 101)])]);
    }

    #[test]
    fn variants_are_chosen_by_parts_of_their_names() {
        let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let args = LayerArgs {
            only: words(&["fused", "cublaslt"]),
            without: words(&["without waits"]),
            ..LayerArgs::default()
        };
        let wanted = ["fused graph", "fused edges graph", "cublaslt graph"];
        assert!(wanted.iter().all(|v| args.wants(v)));
        assert!(["serial graph", "fused without waits graph"].iter().all(|v| !args.wants(v)));
        assert!(LayerArgs::default().wants("serial graph"));
    }
}
