//! Weights in `*.safetensors` files or in memory, read when they are needed.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use cusync::codegen::graph::Element;
use cusync::element::Bits;
use rayon::prelude::*;
use safetensors::tensor::{Dtype, Metadata};
use serde::Deserialize;

use crate::architecture::{Rows, Weight};
use crate::error::{Error, Result};
use crate::given::{Bytes, GivenWeight, WeightType};

/// Side of a block of a matrix that is transposed at once.
const BLOCK: usize = 64;

/// The weights of a checkpoint.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// Reason why a weight is not there.
    lacks: String,
    files: Vec<(PathBuf, Box<dyn Bytes>)>,
    /// File and place of each weight.
    weights: HashMap<String, Stored>,
}

#[derive(Clone, Debug)]
struct Stored {
    file: usize,
    begin: usize,
    dtype: Dtype,
    shape: Vec<usize>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

impl Checkpoint {
    /// Opens the files of a checkpoint: `model.safetensors`, or the shards that
    /// `model.safetensors.index.json` lists.
    ///
    /// # Errors
    /// A file is missing or is not a safetensors file.
    pub(crate) fn open(folder: &Path) -> Result<Checkpoint> {
        let index = folder.join("model.safetensors.index.json");
        let mut names = vec!["model.safetensors".to_owned()];
        if index.exists() {
            let text = std::fs::read_to_string(&index).map_err(|e| failed(&index, e))?;
            let index: Index = serde_json::from_str(&text).map_err(|e| failed(&index, e))?;
            names = index.weight_map.into_values().collect();
            names.sort();
            names.dedup();
        }
        let place = folder.display();
        let lacks =
            format!("is in no safetensors file of {place}\n  help: is a shard missing from the index?");
        let mut checkpoint = Checkpoint { lacks, files: Vec::new(), weights: HashMap::new() };
        for name in names {
            checkpoint.add(folder.join(name))?;
        }
        Ok(checkpoint)
    }

    /// Weights in memory.
    pub(crate) fn given(weights: Vec<GivenWeight>) -> Checkpoint {
        let lacks = "is not among the weights\n  help: give all weights of the model by their names".into();
        let mut checkpoint = Checkpoint { lacks, files: Vec::new(), weights: HashMap::new() };
        for GivenWeight { name, kind, shape, bytes } in weights {
            let dtype = match kind {
                WeightType::F16 => Dtype::F16,
                WeightType::Bf16 => Dtype::BF16,
                WeightType::F32 => Dtype::F32,
            };
            let place = Stored { file: checkpoint.files.len(), begin: 0, dtype, shape };
            checkpoint.files.push((name.clone().into(), bytes));
            checkpoint.weights.insert(name, place);
        }
        checkpoint
    }

    fn add(&mut self, path: PathBuf) -> Result<()> {
        let file = File::open(&path).map_err(|e| {
            let help = "download the checkpoint's safetensors files again; other formats are not read";
            failed(&path, format!("{e}\n  help: {help}"))
        })?;
        let size = file.metadata().map_err(|e| failed(&path, e))?.len();
        let short = || failed(&path, "is cut short\n  help: download it again");
        let mut length = [0; 8];
        file.read_at(&mut length, 0).map_err(|_| short())?;
        let header = u64::from_le_bytes(length).saturating_add(8);
        if header > size {
            return Err(short());
        }
        let mut bytes = vec![0; header as usize];
        file.read_at(&mut bytes, 0).map_err(|e| failed(&path, e))?;
        let metadata: Metadata = serde_json::from_slice(&bytes[8..]).map_err(|e| failed(&path, e))?;
        for (name, info) in metadata.tensors() {
            let (begin, end) = info.data_offsets;
            if header + end as u64 > size {
                return Err(short());
            }
            let (dtype, shape) = (info.dtype, info.shape.clone());
            let place = Stored { file: self.files.len(), begin: header as usize + begin, dtype, shape };
            self.weights.insert(name, place);
        }
        self.files.push((path, Box::new(file)));
        Ok(())
    }

    /// Checks that every row exists with its shape, in a type that can be read.
    ///
    /// # Errors
    /// The first weight that does not.
    pub(crate) fn check<'a>(&self, rows: impl IntoIterator<Item = &'a Rows>) -> Result<()> {
        rows.into_iter().try_for_each(|rows| self.place(rows).map(|_| ()))
    }

    fn place(&self, rows: &Rows) -> Result<&Stored> {
        let fault = |reason: String| Error::Weight { name: rows.tensor.clone(), reason };
        let place = self.weights.get(&rows.tensor).ok_or_else(|| fault(self.lacks.clone()))?;
        if place.shape != rows.shape {
            let (have, want) = (&place.shape, &rows.shape);
            return Err(fault(format!("has the shape {have:?}, and config.json calls for {want:?}")));
        }
        match place.dtype {
            Dtype::F16 | Dtype::BF16 | Dtype::F32 => Ok(place),
            other => Err(fault(format!(
                "is stored as {other:?}\n  help: F16, BF16 and F32 are read; quantized checkpoints are not"
            ))),
        }
    }

    /// The blocks of a weight, as they are stored.
    ///
    /// # Errors
    /// As [`Checkpoint::check`].
    pub(crate) fn blocks(&self, weight: &Weight) -> Result<Vec<Block>> {
        weight.rows.iter().map(|rows| self.block(rows)).collect()
    }

    /// A matrix as it is stored, not transposed.
    ///
    /// # Errors
    /// As [`Checkpoint::check`].
    pub(crate) fn table(&self, rows: &Rows, element: Element) -> Result<Vec<u16>> {
        let block = self.block(rows)?;
        let mut out = vec![0; rows.count * block.cols];
        out.par_chunks_mut(block.cols).enumerate().for_each(|(row, out)| block.read(row, 0, out, element));
        Ok(out)
    }

    /// One row of a matrix, such as the embedding of a token.
    ///
    /// # Errors
    /// As [`Checkpoint::check`]; also if there is no such row.
    pub(crate) fn row(&self, rows: &Rows, index: usize, element: Element, out: &mut [u16]) -> Result<()> {
        if index >= rows.count {
            let reason = format!("has {} rows, so there is no row {index}", rows.count);
            return Err(Error::Weight { name: rows.tensor.clone(), reason });
        }
        self.block(&Rows { first: rows.first + index, count: 1, ..rows.clone() })?.read(0, 0, out, element);
        Ok(())
    }

    fn block(&self, rows: &Rows) -> Result<Block> {
        let place = self.place(rows)?;
        let size = if place.dtype == Dtype::F32 { 4 } else { 2 };
        let (all, cols) = (rows.shape.get(1).copied().unwrap_or(1), rows.columns.len());
        // Rows that are used from end to end are read at once.
        let (count, pitch) = if cols == all { (1, rows.count * cols) } else { (rows.count, cols) };
        let mut bytes = vec![0; count * pitch * size];
        let (path, file) = &self.files[place.file];
        bytes.par_chunks_mut((pitch * size).max(1)).enumerate().try_for_each(|(row, bytes)| {
            let begin = place.begin + ((rows.first + row) * all + rows.columns.start) * size;
            file.read_at(bytes, begin as u64).map_err(|e| failed(path, e))
        })?;
        Ok(Block { bytes, dtype: place.dtype, cols })
    }
}

fn failed(path: &Path, reason: impl std::fmt::Display) -> Error {
    Error::File { path: path.to_owned(), reason: reason.to_string() }
}

/// A block of a matrix as a file has it.
pub(crate) struct Block {
    bytes: Vec<u8>,
    dtype: Dtype,
    cols: usize,
}

impl Block {
    /// A block of values in the type of a pipeline.
    pub(crate) fn new(bits: &[u16], cols: usize, element: Element) -> Block {
        let dtype = match element {
            Element::F16 => Dtype::F16,
            Element::Bf16 => Dtype::BF16,
        };
        Block { bytes: bits.iter().flat_map(|bits| bits.to_le_bytes()).collect(), dtype, cols }
    }

    fn rows(&self) -> usize {
        self.bytes.len() / (self.cols * if self.dtype == Dtype::F32 { 4 } else { 2 })
    }

    /// Reads a part of a row in the type of a pipeline.
    fn read(&self, row: usize, col: usize, out: &mut [u16], element: Element) {
        let first = row * self.cols + col;
        let half = |i: usize| {
            let at = 2 * (first + i);
            u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
        };
        if self.stored() == Some(element) {
            out.iter_mut().enumerate().for_each(|(i, bits)| *bits = half(i));
            return;
        }
        element.round(&self.values(first, out.len()), out);
    }

    /// Type of the elements, unless it is float32.
    fn stored(&self) -> Option<Element> {
        match self.dtype {
            Dtype::F16 => Some(Element::F16),
            Dtype::BF16 => Some(Element::Bf16),
            _ => None,
        }
    }

    /// `count` elements from the one numbered `first` on.
    fn values(&self, first: usize, count: usize) -> Vec<f32> {
        match self.stored() {
            Some(stored) => {
                let pairs = self.bytes[2 * first..2 * (first + count)].chunks_exact(2);
                let bits: Vec<u16> = pairs.map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
                let mut wide = vec![0.0; count];
                stored.widen(&bits, &mut wide);
                wide
            }
            None => {
                let words = self.bytes[4 * first..4 * (first + count)].chunks_exact(4);
                words.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
            }
        }
    }

    /// The block with a function of each element, in float32.
    pub(crate) fn map(&self, change: impl Fn(f32) -> f32) -> Block {
        let values = self.values(0, self.rows() * self.cols);
        let bytes = values.into_iter().flat_map(|value| change(value).to_le_bytes()).collect();
        Block { bytes, dtype: Dtype::F32, cols: self.cols }
    }
}

/// Elements of a weight in the type of a pipeline, from its blocks, one after the other: a vector as it is, a matrix
/// transposed to (K, N). `width` is the number of its columns N, at least as many as the blocks have rows: the others
/// are zero.
pub(crate) fn joined(blocks: &[Block], width: usize, element: Element) -> Vec<u16> {
    let k = blocks.first().map_or(0, |block| block.cols);
    let mut out = vec![0; k * width];
    let mut first = 0;
    for block in blocks {
        transpose(block, (&mut out, width, first), element);
        first += block.rows();
    }
    out
}

/// The rows of blocks, one after the other.
pub(crate) fn stacked(blocks: &[Block], element: Element) -> Vec<u16> {
    let mut out = vec![0; blocks.iter().map(|block| block.rows() * block.cols).sum()];
    let mut rest = &mut out[..];
    for block in blocks {
        let (own, behind) = rest.split_at_mut(block.rows() * block.cols);
        let rows = own.par_chunks_mut(block.cols.max(1)).enumerate();
        rows.for_each(|(row, line)| block.read(row, 0, line, element));
        rest = behind;
    }
    out
}

/// Writes the rows of a block as columns `first..` of a matrix of `width` columns.
fn transpose(source: &Block, (out, width, first): (&mut [u16], usize, usize), element: Element) {
    let rows = source.rows();
    out.par_chunks_mut(BLOCK * width).enumerate().for_each(|(block, out)| {
        let depth = out.len() / width;
        let (mut tile, mut line) = ([[0; BLOCK]; BLOCK], [0; BLOCK]);
        for begin in (0..rows).step_by(BLOCK) {
            // Columns are far apart, often by a power of two: written one by one they would evict each other.
            let count = BLOCK.min(rows - begin);
            for row in 0..count {
                source.read(begin + row, block * BLOCK, &mut line[..depth], element);
                tile.iter_mut().zip(&line[..depth]).for_each(|(column, bits)| column[row] = *bits);
            }
            for (k, column) in tile.iter().enumerate().take(depth) {
                let to = k * width + first + begin;
                out[to..to + count].copy_from_slice(&column[..count]);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    #[test]
    fn matrices_are_transposed_beside_each_other() {
        let (n, k) = (70, 130);
        let value = |row: usize, col: usize| (row * k + col) as f32 / 64.0;
        let bytes: Vec<u8> = (0..n * k).flat_map(|i| value(i / k, i % k).to_le_bytes()).collect();
        let rows = |rows: Range<usize>| {
            let bytes = bytes[rows.start * k * 4..rows.end * k * 4].to_vec();
            Block { bytes, dtype: Dtype::F32, cols: k }
        };
        let width = 48;
        let mut out = vec![0; k * width];
        transpose(&rows(3..23), (&mut out, width, 0), Element::F16);
        transpose(&rows(50..70), (&mut out, width, 20), Element::F16);
        let mut wide = vec![0.0; out.len()];
        Element::F16.widen(&out, &mut wide);
        for col in 0..width {
            for row in 0..k {
                let want = match col {
                    0..20 => value(3 + col, row),
                    20..40 => value(30 + col, row),
                    _ => 0.0,
                };
                assert!((wide[row * width + col] - want).abs() <= want / 1024.0, "({row}, {col})");
            }
        }
    }
}
