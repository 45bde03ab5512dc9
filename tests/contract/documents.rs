//! Generated documents are up to date, every link resolves, and versions agree.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Each generated file has one writer: the test that keeps it up to date.
fn fresh(path: &str, text: &str) {
    if std::env::var_os("CUSYNC_RENDER").is_some() {
        std::fs::write(root().join(path), text).expect("writable");
        return;
    }
    assert!(
        std::fs::read_to_string(root().join(path)).is_ok_and(|old| old == text),
        "{path} is stale: run `cargo xtask render`"
    );
}

const THIRD_PARTY: &str = "\
# Third-party software

The parts of released crates and binaries, with the license that each part states. `cargo xtask render` makes this file.

## Inside binaries with kernels

| component | version | license |
|---|---|---|
| [CUTLASS](https://github.com/NVIDIA/cutlass) (headers, compiled into the kernels) | 4.2 | BSD-3-Clause, Copyright NVIDIA Corporation & Affiliates |
| CUDA runtime (`libcudart_static`, linked) and device libraries | 13.0 | NVIDIA's CUDA Toolkit End User License Agreement, whose Attachment A lists what may be redistributed; both are in it |

The NVIDIA driver, cuBLASLt and PyTorch are used where they are installed; nothing of them is distributed.

## Rust crates, by license

";

#[test]
fn rendered_files_are_fresh() {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args([
            "metadata",
            "--format-version",
            "1",
            "--offline",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .output()
        .expect("cargo starts");
    if !output.status.success() {
        println!(
            "skipped: cargo metadata needs the network here: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let field =
        |package: &Value, name: &str| package[name].as_str().unwrap_or("stated in its files").to_owned();
    let list = |name: &str| metadata[name].as_array().cloned().unwrap_or_default();
    let members: BTreeSet<String> =
        list("workspace_members").iter().filter_map(|m| m.as_str().map(String::from)).collect();
    // Packages reachable from released packages by normal dependencies; tests and build scripts are not part of
    // binaries.
    let nodes = metadata["resolve"]["nodes"].as_array().cloned().unwrap_or_default();
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut open: Vec<String> = members.iter().filter(|m| !m.contains("xtask")).cloned().collect();
    while let Some(id) = open.pop() {
        if !reached.insert(id.clone()) {
            continue;
        }
        let node = nodes.iter().find(|n| n["id"] == id.as_str());
        for dependency in node.and_then(|n| n["deps"].as_array()).into_iter().flatten() {
            let normal = |k: &Value| k["kind"].is_null();
            if dependency["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(normal)) {
                open.extend(dependency["pkg"].as_str().map(String::from));
            }
        }
    }
    let foreign = |p: &&Value| {
        let id = p["id"].as_str().unwrap_or_default();
        reached.contains(id) && !members.contains(id)
    };
    let mut by_license: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in list("packages").iter().filter(foreign) {
        let crates = by_license.entry(license(&field(package, "license"))).or_default();
        crates.push(format!("{} {}", field(package, "name"), field(package, "version")));
    }
    let count: usize = by_license.values().map(Vec::len).sum();
    assert!(count > 30, "{by_license:?}");
    let mut text = THIRD_PARTY.to_owned();
    for (license, mut crates) in by_license {
        crates.sort();
        text += &wrapped(&format!("* {license}: {}.", crates.join(", ")));
    }
    fresh("THIRD-PARTY.md", &text);
}

/// A license expression with the alternatives in one order, so that equal terms are listed together.
fn license(stated: &str) -> String {
    let stated = stated.replace('/', " OR ");
    let mut parts: Vec<&str> = stated.split(" OR ").map(str::trim).collect();
    if !stated.contains('(') {
        parts.sort_unstable();
    }
    parts.join(" OR ")
}

/// An item of a list in lines of at most 120 characters.
fn wrapped(item: &str) -> String {
    let mut lines = vec![String::new()];
    for word in item.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= 120 => *line += &format!(" {word}"),
            _ => lines.push(format!("  {word}")),
        }
    }
    lines.join("\n") + "\n"
}

/// Files of the checkout with this extension, except built or fetched ones.
fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("readable").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir()
            && !path.is_symlink()
            && !name.starts_with('.')
            && name != "target"
            && name != "shared"
        {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

#[test]
fn every_link_leads_somewhere() {
    let mut pages = Vec::new();
    files(root(), "md", &mut pages);
    assert!(pages.len() > 15, "{pages:?}");
    let mut broken = Vec::new();
    for page in &pages {
        let text = std::fs::read_to_string(page).expect("UTF-8");
        let folder = page.parent().expect("a file lies in a folder");
        for rest in text.split("](").skip(1) {
            let Some((link, _)) = rest.split_once(')') else { continue };
            let path = link.split('#').next().unwrap_or_default();
            let outside = ["http:", "https:", "mailto:"].iter().any(|scheme| link.starts_with(scheme));
            // Links contain no spaces; brackets in code do.
            if outside || path.is_empty() || path.contains([' ', '`', '"', '&', '*', ',']) {
                continue;
            }
            if !folder.join(path).exists() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Every page that mentions a model states that the model is one of 8 shards.
#[test]
fn pages_with_models_tell_that_they_are_shards() {
    let mut pages = vec![root().join("README.md")];
    files(&root().join("docs/results"), "md", &mut pages);
    let mut count = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("listed");
        if ["llama65", "gpt3", "LLaMA", "GPT-3"].iter().any(|model| text.contains(model)) {
            count += 1;
            let stated = text.contains("tensor-parallel shard") || text.contains("8-way tensor parallelism");
            assert!(stated, "{} does not tell that its models are one of 8 shards", page.display());
        }
    }
    assert!(count >= 8, "only {count} pages name a model");
}

/// `cargo test --doc` runs their code blocks.
#[test]
fn the_pages_of_crates_and_public_modules_show_code() {
    let mut count = 0;
    for folder in ["src", "benches/src", "codegen/src", "dag/src", "models/src"] {
        let lib = read(&format!("{folder}/lib.rs"));
        let modules = lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
        for name in modules.chain(["lib"]) {
            let places = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
            let place = places.iter().find(|place| root().join(place).exists()).expect("a module has a file");
            assert!(read(place).contains("//! ```\n"), "{place} shows no code");
            count += 1;
        }
    }
    assert!(count >= 24, "only {count} modules");
}

#[test]
fn the_book_has_every_page() {
    let summary = read("docs/SUMMARY.md");
    let mut pages = Vec::new();
    files(&root().join("docs"), "md", &mut pages);
    for page in pages {
        let place = page.strip_prefix(root().join("docs")).expect("inside").display().to_string();
        assert!(
            place == "SUMMARY.md" || summary.contains(&format!("]({place})")),
            "docs/SUMMARY.md lacks {place}"
        );
    }
    assert!(read("book.toml").contains("src = \"docs\""));
}

#[test]
fn versions_agree() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(read("csrc/CMakeLists.txt").contains(&format!("project(cusync VERSION {version} ")));
    assert!(read("CHANGELOG.md").contains(&format!("## {version}")));
    let abi = |text: &str, before: &str| {
        let rest = text.split(before).nth(1).unwrap_or_else(|| panic!("no {before}"));
        rest.chars().take_while(char::is_ascii_digit).collect::<String>()
    };
    let header = abi(&read("capi/include/cusync/pipeline.h"), "CUSYNC_PIPELINE_ABI ");
    assert_eq!(header, abi(&read("capi/src/lib.rs"), "const ABI: u32 = "), "the header and the library");
    for manifest in ["benches", "capi", "cli", "dag", "models", "python", "."] {
        let text = read(&format!("{manifest}/Cargo.toml"));
        // Packages omit test-only files.
        let needed = text.split("[dev-dependencies]").next().unwrap_or_default();
        let stated = needed.lines().filter(|l| l.starts_with("cusync") && l.contains("path ="));
        stated.for_each(|l| assert!(l.contains(&format!("\"={version}\"")), "{manifest}: {l}"));
    }
}

/// A test runs the README's `cusync` commands; the continuous integration script and the packed-crate test run its
/// cargo commands.
#[test]
fn the_readme_is_short_and_its_commands_of_cargo_are_run() {
    let readme = read("README.md");
    assert!(readme.len() <= 5100 && readme.lines().count() <= 92, "{} bytes", readme.len());
    let ci = read(".ci/run");
    let commands = readme.lines().filter(|line| line.starts_with("cargo "));
    let mut count = 0;
    for line in commands {
        let line = line.split('#').next().unwrap_or_default().trim();
        count += 1;
        match line {
            "cargo install --path cli" => assert!(read("tests/contract/packages.rs").contains("\"install\"")),
            _ => assert!(ci.lines().any(|l| l.trim() == line), ".ci/run lacks {line}"),
        }
    }
    assert_eq!(count, 3);
}

#[test]
fn the_workflow_is_sound() {
    let workflow = read(".github/workflows/ci.yml");
    for step in ["cargo fmt", "cargo clippy", "cargo test", "cargo package", "timeout-minutes: 30"] {
        assert!(workflow.contains(step), "the workflow lacks {step}");
    }
    assert!(read(".ci/run").contains("xtask/actionlint.mjs"), "nothing judges the workflow");
}
