//! Compares outputs with references.

use cusync_dag::BufferId;

/// An output and its expected contents.
#[derive(Clone, Debug)]
pub struct Check {
    /// Name in error messages.
    pub name: &'static str,
    /// Buffer of the output.
    pub buffer: BufferId,
    /// Expected contents.
    pub want: Want,
}

/// A reference.
#[derive(Clone, Debug)]
pub enum Want {
    /// Exactly these words.
    Words(Vec<u32>),
    /// Floats, each within `tolerance` times the largest magnitude among them.
    F32(Vec<f64>, f64),
    /// Doubles, two words each, with the same kind of tolerance.
    F64(Vec<f64>, f64),
    /// For each row, the class with the highest score, or one whose score is within the tolerance of it.
    Class {
        /// Scores, row by row.
        scores: Vec<f64>,
        /// Number of scores per row.
        classes: usize,
        /// Maximum difference from the best score.
        tolerance: f64,
    },
}

impl Check {
    /// Compares the output.
    ///
    /// # Errors
    /// Description of the difference.
    pub fn verify(&self, words: &[u32]) -> Result<(), String> {
        let close = |have: &[f64], want: &[f64], tolerance: f64| {
            let largest = want.iter().fold(0.0_f64, |most, v| most.max(v.abs()));
            if have.len() != want.len() {
                return Err(format!("{}: {} values, {} expected", self.name, have.len(), want.len()));
            }
            let off = |(h, w): (&f64, &f64)| h.is_nan() || (h - w).abs() > tolerance * largest;
            match have.iter().zip(want).position(off) {
                Some(i) => Err(format!("{}[{i}] is {:e}, {:e} expected", self.name, have[i], want[i])),
                None => Ok(()),
            }
        };
        match &self.want {
            Want::Words(want) => match words.iter().zip(want).position(|(h, w)| h != w) {
                Some(i) => Err(format!("{}[{i}] is {:#x}, {:#x} expected", self.name, words[i], want[i])),
                None if words.len() == want.len() => Ok(()),
                None => Err(format!("{}: {} words, {} expected", self.name, words.len(), want.len())),
            },
            Want::F32(want, tolerance) => {
                let have: Vec<f64> = words.iter().map(|&w| f64::from(f32::from_bits(w))).collect();
                close(&have, want, *tolerance)
            }
            Want::F64(want, tolerance) => close(&doubles(words), want, *tolerance),
            Want::Class { scores, classes, tolerance } => {
                if words.len() * classes != scores.len() {
                    return Err(format!("{}: {} rows", self.name, words.len()));
                }
                for (row, (&class, scores)) in words.iter().zip(scores.chunks(*classes)).enumerate() {
                    let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let near = scores.get(class as usize).is_some_and(|s| best - s <= *tolerance);
                    if !near {
                        return Err(format!("{}[{row}] is {class}; scores are {scores:?}", self.name));
                    }
                }
                Ok(())
            }
        }
    }
}

/// Words that contain doubles.
pub(super) fn of_doubles(values: &[f64]) -> Vec<u32> {
    values.iter().flat_map(|v| [v.to_bits() as u32, (v.to_bits() >> 32) as u32]).collect()
}

fn doubles(words: &[u32]) -> Vec<f64> {
    let join = |pair: &[u32]| u64::from(pair[0]) | u64::from(pair[1]) << 32;
    words.chunks_exact(2).map(|pair| f64::from_bits(join(pair))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_outputs_are_told() {
        let check = |want| Check { name: "y", buffer: BufferId(0), want };
        let floats = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        let near = check(Want::F32(vec![100.0, 1.0], 1e-3));
        assert_eq!(near.verify(&floats(&[100.05, 1.05])), Ok(()));
        assert!(near.verify(&floats(&[100.0, 1.2])).expect_err("off").contains("y[1]"));
        assert!(near.verify(&floats(&[f32::NAN, 1.0])).expect_err("poison").contains("y[0]"));
        assert!(near.verify(&floats(&[100.0])).is_err());
        let exact = check(Want::Words(vec![1, 2]));
        assert_eq!(exact.verify(&[1, 2]), Ok(()));
        assert!(exact.verify(&[1, 3]).is_err() && exact.verify(&[1]).is_err());
        let double = check(Want::F64(vec![0.1, -7.25], 1e-12));
        assert_eq!(double.verify(&of_doubles(&[0.1, -7.25])), Ok(()));
        assert!(double.verify(&of_doubles(&[0.1, -7.26])).is_err());
        let class =
            check(Want::Class { scores: vec![0.1, 0.5, 0.4999, 0.9, 0.0, 0.0], classes: 3, tolerance: 1e-3 });
        assert_eq!(class.verify(&[2, 0]), Ok(()));
        assert!(class.verify(&[0, 0]).is_err() && class.verify(&[1, 3]).is_err());
    }
}
