//! The kernel library's helpers against plain host code, and the kernels it claims to have.

use crate::common::gpu;
use cusync::device::{DeviceBuffer, Stream, alone_id, chain_id, decode_id, gemm_id, helpers, kernels};
use cusync::ffi;
use cusync_gen::device::{ALONE, Activation, CHAIN_KERNELS, DECODE_KERNELS, KERNELS};
use half::{bf16, f16};

#[test]
fn random_values_fill_their_range() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu.device).expect("a stream");
    let buffer = DeviceBuffer::<u16>::zeroed(&gpu.device, 100_001, "values").expect("fits");
    helpers::fill_random(&buffer, ffi::CUSYNC_F16, 0.5, 7, &stream).expect("fills");
    stream.synchronize().expect("done");
    let mut bits = vec![0u16; buffer.len()];
    buffer.download(&mut bits).expect("downloads");
    let values: Vec<f64> = bits.iter().map(|&b| f16::from_bits(b).to_f64()).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
    assert!(values.iter().all(|v| v.abs() <= 0.5));
    assert!(mean.abs() < 0.01, "mean {mean}");
    assert!((variance - 0.25 / 3.0).abs() < 0.003, "variance {variance}");
}

#[test]
fn gate_and_up_interleave_in_groups_of_eight() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu.device).expect("a stream");
    let (k, n) = (37usize, 344usize);
    let value = |row: usize, column: usize, up: bool| (row * 1000 + column * 2 + usize::from(up)) as u16;
    let matrix = |up| (0..k * n).map(|i| value(i / n, i % n, up)).collect::<Vec<u16>>();
    let gate = DeviceBuffer::from_slice(&gpu.device, &matrix(false), "gate").expect("fits");
    let up = DeviceBuffer::from_slice(&gpu.device, &matrix(true), "up").expect("fits");
    let packed = DeviceBuffer::<u16>::zeroed(&gpu.device, 2 * k * n, "packed").expect("fits");
    helpers::pack_gated(&gate, &up, &packed, k as u32, n as u32, &stream).expect("packs");
    stream.synchronize().expect("done");
    let mut have = vec![0u16; packed.len()];
    packed.download(&mut have).expect("downloads");
    for (i, &have) in have.iter().enumerate() {
        let (row, column) = (i / (2 * n), i % (2 * n));
        let want = value(row, column / 16 * 8 + column % 8, column % 16 >= 8);
        assert_eq!(have, want, "row {row}, packed column {column}");
    }
}

#[test]
fn pages_of_a_sequence_are_its_rows() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu.device).expect("a stream");
    let (heads, columns, capacity) = (3usize, 80usize, 256usize);
    let page = heads * 64 * columns;
    // Entry 2 names no page.
    let entries = [4, 1, 9, 0];
    let table = DeviceBuffer::from_slice(&gpu.device, &entries, "table").expect("fits");
    let values = |first: usize, count: usize| (first..first + count).map(|i| i as u16).collect::<Vec<_>>();
    let upload = |values: &[u16]| DeviceBuffer::from_slice(&gpu.device, values, "values").expect("fits");
    let pool = [0, 7].map(|first| values(first, 5 * page));
    let old = [11, 13].map(|first| values(first, heads * capacity * columns));
    for (to_pool, places) in [(false, 0..4), (false, 1..2), (true, 0..4), (true, 3..4), (false, 2..2)] {
        let (pools, rows) = (pool.each_ref().map(|v| upload(v)), old.each_ref().map(|v| upload(v)));
        let cache = helpers::PagedCache {
            table: &table,
            pool: pools.each_ref(),
            rows: rows.each_ref(),
            heads: heads as u32,
            columns: columns as u32,
            capacity: capacity as u32,
        };
        if to_pool {
            cache.scatter(places.clone(), &stream).expect("copies");
        } else {
            cache.gather(places.clone(), &stream).expect("copies");
        }
        stream.synchronize().expect("done");
        for tensor in 0..2 {
            let (mut want_pool, mut want_rows) = (pool[tensor].clone(), old[tensor].clone());
            for place in places.clone().map(|place| place as usize).filter(|place| entries[*place] < 5) {
                for head in 0..heads {
                    let paged = entries[place] as usize * page + head * 64 * columns;
                    let row = (head * capacity + place * 64) * columns;
                    let (paged, row) = (paged..paged + 64 * columns, row..row + 64 * columns);
                    if to_pool {
                        want_pool[paged].copy_from_slice(&old[tensor][row]);
                    } else {
                        want_rows[row].copy_from_slice(&pool[tensor][paged]);
                    }
                }
            }
            for (buffer, want) in [(&pools[tensor], want_pool), (&rows[tensor], want_rows)] {
                let mut have = vec![0u16; buffer.len()];
                buffer.download(&mut have).expect("downloads");
                assert!(have == want, "{places:?} of tensor {tensor}, to the pool: {to_pool}");
            }
        }
        assert!(cache.gather(3..5, &stream).is_err(), "the table has four entries");
    }
}

#[test]
fn hidden_states_are_rows_of_the_embedding() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu.device).expect("a stream");
    let (vocabulary, width) = (37usize, 24usize);
    let table: Vec<u16> = (0..vocabulary * width).map(|i| i as u16 + 1).collect();
    let table = DeviceBuffer::from_slice(&gpu.device, &table, "table").expect("fits");
    let tokens = DeviceBuffer::from_slice(&gpu.device, &[3, -1, 36, 37, -7], "tokens").expect("fits");
    let drawn = DeviceBuffer::from_slice(&gpu.device, &[5, 20, 6, 7, 0], "drawn").expect("fits");
    let out = DeviceBuffer::<u16>::zeroed(&gpu.device, 5 * width, "states").expect("fits");
    for (drawn, rows) in [(Some(&drawn), [3, 20, 36, 37, 0]), (None, [3, 37, 36, 37, 37])] {
        helpers::embed(&tokens, drawn, &table, &out, width as u32, &stream).expect("copies");
        stream.synchronize().expect("done");
        let mut have = vec![0u16; out.len()];
        out.download(&mut have).expect("downloads");
        for (i, have) in have.iter().enumerate() {
            let (row, column) = (rows[i / width], i % width);
            // Row 37 is outside the table.
            let want = if row == vocabulary { 0 } else { (row * width + column) as u16 + 1 };
            assert_eq!(*have, want, "row {}, column {column}", i / width);
        }
    }
}

/// Draws a token from the same logits for each of many seeds and positions, and returns their shares.
fn shares(sampling: ffi::cusync_sampling, logits: &[f32], vocabulary: usize) -> Vec<f64> {
    let Some(gpu) = gpu() else { return Vec::new() };
    let stream = Stream::new(&gpu.device).expect("a stream");
    let rows = 20_000;
    let bits: Vec<u16> = logits.iter().map(|v| bf16::from_f32(*v).to_bits()).collect();
    let bits: Vec<u16> = bits.iter().copied().cycle().take(rows * bits.len()).collect();
    let samplings: Vec<_> =
        (0..rows).map(|row| ffi::cusync_sampling { seed: row as u32 % 7, ..sampling }).collect();
    let positions: Vec<i32> = (0..rows).map(|row| row as i32 / 7).collect();
    let logits = DeviceBuffer::from_slice(&gpu.device, &bits, "logits").expect("fits");
    let samplings = DeviceBuffer::from_slice(&gpu.device, &samplings, "samplings").expect("fits");
    let positions = DeviceBuffer::from_slice(&gpu.device, &positions, "positions").expect("fits");
    let drawn = DeviceBuffer::from_slice(&gpu.device, &vec![-5; rows], "drawn").expect("fits");
    let bf16 = ffi::CUSYNC_BF16;
    helpers::draw(&logits, vocabulary as u32, &samplings, &positions, &drawn, bf16, &stream).expect("draws");
    stream.synchronize().expect("done");
    let mut tokens = vec![0; rows];
    drawn.download(&mut tokens).expect("downloads");
    let mut counts = vec![0.0; vocabulary];
    tokens.iter().filter(|token| **token >= 0).for_each(|token| counts[*token as usize] += 1.0 / rows as f64);
    counts
}

#[test]
fn tokens_are_drawn_by_their_probabilities() {
    let Some(_) = gpu() else { return };
    let all = ffi::cusync_sampling { temperature: 1.0, top_p: 1.0, top_k: 0, seed: 0 };
    // The last columns are padding, and larger than all others.
    let logits = [
        -1.0,
        0.0,
        1.0,
        2.0,
        2.0,
        f32::NEG_INFINITY,
        3.0,
        -20.0,
        50.0,
        50.0,
        50.0,
        50.0,
        50.0,
        50.0,
        50.0,
        50.0,
    ];
    let vocabulary = 8;
    let softmax = |temperature: f64, keep: &[usize]| -> Vec<f64> {
        let weight = |token: usize| match keep.contains(&token) {
            true => (f64::from(logits[token]) / temperature).exp(),
            false => 0.0,
        };
        let sum: f64 = (0..vocabulary).map(weight).sum();
        (0..vocabulary).map(|token| weight(token) / sum).collect()
    };
    let every: Vec<usize> = (0..vocabulary).collect();
    let cases = [
        (all, softmax(1.0, &every)),
        (ffi::cusync_sampling { temperature: 0.5, ..all }, softmax(0.5, &every)),
        (ffi::cusync_sampling { temperature: 2.0, ..all }, softmax(2.0, &every)),
        // Equal logits are kept together.
        (ffi::cusync_sampling { top_k: 2, ..all }, softmax(1.0, &[3, 4, 6])),
        (ffi::cusync_sampling { top_k: 4, ..all }, softmax(1.0, &[2, 3, 4, 6])),
        (ffi::cusync_sampling { top_k: 100, ..all }, softmax(1.0, &every)),
        (ffi::cusync_sampling { top_p: 0.3, ..all }, softmax(1.0, &[6])),
        (ffi::cusync_sampling { top_p: 0.8, ..all }, softmax(1.0, &[3, 4, 6])),
        (ffi::cusync_sampling { top_p: 0.99, top_k: 2, ..all }, softmax(1.0, &[3, 4, 6])),
        (ffi::cusync_sampling { temperature: 0.0, ..all }, softmax(1.0, &[6])),
    ];
    for (sampling, want) in cases {
        let have = shares(sampling, &logits, vocabulary);
        let near = have.iter().zip(&want).all(|(have, want)| (have - want).abs() < 0.015);
        assert!(near, "{sampling:?}: {have:?} for {want:?}");
    }
    let none = shares(ffi::cusync_sampling { temperature: -1.0, ..all }, &logits, vocabulary);
    assert!(none.iter().all(|share| *share == 0.0), "no token is drawn: {none:?}");
    // A whole vocabulary: the largest value is far behind others.
    let mut wide: Vec<f32> = (0..128_256).map(|i| (i % 977) as f32 / 256.0).collect();
    wide[100_003] = 9.0;
    wide[100_005] = 9.0;
    assert_eq!(most_likely(&wide), 100_003, "the first of equal ones");
}

/// The most likely token of one row.
fn most_likely(logits: &[f32]) -> i32 {
    let Some(gpu) = gpu() else { return 0 };
    let stream = Stream::new(&gpu.device).expect("a stream");
    let bits: Vec<u16> = logits.iter().map(|v| bf16::from_f32(*v).to_bits()).collect();
    let logits = DeviceBuffer::from_slice(&gpu.device, &bits, "logits").expect("fits");
    let greedy = ffi::cusync_sampling { temperature: 0.0, top_p: 1.0, top_k: 0, seed: 0 };
    let sampling = DeviceBuffer::from_slice(&gpu.device, &[greedy], "sampling").expect("fits");
    let position = DeviceBuffer::from_slice(&gpu.device, &[0], "position").expect("fits");
    let drawn = DeviceBuffer::from_slice(&gpu.device, &[-1], "drawn").expect("fits");
    let (count, bf16) = (bits.len() as u32, ffi::CUSYNC_BF16);
    helpers::draw(&logits, count, &sampling, &position, &drawn, bf16, &stream).expect("draws");
    stream.synchronize().expect("done");
    let mut token = [0];
    drawn.download(&mut token).expect("downloads");
    token[0]
}

#[test]
fn comparison_sums_and_sees_nan() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu.device).expect("a stream");
    let compare = |x: &[u16], y: &[f32]| {
        let x = DeviceBuffer::from_slice(&gpu.device, x, "x").expect("fits");
        let y = DeviceBuffer::from_slice(&gpu.device, y, "y").expect("fits");
        let out = DeviceBuffer::<f32>::zeroed(&gpu.device, 3, "sums").expect("fits");
        helpers::compare(&x, &y, ffi::CUSYNC_BF16, &out, &stream).expect("compares");
        stream.synchronize().expect("done");
        let mut host = [0f32; 3];
        out.download(&mut host).expect("downloads");
        host
    };
    let y: Vec<f32> = (0..3001).map(|i| (i % 7) as f32 - 3.0).collect();
    let mut x: Vec<u16> = y.iter().map(|&v| bf16::from_f32(v).to_bits()).collect();
    x[2999] = bf16::from_f32(y[2999] + 2.0).to_bits();
    let [difference, norm, largest] = compare(&x, &y);
    assert_eq!(difference, 4.0);
    assert_eq!(largest, 2.0);
    assert_eq!(norm, y.iter().map(|v| v * v).sum::<f32>());
    x[17] = 0xFFFF;
    assert!(compare(&x, &y)[0].is_nan(), "a NaN must reach the sum");
}

#[test]
fn separate_activations_match_their_formulas() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu.device).expect("a stream");
    let (m, n) = (5usize, 24usize);
    let packed: Vec<f32> = (0..m * 2 * n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 16.0).collect();
    let bits: Vec<u16> = packed.iter().map(|&v| f16::from_f32(v).to_bits()).collect();
    let source = DeviceBuffer::from_slice(&gpu.device, &bits, "packed").expect("fits");

    let gated = DeviceBuffer::<u16>::zeroed(&gpu.device, m * n, "gated").expect("fits");
    helpers::gated_activation(
        &source,
        &gated,
        (m as u32, n as u32),
        Activation::Silu,
        ffi::CUSYNC_F16,
        &stream,
    )
    .expect("runs");
    let gelu = DeviceBuffer::<u16>::zeroed(&gpu.device, bits.len(), "gelu").expect("fits");
    helpers::activate(&source, &gelu, Activation::GeluTanh, ffi::CUSYNC_F16, &stream).expect("runs");
    stream.synchronize().expect("done");

    let close = |have: u16, want: f64, label: &str| {
        let have = f16::from_bits(have).to_f64();
        assert!((have - want).abs() <= 2e-3 * want.abs().max(0.05), "{label}: have {have}, want {want}");
    };
    let mut have = vec![0u16; m * n];
    gated.download(&mut have).expect("downloads");
    for (i, &have) in have.iter().enumerate() {
        let (row, column) = (i / n, i % n);
        let at = row * 2 * n + column / 8 * 16 + column % 8;
        let (g, u) = (f64::from(packed[at]), f64::from(packed[at + 8]));
        close(have, g / (1.0 + (-g).exp()) * u, &format!("gated ({row}, {column})"));
    }
    let mut have = vec![0u16; bits.len()];
    gelu.download(&mut have).expect("downloads");
    for (i, &have) in have.iter().enumerate() {
        let x = f64::from(packed[i]);
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        close(have, 0.5 * x * (1.0 + inner.tanh()), &format!("gelu {i}"));
    }
}

#[test]
fn semaphores_have_a_cost() {
    let Some(_gpu) = gpu() else { return };
    let cost = cusync::measure::bench_semaphores(0, 1000).expect("measures");
    println!("{cost:?}");
    for (label, ns) in [("wait", cost.wait_ns), ("post", cost.post_ns), ("hand-off", cost.hand_off_ns)] {
        assert!(ns.is_finite() && ns > 0.0, "{label}: {ns} ns");
    }
}

/// The library contains the kernels in the table of instances, for both element types, and no others.
#[test]
fn the_library_holds_the_table_of_instances() {
    let compiled = kernels();
    if compiled.is_empty() {
        println!("skipped: this binary has no kernels");
        return;
    }
    let archs: Vec<u32> = compiled.iter().map(|k| k.id.arch).collect();
    let mut expected = 0;
    let mut expect = |id: ffi::cusync_kernel_id, arch: u32, tile_k: u32, ring: u32| {
        for element in [ffi::CUSYNC_F16, ffi::CUSYNC_BF16] {
            if !archs.contains(&arch) {
                continue;
            }
            let wanted = ffi::cusync_kernel_id { element, ..id };
            let found: Vec<_> = compiled.iter().filter(|k| k.id == wanted).collect();
            assert_eq!(found.len(), 1, "{wanted:?}");
            assert_eq!((found[0].tile_k, found[0].ring), (tile_k, ring), "{wanted:?}");
            expected += 1;
        }
    };
    for shape in KERNELS.iter() {
        let id = gemm_id(shape.arch, 0, (shape.tile.0, shape.tile.1));
        for operation in [ffi::CUSYNC_GEMM, ffi::CUSYNC_GATED_GEMM, ffi::CUSYNC_CONV2D] {
            let operations = shape.operations.bits() & 1 << operation;
            if operations != 0 {
                expect(ffi::cusync_kernel_id { operations, ..id }, shape.arch, shape.tile.2, shape.stages);
            }
        }
    }
    for kernel in CHAIN_KERNELS.iter() {
        let operations = kernel.operations.bits();
        let id = chain_id(0, (kernel.tile.0, kernel.tile.1), kernel.cluster);
        expect(ffi::cusync_kernel_id { operations, ..id }, 90, kernel.tile.2, kernel.stages);
    }
    for kernel in DECODE_KERNELS.iter() {
        let operations = kernel.operations.bits();
        let id = decode_id(0, kernel.width);
        expect(ffi::cusync_kernel_id { operations, ..id }, 90, 64, 0);
    }
    let alone = [
        ffi::CUSYNC_ATTENTION,
        ffi::CUSYNC_NORM,
        ffi::CUSYNC_GROUP_NORM,
        ffi::CUSYNC_GROUPED_CONV,
        ffi::CUSYNC_EXPERTS,
    ];
    for operation in alone {
        assert_ne!(ALONE.bits() & 1 << operation, 0);
        expect(ffi::cusync_kernel_id { operations: 1 << operation, ..alone_id(0) }, 90, 0, 0);
    }
    assert_eq!(expected, compiled.len(), "a kernel is not in csrc/abi/instances.txt");
}
