//! The target of a plan: the arguments that most commands share, and their resolved form.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use cusync::tune::{PlanCache, Store};
use cusync_gen::check::Executor;
use cusync_gen::device::{DEVICES, Profile};
use cusync_gen::spec::nearest;

use super::fault::Fault;
use super::files;
use super::source::{SPECS, SourceText};

/// A spec with its dims, for a device.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) source: SourceText,
    pub(crate) dims: Vec<(String, u64)>,
    pub(crate) device: Profile,
    /// Whether the user chose the device.
    pub(crate) device_stated: bool,
    /// SMs that a plan for the actual GPU leaves free; already subtracted from `device`.
    pub(crate) free_sms: u32,
    /// `None`: the best predicted executor that can run on the device.
    pub(crate) executor: Option<Executor>,
    /// Custom stages whose kernels the user has given.
    pub(crate) kernels: Vec<String>,
}

#[derive(Args)]
pub(crate) struct TargetArgs {
    /// A RON file, `-` for standard input, or the name of a shipped pipeline (`cusync list`)
    #[arg(value_name = "FILE")]
    pub(crate) file: String,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

#[derive(Args)]
pub(crate) struct PlanArgs {
    /// Override the default of a dim; may be repeated
    #[arg(long = "dim", value_name = "NAME=VALUE", value_parser = dim)]
    pub(crate) dims: Vec<(String, u64)>,
    /// GPU to plan for: h200, h100, a100, l40s, rtx4090, or a RON file with a profile (see codegen/profiles)
    /// [default: the GPU that runs it, else h200]
    #[arg(long, value_name = "NAME or FILE")]
    device: Option<String>,
    /// Number of SMs to leave free for other work, such as kernels next to a session
    #[arg(long, value_name = "N", default_value_t = 0)]
    free_sms: u32,
    /// How to run the pipeline; `auto`: the best predicted executor that can run on the device
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) executor: ExecutorArg,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ExecutorArg {
    Auto,
    Cpu,
    Serial,
    Library,
    Streams,
    Programmatic,
    Fused,
    Copilot,
}

impl ExecutorArg {
    /// Requested executor; `None`: the best.
    pub(crate) fn stated(self) -> Option<Executor> {
        match self {
            ExecutorArg::Auto => None,
            ExecutorArg::Cpu => Some(Executor::Cpu),
            ExecutorArg::Serial => Some(Executor::Serial),
            ExecutorArg::Library => Some(Executor::Library),
            ExecutorArg::Streams => Some(Executor::Streams),
            ExecutorArg::Programmatic => Some(Executor::Programmatic),
            ExecutorArg::Fused => Some(Executor::Fused),
            ExecutorArg::Copilot => Some(Executor::Copilot),
        }
    }
}

/// Selection of tuned plans.
#[derive(Args)]
pub(crate) struct CacheArgs {
    /// Take tuned plans from this file instead of the user's cache
    #[arg(long, value_name = "FILE", conflicts_with = "no_cache")]
    cache: Option<PathBuf>,
    /// Ignore tuned plans
    #[arg(long)]
    no_cache: bool,
}

impl CacheArgs {
    /// Reads the cache. An unreadable file is an error; without a cache folder the cache is empty.
    pub(crate) fn load(&self) -> Result<PlanCache, Fault> {
        let store = match (&self.cache, self.no_cache) {
            (None, true) => return Ok(PlanCache::default()),
            (Some(file), _) => Store::at(file),
            (None, false) => match Store::usual() {
                Ok(store) => store,
                Err(_) => return Ok(PlanCache::default()),
            },
        };
        Ok(store.load()?)
    }
}

impl TargetArgs {
    /// Reads the spec and resolves names.
    pub(crate) fn resolve(self) -> Result<Target, Fault> {
        let TargetArgs { file, plan } = self;
        Ok(Target {
            source: SourceText::find(&file, &SPECS)?,
            dims: plan.dims.clone(),
            device: plan.device()?,
            device_stated: plan.device.is_some(),
            free_sms: plan.free_sms,
            executor: plan.executor.stated(),
            kernels: Vec::new(),
        })
    }
}

impl PlanArgs {
    /// The requested profile, less the SMs to leave free.
    pub(crate) fn device(&self) -> Result<Profile, Fault> {
        without(profile(self.device.as_deref().unwrap_or("h200"))?, self.free_sms)
    }
}

/// Profile of a GPU with `free_sms` SMs left free.
fn without(whole: Profile, free_sms: u32) -> Result<Profile, Fault> {
    if free_sms >= whole.sms {
        let message =
            format!("{free_sms} SMs are to be left free of the {} that {} has", whole.sms, whole.name);
        return Err(Fault::input("free-sms", message).help("leave at least one to the plan"));
    }
    Ok(Profile { sms: whole.sms - free_sms, ..whole })
}

impl Target {
    /// Profile to plan for if a GPU runs the plan: that GPU's own, or the requested one. A plan for another
    /// GPU runs if the kernels exist and as many CTAs are resident as it assumes, so some SMs of a GPU can be
    /// left to others.
    pub(crate) fn device_on(&self, own: Profile) -> Result<Profile, Fault> {
        let stated = &self.device;
        if !self.device_stated {
            return without(own, self.free_sms);
        }
        let help = "leave --device out, or ask for the cpu executor";
        if stated.arch > own.arch {
            let message =
                format!("{} runs no kernels for {}, whose architecture is newer", own.name, stated.name);
            return Err(Fault::input("other-device", message).help(help));
        }
        if stated.sms > own.sms {
            let message = format!(
                "{} has {} SMs, and a plan for {} counts on {}",
                own.name, own.sms, stated.name, stated.sms
            );
            return Err(Fault::input("other-device", message).help(help));
        }
        Ok(stated.clone())
    }
}

/// Parses `NAME=VALUE`.
pub(crate) fn dim(text: &str) -> Result<(String, u64), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            let value = value.parse().map_err(|_| format!("`{value}` is not a positive whole number"))?;
            Ok((name.into(), value))
        }
        _ => Err("write NAME=VALUE, such as M=1024".into()),
    }
}

/// Profile with this name, or in this file.
pub(crate) fn profile(name: &str) -> Result<Profile, Fault> {
    if let Some(shipped) = Profile::named(name) {
        return Ok(shipped.clone());
    }
    if name.ends_with(".ron") {
        let text =
            files::read(Path::new(name)).map_err(|fault| fault.help("it would be a device profile"))?;
        let source = SourceText::new(text, name);
        return Profile::from_ron(&source.text).map_err(|d| source.refused(&d));
    }
    let names = || DEVICES.iter().map(|d| d.name.as_str());
    let near = nearest(name, names()).map(|n| format!("did you mean `{n}`? "));
    let all = names().collect::<Vec<_>>().join(", ");
    Err(Fault::input("unknown-device", format!("no device profile `{name}`"))
        .help(near.unwrap_or_default() + "profiles: " + &all + ", or a file that ends in .ron")
        .help(
            "`cusync calibrate -o mine.ron` measures a profile of the GPU at hand; then `--device mine.ron`",
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_product_is_no_slip_and_every_profile_is_named() {
        for (name, meant) in [("b200", None), ("rtx5090", None), ("rxt4090", Some("rtx4090"))] {
            let fault = profile(name).expect_err("no profile");
            let help = fault.help.expect("a way out");
            let guess = help.split("did you mean `").nth(1).and_then(|rest| rest.split('`').next());
            assert_eq!(guess, meant, "{help}");
            assert!(help.contains("cusync calibrate"), "{help}");
            assert!(DEVICES.iter().all(|device| help.contains(&device.name)), "{help}");
        }
    }

    #[test]
    fn a_plan_for_another_gpu_runs_where_its_kernels_and_workers_do() {
        let device = |name: &str| profile(name).expect("it ships");
        let stated = |device: Profile, device_stated| Target {
            source: SourceText::new("", ""),
            dims: Vec::new(),
            device,
            device_stated,
            free_sms: 0,
            executor: None,
            kernels: Vec::new(),
        };
        let own = || device("h200");
        assert_eq!(stated(device("a100"), false).device_on(own()).expect("the GPU's own").name, "h200");
        assert_eq!(stated(device("a100"), true).device_on(own()).expect("older kernels run").name, "a100");
        let fewer = Profile { sms: 116, ..own() };
        assert_eq!(stated(fewer, true).device_on(own()).expect("16 SMs are left free").sms, 116);
        let free = |free_sms| Target { free_sms, ..stated(own(), false) };
        assert_eq!(free(16).device_on(own()).expect("16 SMs are left free").sms, 116);
        let says = |stated: Target, own: Profile| match stated.device_on(own) {
            Ok(found) => panic!("planned for {}", found.name),
            Err(fault) => fault.message,
        };
        assert!(says(stated(own(), true), device("a100")).contains("runs no kernels for h200"));
        assert!(says(free(132), own()).contains("132 SMs are to be left free of the 132 that h200 has"));
        assert!(
            says(stated(Profile { sms: 133, ..own() }, true), own())
                .contains("has 132 SMs, and a plan for h200 counts on 133")
        );
    }
}
