//! Reads a program from a RON file.

use std::collections::{HashMap, HashSet};

use cusync_gen::device::Profile;
use cusync_gen::diagnostic::{Diagnostic, Spanned};
use cusync_gen::spec::ron_text::{RonText, Slice, bare, suggest};
use ron::value::RawValue;
use serde::Deserialize;

use super::program::{
    Access, AccessMode, BufferId, Direction, Kernel, LaunchConfig, MAX_GRID_YZ, Node, NodeWork, Program,
    ZoneId,
};
use super::read_tiles::{duration, tiles as tiles_of};

/// Maximum size of a file, bytes.
pub const MAX_SOURCE: usize = 1 << 24;

/// Minimum estimated time of a kernel, microseconds.
const SHORTEST_US: f64 = 2.0;

/// Estimated time of a kernel, microseconds: that of its traffic or of its arithmetic, whichever is longer, at least 2.
pub fn estimate_us(traffic_bytes: u64, flops: u64, device: &Profile) -> f64 {
    let (memory, products) = (traffic_bytes as f64 / device.read_tbs, flops as f64 / device.tflops);
    f64::max(SHORTEST_US, f64::max(memory, products) / 1e6)
}

/// Estimated time of a copy between host and device, microseconds: a PCIe 5 link transfers about 50 GB/s, and a copy takes
/// 2 us to begin.
pub fn copy_us(bytes: u64) -> f64 {
    2.0 + bytes as f64 / 50e3
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dag<'a> {
    #[serde(borrow)]
    name: &'a RawValue,
    #[serde(borrow, default)]
    dims: Option<&'a RawValue>,
    #[serde(borrow)]
    buffers: &'a RawValue,
    #[serde(borrow, default)]
    temporary: Option<&'a RawValue>,
    #[serde(borrow, default)]
    zones: Option<&'a RawValue>,
    #[serde(borrow)]
    nodes: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
enum RawNode<'a> {
    Kernel {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow, default)]
        reads: Option<&'a RawValue>,
        #[serde(borrow, default)]
        writes: Option<&'a RawValue>,
        #[serde(borrow, default)]
        updates: Option<&'a RawValue>,
        #[serde(borrow, default)]
        us: Option<&'a RawValue>,
        #[serde(borrow, default)]
        grid: Option<&'a RawValue>,
        #[serde(borrow, default)]
        block: Option<&'a RawValue>,
        #[serde(borrow, default)]
        shared: Option<&'a RawValue>,
        #[serde(borrow, default)]
        ctas_per_sm: Option<&'a RawValue>,
        #[serde(borrow, default)]
        traffic: Option<&'a RawValue>,
        #[serde(borrow, default)]
        flops: Option<&'a RawValue>,
        #[serde(default)]
        programmatic: bool,
        #[serde(borrow, default)]
        tiles: Option<&'a RawValue>,
        #[serde(borrow, default)]
        zone: Option<&'a RawValue>,
    },
    ToDevice {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow)]
        writes: &'a RawValue,
        #[serde(borrow, default)]
        us: Option<&'a RawValue>,
        #[serde(borrow, default)]
        zone: Option<&'a RawValue>,
    },
    ToHost {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow)]
        reads: &'a RawValue,
        #[serde(borrow, default)]
        us: Option<&'a RawValue>,
        #[serde(borrow, default)]
        zone: Option<&'a RawValue>,
    },
}

/// Reads a program. `overrides` replace defaults of dims; `device` provides durations that the file does not state.
///
/// # Errors
/// The first fault, with its location and how to fix it.
pub fn parse(text: &str, overrides: &[(String, u64)], device: &Profile) -> Result<Program, Diagnostic> {
    if text.len() > MAX_SOURCE {
        return Err(Diagnostic::new("too-long", format!("the program has {} bytes", text.len()))
            .help(format!("a program has at most {MAX_SOURCE} bytes")));
    }
    let ron = RonText::new(text);
    let raw: Dag = ron.whole("`Dag(name: ..., buffers: {...}, nodes: [...])`")?;
    let dims = dims(ron, raw.dims, overrides)?;
    let program = Program::new(ron.word(raw.name, "a name in quotes")?.value);
    // The program's own zone has the program's name.
    let zones = HashMap::from([(program.name().to_owned(), ZoneId(0))]);
    let mut reader = Reader { ron, dims, device, program, buffers: HashMap::new(), zones };
    reader.buffers(Some(raw.buffers), true)?;
    let temporary = reader.buffers(raw.temporary, false)?;
    for (name, raw) in ron.map(raw.zones, "a map from zones to priorities")? {
        let priority: Spanned<i32> = ron.value(raw, "a priority: a whole number")?;
        let zone = reader.program.zone(name.value.clone(), priority.value);
        reader.zones.entry(name.value).or_insert(zone);
    }
    let nodes = ron.list(Some(raw.nodes), "a list of nodes")?;
    if nodes.is_empty() {
        return Err(Diagnostic::new("no-nodes", "the program has no nodes")
            .at(ron.span(raw.nodes), "empty")
            .help("add a node, such as `Kernel(name: \"square\", reads: \"x\", writes: \"y\", us: 3.0)`"));
    }
    for raw in nodes {
        reader.node(raw)?;
    }
    reader.written(&temporary)?;
    Ok(reader.program)
}

fn dims(
    ron: RonText<'_>,
    raw: Option<&RawValue>,
    overrides: &[(String, u64)],
) -> Result<Vec<(String, i64)>, Diagnostic> {
    let mut dims: Vec<(String, i64)> = Vec::new();
    for (name, raw) in ron.map(raw, "a map from dims to numbers")? {
        let default = ron.number(raw, &dims)?;
        // The last override wins, as on a command line.
        let stated = overrides.iter().rev().find(|(dim, _)| *dim == name.value);
        let value = match stated {
            Some(&(_, value)) => i64::try_from(value).unwrap_or(i64::MAX),
            None => default.value,
        };
        if !(1..=i64::from(i32::MAX)).contains(&value) {
            return Err(Diagnostic::new("dim-range", format!("dim `{}` is {value}", name.value))
                .at(default.span, if stated.is_some() { "overridden" } else { "stated here" })
                .help("a dim is at least 1 and below 2^31"));
        }
        dims.push((name.value, value));
    }
    if let Some((name, _)) = overrides.iter().find(|(name, _)| !dims.iter().any(|(dim, _)| dim == name)) {
        let known: Vec<_> = dims.iter().map(|(dim, _)| dim.as_str()).collect();
        let message = format!("the override names the unknown dim `{}`", name.escape_debug());
        let diagnostic = match raw {
            Some(raw) => {
                Diagnostic::new("unknown-dim", message).at(ron.span(raw), "the dims of this program")
            }
            None => Diagnostic::new("unknown-dim", message).help("the program has no dims"),
        };
        return Err(suggest(diagnostic, name, &known));
    }
    Ok(dims)
}

struct Reader<'a> {
    ron: RonText<'a>,
    dims: Vec<(String, i64)>,
    device: &'a Profile,
    program: Program,
    /// Buffers and zones are looked up by name; a program may have hundreds of thousands.
    buffers: HashMap<String, BufferId>,
    zones: HashMap<String, ZoneId>,
}

impl<'a> Reader<'a> {
    /// A number from `least` to `most`.
    fn number(&self, raw: &'a RawValue, noun: &str, least: i64, most: i64) -> Result<u64, Diagnostic> {
        let number = self.ron.number(raw, &self.dims)?;
        if !(least..=most).contains(&number.value) {
            return Err(Diagnostic::new("number-range", format!("{noun} is {}", number.value))
                .at(number.span, format!("evaluates to {}", number.value))
                .help(format!("state a number from {least} to {most}")));
        }
        Ok(number.value as u64)
    }

    /// Adds buffers; returns where each is stated.
    fn buffers(
        &mut self,
        raw: Option<&'a RawValue>,
        external: bool,
    ) -> Result<Vec<(Spanned<String>, BufferId)>, Diagnostic> {
        let mut stated = Vec::new();
        for (name, raw) in self.ron.map(raw, "a map from buffers to bytes")? {
            let bytes = self.number(raw, "the size of the buffer", 1, 1 << 46)?;
            if self.buffers.contains_key(&name.value) {
                return Err(Diagnostic::new(
                    "duplicate-key",
                    format!("buffer `{}` is stated twice", name.value),
                )
                .at(name.span, "stated again")
                .help("keep it either in `buffers` or in `temporary`"));
            }
            let buffer = if external {
                self.program.buffer(name.value.clone(), bytes)
            } else {
                self.program.temporary(name.value.clone(), bytes)
            };
            self.buffers.insert(name.value.clone(), buffer);
            stated.push((name, buffer));
        }
        Ok(stated)
    }

    /// Checks that every temporary buffer is written, since it starts without contents.
    fn written(&self, temporary: &[(Spanned<String>, BufferId)]) -> Result<(), Diagnostic> {
        let (mut read, mut written) = (HashSet::new(), HashSet::new());
        for access in self.program.nodes().iter().flat_map(|node| &node.accesses) {
            if access.mode.reads() {
                read.insert(access.buffer);
            }
            if access.mode.writes() {
                written.insert(access.buffer);
            }
        }
        for (Spanned { value: name, span }, buffer) in temporary {
            if read.contains(buffer) && !written.contains(buffer) {
                return Err(Diagnostic::new("never-written", format!("`{name}` is read and never written"))
                    .at(*span, "temporary: it begins with nothing in it")
                    .help("add the kernel that writes it, or move it to `buffers` if it is filled outside"));
            }
        }
        Ok(())
    }

    fn accesses(&self, raw: Option<&'a RawValue>, mode: AccessMode) -> Result<Vec<Access>, Diagnostic> {
        let list = self.ron.list(raw, "a buffer in quotes, or a list of them")?;
        list.into_iter().map(|raw| self.access(raw, mode)).collect()
    }

    fn access(&self, raw: &'a RawValue, mode: AccessMode) -> Result<Access, Diagnostic> {
        let Slice { name, range } = self.ron.slice(raw, &self.dims)?;
        let buffers = self.program.buffers();
        let Some(&buffer) = self.buffers.get(&name.value) else {
            let names: Vec<_> = buffers.iter().map(|b| b.name.as_str()).collect();
            let diagnostic =
                Diagnostic::new("unknown-buffer", format!("there is no buffer `{}`", name.value))
                    .at(name.span, "not in `buffers` nor in `temporary`");
            return Err(suggest(diagnostic, &name.value, &names));
        };
        let size = buffers[buffer.index()].bytes;
        let bytes = match range {
            None => 0..size,
            Some(Spanned { value: (first, end), span }) => {
                let good = first >= 0 && first < end && u64::try_from(end).is_ok_and(|end| end <= size);
                if !good {
                    return Err(Diagnostic::new(
                        "bytes-range",
                        format!("bytes {first}..{end} of `{}`", name.value),
                    )
                    .at(span, format!("the buffer has {size} bytes"))
                    .help(format!("state a range inside 0..{size} that is not empty")));
                }
                first as u64..end as u64
            }
        };
        Ok(Access { buffer, bytes, mode })
    }

    fn us(&self, raw: Option<&'a RawValue>, estimate: f64) -> Result<f64, Diagnostic> {
        let Some(raw) = raw else { return Ok(estimate) };
        duration(self.ron, raw, "duration")
    }

    fn zone(&self, raw: Option<&'a RawValue>) -> Result<ZoneId, Diagnostic> {
        let Some(raw) = raw else { return Ok(ZoneId(0)) };
        let name = self.ron.word(raw, "a zone's name in quotes")?;
        match self.zones.get(&name.value) {
            Some(&zone) => Ok(zone),
            None => {
                let names: Vec<_> = self.program.zones().iter().map(|z| z.name.as_str()).collect();
                let diagnostic =
                    Diagnostic::new("unknown-zone", format!("there is no zone `{}`", name.value))
                        .at(name.span, "not in `zones`");
                Err(suggest(diagnostic, &name.value, &names))
            }
        }
    }

    /// A CTA may use the shared memory of an SM except the 1 KiB reserved by the driver.
    fn most_shared(&self) -> i64 {
        i64::from(self.device.shared_per_sm) - 1024
    }

    fn triple(&self, raw: Option<&'a RawValue>, noun: &str, most: [i64; 3]) -> Result<[u32; 3], Diagnostic> {
        let Some(raw) = raw else { return Ok([1, 1, 1]) };
        if !bare(raw).starts_with('(') {
            return Ok([self.number(raw, noun, 1, most[0])? as u32, 1, 1]);
        }
        let three: Result<Spanned<(&RawValue, &RawValue, &RawValue)>, _> =
            self.ron.value(raw, "a number, (x, y) or (x, y, z)");
        let (x, y, z) = match three {
            Ok(Spanned { value: (x, y, z), .. }) => (x, y, Some(z)),
            Err(_) => {
                let two: Spanned<(&RawValue, &RawValue)> =
                    self.ron.value(raw, "a number, (x, y) or (x, y, z)")?;
                (two.value.0, two.value.1, None)
            }
        };
        let size = |raw, most| self.number(raw, noun, 1, most).map(|v| v as u32);
        Ok([size(x, most[0])?, size(y, most[1])?, z.map_or(Ok(1), |z| size(z, most[2]))?])
    }

    fn node(&mut self, raw: &'a RawValue) -> Result<(), Diagnostic> {
        let span = self.ron.span(raw);
        let node = match self.ron.value(raw, "`Kernel(...)`, `ToDevice(...)` or `ToHost(...)`")?.value {
            RawNode::ToDevice { name, writes, us, zone } => {
                self.copy(Direction::HostToDevice, name, writes, us, zone)?
            }
            RawNode::ToHost { name, reads, us, zone } => {
                self.copy(Direction::DeviceToHost, name, reads, us, zone)?
            }
            RawNode::Kernel {
                name,
                reads,
                writes,
                updates,
                us,
                grid,
                block,
                shared,
                ctas_per_sm,
                traffic,
                flops,
                programmatic,
                tiles,
                zone,
            } => {
                let mut accesses = self.accesses(reads, AccessMode::Read)?;
                accesses.extend(self.accesses(writes, AccessMode::Write)?);
                accesses.extend(self.accesses(updates, AccessMode::ReadWrite)?);
                let launch = LaunchConfig {
                    grid: self.triple(
                        grid,
                        "the grid",
                        [i32::MAX.into(), MAX_GRID_YZ.into(), MAX_GRID_YZ.into()],
                    )?,
                    block: if block.is_some() {
                        self.triple(block, "the block", [1024; 3])?
                    } else {
                        [256, 1, 1]
                    },
                    shared_bytes: shared
                        .map_or(Ok(0), |raw| self.number(raw, "shared memory", 0, self.most_shared()))?
                        as u32,
                };
                if launch.threads() > 1024 {
                    let message = format!("a CTA of {} threads", launch.threads());
                    return Err(Diagnostic::new("block-range", message)
                        .at(block.map_or(span, |raw| self.ron.span(raw)), "too many")
                        .help("a CTA has at most 1024 threads"));
                }
                let mut kernel = Kernel { programmatic, ..Kernel::new(launch, &accesses) };
                if let Some(raw) = traffic {
                    kernel.traffic_bytes = self.number(raw, "the traffic", 0, 1 << 50)?;
                }
                if let Some(raw) = ctas_per_sm {
                    kernel.ctas_per_sm = self.number(raw, "the CTAs of an SM", 1, 32)? as u32;
                }
                let flops = flops.map_or(Ok(0), |raw| self.number(raw, "the arithmetic", 0, 1 << 60))?;
                let us = self.us(us, estimate_us(kernel.traffic_bytes, flops, self.device))?;
                let read_tiles = |raw| tiles_of(self.ron, raw, &self.dims, &self.program, &accesses, &launch);
                kernel.tiles = tiles.map(read_tiles).transpose()?;
                let name = self.ron.word(name, "a name in quotes")?.value;
                Node { zone: self.zone(zone)?, ..Node::new(name, NodeWork::Kernel(kernel), accesses, us) }
            }
        };
        // Faults of single values have already been reported at their own locations.
        let refused = |e: super::DagError| Diagnostic::new("bad-node", e.to_string()).at(span, "refused");
        self.program.push(node).map_err(refused)?;
        Ok(())
    }

    fn copy(
        &self,
        direction: Direction,
        name: &'a RawValue,
        raw: &'a RawValue,
        us: Option<&'a RawValue>,
        zone: Option<&'a RawValue>,
    ) -> Result<Node, Diagnostic> {
        let mode = match direction {
            Direction::HostToDevice => AccessMode::Write,
            Direction::DeviceToHost => AccessMode::Read,
        };
        let access = self.access(raw, mode)?;
        let bytes = access.bytes.end - access.bytes.start;
        let us = self.us(us, f64::max(SHORTEST_US, bytes as f64 / self.device.programs.host_tbs / 1e6))?;
        let name = self.ron.word(name, "a name in quotes")?.value;
        let copy = Node::new(name, NodeWork::Copy { direction, bytes }, vec![access], us);
        Ok(Node { zone: self.zone(zone)?, ..copy })
    }
}
