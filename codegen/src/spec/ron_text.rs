//! The parts of the RON front end shared with files other than pipelines: values with locations, expressions over
//! dims, "did you mean". The structure of such files is defined by their readers.

use std::collections::HashMap;

use ron::value::RawValue;
use serde::Deserialize;

use super::expr::{Expr, Meaning, parse_expr, parse_range};
use super::ident;
pub use super::source::bare;
use super::source::{Source, Text};
use crate::diagnostic::{Diagnostic, Span, Spanned};

/// Values of dims by name.
pub type DimValues = [(String, i64)];

/// A RON text being read.
#[derive(Clone, Copy)]
pub struct RonText<'a> {
    source: Source<'a>,
}

/// A name, optionally with a range in brackets: `x`, or `x[0..4*N]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// The name.
    pub name: Spanned<String>,
    /// First element and one past the last, evaluated.
    pub range: Option<Spanned<(i64, i64)>>,
}

impl<'a> RonText<'a> {
    /// Starts reading a text.
    pub fn new(text: &'a str) -> Self {
        RonText { source: Source { text } }
    }

    /// Parses the whole text; `form` describes the expected form.
    ///
    /// # Errors
    /// The first fault, with its location; the same for every method here.
    pub fn whole<T: Deserialize<'a>>(&self, form: &str) -> Result<T, Diagnostic> {
        self.source.parse_all(form)
    }

    /// Parses a value; `form` describes the expected form, with its article.
    ///
    /// # Errors
    /// As for [`RonText::whole`].
    pub fn value<T: Deserialize<'a>>(&self, raw: &'a RawValue, form: &str) -> Result<Spanned<T>, Diagnostic> {
        self.source.spanned(raw, form)
    }

    /// The location of a value.
    pub fn span(&self, raw: &RawValue) -> Span {
        self.source.span(raw)
    }

    /// A list, or a single value as a list of one.
    ///
    /// # Errors
    /// As for [`RonText::whole`].
    pub fn list(&self, raw: Option<&'a RawValue>, form: &str) -> Result<Vec<&'a RawValue>, Diagnostic> {
        match raw {
            None => Ok(Vec::new()),
            Some(raw) if bare(raw).starts_with('[') => self.source.list(raw, form),
            Some(raw) => Ok(vec![raw]),
        }
    }

    /// A map with distinct names as keys.
    ///
    /// # Errors
    /// As for [`RonText::whole`].
    pub fn map(
        &self,
        raw: Option<&'a RawValue>,
        form: &str,
    ) -> Result<Vec<(Spanned<String>, &'a RawValue)>, Diagnostic> {
        let mut list: Vec<(Spanned<String>, &RawValue)> = Vec::new();
        let mut stated: HashMap<String, Span> = HashMap::new();
        for (key, value) in self.source.map(raw, form)? {
            let key = name(&self.source.text(key, "a name in quotes")?)?;
            if let Some(first) = stated.insert(key.value.clone(), key.span) {
                return Err(Diagnostic::new("duplicate-key", format!("`{}` is stated twice", key.value))
                    .at(key.span, "stated again")
                    .also(first, "first here")
                    .help("keep one of the two"));
            }
            list.push((key, value));
        }
        Ok(list)
    }

    /// A name in quotes.
    ///
    /// # Errors
    /// As for [`RonText::whole`].
    pub fn word(&self, raw: &'a RawValue, form: &str) -> Result<Spanned<String>, Diagnostic> {
        name(&self.source.text(raw, form)?)
    }

    /// An integer, or an expression over dims in quotes.
    ///
    /// # Errors
    /// As for [`RonText::whole`].
    pub fn number(&self, raw: &'a RawValue, dims: &DimValues) -> Result<Spanned<i64>, Diagnostic> {
        let span = self.source.span(raw);
        let text = bare(raw);
        if text.bytes().all(|b| b.is_ascii_digit())
            && let Ok(value) = text.parse()
        {
            return Ok(Spanned::new(value, span));
        }
        if text.starts_with(['"', 'r']) {
            let expr = parse_expr(&self.source.text(raw, "an expression in quotes")?)?;
            return Ok(Spanned::new(constant(&expr, dims)?, span));
        }
        self.value(raw, "an integer, or an expression in quotes")
    }

    /// A name in quotes, optionally with a range of expressions over dims.
    ///
    /// # Errors
    /// As for [`RonText::whole`].
    pub fn slice(&self, raw: &'a RawValue, dims: &DimValues) -> Result<Slice, Diagnostic> {
        let text = self.source.text(raw, "a buffer in quotes, such as \"x\" or \"x[0..4*N]\"")?;
        let Some(open) = text.value.find('[') else {
            return Ok(Slice { name: name(&text)?, range: None });
        };
        let Some(inside) = text.value[open + 1..].strip_suffix(']') else {
            return Err(Diagnostic::new("syntax", "a range without its `]`")
                .at(text.part(open, text.value.len()), "not closed")
                .help("write the range like `x[0..4*N]`"));
        };
        let inner = text.within(open + 1, open + 1 + inside.len());
        let (first, end) = parse_range(&inner)?;
        let name = name(&text.within(0, open))?;
        let range = Spanned::new((constant(&first, dims)?, constant(&end, dims)?), inner.place());
        Ok(Slice { name, range: Some(range) })
    }
}

/// The content of a literal, as a name.
fn name(text: &Text) -> Result<Spanned<String>, Diagnostic> {
    let good = |c: char| c.is_ascii_alphanumeric() || "_-.&/".contains(c);
    if text.value.is_empty() || text.value.len() > 64 || !text.value.chars().all(good) {
        let message = format!("`{}` is not a name", text.value.escape_debug());
        return Err(Diagnostic::new("bad-name", message)
            .at(text.place(), "a name has 1 to 64 characters")
            .help("use letters, digits and `_`, `-`, `.`, `&`, `/`"));
    }
    Ok(Spanned::new(text.value.clone(), text.place()))
}

/// Adds "did you mean" or, if nothing is near, the list of candidates.
pub fn suggest(diagnostic: Diagnostic, word: &str, candidates: &[&str]) -> Diagnostic {
    ident::suggest(diagnostic, word, candidates)
}

fn constant(expr: &Expr, dims: &DimValues) -> Result<i64, Diagnostic> {
    let meaning =
        |name: &str| dims.iter().find(|(dim, _)| dim == name).map(|&(_, value)| Meaning::Constant(value));
    let known: Vec<&str> = dims.iter().map(|(name, _)| name.as_str()).collect();
    Ok(expr.affine(&meaning, &known)?.constant)
}
