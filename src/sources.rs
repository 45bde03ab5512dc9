//! Sources of the library: its folder, the headers of the device library, and the toolchain that a build
//! would use.
//!
//! ```
//! use cusync::sources::{HEADERS, ROOT, compiler};
//!
//! assert!(HEADERS.iter().any(|(name, text)| *name == "cusync.hpp" && text.contains("#pragma once")));
//! if let Err(missing) = compiler::find(ROOT.as_ref()) {
//!     println!("{missing}: {}", compiler::way_out(ROOT.as_ref()));
//! }
//! ```

#[path = "../build/compiler.rs"]
pub mod compiler;

/// Folder of the library's sources at build time.
pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Files of the device library (`csrc/include/cusync`): names and texts.
pub const HEADERS: &[(&str, &str)] = &[
    ("README.md", include_str!("../csrc/include/cusync/README.md")),
    ("cusync.hpp", include_str!("../csrc/include/cusync/cusync.hpp")),
    ("custom.cuh", include_str!("../csrc/include/cusync/custom.cuh")),
    ("custom.h", include_str!("../csrc/include/cusync/custom.h")),
    ("desc.h", include_str!("../csrc/include/cusync/desc.h")),
    ("edge.cuh", include_str!("../csrc/include/cusync/edge.cuh")),
    ("edge.hpp", include_str!("../csrc/include/cusync/edge.hpp")),
    ("epoch.cuh", include_str!("../csrc/include/cusync/epoch.cuh")),
    ("fixed.hpp", include_str!("../csrc/include/cusync/fixed.hpp")),
    ("order.hpp", include_str!("../csrc/include/cusync/order.hpp")),
    ("policy.hpp", include_str!("../csrc/include/cusync/policy.hpp")),
    ("ptx.cuh", include_str!("../csrc/include/cusync/ptx.cuh")),
    ("semaphore.cuh", include_str!("../csrc/include/cusync/semaphore.cuh")),
    ("tile_sync.cuh", include_str!("../csrc/include/cusync/tile_sync.cuh")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_whole() {
        let folder = std::path::Path::new(ROOT).join("csrc/include/cusync");
        let mut found: Vec<String> = std::fs::read_dir(folder)
            .expect("the library is there")
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        found.sort();
        let mut listed: Vec<&str> = HEADERS.iter().map(|(name, _)| *name).collect();
        listed.sort_unstable();
        assert_eq!(found, listed, "a header is missing from HEADERS");
    }
}
