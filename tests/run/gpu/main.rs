//! GPU-only behavior. There is one binary, so that a bundle contains the kernels once; it reads no files.
//!
//! Without a GPU every test prints `skipped:` and passes. `CUSYNC_GPU_QUICK=1` keeps a few sizes. `gpu_tests` in a
//! bundle runs all of them, and fails if one was left out.

#![allow(clippy::print_stdout)]

mod activations;
mod attend_lengths;
mod attends;
mod bench;
mod blocks;
mod bound;
mod caches;
mod calibrate;
mod common;
mod conformance;
mod convolutions;
mod custom;
mod dag;
mod dag_adopt;
mod dag_opaque;
mod decode;
mod decode_rig;
mod devices;
mod embed;
mod experts;
mod faults;
mod fused;
mod fused_decode;
mod fused_runs;
mod group_norms;
mod grouped_convs;
mod helpers;
mod library;
mod norms;
mod prompts;
mod refuted;
mod replay;
mod sessions;
mod starts;
mod starved;
mod trace_cost;
mod tune;
