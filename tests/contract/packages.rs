//! The packed crates, unpacked in an empty folder without the workspace: they build, a ten-line program runs a
//! pipeline, and the command installs.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Maximum size of a packed crate, in bytes.
const MOST: u64 = 2 << 20;
const CRATES: [&str; 7] =
    ["cusync", "cusync-bench", "cusync-capi", "cusync-cli", "cusync-dag", "cusync-gen", "cusync-models"];

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
    format!("{}{text}", String::from_utf8_lossy(&output.stdout))
}

fn cargo(folder: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(folder)
        .envs([("NVCC", "/none"), ("CARGO_PROFILE_DEV_DEBUG", "0"), ("CARGO_PROFILE_DEV_OPT_LEVEL", "0")])
        .env_remove("CARGO_TARGET_DIR");
    cargo
}

/// Packs all crates and unpacks them in a folder outside any workspace.
fn unpacked() -> TempDir {
    let place = tempfile::tempdir().expect("there is a folder for temporary files");
    let folder = place.path();
    run(cargo(Path::new(env!("CARGO_MANIFEST_DIR")))
        .args([
            "package",
            "--workspace",
            "--exclude",
            "xtask",
            "--no-verify",
            "--allow-dirty",
            "--target-dir",
        ])
        .arg(folder.join("packed")));
    for name in CRATES {
        let file = folder.join("packed/package").join(format!("{name}-{}.crate", env!("CARGO_PKG_VERSION")));
        let bytes = std::fs::metadata(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display())).len();
        assert!(bytes <= MOST, "{name} has {bytes} bytes");
        run(Command::new("tar").arg("-xf").arg(&file).arg("-C").arg(folder));
        let own = folder.join(format!("{name}-{}", env!("CARGO_PKG_VERSION")));
        for part in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(own.join(part).is_file(), "{name} lacks {part}");
        }
        let manifest = std::fs::read_to_string(own.join("Cargo.toml")).expect("packed");
        for field in ["repository", "documentation", "keywords", "license"] {
            assert!(manifest.contains(field), "{name} states no {field}");
        }
    }
    place
}

const PROGRAM: &str = r#"
use cusync::prelude::*;
fn main() -> Result<(), SessionError> {
    let mlp = PipelineBuilder::new("mlp").dim("M", 8)
        .stage(Stage::gemm("up", "X(M,64)", "W1(64,128)", "Y(M,128)"))
        .stage(Stage::gemm("down", "Y(M,128)", "W2(128,64)", "Z(M,64)"));
    let mut session = Session::on_host(&mlp.text(), &[])?;
    for (name, count) in [("X", 8 * 64), ("W1", 64 * 128), ("W2", 128 * 64)] {
        session.set_f32(name, &vec![0.125; count])?;
    }
    session.run()?;
    assert!(session.read_f32("Z")?.iter().all(|z| *z == 16.0));
    Ok(())
}
"#;

#[test]
fn packed_crates_build_run_and_install_outside_the_workspace() {
    let place = unpacked();
    let folder = place.path();
    let user = folder.join("user");
    std::fs::create_dir_all(user.join("src")).expect("writable");
    let version = env!("CARGO_PKG_VERSION");
    // Stands in for the registry.
    let registry = folder.join(".cargo/config.toml");
    std::fs::create_dir_all(registry.parent().expect("a folder")).expect("writable");
    let patches = CRATES.map(|name| {
        let path = folder.join(format!("{name}-{version}"));
        format!("{name} = {{ path = \"{}\" }}\n", path.display())
    });
    std::fs::write(registry, format!("[patch.crates-io]\n{}", patches.concat())).expect("writable");
    // Without the feature `cuda`, the build never looks for nvcc.
    let manifest = format!(
        "[package]\nname = \"user\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n\
         cusync = {{ version = \"{version}\", default-features = false }}\n"
    );
    std::fs::write(user.join("Cargo.toml"), manifest).expect("writable");
    std::fs::write(user.join("src/main.rs"), PROGRAM).expect("writable");
    // The versions that the workspace was tested with.
    std::fs::copy(folder.join(format!("cusync-{version}/Cargo.lock")), user.join("Cargo.lock"))
        .expect("packed");
    // Another package's file in the target folder.
    let neighbour = user.join("target/cusync-kernels/neighbour.o");
    std::fs::create_dir_all(neighbour.parent().expect("a folder")).expect("writable");
    std::fs::write(&neighbour, "not ours").expect("writable");
    run(cargo(&user).args(["run", "--quiet"]));
    let again = run(cargo(&user).arg("build"));
    assert!(!again.contains("Compiling"), "a second build does nothing: {again}");

    // The README's first commands, with the crate instead of the checkout.
    run(cargo(folder)
        .args(["install", "--quiet", "--debug", "--path"])
        .arg(folder.join(format!("cusync-cli-{version}")))
        .arg("--root")
        .arg(folder)
        .arg("--target-dir")
        .arg(user.join("target")));
    assert!(neighbour.exists(), "what is somebody else's is left");
    let installed = || {
        let mut command = Command::new(folder.join("bin/cusync"));
        command.current_dir(&user).env("XDG_DATA_HOME", folder.join("data"));
        command
    };
    let small =
        ["run", "llama65_mlp", "--dim", "M=8", "--dim", "H=1024", "--dim", "I=512", "--executor", "cpu"];
    let first = run(installed().args(small));
    assert!(first.contains("right: off by at most"), "{first}");
    // A missing component is reported with a command available to a user of the crate.
    let doctor = installed().arg("doctor").output().expect("it was installed");
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert!(text.contains("cusync setup") && !text.contains("xtask"), "{text}");
}
