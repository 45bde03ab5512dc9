//! The search behind the automatic choice.

use super::chain::unfit_tile;
use super::space::{GROUPS, POLICIES, SEARCHED, TileShape, special_policy, uniform_tiles};
use crate::check::{Candidate, EdgeChoice, How, Prediction};
use crate::device::Profile;
use crate::diagnostic::Diagnostic;
use crate::graph::{Graph, OperandKind, Resolved, StageId};
use crate::obstacle::Obstacle;
use crate::simulate::{TileCost, Waiting, ctas_per_sm, least_us, predict, simulated_us};
use crate::sync::{Order, Policy, WaitAt};

/// Tiles kept for each stage after ranking it alone.
const TILES_KEPT: usize = 2;
/// Maximum combinations of kept tiles; a longer chain keeps only the best tile of each stage.
const COMBINATIONS: usize = 8;
/// A more complex choice must be predicted to gain at least this much: the model is no more accurate than that.
const WORTH: f64 = 0.995;

/// Rejected alternatives, with predicted microseconds of the whole chain.
#[derive(Clone, Default)]
pub(super) struct Alternatives {
    /// Tiles, by stage; microseconds of that stage alone.
    pub(super) tiles: Vec<Vec<(String, f64)>>,
    /// Orders of the first stage.
    pub(super) orders: Vec<(String, f64)>,
    /// The best overlapped chain, if kernel boundaries were chosen instead.
    pub(super) overlapped: Option<Overlapped>,
    /// Policies.
    pub(super) policies: Vec<(String, f64)>,
}

/// The time of an overlapped chain, microseconds.
#[derive(Clone, Copy)]
pub(super) enum Overlapped {
    /// Simulated time.
    Us(f64),
    /// A lower bound that already exceeds the serial time.
    AtLeastUs(f64),
}

#[derive(Clone)]
pub(super) struct Found {
    pub(super) best: Candidate,
    pub(super) alternatives: Alternatives,
    /// Tiles simulated by the search.
    pub(super) simulated: u64,
}

/// Minimum predicted gain over the best serial chain for which kernels are overlapped: below it, the model's error of
/// a few percent exceeds the gain.
const WORTH_OVERLAP: f64 = 1.04;
/// The same if every stage is a single wave: there is no last wave to fill, and streaming weights for two stages at
/// once slows both, which the model does not capture.
const WORTH_OVERLAP_OF_ONE_WAVE: f64 = 1.10;

/// The best candidate for a launch method; for one that overlaps kernels on a GPU, the best serial chain if overlap
/// gains nothing. `tiled` returns the result of [`search_tiles`], which is the same for all methods that start kernels
/// one after another, and for all that overlap them.
pub(super) fn search<'f>(
    resolved: &Resolved,
    device: &Profile,
    how: How,
    tiled: impl Fn(How) -> &'f Result<Found, Obstacle>,
) -> Result<Found, Obstacle> {
    let stated = resolved.edges.iter().any(|e| e.policy.is_some() || e.wait_at.is_some());
    if matches!(how, How::Streams(_) | How::Programmatic) && !stated {
        // With many waves, kernel boundaries cost so little that no run has to be simulated.
        let serial = tiled(How::Serial).clone()?;
        let least_us = least_overlapped_us(resolved, device)?;
        let worth = |p: Prediction| p.serial_us >= least_us * WORTH_OVERLAP;
        if !serial.best.graph.dependences.is_empty() && serial.best.predicted.is_some_and(|p| !worth(p)) {
            let overlapped = Some(Overlapped::AtLeastUs(least_us));
            return Ok(Found { alternatives: Alternatives { overlapped, ..serial.alternatives }, ..serial });
        }
    }
    let mut found = match how {
        How::Host | How::Serial | How::Programmatic => tiled(how).clone()?,
        // The model does not distinguish them.
        How::Streams(_) => started_as(how, tiled(How::Programmatic).clone()?),
        How::Library => {
            let mut found = started_as(how, tiled(How::Serial).clone()?);
            found.best.predicted = Some(predict(&found.best));
            found
        }
    };
    let overlaps = found.best.launch.on_gpu() && how.overlaps();
    if !overlaps || found.best.graph.dependences.is_empty() {
        return Ok(found);
    }
    let best = tiled(How::Serial).clone()?.best;
    let (Some(with), Some(without)) = (found.best.predicted, best.predicted) else { return Ok(found) };
    // Overlapped chains are compared with the best serial chain, not with their own stages run serially.
    found.best.predicted = Some(Prediction { serial_us: without.serial_us, ..with });
    if stated {
        return Ok(found);
    }
    let slots = |i: usize| device.sms * found.best.launch.ctas_per_sm(StageId(i));
    let one_wave = found.best.graph.stages.iter().enumerate().all(|(i, stage)| stage.tiles() <= slots(i));
    let worth = if one_wave { WORTH_OVERLAP_OF_ONE_WAVE } else { WORTH_OVERLAP };
    if without.serial_us >= with.synchronised_us * worth {
        return Ok(found);
    }
    let mut alternatives = found.alternatives.clone();
    alternatives.overlapped = Some(Overlapped::Us(with.synchronised_us));
    Ok(Found { best, alternatives, ..found })
}

/// A lower bound on the time of overlapped chains, microseconds, over all tiles, orders and policies.
fn least_overlapped_us(resolved: &Resolved, device: &Profile) -> Result<f64, Obstacle> {
    let Tilings { graphs, .. } = Tilings::new(resolved, device, How::Programmatic)?;
    let of_graph = |graph: Graph| {
        let mut c = launched(graph, device, How::Programmatic);
        GROUPS.map(|rows| {
            set_orders(resolved, &mut c, rows);
            least_us(&c)
        })
    };
    Ok(graphs.into_iter().flat_map(of_graph).fold(f64::INFINITY, f64::min))
}

/// One kernel per stage, with as many CTAs per SM as fit.
fn launched(graph: Graph, device: &Profile, how: How) -> Candidate {
    let mut c = Candidate::new(graph, device.clone(), how);
    for kernel in c.launch.kernels_mut() {
        kernel.ctas_per_sm = ctas_per_sm(device, &c.graph.stages[kernel.stage.0]);
    }
    c
}

/// The same kernels with another launch method.
fn started_as(how: How, mut found: Found) -> Found {
    found.best.launch.how_mut().into_iter().for_each(|own| *own = how);
    found
}

/// The best tiles, orders and policies for a launch method.
pub(super) fn search_tiles(resolved: &Resolved, device: &Profile, how: How) -> Result<Found, Obstacle> {
    let Tilings { tiles, graphs } = Tilings::new(resolved, device, how)?;
    let mut best: Option<(f64, Candidate, Alternatives)> = None;
    let mut simulated = 0;
    for graph in graphs {
        let mut c = launched(graph, device, how);
        let mut others = Alternatives::default();
        let bar = best.as_ref().map_or(f64::INFINITY, |(best_us, ..)| best_us * WORTH);
        let us = settle(resolved, &mut c, bar, &mut others, &mut simulated);
        if best.as_ref().is_none_or(|(best_us, ..)| us < best_us * WORTH) {
            best = Some((us, c, others));
        }
    }
    // At least one graph exists and has a time.
    let (_, mut best, others) = best.ok_or_else(|| Obstacle::new("no tiles have a time"))?;
    best.predicted = Some(predict(&best));
    Ok(Found { best, alternatives: Alternatives { tiles, ..others }, simulated })
}

/// The tiles that are worth simulating.
struct Tilings {
    /// For each stage, its candidate tiles by name, with the time of the stage alone in microseconds.
    tiles: Vec<Vec<(String, f64)>>,
    /// The graph of each combination; never empty.
    graphs: Vec<Graph>,
}

impl Tilings {
    fn new(resolved: &Resolved, device: &Profile, how: How) -> Result<Tilings, Obstacle> {
        let mut tiles: Vec<Vec<(String, f64)>> = Vec::new();
        let mut kept: Vec<Vec<TileShape>> = Vec::new();
        let candidates: Vec<Vec<TileShape>> = (0..resolved.stages.len())
            .map(|i| fitting(resolved, StageId(i), device, how))
            .collect::<Result<_, _>>()?;
        let first: Vec<TileShape> = candidates.iter().map(|c| c[0]).collect();
        for (i, shapes) in candidates.iter().enumerate() {
            let mut timed: Vec<(f64, TileShape)> = Vec::new();
            for &shape in shapes {
                let mut tried = first.clone();
                tried[i] = shape;
                match resolved.graph(&tried) {
                    Ok(graph) => timed.push((stage_us(&graph, device, StageId(i)), shape)),
                    // One of several shapes may be rejected, for example by a stated table; if there is only one,
                    // report why.
                    Err(refused) if shapes.len() == 1 => return Err(refused.into()),
                    Err(_) => {}
                }
            }
            timed.sort_by(|a, b| a.0.total_cmp(&b.0));
            tiles.push(timed.iter().skip(1).map(|(us, t)| (format!("{} x {}", t.0, t.1), *us)).collect());
            let shapes: Vec<TileShape> = timed.into_iter().map(|(_, shape)| shape).collect();
            kept.push(if shapes.is_empty() { vec![first[i]] } else { shapes });
        }
        let combinations = combinations(kept, &candidates);
        let (mut graphs, mut refused) = (Vec::new(), None);
        for combination in &combinations {
            match resolved.graph(combination) {
                Ok(graph) => graphs.push(graph),
                Err(diagnostic) => refused = refused.or(Some(diagnostic)),
            }
        }
        if !graphs.is_empty() {
            return Ok(Tilings { tiles, graphs });
        }
        let none = || {
            Diagnostic::new("no-tiles", "no combination of tiles fits the stated tables")
                .help("state the tiles that the tables were written for")
        };
        let only = refused.filter(|_| combinations.len() == 1);
        Err(only.or_else(|| resolved.graph(&first).err()).unwrap_or_else(none).into())
    }
}

/// The tiles of a stage that its kernels can run; host threads run any tile.
fn fitting(resolved: &Resolved, id: StageId, device: &Profile, how: How) -> Result<Vec<TileShape>, Obstacle> {
    let (mut tiles, stage) = (resolved.kernel_candidates(id, device)?, &resolved.stages[id.0]);
    if how == How::Host {
        return Ok(tiles);
    }
    if let Some(unfit) = stage.op.unfit_in(&tiles) {
        return Err(unfit_tile(stage, unfit));
    }
    tiles.retain(|tile| stage.op.tiled(*tile).unfit(*tile).is_none());
    Ok(tiles)
}

/// Why separate stage kernels, or host threads, cannot run a pipeline in any of their tiles.
pub(super) fn unfit(resolved: &Resolved, device: &Profile, how: How) -> Option<Obstacle> {
    let tiles = |stage| fitting(resolved, StageId(stage), device, how).map(|tiles| tiles[0]);
    match (0..resolved.stages.len()).map(tiles).collect::<Result<Vec<TileShape>, Obstacle>>() {
        Err(unfit) => Some(unfit),
        // Other tiles may fit a stated table, or be few enough.
        Ok(first) if resolved.graph(&first).is_err() => Tilings::new(resolved, device, how).err(),
        Ok(_) => None,
    }
}

/// Tiles worth simulating together: every choice among the best of each stage, and one shape for all stages.
fn combinations(mut kept: Vec<Vec<TileShape>>, candidates: &[Vec<TileShape>]) -> Vec<Vec<TileShape>> {
    kept.iter_mut().for_each(|shapes| shapes.truncate(TILES_KEPT));
    // With many stages the count overflows.
    let count = kept.iter().try_fold(1usize, |all, shapes| all.checked_mul(shapes.len()));
    if count.is_none_or(|count| count > COMBINATIONS) {
        kept.iter_mut().for_each(|shapes| shapes.truncate(1));
    }
    let mut all: Vec<Vec<TileShape>> = vec![Vec::new()];
    for shapes in &kept {
        all = all.iter().flat_map(|head| shapes.iter().map(move |s| [&head[..], &[*s]].concat())).collect();
    }
    for tiles in uniform_tiles(candidates) {
        if !all.contains(&tiles) {
            all.push(tiles);
        }
    }
    all
}

/// A stage's time on its own.
fn stage_us(graph: &Graph, device: &Profile, stage: StageId) -> f64 {
    let s = &graph.stages[stage.0];
    let per_sm = ctas_per_sm(device, s);
    let cost = TileCost::new(graph, s, &Order::GroupedRows(4), device, (per_sm, false));
    let slots = device.sms * per_sm;
    let last_us = if s.tiles().is_multiple_of(slots) { 0.0 } else { cost.last_us + cost.fixed_us };
    f64::from(s.tiles() / slots) * (cost.loop_us + cost.fixed_us) + last_us
}

/// Picks orders, policies and waits for fixed tiles; returns the predicted time. Stops early if nothing can be faster
/// than `bar`.
fn settle(
    resolved: &Resolved,
    c: &mut Candidate,
    bar: f64,
    alternatives: &mut Alternatives,
    simulated: &mut u64,
) -> f64 {
    for (choice, dependence) in c.edges.iter_mut().zip(&c.graph.dependences) {
        let stated = resolved.stated_edge(dependence).and_then(|s| s.wait_at.as_ref());
        choice.wait_at = stated.map_or(WaitAt::PerKBlock, |w| w.value);
    }
    let overlaps = c.launch.has_semaphores();
    let mut best: Option<(f64, Candidate)> = None;
    // By policy: orders do not affect waits.
    let mut waiting: Vec<Waiting> = Vec::new();
    let ordered = GROUPS.map(|rows| {
        let mut with_order = c.clone();
        set_orders(resolved, &mut with_order, rows);
        (rows, least_us(&with_order), with_order)
    });
    if ordered.iter().all(|(_, least_us, _)| *least_us >= bar) {
        return f64::INFINITY;
    }
    for (rows, least_us, with_order) in ordered {
        for (number, policy) in policies(&c.graph).into_iter().enumerate() {
            let mut trial = with_order.clone();
            set_policies(resolved, &mut trial, &policy);
            if waiting.len() == number && overlaps {
                waiting.push(Waiting::new(&trial));
            }
            let shown = rows == 1 || policy == Policy::Row;
            if !shown && best.as_ref().is_some_and(|(best_us, _)| least_us >= best_us * WORTH) {
                continue;
            }
            let us = simulated_us(&trial, waiting.get(number));
            *simulated += trial.graph.stages.iter().map(|stage| u64::from(stage.tiles())).sum::<u64>();
            if rows == 1 {
                alternatives.policies.push((policy.to_string(), us));
            }
            if policy == Policy::Row {
                let order = if rows == 1 { Order::RowMajor } else { Order::GroupedRows(rows) };
                alternatives.orders.push((order.to_string(), us));
            }
            if best.as_ref().is_none_or(|(best_us, _)| us < best_us * WORTH) {
                best = Some((us, trial));
            }
            if c.graph.dependences.is_empty() || !overlaps {
                break;
            }
        }
    }
    match best {
        Some((us, found)) => {
            *c = found;
            us
        }
        None => f64::INFINITY,
    }
}

/// Stated orders, otherwise groups of `rows`; column groups if a consumer reads the output as its operand B and waits
/// for whole columns.
fn set_orders(resolved: &Resolved, c: &mut Candidate, rows: u32) {
    for kernel in c.launch.kernels_mut() {
        let i = kernel.stage.0;
        if let Some(stated) = &resolved.stages[i].stated_order {
            kernel.order = stated.value.clone();
            continue;
        }
        let by_columns = c.graph.dependences.iter().any(|d| {
            d.producer.0 == i && c.graph.stages[d.consumer.0].operands[d.operand].kind == OperandKind::B
        });
        let (gm, gn) = c.graph.stages[i].grid;
        kernel.order = match (by_columns, rows) {
            (false, 1) => Order::RowMajor,
            (false, _) if rows >= gm && gm > 1 => Order::ColumnMajor,
            (false, _) => Order::GroupedRows(rows.min(gm)),
            (true, 1) => Order::ColumnMajor,
            (true, _) => Order::GroupedColumns(rows.min(gn)),
        };
    }
}

/// Policies worth trying on all edges together.
fn policies(graph: &Graph) -> Vec<Policy> {
    let mut list = POLICIES[..SEARCHED].to_vec();
    for dependence in &graph.dependences {
        list.extend(special_policy(graph, dependence).filter(|policy| !list.contains(policy)));
    }
    list
}

/// One slot per row of tiles where a policy does not apply.
fn suited(c: &Candidate, edge: usize, policy: &Policy) -> Policy {
    let means = match policy {
        Policy::ConvHalo | Policy::Strided(_) => {
            special_policy(&c.graph, &c.graph.dependences[edge]).as_ref() == Some(policy)
        }
        Policy::Tile | Policy::Row | Policy::Batched { .. } | Policy::Table(_) => true,
        Policy::Columns { .. } | Policy::Own => false,
    };
    if means { policy.clone() } else { Policy::Row }
}

fn set_policies(resolved: &Resolved, c: &mut Candidate, policy: &Policy) {
    for edge in 0..c.edges.len() {
        let stated = resolved.stated_edge(&c.graph.dependences[edge]).and_then(|s| s.policy.as_ref());
        let policy = stated.map_or_else(|| suited(c, edge, policy), |p| p.value.clone());
        c.edges[edge] = EdgeChoice { policy, wait_at: c.edges[edge].wait_at };
    }
}
