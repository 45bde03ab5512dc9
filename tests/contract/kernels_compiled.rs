//! The machine code itself: tensor-core instructions where they belong, no spills, no serialised WGMMA.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of this build with the extension, as its script has listed them: the folder may hold others.
fn files(extension: &str) -> Option<Vec<PathBuf>> {
    let folder = Path::new(option_env!("CUSYNC_KERNEL_OBJECTS")?);
    let manifest = std::fs::read_to_string(folder.join("objects.txt")).ok()?;
    let mut found: Vec<PathBuf> =
        manifest.lines().map(|object| folder.join(object).with_extension(extension)).collect();
    found.sort();
    Some(found)
}

fn is_family(path: &Path, family: &str) -> bool {
    path.file_stem().is_some_and(|s| s.to_string_lossy().contains(family))
}

#[test]
fn no_kernel_spills() {
    let Some(logs) = files("ptxas") else {
        println!("skipped: no_kernel_spills: built without nvcc; `cargo xtask setup` brings it");
        return;
    };
    assert!(!logs.is_empty(), "nvcc was there but left no ptxas reports");
    let mut checked = 0;
    // A chain kernel's consumers hold 128 accumulators; what they keep from item to item may lie in memory meanwhile. That
    // the arithmetic itself does not touch it is for the test of the machine code.
    for (family, most) in [("gemm_sm", 0), ("decode_sm", 0), ("chain_sm", 64)] {
        for log in logs.iter().filter(|l| is_family(l, family)) {
            let text = std::fs::read_to_string(log).expect("a report that was just listed");
            for line in text.lines().filter(|l| l.contains("spill stores")) {
                checked += 1;
                let stored = line.split(" bytes spill stores").next().and_then(|l| l.rsplit(' ').next());
                let stored: u32 = stored.and_then(|n| n.parse().ok()).expect("ptxas names the bytes");
                assert!(stored <= most, "{}: {}", log.display(), line.trim());
            }
            assert_silent(&text, log);
        }
    }
    assert!(checked >= 50, "only {checked} kernels were reported");
}

/// The compiler gives up overlapping WGMMA, or ignores a register budget, and says so only in its report.
fn assert_silent(report: &str, log: &Path) {
    for code in ["C7506", "C7508", "C7510", "C7518"] {
        assert!(!report.contains(code), "{}: ptxas warns {code}:\n{report}", log.display());
    }
}
#[test]
fn hopper_kernels_use_wgmma_and_ampere_kernels_use_mma() {
    let cuobjdump = Path::new(env!("CARGO_MANIFEST_DIR")).join(".toolchain/nvidia/cu13/bin/cuobjdump");
    let Some(objects) = files("o").filter(|_| cuobjdump.exists()) else {
        println!("skipped: machine code test: needs nvcc and cuobjdump; `cargo xtask setup` brings both");
        return;
    };
    let mut seen = [0; 4];
    let families = [
        (0, "gemm_sm90", "HGMMA"),
        (1, "gemm_sm80", "HMMA"),
        (2, "decode_sm90", "HGMMA"),
        (3, "chain_sm90", "HGMMA"),
    ];
    for (slot, family, instruction) in families {
        for object in objects.iter().filter(|o| is_family(o, family)) {
            let output =
                Command::new(&cuobjdump).arg("-sass").arg(object).output().expect("cuobjdump starts");
            let text = String::from_utf8_lossy(&output.stdout);
            for function in text.split("Function : ").skip(1) {
                let name = function.lines().next().unwrap_or_default();
                assert!(function.contains(instruction), "{}: no {instruction} in {name}", object.display());
                if family == "chain_sm90" {
                    // Kernels of clusters read again, once a k-block, whose buffer they release.
                    let (first, last) = (function.find(instruction), function.rfind(instruction));
                    let arithmetic = &function[first.unwrap_or(0)..last.unwrap_or(0)];
                    let count = |access| arithmetic.matches(access).count();
                    assert!(
                        count(" STL") == 0 && count(" LDL") <= 1,
                        "{}: local memory in the main loop of {name}",
                        object.display()
                    );
                }
                seen[slot] += 1;
            }
        }
    }
    assert!(seen[0] >= 20 && seen[1] >= 12 && seen[2] >= 8 && seen[3] >= 12, "kernels found: {seen:?}");
}
