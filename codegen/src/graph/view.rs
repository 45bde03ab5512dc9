//! Tensors read under another shape: the same row-major elements in longer or shorter rows, such as a row for each head
//! of a token.

use std::ops::Range;

use super::{Axis, Footprint, Tensor};

/// The shape under which a stage reads a tensor that has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Rows.
    pub rows: u32,
    /// Columns.
    pub cols: u32,
}

impl View {
    /// Whether the view has the tensor's elements, and whole rows of one are a row of the other.
    pub fn fits(self, tensor: &Tensor) -> bool {
        let (rows, cols) = (u64::from(self.rows), u64::from(self.cols));
        let (long, short) = (self.cols.max(tensor.cols), self.cols.min(tensor.cols));
        short > 0 && rows * cols == tensor.elements() && long.is_multiple_of(short)
    }

    /// Calls `f` with boxes of a tensor with rows of `length` elements that contain a box of the view. They are all
    /// elements from its first to its last, so they are exact if the box has whole rows or a single one.
    pub(super) fn boxes(
        self,
        length: u32,
        (rows, cols): (&Range<u32>, &Range<u32>),
        f: &mut dyn FnMut(Range<u32>, Range<u32>),
    ) {
        if rows.is_empty() || cols.is_empty() {
            return;
        }
        let element = |row: u32, col: u32| u64::from(row) * u64::from(self.cols) + u64::from(col);
        let place =
            |element: u64| ((element / u64::from(length)) as u32, (element % u64::from(length)) as u32);
        // Row and column of the first element and of the last.
        let (mut top, left) = place(element(rows.start, cols.start));
        let (mut end, right) = place(element(rows.end - 1, cols.end - 1));
        if top == end {
            return f(top..top + 1, left..right + 1);
        }
        if left > 0 {
            f(top..top + 1, left..length);
            top += 1;
        }
        if right + 1 < length {
            f(end..end + 1, 0..right + 1);
        } else {
            end += 1;
        }
        if top < end {
            f(top..end, 0..length);
        }
    }

    /// A footprint in the tensor that contains one in the view: whole rows; all of them if the footprint ends within a
    /// row. `None` on 32-bit overflow.
    pub(super) fn footprint(self, footprint: &Footprint, tensor: &Tensor) -> Option<Footprint> {
        let Axis { m, n, k, offset, extent } = footprint.rows;
        let all = |length: u32| Some(Axis { extent: i32::try_from(length).ok()?, ..Axis::default() });
        let times = i32::try_from(self.cols / tensor.cols).ok()?;
        let parts = i32::try_from(tensor.cols / self.cols).ok()?;
        let rows = if times > 0 {
            let each = |x: i32| x.checked_mul(times);
            Some(Axis { m: each(m)?, n: each(n)?, k: each(k)?, offset: each(offset)?, extent: each(extent)? })
        } else if [m, n, k, offset, extent].iter().all(|x| x % parts == 0) {
            Some(Axis {
                m: m / parts,
                n: n / parts,
                k: k / parts,
                offset: offset / parts,
                extent: extent / parts,
            })
        } else {
            all(tensor.rows)
        };
        Some(Footprint { rows: rows?, cols: all(tensor.cols)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements of boxes in a matrix with rows of `length`.
    fn elements(boxes: &[(Range<u32>, Range<u32>)], length: u32) -> Vec<u32> {
        let each = boxes.iter().flat_map(|(rows, cols)| {
            rows.clone().flat_map(move |row| cols.clone().map(move |col| row * length + col))
        });
        let mut each: Vec<u32> = each.collect();
        each.sort_unstable();
        each
    }

    #[test]
    fn boxes_are_the_elements_from_the_first_to_the_last() {
        for (view, length) in [((12, 4), 8), ((12, 4), 24), ((3, 16), 4), ((2, 24), 8), ((6, 8), 8)] {
            let view = View { rows: view.0, cols: view.1 };
            let tensor = Tensor::new("t", view.rows * view.cols / length, length, None);
            assert!(view.fits(&tensor));
            let ranges = |end: u32| (0..=end).flat_map(move |a| (a..=end).map(move |b| a..b));
            for (rows, cols) in ranges(view.rows).flat_map(|r| ranges(view.cols).map(move |c| (r.clone(), c)))
            {
                let mut boxes = Vec::new();
                view.boxes(length, (&rows, &cols), &mut |r, c| boxes.push((r, c)));
                let (found, read) =
                    (elements(&boxes, length), elements(&[(rows.clone(), cols.clone())], view.cols));
                let expected: Vec<u32> = match (read.first(), read.last()) {
                    (Some(first), Some(last)) => (*first..*last + 1).collect(),
                    _ => Vec::new(),
                };
                assert_eq!(found, expected, "{view:?} {rows:?} {cols:?} in rows of {length}");
            }
        }
    }

    #[test]
    fn a_footprint_contains_the_boxes_of_every_tile() {
        for (view, length) in [((48, 4), 16), ((12, 16), 4), ((48, 4), 4)] {
            let view = View { rows: view.0, cols: view.1 };
            let tensor = Tensor::new("t", view.rows * view.cols / length, length, None);
            for (rows, k) in [(1, 0), (3, 2), (4, 0), (8, 4), (12, 1)] {
                let own = Axis { m: rows, k, extent: rows, ..Axis::default() };
                let stated = Footprint { rows: own, cols: Axis { k: 2, extent: 2, ..Axis::default() } };
                let whole = view.footprint(&stated, &tensor).expect("small");
                for (m, k) in (0..48).flat_map(|m| (0..3).map(move |k| (m, k))) {
                    let range = |axis: &Axis, length| axis.range(length, m, 0, k);
                    let read = (range(&stated.rows, view.rows), range(&stated.cols, view.cols));
                    view.boxes(length, (&read.0, &read.1), &mut |rows, cols| {
                        let (all, wide) = (range(&whole.rows, tensor.rows), range(&whole.cols, tensor.cols));
                        assert!(all.start <= rows.start && rows.end <= all.end, "{rows:?} in {all:?}");
                        assert!(wide.start <= cols.start && cols.end <= wide.end, "{cols:?} in {wide:?}");
                    });
                }
                // Rows that divide evenly are not widened to all.
                if length == 16 && rows == 8 {
                    assert_eq!((whole.rows.m, whole.rows.extent), (2, 2));
                }
            }
        }
    }

    #[test]
    fn a_view_has_the_same_elements_in_rows_that_divide() {
        let tensor = Tensor::new("t", 8, 12, None);
        let fits = |rows, cols| View { rows, cols }.fits(&tensor);
        assert!(fits(32, 3) && fits(4, 24) && fits(1, 96) && fits(96, 1));
        assert!(!fits(12, 8) && !fits(16, 12) && !fits(3, 4));
    }
}
