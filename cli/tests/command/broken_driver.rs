//! A driver that is installed but fails to start reports its own error message. The test compiles a stand-in library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The driver functions called before a GPU is opened. `cuInit` returns `FAULT`.
const DRIVER: &str = r#"
int cuInit(unsigned flags) { (void)flags; return FAULT; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 0; return FAULT; }
int cuGetErrorName(int error, const char **name) {
  switch (error) {
    case 100: *name = "CUDA_ERROR_NO_DEVICE"; return 0;
    case 802: *name = "CUDA_ERROR_SYSTEM_NOT_READY"; return 0;
    case 803: *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; return 0;
    case 999: *name = "CUDA_ERROR_UNKNOWN"; return 0;
    default: *name = 0; return 1;
  }
}
"#;

/// Makes a folder with a driver that returns `fault` from `cuInit`.
fn driver(fault: u32) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken_driver").join(fault.to_string());
    std::fs::create_dir_all(&folder).expect("writable");
    std::fs::write(folder.join("driver.c"), DRIVER).expect("writable");
    for name in ["libcuda.so", "libcuda.so.1"] {
        let compiled = Command::new("cc")
            .current_dir(&folder)
            .args(["-shared", "-fPIC", &format!("-DFAULT={fault}"), "driver.c", "-o", name])
            .output()
            .expect("a compiler is there: the build needed one");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    }
    folder
}

fn cusync(driver: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cusync"))
        .args(args)
        .env("LD_LIBRARY_PATH", driver)
        .output()
        .expect("the binary starts")
}

/// Parses JSON output.
fn json(text: &[u8]) -> serde_json::Value {
    serde_json::from_slice(text).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(text)))
}

/// Two findings of `doctor`, driver and GPUs: whether each passes, and its message.
fn findings(driver: &Path) -> [(bool, String); 2] {
    let report = json(&cusync(driver, &["doctor", "--json"]).stdout);
    ["driver", "GPUs"].map(|name| {
        let all = report["findings"].as_array().expect("a list");
        let finding = all.iter().find(|f| f["what"] == name).unwrap_or_else(|| panic!("{report}"));
        (finding["ok"] == true, format!("{} {}", finding["detail"], finding["fix"]))
    })
}

#[test]
fn the_driver_s_own_error_is_told_with_what_mends_it() {
    for (fault, name, way_out) in [
        (802, "CUDA_ERROR_SYSTEM_NOT_READY", "fabric"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "restart"),
        (999, "CUDA_ERROR_UNKNOWN", "dmesg"),
        (46, "unknown (46)", "nvidia-smi"),
    ] {
        let driver = driver(fault);
        for (ok, text) in findings(&driver) {
            assert!(!ok && text.contains(name) && text.contains(way_out), "{fault}: {text}");
            assert!(text.contains(&format!("({fault})")) && !text.contains("install"), "{fault}: {text}");
        }
        let (bench, host) = (["bench", "sync", "--json"], ["run", "two_gemms", "--dim", "M=37", "--json"]);
        let refused = json(&cusync(&driver, &bench).stderr);
        assert_eq!(refused["code"], "driver", "{refused}");
        assert!(refused["message"].as_str().is_some_and(|m| m.contains(name)), "{refused}");
        assert!(refused["help"].as_str().is_some_and(|help| help.contains(way_out)), "{refused}");
        let ran = json(&cusync(&driver, &host).stdout);
        let note = ran["note"].as_str().unwrap_or_default();
        assert!(ran["verified"] == true && note.contains(name) && note.contains("on the CPU"), "{ran}");
    }
}

#[test]
fn a_driver_that_does_not_load_is_told_in_the_loader_s_words() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken_driver").join("unloadable");
    std::fs::create_dir_all(&folder).expect("writable");
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::write(folder.join(name), "no library").expect("writable");
    }
    for (ok, text) in findings(&folder) {
        let says = ["does not load", "libcuda.so.1", "LD_LIBRARY_PATH"];
        assert!(!ok && says.iter().all(|part| text.contains(part)), "{text}");
    }
    let refused = json(&cusync(&folder, &["bench", "sync", "--json"]).stderr);
    assert_eq!(refused["code"], "no-driver", "{refused}");
    assert!(refused["message"].as_str().is_some_and(|m| m.contains("does not load")), "{refused}");
}

#[test]
fn a_driver_without_a_gpu_is_no_fault_of_the_driver() {
    let driver = driver(100);
    let [(good, version), (any, none)] = findings(&driver);
    assert!(good && version.contains("CUDA 13.0"), "{version}");
    assert!(!any && none.contains("no usable GPU") && none.contains("CUDA_VISIBLE_DEVICES"), "{none}");
    let refused = json(&cusync(&driver, &["bench", "sync", "--json"]).stderr);
    assert_eq!(refused["code"], "no-gpu", "{refused}");
}
