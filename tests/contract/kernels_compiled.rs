//! The machine code itself: tensor-core instructions in the right places, no spills, no serialized WGMMA.

use std::path::{Path, PathBuf};
use std::process::Command;

/// This build's files with the extension, as listed by its script: the folder may hold others.
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
    let (mut checked, mut groups) = (0, 0);
    // A chain kernel's consumers hold 128 accumulators; state kept from item to item may be spilled meanwhile. The
    // machine code test checks that the arithmetic itself does not touch it.
    for (family, most_alone) in [("gemm_sm", 0), ("decode_sm", 0), ("chain_sm", 64)] {
        for log in logs.iter().filter(|l| is_family(l, family)) {
            let text = std::fs::read_to_string(log).expect("a report that was just listed");
            let mut most = most_alone;
            for line in text.lines().filter(|l| l.contains("spill stores") || l.contains("Compiling entry")) {
                // Kernels that sum over GPUs need registers for it beside the accumulators of the widest stage.
                if line.contains("Compiling entry") {
                    groups += usize::from(line.contains("GroupParams"));
                    most = if line.contains("GroupParams") { 64 } else { most_alone };
                    continue;
                }
                checked += 1;
                let stored = line.split(" bytes spill stores").next().and_then(|l| l.rsplit(' ').next());
                let stored: u32 = stored.and_then(|n| n.parse().ok()).expect("ptxas names the bytes");
                assert!(stored <= most, "{}: {}", log.display(), line.trim());
            }
            assert_silent(&text, log);
        }
    }
    assert!(checked >= 50 && groups > 0, "only {checked} kernels were reported, {groups} of them of groups");
}

/// If the compiler serializes WGMMA or ignores a register budget, it says so only in its report.
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
                    let loops = loops_of(function, instruction);
                    assert!(!loops.is_empty(), "{}: no loop of {instruction} in {name}", object.display());
                    for text in loops {
                        let count = |access| text.iter().filter(|line| line.contains(access)).count();
                        // Cluster kernels reload, once per k-block, which CTA's buffer they release.
                        assert!(
                            count(" STL") == 0 && count(" LDL") <= 1,
                            "{}: local memory in a loop of {name}",
                            object.display()
                        );
                    }
                }
                seen[slot] += 1;
            }
        }
    }
    assert!(seen[0] >= 20 && seen[1] >= 12 && seen[2] >= 8 && seen[3] >= 12, "kernels found: {seen:?}");
}

/// The innermost loops of a function that contain an instruction, line by line. Code that the compiler moved behind the
/// end also branches back, but over a longer distance than any loop.
fn loops_of<'a>(function: &'a str, instruction: &str) -> Vec<Vec<&'a str>> {
    const LONGEST: u64 = 16 << 10;
    let address =
        |line: &str| u64::from_str_radix(line.trim_start().strip_prefix("/*")?.split_once("*/")?.0, 16).ok();
    let code: Vec<(u64, &str)> = function.lines().filter_map(|line| Some((address(line)?, line))).collect();
    let back = |&(from, line): &(u64, &str)| {
        let target = line.split_once(" BRA")?.1.split_once(';')?.0.split_whitespace().last()?;
        let to = u64::from_str_radix(target.strip_prefix("0x")?, 16).ok()?;
        (to < from && from - to <= LONGEST).then_some((to, from))
    };
    let holds = |(to, from): &(u64, u64)| {
        code.iter().any(|(at, line)| (to..=from).contains(&at) && line.contains(instruction))
    };
    let loops: Vec<(u64, u64)> = code.iter().filter_map(back).filter(holds).collect();
    let inside =
        |(to, from): (u64, u64), other: (u64, u64)| other != (to, from) && to <= other.0 && other.1 <= from;
    let innermost = loops.iter().filter(|one| !loops.iter().any(|other| inside(**one, *other)));
    let text = |&(to, from): &(u64, u64)| {
        code.iter().filter(|(at, _)| (to..=from).contains(at)).map(|(_, line)| *line).collect()
    };
    innermost.map(text).collect()
}
