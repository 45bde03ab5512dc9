//! A fatbin: a header, then entries with the code of one architecture each.

use super::{FIRST_SM, Found, cubin, ptx};

const MAGIC: u32 = 0xba55_ed50;

/// Offsets in the header of an entry, and its shortest length.
mod offset {
    pub(super) const HEADER_BYTES: usize = 4;
    pub(super) const BYTES: usize = 8;
    pub(super) const SM: usize = 28;
    pub(super) const FLAGS: usize = 40;
    pub(super) const END: usize = 64;
}

/// Flags of an entry. `SPECIFIC` is the `a` of sm_90a, `FAMILY` the `f` of sm_100f.
const LZ4: u64 = 1 << 13;
const ZSTD: u64 = 1 << 15;
const SPECIFIC: u64 = 1 << 20;
const FAMILY: u64 = 1 << 21;

pub(super) fn is_fatbin(image: &[u8]) -> bool {
    number::<4>(image, 0) == Some(MAGIC.into())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ptx,
    Cubin,
}

struct Entry<'a> {
    kind: Kind,
    sm: u32,
    flags: u64,
    code: &'a [u8],
}

/// A number of `BYTES` bytes.
fn number<const BYTES: usize>(image: &[u8], at: usize) -> Option<u64> {
    let bytes = image.get(at..at.checked_add(BYTES)?)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| (number << 8) | u64::from(byte)))
}

impl Entry<'_> {
    /// Whether the driver can take it for a GPU of this compute capability.
    fn fits(&self, (major, minor): (u32, u32)) -> bool {
        let same_major = self.sm / 10 == major;
        let older = self.sm <= 10 * major + minor;
        if self.flags & SPECIFIC != 0 {
            return self.sm == 10 * major + minor;
        }
        older && (same_major || (self.kind == Kind::Ptx && self.flags & FAMILY == 0))
    }

    fn scan(&self, kernel: &str) -> Result<Found, String> {
        if self.sm < FIRST_SM {
            return Ok(Found::default());
        }
        if self.flags & (LZ4 | ZSTD) != 0 {
            let sm = self.sm;
            return Err(format!("its code for sm_{sm} is compressed: build it with `nvcc --no-compress`"));
        }
        match self.kind {
            Kind::Cubin => cubin::scan(self.code, kernel),
            Kind::Ptx => ptx::scan(ptx::text(self.code).ok_or("its PTX is no text")?, kernel),
        }
    }
}

/// Searches the code that the driver takes: machine code before PTX, and the newest architecture.
pub(super) fn scan(image: &[u8], kernel: &str, capability: (u32, u32)) -> Result<Found, String> {
    let entries = entries(image).ok_or("the fatbin is damaged")?;
    let fitting = |kind| entries.iter().filter(move |e| e.kind == kind && e.fits(capability));
    let newest = |kind| fitting(kind).map(|entry| entry.sm).max().map(|sm| (kind, sm));
    let Some((kind, sm)) = newest(Kind::Cubin).or_else(|| newest(Kind::Ptx)) else {
        return Err(format!(
            "the image has no code for compute capability {}.{}",
            capability.0, capability.1
        ));
    };
    // The code may be there twice, such as for sm_90 and sm_90a.
    let mut found = fitting(kind).filter(|entry| entry.sm == sm).map(|entry| entry.scan(kernel));
    let first = found.next().unwrap_or_else(|| Err("the fatbin has no code".into()))?;
    for other in found {
        if other? != first {
            return Err(format!("the image has several kinds of code for sm_{sm}, which differ"));
        }
    }
    Ok(first)
}

/// The entries with code, or `None` if a length leads out of the image.
fn entries(image: &[u8]) -> Option<Vec<Entry<'_>>> {
    let first = number::<2>(image, 6)? as usize;
    let mut rest = image.get(first..first.checked_add(number::<8>(image, 8)? as usize)?)?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let header = number::<4>(rest, offset::HEADER_BYTES)? as usize;
        let end = header.checked_add(number::<8>(rest, offset::BYTES)? as usize)?;
        let code = rest.get(header..end).filter(|_| header >= offset::END)?;
        let kind = match number::<2>(rest, 0)? {
            1 => Some(Kind::Ptx),
            2 => Some(Kind::Cubin),
            _ => None,
        };
        if let Some(kind) = kind {
            let (sm, flags) = (number::<4>(rest, offset::SM)? as u32, number::<8>(rest, offset::FLAGS)?);
            found.push(Entry { kind, sm, flags, code });
        }
        rest = &rest[end..];
    }
    Some(found)
}
