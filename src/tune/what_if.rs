//! Value of each decision: the predicted time of the whole chain with only that decision changed.

use cusync_gen::check::{Candidate, Choice, Executor, Launch};
use cusync_gen::choose::space::{ORDERS, POLICIES, STRATEGIES, executors, special_policy};
use cusync_gen::choose::{self, Choices};
use cusync_gen::graph::{Resolved, StageId};
use cusync_gen::schedule::{Hand, Schedule};
use cusync_gen::simulate::{ctas_per_sm, simulate, simulate_serial};
use cusync_gen::sync::{Order, WaitAt};

use super::proposals::predicted_us;
use crate::runtime::{ChainOverride, executor_name};

/// Alternatives of a decision with the predicted microseconds of the whole chain, fastest first.
type Alternatives = Vec<(String, f64)>;

/// Decisions of a candidate for the executor `asked`, each with its alternatives. Every time is for the whole
/// chain with everything else as in the candidate, so all times are comparable with the candidate's.
/// Alternatives ruled out by a statement of the spec are included and show the cost of that statement. A
/// decision without alternatives has no price in the model.
pub fn decisions(made: &Choices, candidate: &Candidate, asked: Executor) -> Vec<Choice> {
    let resolved = made.resolved();
    let mut choices = vec![executor(made, candidate, asked)];
    let host = !candidate.launch.on_gpu() && !resolved.own_kernels(&candidate.device);
    if host || choose::fallback(resolved, &candidate.device).is_some() {
        // The device runs none of it, so nothing has a price there.
        choices.extend(candidate.choices.iter().cloned());
        return choices;
    }
    let coupling = candidate.choices.iter().any(|c| c.subject == "coupling");
    for choice in &candidate.choices {
        let mut choice = choice.clone();
        if let Some(mut found) = alternatives(resolved, candidate, &choice.subject) {
            found.sort_by(|a, b| a.1.total_cmp(&b.1));
            choice.alternatives = found;
        }
        choices.push(choice);
    }
    if candidate.launch.guarantees_starts() && !coupling && !candidate.graph.dependences.is_empty() {
        let us = simulate_serial(candidate).total_us;
        choices.push(Choice {
            subject: "coupling".into(),
            decision: "tile semaphores".into(),
            stated: resolved.edges.iter().any(|e| e.policy.is_some() || e.wait_at.is_some()),
            reason: "dependent kernels overlap tile by tile".into(),
            alternatives: vec![("kernel boundaries, no overlap, at the same tiles and orders".into(), us)],
        });
    }
    choices
}

/// The executor decision: the others, each with its own best choice.
fn executor(made: &Choices, candidate: &Candidate, asked: Executor) -> Choice {
    let others = executors(&candidate.device).into_iter().filter(|e| *e != asked);
    let mut alternatives: Alternatives = others
        .filter_map(|e| {
            let other = made.candidate(e).as_ref().ok()?;
            Some((executor_name(e).into(), predicted_us(other)?))
        })
        .collect();
    alternatives.sort_by(|a, b| a.1.total_cmp(&b.1));
    let own = predicted_us(candidate);
    Choice {
        subject: "executor".into(),
        decision: executor_name(asked).into(),
        stated: false,
        reason: match (own, alternatives.first()) {
            (Some(own), Some((name, us))) if *us < own => {
                format!(
                    "asked for, or usual on this device; {name} is predicted to take {:.1} % less",
                    (1.0 - us / own) * 100.0
                )
            }
            (Some(_), Some(_)) => "no other is predicted to be faster".into(),
            _ => "there is nothing to compare with".into(),
        },
        alternatives,
    }
}

/// Alternatives of the decision on a subject; `None`: as in the candidate.
fn alternatives(resolved: &Resolved, c: &Candidate, subject: &str) -> Option<Alternatives> {
    match &c.launch {
        Launch::Shares(_) => return (subject == "decode kernel").then(|| decode(resolved, c)),
        Launch::Lists(schedule) => {
            return (subject == "schedule").then(|| strategies(resolved, c, schedule));
        }
        Launch::Stages { .. } => {}
    }
    if let Some(name) = subject.strip_prefix("tile of ") {
        return c.graph.stages.iter().position(|s| s.name == name).map(|stage| tiles(resolved, c, stage));
    }
    if let Some(name) = subject.strip_prefix("order of ") {
        return c.graph.stages.iter().position(|s| s.name == name).map(|stage| orders(c, stage));
    }
    let edge = |name: &str| (0..c.edges.len()).find(|&edge| c.edge_name(edge) == name);
    if let Some(name) = subject.strip_prefix("policy of ") {
        return edge(name).map(|edge| policies(c, edge));
    }
    if let Some(name) = subject.strip_prefix("wait of ") {
        return edge(name).map(|edge| waits(c, edge));
    }
    None
}

/// The predicted time of a candidate.
fn time(c: &Candidate) -> f64 {
    simulate(c).total_us
}

fn tiles(resolved: &Resolved, c: &Candidate, stage: usize) -> Alternatives {
    let chosen: Vec<_> = c.graph.stages.iter().map(|s| s.mma_tile).collect();
    // Also for a stated tile: shows the cost of the statement.
    let mut free = resolved.clone();
    free.stages[stage].stated_tile = None;
    let built = free.kernel_candidates(StageId(stage), &c.device).unwrap_or_default();
    built
        .into_iter()
        .filter(|tile| *tile != chosen[stage])
        .filter_map(|tile| {
            let mut tiles = chosen.clone();
            tiles[stage] = tile;
            let mut other = c.clone();
            // A stated table may not fit another grid.
            other.graph = resolved.graph(&tiles).ok()?;
            for kernel in other.launch.kernels_mut() {
                kernel.ctas_per_sm = ctas_per_sm(&c.device, &other.graph.stages[kernel.stage.0]);
            }
            let tabled = |order: &Order| matches!(order, Order::Table(_));
            (!tabled(other.launch.order(StageId(stage)))).then(|| {
                let (m, n, k) = tile;
                (format!("{m} x {n} x {k}"), time(&other))
            })
        })
        .collect()
}

fn orders(c: &Candidate, stage: usize) -> Alternatives {
    // A group of all rows equals an order by columns, and larger groups are no different.
    let (rows, columns) = c.graph.stages[stage].grid;
    let distinct = |o: &Order| match o {
        Order::GroupedRows(g) => *g < rows,
        Order::GroupedColumns(g) => *g < columns,
        _ => true,
    };
    ORDERS
        .into_iter()
        .filter(|o| o != c.launch.order(StageId(stage)) && distinct(o))
        .filter_map(|order| {
            let mut other = c.clone();
            let name = order.to_string();
            other.launch.kernel_mut(StageId(stage))?.order = order;
            Some((name, time(&other)))
        })
        .collect()
}

fn policies(c: &Candidate, edge: usize) -> Alternatives {
    if !c.launch.has_semaphores() {
        return Vec::new();
    }
    let special = special_policy(&c.graph, &c.graph.dependences[edge]).filter(|p| !POLICIES.contains(p));
    let all = POLICIES.into_iter().chain(special);
    all.filter(|p| *p != c.edges[edge].policy)
        .map(|policy| {
            let mut other = c.clone();
            let name = policy.to_string();
            other.edges[edge].policy = policy;
            (name, time(&other))
        })
        .collect()
}

fn waits(c: &Candidate, edge: usize) -> Alternatives {
    if !c.launch.has_semaphores() {
        return Vec::new();
    }
    let (wait_at, name) = match c.edges[edge].wait_at {
        WaitAt::PerKBlock => (WaitAt::Start, "once, before the first k-block"),
        WaitAt::Start => (WaitAt::PerKBlock, "before the first k-block of each new slot"),
    };
    let mut other = c.clone();
    other.edges[edge].wait_at = wait_at;
    vec![(name.into(), time(&other))]
}

/// Other strategies of the list scheduler with the same kernel.
fn strategies(resolved: &Resolved, c: &Candidate, schedule: &Schedule) -> Alternatives {
    let (m, n, _) = c.graph.kernel_tile();
    let kernel = Some(((m, n), schedule.cluster));
    let other = |(mode, splits): (Hand, bool)| {
        let found = choose::chain(resolved, &c.device, ChainOverride { kernel, mode, splits }).ok()?;
        let other = found.launch.lists().filter(|s| *s != schedule)?;
        let handed = match mode {
            Hand::Fixed => "lists",
            Hand::Drawn => "drawn from a counter",
        };
        let tiles = if splits { "tiles may be cut along k" } else { "whole tiles only" };
        Some((format!("{handed}, {tiles}"), other.predicted_us))
    };
    STRATEGIES.into_iter().filter_map(other).collect()
}

/// A chain kernel instead of the decode kernel.
fn decode(resolved: &Resolved, c: &Candidate) -> Alternatives {
    let chain = choose::chain(resolved, &c.device, ChainOverride::default()).ok();
    let us = chain.and_then(|chain| chain.launch.predicted_us());
    us.map(|us| ("a chain kernel".into(), us)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::key::tests::resolved;
    use super::*;
    use cusync_gen::device::{KERNELS, Profile};

    fn decided(name: &str, m: u64, executor: Executor) -> (Candidate, Vec<Choice>) {
        let resolved = resolved(name, m);
        let device = Profile::named("h200").expect("the profile ships");
        let choices = Choices::new(&resolved, device);
        let c = choices.candidate(executor).clone().expect("a choice");
        let decisions = decisions(&choices, &c, executor);
        (c, decisions)
    }

    fn find<'a>(decisions: &'a [Choice], subject: &str) -> &'a Choice {
        let found = decisions.iter().find(|c| c.subject == subject);
        found.unwrap_or_else(|| panic!("no {subject}: {decisions:#?}"))
    }

    #[test]
    fn every_decision_of_launched_kernels_has_priced_alternatives() {
        let (c, decisions) = decided("gpt3_mlp", 512, Executor::Programmatic);
        assert_eq!(find(&decisions, "executor").decision, "programmatic");
        assert_eq!(find(&decisions, "executor").alternatives.len(), 4);
        let kinds = ["tile of ", "order of ", "policy of ", "wait of "];
        for kind in kinds {
            let of_kind: Vec<_> = decisions.iter().filter(|d| d.subject.starts_with(kind)).collect();
            assert!(!of_kind.is_empty(), "{kind}");
            for choice in of_kind {
                let overlaps = c.launch.has_semaphores();
                let priced = overlaps || !matches!(kind, "policy of " | "wait of ");
                assert_eq!(choice.alternatives.is_empty(), !priced, "{choice:?}");
                assert!(choice.alternatives.iter().all(|(name, us)| *us > 0.0 && *name != choice.decision));
                assert!(choice.alternatives.windows(2).all(|w| w[0].1 <= w[1].1), "{choice:?}");
            }
        }
        assert_eq!(find(&decisions, "coupling").alternatives.len(), 1);
    }

    #[test]
    fn an_alternative_costs_what_it_costs_when_it_is_chosen() {
        let (c, decisions) = decided("gpt3_mlp", 512, Executor::Serial);
        let first = &c.graph.stages[0].name;
        let choice = find(&decisions, &format!("tile of {first}"));
        let tile =
            KERNELS.iter().find(|k| k.arch == 90 && k.tile != c.graph.stages[0].mma_tile).expect("another");
        let name = format!("{} x {} x {}", tile.tile.0, tile.tile.1, tile.tile.2);
        let (_, us) = choice.alternatives.iter().find(|(n, _)| *n == name).expect("it is listed");
        let mut tiles: Vec<_> = c.graph.stages.iter().map(|s| s.mma_tile).collect();
        tiles[0] = tile.tile;
        let mut other = c.clone();
        other.graph = resolved("gpt3_mlp", 512).graph(&tiles).expect("the tile is built");
        assert_eq!(*us, simulate(&other).total_us);
    }

    #[test]
    fn strategies_and_decode_kernels_are_priced_too() {
        // A kernel without clusters is chosen here, and only such a kernel can draw its items.
        let (c, decisions) = decided("gpt3_mlp", 128, Executor::Fused);
        assert!(c.launch.lists().is_some());
        let schedule = find(&decisions, "schedule");
        assert!(!schedule.alternatives.is_empty(), "{schedule:?}");
        assert!(!find(&decisions, "chain kernel").alternatives.is_empty());
        assert!(find(&decisions, "executor").alternatives.iter().any(|(name, _)| name == "serial"));
        let (_, decisions) = decided("llama65_mlp", 8, Executor::Fused);
        let decode = find(&decisions, "decode kernel");
        assert!(decode.alternatives.iter().any(|(name, _)| name == "a chain kernel"), "{decode:?}");
    }
}
