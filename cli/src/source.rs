//! Finds a spec or a program: a path, `-` for standard input, or a shipped name.

use std::io::Read;
use std::path::Path;

use cusync_gen::diagnostic::Diagnostic;
use cusync_gen::spec::{MAX_SOURCE, nearest};

use super::fault::{Fault, Location};
use super::print::colored_errors;

/// A text and its origin.
#[derive(Clone)]
pub(crate) struct SourceText {
    pub(crate) text: String,
    pub(crate) origin: String,
    /// Whether its diagnostics are colored.
    pub(crate) colored: bool,
}

/// Kind of file contents.
pub(crate) struct Language {
    /// Its name, such as `spec`.
    pub(crate) word: &'static str,
    /// Folder of the shipped files.
    folder: &'static str,
    /// Shipped files: name and text.
    pub(crate) shipped: &'static [(&'static str, &'static str)],
    most: usize,
    /// Command for the other language.
    other: &'static str,
}

/// Pipelines.
pub(crate) const SPECS: Language = Language {
    word: "spec",
    folder: "policies",
    shipped: cusync::runtime::SHIPPED,
    most: MAX_SOURCE,
    other: "`cusync schedule`",
};

/// Programs of short kernels.
pub(crate) const PROGRAMS: Language = Language {
    word: "program",
    folder: "dag/programs",
    shipped: cusync_dag::SHIPPED,
    most: cusync_dag::MAX_SOURCE,
    other: "`cusync check`, `cusync run` and others",
};

impl Language {
    fn other(&self) -> &'static Language {
        if self.word == SPECS.word { &PROGRAMS } else { &SPECS }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.shipped.iter().map(|(name, _)| *name)
    }

    fn text(&self, name: &str) -> Option<&'static str> {
        self.shipped.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
    }

    fn unknown(&self, file: &str) -> Fault {
        let (word, ways) = (self.word, self.names().collect::<Vec<_>>().join(", "));
        let fault =
            Fault::input("not-found", format!("no {word} `{file}`: neither a file nor one that ships"))
                .in_file(file);
        if self.other().text(file).is_some() {
            return fault.help(format!("`{file}` is a {}: {} takes it", self.other().word, self.other));
        }
        let near = nearest(file, self.names()).map(|n| format!("did you mean `{n}`? ")).unwrap_or_default();
        fault.help(format!("{near}give the path of a RON file, `-` for standard input, or one of {ways}"))
    }
}

impl SourceText {
    /// A text whose diagnostics are colored if standard error is a terminal.
    pub(crate) fn new(text: impl Into<String>, origin: impl Into<String>) -> Self {
        SourceText { text: text.into(), origin: origin.into(), colored: colored_errors() }
    }

    /// Text named by `file`. Skips a leading byte-order mark.
    pub(crate) fn find(file: &str, language: &Language) -> Result<Self, Fault> {
        if let Some(text) = language.text(file) {
            return Ok(SourceText::new(text, format!("{}/{file}.ron", language.folder)));
        }
        let (word, most) = (language.word, language.most);
        let too_long = |length: u64| {
            let message = format!("{file} has {length} bytes or more: a {word} has at most {most}");
            Fault::input("too-long", message).in_file(file).help(format!("is it a {word}?"))
        };
        let unreadable = |e: std::io::Error| {
            let message = format!("{file} cannot be read: {e}");
            Fault::input("unreadable", message).in_file(file).help(format!("a {word} is UTF-8 text"))
        };
        let mut text = String::new();
        let origin = if file == "-" {
            let mut limited = std::io::stdin().lock().take(most as u64 + 1);
            limited.read_to_string(&mut text).map_err(unreadable)?;
            "standard input"
        } else {
            let path = Path::new(file);
            match path.metadata() {
                Ok(meta) if meta.is_dir() => {
                    let fault = Fault::input("unreadable", format!("{file} is a folder"));
                    return Err(fault.in_file(file).help("name a RON file"));
                }
                Ok(meta) if meta.len() > most as u64 => return Err(too_long(meta.len())),
                // A pipe, such as `<(...)` of a shell, has no known length, and may never end.
                Ok(_) => {
                    let opened = std::fs::File::open(path).map_err(unreadable)?;
                    opened.take(most as u64 + 1).read_to_string(&mut text).map_err(unreadable)?;
                }
                Err(_) => return Err(language.unknown(file)),
            }
            file
        };
        if text.len() > most {
            return Err(too_long(text.len() as u64));
        }
        if text.starts_with('\u{feff}') {
            text.remove(0);
        }
        Ok(SourceText::new(text, origin))
    }

    /// Error for the text, with its location.
    pub(crate) fn refused(&self, diagnostic: &Diagnostic) -> Fault {
        let (line, column) = diagnostic.line_column(&self.text).unzip();
        Fault {
            code: diagnostic.code,
            message: diagnostic.message.clone(),
            help: (!diagnostic.help.is_empty()).then(|| diagnostic.help.join("\n")),
            place: Box::new(Location {
                file: Some(self.origin.clone()),
                line,
                column,
                page: Some(self.render(diagnostic)),
            }),
            obstacles: Vec::new(),
            status: 2,
        }
    }

    /// Error for the text, rendered for a terminal.
    pub(crate) fn render(&self, diagnostic: &Diagnostic) -> String {
        diagnostic.render(&self.text, &self.origin, self.colored)
    }
}
