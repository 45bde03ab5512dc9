//! Sequences of any lengths in decode kernels that attend: right in rows and in pages, and a sequence without room is
//! named while the others are right.

use std::sync::Arc;

use crate::attends::{CAPACITY, NAMES, PAGED, lengths, pages, plan, ragged, sized};
use crate::caches::Caches;
use crate::common::{Gpu, assert_right, pipeline, quick};
use crate::fused::{expected, hopper};
use crate::fused_runs::bits;
use cusync::device::{DeviceBuffer, Stream};
use cusync::inputs::Inputs;
use cusync::runtime::verify::Reference;
use cusync::runtime::{Error, Options, Overlap, Pipeline, shipped};
use cusync_bench::source_of;
use cusync_gen::check::{Executor, Plan};
use cusync_gen::graph::{Element, TensorId};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Empty caches, caches with room for one more token, and random lengths in between.
fn random_lengths(batch: u32, capacity: u32, seed: u64) -> Vec<i32> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut drawn: Vec<i32> = (0..batch).map(|_| rng.random_range(0..capacity as i32)).collect();
    let last = drawn.len() - 1;
    drawn[(seed as usize) % (last + 1)] = 0;
    drawn[last - (seed as usize) % (last + 1)] = capacity as i32 - 1;
    drawn
}

fn at_lengths(gpu: &Gpu, plan: &Plan, seed: u32, all: &[Vec<i32>]) {
    runs_at_lengths(gpu, (plan, Executor::Fused), seed, all);
}

/// Runs with several vectors of lengths, eager and replayed; each run is right, and a repetition is bit-identical.
pub(crate) fn runs_at_lengths(gpu: &Gpu, (plan, executor): (&Plan, Executor), seed: u32, all: &[Vec<i32>]) {
    let (inputs, _) = expected(gpu, plan, 1, seed);
    let pages = pages(plan, seed);
    let mut pipeline = pipeline(gpu, plan, &inputs, Options { overlap: Overlap::All, ..Options::default() });
    let buffer = lengths(gpu, &mut pipeline, &all[0]);
    let graph = pipeline.capture(executor, &[0]).unwrap_or_else(|e| panic!("{e}"));
    for now in all {
        let label = format!("{} {:?} lengths {now:?}", plan.graph().name, plan.graph().dims);
        let mut twice = || -> cusync::runtime::Result<()> {
            buffer.upload(now)?;
            let caches = Caches::read(&pipeline);
            pipeline.poison_outputs()?;
            pipeline.run(executor)?;
            let first = bits(&mut pipeline);
            pipeline.poison_outputs()?;
            pipeline.replay(&graph)?;
            assert!(bits(&mut pipeline) == first, "{label}: the replay differs");
            caches.assert_appended(&label, &pipeline, now, pages.as_deref().map(Vec::as_slice));
            assert_right(&label, &Reference::new(&mut pipeline, 0)?.compare(&mut pipeline)?);
            Ok(())
        };
        twice().unwrap_or_else(|e| panic!("{label}: {e}"));
    }
}

#[test]
fn caches_of_512_and_2048_tokens_at_random_lengths() {
    let Some(gpu) = hopper() else { return };
    let batches: &[u32] = if quick() { &[4] } else { &[1, 4, 5, 32] };
    for (number, name) in NAMES.into_iter().enumerate() {
        for (&batch, capacity) in batches.iter().flat_map(|batch| [512, 2048].map(|s| (batch, s))) {
            let element =
                if (number as u32 + batch).is_multiple_of(2) { Element::F16 } else { Element::Bf16 };
            let source = shipped(name).expect("it ships");
            let plan = sized(&gpu, source, &[("B", batch), ("S", capacity)], element);
            let seeds = if quick() { 1 } else { 3 };
            let all: Vec<_> = (0..seeds).map(|seed| random_lengths(batch, capacity, seed)).collect();
            at_lengths(&gpu, &plan, batch, &all);
        }
    }
}

/// Eight query heads with one, two and eight key heads of every width, in pages.
#[test]
fn paged_caches_of_every_group() {
    let Some(gpu) = hopper() else { return };
    let heads = [64, 80, 96, 128, 256].into_iter().flat_map(|dim| [1, 2, 8].map(|kv| (kv, dim)));
    let heads = heads.filter(|(kv, dim)| 8 / kv * dim <= 1024);
    for (number, (kv, dim)) in heads.enumerate() {
        for (batch, capacity) in if quick() { vec![(5, 512)] } else { vec![(1, 64), (4, 2048), (32, 512)] } {
            let pool = batch * capacity / 64 + 3;
            let dims = [("B", batch), ("S", capacity), ("HKV", kv), ("D", dim), ("N", pool)];
            let element = [Element::F16, Element::Bf16][number % 2];
            let plan = sized(&gpu, PAGED, &dims, element);
            let all: Vec<_> = (0..2).map(|seed| random_lengths(batch, capacity, seed)).collect();
            at_lengths(&gpu, &plan, 7, &all);
        }
    }
}

/// A run that skips sequence 2 and names it: its rows are zeros, the other rows are right, and all caches are
/// unchanged.
fn leaves_out(label: &str, pipeline: &mut Pipeline, sound: &[Vec<u16>], words: &[&str]) {
    let caches = Caches::read(pipeline);
    pipeline.run(Executor::Fused).expect("it is queued");
    match pipeline.synchronize() {
        Err(Error::Cache { stage, sequence: 2, fault }) => {
            let named = words.iter().all(|word| fault.contains(word)) && stage == "attend";
            assert!(named, "{label}: {stage}: {fault}");
        }
        other => panic!("{label}: {other:?}"),
    }
    let (made, columns) = (bits(pipeline), sound[1].len() / 5);
    assert!(made[1][2 * columns..3 * columns].iter().all(|x| *x == 0), "{label}: zeros");
    for (at, (a, b)) in made[1].iter().zip(&sound[1]).enumerate() {
        assert!(at / columns == 2 || a == b, "{label}: sequence {} changed", at / columns);
    }
    assert!(Caches::read(pipeline) == caches, "{label}: a cache has changed");
}

/// The outputs of a run if every sequence has room.
fn made(pipeline: &mut Pipeline) -> Vec<Vec<u16>> {
    pipeline.run(Executor::Fused).expect("it is queued");
    pipeline.synchronize().expect("all have room");
    bits(pipeline)
}

#[test]
fn a_sequence_without_room_is_named_and_the_others_are_right() {
    let Some(gpu) = hopper() else { return };
    let plan = plan(&gpu, PAGED, 5, Element::F16);
    let (inputs, _) = expected(&gpu, &plan, 1, 3);
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let buffer = lengths(&gpu, &mut pipeline, &[70, 10, 0, 200, 5]);
    let sound = made(&mut pipeline);
    for bad in [-1, CAPACITY as i32] {
        buffer.upload(&[70, 10, bad, 200, 5]).expect("the copy succeeds");
        leaves_out(&format!("length {bad}"), &mut pipeline, &sound, &[&bad.to_string()]);
    }
    buffer.upload(&[70, -3, CAPACITY as i32, 200, 5]).expect("the copy succeeds");
    pipeline.run(Executor::Fused).expect("it is queued");
    let text = pipeline.synchronize().expect_err("two have no room").to_string();
    assert!(
        text.contains("sequence 1: its length is -3") && text.contains("sequence 2: its length is"),
        "{text}"
    );
    buffer.upload(&[70, 10, 0, 200, 5]).expect("the copy succeeds");
    assert!(made(&mut pipeline) == sound, "the pipeline runs on and makes what it made");
}

/// The second of two attentions with separate page tables skips a sequence: the error names the second.
#[test]
fn a_stage_behind_another_is_named_for_its_own_pages() {
    let Some(gpu) = hopper() else { return };
    let stages: String = [("X", 1), ("A1", 2)].map(|(x, i)| format!(
        r#"Gemm(name: "qkv{i}", a: "{x}(B,512)", b: "W{i}(512,1024)", out: "QKV{i}(B,1024)"),
        Attention(name: "attend{i}", qkv: "QKV{i}(B,1024)", heads: 8, kv_heads: 4, pages: "P{i}(B,S/64)", out: "A{i}(B,512)",
            cache: Cache(keys: "K{i}(30,4,64,64)", values: "V{i}(30,4,64,64)", lengths: "n(B)")),"#
    )).concat();
    let source = format!(r#"Pipeline(name: "two", dims: {{ "B": 5, "S": 256 }}, stages: [{stages}])"#);
    let plan = plan(&gpu, &source, 5, Element::F16);
    let (inputs, _) = expected(&gpu, &plan, 1, 3);
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let _lengths = lengths(&gpu, &mut pipeline, &[70, 10, 0, 200, 5]);
    let table = plan.graph().tensors.iter().position(|t| t.name == "P2").expect("a table");
    let mut wrong = Inputs::random(plan.graph(), 3).integers(TensorId(table)).expect("pages").to_vec();
    // The first page of sequence 3; each sequence has four.
    wrong[3 * 4] = 30;
    let buffer = DeviceBuffer::from_slice(&gpu.device, &wrong, "pages").expect("memory");
    pipeline.bind_integers("P2", Arc::new(buffer)).expect("a table");
    pipeline.run(Executor::Fused).expect("it is queued");
    match pipeline.synchronize() {
        Err(Error::Cache { stage, sequence: 3, fault }) => {
            assert!(
                stage == "attend2" && fault.contains("page 0 is number 30 of a pool of 30"),
                "{stage}: {fault}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_page_that_two_sequences_append_to_is_named() {
    let Some(gpu) = hopper() else { return };
    let plan = plan(&gpu, PAGED, 5, Element::F16);
    let (inputs, _) = expected(&gpu, &plan, 1, 3);
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let _lengths = lengths(&gpu, &mut pipeline, &[70, 10, 0, 200, 5]);
    let sound = pages(&plan, 3).expect("a table").to_vec();
    let mut table = sound.clone();
    // Sequence 1 appends to its first page, which sequence 3 also reads.
    let a_row = table.len() / 5;
    table[3 * a_row + 1] = table[a_row];
    let buffer = Arc::new(DeviceBuffer::from_slice(&gpu.device, &table, "pages").expect("memory"));
    pipeline.bind_integers("P", buffer.clone()).expect("a table");
    match pipeline.run(Executor::Fused) {
        Err(Error::SharedPage { sequence: 1, other: 3, page, .. }) => {
            assert_eq!(page, table[a_row])
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(pipeline.capture(Executor::Fused, &[0]), Err(Error::SharedPage { .. })));
    let stream = Stream::new(&gpu.device).expect("a stream");
    assert!(matches!(pipeline.run_on(Executor::Fused, &stream), Err(Error::SharedPage { .. })));
    buffer.upload(&sound).expect("copied");
    made(&mut pipeline);
    let captured = pipeline.capture(Executor::Fused, &[0]).expect("it captures");
    buffer.upload(&table).expect("copied");
    assert!(matches!(pipeline.replay(&captured), Err(Error::SharedPage { .. })));
    buffer.upload(&sound).expect("copied");
    pipeline.replay(&captured).and_then(|()| pipeline.synchronize()).expect("it runs");
}

#[test]
fn a_page_out_of_range_is_named_and_the_others_are_right() {
    let Some(gpu) = hopper() else { return };
    let plan = plan(&gpu, PAGED, 5, Element::F16);
    let (inputs, _) = expected(&gpu, &plan, 1, 3);
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let _lengths = lengths(&gpu, &mut pipeline, &[70, 10, 130, 200, 5]);
    let right = pages(&plan, 3).expect("it has pages");
    let table = Arc::new(DeviceBuffer::from_slice(&gpu.device, &right, "pages").expect("memory"));
    pipeline.bind_integers("P", table.clone()).expect("the spec has pages");
    let sound = made(&mut pipeline);
    let (a_row, pool) = (CAPACITY as usize / 64, 30);
    // The new token's page, and a page of existing tokens.
    for (page, bad) in [(2, pool), (0, -1), (1, i32::MAX)] {
        let mut wrong = right.to_vec();
        wrong[2 * a_row + page] = bad;
        table.upload(&wrong).expect("the copy succeeds");
        let words = [format!("page {page}"), format!("number {bad}"), format!("pool of {pool}")];
        let words = words.each_ref().map(String::as_str);
        leaves_out(&format!("page {page} is {bad}"), &mut pipeline, &sound, &words);
    }
    // Pages after the last token are not checked.
    let mut unread = right.to_vec();
    unread[2 * a_row + 3] = pool;
    table.upload(&unread).expect("the copy succeeds");
    assert!(made(&mut pipeline) == sound, "the pipeline runs on and makes what it made");
}

/// Four layers in one launch: each reads the previous one and appends to its own caches.
#[test]
fn several_layers_in_one_launch() {
    let Some(gpu) = hopper() else { return };
    for (name, batch) in [("llama3_70b_layers", 1), ("llama65_layers", 5), ("gpt3_layers", 32)] {
        let source = source_of(name).expect("it is derived");
        let plan = sized(&gpu, &source, &[("B", batch), ("S", CAPACITY)], Element::F16);
        assert!(plan.launch().shares().is_some() && plan.graph().stages.len() >= 20, "{name}");
        at_lengths(&gpu, &plan, 3, &[ragged(batch)]);
    }
}
