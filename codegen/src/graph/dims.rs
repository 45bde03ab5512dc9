//! Dims and tensors: resolves names to numbers, and checks them before any size depends on them.

use std::collections::HashMap;

use super::{DataType, OperandKind, StageId, Tensor, TensorId, View};
use crate::diagnostic::{Diagnostic, Span};
use crate::spec::{Affine, Expr, Meaning, Spec, StageSpec, TensorUse, suggest};

/// Maximum size of a tensor, bytes.
const MAX_BYTES: u64 = 1 << 40;

/// The dims of a pipeline with overrides applied.
pub(super) struct Dims {
    pub(super) list: Vec<(String, u32)>,
}

impl Dims {
    pub(super) fn new(spec: &Spec, overrides: &[(String, u64)]) -> Result<Self, Diagnostic> {
        for (name, _) in overrides {
            if !spec.dims.iter().any(|(dim, _)| dim.value == *name) {
                let names: Vec<_> = spec.dims.iter().map(|(dim, _)| dim.value.as_str()).collect();
                let message = format!("the override names the unknown dim `{}`", name.escape_debug());
                let diagnostic =
                    Diagnostic::new("unknown-dim", message).at(spec.dims_span, "the dims of this pipeline");
                return Err(suggest(diagnostic, name, &names));
            }
        }
        let mut list = Vec::new();
        for (name, default) in &spec.dims {
            // The last override wins, as on a command line.
            let stated = overrides.iter().rev().find(|(dim, _)| *dim == name.value).map(|(_, value)| *value);
            let value = stated.map_or(i128::from(default.value), i128::from);
            let Some(number) = u32::try_from(value).ok().filter(|&v| v > 0 && v <= i32::MAX as u32) else {
                let (code, fault) = match value {
                    0 => ("zero-dim", "is zero"),
                    v if v < 0 => ("negative-dim", "is negative"),
                    _ => ("dim-range", "is too large"),
                };
                let place =
                    if stated.is_some() { format!("overridden with {value}") } else { "stated here".into() };
                return Err(Diagnostic::new(code, format!("dim `{}` {fault}", name.value))
                    .at(default.span, place)
                    .help("a dim is at least 1 and below 2^31"));
            };
            list.push((name.value.clone(), number));
        }
        Ok(Dims { list })
    }

    /// The value of an expression linear in `variables`.
    pub(super) fn affine(&self, expr: &Expr, variables: &[&str]) -> Result<Affine, Diagnostic> {
        let meaning = |name: &str| {
            if variables.contains(&name) {
                return Some(Meaning::Variable);
            }
            let dim = self.list.iter().find(|(dim, _)| dim == name)?;
            Some(Meaning::Constant(i64::from(dim.1)))
        };
        let known: Vec<&str> =
            self.list.iter().map(|(name, _)| name.as_str()).chain(variables.iter().copied()).collect();
        expr.affine(&meaning, &known)
    }

    /// The value of an expression over dims alone.
    pub(super) fn constant(&self, expr: &Expr) -> Result<i64, Diagnostic> {
        Ok(self.affine(expr, &[])?.constant)
    }

    /// A size: at least 1 and below 2^31.
    pub(super) fn size(&self, expr: &Expr, noun: &str) -> Result<u32, Diagnostic> {
        let value = self.constant(expr)?;
        u32::try_from(value).ok().filter(|&v| v > 0 && v <= i32::MAX as u32).ok_or_else(|| {
            Diagnostic::new("size-range", format!("{noun} is {value}"))
                .at(expr.span, format!("evaluates to {value}"))
                .help("a size is at least 1 and below 2^31")
        })
    }
}

/// The tensors of a pipeline, in the order of their first use.
pub(super) struct Tensors<'a> {
    pub(super) list: Vec<Tensor>,
    first_use: Vec<Span>,
    /// Images, rows and columns of the images, if a use states all axes.
    images: Vec<Option<[u32; 3]>>,
    written: Vec<Option<Span>>,
    /// What stages write, by name: a tensor has the shape in which it is written.
    outputs: HashMap<&'a str, &'a TensorUse>,
}

/// Rows and columns of a use, and its leading axes if it states four.
type Shape = (u32, u32, Option<[u32; 3]>);

impl<'a> Tensors<'a> {
    /// No tensors yet, for a pipeline with these stages.
    pub(super) fn new(stages: &'a [StageSpec]) -> Tensors<'a> {
        // The first of two writers, as in the error about them.
        let outputs = stages.iter().rev().map(|stage| (stage.out.name.as_str(), &stage.out)).collect();
        let (list, first_use, images, written) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Tensors { list, first_use, images, written, outputs }
    }

    /// The tensor of an operand, checking that all of its uses agree in shape and element type, and the shape under
    /// which it is read if that is another one. A tensor that is changed in place is used by one stage only.
    /// `transposed`: the use states columns x rows.
    pub(super) fn read(
        &mut self,
        dims: &Dims,
        kind: OperandKind,
        used: &TensorUse,
        transposed: bool,
    ) -> Result<(TensorId, Option<View>), Diagnostic> {
        let known = self.list.len();
        if let (None, Some(output)) = (self.find(&used.name), self.outputs.get(used.name.as_str()).copied()) {
            self.write(dims, output)?;
        }
        let (id, view) = self.intern(dims, used, (kind.data(), transposed), kind.takes_views())?;
        let first = self.first_use[id.0];
        let tensor = &mut self.list[id.0];
        if id.0 < known && (tensor.state || kind.is_state()) {
            let message = format!("the cache `{}` is used twice", used.name);
            return Err(Diagnostic::new("shared-cache", message)
                .at(used.span, "used again")
                .also(first, "first here")
                .note("the stage that reads a cache appends to it, and no other waits for that")
                .help("give every attention keys and values of its own"));
        }
        tensor.state = kind.is_state();
        Ok((id, view))
    }

    /// The tensor that a stage writes.
    pub(super) fn write(&mut self, dims: &Dims, used: &TensorUse) -> Result<TensorId, Diagnostic> {
        Ok(self.intern(dims, used, (DataType::Element, false), false)?.0)
    }

    /// `takes_views`: the use may have another shape of the same elements.
    fn intern(
        &mut self,
        dims: &Dims,
        used: &TensorUse,
        (data, transposed): (DataType, bool),
        takes_views: bool,
    ) -> Result<(TensorId, Option<View>), Diagnostic> {
        let stated = shape_of(dims, used)?;
        let shape = if transposed { (stated.1, stated.0, stated.2) } else { stated };
        let (rows, cols, images) = shape;
        if let Some(id) = self.find(&used.name) {
            let known = &self.list[id.0];
            let seen = self.images[id.0];
            if known.transposed != transposed {
                let layout = |transposed| if transposed { "N x K here" } else { "rows x columns here" };
                return Err(Diagnostic::new(
                    "two-layouts",
                    format!("`{}` is used in two layouts", used.name),
                )
                .at(used.span, layout(transposed))
                .also(self.first_use[id.0], layout(known.transposed))
                .note("with `layout: NK`, weights are transposed when they are set or bound")
                .help(
                    "state one layout at all products that read these weights; no stage writes weights in NK",
                ));
            }
            let other = seen.zip(images).is_some_and(|(a, b)| a != b);
            let view = (other || (known.rows, known.cols) != (rows, cols)).then_some(View { rows, cols });
            let fits = |view: &View| takes_views && images.is_none() && view.fits(known);
            if view.is_some_and(|view| !fits(&view)) {
                let (rows, cols) = known.caller_shape();
                return Err(two_shapes(
                    (used, stated),
                    (self.first_use[id.0], (rows, cols, seen)),
                    takes_views,
                ));
            }
            if known.data != data {
                let message =
                    format!("`{}` is used as integers and as numbers of the element type", used.name);
                return Err(Diagnostic::new("data-type", message)
                    .at(used.span, "used again")
                    .also(self.first_use[id.0], "first here")
                    .help("lengths and pages are int32 tensors of their own: use another name"));
            }
            self.images[id.0] = seen.or(images);
            return Ok((id, view));
        }
        let tensor = Tensor { data, transposed, ..Tensor::new(&used.name, rows, cols, None) };
        let bytes = tensor.bytes();
        if bytes >= MAX_BYTES {
            return Err(Diagnostic::new(
                "tensor-too-large",
                format!("`{}` would take {bytes} bytes", used.name),
            )
            .at(used.span, format!("{rows} x {cols} elements of {} bytes", data.bytes()))
            .help("a tensor takes less than 2^40 bytes: use smaller dims"));
        }
        self.list.push(tensor);
        self.first_use.push(used.span);
        self.images.push(images);
        self.written.push(None);
        Ok((TensorId(self.list.len() - 1), None))
    }

    pub(super) fn find(&self, name: &str) -> Option<TensorId> {
        self.list.iter().position(|tensor| tensor.name == name).map(TensorId)
    }

    /// Records the stage that writes a tensor; there is at most one.
    pub(super) fn set_producer(
        &mut self,
        id: TensorId,
        stage: StageId,
        span: Span,
    ) -> Result<(), Diagnostic> {
        if let Some(first) = self.written[id.0] {
            let message = format!("`{}` is written by two stages", self.list[id.0].name);
            return Err(Diagnostic::new("written-twice", message)
                .at(span, "written again")
                .also(first, "first written here")
                .help("give the second result a name of its own; `alias` may let the two share memory"));
        }
        self.written[id.0] = Some(span);
        self.list[id.0].producer = Some(stage);
        Ok(())
    }
}

/// The shape of a tensor as used.
fn shape_of(dims: &Dims, used: &TensorUse) -> Result<Shape, Diagnostic> {
    match used.args.as_slice() {
        // `b(N)` is the row vector `b(1, N)`.
        [cols] => Ok((1, dims.size(cols, "the number of columns")?, None)),
        [rows, cols] => {
            Ok((dims.size(rows, "the number of rows")?, dims.size(cols, "the number of columns")?, None))
        }
        // Images are matrices with one row per pixel, filters with one row per tap and input channel, caches with
        // one row per sequence or page, head and token.
        [a, b, c, cols] => {
            let noun = "the number of elements along an axis";
            let axes = [dims.size(a, noun)?, dims.size(b, noun)?, dims.size(c, noun)?];
            let rows = axes.iter().map(|x| u128::from(*x)).product::<u128>();
            let rows = u32::try_from(rows).ok().filter(|r| *r <= i32::MAX as u32).ok_or_else(|| {
                Diagnostic::new("size-range", format!("the leading axes of `{}` make {rows} rows", used.name))
                    .at(used.span, "too many")
                    .help("the product of the leading axes is below 2^31")
            })?;
            Ok((rows, dims.size(cols, "the number of channels")?, Some(axes)))
        }
        _ => unreachable!("the parser takes one, two or four axes"),
    }
}

/// The error for a use whose shape is not that of the first.
fn two_shapes(
    (used, found): (&TensorUse, Shape),
    (first, known): (Span, Shape),
    takes_views: bool,
) -> Diagnostic {
    let shape = |(rows, cols, images): Shape| match images {
        Some([a, b, c]) => format!("{a} x {b} x {c} x {cols} here"),
        None => format!("{rows} x {cols} here"),
    };
    let help = if takes_views && found.2.is_none() {
        "give every use of a tensor the same shape, or read all of its elements in rows that divide evenly: \
         `Q(T*H,D)` for `Q(T,H*D)`"
    } else {
        "give every use of a tensor the same shape, or use another name"
    };
    Diagnostic::new("shape-mismatch", format!("`{}` is used with two shapes", used.name))
        .at(used.span, shape(found))
        .also(first, shape(known))
        .help(help)
}
