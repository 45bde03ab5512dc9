//! RON values with spans: values are read as raw slices of the source, located by their offset, and are parsed one
//! level at a time.

use std::fmt;

use ron::Options;
use ron::error::{Error, Position, SpannedError};
use ron::extensions::Extensions;
use ron::value::RawValue;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::ident;
use crate::diagnostic::{Diagnostic, Span, Spanned};

/// The text being read.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
}

/// A string literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    /// Its content.
    pub(crate) value: String,
    /// The literal with its quotes.
    pub(crate) span: Span,
    /// Whether the literal is the content in quotes without escapes, so locations inside it are known.
    plain: bool,
}

impl Text {
    /// Rejects a name that cannot be an identifier of generated code.
    pub(super) fn validate(&self, noun: &str) -> Result<(), Diagnostic> {
        let Some(why) = ident::fault(&self.value) else { return Ok(()) };
        let message = format!("{noun} name `{}` cannot be used in generated code", self.value.escape_debug());
        let diagnostic = Diagnostic::new("bad-name", message).at(self.span, why);
        Err(match ident::usable(&self.value) {
            Some(better) => diagnostic.help(format!("`{better}` would do")),
            None => diagnostic.help("use letters, digits and single `_`"),
        })
    }

    /// The location of a part of the content, or of the whole literal if it contains escapes.
    pub(crate) fn part(&self, start: usize, end: usize) -> Span {
        if self.plain { self.span.part(start + 1..end + 1) } else { self.span }
    }

    /// A part of the content as a separate literal, with virtual quotes around it.
    pub(super) fn within(&self, start: usize, end: usize) -> Text {
        let outer = Span { start: self.span.start + start, end: self.span.start + end + 2 };
        let span = if self.plain { outer } else { self.span };
        Text { value: self.value[start..end].to_owned(), span, plain: self.plain }
    }

    /// The location of the content without its quotes.
    pub(super) fn place(&self) -> Span {
        self.part(0, self.value.len())
    }
}

/// The entries of a RON map in order; keys and values have locations.
pub(super) struct Map<'a>(pub(super) Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Map<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Map<'de>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Map(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// The text of a value without the space and comments around it. `RawValue::trim` parses the whole value, so it is used
/// only where there may be comments.
pub fn bare(raw: &RawValue) -> &str {
    let text = raw.get_ron();
    let edge = |c: char| c.is_whitespace() || c == '/';
    match text.starts_with(edge) || text.ends_with(edge) || text.contains("//") || text.contains("/*") {
        true => raw.trim().get_ron(),
        false => text,
    }
}

fn options() -> Options {
    Options::default().with_default_extension(Extensions::IMPLICIT_SOME)
}

impl<'a> Source<'a> {
    /// Parses the whole text; `form` describes the expected form.
    pub(super) fn parse_all<T: Deserialize<'a>>(&self, form: &str) -> Result<T, Diagnostic> {
        options().from_str(self.text).map_err(|error| self.diagnose(error, self.text, form, &[]))
    }

    /// Parses a value; `form` describes the expected form, with its article.
    pub(super) fn parse<T: Deserialize<'a>>(&self, raw: &'a RawValue, form: &str) -> Result<T, Diagnostic> {
        let text = bare(raw);
        options().from_str(text).map_err(|error| self.diagnose(error, text, form, &[]))
    }

    /// Parses a value that may instead be one of the words `open`, which leave it to the automatic choice; `form`
    /// is as above.
    pub(super) fn left_open<T: Deserialize<'a>>(
        &self,
        raw: &'a RawValue,
        form: &str,
        open: &[&str],
    ) -> Result<Option<Spanned<T>>, Diagnostic> {
        let text = bare(raw);
        if open.contains(&text) {
            return Ok(None);
        }
        let value = options().from_str(text).map_err(|error| self.diagnose(error, text, form, open))?;
        Ok(Some(Spanned::new(value, self.span(raw))))
    }

    /// Parses a value and records its location.
    pub(super) fn spanned<T: Deserialize<'a>>(
        &self,
        raw: &'a RawValue,
        form: &str,
    ) -> Result<Spanned<T>, Diagnostic> {
        Ok(Spanned::new(self.parse(raw, form)?, self.span(raw)))
    }

    /// The location of a value.
    pub(super) fn span(&self, raw: &RawValue) -> Span {
        self.span_of(bare(raw))
    }

    /// The location of a slice of the text.
    fn span_of(&self, part: &str) -> Span {
        let start = (part.as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize).min(self.text.len());
        Span::new(start, (start + part.len()).min(self.text.len()))
    }

    /// A string literal.
    pub(super) fn text(&self, raw: &'a RawValue, form: &str) -> Result<Text, Diagnostic> {
        let literal = bare(raw);
        // Most literals have no escapes; the parser would take most of the time that a large file takes.
        let inside = literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        if let Some(inside) = inside.filter(|inside| !inside.contains(['"', '\\'])) {
            return Ok(Text { value: inside.to_owned(), span: self.span_of(literal), plain: true });
        }
        let value: String = self.parse(raw, form)?;
        let plain = literal.len() == value.len() + 2 && literal.get(1..literal.len() - 1) == Some(&*value);
        Ok(Text { value, span: self.span(raw), plain })
    }

    /// A list.
    pub(super) fn list(&self, raw: &'a RawValue, form: &str) -> Result<Vec<&'a RawValue>, Diagnostic> {
        self.parse(raw, form)
    }

    /// A map; empty if the field is absent.
    pub(super) fn map(
        &self,
        raw: Option<&'a RawValue>,
        form: &str,
    ) -> Result<Vec<(&'a RawValue, &'a RawValue)>, Diagnostic> {
        raw.map_or(Ok(Vec::new()), |raw| Ok(self.parse::<Map<'a>>(raw, form)?.0))
    }

    /// A parse error of `part`, rebased onto the whole text. The words `open` are also valid values.
    fn diagnose(&self, error: SpannedError, part: &str, form: &str, open: &[&str]) -> Diagnostic {
        let whole = self.span_of(part);
        let (start, end) = (offset(part, error.span.start), offset(part, error.span.end));
        let near = whole.part(start.min(end)..end.max(start));
        let word =
            |word: &str| self.last_word(part, end, word).map_or(near, |at| whole.part(at..at + word.len()));
        let owner = |outer: &Option<String>| outer.as_ref().map_or(String::new(), |o| format!(" in `{o}`"));
        match &error.code {
            Error::NoSuchStructField { expected, found, outer } => {
                let message = format!("unknown field `{found}`{}", owner(outer));
                let diagnostic = Diagnostic::new("unknown-field", message).at(word(found), "no such field");
                if found == "depends" {
                    return diagnostic
                        .note("dependences follow from the reads of both stages")
                        .help("remove it; a custom stage states its reads, in elements: `reads: [...]`");
                }
                ident::suggest(diagnostic, found, expected)
            }
            Error::NoSuchEnumVariant { expected, found, .. } => {
                let diagnostic =
                    Diagnostic::new("unknown-variant", format!("expected {form}, found `{found}`"))
                        .at(word(found), "not one of them");
                let diagnostic = ident::suggest(diagnostic, found, &[open, expected].concat());
                if found == "Bias" && expected.contains(&"Gelu") {
                    return diagnostic.help("a bias is an operand: state `bias: \"b(N)\"`");
                }
                diagnostic
            }
            Error::MissingStructField { field, outer } => {
                let message = format!("missing field `{field}`{}", owner(outer));
                Diagnostic::new("missing-field", message)
                    .at(head(part, whole), format!("`{field}` is not stated"))
                    .help(format!("add `{field}: ...`"))
            }
            Error::DuplicateStructField { field, outer } => {
                let message = format!("field `{field}` is stated twice{}", owner(outer));
                Diagnostic::new("duplicate-field", message).at(word(field), "stated again").help("keep one")
            }
            Error::ExpectedDifferentStructName { expected, found } => {
                Diagnostic::new("wrong-type", format!("expected `{expected}(...)`, found `{found}`"))
                    .at(word(found), format!("this should be `{expected}`"))
                    .help(format!("write `{expected}(...)`"))
            }
            Error::IntegerOutOfBounds => Diagnostic::new("number-range", format!("expected {form}"))
                .at(whole, "this number does not fit")
                .help("numbers are below 2^63, and slot numbers, groups and strides below 2^32"),
            Error::ExceededRecursionLimit => Diagnostic::new("too-deep", "the spec is nested too deeply")
                .at(near, "here")
                .help("a spec needs no more than a few levels"),
            code if wrong_type(code) && part.len() < self.text.len() => {
                let message = format!("expected {form}");
                let span = if part.len() > 80 { head(part, whole) } else { whole };
                Diagnostic::new("wrong-type", message)
                    .at(span, format!("this is {}", kind_of(part)))
                    .help(format!("write {form} here"))
            }
            code => {
                let help = match code {
                    Error::ExpectedComma => "separate fields and elements with `,`".into(),
                    Error::Eof | Error::ExpectedStringEnd | Error::UnclosedBlockComment => {
                        "close every bracket, string and comment".into()
                    }
                    _ => format!("expected {form}"),
                };
                Diagnostic::new("syntax", sentence(code)).at(near, "here").help(help)
            }
        }
    }

    /// The last position before `end` where `word` occurs as a whole word.
    fn last_word(&self, part: &str, end: usize, word: &str) -> Option<usize> {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        // ron's cursor may be just before or just after the word.
        let mut until = (end + word.len() + 1).min(part.len());
        while !part.is_char_boundary(until) {
            until -= 1;
        }
        part[..until].rmatch_indices(word).map(|(at, _)| at).find(|&at| {
            !part[..at].chars().next_back().is_some_and(is_word)
                && !part[at + word.len()..].chars().next().is_some_and(is_word)
        })
    }
}

/// Errors that mean "well-formed, but of another type".
fn wrong_type(code: &Error) -> bool {
    matches!(
        code,
        Error::ExpectedArray
            | Error::ExpectedArrayEnd
            | Error::ExpectedMap
            | Error::ExpectedMapEnd
            | Error::ExpectedMapColon
            | Error::ExpectedBoolean
            | Error::ExpectedInteger
            | Error::ExpectedFloat
            | Error::ExpectedString
            | Error::ExpectedIdentifier
            | Error::ExpectedOption
            | Error::ExpectedOptionEnd
            | Error::ExpectedStructLike
            | Error::ExpectedStructLikeEnd
            | Error::ExpectedNamedStructLike(_)
            | Error::ExpectedStructName(_)
            | Error::ExpectedUnit
            | Error::InvalidValueForType { .. }
            | Error::InvalidIntegerDigit { .. }
            | Error::ExpectedDifferentLength { .. }
            | Error::TrailingCharacters
            | Error::Message(_)
    )
}

/// Describes the form of a value, for an error about its type.
fn kind_of(part: &str) -> &'static str {
    match part.chars().next() {
        Some('"') => "text",
        Some('[') => "a list",
        Some('{') => "a map",
        Some('(') => "a tuple of another kind",
        Some('0'..='9' | '-' | '+' | '.') => "a number",
        _ if part.ends_with(')') => "a structure",
        _ => "a word",
    }
}

/// The first word of a value, to point at the start of a long one.
fn head(part: &str, whole: Span) -> Span {
    let length = part.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(part.len());
    whole.part(0..length.max(1).min(part.len()))
}

/// ron's message in our style: without a capital at the start.
fn sentence(code: &Error) -> String {
    let text = code.to_string();
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => text,
    }
}

/// Byte offset of a line and column from ron (both start at 1, columns count characters).
fn offset(part: &str, at: Position) -> usize {
    let line_start = part
        .match_indices('\n')
        .map(|(i, _)| i + 1)
        .nth(at.line.wrapping_sub(2))
        .filter(|_| at.line > 1)
        .unwrap_or(0);
    let line = &part[line_start..];
    let column = line.char_indices().map(|(i, _)| i).nth(at.col.saturating_sub(1));
    line_start + column.unwrap_or(line.len())
}
