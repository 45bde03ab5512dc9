//! Files that commands read and write, and their error messages.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use cusync::tune::replace_file;

use super::fault::Fault;

/// Maximum size of a file to read, bytes.
const MOST: u64 = 64 << 20;

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String, Fault> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MOST + 1).read_to_string(&mut text));
    let unreadable = |why: &dyn std::fmt::Display| {
        let name = path.display().to_string();
        let fault = Fault::input("unreadable", format!("{name} cannot be read: {why}")).in_file(name);
        fault.help("name a text file that is there")
    };
    read.map_err(|e| unreadable(&e))?;
    if text.len() as u64 > MOST {
        return Err(unreadable(&"it has more than 64 MiB"));
    }
    Ok(text)
}

/// Writes a file; an existing file is replaced atomically. Symbolic links are followed. A pipe without a
/// reader is refused, because opening it would block forever.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Fault> {
    let _reader = open_pipe(path)?;
    let written = match path.canonicalize() {
        Ok(target) if target.is_file() => replace(&target, text),
        // New files, pipes and devices hold nothing that could be lost.
        Ok(_) | Err(_) => std::fs::write(path, text),
    };
    written.map_err(|e| unwritten(path, &e))
}

/// Replaces a regular file, or writes it in place where its folder takes no new file.
fn replace(target: &Path, text: &str) -> std::io::Result<()> {
    match replace_file(target, text) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => std::fs::write(target, text),
        replaced => replaced,
    }
}

/// Refuses a file that cannot be written, before the work that produces its contents. Changes nothing.
pub(crate) fn ensure_writable(path: &Path) -> Result<(), Fault> {
    match path.metadata() {
        Ok(meta) if meta.is_file() || meta.is_dir() => File::options().append(true).open(path).map(drop),
        // Whether a pipe has a reader is checked on writing: opening and closing it here would end its
        // reader.
        Ok(_) => return Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let made = File::options().write(true).create(true).truncate(false).open(path);
            made.and_then(|_| std::fs::remove_file(path.canonicalize()?))
        }
        Err(e) => Err(e),
    }
    .map_err(|e| unwritten(path, &e))
}

/// Opens a pipe without blocking, so that opening it again does not block; `None` if the path is not a pipe.
#[cfg(unix)]
fn open_pipe(path: &Path) -> Result<Option<File>, Fault> {
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
    if !path.metadata().is_ok_and(|meta| meta.file_type().is_fifo()) {
        return Ok(None);
    }
    let opened = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path);
    let opened = opened.map_err(|e| match e.raw_os_error() {
        Some(libc::ENXIO) => unwritten(path, &std::io::Error::other("it is a pipe that nobody reads")),
        _ => unwritten(path, &e),
    })?;
    Ok(Some(opened))
}

#[cfg(not(unix))]
fn open_pipe(_: &Path) -> Result<Option<File>, Fault> {
    Ok(None)
}

/// Error for a file or folder that cannot be written.
pub(crate) fn unwritten(path: &Path, error: &std::io::Error) -> Fault {
    let help = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "free space there, or name a place on another disk"
        }
        _ => "name a file in a folder that can be written to",
    };
    let message = format!("{} cannot be written: {error}", path.display());
    Fault::input("unwritable", message).in_file(path.display().to_string()).help(help)
}
