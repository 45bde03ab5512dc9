//! VEC: square(x -> x1), square(y -> y1), reduce(x1, y1 -> result).

use cusync_dag::{Argument, DagError, Recording};

use super::{Case, Check, Want, hand, moving, over, scratch_words, uniform};

pub(super) fn vec(n: usize) -> Result<Case, DagError> {
    let (x, y) = (uniform(1, n, -1.0, 1.0), uniform(2, n, -2.0, 2.0));
    let mut r = Recording::new("VEC").built_for_programmatic_edges();
    let inputs = [r.floats("x", &x), r.floats("y", &y)];
    let squares = [r.zeros("x1", n), r.zeros("y1", n)];
    let result = r.zeros("result", 1);
    let scratch = r.zeros("scratch", scratch_words(over(n)));
    for (input, output) in inputs.into_iter().zip(squares) {
        r.launch(
            "vec_square",
            over(n),
            moving(2 * n),
            &[r.read(input), r.write(output), Argument::U32(n as u32)],
        )?;
    }
    let operands =
        [r.read(squares[0]), r.read(squares[1]), r.write(result), r.update(scratch), Argument::U32(n as u32)];
    r.launch("vec_reduce", over(n), moving(2 * n), &operands)?;
    let want = Want::F32(vec![reference(&x, &y)], 1e-4);
    let checks = vec![Check { name: "result", buffer: result, want }];
    Ok(Case { name: "VEC", size: format!("{n} floats"), hand: hand::vec(), recording: r, checks })
}

fn reference(x: &[f32], y: &[f32]) -> f64 {
    x.iter().zip(y).map(|(&x, &y)| f64::from(x) * f64::from(x) - f64::from(y) * f64::from(y)).sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn by_hand() {
        assert_eq!(super::reference(&[1.0, 2.0, 3.0], &[0.0, 1.0, 2.0]), 14.0 - 5.0);
    }
}
