//! The cost of an operation's tiles.

/// Cost of an operation's tiles.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    /// Whether it is a GEMM of whole matrices.
    pub(crate) gemm: bool,
    /// Matrix products per output tile and k-block.
    pub(crate) products: f64,
    pub(crate) bound: Bound,
}

/// Limiting factor of a tile's time.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    /// The rate and copies of the GEMM kernel with this tile; rows of tiles share operand B.
    Kernel,
    /// This fraction of the matrix rate; the first operand's tensor is read once.
    Rate(f64),
    /// Reading every operand once and writing the output.
    Bytes,
}
