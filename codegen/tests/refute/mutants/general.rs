//! Small random convolutions, grouped ones, pools, attentions, experts, and norms of rows, of heads and of groups of
//! channels.

use std::fmt::Write as _;

use cusync_gen::graph::Graph;
use rand::Rng;
use rand::rngs::SmallRng;

use super::plans::pick;

type Mma = (u32, u32, u32);

fn graph(dims: &str, stages: &str, tiles: &[Mma]) -> Graph {
    let text = format!(r#"Pipeline(name: "p", dims: {{ {dims} }}, stages: [{stages}])"#);
    let resolved = cusync_gen::spec::parse(&text, "p").and_then(|s| s.resolve(&[]));
    let graph = resolved.and_then(|r| r.graph(tiles));
    graph.unwrap_or_else(|d| panic!("{}", d.render(&text, "p", false)))
}

/// A filter: taps, strides, paddings.
type Filter = ((u32, u32), (u32, u32), (u32, u32));

/// Square and rectangular filters; no padding, the usual padding, and more than needed.
const FILTERS: &[Filter] = &[
    ((3, 3), (1, 1), (1, 1)),
    ((3, 3), (1, 1), (1, 1)),
    ((3, 3), (2, 2), (1, 1)),
    ((1, 1), (1, 1), (0, 0)),
    ((1, 1), (2, 2), (0, 0)),
    ((3, 1), (1, 1), (1, 0)),
    ((1, 3), (1, 2), (0, 1)),
    ((2, 3), (1, 1), (2, 1)),
    ((2, 2), (1, 1), (0, 0)),
    ((5, 2), (2, 1), (3, 0)),
];

/// Steps between taps.
const DILATIONS: &[(u32, u32)] = &[(1, 1), (1, 1), (1, 1), (2, 1), (1, 2), (2, 2)];

/// A filter that fits padded images, and the output images.
fn filter(rng: &mut SmallRng, input: (u32, u32), dilation: (u32, u32)) -> (Filter, (u32, u32)) {
    let along = |length: u32, (taps, stride, padding, dilation): (u32, u32, u32, u32)| {
        Some((length + 2 * padding).checked_sub(dilation * (taps - 1) + 1)? / stride + 1)
    };
    let out = |(taps, stride, padding): &Filter| {
        let rows = along(input.0, (taps.0, stride.0, padding.0, dilation.0))?;
        Some((rows, along(input.1, (taps.1, stride.1, padding.1, dilation.1))?))
    };
    let fitting: Vec<_> = FILTERS.iter().filter_map(|filter| Some((*filter, out(filter)?))).collect();
    pick(rng, &fitting)
}

/// Pool windows: adjacent, overlapping, and with gaps.
const POOLS: &[Filter] = &[
    ((2, 2), (2, 2), (0, 0)),
    ((3, 3), (2, 2), (1, 1)),
    ((3, 3), (1, 1), (1, 1)),
    ((2, 3), (3, 1), (0, 2)),
    ((4, 4), (1, 1), (0, 0)),
];

/// Two or three convolutions in sequence over a batch of images; tiles span images.
pub(super) fn convolutions(rng: &mut SmallRng) -> Graph {
    let images = rng.random_range(1..4);
    // A kernel tile that reads windows; sometimes an image has more than one tile.
    let windows = rng.random_ratio(1, 3);
    let (mut height, mut width) = (rng.random_range(3..6), rng.random_range(3..6));
    if windows && rng.random() {
        height *= 4;
    }
    let mut channels = pick(rng, &[8, 16, 24]);
    let (mut stages, mut tiles) = (String::new(), Vec::new());
    let mut residuals: Vec<(String, (u32, u32, u32))> = Vec::new();
    for stage in 0..rng.random_range(2..4) {
        let dilation = if windows { (1, 1) } else { pick(rng, DILATIONS) };
        let (((r, s), (down, right), (above, beside)), out) = filter(rng, (height, width), dilation);
        let features = pick(rng, &[8, 16, 24]);
        let shape = (out.0, out.1, features);
        let input = format!("X{stage}({images},{height},{width},{channels})");
        let output = format!("X{}({images},{},{},{features})", stage + 1, out.0, out.1);
        // The output of an earlier convolution with the same shape.
        let residual = residuals.iter().find(|(_, extent)| *extent == shape && rng.random());
        let residual = residual.map_or(String::new(), |(name, _)| format!(r#", residual: "{name}""#));
        write!(
            stages,
            r#"Conv2d(name: "c{stage}", input: "{input}", filter: "F{stage}({r},{s},{channels},{features})",
               stride: ({down}, {right}), padding: ({above}, {beside}), dilation: ({}, {}), out: "{output}"{residual}),"#,
            dilation.0, dilation.1
        )
        .expect("a string takes all");
        residuals.push((output, shape));
        (height, width, channels) = shape;
        let flat = pick(rng, &[(16, 16, 16), (16, 16, 24), (8, 16, 32), (16, 8, 24), (24, 24, 16)]);
        tiles.push(if windows { (64, 64, 64) } else { flat });
    }
    graph("", &stages, &tiles)
}

/// A convolution, a pool of its output, and a convolution of that.
pub(super) fn pool(rng: &mut SmallRng) -> Graph {
    let (images, height, width) = (rng.random_range(1..4), rng.random_range(4..13), rng.random_range(4..8));
    let (channels, features) = (pick(rng, &[8, 16]), pick(rng, &[8, 24]));
    let (out, (r, s), (down, right), (above, beside)) = {
        let ((r, s), stride, padding) = pick(rng, POOLS);
        let along = |length: u32, filter: u32, stride: u32, padding: u32| {
            (length + 2 * padding - filter) / stride + 1
        };
        (
            (along(height, r, stride.0, padding.0), along(width, s, stride.1, padding.1)),
            (r, s),
            stride,
            padding,
        )
    };
    let kind = if (above, beside) == (0, 0) && rng.random() { "Average" } else { "Max" };
    let dims = format!(r#""B": {images}, "H": {height}, "W": {width}, "P": {}, "Q": {}"#, out.0, out.1);
    let stages = format!(
        r#"Conv2d(name: "first", input: "X(B,H,W,8)", filter: "F1(3,3,8,{channels})", padding: (1, 1), out: "Y(B,H,W,{channels})"),
           Pool(name: "pool", input: "Y(B,H,W,{channels})", kind: {kind}, window: ({r}, {s}), stride: ({down}, {right}),
               padding: ({above}, {beside}), out: "P0(B,P,Q,{channels})"),
           Conv2d(name: "second", input: "P0(B,P,Q,{channels})", filter: "F2(3,3,{channels},{features})", padding: (1, 1),
               out: "Z(B,P,Q,{features})"),"#
    );
    let flat = [(16, 16, 16), (8, 16, 32), (16, 8, 24), (64, 64, 64)];
    let rows: Vec<u32> = (1..=out.0).filter(|rows| out.0.is_multiple_of(*rows)).chain([2 * out.0]).collect();
    let pool = (pick(rng, &rows) * out.1, channels, r * s);
    graph(&dims, &stages, &[pick(rng, &flat), pool, pick(rng, &flat)])
}

/// A convolution, a grouped one of its output, and a convolution of that; sometimes an earlier output is added.
pub(super) fn grouped(rng: &mut SmallRng) -> Graph {
    let (images, height, width) = (rng.random_range(1..4), rng.random_range(4..9), rng.random_range(3..7));
    let (channels, features, groups) =
        pick(rng, &[(8, 8, 8), (8, 8, 2), (16, 8, 4), (8, 24, 8), (16, 16, 8), (24, 24, 24)]);
    let dilation = pick(rng, DILATIONS);
    let (((r, s), (down, right), (above, beside)), (p, q)) = filter(rng, (height, width), dilation);
    let same = (p, q, features) == (height, width, channels) && rng.random();
    let residual = if same { r#"residual: "Y(B,H,W,C)", "# } else { "" };
    let dims = format!(
        r#""B": {images}, "H": {height}, "W": {width}, "C": {channels}, "K": {features}, "P": {p}, "Q": {q}"#
    );
    let stages = format!(
        r#"Conv2d(name: "first", input: "X(B,H,W,8)", filter: "F1(3,3,8,C)", padding: (1, 1), out: "Y(B,H,W,C)"),
           Conv2d(name: "grouped", input: "Y(B,H,W,C)", filter: "F2({r},{s},{},K)", groups: {groups}, bias: "b(K)",
               stride: ({down}, {right}), padding: ({above}, {beside}), dilation: ({}, {}), {residual}out: "D(B,P,Q,K)"),
           Conv2d(name: "second", input: "D(B,P,Q,K)", filter: "F3(1,1,K,8)", out: "Z(B,P,Q,8)"),"#,
        channels / groups,
        dilation.0,
        dilation.1
    );
    let flat = [(16, 16, 16), (8, 16, 32), (16, 8, 24), (64, 64, 64)];
    let rows: Vec<u32> = (1..=p).filter(|rows| p.is_multiple_of(*rows)).chain([2 * p]).collect();
    let tile = (pick(rng, &rows) * q, features, r * s * channels / groups);
    graph(&dims, &stages, &[pick(rng, &flat), tile, pick(rng, &flat)])
}

/// A convolution, a norm of groups of its channels, and a convolution of that; sometimes the first one's output is added.
pub(super) fn groups(rng: &mut SmallRng) -> Graph {
    let (images, height, width) = (rng.random_range(1..4), rng.random_range(2..6), rng.random_range(2..6));
    let (channels, groups) = pick(rng, &[(8, 1), (8, 8), (16, 2), (16, 4), (24, 2), (24, 8)]);
    let residual = if rng.random() { r#"residual: "Y(B,H,W,C)", "# } else { "" };
    let dims = format!(r#""B": {images}, "H": {height}, "W": {width}, "C": {channels}, "G": {groups}"#);
    let stages = format!(
        r#"Conv2d(name: "first", input: "X(B,H,W,8)", filter: "F1(3,3,8,C)", padding: (1, 1), out: "Y(B,H,W,C)"),
           GroupNorm(name: "norm", input: "Y(B,H,W,C)", groups: "G", gain: "g(C)", bias: "b(C)", epilogue: Silu,
               out: "N(B,H,W,C)"),
           Conv2d(name: "second", input: "N(B,H,W,C)", filter: "F2(3,3,C,C)", padding: (1, 1), {residual}
               out: "Z(B,H,W,C)"),"#
    );
    let flat = [(16, 16, 16), (8, 16, 32), (16, 8, 24), (64, 64, 64)];
    let (pixels, group) = (height * width, channels / groups);
    graph(&dims, &stages, &[pick(rng, &flat), (pixels, group, pixels * group), pick(rng, &flat)])
}

/// A prompt through projections and an attention; keys and values are per head, per group of heads, or shared by all.
pub(super) fn attention(rng: &mut SmallRng) -> Graph {
    let tokens = pick(rng, &[24, 32, 40, 48]);
    let dim = pick(rng, &[8, 16]);
    let (heads, kv_heads) = pick(rng, &[(2, 2), (2, 1), (4, 2), (4, 1), (3, 1), (4, 4)]);
    let causal = rng.random_ratio(2, 3);
    let dims = format!(r#""S": {tokens}, "HQ": {heads}, "HKV": {kv_heads}, "D": {dim}"#);
    let stages = format!(
        r#"Gemm(name: "qkv", a: "X(S,16)", b: "Wqkv(16,(HQ+2*HKV)*D)", out: "QKV(S,(HQ+2*HKV)*D)"),
           Attention(name: "attend", qkv: "QKV(S,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", causal: {causal},
               out: "A(S,HQ*D)"),
           Gemm(name: "project", a: "A(S,HQ*D)", b: "Wo(HQ*D,16)", out: "Z(S,16)"),"#
    );
    let first = pick(rng, &[(16, dim, 16), (16, 2 * dim, 16), (8, 24, 16), (24, dim, 16)]);
    let attend = (pick(rng, &[8, 16, 24]), dim, pick(rng, &[8, 16]));
    let last = pick(rng, &[(16, 16, dim), (16, 16, 2 * dim), (8, 16, 24)]);
    graph(&dims, &stages, &[first, attend, last])
}

/// A GEMM, a norm of its rows, and a GEMM of the result; sometimes another norm at the end.
pub(super) fn normalisation(rng: &mut SmallRng) -> Graph {
    let (tokens, hidden) = (pick(rng, &[16, 24, 40, 48]), pick(rng, &[16, 24, 32]));
    let dims = format!(r#""M": {tokens}, "H": {hidden}"#);
    let last = rng.random();
    let mut stages = String::from(
        r#"Gemm(name: "first", a: "X(M,16)", b: "W(16,H)", out: "Y(M,H)"),
           RmsNorm(name: "norm", x: "Y(M,H)", gain: "g(H)", out: "N(M,H)", epsilon: 1e-5),
           Gemm(name: "second", a: "N(M,H)", b: "V(H,H)", residual: "Y(M,H)", out: "Z(M,H)"),"#,
    );
    let gemm = [(16, 16, 16), (8, 16, 8), (16, 8, 24), (24, 24, 16)];
    let rows = |rng: &mut SmallRng| (pick(rng, &[8, 16, 24]), hidden, hidden);
    let mut tiles = vec![pick(rng, &gemm), rows(rng), pick(rng, &gemm)];
    if last {
        let bias = pick(rng, &["", r#"bias: "b(H)", "#]);
        stages += &format!(r#"LayerNorm(name: "last", x: "Z(M,H)", gain: "h(H)", {bias}out: "L(M,H)"),"#);
        tiles.push(rows(rng));
    }
    graph(&dims, &stages, &tiles)
}

/// A GEMM, a norm of the heads of its rows, and a GEMM of whole rows again; residuals come in either shape.
pub(super) fn heads(rng: &mut SmallRng) -> Graph {
    let (tokens, heads, dim) = (pick(rng, &[8, 12, 16]), pick(rng, &[2, 3, 4]), pick(rng, &[8, 12]));
    let dims = format!(r#""M": {tokens}, "N": {heads}, "D": {dim}"#);
    let added = pick(rng, &["", r#"residual: "Y(M*N,D)", "#]);
    let last = pick(rng, &["", r#"residual: "H(M,N*D)", "#, r#"residual: "Y(M,N*D)", "#]);
    let stages = format!(
        r#"Gemm(name: "first", a: "X(M,16)", b: "W(16,N*D)", out: "Y(M,N*D)"),
           RmsNorm(name: "norm", x: "Y(M*N,D)", gain: "g(D)", {added}out: "H(M*N,D)"),
           Gemm(name: "second", a: "H(M,N*D)", b: "V(N*D,N*D)", {last}out: "Z(M,N*D)"),"#
    );
    let gemm = [(16, 16, 16), (8, 16, 8), (4, 8, 12), (8, 24, 24)];
    let rows = pick(rng, &[4, 8, heads, 2 * heads, 4 * heads]);
    graph(&dims, &stages, &[pick(rng, &gemm), (rows, dim, dim), pick(rng, &gemm)])
}

/// A product, scores from its rows or from others, the experts that rows choose by them, and a product of the result.
/// Sometimes experts add the rows of another product, or of the first.
pub(super) fn experts(rng: &mut SmallRng) -> Graph {
    let (tokens, hidden) = (pick(rng, &[16, 24, 40, 48]), pick(rng, &[16, 24, 32]));
    let (experts, features, top_k) = pick(rng, &[(4, 8, 1), (8, 8, 2), (16, 8, 4), (24, 16, 3)]);
    let dims = format!(r#""M": {tokens}, "H": {hidden}, "E": {experts}, "I": {features}"#);
    let (scored, beside) = (pick(rng, &["X(M,16)", "Y(M,H)"]), rng.random());
    let residual =
        if beside { r#"residual: "R(M,H)", "# } else { pick(rng, &["", r#"residual: "Y(M,H)", "#]) };
    let mut stages = format!(
        r#"Gemm(name: "first", a: "X(M,16)", b: "W(16,H)", out: "Y(M,H)"),
           Gemm(name: "router", a: "{scored}", b: "WR({},E)", out: "S(M,E)"),"#,
        if scored == "Y(M,H)" { "H" } else { "16" }
    );
    let gemm = [(16, 16, 16), (8, 16, 8), (16, 8, 24), (24, 24, 16)];
    let mut tiles = vec![pick(rng, &gemm), pick(rng, &gemm)];
    if beside {
        stages += r#"Gemm(name: "beside", a: "X(M,16)", b: "V(16,H)", out: "R(M,H)"),"#;
        tiles.push(pick(rng, &gemm));
    }
    stages += &format!(
        r#"Experts(name: "experts", x: "Y(M,H)", router: "S(M,E)", gate: "G(E*I,H)", up: "U(E*I,H)", down: "D(E*H,I)",
               top_k: {top_k}, {residual}out: "Z(M,H)"),
           Gemm(name: "last", a: "Z(M,H)", b: "WL(H,H)", out: "O(M,H)"),"#
    );
    tiles.extend([(pick(rng, &[8, 16, 24]), hidden, hidden), pick(rng, &gemm)]);
    graph(&dims, &stages, &tiles)
}
