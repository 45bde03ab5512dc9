//! A prebuilt library of kernels, for `CUSYNC_KERNELS`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Outcome, cargo, prebuilt, spawn};

/// Builds the kernels and puts them in `target/dist`, with their link dependencies and checksums.
pub(crate) fn dist(root: &Path) -> Outcome {
    // Users of the library expect all architectures.
    if std::env::var_os("CUSYNC_ARCHS").is_some() {
        return Err("a prebuilt library has the kernels of all architectures: unset CUSYNC_ARCHS".into());
    }
    cargo(root, ["build", "--release", "--package", "cusync-cli"])?;
    let build = root.join("target/release/build");
    let folders = fs::read_dir(&build).map_err(|e| failed(&build, e))?.flatten();
    let built = folders.map(|f| f.path().join("out")).filter(|f| f.join("libcusync_kernels.a").exists());
    let age =
        |folder: &PathBuf| fs::metadata(folder.join("libcusync_kernels.a")).and_then(|m| m.modified()).ok();
    let out = built.max_by_key(age).ok_or("the build left no library of kernels")?;
    let home =
        std::env::var_os("CUDA_HOME").map_or_else(|| root.join(".toolchain/nvidia/cu13"), PathBuf::from);
    let runtime =
        ["lib64", "lib", "targets/x86_64-linux/lib"].map(|l| home.join(l).join("libcudart_static.a"));
    let runtime = runtime.iter().find(|f| f.exists()).ok_or("no CUDA toolchain: run `cargo xtask setup`")?;
    let dist = root.join("target/dist");
    assemble(&out, runtime, &dist)?;
    // A build must accept the result.
    let abi = prebuilt::abi(root, env!("CARGO_PKG_VERSION"))?;
    prebuilt::read(&dist.join(LIBRARY), &abi)?;
    println!("target/dist: CUSYNC_KERNELS={LIBRARY} takes it, SHA256SUMS and {SUITE} beside it; ABI {abi}");
    Ok(())
}

const LIBRARY: &str = "libcusync_kernels.a";
const SUITE: &str = "suite.fatbin";

fn failed(path: &Path, e: std::io::Error) -> String {
    format!("{}: {e}", path.display())
}

/// Copies the output of a build in `out`, and the CUDA runtime, to the folder `dist`.
fn assemble(out: &Path, runtime: &Path, dist: &Path) -> Outcome {
    let image = out.join(SUITE);
    if fs::metadata(&image).map_or(0, |m| m.len()) == 0 {
        return Err("the build has no kernels: run `cargo xtask setup`, and do not set NVCC".into());
    }
    if dist.exists() {
        fs::remove_dir_all(dist).map_err(|e| failed(dist, e))?;
    }
    fs::create_dir_all(dist).map_err(|e| failed(dist, e))?;
    merge(&dist.join(LIBRARY), &[&out.join(LIBRARY), &out.join("libcusync_version.a"), runtime])?;
    fs::copy(&image, dist.join(SUITE)).map_err(|e| failed(&image, e))?;
    let sums = [LIBRARY, SUITE].map(|name| {
        let file = dist.join(name);
        let bytes = fs::read(&file).map_err(|e| failed(&file, e))?;
        Ok(format!("{}  {name}\n", prebuilt::sum(&bytes)))
    });
    let sums = sums.into_iter().collect::<Result<String, String>>()?;
    let list = dist.join("SHA256SUMS");
    fs::write(&list, sums).map_err(|e| failed(&list, e))
}

/// Merges several archives into one.
fn merge(into: &Path, from: &[&Path]) -> Outcome {
    let mut script = format!("CREATE {}\n", into.display());
    from.iter().for_each(|library| script.push_str(&format!("ADDLIB {}\n", library.display())));
    script.push_str("SAVE\nEND\n");
    let mut ar =
        Command::new("ar").arg("-M").stdin(Stdio::piped()).spawn().map_err(|e| format!("ar: {e}"))?;
    if let Some(mut input) = ar.stdin.take() {
        input.write_all(script.as_bytes()).map_err(|e| format!("ar: {e}"))?;
    }
    let status = ar.wait().map_err(|e| format!("ar: {e}"))?;
    if !status.success() {
        return Err(format!("ar ended with {status}"));
    }
    spawn(Command::new("ranlib").arg(into))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABI: &str = "9.9.9-0123456789abcdef";

    /// A build folder and a CUDA runtime made of small C objects; the version is compiled as in a real build.
    fn build(name: &str) -> (PathBuf, PathBuf) {
        let folder = std::env::temp_dir().join(format!("cusync-dist-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let out = folder.join("out");
        fs::create_dir_all(&out).expect("writable");
        let version = Path::new(env!("CARGO_MANIFEST_DIR")).join("../csrc/abi/version.c");
        fs::write(folder.join("kernels.c"), "int kernels(void) { return 1; }\n").expect("writable");
        fs::write(folder.join("runtime.c"), "int runtime(void) { return 2; }\n").expect("writable");
        let sources = [
            (folder.join("kernels.c"), out.join(LIBRARY)),
            (version, out.join("libcusync_version.a")),
            (folder.join("runtime.c"), folder.join("libcudart_static.a")),
        ];
        for (source, library) in sources {
            let object = library.with_extension("o");
            let define = format!("-DCUSYNC_ABI=\"{ABI}\"");
            spawn(Command::new("cc").arg("-c").arg(define).arg(&source).arg("-o").arg(&object))
                .expect("compiles");
            spawn(Command::new("ar").arg("crs").arg(&library).arg(&object)).expect("archives");
        }
        fs::write(out.join(SUITE), "an image").expect("writable");
        (folder.clone(), out)
    }

    #[test]
    fn what_is_assembled_is_taken_until_it_is_damaged() {
        let (folder, out) = build("taken");
        let dist = folder.join("dist");
        assemble(&out, &folder.join("libcudart_static.a"), &dist).expect("assembled");
        let library = dist.join(LIBRARY);
        assert!(prebuilt::read(&library, ABI).is_ok());
        // The archive contains all three, and `sha256sum` agrees with the list.
        let symbols = Command::new("nm").arg(&library).output().expect("nm starts").stdout;
        let symbols = String::from_utf8_lossy(&symbols).into_owned();
        assert!(["T kernels", "T runtime"].iter().all(|name| symbols.contains(name)), "{symbols}");
        spawn(Command::new("sha256sum").arg("--quiet").arg("-c").arg("SHA256SUMS").current_dir(&dist))
            .expect("right");
        // Another ABI is refused with both names.
        let other = prebuilt::read(&library, "0.0.1-feedfeedfeedfeed").expect_err("another ABI");
        assert!(other.contains(ABI) && other.contains("0.0.1-feedfeedfeedfeed"), "{other}");
        // One changed byte of a download, in the library or the image, is detected.
        for name in [LIBRARY, SUITE] {
            let file = dist.join(name);
            let whole = fs::read(&file).expect("there");
            let mut damaged = whole.clone();
            *damaged.last_mut().expect("not empty") ^= 1;
            fs::write(&file, &damaged).expect("writable");
            let refused = prebuilt::verify_sum(&file, &damaged).expect_err("damaged");
            assert!(refused.contains("damaged") && refused.contains("download it again"), "{refused}");
            fs::write(&file, &whole).expect("writable");
        }
        // Running it again replaces the old one.
        assemble(&out, &folder.join("libcudart_static.a"), &dist).expect("assembled");
        fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn a_build_without_kernels_is_not_packed() {
        let (folder, out) = build("none");
        fs::write(out.join(SUITE), "").expect("writable");
        let refused = assemble(&out, &folder.join("libcudart_static.a"), &folder.join("dist"));
        assert!(refused.is_err_and(|why| why.contains("no kernels")) && !folder.join("dist").exists());
        fs::remove_dir_all(folder).expect("ours");
    }
}
