//! The only module that writes output: answers to standard output, errors to standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use super::fault::Fault;

/// Output settings.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// Print only JSON on standard output.
    pub(crate) json: bool,
    /// Colors on standard output.
    pub(crate) color: bool,
    /// Maximum width of tables in columns; `None`: unlimited.
    pub(crate) width: Option<u16>,
    /// Progress on standard error.
    pub(crate) progress: bool,
}

impl Output {
    /// Colors and progress are for terminals only, and JSON has neither.
    pub(crate) fn new(json: bool) -> Output {
        let terminal = io::stdout().is_terminal();
        // A shell that exports its width also wants it for pipes.
        let stated = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        Output {
            json,
            color: !json && colored(terminal),
            width: stated.or_else(|| terminal.then(|| Table::new().width()).flatten()),
            progress: !json && io::stderr().is_terminal(),
        }
    }
}

/// Whether a stream is colored, according to the usual variables.
fn colored(terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && (terminal || set("CLICOLOR_FORCE"))
}

/// Whether diagnostics on standard error are colored. Those inside JSON never are.
pub(crate) fn colored_errors() -> bool {
    colored(io::stderr().is_terminal()) && !json_asked()
}

/// Answer of a command. The JSON forms are a stable contract: docs/json.md.
pub(crate) trait Answer {
    /// Whether the exit status is 0.
    fn good(&self) -> bool {
        true
    }

    /// Exit status if it is not 0.
    fn bad_status(&self) -> u8 {
        1
    }

    fn json(&self) -> serde_json::Result<String>;

    /// Writes the readable text.
    fn page(&self, page: &mut Page);
}

/// JSON of a report.
pub(crate) fn json(report: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(report).map(|text| text + "\n")
}

/// Text under construction.
pub(crate) struct Page {
    text: String,
    color: bool,
    width: Option<u16>,
}

impl Page {
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    pub(crate) fn table<const N: usize>(
        &mut self,
        header: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) {
        let rows = rows.into_iter().map(Vec::from).collect();
        self.wide_table(&header, rows);
    }

    pub(crate) fn wide_table(&mut self, header: &[&str], rows: Vec<Vec<String>>) {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.force_no_tty();
        match self.width {
            Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        table.set_header(header.to_vec());
        table.add_rows(rows);
        self.line(table.to_string());
    }

    pub(crate) fn good(&self, good: bool, text: &str) -> String {
        let code = if good { 32 } else { 31 };
        if self.color { format!("\u{1b}[1;{code}m{text}\u{1b}[0m") } else { text.into() }
    }
}

/// Readable text of an answer, without colors.
pub(crate) fn plain(answer: &dyn Answer) -> String {
    let mut page = Page { text: String::new(), color: false, width: None };
    answer.page(&mut page);
    page.text
}

/// Prints a piece of an answer that grows, unless the answer is JSON; `false` if nobody reads it.
#[cfg(feature = "models")]
pub(crate) fn piece(text: &str, output: &Output) -> bool {
    let mut out = io::stdout().lock();
    output.json || out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// Prints an answer; the exit status is 0 if the answer is good and could be printed.
pub(crate) fn answer(answer: &dyn Answer, output: &Output) -> u8 {
    let text = if output.json {
        answer.json()
    } else {
        let mut page = Page { text: String::new(), color: output.color, width: output.width };
        answer.page(&mut page);
        Ok(page.text)
    };
    let mut out = io::stdout().lock();
    let written = text.map_err(io::Error::from).and_then(|text| out.write_all(text.as_bytes()));
    let status = if answer.good() { 0 } else { answer.bad_status() };
    unless_lost(written.and_then(|()| out.flush()), status, output.json)
}

/// Prints the requested help, or an error in the arguments.
pub(crate) fn usage(error: &clap::Error) -> u8 {
    if error.use_stderr() && json_asked() {
        // The first lines are the error; tips and the usage become suggested fixes.
        let text = error.render().to_string();
        let (message, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
        let message: Vec<_> = message.trim_start_matches("error: ").lines().map(str::trim).collect();
        let help = rest.lines().map(str::trim).filter(|line| !line.is_empty());
        let help = help.fold(Fault::input("usage", message.join(" ")), Fault::help);
        return fault(&help, true);
    }
    let written = error.print().and_then(|()| io::stdout().lock().flush());
    unless_lost(written, error.exit_code() as u8, false)
}

/// Whether the command line asks for JSON, for messages before it is parsed and for code without access to
/// the settings.
fn json_asked() -> bool {
    std::env::args().any(|argument| argument == "--json")
}

/// The exit status, or an error if the output could not be written. A reader that closed the pipe needs no
/// more output.
fn unless_lost(written: io::Result<()>, status: u8, as_json: bool) -> u8 {
    match written {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            let lost = Fault::input("unwritable", format!("the output cannot be written: {e}"));
            fault(&lost.help("free space there, or write to another place"), as_json)
        }
        _ => status,
    }
}

/// An error as data, and as readable text.
#[derive(Serialize)]
struct FaultReport<'a> {
    #[serde(flatten)]
    fault: &'a Fault,
    error: &'a str,
}

/// Prints an error, as JSON if the answer would have been JSON.
pub(crate) fn fault(fault: &Fault, as_json: bool) -> u8 {
    let text = fault.text();
    let report = FaultReport { fault, error: text.trim_end() };
    let text = match json(&report) {
        Ok(report) if as_json => report,
        _ => format!("{}\n", report.error),
    };
    let _ = io::stderr().lock().write_all(text.as_bytes());
    fault.status
}
