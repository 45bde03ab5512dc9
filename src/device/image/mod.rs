//! Images of kernels, and whether the code of a kernel has the instructions of programmatic edges. Bytes are read here, no
//! driver is called.

mod cubin;
mod fatbin;
mod ptx;

use std::borrow::Cow;
use std::sync::Arc;

/// Kernels of the kernel-level suite in the driver's format; empty if they were not built.
static SUITE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/suite.fatbin"));

/// First architecture with programmatic edges: code for older ones cannot have their instructions.
const FIRST_SM: u32 = 90;

/// Whether code has an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It has.
    Present,
    /// It has not.
    Absent,
    /// The reason why this is unknown.
    Unknown(Cow<'static, str>),
}

/// Which instructions of programmatic edges a kernel has, in its own code or in functions that it calls. Whether every
/// thread reaches them in time is not judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridControl {
    /// `griddepcontrol.wait` (`cudaGridDependencySynchronize()`).
    pub wait: Presence,
    /// `griddepcontrol.launch_dependents` (`cudaTriggerProgrammaticLaunchCompletion()`).
    pub trigger: Presence,
}

impl GridControl {
    /// Nothing is known, for this reason.
    pub fn unknown(why: impl Into<Cow<'static, str>>) -> GridControl {
        let unknown = Presence::Unknown(why.into());
        GridControl { wait: unknown.clone(), trigger: unknown }
    }
}

/// Kernels in a format that the driver loads: a cubin, a fatbin or PTX.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    bytes: Arc<Cow<'static, [u8]>>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} bytes)", self.bytes.len())
    }
}

impl From<&[u8]> for Image {
    fn from(bytes: &[u8]) -> Image {
        Image { bytes: Arc::new(Cow::Owned(bytes.to_vec())) }
    }
}

impl Image {
    /// The kernels of `csrc/suite`; `None` if the binary was built without nvcc.
    pub fn suite() -> Option<Image> {
        (!SUITE.is_empty()).then(|| Image { bytes: Arc::new(Cow::Borrowed(SUITE)) })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The instructions of a kernel, in the code that the driver takes for a GPU of this compute capability.
    pub fn grid_control(&self, kernel: &str, capability: (u32, u32)) -> GridControl {
        if capability.0 * 10 < FIRST_SM {
            return GridControl::unknown("the GPU is older than programmatic edges");
        }
        match scan(&self.bytes, kernel, capability) {
            Ok(found) => found.into(),
            Err(why) => GridControl::unknown(why),
        }
    }
}

/// What a search through the code of a kernel has found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    wait: bool,
    trigger: bool,
    /// The reason why some of the code could not be searched.
    unseen: Option<String>,
}

impl From<Found> for GridControl {
    fn from(found: Found) -> GridControl {
        let presence = |present| match &found.unseen {
            _ if present => Presence::Present,
            Some(why) => Presence::Unknown(why.clone().into()),
            None => Presence::Absent,
        };
        GridControl { wait: presence(found.wait), trigger: presence(found.trigger) }
    }
}

/// Searches the code of a kernel, or says why that is impossible.
fn scan(image: &[u8], kernel: &str, capability: (u32, u32)) -> Result<Found, String> {
    if fatbin::is_fatbin(image) {
        fatbin::scan(image, kernel, capability)
    } else if image.starts_with(b"\x7fELF") {
        cubin::scan(image, kernel)
    } else if let Some(text) = ptx::text(image) {
        ptx::scan(text, kernel)
    } else {
        Err("the image is no cubin, fatbin or PTX".into())
    }
}

fn no_kernel(kernel: &str) -> String {
    format!("the image has no kernel `{kernel}`")
}

#[cfg(test)]
mod tests;
