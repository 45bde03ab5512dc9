//! How the build script compiles kernels, using a fake compiler that only logs its calls, and how it handles a prebuilt
//! library.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The most recent build script that cargo built for the library.
fn script() -> PathBuf {
    let builds = Path::new(env!("CARGO_BIN_EXE_cusync")).with_file_name("build");
    let scripts = std::fs::read_dir(builds).expect("readable").flatten();
    let scripts = scripts
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("cusync-"))
        .map(|entry| entry.path().join("build-script-build"));
    let built = |path: &PathBuf| path.metadata().and_then(|meta| meta.modified()).ok();
    scripts.filter(|path| path.exists()).max_by_key(built).expect("cargo has run the build script")
}

/// A compiler that logs its start and end, and writes an empty object and a dependency file. If a file named `fails` is
/// next to it, it fails as compilers do on a full disk.
const NVCC: &str = r#"#!/bin/sh
here=$(dirname "$0")
[ "$1" = --version ] && { echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0; }
while [ $# -gt 0 ]; do
  case "$1" in -MF) deps=$2; shift;; -o) out=$2; shift;; -c) source=$2; shift;; esac
  shift
done
[ -n "$source" ] && echo "begin $source" >> "$here/log"
[ -e "$here/fails" ] && { sleep 0.2; echo "error: cannot write $out: No space left on device" >&2; exit 1; }
[ -n "$source" ] && sleep 0.05
: > "$out"
[ -n "$source" ] && echo "$out: $source" > "$deps" && echo "end $source" >> "$here/log"
exit 0
"#;

/// A private target folder and toolchain.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel_build").join(name);
        let _ = std::fs::remove_dir_all(&root);
        let place = Place(root);
        let files = [
            ("cuda/bin/nvcc", NVCC),
            ("cuda/lib64/libcudart_static.a", ""),
            ("cutlass/include/cutlass/cutlass.h", ""),
            ("target/debug/build/cusync-0/out/here", ""),
        ];
        for (file, text) in files {
            let path = place.0.join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            std::fs::write(&path, text).expect("writable");
        }
        let runs = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.0.join("cuda/bin/nvcc"), runs).expect("ours");
        place
    }

    /// Runs the build script as cargo does under `-j jobs`, optionally in a terminal.
    fn build(&self, jobs: usize, terminal: bool) -> Output {
        let mut command = self.command(jobs, terminal);
        command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
    }

    fn command(&self, jobs: usize, terminal: bool) -> Command {
        let mut command = match terminal {
            true => Command::new("script"),
            false => Command::new(script()),
        };
        if terminal {
            command.args(["--quiet", "--return", "--command"]).arg(script()).arg("/dev/null");
        }
        command
            .env("CARGO_MANIFEST_DIR", super::root())
            .env("OUT_DIR", self.0.join("target/debug/build/cusync-0/out"))
            .env("CUDA_HOME", self.0.join("cuda"))
            .env("CUTLASS_DIR", self.0.join("cutlass"))
            .env("NUM_JOBS", jobs.to_string())
            .env("CARGO_FEATURE_CUDA", "1");
        for name in ["TARGET", "HOST"] {
            command.env(name, "x86_64-unknown-linux-gnu");
        }
        for (name, value) in [("OPT_LEVEL", "0"), ("DEBUG", "false"), ("PROFILE", "debug")] {
            command.env(name, value);
        }
        for name in ["NVCC", "CUSYNC_ARCHS", "CUSYNC_DELAYS", "CUSYNC_KERNELS"] {
            command.env_remove(name);
        }
        command
    }

    /// Returns the compiler's log since the last call.
    fn log(&self) -> Vec<String> {
        let file = self.0.join("cuda/bin/log");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let _ = std::fs::remove_file(file);
        text.lines().map(String::from).collect()
    }

    fn objects(&self) -> PathBuf {
        self.0.join("target/cusync-kernels")
    }
}

fn built(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn refusal(output: &Output) -> String {
    assert!(!output.status.success(), "it should have failed");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Maximum number of concurrent compilers.
fn at_once(log: &[String]) -> usize {
    let (mut now, mut most) = (0, 0);
    for line in log {
        if line.starts_with("begin") {
            now += 1;
            most = most.max(now);
        } else {
            now -= 1;
        }
    }
    most
}

#[test]
fn as_many_compilers_run_at_once_as_cargo_was_told() {
    let one = Place::new("one");
    built(&one.build(1, false));
    let log = one.log();
    assert!(at_once(&log) == 1 && log.len() > 30, "{log:?}");
    let two = Place::new("two");
    built(&two.build(2, false));
    let log = two.log();
    // One if there is not enough memory for two.
    assert!((1..=2).contains(&at_once(&log)), "{log:?}");
}

#[test]
fn progress_is_visible_in_a_terminal() {
    let place = Place::new("terminal");
    let output = place.build(2, true);
    built(&output);
    let text = String::from_utf8_lossy(&output.stdout);
    let count = place.log().iter().filter(|line| line.starts_with("begin")).count();
    for number in 1..=count {
        assert!(text.contains(&format!("cusync: compiling kernels, {number} of {count}")), "{text}");
    }
}

#[test]
fn what_is_fresh_is_not_compiled_again_and_neighbours_are_left() {
    let place = Place::new("fresh");
    built(&place.build(2, false));
    let first = place.log();
    let neighbour = place.objects().join("neighbour.o");
    std::fs::write(&neighbour, "not ours").expect("writable");
    // Left by an earlier run, for a source that no longer exists.
    let gone = place.objects().join("gone-0.o");
    std::fs::write(&gone, "").expect("writable");
    let manifest = place.objects().join("objects.txt");
    let listed = std::fs::read_to_string(&manifest).expect("a list");
    std::fs::write(&manifest, format!("{listed}gone-0.o\n")).expect("writable");
    built(&place.build(2, false));
    assert_eq!(place.log(), Vec::<String>::new(), "nothing is compiled again");
    assert!(neighbour.exists() && !gone.exists());
    // A missing object is rebuilt, and nothing else.
    let lost = listed.lines().next().expect("an object");
    std::fs::remove_file(place.objects().join(lost)).expect("there");
    built(&place.build(2, false));
    assert_eq!(place.log().len(), 2);
    assert!(first.len() > 30, "{first:?}");
}

#[test]
fn a_full_disk_ends_a_build_at_once_and_says_what_to_do() {
    let place = Place::new("full");
    std::fs::write(place.0.join("cuda/bin/fails"), "").expect("writable");
    let text = refusal(&place.build(2, false));
    assert!(text.contains("No space left on device") && text.contains("free space"), "{text}");
    assert!(place.log().len() <= 2, "the others are not begun");
    // The target folder's own files.
    let place = Place::new("full_out");
    let image = place.0.join("target/debug/build/cusync-0/out/suite.fatbin");
    std::os::unix::fs::symlink("/dev/full", image).expect("a link");
    std::fs::write(place.0.join("cuda/bin/nvcc"), NVCC.replace(": > \"$out\"", "echo object > \"$out\""))
        .expect("writable");
    let text = refusal(&place.build(2, false));
    assert!(text.contains("suite.fatbin cannot be written") && text.contains("free space"), "{text}");
}

/// `cusync doctor`'s verdict on the toolchain with these environment variables.
fn doctor(variables: &[(&str, &Path)]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cusync"));
    for name in ["NVCC", "CUDA_HOME", "CUTLASS_DIR"] {
        command.env_remove(name);
    }
    let output = command.args(["doctor", "--json"]).envs(variables.iter().copied()).output();
    let report: serde_json::Value =
        serde_json::from_slice(&output.expect("the binary starts").stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("a list").iter();
    let toolchain = findings.clone().find(|f| f["what"] == "toolchain").expect("it is judged");
    let text = |field: &str| toolchain[field].as_str().unwrap_or_default().to_owned();
    (toolchain["ok"] == true, text("detail"), text("fix"))
}

#[test]
fn a_compiler_that_cannot_build_the_kernels_is_told_by_doctor_and_by_the_build() {
    let place = Place::new("judged");
    let nvcc = place.0.join("cuda/bin/nvcc");
    let (home, cutlass) = (place.0.join("cuda"), place.0.join("cutlass"));
    let usual: [(&str, &Path); 2] = [("CUDA_HOME", &home), ("CUTLASS_DIR", &cutlass)];
    let says = |release: &str| format!("#!/bin/sh\necho 'Cuda compilation tools, release {release}'\n");
    let cases = [
        (says("11.8, V11.8.89"), &["CUDA 11.8", "need 13.0 or newer"][..]),
        (says("12.9, V12.9.86"), &["CUDA 12.9", "need 13.0 or newer"]),
        (says("soon"), &["names no release"]),
        (
            "#!/bin/sh\necho 'nvcc: no libnvvm' >&2\nexit 3\n".into(),
            &["does not run", "exit status: 3", "no libnvvm"],
        ),
        ("no program".into(), &["does not run"]),
    ];
    for (text, words) in &cases {
        std::fs::write(&nvcc, text).expect("writable");
        let nowhere = place.0.join("nowhere");
        let by_name: [(&str, &Path); 3] =
            [("NVCC", &nvcc), ("CUDA_HOME", &nowhere), ("CUTLASS_DIR", &cutlass)];
        for variables in [&usual[..], &by_name] {
            let (ok, detail, fix) = doctor(variables);
            assert!(!ok && words.iter().all(|word| detail.contains(word)), "{text}: {detail}");
            assert!(detail.contains(&nvcc.display().to_string()), "{detail}");
            assert!(fix.contains("CUDA_HOME") && fix.contains("13.0"), "{fix}");
        }
        let output = place.build(1, false);
        built(&output);
        let printed = String::from_utf8_lossy(&output.stdout);
        let warning = printed
            .lines()
            .find(|line| line.starts_with("cargo:warning"))
            .unwrap_or_else(|| panic!("{printed}"));
        assert!(words.iter().all(|word| warning.contains(word)), "{warning}");
        assert!(
            warning.contains("without kernels") && printed.contains("CUSYNC_BUILT_ARCHS=\n"),
            "{printed}"
        );
    }
    std::fs::write(&nvcc, says("13.2, V13.2.7")).expect("writable");
    let (ok, detail, _) = doctor(&usual);
    assert!(ok && detail.contains("13.2, V13.2.7"), "{detail}");
    // The rest of the toolchain is checked too.
    std::fs::remove_file(home.join("lib64/libcudart_static.a")).expect("there");
    let (ok, detail, _) = doctor(&usual);
    assert!(!ok && detail.contains("no libcudart_static.a"), "{detail}");
    let (ok, detail, _) = doctor(&[usual[0], ("CUTLASS_DIR", &home)]);
    assert!(!ok && detail.contains("no CUTLASS"), "{detail}");
}

#[test]
fn a_prebuilt_library_is_linked_or_refused_with_a_way_out() {
    let place = Place::new("prebuilt");
    let file = place.0.join("libcusync_kernels.a");
    let take = || {
        let mut command = place.command(1, false);
        command.env("CUSYNC_KERNELS", &file).output().expect("it starts")
    };
    let library = |abi: &str| {
        std::fs::write(&file, format!("!<arch>\ncusync-kernels-abi={abi}\0 objects")).expect("writable");
    };
    // When the script refuses another ABI, it names the ABI of this source tree.
    library("0.0.1-0123456789abcdef");
    let text = refusal(&take());
    let own = text.split("this crate is of ABI ").nth(1).and_then(|rest| rest.split(':').next());
    let own = own.unwrap_or_else(|| panic!("{text}"));
    assert!(own.starts_with(env!("CARGO_PKG_VERSION")) && text.contains("0.0.1-0123456789abcdef"), "{text}");
    assert!(text.contains("unset CUSYNC_KERNELS"), "{text}");

    library(own);
    let output = take();
    built(&output);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("rustc-link-lib=static=cusync_kernels"), "{printed}");
    assert!(printed.contains("rustc-env=CUSYNC_BUILT_ARCHS=80;90a"), "{printed}");
    assert!(place.0.join("target/debug/build/cusync-0/out/libcusync_kernels.a").exists());
    assert!(place.log().is_empty(), "no compiler ran");

    // The checksum does not match the file.
    std::fs::write(place.0.join("SHA256SUMS"), format!("{}  libcusync_kernels.a\n", "0".repeat(64)))
        .expect("writable");
    let text = refusal(&take());
    assert!(text.contains("is damaged") && text.contains("download it again"), "{text}");
    // One of the two files missing, then both.
    std::fs::remove_file(place.0.join("SHA256SUMS")).expect("there");
    std::fs::write(&file, "!<arch>\n").expect("writable");
    assert!(refusal(&take()).contains("download it again"));
    std::fs::remove_file(&file).expect("there");
    assert!(refusal(&take()).contains("cannot be read"));
}
