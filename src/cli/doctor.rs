//! `cusync doctor`: what this machine can do, and the command that mends each fault.

use std::path::{Path, PathBuf};
use std::process::Command;

use cusync::device;
use serde::Serialize;

use super::print::{Answer, Page, json};

#[derive(Serialize)]
pub(crate) struct Finding {
    pub(crate) what: &'static str,
    pub(crate) ok: bool,
    pub(crate) detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct DoctorReport {
    pub(crate) findings: Vec<Finding>,
}

impl Answer for DoctorReport {
    fn good(&self) -> bool {
        self.findings.iter().all(|f| f.ok)
    }

    /// Something is missing, but nothing is wrong.
    fn bad_status(&self) -> u8 {
        2
    }

    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        let rows: Vec<_> = self
            .findings
            .iter()
            .map(|f| {
                let mark = page.good(f.ok, if f.ok { "ok" } else { "missing" });
                [f.what.to_owned(), mark, f.detail.clone(), f.fix.clone().unwrap_or_default()]
            })
            .collect();
        page.table(["", "", "found", "to mend it"], rows);
    }
}

pub(crate) fn doctor() -> DoctorReport {
    DoctorReport { findings: vec![driver(), gpus(), toolchain(), kernels(), host()] }
}

fn finding(what: &'static str, result: Result<String, (String, &str)>) -> Finding {
    match result {
        Ok(detail) => Finding { what, ok: true, detail, fix: None },
        Err((detail, fix)) => Finding { what, ok: false, detail, fix: Some(fix.into()) },
    }
}

fn first_line(e: &device::Error) -> String {
    e.to_string().lines().next().unwrap_or("unknown").to_owned()
}

fn driver() -> Finding {
    let install = "install NVIDIA's driver (sudo apt install nvidia-driver-580); without one, `cusync run` uses the CPU";
    finding(
        "driver",
        match device::driver_version() {
            Ok((major, minor)) if major >= 13 => Ok(format!("CUDA {major}.{minor}")),
            Ok((major, minor)) => Err((
                format!("CUDA {major}.{minor}, the kernels are built with 13.0"),
                "update the driver to 580 or newer",
            )),
            Err(e) => Err((first_line(&e), install)),
        },
    )
}

fn gpus() -> Finding {
    let fix = "check `nvidia-smi` and CUDA_VISIBLE_DEVICES; without a GPU, `cusync run` uses the CPU";
    let list = device::gpu_count().and_then(|count| {
        (0..count)
            .map(|i| {
                let gpu = device::Device::open(i)?;
                let (major, minor) = gpu.capability();
                Ok(format!("{} ({} SMs, sm_{major}{minor})", gpu.name(), gpu.sms()))
            })
            .collect::<Result<Vec<_>, _>>()
    });
    finding(
        "GPUs",
        match list {
            Ok(list) if list.is_empty() => Err(("none".into(), fix)),
            Ok(list) => Ok(list.join(", ")),
            Err(e) => Err((first_line(&e), fix)),
        },
    )
}

/// How this binary was built: from a checkout, whose tasks are at hand, or from packed crates.
fn checkout() -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("xtask/Cargo.toml").is_file()
}

/// nvcc as the build looks for it: `NVCC`, `CUDA_HOME`, then where `cargo xtask setup` and `cusync setup` put it.
fn toolchain() -> Finding {
    let folders = || {
        let local = Path::new(env!("CARGO_MANIFEST_DIR")).join(".toolchain");
        [Some(local), super::setup::usual()].into_iter().flatten()
    };
    let own = || folders().find(|f| f.exists()).or_else(|| folders().next()).unwrap_or_default();
    let home = std::env::var_os("CUDA_HOME").map_or_else(|| own().join("nvidia/cu13"), PathBuf::from);
    let nvcc = std::env::var_os("NVCC").map_or_else(|| home.join("bin/nvcc"), PathBuf::from);
    let version = Command::new(&nvcc).arg("--version").output().ok().filter(|o| o.status.success());
    let release = version.and_then(|o| {
        let text = String::from_utf8_lossy(&o.stdout).into_owned();
        text.lines().find_map(|l| l.split("release ").nth(1).map(str::to_owned))
    });
    finding(
        "toolchain",
        match release {
            Some(release) => Ok(format!("nvcc {release} ({})", nvcc.display())),
            None => {
                let setup = if checkout() { "cargo xtask setup" } else { "cusync setup" };
                Err((format!("no nvcc at {}", nvcc.display()), setup))
            }
        },
    )
}

fn kernels() -> Finding {
    let kernels = device::kernels();
    let mut archs: Vec<u32> = kernels.iter().map(|k| k.id.arch).collect();
    archs.sort_unstable();
    archs.dedup();
    let name = |arch: &u32| if *arch == 90 { "sm_90a".to_owned() } else { format!("sm_{arch}") };
    finding(
        "kernels",
        if kernels.is_empty() {
            let build = if checkout() {
                "cargo xtask setup && cargo build --release"
            } else {
                "cusync setup && cargo install cusync --force, or CUSYNC_KERNELS=libcusync_kernels.a when building"
            };
            Err(("none in this binary".into(), build))
        } else {
            let names: Vec<_> = archs.iter().map(name).collect();
            Ok(format!("{} for {}", kernels.len(), names.join(", ")))
        },
    )
}

fn host() -> Finding {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    finding("cpu executor", Ok(format!("{threads} threads")))
}
