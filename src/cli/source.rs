//! Finding a spec: a path, or the name of one that ships.

use std::path::Path;

use cusync::runtime::{SHIPPED, shipped};
use cusync_gen::spec::MAX_SOURCE;

use super::fault::{Fault, nearest};

/// A spec's text and where it came from.
pub(crate) struct Source {
    pub(crate) text: String,
    pub(crate) origin: String,
}

impl Source {
    /// The spec that `file` names.
    pub(crate) fn find(file: &str) -> Result<Self, Fault> {
        if let Some(text) = shipped(file) {
            return Ok(Source { text: text.into(), origin: format!("policies/{file}.ron") });
        }
        let path = Path::new(file);
        let length = match path.metadata() {
            Ok(meta) if meta.is_file() => meta.len(),
            Ok(_) => return Err(Fault::input(format!("{file} is not a file")).help("name a RON file")),
            Err(_) => return Err(unknown(file)),
        };
        if length > MAX_SOURCE as u64 {
            let message = format!("{file} has {length} bytes: a spec has at most {MAX_SOURCE}");
            return Err(Fault::input(message).help("is it a spec?"));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|e| Fault::input(format!("{file} cannot be read: {e}")).help("a spec is UTF-8 text"))?;
        Ok(Source { text, origin: file.into() })
    }
}

fn unknown(file: &str) -> Fault {
    let names: Vec<_> = SHIPPED.iter().map(|(name, _)| *name).collect();
    let near = nearest(file, names.iter().copied()).map(|n| format!("did you mean `{n}`? "));
    let ways = format!("give the path of a RON file, or one of {}", names.join(", "));
    Fault::input(format!("no spec `{file}`: neither a file nor a pipeline that ships"))
        .help(near.unwrap_or_default() + &ways)
}
