//! Matrix products on the host: safe wrappers of the raw-pointer entry points of two libraries. The executor
//! uses float32 products of the `gemm` crates, and the reference that verifies it uses float64 products of
//! `matrixmultiply`: they share no code.

use gemm_common::Parallelism;

/// A row-major matrix of float32, rows `stride` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct MatRef<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    stride: usize,
}

/// A [`MatRef`] that can be written.
#[derive(Debug)]
pub struct MatMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    stride: usize,
}

/// Elements from the first to the last; the arithmetic must not overflow.
fn reach(rows: usize, cols: usize, stride: usize) -> usize {
    if rows == 0 || cols == 0 { 0 } else { (rows - 1) * stride + cols }
}

impl<'a> MatRef<'a> {
    /// A view of `data`.
    ///
    /// # Panics
    /// The matrix does not fit `data`, or its rows overlap.
    pub fn new(data: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(stride >= cols && reach(rows, cols, stride) <= data.len(), "matrix does not fit its memory");
        MatRef { data, rows, cols, stride }
    }
}

impl<'a> MatMut<'a> {
    /// A view of `data`.
    ///
    /// # Panics
    /// The matrix does not fit `data`, or its rows overlap.
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(stride >= cols && reach(rows, cols, stride) <= data.len(), "matrix does not fit its memory");
        MatMut { data, rows, cols, stride }
    }
}

/// Threads that compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread.
    Caller,
    /// All threads of the machine.
    All,
}

/// `d = a b`, or `d += a b` when `accumulate` is set; a is M x K, b is K x N, d is M x N.
///
/// # Panics
/// The shapes do not match.
pub fn gemm_f32(d: MatMut<'_>, a: MatRef<'_>, b: MatRef<'_>, accumulate: bool, threads: Threads) {
    assert!(a.rows == d.rows && b.cols == d.cols && a.cols == b.rows, "shapes of a product do not meet");
    let parallelism = match threads {
        Threads::Caller => Parallelism::None,
        Threads::All => Parallelism::Rayon(0),
    };
    // The entry point treats rows of `d` as columns, so it gets the transposed product.
    // SAFETY: each view's constructor proved that all its elements lie inside a live slice; `d` is borrowed
    // mutably, so it overlaps neither operand.
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            d.cols,
            d.rows,
            a.cols,
            d.data.as_mut_ptr(),
            d.stride as isize,
            1,
            accumulate,
            b.data.as_ptr(),
            b.stride as isize,
            1,
            a.data.as_ptr(),
            a.stride as isize,
            1,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// `d += a b` in float64 on the calling thread, for row-major matrices; shape: rows and columns of d, and the
/// depth of the sums.
///
/// # Panics
/// A matrix is smaller than its shape.
pub(crate) fn add_product_f64(
    d: &mut [f64],
    a: &[f64],
    b: &[f64],
    (rows, cols, depth): (usize, usize, usize),
) {
    let fits = d.len() == rows * cols && a.len() == rows * depth && b.len() == depth * cols;
    assert!(fits, "shapes of a product do not meet");
    // SAFETY: rows are contiguous in each slice, whose length was checked; `d` is borrowed mutably, so it
    // overlaps neither operand.
    unsafe {
        let strides = |cols: usize| (cols as isize, 1);
        let ((d_rows, d_cols), (a_rows, a_cols), (b_rows, b_cols)) =
            (strides(cols), strides(depth), strides(cols));
        matrixmultiply::dgemm(
            rows,
            depth,
            cols,
            1.0,
            a.as_ptr(),
            a_rows,
            a_cols,
            b.as_ptr(),
            b_rows,
            b_cols,
            1.0,
            d.as_mut_ptr(),
            d_rows,
            d_cols,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_product_equals_the_triple_loop_and_leaves_the_rest_alone() {
        let (m, n, k, sa, sb, sd) = (5, 7, 9, 11, 8, 10);
        let a: Vec<f32> = (0..m * sa).map(|i| (i % 13) as f32 - 6.0).collect();
        let b: Vec<f32> = (0..k * sb).map(|i| (i % 7) as f32 - 3.0).collect();
        let mut d = vec![100.0; m * sd];
        for accumulate in [false, true] {
            gemm_f32(
                MatMut::new(&mut d, m, n, sd),
                MatRef::new(&a, m, k, sa),
                MatRef::new(&b, k, n, sb),
                accumulate,
                Threads::Caller,
            );
        }
        for i in 0..m {
            for j in 0..n {
                let want: f32 = (0..k).map(|l| a[i * sa + l] * b[l * sb + j]).sum();
                assert_eq!(d[i * sd + j], 2.0 * want);
            }
            assert!(d[i * sd + n..(i + 1) * sd].iter().all(|&x| x == 100.0));
        }
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn short_memory_is_refused() {
        MatRef::new(&[0.0; 10], 3, 4, 4);
    }
}
