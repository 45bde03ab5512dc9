//! Plans of chain kernels with handed-out items: even tiles, rows that are known only at run time, and two
//! kinds of jobs.

use std::collections::BTreeMap;

use cusync_gen::check::{Candidate, Executor, Plan, check};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::StageId;
use cusync_gen::schedule::Hand;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::super::{Error, Result};
use cusync::runtime::{ChainOverride, Overrides, plan_text, resolve_text};

/// Tiles and mode of handing out; products are never split along k, so results agree bit by bit.
pub(super) fn chain(mode: Hand, tile: (u32, u32)) -> ChainOverride {
    ChainOverride { kernel: Some((tile, (1, 1))), mode, splits: false }
}

/// The plans of one case.
pub(super) struct Plans {
    pub(super) fixed: Plan,
    pub(super) drawn: Plan,
}

pub(super) fn planned(
    text: &str,
    dims: &[(&str, u64)],
    mode: Hand,
    tile: (u32, u32),
    profile: &Profile,
) -> Result<Plan> {
    let dims = dims.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let overrides = Overrides { dims, chain: Some(chain(mode, tile)), ..Overrides::default() };
    Ok(plan_text(text, "bench", &overrides, profile, Executor::Fused)?)
}

/// Even tiles.
pub(super) fn even(text: &str, m: u64, tile: (u32, u32), profile: &Profile) -> Result<Plans> {
    let dims = [("M", m)];
    Ok(Plans {
        fixed: planned(text, &dims, Hand::Fixed, tile, profile)?,
        drawn: planned(text, &dims, Hand::Drawn, tile, profile)?,
    })
}

/// Products of the same input with separate weights.
pub(super) const EXPERTS: usize = 8;
/// Total number of rows.
const EXPERT_ROWS: u64 = 4096;

fn experts(rows: &[u64; EXPERTS]) -> String {
    use std::fmt::Write as _;
    let (mut dims, mut stages) = (String::new(), String::new());
    for (i, rows) in rows.iter().enumerate() {
        let _ = write!(dims, "\"M{i}\": {rows}, ");
        let _ = writeln!(
            stages,
            "    Gemm(name: \"e{i}\", a: \"X{i}(M{i},K)\", b: \"W{i}(K,N)\", out: \"Y{i}(M{i},N)\"),"
        );
    }
    format!("Pipeline(name: \"experts\", dims: {{ {dims}\"K\": 2048, \"N\": 4096 }}, stages: [\n{stages}])")
}

/// Row counts by Zipf's law: the r-th most popular expert has 1 / r of the first one's rows. The ranks are
/// random.
pub(super) fn zipf(rng: &mut SmallRng) -> [u64; EXPERTS] {
    let all: f64 = (1..=EXPERTS).map(|r| 1.0 / r as f64).sum();
    let mut rows: [u64; EXPERTS] =
        std::array::from_fn(|r| (EXPERT_ROWS as f64 / all / (r + 1) as f64).round() as u64);
    rows.shuffle(rng);
    rows
}

/// Plans for row counts known only at run time; the lists were made for equal row counts, and a tile beyond
/// them goes to the worker with the same place in the rows above.
pub(super) fn uneven(rows: &[u64; EXPERTS], tile: (u32, u32), profile: &Profile) -> Result<Plans> {
    let text = experts(rows);
    let drawn = planned(&text, &[], Hand::Drawn, tile, profile)?;
    let even = planned(&experts(&[EXPERT_ROWS / EXPERTS as u64; EXPERTS]), &[], Hand::Fixed, tile, profile)?;
    let lists = even.launch().lists().ok_or_else(|| Error::Argument("no lists".into()))?;
    let mut of_tile = BTreeMap::new();
    for (worker, list) in lists.lists.iter().enumerate() {
        for item in list.iter().map(|i| &lists.sequence[*i as usize]) {
            of_tile.insert((item.stage.0, item.m, item.n), worker);
        }
    }
    let rows_of = |stage: StageId| even.graph().stages[stage.0].grid.0;
    let overrides = Overrides { chain: Some(chain(Hand::Fixed, tile)), ..Overrides::default() };
    let resolved = resolve_text(&text, "bench", &overrides)?;
    let refused = |e: &dyn std::fmt::Debug| Error::Argument(format!("the lists of even rows: {e:?}"));
    let mut candidate: Candidate =
        choose::chain(&resolved, profile, chain(Hand::Fixed, tile)).map_err(|e| refused(&e))?;
    let Some(schedule) = candidate.launch.lists_mut() else { return Err(Error::Argument("no lists".into())) };
    schedule.lists.iter_mut().for_each(Vec::clear);
    for (at, item) in schedule.sequence.iter().enumerate() {
        let worker = of_tile.get(&(item.stage.0, item.m % rows_of(item.stage), item.n)).copied().unwrap_or(0);
        schedule.lists[worker].push(at as u32);
    }
    let fixed = check(candidate).map_err(|e| refused(&e))?;
    Ok(Plans { fixed, drawn })
}

/// Two kinds that share weights.
pub(super) const TWO: &str = r#"Pipeline(name: "two_kinds", dims: { "M": 384, "S": 100, "H": 256 }, stages: [
    Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)", epilogue: Gelu),
    Gemm(name: "down", a: "Y(M,H)", b: "V(H,H)", residual: "X(M,H)", out: "Z(M,H)"),
    Gemm(name: "short_up", a: "XS(S,H)", b: "W(H,H)", out: "YS(S,H)", epilogue: Gelu),
    Gemm(name: "short_down", a: "YS(S,H)", b: "V(H,H)", residual: "XS(S,H)", out: "ZS(S,H)"),
])"#;

#[cfg(test)]
mod tests {
    use cusync_gen::check::Ledger;
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn all_ways_of_a_case_have_the_same_tiles() {
        let h200 = Profile::named("h200").expect("it ships");
        let mut rng = SmallRng::seed_from_u64(8);
        let rows = zipf(&mut rng);
        assert!(rows.iter().sum::<u64>().abs_diff(EXPERT_ROWS) <= 4 && rows.iter().max() > Some(&1400));
        let plans = uneven(&rows, (128, 128), h200).expect("proved");
        let tiles = |plan: &Plan| {
            let lists = plan.launch().lists().expect("lists").sequence.clone();
            let mut tiles: Vec<_> = lists.iter().map(|i| (i.stage.0, i.m, i.n)).collect();
            tiles.sort_unstable();
            tiles
        };
        assert_eq!(tiles(&plans.fixed), tiles(&plans.drawn));
        assert!(Ledger::from_plan(&plans.drawn).is_ok() && Ledger::from_plan(&plans.fixed).is_err());
        let two = planned(TWO, &[], Hand::Drawn, (128, 128), h200).expect("proved");
        assert_eq!(Ledger::from_plan(&two).expect("drawn").kinds(), 2);
    }
}
