//! An MLP inside a program that uses `cudarc`: its memory and its stream, no copies. Without a GPU it prints a message.
//!
//!     cargo run --release --features cudarc --example 09_cudarc

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use cusync::prelude::*;
use cusync::runtime::shipped;
use half::f16;

const DIMS: [(&str, u64); 3] = [("M", 16), ("H", 2048), ("I", 1024)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec = shipped("llama65_mlp").ok_or("the spec ships")?;
    let mut expected = Session::on_host(spec, &DIMS)?;
    let values = |count: usize| (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 2000.0).collect();
    let mut tensors: Vec<(String, Vec<f32>)> = Vec::new();
    for name in expected.inputs() {
        let (rows, cols) = expected.shape(&name)?;
        let tensor: Vec<f32> = values(rows * cols);
        expected.set_f32(&name, &tensor)?;
        tensors.push((name, tensor));
    }
    expected.run()?;
    let expected = expected.read_f32("Z")?;

    if Device::open(0).is_err() || cusync::device::kernels().is_empty() {
        show("no GPU, or a build without kernels: computed on the CPU alone");
        return Ok(());
    }
    // The program's own context, stream and memory.
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let copied = |values: &[f32]| -> Result<Arc<CudaSlice<f16>>, Box<dyn std::error::Error>> {
        let halves: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
        Ok(Arc::new(stream.clone_htod(&halves)?))
    };
    let result = copied(&vec![0.0; expected.len()])?;

    let device = Device::from_cudarc(&context)?;
    let mut mlp = Session::on_gpu(spec, &DIMS, &device, None, Options::default())?;
    for (name, values) in &tensors {
        mlp.bind(name, Arc::new(DeviceBuffer::from_cudarc(&device, &copied(values)?)?))?;
    }
    mlp.bind("Z", Arc::new(DeviceBuffer::from_cudarc(&device, &result)?))?;
    mlp.run_on(&Stream::from_cudarc(&device, &stream)?)?;
    // In stream order after the run.
    let worst = largest_error(&stream, &result, &expected)?;
    show(&format!("{}: largest error {worst:.1e} of the largest value", mlp.executor().name()));
    if worst <= 2e-3 { Ok(()) } else { Err("wrong result".into()) }
}

fn largest_error(
    stream: &Arc<CudaStream>,
    result: &CudaSlice<f16>,
    expected: &[f32],
) -> Result<f32, Box<dyn std::error::Error>> {
    let found = stream.clone_dtoh(result)?;
    let largest = expected.iter().fold(0.0f32, |most, e| most.max(e.abs()));
    let differences = found.iter().zip(expected).map(|(f, e)| (f.to_f32() - e).abs());
    Ok(differences.fold(0.0f32, |most, d| if d > most || d.is_nan() { d } else { most }) / largest)
}

#[allow(clippy::print_stdout)]
fn show(line: &str) {
    println!("{line}");
}
