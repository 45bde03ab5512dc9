//! HITS: hubs and authorities of a random graph, degree 3.

use cusync_dag::{BufferId, DagError, Recording};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Case, Check, Want, hand, moving, over, scratch_words};

const DEGREE: usize = 3;

/// A sparse matrix in compressed rows; every value is 1.
struct Rows {
    begin: Vec<u32>,
    column: Vec<u32>,
}

impl Rows {
    fn from_edges(n: usize, mut edges: Vec<(u32, u32)>) -> Rows {
        edges.sort_unstable();
        let mut begin = vec![0; n + 1];
        for &(row, _) in &edges {
            begin[row as usize + 1] += 1;
        }
        for row in 0..n {
            begin[row + 1] += begin[row];
        }
        Rows { begin, column: edges.into_iter().map(|(_, column)| column).collect() }
    }

    fn times(&self, x: &[f64]) -> Vec<f64> {
        let row =
            |w: &[u32]| self.column[w[0] as usize..w[1] as usize].iter().map(|&c| x[c as usize]).sum::<f64>();
        self.begin.windows(2).map(row).collect()
    }
}

pub(super) fn hits(n: usize, iterations: usize) -> Result<Case, DagError> {
    let mut rng = SmallRng::seed_from_u64(5);
    let mut edges = Vec::new();
    for row in 0..n as u32 {
        edges.extend((0..DEGREE).map(|_| (row, rng.random_range(0..n as u32))));
    }
    let transposed = edges.iter().map(|&(a, b)| (b, a)).collect();
    let (forward, backward) = (Rows::from_edges(n, edges), Rows::from_edges(n, transposed));

    let mut r = Recording::new("HITS").built_for_programmatic_edges();
    let matrix = |r: &mut Recording, rows: &Rows| -> [BufferId; 3] {
        let ones = vec![1.0; rows.column.len()];
        [
            r.filled("begin", rows.begin.clone()),
            r.filled("column", rows.column.clone()),
            r.floats("value", &ones),
        ]
    };
    let (to_auth, to_hub) = (matrix(&mut r, &forward), matrix(&mut r, &backward));
    let ones = vec![1.0; n];
    let (hub1, auth1) = (r.floats("hub1", &ones), r.floats("auth1", &ones));
    let (hub2, auth2) = (r.zeros("hub2", n), r.zeros("auth2", n));
    // The kernels accumulate into these, so they are inputs of the first iteration.
    let (auth_norm, hub_norm) = (r.floats("auth norm", &[0.0]), r.floats("hub norm", &[0.0]));
    let sum_launch = over(n);
    let scratch =
        [r.zeros("scratch", scratch_words(sum_launch)), r.zeros("scratch", scratch_words(sum_launch))];
    let size = n as u32;
    for _ in 0..iterations {
        let [begin, column, value] = to_auth.map(|b| r.read(b));
        r.launch(
            "hits_spmv",
            over(n),
            moving(12 * n),
            &[begin, column, value, r.read(hub1), r.write(auth2), size.into()],
        )?;
        let [begin, column, value] = to_hub.map(|b| r.read(b));
        r.launch(
            "hits_spmv",
            over(n),
            moving(12 * n),
            &[begin, column, value, r.read(auth1), r.write(hub2), size.into()],
        )?;
        for (x, norm, scratch) in [(auth2, auth_norm, scratch[0]), (hub2, hub_norm, scratch[1])] {
            r.launch(
                "hits_sum",
                sum_launch,
                moving(n),
                &[r.read(x), r.update(norm), r.update(scratch), size.into()],
            )?;
        }
        for (x, norm, y) in [(auth2, auth_norm, auth1), (hub2, hub_norm, hub1)] {
            r.launch(
                "hits_divide",
                over(n),
                moving(2 * n),
                &[r.read(x), r.read(norm), r.write(y), size.into()],
            )?;
        }
        let cleared = [auth2, hub2, auth_norm, hub_norm].map(|b| r.write(b));
        let [x, y, x_norm, y_norm] = cleared;
        r.launch("hits_reset", over(n), moving(2 * n), &[x, y, x_norm, y_norm, size.into()])?;
    }
    let [auths, hubs] = reference(&forward, &backward, n, iterations);
    let checks = vec![
        Check { name: "auth1", buffer: auth1, want: Want::F32(auths, 1e-4) },
        Check { name: "hub1", buffer: hub1, want: Want::F32(hubs, 1e-4) },
        Check { name: "auth norm", buffer: auth_norm, want: Want::Words(vec![0]) },
        Check { name: "hub norm", buffer: hub_norm, want: Want::Words(vec![0]) },
    ];
    let size = format!("{n} nodes, degree {DEGREE}, {iterations} iterations");
    Ok(Case { name: "HITS", size, hand: hand::hits(iterations), recording: r, checks })
}

/// Authorities and hubs.
fn reference(forward: &Rows, backward: &Rows, n: usize, iterations: usize) -> [Vec<f64>; 2] {
    let (mut auths, mut hubs) = (vec![1.0; n], vec![1.0; n]);
    let scaled = |values: Vec<f64>| {
        let sum: f64 = values.iter().sum();
        values.into_iter().map(|v| v / sum).collect::<Vec<f64>>()
    };
    for _ in 0..iterations {
        let (next_auths, next_hubs) = (forward.times(&hubs), backward.times(&auths));
        (auths, hubs) = (scaled(next_auths), scaled(next_hubs));
    }
    [auths, hubs]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // 0 -> 1, 0 -> 2, 1 -> 2.
        let edges = vec![(0, 1), (0, 2), (1, 2)];
        let turned = edges.iter().map(|&(a, b)| (b, a)).collect();
        let (forward, backward) = (Rows::from_edges(3, edges), Rows::from_edges(3, turned));
        assert_eq!(forward.begin, [0, 2, 3, 3]);
        assert_eq!(backward.times(&[1.0, 10.0, 100.0]), [0.0, 1.0, 11.0]);
        let [auths, hubs] = reference(&forward, &backward, 3, 1);
        assert_eq!(auths, [2.0 / 3.0, 1.0 / 3.0, 0.0]);
        assert_eq!(hubs, [0.0, 1.0 / 3.0, 2.0 / 3.0]);
    }
}
