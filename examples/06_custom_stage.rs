//! A custom stage between two GEMMs: the spec states the boxes it reads, the dependences follow from them, and a
//! closure does its arithmetic on the cpu executor.
//!
//!     cargo run --release --example 06_custom_stage

use std::collections::HashMap;

use cusync::inputs::Inputs;
use cusync::reference::{CustomReference, Judge, Matrix};
use cusync::runtime::cpu::{CpuOptions, CpuPipeline, Region, Workers};
use cusync::runtime::{Overrides, plan_text};
use cusync_gen::check::Executor;
use cusync_gen::device::Profile;
use cusync_gen::sync::Tile;

const SPEC: &str = r#"
Pipeline(
    name: "normalised",
    dims: { "M": 100, "H": 512 },
    stages: [
        Gemm(name: "before", a: "X(M,H)", b: "W0(H,H)", out: "Y(M,H)"),
        Custom(
            name: "norm", tile: (16, "H"), writes: "N(M,H)",
            reads: [ Read(tensor: "Y(M,H)", rows: "16*m..16*m + 16", cols: "0..H") ],
        ),
        Gemm(name: "after", a: "N(M,H)", b: "W1(H,H)", out: "Z(M,H)"),
    ],
)"#;

/// Divides a row by its root mean square.
fn normalise(row: &[f32], out: &mut [f32]) {
    let square: f32 = row.iter().map(|x| x * x).sum();
    let scale = (square / row.len() as f32 + 1e-6).sqrt().recip();
    out.iter_mut().zip(row).for_each(|(o, x)| *o = x * scale);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Profile::named("h200").ok_or("the profile ships")?;
    let plan = plan_text(SPEC, "normalised.ron", &Overrides::default(), device, Executor::Cpu)?;
    let inputs = Inputs::checked_random(plan.graph(), 1)?;

    // One tile: 16 whole rows, passed in when all overlapping tiles of `before` have been posted.
    let tile = |_: Tile, _: u32, reads: &[Region], out: &mut Region| {
        let rows = reads[0].data.chunks(reads[0].cols).zip(out.data.chunks_mut(out.cols));
        rows.for_each(|(row, out)| normalise(row, out));
    };
    let options = CpuOptions { workers: Workers::TeamPerStage, ..CpuOptions::default() };
    let mut pipeline = CpuPipeline::new(&plan, &inputs, options)?.custom("norm", tile)?;
    pipeline.run()?;

    // The reference gets the whole matrix at once.
    let whole = |reads: &[Matrix]| {
        let mut out = reads[0].clone();
        let rows = reads[0].data.chunks(out.cols).zip(out.data.chunks_mut(out.cols));
        rows.for_each(|(row, out)| normalise(row, out));
        out
    };
    let forms = HashMap::from([("norm".to_owned(), Box::new(whole) as CustomReference<'_>)]);
    let judge = Judge::new(plan.graph(), &inputs, forms)?;
    let judged = judge.compare(&|tensor| pipeline.tensor(tensor).ok())?;
    if judged.iter().all(|tensor| tensor.verified) { Ok(()) } else { Err("wrong result".into()) }
}
