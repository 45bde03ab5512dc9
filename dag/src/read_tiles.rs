//! Reads the accesses of each CTA of a kernel from a RON file.

use std::collections::BTreeMap;

use cusync_gen::diagnostic::{Diagnostic, Spanned};
use cusync_gen::spec::ron_text::{RonText, suggest};
use ron::value::RawValue;
use serde::Deserialize;

use super::program::{Access, LaunchConfig, MAX_US, Program, is_duration};
use super::refine::{TileAccesses, TileBytes};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename = "Tiles")]
struct RawTiles<'a> {
    #[serde(borrow, default)]
    bytes: Option<&'a RawValue>,
    #[serde(borrow, default)]
    spread_us: Option<&'a RawValue>,
    #[serde(default)]
    early_trigger: bool,
}

#[derive(Deserialize)]
enum RawBytes<'a> {
    /// Every CTA accesses everything.
    All,
    /// This many bytes per CTA, consecutively.
    Each(#[serde(borrow)] &'a RawValue),
    /// The same, starting from the end.
    Reversed(#[serde(borrow)] &'a RawValue),
    /// This many bytes per CTA, plus this many on both sides.
    Halo(#[serde(borrow)] &'a RawValue, #[serde(borrow)] &'a RawValue),
}

/// The tiles of a kernel with these accesses.
///
/// # Errors
/// The first fault, with its location and how to fix it.
pub(super) fn tiles(
    ron: RonText<'_>,
    raw: &RawValue,
    dims: &[(String, i64)],
    program: &Program,
    accesses: &[Access],
    launch: &LaunchConfig,
) -> Result<TileAccesses, Diagnostic> {
    let stated: Spanned<RawTiles> = ron.value(raw, "`Tiles(bytes: {...})`")?;
    let mut bytes = vec![TileBytes::All; accesses.len()];
    // The accesses of each buffer, in order.
    let mut named: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, access) in accesses.iter().enumerate() {
        named.entry(&program.buffers()[access.buffer.index()].name).or_default().push(i);
    }
    for (name, raw) in ron.map(stated.value.bytes, "a map from buffers to what a CTA touches of them")? {
        let Some(places) = named.get(name.value.as_str()) else {
            let message = format!("the kernel does not access `{}`", name.value.escape_debug());
            let fault = Diagnostic::new("unknown-buffer", message).at(name.span, "not among its buffers");
            return Err(suggest(fault, &name.value, &named.keys().copied().collect::<Vec<_>>()));
        };
        let tile = one(ron, raw, dims, launch.ctas())?;
        places.iter().for_each(|&place| bytes[place] = tile);
    }
    let spread_us = match stated.value.spread_us {
        Some(raw) => duration(ron, raw, "spread")?,
        None => 0.0,
    };
    let tiles = TileAccesses { bytes, spread_us, early_trigger: stated.value.early_trigger };
    match tiles.fault(launch, accesses) {
        None => Ok(tiles),
        Some(fault) => Err(Diagnostic::new("bad-tiles", format!("the tiles have {fault}"))
            .at(stated.span, "these")
            .help(
                "state for each buffer what a CTA touches of it, so that all CTAs together touch all bytes",
            )),
    }
}

fn one(ron: RonText<'_>, raw: &RawValue, dims: &[(String, i64)], ctas: u64) -> Result<TileBytes, Diagnostic> {
    let number = |raw| {
        let number = ron.number(raw, dims)?;
        // Products with the number of CTAs stay far within 64 bits.
        match (0..1 << 40).contains(&number.value) {
            true => Ok(number.value),
            false => Err(Diagnostic::new("number-range", format!("{} bytes of a CTA", number.value))
                .at(number.span, format!("evaluates to {}", number.value))
                .help("state a number from 0 to 2^40")),
        }
    };
    let stated: Spanned<RawBytes> =
        ron.value(raw, "`All`, `Each(bytes)`, `Reversed(bytes)` or `Halo(bytes, halo)`")?;
    Ok(match stated.value {
        RawBytes::All => TileBytes::All,
        RawBytes::Each(raw) => {
            let each = number(raw)?;
            TileBytes::Strided { first: 0, stride: each, bytes: each as u64 }
        }
        RawBytes::Reversed(raw) => {
            let each = number(raw)?;
            TileBytes::Strided { first: (ctas as i64 - 1) * each, stride: -each, bytes: each as u64 }
        }
        RawBytes::Halo(each, halo) => {
            let (each, halo) = (number(each)?, number(halo)?);
            TileBytes::Strided { first: -halo, stride: each, bytes: (each + 2 * halo) as u64 }
        }
    })
}

/// A time stated in a file, from 0 to [`MAX_US`]; `noun` names the timed object.
pub(super) fn duration(ron: RonText<'_>, raw: &RawValue, noun: &str) -> Result<f64, Diagnostic> {
    let us: Spanned<f64> = ron.value(raw, "a time in microseconds")?;
    if is_duration(us.value) {
        return Ok(us.value);
    }
    Err(Diagnostic::new("number-range", format!("a {noun} of {:?} us", us.value))
        .at(us.span, "not such a time")
        .help(format!("a {noun} is a number from 0 to {MAX_US}, an hour")))
}
