//! Captured graphs of other code, rescheduled: a node of a program for each of theirs, with the accesses that the caller
//! declares or that follow from the addresses that the node gets.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use cusync_dag::{
    Access, AccessMode, BufferId, Direction, Kernel, LaunchConfig, Node, NodeWork, Program, copy_us,
    estimate_us,
};
use cusync_gen::device::Profile;

use super::calls::{Call, Calls};
use super::error::{Error, Result};
use super::verify::verified;
use crate::device::{
    self, CapturedNode, CapturedWork, Device, EdgeKind, Graph, GraphNode, GridControl, Image, allocation,
};

/// An access to memory by its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressAccess {
    /// First byte to one past the last. An empty range is no access.
    pub addresses: Range<u64>,
    /// How they are accessed.
    pub mode: AccessMode,
}

/// Properties of a captured node. By default its accesses are unknown.
#[derive(Clone, Debug, Default)]
pub struct Declaration {
    /// All its accesses; `None`: unknown, so that it is a barrier, which every earlier node precedes and every later one
    /// follows.
    pub accesses: Option<Vec<AddressAccess>>,
    /// Its time alone, microseconds; `None`: estimated from its accesses.
    pub us: Option<f64>,
    /// For a kernel: whether it waits for earlier kernels itself (`griddepcontrol.wait`).
    pub programmatic: bool,
    /// The image with its code. Without one, `programmatic` is believed.
    pub image: Option<Image>,
}

/// Memory that captured nodes share: pieces which kernels access by addresses in them, such as tensors.
#[derive(Clone, Debug, Default)]
pub struct AddressMap {
    /// Ends by first addresses; no two overlap.
    shared: BTreeMap<u64, u64>,
    constant: BTreeMap<u64, u64>,
}

impl AddressMap {
    /// A map of pieces that nodes read and write, and of constants ([`AccessMode::Read`]), which no captured node writes.
    /// Pieces that overlap are one piece, except that a constant may lie in another piece.
    pub fn new(pieces: impl IntoIterator<Item = AddressAccess>) -> AddressMap {
        let (shared, constant): (Vec<_>, Vec<_>) = pieces.into_iter().partition(|piece| piece.mode.writes());
        let addresses = |pieces: Vec<AddressAccess>| united(pieces.into_iter().map(|piece| piece.addresses));
        AddressMap { shared: addresses(shared), constant: addresses(constant) }
    }

    /// The accesses of a node: those that are `known`, which explain all addresses in them, and those that follow from
    /// other addresses. Copies and fills access exactly the bytes that the driver states. A kernel reads each constant,
    /// and reads and writes each other piece, into which a word of its arguments points, structs included; an address
    /// outside of all pieces stands for its whole allocation. `None` if that is nothing, and for functions on the host.
    ///
    /// # Errors
    /// Device errors.
    pub fn accesses(
        &self,
        device: &Device,
        node: &CapturedNode,
        known: &[AddressAccess],
    ) -> device::Result<Option<Vec<AddressAccess>>> {
        self.derived(&node.work, known, &mut |address| allocation(device, address))
    }

    /// [`AddressMap::accesses`], with a function that finds the allocation of an address.
    fn derived(
        &self,
        work: &CapturedWork,
        known: &[AddressAccess],
        live: &mut impl FnMut(u64) -> device::Result<Option<Range<u64>>>,
    ) -> device::Result<Option<Vec<AddressAccess>>> {
        let exact = |ends: &[(&Option<Range<u64>>, AccessMode)]| {
            let access = |&(addresses, mode): &(&Option<Range<u64>>, _)| {
                addresses.clone().map(|addresses| AddressAccess { addresses, mode })
            };
            ends.iter().map(access).collect()
        };
        Ok(match work {
            CapturedWork::Kernel(kernel) => self.words(&kernel.words, known, live)?,
            CapturedWork::Fill(to) => exact(&[(&Some(to.clone()), AccessMode::Write)]),
            CapturedWork::Copy { from, to } => {
                exact(&[(&from.addresses, AccessMode::Read), (&to.addresses, AccessMode::Write)])
            }
            CapturedWork::Graph(nodes) => {
                let mut all = Some(known.to_vec());
                for node in nodes {
                    all = all
                        .zip(self.derived(&node.work, known, live)?)
                        .map(|(all, more)| [all, more].concat());
                }
                all
            }
            CapturedWork::Empty => Some(Vec::new()),
            CapturedWork::Host => None,
        })
    }

    /// The accesses of a kernel with these argument words.
    fn words(
        &self,
        words: &[u64],
        known: &[AddressAccess],
        live: &mut impl FnMut(u64) -> device::Result<Option<Range<u64>>>,
    ) -> device::Result<Option<Vec<AddressAccess>>> {
        let mut found: Vec<AddressAccess> = known.to_vec();
        for &word in words {
            if word == 0 || known.iter().any(|access| access.addresses.contains(&word)) {
                continue;
            }
            let access = match (piece(&self.constant, word), piece(&self.shared, word)) {
                (Some(addresses), _) => Some(AddressAccess { addresses, mode: AccessMode::Read }),
                (None, Some(addresses)) => Some(AddressAccess { addresses, mode: AccessMode::ReadWrite }),
                (None, None) => {
                    live(word)?.map(|addresses| AddressAccess { addresses, mode: AccessMode::ReadWrite })
                }
            };
            found.extend(access.filter(|access| !found.contains(access)));
        }
        Ok(Some(found).filter(|found| !found.is_empty()))
    }
}

/// The piece that contains an address.
fn piece(pieces: &BTreeMap<u64, u64>, address: u64) -> Option<Range<u64>> {
    let (&start, &end) = pieces.range(..=address).next_back()?;
    (address < end).then_some(start..end)
}

/// The ends of ranges by their first addresses; ranges that overlap are one.
fn united(ranges: impl IntoIterator<Item = Range<u64>>) -> BTreeMap<u64, u64> {
    let mut ranges: Vec<Range<u64>> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    for range in ranges {
        match found.last_entry() {
            Some(mut last) if range.start < *last.get() => {
                let end = range.end.max(*last.get());
                last.insert(end);
            }
            _ => drop(found.insert(range.start, range.end)),
        }
    }
    found
}

/// A node of a captured graph, which runs as it was captured.
#[derive(Clone, Debug)]
pub struct AdoptedCall {
    graph: Arc<Mutex<Graph>>,
    index: usize,
}

impl AdoptedCall {
    /// Adds the node to a graph.
    pub(super) fn add(
        &self,
        graph: &mut Graph,
        after: &[(GraphNode, EdgeKind)],
    ) -> device::Result<GraphNode> {
        let captured = self.graph.lock().unwrap_or_else(PoisonError::into_inner);
        graph.add_captured(&captured, self.index, after)
    }

    /// A graph of the node alone.
    pub(super) fn alone(&self, device: &Device) -> device::Result<Graph> {
        let mut graph = Graph::new(device)?;
        self.add(&mut graph, &[])?;
        Ok(graph)
    }
}

/// A captured node as a node of a program, and what is known of it.
struct Adopted {
    name: String,
    launch: LaunchConfig,
    ctas_per_sm: u32,
    direction: Option<Direction>,
    declaration: Declaration,
}

impl Calls {
    /// Creates a program from a captured graph of any nodes but events, semaphores, allocations and conditions, in an
    /// order that its edges allow. `declare` gets each node; [`AddressMap::accesses`] derives accesses. The program's
    /// buffers are the memory that the nodes access, which the caller keeps alive.
    ///
    /// # Errors
    /// [`device::Error::Unmovable`]; [`Error::NothingCaptured`]; [`Error::NeverWaits`] for a declaration that the code of
    /// a kernel contradicts; errors of `declare`.
    pub fn adopt(
        device: &Device,
        graph: Graph,
        mut declare: impl FnMut(&CapturedNode) -> Result<Declaration>,
    ) -> Result<Calls> {
        let nodes = graph.captured_nodes()?;
        let graph = Arc::new(Mutex::new(graph));
        let (mut adopted, mut calls, mut code) = (Vec::new(), Vec::new(), Vec::new());
        for node in nodes.iter().filter(|node| !matches!(node.work, CapturedWork::Empty)) {
            let declaration = declare(node)?;
            code.push(match &node.work {
                CapturedWork::Kernel(kernel) => {
                    let (function, image) = (&kernel.function, declaration.image.as_ref());
                    let found = image.map(|image| image.grid_control(function.name(), device.capability()));
                    (function.name(), found.unwrap_or_else(|| function.grid_control().clone()))
                }
                _ => ("", GridControl::unknown("it is no kernel")),
            });
            adopted.push(Adopted::new(&node.work, declaration));
            calls.push(Call::Adopted(AdoptedCall { graph: graph.clone(), index: node.index }));
        }
        if calls.is_empty() {
            return Err(Error::NothingCaptured);
        }
        let program = program(adopted, device.profile().as_ref())?;
        let program = verified(&program, |id| code[id.index()].clone())?;
        Ok(Calls { program, calls: calls.into(), memory: Arc::default(), watch: None })
    }
}

impl Adopted {
    fn new(work: &CapturedWork, declaration: Declaration) -> Adopted {
        let programmatic = declaration.programmatic && matches!(work, CapturedWork::Kernel(_));
        let declaration = Declaration { programmatic, ..declaration };
        let (name, launch, ctas_per_sm, direction) = match work {
            CapturedWork::Kernel(kernel) => {
                let device::Shape { grid, block, shared_bytes } = kernel.shape;
                // Only the cost model needs it.
                let resident = kernel.function.resident_per_sm(kernel.shape.threads(), shared_bytes);
                let launch = LaunchConfig { grid, block, shared_bytes };
                (kernel.function.name(), launch, resident.unwrap_or(1).max(1), None)
            }
            CapturedWork::Fill(to) => ("memset", LaunchConfig::linear(ctas(to), 256), 8, None),
            CapturedWork::Copy { from, to } => {
                let direction = match (from.host, to.host) {
                    (true, false) => Some(Direction::HostToDevice),
                    (false, true) => Some(Direction::DeviceToHost),
                    _ => None,
                };
                let ctas = to.addresses.as_ref().map_or(1, ctas);
                ("memcpy", LaunchConfig::linear(ctas, 256), 8, direction)
            }
            // As many CTAs as fill any GPU, one on each SM.
            CapturedWork::Graph(_) => ("graph", LaunchConfig::linear(1 << 16, 256), 1, None),
            CapturedWork::Empty | CapturedWork::Host => ("host", LaunchConfig::linear(1, 32), 1, None),
        };
        Adopted { name: name.into(), launch, ctas_per_sm, direction, declaration }
    }
}

/// Estimated CTAs that fill or copy these bytes.
fn ctas(bytes: &Range<u64>) -> u32 {
    (bytes.end - bytes.start).div_ceil(4096).clamp(1, 1 << 16) as u32
}

/// The program of captured nodes. Its buffers are the united accesses; the last one orders barriers with all nodes.
fn program(nodes: Vec<Adopted>, profile: Option<&Profile>) -> Result<Program> {
    let mut program = Program::new("captured");
    let accesses = nodes.iter().flat_map(|node| node.declaration.accesses.iter().flatten());
    let pieces = united(accesses.map(|access| access.addresses.clone()));
    let mut buffers: BTreeMap<u64, BufferId> = BTreeMap::new();
    for (&start, &end) in &pieces {
        buffers.insert(start, program.buffer(format!("{start:#x}"), end - start));
    }
    let barriers = nodes.iter().any(|node| node.declaration.accesses.is_none());
    let barrier = barriers.then(|| program.buffer("barrier", 1));
    for Adopted { name, launch, ctas_per_sm, direction, declaration } in nodes {
        let mut accesses = Vec::new();
        for AddressAccess { addresses, mode } in declaration.accesses.iter().flatten() {
            if let Some((&start, &buffer)) = buffers.range(..=addresses.start).next_back()
                && !addresses.is_empty()
            {
                let bytes = addresses.start - start..addresses.end - start;
                accesses.push(Access { buffer, bytes, mode: *mode });
            }
        }
        let kernel = Kernel::new(launch, &accesses);
        let work = match direction {
            Some(direction) => {
                let bytes = accesses.first().map_or(0, |access| access.bytes.end - access.bytes.start);
                NodeWork::Copy { direction, bytes }
            }
            None => {
                NodeWork::Kernel(Kernel { ctas_per_sm, programmatic: declaration.programmatic, ..kernel })
            }
        };
        let estimate = || match (&work, profile) {
            (NodeWork::Copy { bytes, .. }, _) => copy_us(*bytes),
            (NodeWork::Kernel(kernel), Some(profile)) => estimate_us(kernel.traffic_bytes, 0, profile),
            (NodeWork::Kernel(_), None) => 1.0,
        };
        let us = declaration.us.unwrap_or_else(estimate);
        let mode = declaration.accesses.map_or(AccessMode::ReadWrite, |_| AccessMode::Read);
        accesses.extend(barrier.map(|buffer| Access { buffer, bytes: 0..1, mode }));
        program.push(Node::new(name, work, accesses, us))?;
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use cusync_dag::{Direction, NodeId, analyse};
    use cusync_gen::device::DEVICES;

    use super::*;

    fn access(addresses: Range<u64>, mode: AccessMode) -> AddressAccess {
        AddressAccess { addresses, mode }
    }

    fn shared(addresses: Range<u64>) -> AddressAccess {
        access(addresses, AccessMode::ReadWrite)
    }

    fn constant(addresses: Range<u64>) -> AddressAccess {
        access(addresses, AccessMode::Read)
    }

    /// The only allocation outside of maps.
    fn live(address: u64) -> device::Result<Option<Range<u64>>> {
        Ok(Some(0x9000..0xa000).filter(|place| place.contains(&address)))
    }

    fn derived(map: &AddressMap, words: &[u64], known: &[AddressAccess]) -> Option<Vec<AddressAccess>> {
        map.words(words, known, &mut live).expect("no device is asked")
    }

    fn kernel(accesses: Option<Vec<AddressAccess>>) -> Adopted {
        Adopted {
            name: "kernel".into(),
            launch: LaunchConfig::linear(4, 256),
            ctas_per_sm: 8,
            direction: None,
            declaration: Declaration { accesses, ..Declaration::default() },
        }
    }

    #[test]
    fn arguments_reach_whole_pieces() {
        let map = AddressMap::new([shared(0x1000..0x2000), shared(0x2000..0x3000), constant(0x5000..0x6000)]);
        // A number, a pointer into the first piece twice, one behind its end, and a constant.
        let words = [12, 0x1000, 0x1800, 0x2000, 0x5010, 0x7000, 0];
        let found = derived(&map, &words, &[]).expect("known addresses");
        let want = [shared(0x1000..0x2000), shared(0x2000..0x3000), constant(0x5000..0x6000)];
        assert_eq!(found, want);
        let outside = derived(&map, &[0x9abc], &[]).expect("an allocation");
        assert_eq!(outside, [shared(0x9000..0xa000)]);
        assert_eq!(derived(&map, &[1, 2, 0x3000, 0x6000], &[]), None, "no known address");
    }

    #[test]
    fn known_accesses_explain_the_addresses_in_them() {
        let map = AddressMap::new([shared(0x1000..0x3000)]);
        let known = [constant(0x1000..0x1100)];
        assert_eq!(derived(&map, &[0x1010, 5], &known).expect("known"), known);
        let both = derived(&map, &[0x1010, 0x2000], &known).expect("known");
        assert_eq!(both, [known[0].clone(), shared(0x1000..0x3000)]);
        assert_eq!(derived(&map, &[], &known).expect("known"), known, "memory behind no argument");
    }

    #[test]
    fn pieces_that_overlap_are_one_and_constants_lie_in_them() {
        let map = AddressMap::new([0x1800..0x2800, 0x1000..0x2000, 0x2800..0x2900, 7..7].map(shared));
        assert_eq!(map.shared.into_iter().collect::<Vec<_>>(), [(0x1000, 0x2800), (0x2800, 0x2900)]);
        let map = AddressMap::new([shared(0x1000..0x2000), constant(0x1200..0x1300)]);
        let found = derived(&map, &[0x1200, 0x1300], &[]).expect("known");
        let want = [constant(0x1200..0x1300), shared(0x1000..0x2000)];
        assert_eq!(found, want);
    }

    #[test]
    fn copies_and_fills_are_exact_and_host_functions_are_unknown() {
        let map = AddressMap::new([shared(0x1000..0x2000)]);
        let end = |addresses| crate::device::CopyEnd { addresses, host: false };
        let accesses = |work: CapturedWork| map.derived(&work, &[], &mut live).expect("no device is asked");
        let copy = CapturedWork::Copy { from: end(Some(0x1000..0x1010)), to: end(Some(0x1800..0x1810)) };
        let fill = CapturedWork::Fill(0x1020..0x1024);
        let want = [
            constant(0x1000..0x1010),
            access(0x1800..0x1810, AccessMode::Write),
            access(0x1020..0x1024, AccessMode::Write),
        ];
        assert_eq!(accesses(copy.clone()).expect("exact"), want[..2]);
        let nodes = [copy, CapturedWork::Empty, fill].map(|work| CapturedNode { index: 0, work });
        assert_eq!(accesses(CapturedWork::Graph(nodes.to_vec())).expect("exact"), want);
        assert_eq!(accesses(CapturedWork::Host), None);
        let array = CapturedWork::Copy { from: end(None), to: end(Some(0x1800..0x1810)) };
        assert_eq!(accesses(array), None, "arrays have no addresses");
    }

    #[test]
    fn order_follows_from_bytes_and_barriers() {
        let read = |at: u64| access(at..at + 16, AccessMode::Read);
        let write = |at: u64| access(at..at + 16, AccessMode::Write);
        let mut upload = kernel(Some(vec![read(0x7000), write(0x1000)]));
        upload.direction = Some(Direction::HostToDevice);
        let nodes = vec![
            upload,
            // Half of the bytes of the first.
            kernel(Some(vec![read(0x1008), write(0x2000)])),
            kernel(Some(vec![write(0x3000), constant(0x3000..0x3000)])),
            kernel(None),
            kernel(Some(vec![])),
            kernel(Some(vec![read(0x2000), read(0x3000), write(0x4000)])),
        ];
        let program = program(nodes, Some(&DEVICES[0])).expect("a valid program");
        let copy = NodeWork::Copy { direction: Direction::HostToDevice, bytes: 16 };
        assert_eq!((program.nodes()[0].work.clone(), program.nodes()[0].us), (copy, copy_us(16)));
        let found = analyse(&program);
        let waits = |after: u32| (0..after).filter(|&id| found.reaches(NodeId(id), NodeId(after))).collect();
        let all: Vec<Vec<u32>> = (0..6).map(waits).collect();
        let want: [&[u32]; 6] = [&[], &[0], &[], &[0, 1, 2], &[0, 1, 2, 3], &[0, 1, 2, 3]];
        assert_eq!(all, want);
        // Without a barrier nothing else orders nodes.
        let free = super::program(vec![kernel(Some(vec![])), kernel(Some(vec![]))], None).expect("valid");
        assert!(!analyse(&free).reaches(NodeId(0), NodeId(1)));
    }
}
