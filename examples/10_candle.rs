//! A candle model with its MLP replaced by a pipeline: on the CPU, or with `candle-cuda` on a GPU.
//!
//!     cargo run --release --features candle --example 10_candle

use candle_core::{DType, Device, Result, Tensor};
use cusync::candle::CandlePipeline;

/// A minimal transformer block: adds its MLP's output to its input.
trait Mlp {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor>;
}

fn block(mlp: &mut dyn Mlp, x: &Tensor) -> Result<Tensor> {
    x + mlp.forward(x)?
}

/// As in candle, in float32 on the CPU.
struct Plain {
    up: Tensor,
    down: Tensor,
}

impl Mlp for Plain {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        x.matmul(&self.up)?.relu()?.matmul(&self.down)
    }
}

const SPEC: &str = r#"Pipeline(name: "mlp", dims: { "M": 16, "H": 512, "I": 1024 }, stages: [
    Gemm(name: "up", a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)", epilogue: Relu),
    Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)"),
])"#;

/// The same as one pipeline.
struct Fused(CandlePipeline);

impl Mlp for Fused {
    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        self.0.forward("X", x, "Z")
    }
}

fn main() -> Result<()> {
    // The CPU if there is no GPU or candle was built without GPU support.
    let device = Device::cuda_if_available(0)?;
    let weight = |rows: usize, cols: usize| {
        let values: Vec<f32> = (0..rows * cols).map(|i| ((i * 37 % 101) as f32 - 50.0) / 1000.0).collect();
        Tensor::from_vec(values, (rows, cols), &device)
    };
    let (up, down) = (weight(512, 1024)?, weight(1024, 512)?);
    let mut pipeline = CandlePipeline::open(SPEC, &[], &device)?;
    pipeline.bind("W1", &up.to_dtype(DType::F16)?)?;
    pipeline.bind("W2", &down.to_dtype(DType::F16)?)?;
    let (mut plain, mut fused) = (Plain { up, down }, Fused(pipeline));
    // The number of tokens changes from run to run.
    for tokens in [16, 3, 9] {
        let x = weight(tokens, 512)?;
        let expected = block(&mut plain, &x)?;
        let found = block(&mut fused, &x.to_dtype(DType::F16)?)?.to_dtype(DType::F32)?;
        let largest = |t: &Tensor| t.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>();
        let error = largest(&(found - &expected)?)? / largest(&expected)?;
        show(&format!("{tokens} tokens, {}: largest error {error:.1e}", fused.0.session().executor().name()));
        if error.is_nan() || error > 2e-3 {
            candle_core::bail!("wrong result");
        }
    }
    Ok(())
}

#[allow(clippy::print_stdout)]
fn show(line: &str) {
    println!("{line}");
}
