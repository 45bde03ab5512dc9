//! GEMMs, whole matrices at a time, sums in float32.

use cusync_gen::graph::{Activation, Epilogue, OperandKind, Stage};
use rayon::prelude::*;

use super::{Matrix, ReferenceError, Value};
use crate::device::host_gemm::{MatMut, MatRef, Threads, gemm_f32};

/// A GEMM.
pub(super) fn plain(stage: &Stage, epilogue: Epilogue, value: &Value<'_>) -> Result<Matrix, ReferenceError> {
    finish(product(stage, value(OperandKind::A)?, value(OperandKind::B)?)?, epilogue, value)
}

/// Bias, activation and residual.
pub(super) fn finish(mut d: Matrix, epilogue: Epilogue, value: &Value<'_>) -> Result<Matrix, ReferenceError> {
    if let Some(bias) = value(OperandKind::Bias)? {
        d.data.par_chunks_mut(d.cols).for_each(|row| {
            for (x, b) in row.iter_mut().zip(&bias.data) {
                *x += b;
            }
        });
    }
    let residual = value(OperandKind::Residual)?;
    let add = |d: &mut Matrix| {
        if let Some(residual) = &residual {
            d.data.par_iter_mut().zip(&residual.data).for_each(|(x, r)| *x += r);
        }
    };
    if epilogue.residual_first {
        add(&mut d);
    }
    match epilogue.activation {
        Activation::Identity => {}
        Activation::Relu => d.data.par_iter_mut().for_each(|x| *x = x.max(0.0)),
        // x sigmoid(2 u) is the same function as 0.5 x (1 + tanh u).
        Activation::GeluTanh => d.data.par_iter_mut().for_each(|x| {
            let v = f64::from(*x);
            let u = (2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v.powi(3));
            *x = (v / (1.0 + (-2.0 * u).exp())) as f32;
        }),
    }
    if !epilogue.residual_first {
        add(&mut d);
    }
    Ok(d)
}

/// A gated GEMM.
pub(super) fn gated(stage: &Stage, value: &Value<'_>) -> Result<Matrix, ReferenceError> {
    let mut gate = product(stage, value(OperandKind::A)?, value(OperandKind::B)?)?;
    let up = product(stage, value(OperandKind::A)?, value(OperandKind::Up)?)?;
    gate.data.par_iter_mut().zip(&up.data).for_each(|(g, u)| {
        let v = f64::from(*g);
        *g = (v / (1.0 + (-v).exp()) * f64::from(*u)) as f32;
    });
    Ok(gate)
}

fn product(stage: &Stage, a: Option<Matrix>, b: Option<Matrix>) -> Result<Matrix, ReferenceError> {
    let (Some(a), Some(b)) = (a, b) else { return Err(ReferenceError::Shape(stage.name.clone())) };
    if a.cols != b.rows {
        return Err(ReferenceError::Shape(stage.name.clone()));
    }
    let mut d = Matrix { rows: a.rows, cols: b.cols, data: vec![0.0; a.rows * b.cols] };
    gemm_f32(
        MatMut::new(&mut d.data, d.rows, d.cols, d.cols),
        MatRef::new(&a.data, a.rows, a.cols, a.cols),
        MatRef::new(&b.data, b.rows, b.cols, b.cols),
        false,
        Threads::All,
    );
    Ok(d)
}
