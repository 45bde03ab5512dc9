//! Files that commands read and write, and what is said where they cannot be.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use super::fault::Fault;

/// Most bytes of a file that is read.
const MOST: u64 = 64 << 20;

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String, Fault> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MOST + 1).read_to_string(&mut text));
    let unreadable = |why: &dyn std::fmt::Display| {
        Fault::input("unreadable", format!("{} cannot be read: {why}", path.display()))
            .in_file(path.display().to_string())
    };
    read.map_err(|e| unreadable(&e))?;
    if text.len() as u64 > MOST {
        return Err(unreadable(&"it has more than 64 MiB"));
    }
    Ok(text)
}

/// Writes a file.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Fault> {
    std::fs::write(path, text).map_err(|e| unwritten(path, &e))
}

/// A file or folder that cannot be written.
pub(crate) fn unwritten(path: &Path, error: &std::io::Error) -> Fault {
    let help = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free space there, or name a place on another disk"
        }
        _ => "name a file in a folder that can be written to",
    };
    let message = format!("{} cannot be written: {error}", path.display());
    Fault::input("unwritable", message).in_file(path.display().to_string()).help(help)
}
