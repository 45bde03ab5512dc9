//! Tile-level refinement: CTAs of a kernel wait for CTAs of earlier kernels instead of the ends of these kernels.
//!
//! A *refined* node is launched over programmatic edges. Its CTAs wait for the posts of the tiles that their own tiles
//! depend on: read-after-write, write-after-read and write-after-write. Every other node waits for all nodes before it
//! to end. Three properties make this correct, and [`Refinement::prove`] shows them for every refinement that is run:
//!
//! * *Order.* For each dependence between tiles there is a path of waits. Through an unrefined node, such a path leads
//!   to all of its ancestors.
//! * *Ends.* A refined node waits for the end of its predecessors before it ends itself. So the end of a node still
//!   implies the end of all its ancestors, and unrefined nodes and the end of the program need no special handling.
//! * *Progress.* A CTA waits only for tiles of ancestors, and starts after every CTA of these has started: each edge
//!   of the path between them is full, or programmatic with a trigger that every CTA issues. So every awaited CTA
//!   holds an SM or is done, and the earliest unfinished node with a CTA on an SM waits for nothing unfinished.

mod access;
mod direct;
mod pays;
mod prove;

use cusync_gen::device::Profile;

use crate::dependence::{Dependences, NodeDependence};
use crate::history::Cta;
use crate::program::{Kernel, NodeId, Program};
pub use access::{MAX_TILES, TileAccesses, TileBytes};
use direct::{Direct, count, direct, tiles_of};
use pays::keep_what_pays;
pub use prove::ProvedRefinement;
use prove::WaitOrder;

/// Maximum tiles that a CTA waits for: each lane of a warp polls one.
pub const MAX_WAITS: usize = 32;

/// How a node is synchronized.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSync {
    /// The CTAs that each CTA waits for; `None`: the node waits for the ends of all nodes before it.
    pub waits: Option<Vec<Vec<Cta>>>,
    /// Whether each of its CTAs posts its completion.
    pub posts: bool,
    /// Whether it lets the next node begin to launch before it waits, instead of after.
    pub early: bool,
}

/// A dependence with a later node that waits for tiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RefinedEdge {
    /// The dependence.
    pub edge: NodeDependence,
    /// Predicted gain, microseconds; 0 if not evaluated.
    pub gain_us: f64,
}

/// An unproved choice of which nodes wait for which tiles; [`Refinement::prove`] must accept it before it is run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refinement {
    /// How each node is synchronized.
    pub nodes: Vec<NodeSync>,
    /// The edges into refined nodes.
    pub edges: Vec<RefinedEdge>,
    /// Nodes with tiles that still wait for whole kernels, and why.
    pub kept: Vec<(NodeId, &'static str)>,
}

/// Which of the refinable nodes to refine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refine {
    /// None; all that can trigger early do.
    EarlyOnly,
    /// Those with a predicted gain; they trigger early.
    WherePays,
    /// All; all that can trigger early do.
    Everywhere,
}

impl Refinement {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.nodes.iter().all(|node| *node == NodeSync::default())
    }

    /// Nodes that wait for tiles.
    pub fn refined(&self) -> usize {
        self.nodes.iter().filter(|node| node.waits.is_some()).count()
    }

    /// Maximum tiles that one CTA waits for.
    pub fn most_waits(&self) -> usize {
        let waits = self.nodes.iter().filter_map(|node| node.waits.as_ref());
        waits.flatten().map(Vec::len).max().unwrap_or(0)
    }
}

/// Refines the nodes of a program with these dependences.
pub fn refine(program: &Program, dependences: &Dependences, device: &Profile, which: Refine) -> Refinement {
    let mut found = Refinement::default();
    if program.nodes().iter().all(|node| tiles_of(node).is_none()) {
        return found;
    }
    found.nodes = vec![NodeSync::default(); program.nodes().len()];
    if which != Refine::EarlyOnly {
        refine_all(program, dependences, device, which, &mut found);
    }
    // In measurements, an early trigger pays off where CTAs can run several kernels ahead of others; where kernels
    // wait for kernels, it only occupies SMs with waiting CTAs.
    for (node, sync) in program.nodes().iter().zip(&mut found.nodes) {
        let wanted = which != Refine::WherePays || sync.waits.is_some() || sync.posts;
        sync.early = wanted && node.kernel().is_some_and(|kernel| has_room(kernel, device));
    }
    found
}

fn refine_all(
    program: &Program,
    dependences: &Dependences,
    device: &Profile,
    which: Refine,
    found: &mut Refinement,
) {
    let mut into: Vec<Vec<NodeDependence>> = vec![Vec::new(); program.nodes().len()];
    dependences.reduced_edges().for_each(|edge| into[edge.after.index()].push(edge));
    // Before implied dependences are dropped, a tile may have a few more.
    let direct = direct(program, 4 * MAX_WAITS);
    for id in program.ids() {
        let into = &into[id.index()];
        if tiles_of(program.node(id)).is_none() || into.is_empty() {
            continue;
        }
        match waits(program, dependences, &found.nodes, into, id, &direct[id.index()]) {
            Err(why) => found.kept.push((id, why)),
            Ok(waits) => {
                found.nodes[id.index()].waits = Some(waits);
                found.edges.extend(into.iter().map(|&edge| RefinedEdge { edge, gain_us: 0.0 }));
            }
        }
    }
    if which == Refine::WherePays {
        keep_what_pays(program, &into, device, found);
    }
    let waited: Vec<NodeId> =
        found.nodes.iter().flat_map(|node| node.waits.iter().flatten().flatten()).map(|t| t.node).collect();
    waited.into_iter().for_each(|node| found.nodes[node.index()].posts = true);
}

/// A node that triggers early leaves enough room only if its CTAs, and those of the two nodes it may wait next to,
/// together take at most three quarters of the device.
fn has_room(kernel: &Kernel, device: &Profile) -> bool {
    let room = kernel.launch.ctas() * 4 <= u64::from(device.sms) * u64::from(kernel.ctas_per_sm);
    room && kernel.programmatic && kernel.tiles.as_ref().is_some_and(|tiles| tiles.early_trigger)
}

/// The waits of each CTA of a node, or why it cannot wait for tiles.
fn waits(
    program: &Program,
    dependences: &Dependences,
    nodes: &[NodeSync],
    into: &[NodeDependence],
    id: NodeId,
    direct: &Direct,
) -> Result<Vec<Vec<Cta>>, &'static str> {
    let can = |id: NodeId| program.node(id).kernel().is_some_and(|k| k.programmatic && k.tiles.is_some());
    if !can(id) {
        return Err("it was not built for programmatic edges");
    }
    if !into.iter().all(|edge| can(edge.before)) {
        return Err("a node before it cannot post tiles");
    }
    // Temporaries share memory because their kernels are done before others begin, which would no longer hold.
    if program.node(id).accesses.iter().any(|a| !program.buffers()[a.buffer.index()].external) {
        return Err("it touches a temporary buffer, whose memory may be shared");
    }
    let Direct::Ctas(direct) = direct else {
        return Err("a tile of it needs too many others");
    };
    let order = WaitOrder { dependences, nodes };
    let mut waits = Vec::with_capacity(direct.len());
    for before in direct {
        let implied = |tile: &Cta| before.iter().any(|&by| by.node > tile.node && order.follows(by, *tile));
        let needed: Vec<Cta> = before.iter().copied().filter(|tile| !implied(tile)).collect();
        if needed.len() > MAX_WAITS {
            return Err("a tile of it needs too many others");
        }
        if !needed.iter().all(|tile| can(tile.node)) {
            return Err("a tile of it needs a node that cannot post tiles");
        }
        waits.push(needed);
    }
    debug_assert_eq!(waits.len(), count(program.node(id)) as usize);
    Ok(waits)
}
