//! A plan and its program written out, with witnesses, for a checker that shares no code with this crate:
//! `xtask/certificate.py`. docs/trust.md describes the contents.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{
    Candidate, EpochSource, Event, Exchange, How, KernelContract, Launch, StartGuarantee, StoreCompletion,
    TileProgram,
};
use super::{Refutation, obligations};
use crate::graph::{Axis, Heads, NormedGemm, Op, Operand, Partition, Pool, Sliding, Stage, StageId, When};
use crate::schedule::{Item, Part, Schedule};
use crate::sync::Tile;

/// The certificate of a candidate and a program, whether proved or not: finding faults is the other checker's job.
///
/// # Errors
/// The fault that prevents the certificate from being written.
pub fn certificate(c: &Candidate, p: &dyn TileProgram) -> Result<Value, Refutation> {
    if let Some(refutation) = obligations::well_formed(c) {
        return Err(refutation);
    }
    let graph = &c.graph;
    let stages = || (0..graph.stages.len()).map(StageId);
    let mut pieces = Pieces { c, list: Vec::new(), known: HashMap::new() };
    let extents: Vec<(u32, u32)> = stages().map(|s| p.extent(graph, s)).collect();
    let mut slices = Vec::new();
    for (stage, extent) in stages().zip(&extents) {
        let tile_slices = tiles(*extent).map(|tile| {
            let slice_pieces = |slice| pieces.for_slice(p, stage, tile, slice);
            (0..p.slices(graph, stage, tile)).map(slice_pieces).collect::<Vec<_>>()
        });
        slices.push(tile_slices.collect::<Vec<_>>());
    }
    let counts = c.slot_counts();
    let edges = graph.dependences.iter().enumerate().map(|(edge, d)| {
        let posts = tiles(graph.stages[d.producer.0].grid).map(|tile| {
            let mut posts = Vec::new();
            p.posts(edge, tile, &mut |slot, amount| posts.push((slot, amount)));
            posts
        });
        let posts: Vec<_> = posts.collect();
        json!({ "producer": d.producer.0, "consumer": d.consumer.0, "operand": d.operand, "slots": counts[edge], "posts": posts })
    });
    let edges: Vec<Value> = edges.collect();
    let tensors = graph.tensors.iter().map(|t| {
        json!({
            "name": t.name, "rows": t.rows, "cols": t.cols,
            "producer": t.producer.map(|s| s.0), "alias": t.alias.map(|t| t.0),
        })
    });
    let tensors: Vec<Value> = tensors.collect();
    let device = &c.device;
    Ok(json!({
        "certificate": 1,
        "pipeline": graph.name,
        "device": { "name": device.name, "arch": device.arch, "sms": device.sms, "ctas_per_sm": device.ctas_per_sm },
        "launch": launch(c),
        "contract": contract(&c.contract),
        "tensors": tensors,
        "stages": stages().map(|s| stage(&graph.stages[s.0], exchanges(c, p, s))).collect::<Vec<_>>(),
        "edges": edges,
        "extents": extents,
        "pieces": pieces.list,
        "slices": slices,
        "order": obligations::order_of_ends(c, p),
    }))
}

fn tiles((gm, gn): (u32, u32)) -> impl Iterator<Item = Tile> {
    (0..gm).flat_map(move |m| (0..gn).map(move |n| Tile { m, n }))
}

/// Deduplicated lists of events. Main loops and epilogues are separate because many tiles share one of them.
struct Pieces<'a> {
    c: &'a Candidate,
    list: Vec<Vec<Vec<u32>>>,
    known: HashMap<Vec<Vec<u32>>, usize>,
}

impl Pieces<'_> {
    /// Indices of the pieces of a slice.
    fn for_slice(&mut self, p: &dyn TileProgram, stage: StageId, tile: Tile, slice: u32) -> Vec<usize> {
        let (mut main, mut last) = (Vec::new(), Vec::new());
        p.events(stage, tile, slice, &mut |event| {
            let late = !last.is_empty() || self.of_epilogue(stage, &event);
            if late { &mut last } else { &mut main }.push(written(event));
        });
        [main, last]
            .into_iter()
            .filter(|events| !events.is_empty())
            .map(|events| self.number(events))
            .collect()
    }

    fn number(&mut self, events: Vec<Vec<u32>>) -> usize {
        *self.known.entry(events).or_insert_with_key(|events| {
            self.list.push(events.clone());
            self.list.len() - 1
        })
    }

    fn of_epilogue(&self, stage: StageId, event: &Event) -> bool {
        let dependences = &self.c.graph.dependences;
        let operand = match event {
            Event::Wait { edge, .. } if dependences[*edge].consumer == stage => dependences[*edge].operand,
            Event::Load { operand, .. } => *operand,
            Event::Wait { .. } | Event::Multicast { .. } | Event::Warp { .. } => return false,
            Event::Contribute { .. } | Event::Await { .. } | Event::Add { .. } | Event::Store { .. } => {
                return true;
            }
        };
        self.c.graph.stages[stage.0].operands[operand].kind.when() == When::Epilogue
    }
}

/// An event as numbers; the first is its kind.
fn written(event: Event) -> Vec<u32> {
    match event {
        Event::Wait { edge, slot, value } => vec![0, edge as u32, slot, value],
        Event::Load { operand, k_block } => vec![1, operand as u32, k_block],
        Event::Multicast { operand, k_block, rows, cols } => {
            vec![2, operand as u32, k_block, rows.start, rows.end, cols.start, cols.end]
        }
        Event::Warp { warp } => vec![3, warp],
        Event::Contribute { slab } => vec![4, slab],
        Event::Await { slab } => vec![5, slab],
        Event::Add { slab } => vec![6, slab],
        Event::Store { units, of: all } => vec![7, units.start, units.end, all],
    }
}

/// The exchanges of each tile of a stage that is summed over devices, device by device: `[to, place]` for a send,
/// `[place]` for a receive.
fn exchanges(c: &Candidate, p: &dyn TileProgram, stage: StageId) -> Vec<Vec<Vec<Vec<u32>>>> {
    let this_stage = &c.graph.stages[stage.0];
    let device = |tile, device| {
        let mut list = Vec::new();
        p.exchanges(stage, tile, device, &mut |exchange| {
            list.push(match exchange {
                Exchange::Send { to, place } => vec![to, place],
                Exchange::Receive { place } => vec![place],
            });
        });
        list
    };
    let summed = tiles(this_stage.grid).filter(|_| this_stage.devices > 1);
    summed.map(|tile| (0..this_stage.devices).map(|d| device(tile, d)).collect()).collect()
}

fn stage(stage: &Stage, exchanges: Vec<Vec<Vec<Vec<u32>>>>) -> Value {
    let parts = match stage.partition {
        Partition::Tiles { .. } => None,
        Partition::Even { parts } => Some(parts),
    };
    json!({
        "name": stage.name, "op": op(&stage.op), "k": stage.k, "mma": stage.mma_tile, "tile": stage.out_tile(),
        "parts": parts, "grid": stage.grid, "k_blocks": stage.k_blocks, "split_k": stage.split_k, "out": stage.out.0,
        "devices": stage.devices, "exchanges": exchanges,
        "operands": stage.operands.iter().map(operand).collect::<Vec<_>>(),
    })
}

fn op(op: &Op) -> Value {
    match op {
        // No wait depends on angles or gains.
        Op::Gemm(_) | Op::RotatedGemm(_) | Op::NormedGemm(NormedGemm { gated: false, .. }) => {
            json!({ "kind": "gemm" })
        }
        Op::GatedGemm(_) | Op::NormedGemm(_) => json!({ "kind": "gated_gemm" }),
        Op::Conv2d(conv) => {
            let mut op = images("conv2d", &conv.sliding);
            op["channels"] = conv.channels.into();
            op["window"] = json!(conv.window.map(|w| [w.rows, w.images]));
            op
        }
        Op::GroupedConv(conv) => images("grouped_conv", &conv.sliding),
        Op::Attention(attention) => json!({
            "kind": "attention", "heads": heads(&attention.heads), "causal": attention.causal, "sequences": attention.sequences, "tokens": attention.tokens,
        }),
        Op::Attend(attend) => json!({ "kind": "attend", "heads": heads(&attend.heads) }),
        Op::Norm(_) => json!({ "kind": "norm" }),
        Op::GroupNorm(_) => json!({ "kind": "group_norm" }),
        Op::Experts(_) => json!({ "kind": "experts" }),
        Op::Pool(Pool { mean: _, sliding }) => images("pool", sliding),
        Op::Custom => json!({ "kind": "custom" }),
    }
}

fn images(kind: &str, sliding: &Sliding) -> Value {
    let Sliding { images: _, input, output, filter, stride, padding, dilation } = sliding;
    json!({
        "kind": kind, "input": input, "output": output, "filter": filter, "stride": stride, "padding": padding,
        "dilation": dilation,
    })
}

fn heads(heads: &Heads) -> [u32; 3] {
    [heads.query, heads.kv, heads.dim]
}

fn operand(operand: &Operand) -> Value {
    let axis = |a: &Axis| [a.m, a.n, a.k, a.offset, a.extent];
    let Operand { kind, tensor, view, footprint, .. } = operand;
    json!({
        "kind": kind.word(), "tensor": tensor.0, "view": view.map(|view| [view.rows, view.cols]), "rows": axis(&footprint.rows), "cols": axis(&footprint.cols),
    })
}

fn launch(c: &Candidate) -> Value {
    match &c.launch {
        Launch::Stages { how, stages } => {
            let stages = stages.iter().map(|kernel| {
                let grid = c.graph.stages[kernel.stage.0].grid;
                let tile = |step| kernel.order.tile_at(grid, step).map(|t| (t.m, t.n));
                let order: Vec<_> = (0..grid.0 * grid.1).map_while(tile).collect();
                json!({ "stage": kernel.stage.0, "order": order, "ctas_per_sm": kernel.ctas_per_sm })
            });
            let how = match how {
                How::Host => "host",
                How::Serial | How::Library => "serial",
                How::Streams(StartGuarantee::AllProducersStarted) => "streams",
                How::Streams(StartGuarantee::None) => "streams without a start guarantee",
                How::Programmatic => "programmatic",
            };
            json!({ "kind": "stages", "how": how, "stages": stages.collect::<Vec<_>>() })
        }
        Launch::Lists(schedule) => lists(c, "lists", schedule),
        Launch::Shares(decode) => lists(c, "shares", &decode.work),
    }
}

fn lists(c: &Candidate, kind: &str, schedule: &Schedule) -> Value {
    let Schedule { cluster, mode, sequence, lists, slabs, .. } = schedule;
    let item = |item: &Item| {
        let part = match item.part {
            Part::Whole => "whole",
            Part::Contribute { .. } => "give",
            Part::Finish { .. } => "finish",
            Part::Share { .. } => "share",
        };
        json!([item.stage.0, item.m, item.n, item.k_begin, item.k_end, part])
    };
    json!({
        "kind": kind, "cluster": cluster, "mode": mode.name(), "lists": lists, "slabs": slabs,
        "sequence": sequence.iter().map(item).collect::<Vec<_>>(),
        "resident": c.device.resident_clusters(cluster.0 * cluster.1),
    })
}

fn contract(contract: &KernelContract) -> Value {
    let KernelContract {
        epoch,
        full_run_boundary,
        graph_replay,
        stores,
        post_releases,
        wait_acquires,
        bulk_loads,
        proxy_fence,
        plain_store_posts,
        overlap,
        dependency_wait,
        deferred_post,
        slabs,
        cache,
        exchange,
    } = contract;
    let epoch = match epoch {
        EpochSource::DeviceCounter => "device",
        EpochSource::LaunchParameter => "parameter",
    };
    let stores = match stores {
        StoreCompletion::Barrier => "barrier",
        StoreCompletion::BulkWait => "bulk",
        StoreCompletion::BulkWaitRead => "bulk-read",
    };
    json!({
        "epoch": epoch, "full_run_boundary": full_run_boundary, "graph_replay": graph_replay, "stores": stores,
        "post_releases": post_releases, "wait_acquires": wait_acquires, "bulk_loads": bulk_loads,
        "proxy_fence": proxy_fence, "plain_store_posts": plain_store_posts, "overlap": overlap,
        "dependency_wait": dependency_wait, "deferred_post": deferred_post,
        "slabs": {
            "barrier": slabs.barrier, "flag_releases": slabs.flag_releases, "flag_acquires": slabs.flag_acquires,
            "flag_is_epoch": slabs.flag_is_epoch,
        },
        "cache": {
            "lengths_each_run": cache.lengths_each_run, "reads_wait": cache.reads_wait, "new_from_run": cache.new_from_run,
            "parts_ordered": cache.parts_ordered, "parts_recounted": cache.parts_recounted,
        },
        "exchange": { "sets": exchange.sets, "numbered": exchange.numbered },
    })
}
