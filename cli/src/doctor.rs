//! `cusync doctor`: shows the capabilities of this machine, and a command to fix each problem.

use std::path::Path;

use cusync::device;
use cusync::sources::{ROOT, compiler};
use serde::Serialize;

use super::fault::Fault;
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
                let mark = page.good(f.ok, if f.ok { "ok" } else { "fault" });
                [f.what.to_owned(), mark, f.detail.clone(), f.fix.clone().unwrap_or_default()]
            })
            .collect();
        page.table(["", "", "found", "to mend it"], rows);
    }
}

pub(crate) fn doctor() -> DoctorReport {
    DoctorReport { findings: vec![driver(), gpus(), toolchain(), kernels(), host()] }
}

fn finding(subject: &'static str, result: Result<String, (String, String)>) -> Finding {
    match result {
        Ok(detail) => Finding { what: subject, ok: true, detail, fix: None },
        Err((detail, fix)) => Finding { what: subject, ok: false, detail, fix: Some(fix) },
    }
}

/// A driver error, and its fix.
fn wrong(error: device::Error) -> (String, String) {
    let fault = Fault::from(error);
    (fault.message, fault.help.unwrap_or_else(|| "see `nvidia-smi`".into()))
}

fn driver() -> Finding {
    let install = "install NVIDIA's driver (sudo apt install nvidia-driver-580); without one, `cusync run` uses the CPU";
    finding(
        "driver",
        match (device::driver_version(), device::gpu_count()) {
            (Err(e @ device::Error::NoDriver), _) => Err((wrong(e).0, install.into())),
            // A driver that starts but shows no GPU is not at fault.
            (Err(e), _) | (Ok(_), Err(e @ device::Error::Driver { .. })) => Err(wrong(e)),
            (Ok((major, minor)), _) if major >= 13 => Ok(format!("CUDA {major}.{minor}")),
            (Ok((major, minor)), _) => Err((
                format!("CUDA {major}.{minor}, the kernels are built with 13.0"),
                "update the driver to 580 or newer".into(),
            )),
        },
    )
}

fn gpus() -> Finding {
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
            Ok(list) if list.is_empty() => {
                Err(wrong(device::Error::NoDevice("the driver shows none".into())))
            }
            Ok(list) => Ok(list.join(", ")),
            Err(e) => Err(wrong(e)),
        },
    )
}

/// Finds the toolchain as the build does.
fn toolchain() -> Finding {
    let found = compiler::find(Path::new(ROOT));
    finding(
        "toolchain",
        found
            .map(|t| format!("nvcc {} ({})", t.release, t.nvcc.display()))
            .map_err(|why| (why, compiler::way_out(Path::new(ROOT)))),
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
            let build = if compiler::is_checkout(Path::new(ROOT)) {
                "cargo xtask setup && cargo build --release"
            } else {
                "cusync setup && cargo install cusync --force, or CUSYNC_KERNELS=libcusync_kernels.a when building"
            };
            Err(("none in this binary".into(), build.into()))
        } else {
            let names: Vec<_> = archs.iter().map(name).collect();
            Ok(format!("{} for {}", kernels.len(), names.join(", ")))
        },
    )
}

fn host() -> Finding {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Finding { what: "cpu executor", ok: true, detail: format!("{threads} threads"), fix: None }
}
