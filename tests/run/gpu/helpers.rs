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
    helpers::gated_activation(&source, &gated, m as u32, n as u32, ffi::CUSYNC_F16, &stream).expect("runs");
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
    for operation in [ffi::CUSYNC_ATTENTION, ffi::CUSYNC_NORM] {
        assert_ne!(ALONE.bits() & 1 << operation, 0);
        expect(ffi::cusync_kernel_id { operations: 1 << operation, ..alone_id(0) }, 90, 0, 0);
    }
    assert_eq!(expected, compiled.len(), "a kernel is not in csrc/abi/instances.txt");
}
