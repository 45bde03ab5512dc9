//! Errors of commands.

use cusync::reference::ReferenceError;
use cusync::runtime::cpu::CpuError;
use cusync::{device, programs, runtime, tune};
use cusync_bench as bench;
use serde::Serialize;

use super::report::ObstacleReport;

/// An error, ready to print: message, place and suggested fix. Its JSON is a stable contract: docs/json.md.
#[derive(Debug, Serialize)]
pub(crate) struct Fault {
    /// Stable short name from the table in docs/json.md.
    pub(crate) code: &'static str,
    /// Message without `error:` and without the suggested fix.
    pub(crate) message: String,
    /// Suggested fixes, one per line.
    pub(crate) help: Option<String>,
    #[serde(flatten)]
    pub(crate) place: Box<Location>,
    /// Obstacles that keep executors from running a pipeline, if these are the error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) obstacles: Vec<ObstacleReport>,
    /// Exit status: 2 for bad input or a missing part of the machine, 1 for a refuted spec or a wrong result.
    pub(crate) status: u8,
}

/// Location of an error, if known.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Location {
    /// File as named by the user.
    pub(crate) file: Option<String>,
    /// Line in that file, from 1.
    pub(crate) line: Option<usize>,
    /// Column in characters, from 1.
    pub(crate) column: Option<usize>,
    /// Complete readable text, with the lines of the file.
    #[serde(skip)]
    pub(crate) page: Option<String>,
}

impl Fault {
    /// Bad input or a missing part of the machine. Lines that begin with `help:` become suggested fixes.
    pub(crate) fn input(code: &'static str, text: impl AsRef<str>) -> Self {
        let mut fault = Fault {
            code,
            message: String::new(),
            help: None,
            place: Box::default(),
            obstacles: Vec::new(),
            status: 2,
        };
        for line in text.as_ref().lines() {
            match line.trim_start().strip_prefix("help: ") {
                Some(help) => fault = fault.help(help),
                None if fault.message.is_empty() => fault.message = line.to_owned(),
                None => fault.message.extend(["\n", line]),
            }
        }
        fault
    }

    /// A result that is wrong or refuted.
    pub(crate) fn refuted(code: &'static str, text: impl AsRef<str>) -> Self {
        Fault { status: 1, ..Fault::input(code, text) }
    }

    /// Adds a suggested fix.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        let help = help.into();
        self.help = Some(match self.help {
            Some(earlier) => format!("{earlier}\n{help}"),
            None => help,
        });
        self
    }

    /// Sets the file that contains the error.
    pub(crate) fn in_file(mut self, file: impl Into<String>) -> Self {
        self.place.file = Some(file.into());
        self
    }

    /// Adds obstacles that keep executors from running the pipeline.
    pub(crate) fn obstacles(self, obstacles: Vec<ObstacleReport>) -> Self {
        Fault { obstacles, ..self }
    }

    /// Takes the location of a JSON error.
    pub(crate) fn in_json(mut self, error: &serde_json::Error) -> Self {
        // Errors about the shape of a value have no location.
        let place = (error.line() > 0).then(|| (error.line(), error.column()));
        (self.place.line, self.place.column) = place.unzip();
        self
    }

    /// Complete readable text.
    pub(crate) fn text(&self) -> String {
        self.place.page.clone().unwrap_or_else(|| {
            let mut text = format!("error: {}", self.message);
            for help in self.help.iter().flat_map(|help| help.lines()) {
                text.push_str(&format!("\n  help: {help}"));
            }
            text
        })
    }
}

impl From<device::Error> for Fault {
    fn from(error: device::Error) -> Self {
        use device::Error as E;
        let code = match &error {
            E::NoDriver | E::Unloadable(_) => "no-driver",
            E::NoDevice(_) => "no-gpu",
            E::Driver { .. } => "driver",
            E::NotBuilt(_) => "not-built",
            E::BadArgument(_) | E::Length { .. } => "bad-argument",
            E::Runtime { .. } => "cuda-runtime",
            E::NoLibrary(_) => "no-library",
            E::Code { file, .. } => {
                return Fault::input("kernel-code", error.to_string()).in_file(file);
            }
            E::Library { .. } => "library",
            E::NoHostMemory(_) => "host-memory",
            E::Unconnected { .. } => "unconnected",
            E::NoDeviceMemory { .. } => "device-memory",
            E::Unmovable { .. } => "bad-program",
        };
        Fault::input(code, error.to_string())
    }
}

impl From<CpuError> for Fault {
    fn from(error: CpuError) -> Self {
        use CpuError as E;
        let code = match &error {
            E::Starved { .. } | E::StarvedSlab { .. } | E::NoSums { .. } | E::OtherDevice(_) => {
                return Fault::refuted("starved", error.to_string());
            }
            E::NoGroup { .. } => "unsupported",
            E::NoInput(_) | E::NoTensor(_) | E::Integers { .. } => "unbound",
            E::Cache { .. } => "cache-full",
            E::SharedPage { .. } => "shared-page",
            E::TooFewPages(_) => "few-pages",
            E::NoCustomStage(_) | E::NoKernel(_) | E::SplitCustom(_) => "custom-arithmetic",
            E::NoMemory { .. } => "host-memory",
            E::Panicked(_) => return Fault::refuted("panicked", error.to_string()),
        };
        Fault::input(code, error.to_string())
    }
}

impl From<ReferenceError> for Fault {
    fn from(error: ReferenceError) -> Self {
        use ReferenceError as E;
        let code = match &error {
            E::NoInput(_) => "unbound",
            E::NoCustom(_) => "custom-arithmetic",
            E::Shape(_) => "bad-argument",
            E::Devices { .. } | E::Executor(_) => "unsupported",
        };
        Fault::input(code, error.to_string())
    }
}

impl From<runtime::Error> for Fault {
    fn from(error: runtime::Error) -> Self {
        use runtime::Error as E;
        let text = error.to_string();
        let code = match error {
            E::Device(error) => return error.into(),
            E::Host(error) => return error.into(),
            E::Starved { .. } | E::NoSums { .. } => return Fault::refuted("starved", text),
            E::Cache { .. } => "cache-full",
            E::NoKernel(_) => "custom-arithmetic",
            E::SharedPage { .. } => "shared-page",
            E::Poisoned(_) => "poisoned",
            E::Unbound { .. } | E::Bound(_) | E::NotBindable(..) => "unbound",
            E::NotProved { .. } => "not-proved",
            E::OtherDevice { .. } => "other-device",
            E::Unfinished { .. } => "unfinished",
            E::Refused(_) => "refused",
            E::Unsupported(_) => "unsupported",
        };
        Fault::input(code, text)
    }
}

impl From<programs::Error> for Fault {
    fn from(error: programs::Error) -> Self {
        use programs::Error as E;
        let text = error.to_string();
        let code = match error {
            E::Device(error) => return error.into(),
            E::Dag(_) | E::NoBuffer(_) | E::OtherProgram | E::Addresses => "bad-program",
            E::NoMemory { .. } | E::NothingCaptured => "bad-program",
            E::NotOffered | E::TooOld(_) => "unsupported",
            E::Opaque { .. } | E::NotOpaque(_) | E::Lent { .. } => "bad-program",
            E::NeverWaits { .. } | E::NeverTriggers { .. } => return Fault::refuted("contradicted", text),
            E::Unproved(_) => return Fault::refuted("unproved", text),
            E::Late { .. } => return Fault::refuted("starved", text),
        };
        Fault::input(code, text)
    }
}

impl From<bench::Error> for Fault {
    fn from(error: bench::Error) -> Self {
        use bench::Error as E;
        let text = error.to_string();
        let code = match error {
            E::Runtime(error) => return error.into(),
            E::Device(error) => return error.into(),
            E::Dag(error) => return error.into(),
            E::Wrong { .. } => return Fault::refuted("wrong-result", text),
            E::Plan(_) => "refused",
            E::Argument(_) => "bad-argument",
        };
        Fault::input(code, text)
    }
}

impl From<cusync::SessionError> for Fault {
    fn from(error: cusync::SessionError) -> Self {
        use cusync::SessionError as E;
        let code = match error {
            E::Runtime(error) => return error.into(),
            E::Host(error) => return error.into(),
            E::Plan(error) => return error.into(),
            E::Reference(error) => return error.into(),
            E::Device { device, error } => {
                let fault = Fault::from(*error);
                return Fault { message: format!("device {device}: {}", fault.message), ..fault };
            }
            E::NoSpec(_) => "not-shipped",
            E::NoDevice { .. } => "bad-argument",
            E::NoTensor { .. } | E::Produced(_) | E::Type(_) | E::Length { .. } => "unbound",
            E::Elsewhere(_) => "unsupported",
        };
        Fault::input(code, error.to_string())
    }
}

#[cfg(feature = "models")]
impl From<cusync_models::Error> for Fault {
    fn from(error: cusync_models::Error) -> Self {
        use cusync_models::Error as E;
        let text = error.to_string();
        let code = match error {
            E::Session(error) => return error.into(),
            E::File { path, .. } => {
                return Fault::input("model-file", text).in_file(path.display().to_string());
            }
            E::Architecture { .. } => "architecture",
            E::Config(_) => "model-config",
            E::Weight { .. } => "model-weight",
            E::Memory { .. } => "device-memory",
            E::Slot { .. } | E::Request(_) => "request",
        };
        Fault::input(code, text)
    }
}

impl From<tune::Error> for Fault {
    fn from(error: tune::Error) -> Self {
        use tune::Error as E;
        let text = error.to_string();
        let (code, path, place) = match error {
            E::Measure(error) => return error.into(),
            E::File { path, .. } => ("tuned-file", Some(path), None),
            E::Corrupt { path, place, .. } => ("tuned-corrupt", Some(path), place),
            E::Version { path, .. } => ("tuned-version", Some(path), None),
            E::NoFolder(_) => ("no-folder", None, None),
            E::Refused(_) => ("refused", None, None),
            E::Unsupported(_) => ("unsupported", None, None),
        };
        let (line, column) = place.unzip();
        let file = path.map(|path| path.display().to_string());
        let place = Box::new(Location { file, line, column, page: None });
        Fault { place, ..Fault::input(code, text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_out_of_an_error_of_the_library_is_no_part_of_the_message() {
        let fault = Fault::from(runtime::Error::Device(device::Error::NoDriver)).help("or --simulate");
        assert_eq!((fault.code, fault.status), ("no-driver", 2));
        assert_eq!(fault.message, "no NVIDIA driver was found (libcuda.so.1)");
        assert_eq!(
            fault.help.as_deref(),
            Some("install the driver; the cpu executor needs none\nor --simulate")
        );
        assert!(fault.text().ends_with("needs none\n  help: or --simulate"), "{}", fault.text());
    }
}
