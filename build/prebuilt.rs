//! Checks of a prebuilt kernel library (`CUSYNC_KERNELS`). The build script, xtask and a test include this
//! file.

use std::path::Path;

use sha2::{Digest, Sha256};

/// Prefix of the ABI name in a library (`csrc/abi/version.c`).
const MARK: &[u8] = b"cusync-kernels-abi=";

/// ABI name of a source tree: the version, and a digest of everything that both sides must agree on.
pub(crate) fn abi(root: &Path, version: &str) -> Result<String, String> {
    let mut digest = Sha256::new();
    for file in ["csrc/abi/cusync.h", "csrc/include/cusync/desc.h", "csrc/abi/instances.txt"] {
        let path = root.join(file);
        digest.update(std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?);
    }
    Ok(format!("{version}-{}", &hex(&digest.finalize())[..16]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A checksum in the format of `SHA256SUMS`.
pub(crate) fn sum(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Reads a library, and refuses one that is damaged or has another ABI. If there is a file `SHA256SUMS` next
/// to it, the library must be listed there.
pub(crate) fn read(file: &Path, own: &str) -> Result<Vec<u8>, String> {
    let name = file.display();
    let bytes = std::fs::read(file).map_err(|e| {
        format!("CUSYNC_KERNELS names {name}, which cannot be read: {e}. Unset it to build without")
    })?;
    verify_sum(file, &bytes)?;
    let found =
        bytes.windows(MARK.len()).position(|window| window == MARK).map(|at| &bytes[at + MARK.len()..]);
    let found = found.and_then(|rest| rest.split(|&byte| byte == 0).next()).map(String::from_utf8_lossy);
    match found {
        None => Err(format!(
            "CUSYNC_KERNELS names {name}, which is no library of cusync's kernels, or a damaged one: download it again"
        )),
        Some(have) if have != own => Err(format!(
            "CUSYNC_KERNELS names {name}, which is of ABI {have}; this crate is of ABI {own}: take the library that was made \
             for this version, or unset CUSYNC_KERNELS to build the kernels here"
        )),
        Some(_) => Ok(bytes),
    }
}

/// Compares a file with the list of checksums next to it, if there is one.
pub(crate) fn verify_sum(file: &Path, bytes: &[u8]) -> Result<(), String> {
    let list = file.with_file_name("SHA256SUMS");
    let Ok(sums) = std::fs::read_to_string(&list) else { return Ok(()) };
    let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let line = sums.lines().find_map(|line| line.split_once("  ").filter(|(_, file)| *file == name));
    let Some((want, _)) = line else {
        return Err(format!("{} does not list {name}: download both again", list.display()));
    };
    let have = sum(bytes);
    if have == want {
        return Ok(());
    }
    Err(format!(
        "{} is damaged: its SHA-256 is {have}, and {} says {want}: download it again",
        file.display(),
        list.display()
    ))
}
