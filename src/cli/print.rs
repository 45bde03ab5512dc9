//! The only place that writes: answers to standard output, refusals to standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use super::fault::Fault;

/// How to answer.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// JSON on standard output, and nothing else there.
    pub(crate) json: bool,
    /// Colours on standard output.
    pub(crate) color: bool,
    /// Progress on standard error.
    pub(crate) progress: bool,
}

impl Output {
    /// Colours and progress are for terminals only, and JSON has neither.
    pub(crate) fn new(json: bool) -> Output {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Output {
            json,
            color: !plain && !json && io::stdout().is_terminal(),
            progress: !json && io::stderr().is_terminal(),
        }
    }
}

/// What a command answers. The JSON forms are a stable contract: docs/json.md.
pub(crate) trait Answer {
    /// Whether the exit status is 0.
    fn good(&self) -> bool {
        true
    }

    fn json(&self) -> serde_json::Result<String>;

    /// Writes the text for people.
    fn page(&self, page: &mut Page);
}

/// The JSON of a report.
pub(crate) fn json(report: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(report).map(|text| text + "\n")
}

/// Text under construction.
pub(crate) struct Page {
    text: String,
    color: bool,
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
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.force_no_tty();
        table.set_header(header.to_vec());
        table.add_rows(rows);
        self.line(table.to_string());
    }

    pub(crate) fn good(&self, good: bool, text: &str) -> String {
        let code = if good { 32 } else { 31 };
        if self.color { format!("\u{1b}[1;{code}m{text}\u{1b}[0m") } else { text.into() }
    }
}

/// Prints an answer; the exit status says whether it is a good one, and whether it could be printed.
pub(crate) fn answer(answer: &dyn Answer, output: &Output) -> ExitCode {
    let text = if output.json {
        answer.json()
    } else {
        let mut page = Page { text: String::new(), color: output.color };
        answer.page(&mut page);
        Ok(page.text)
    };
    let mut out = io::stdout().lock();
    let written = text.map_err(io::Error::from).and_then(|text| out.write_all(text.as_bytes()));
    let status = if answer.good() { ExitCode::SUCCESS } else { ExitCode::from(1) };
    unless_lost(written.and_then(|()| out.flush()), status)
}

/// Prints the help that was asked for, or what is wrong with the arguments.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let written = error.print().and_then(|()| io::stdout().lock().flush());
    unless_lost(written, ExitCode::from(error.exit_code() as u8))
}

/// The exit status, or a fault where the output did not get out. A reader who closed the pipe has what it wants.
fn unless_lost(written: io::Result<()>, status: ExitCode) -> ExitCode {
    match written {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            fault(&Fault::input(format!("the output cannot be written: {e}")))
        }
        _ => status,
    }
}

/// Prints a refusal.
pub(crate) fn fault(fault: &Fault) -> ExitCode {
    let rendered = fault.message.starts_with("error");
    let mut text = if rendered { fault.message.clone() } else { format!("error: {}", fault.message) };
    if let Some(help) = &fault.help {
        text.push_str(&format!("\n  help: {help}"));
    }
    let _ = writeln!(std::io::stderr().lock(), "{}", text.trim_end());
    ExitCode::from(fault.status)
}
