//! Generates 64 tokens with a KV cache, one whole layer per token. On a GPU the layer is captured once: the graph reads
//! the cache's token count when it runs, so it serves every step. Then all tokens go through the layer at once as a
//! prompt, and the rows must be the same.
//!
//!     cargo run --release --example 12_generate
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use cusync::prelude::*;
use cusync::runtime::shipped;
use half::f16;

const TOKENS: usize = 64;
const WORDS: usize = 50;
const WIDTH: usize = 256;
const DIMS: [(&str, u64); 6] = [("S", 64), ("E", 256), ("HQ", 4), ("HKV", 2), ("D", 64), ("I", 192)];

fn noise(length: usize, seed: u64, scale: f32) -> Vec<f32> {
    let mixed = |i: usize| (i as u64 + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) >> 40;
    (0..length).map(|i| (mixed(i) as f32 / (1 << 23) as f32 - 1.0) * scale).collect()
}

fn open(name: &str, dims: &[(&str, u64)]) -> Result<Session, Box<dyn std::error::Error>> {
    let mut session = Session::open(shipped(name).ok_or("the spec ships")?, dims)?;
    for (seed, input) in ["g1", "Wqkv", "Wo", "g2", "Wg", "Wu", "Wd"].into_iter().enumerate() {
        let (rows, cols) = session.shape(input)?;
        session.set_f32(input, &noise(rows * cols, 7919 * seed as u64, (2.0 / rows as f32).sqrt()))?;
    }
    let angle = |i: usize| (i / 64) as f32 * 10_000f32.powf(-((i % 32) as f32) / 32.0);
    let turn = |i: usize| if i % 64 < 32 { angle(i).cos() } else { angle(i).sin() };
    session.set_f32("cs", &(0..TOKENS * 64).map(turn).collect::<Vec<_>>())?;
    for cache in ["K", "V"] {
        let (rows, cols) = session.shape(cache)?;
        session.set_f32(cache, &vec![0.0; rows * cols])?;
    }
    Ok(session)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words = noise(WORDS * WIDTH, 1 << 40, 1.0);
    let mut layer = open("llama65_layer", &[&DIMS[..], &[("B", 1)]].concat())?;
    let (executor, mut graph) = (layer.executor(), None);
    layer.set_f32("X", &[0.0; WIDTH])?;
    if let Ok(pipeline) = layer.pipeline() {
        let lengths = Arc::new(DeviceBuffer::from_slice(pipeline.device(), &[0i32], "lengths")?);
        pipeline.bind_integers("n", lengths.clone())?;
        graph = Some((pipeline.capture(executor, &[0])?, lengths));
    }
    let (mut word, mut read, mut made) = (0, Vec::new(), Vec::new());
    for token in 0..TOKENS as i32 {
        let x = &words[word * WIDTH..][..WIDTH];
        if let Some((graph, lengths)) = &graph {
            let pipeline = layer.pipeline()?;
            let bits: Vec<u16> = x.iter().map(|x| f16::from_f32(*x).to_bits()).collect();
            pipeline.tensor(0, "X")?.upload(&bits)?;
            lengths.upload(&[token])?;
            pipeline.replay(graph)?;
        } else {
            layer.set_f32("X", x)?;
            layer.set_integers("n", &[token])?;
            layer.run()?;
        }
        let out = layer.read_f32("Z")?;
        read.extend_from_slice(x);
        // The word most similar to the output, other than the input word.
        let like = |w: &usize| words[w * WIDTH..].iter().zip(&out).map(|(a, b)| a * b).sum::<f32>();
        word = (0..WORDS).filter(|w| *w != word).max_by(|a, b| like(a).total_cmp(&like(b))).unwrap_or(0);
        made.extend(out);
    }
    let mut prompt = open("llama65_prompt_layer", &DIMS)?;
    prompt.set_f32("X", &read)?;
    prompt.run()?;
    let whole = prompt.read_f32("Z")?;
    let off: f32 = made.iter().zip(&whole).map(|(a, b)| (a - b).powi(2)).sum();
    let error = (off / whole.iter().map(|x| x * x).sum::<f32>()).sqrt();
    println!("{TOKENS} tokens on `{executor:?}`, off from one prompt by {error:.1e}");
    if error < 1e-2 { Ok(()) } else { Err("the prompt has other rows".into()) }
}
