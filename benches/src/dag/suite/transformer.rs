//! M1 and M2: independent chains of bias + GELU, layer norm and residual addition, one per unit of the
//! program's width, and one join. The originals were never published; these have the same width and kind of
//! kernels.

use cusync_dag::{Argument, DagError, LaunchConfig, Recording};

use super::{Case, Check, Want, hand, moving, over, uniform};

/// Maximum number of inputs of the join.
const WIDEST: usize = 12;

pub(super) fn chains(
    name: &'static str,
    width: usize,
    rows: usize,
    columns: usize,
) -> Result<Case, DagError> {
    let words = rows * columns;
    let mut r = Recording::new(name).built_for_programmatic_edges();
    let (n, columns_arg) = (words as u32, columns as u32);
    let gain = uniform(1, columns, 0.5, 1.5);
    let (gain_id, mut want) = (r.floats("gain", &gain), vec![0.0; words]);
    let mut ends = Vec::new();
    for chain in 0..width as u64 {
        let (x, bias) = (uniform(10 + chain, words, -2.0, 2.0), uniform(40 + chain, columns, -0.5, 0.5));
        let shift = uniform(70 + chain, columns, -1.0, 1.0);
        let (source, bias_id, shift_id) =
            (r.floats("x", &x), r.floats("bias", &bias), r.floats("shift", &shift));
        let [active, normal, end] = ["gelu", "norm", "residual"].map(|name| r.zeros(name, words));
        let operands = [
            r.read(source),
            r.read(bias_id),
            r.write(active),
            Argument::U32(rows as u32),
            columns_arg.into(),
        ];
        r.launch("tf_bias_gelu", over(words), moving(2 * words), &operands)?;
        let operands =
            [r.read(active), r.read(gain_id), r.read(shift_id), r.write(normal), columns_arg.into()];
        r.launch(
            "tf_layer_norm",
            LaunchConfig::linear(rows as u32, 256),
            1.0 + moving(2 * words),
            &operands,
        )?;
        let operands = [r.read(normal), r.read(source), r.write(end), n.into()];
        r.launch("tf_residual", over(words), moving(3 * words), &operands)?;
        ends.push(end);
        for (row, sum) in x.chunks(columns).zip(want.chunks_mut(columns)) {
            for (sum, value) in sum.iter_mut().zip(reference(row, &bias, &gain, &shift)) {
                *sum += value;
            }
        }
    }
    let joined = r.zeros("joined", words);
    let mut operands: Vec<Argument> = ends.iter().map(|&end| r.read(end)).collect();
    operands.resize(WIDEST, Argument::Null);
    operands.extend([r.write(joined), Argument::U32(width as u32), n.into()]);
    r.launch("tf_join", over(words), moving((width + 1) * words), &operands)?;
    let checks = vec![Check { name: "joined", buffer: joined, want: Want::F32(want, 1e-4) }];
    let size =
        format!("{width} chains of {rows} x {columns} floats (a substitute: the original is unpublished)");
    Ok(Case { name, size, hand: hand::chains(width), recording: r, checks })
}

/// One row of a chain.
fn reference(x: &[f32], bias: &[f32], gain: &[f32], shift: &[f32]) -> Vec<f64> {
    let gelu =
        |v: f64| 0.5 * v * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044_715 * v.powi(3))).tanh());
    let active: Vec<f64> = x.iter().zip(bias).map(|(&x, &b)| gelu(f64::from(x) + f64::from(b))).collect();
    let mean = active.iter().sum::<f64>() / active.len() as f64;
    let variance = active.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / active.len() as f64;
    let scaled = |v: f64| (v - mean) / (variance + 1e-5).sqrt();
    let columns = active.iter().zip(gain).zip(shift).zip(x);
    columns.map(|(((&v, &g), &s), &x)| scaled(v) * f64::from(g) + f64::from(s) + f64::from(x)).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn by_hand() {
        // GELU(1) = 0.841192, GELU(-1) = -0.158808: mean 0.341192, deviation 0.5, normalized to -1 and 1.
        let row = super::reference(&[1.0, -1.5], &[0.0, 0.5], &[1.0, 2.0], &[10.0, 20.0]);
        assert!((row[0] - (1.0 + 10.0 + 1.0)).abs() < 1e-4, "{row:?}");
        assert!((row[1] - (-2.0 + 20.0 - 1.5)).abs() < 1e-4, "{row:?}");
    }
}
