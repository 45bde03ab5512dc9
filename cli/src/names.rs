//! `cusync list`, `show`, `init` and `completions`: shipped names, and first steps.

use std::io::ErrorKind;
use std::path::PathBuf;

use clap::Args;
use cusync_gen::device::Profile;
use serde::Serialize;

use super::fault::Fault;
use super::files;
use super::print::{Answer, Page, json};
use super::report::counted;
use super::source::{Language, PROGRAMS, SPECS, SourceText};

#[derive(Args)]
pub(crate) struct ShowArgs {
    /// Name of a shipped spec or program
    name: String,
}

#[derive(Args)]
pub(crate) struct InitArgs {
    /// File to write; an existing file is not overwritten
    #[arg(default_value = "my.ron")]
    file: PathBuf,
}

/// One name.
#[derive(Serialize)]
pub(crate) struct NameReport {
    pub(crate) name: &'static str,
    /// `spec` or `program`.
    pub(crate) kind: &'static str,
    pub(crate) about: String,
}

#[derive(Serialize)]
pub(crate) struct ListReport {
    pub(crate) names: Vec<NameReport>,
}

/// Text printed verbatim.
#[derive(Serialize)]
pub(crate) struct TextReport {
    pub(crate) text: String,
}

impl Answer for ListReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        page.table(
            ["name", "", "what it is"],
            self.names.iter().map(|n| [n.name.into(), n.kind.into(), n.about.clone()]),
        );
        page.line("`cusync show NAME` prints one; `cusync check NAME` takes specs, `cusync schedule NAME` programs.");
    }
}

impl Answer for TextReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        page.line(self.text.trim_end());
    }
}

pub(crate) fn list() -> ListReport {
    let names = |language: &'static Language, about: fn(&str, &str) -> Option<String>| {
        language.shipped.iter().map(move |&(name, text)| NameReport {
            name,
            kind: language.word,
            about: about(name, text).unwrap_or_default(),
        })
    };
    ListReport { names: names(&SPECS, pipeline).chain(names(&PROGRAMS, program)).collect() }
}

fn sizes(dims: impl Iterator<Item = (String, u64)>) -> String {
    dims.map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
}

fn pipeline(name: &str, text: &str) -> Option<String> {
    let resolved = cusync_gen::spec::parse(text, name).and_then(|spec| spec.resolve(&[])).ok()?;
    // `Pool, 33 Conv2d, Pool`: repeated operations are counted.
    let stages = resolved.stages.chunk_by(|a, b| a.op.name() == b.op.name()).map(|alike| match alike {
        [one] => one.op.name().to_owned(),
        several => format!("{} {}", several.len(), several[0].op.name()),
    });
    Some(format!(
        "{}; {}",
        stages.collect::<Vec<_>>().join(", "),
        sizes(resolved.dims.iter().map(|(n, v)| (n.clone(), u64::from(*v))))
    ))
}

fn program(_: &str, text: &str) -> Option<String> {
    let program = cusync_dag::parse(text, &[], Profile::named("h200")?).ok()?;
    let copies = program.nodes().iter().filter(|n| n.kernel().is_none()).count();
    let kernels = counted(program.nodes().len() - copies, "kernel");
    Some(if copies == 0 { kernels } else { format!("{kernels}, {copies} copies") })
}

pub(crate) fn show(args: &ShowArgs) -> Result<TextReport, Fault> {
    let ships = |language: &Language| language.shipped.iter().find(|(name, _)| *name == args.name);
    match ships(&SPECS).or_else(|| ships(&PROGRAMS)) {
        Some((_, text)) => Ok(TextReport { text: (*text).into() }),
        // Error message for an unknown name.
        None => match SourceText::find(&args.name, &SPECS) {
            Ok(_) => Err(Fault::input("not-shipped", format!("{} is a file of yours", args.name))
                .in_file(&args.name)
                .help("`show` prints what ships")),
            Err(fault) => Err(fault),
        },
    }
}

/// A spec to start from.
const FIRST: &str = include_str!("first.ron");

pub(crate) fn init(args: &InitArgs) -> Result<TextReport, Fault> {
    let file = args.file.display();
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::AlreadyExists => Fault::input("file-exists", format!("{file} is there already"))
            .in_file(file.to_string())
            .help("name another file: `cusync init FILE`"),
        _ => files::unwritten(&args.file, &e),
    };
    let mut new = std::fs::File::create_new(&args.file).map_err(failed)?;
    std::io::Write::write_all(&mut new, FIRST.as_bytes()).map_err(failed)?;
    Ok(TextReport { text: format!("wrote {file}; next: cusync check {file}, cusync run {file}") })
}

pub(crate) fn completions(shell: clap_complete::Shell, command: &mut clap::Command) -> TextReport {
    let mut text = Vec::new();
    clap_complete::generate(shell, command, "cusync", &mut text);
    TextReport { text: String::from_utf8_lossy(&text).into_owned() }
}
