//! Errors that point into a spec.
//!
//! ```
//! use cusync_gen::diagnostic::{Diagnostic, Span};
//!
//! let refused = Diagnostic::new("no-such-dim", "`N` is no dim").at(Span::new(2, 3), "here").help("dims: M");
//! assert_eq!(refused.line_column("X(N)"), Some((1, 3)));
//! let text = refused.render("X(N)", "my.ron", false);
//! assert!(text.contains("my.ron:1:3") && text.contains("help: dims: M"));
//! ```

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// Bytes `start..end` of a spec's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// The bytes `start..end`.
    pub fn new(start: usize, end: usize) -> Self {
        Span { start, end }
    }

    /// A part of this span; `range` is relative to its start.
    pub fn part(self, range: Range<usize>) -> Self {
        Span { start: self.start + range.start, end: self.start + range.end }
    }

    /// Line and column, both starting at 1; columns count characters.
    pub fn line_column(self, source: &str) -> (usize, usize) {
        let before = source.get(..self.start).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// A value and its location in the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Its location.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// A value at a location.
    pub fn new(value: T, span: Span) -> Self {
        Spanned { value, span }
    }

    /// Another value at the same location.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Spanned<U> {
        Spanned { value: f(self.value), span: self.span }
    }
}

/// A location with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The location.
    pub span: Span,
    /// Short text next to the caret; may be empty.
    pub text: String,
}

/// An error in a spec, or a refuted obligation: the fault, its location, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable short name, such as `unknown-tensor` or an obligation's id.
    pub code: &'static str,
    /// One sentence without a full stop.
    pub message: String,
    /// Where the fault is; `None` if it lies outside the source, such as an unknown override.
    pub primary: Option<Box<Label>>,
    /// Other relevant locations.
    pub labels: Vec<Label>,
    /// Facts that explain the message, one per line.
    pub notes: Vec<String>,
    /// Ways to fix it.
    pub help: Vec<String>,
}

impl Diagnostic {
    /// An error without a location.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Diagnostic {
            code,
            message: message.into(),
            primary: None,
            labels: Vec::new(),
            notes: Vec::new(),
            help: Vec::new(),
        }
    }

    /// Sets the location of the fault.
    pub fn at(mut self, span: Span, text: impl Into<String>) -> Self {
        self.primary = Some(Box::new(Label { span, text: text.into() }));
        self
    }

    /// Adds another location.
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    /// Adds a fact.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Adds a way to fix it.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help.push(text.into());
        self
    }

    /// Line and column of the fault, starting at 1.
    pub fn line_column(&self, source: &str) -> Option<(usize, usize)> {
        self.primary.as_ref().map(|label| clip(label.span, source)).map(|span| span.line_column(source))
    }

    /// The error as text for a terminal. `origin` is the file name; `source` must be the parsed text.
    pub fn render(&self, source: &str, origin: &str, color: bool) -> String {
        let title = Level::ERROR.primary_title(printable(&self.message)).id(self.code);
        let mut group = Group::with_title(title);
        if self.primary.is_some() || !self.labels.is_empty() {
            let annotate = |label: &Label, kind: AnnotationKind| {
                let span = clip(label.span, source);
                let text = (!label.text.is_empty()).then(|| printable(&label.text));
                kind.span(span.start..span.end).label(text)
            };
            let primary = self.primary.iter().map(|label| annotate(label, AnnotationKind::Primary));
            let others = self.labels.iter().map(|label| annotate(label, AnnotationKind::Context));
            group =
                group.element(Snippet::source(source).path(origin).annotations(primary).annotations(others));
        }
        for note in &self.notes {
            group = group.element(Level::NOTE.message(printable(note)));
        }
        for help in &self.help {
            group = group.element(Level::HELP.message(printable(help)));
        }
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&[group])
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.message, self.code)
    }
}

impl std::error::Error for Diagnostic {}

/// The span inside the source, on character boundaries.
fn clip(span: Span, source: &str) -> Span {
    let down = |mut at: usize| {
        at = at.min(source.len());
        while !source.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = down(span.start);
    Span { start, end: down(span.end).max(start) }
}

/// Messages may contain text from a spec: control characters must not reach the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_at_line_and_column() {
        let source = "one\ntwo three\n";
        let at = source.find("three").expect("present");
        let diagnostic = Diagnostic::new("unknown-word", "no such word")
            .at(Span::new(at, at + 5), "not a word")
            .also(Span::new(0, 3), "this is one")
            .help("write `two`");
        assert_eq!(diagnostic.line_column(source), Some((2, 5)));
        let text = diagnostic.render(source, "words.ron", false);
        assert!(text.contains("error[unknown-word]: no such word"), "{text}");
        assert!(text.contains("words.ron:2:5"), "{text}");
        assert!(text.contains("^^^^^ not a word"), "{text}");
        assert!(text.contains("help: write `two`"), "{text}");
    }

    #[test]
    fn odd_spans_do_not_panic() {
        let source = "\u{e9}\u{e9}";
        for (start, end) in [(0, 1), (1, 3), (4, 9), (9, 2), (3, 1)] {
            let diagnostic = Diagnostic::new("x", "\u{1b}[31mred").at(Span { start, end }, "here");
            let text = diagnostic.render(source, "f", false);
            assert!(!text.contains('\u{1b}'), "escape sequences of a spec reach the terminal");
        }
    }
}
