//! Angles of the rotation of queries and keys.

use std::f64::consts::TAU;
use std::ops::Range;

use crate::config::{ModelConfig, Rope};
use crate::error::{Error, Result};

/// Kinds of scaling.
const KINDS: &str = "default, linear, llama3, yarn and longrope";

/// Rotation of the pairs of a head.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotary {
    /// Columns of a head.
    columns: usize,
    /// Radians per position of the pairs of the rotated columns.
    frequencies: Vec<f64>,
    /// Frequencies of longer sequences, and the positions up to which the others hold.
    beyond: Option<(usize, Vec<f64>)>,
    /// Factor on cosines and sines.
    factor: f64,
}

impl Rotary {
    /// The rotation of a configuration, for heads of `columns` columns.
    ///
    /// # Errors
    /// A kind of scaling that is not supported, or that lacks a number.
    pub fn new(config: &ModelConfig, columns: usize) -> Result<Rotary> {
        Rotary::scaled(&config.rope(), columns, config.max_position_embeddings)
    }

    /// The rotation of some frequencies, in a model for `positions` positions.
    pub(crate) fn scaled(rope: &Rope, columns: usize, positions: usize) -> Result<Rotary> {
        let part = rope.partial_rotary_factor.unwrap_or(1.0);
        let rotated = (columns as f64 * part) as usize;
        let even = |n: usize| n.is_multiple_of(2);
        if !(0.0..=1.0).contains(&part) || rotated == 0 || !even(rotated) || !even(columns - rotated) {
            return Err(Error::Config(format!(
                "partial_rotary_factor is {part}\n  help: it is the share of a head's {columns} columns that are \
                 rotated in pairs"
            )));
        }
        let base = rope.rope_theta.unwrap_or(10_000.0);
        let plain = (0..rotated / 2).map(|pair| base.powf(-2.0 * pair as f64 / rotated as f64));
        let plain = Rotary { columns, frequencies: plain.collect(), beyond: None, factor: 1.0 };
        match rope.rope_type.as_deref().unwrap_or("default") {
            "default" => Ok(plain),
            "linear" => {
                let factor = given(rope.factor, "factor")?;
                Ok(plain.map(|_, frequency| frequency / factor))
            }
            "llama3" => {
                let scale = Stretch::new(rope)?;
                Ok(plain.map(|_, frequency| scale.apply(frequency)))
            }
            "yarn" => plain.yarn(rope, base, positions),
            // The second name is that of the first checkpoints.
            "longrope" | "su" => plain.longrope(rope, positions),
            other => {
                Err(Error::Config(format!("rope scaling {other} is not supported\n  help: {KINDS} are")))
            }
        }
    }

    fn map(mut self, change: impl Fn(usize, f64) -> f64) -> Rotary {
        self.frequencies.iter_mut().enumerate().for_each(|(pair, f)| *f = change(pair, *f));
        self
    }

    /// Scaling that keeps short wavelengths, stretches long ones, and interpolates pairs between them. Scores grow
    /// with the factor, because cosines and sines do.
    fn yarn(self, rope: &Rope, base: f64, positions: usize) -> Result<Rotary> {
        let original = rope.original_max_position_embeddings.unwrap_or(positions as f64);
        let factor = given(rope.factor.or(Some(positions as f64 / original)), "factor")?;
        let rotated = 2.0 * self.frequencies.len() as f64;
        // The pair that turns so often within the original positions.
        let pair = |turns: f64| rotated * (original / (turns * TAU)).ln() / (2.0 * base.ln());
        let ends = (pair(rope.beta_fast.unwrap_or(32.0)), pair(rope.beta_slow.unwrap_or(1.0)));
        let (low, high) = match rope.truncate {
            Some(false) => ends,
            _ => (ends.0.floor(), ends.1.ceil()),
        };
        let (low, high) = (low.max(0.0), high.min(rotated - 1.0));
        // Where both are equal, the step between the pairs is sharp.
        let width = if high == low { 0.001 } else { high - low };
        let grown = |scale: f64| if factor > 1.0 { 0.1 * scale * factor.ln() + 1.0 } else { 1.0 };
        let default = match (rope.mscale, rope.mscale_all_dim) {
            (Some(one), Some(all)) if one != 0.0 && all != 0.0 => grown(one) / grown(all),
            _ => grown(1.0),
        };
        let scaled = self.map(|pair, frequency| {
            let stretched = ((pair as f64 - low) / width).clamp(0.0, 1.0);
            frequency / factor * stretched + frequency * (1.0 - stretched)
        });
        Ok(Rotary { factor: rope.attention_factor.unwrap_or(default), ..scaled })
    }

    /// Scaling by a factor for each pair, with other factors for sequences beyond the original positions.
    fn longrope(self, rope: &Rope, positions: usize) -> Result<Rotary> {
        let original = rope.original_max_position_embeddings.unwrap_or(positions as f64);
        let ratio = rope.factor.unwrap_or(positions as f64 / original);
        let grown = if ratio > 1.0 { (1.0 + ratio.ln() / original.ln()).sqrt() } else { 1.0 };
        let pairs = self.frequencies.len();
        let divided = |factors: &Option<Vec<f64>>, name: &str| match factors {
            Some(factors) if factors.len() == pairs && factors.iter().all(|factor| *factor > 0.0) => {
                Ok(self.frequencies.iter().zip(factors).map(|(f, factor)| f / factor).collect::<Vec<f64>>())
            }
            _ => Err(Error::Config(format!(
                "rope scaling longrope has no `{name}` for {pairs} pairs\n  help: it is a list of positive numbers, one \
                 for each pair of a head's rotated columns"
            ))),
        };
        let (short, long) =
            (divided(&rope.short_factor, "short_factor")?, divided(&rope.long_factor, "long_factor")?);
        let factor = rope.attention_factor.unwrap_or(grown);
        Ok(Rotary { frequencies: short, beyond: Some((original as usize, long)), factor, ..self })
    }

    /// The table of `docs/spec.md` for `positions` positions of sequences of up to `context` tokens: row p holds the
    /// cosines of position p, then its sines. Columns that are not rotated turn by 0.
    pub fn table(&self, positions: usize, context: usize) -> Vec<f32> {
        let frequencies = match &self.beyond {
            Some((original, long)) if context > *original => long,
            _ => &self.frequencies,
        };
        let still = self.columns / 2 - frequencies.len();
        let mut table = Vec::with_capacity(positions * self.columns);
        for position in 0..positions {
            let angles = frequencies.iter().map(|f| position as f64 * f);
            table.extend(angles.clone().map(|angle| (angle.cos() * self.factor) as f32));
            table.extend(std::iter::repeat_n(1.0, still));
            table.extend(angles.map(|angle| (angle.sin() * self.factor) as f32));
            table.extend(std::iter::repeat_n(0.0, still));
        }
        table
    }

    /// The columns of a head in the order that kernels rotate: column i in a pair with the one half a head behind it.
    /// Checkpoints have the rotated columns first, so with others behind them both halves are made of two ranges.
    pub(crate) fn order(&self) -> Vec<Range<usize>> {
        let (half, rotated) = (self.frequencies.len(), 2 * self.frequencies.len());
        let middle = rotated + (self.columns - rotated) / 2;
        vec![0..half, rotated..middle, half..rotated, middle..self.columns]
    }

    /// Whether all columns of a head are rotated.
    pub fn is_whole(&self) -> bool {
        2 * self.frequencies.len() == self.columns
    }
}

fn given(value: Option<f64>, name: &str) -> Result<f64> {
    value.filter(|v| *v > 0.0).ok_or_else(|| Error::Config(format!("rope scaling has no positive `{name}`")))
}

/// Scaling of Llama 3.1 and later: long wavelengths are stretched by a factor, short ones stay, and those
/// between are interpolated.
struct Stretch {
    factor: f64,
    low: f64,
    high: f64,
    positions: f64,
}

impl Stretch {
    fn new(rope: &Rope) -> Result<Stretch> {
        Ok(Stretch {
            factor: given(rope.factor, "factor")?,
            low: given(rope.low_freq_factor, "low_freq_factor")?,
            high: given(rope.high_freq_factor, "high_freq_factor")?,
            positions: given(rope.original_max_position_embeddings, "original_max_position_embeddings")?,
        })
    }

    fn apply(&self, frequency: f64) -> f64 {
        let turns = self.positions * frequency / TAU;
        if turns < self.low {
            return frequency / self.factor;
        }
        if turns > self.high {
            return frequency;
        }
        let kept = (turns - self.low) / (self.high - self.low);
        frequency * (kept + (1.0 - kept) / self.factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(rope: &str) -> ModelConfig {
        let text = format!(
            r#"{{"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1,
                "vocab_size": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "rope_theta": 10000.0 {rope}}}"#
        );
        serde_json::from_str(&text).expect("a configuration")
    }

    #[test]
    fn scalings_stretch_what_they_should() {
        let plain = Rotary::new(&config(""), 64).expect("valid");
        assert_eq!(plain.frequencies[0], 1.0);
        let table = plain.table(2, 64);
        assert_eq!((table[0], table[32]), (1.0, 0.0), "position 0 is not rotated");
        assert!((table[64] - 1f32.cos()).abs() < 1e-7 && (table[96] - 1f32.sin()).abs() < 1e-7);
        let linear = config(r#", "rope_scaling": {"type": "linear", "factor": 4.0}"#);
        let linear = Rotary::new(&linear, 64).expect("valid");
        assert!(linear.frequencies.iter().zip(&plain.frequencies).all(|(l, p)| *l == p / 4.0));
        let llama = r#", "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}"#;
        let llama = Rotary::new(&config(llama), 64).expect("valid");
        let ratio: Vec<f64> = plain.frequencies.iter().zip(&llama.frequencies).map(|(p, l)| p / l).collect();
        assert_eq!((ratio[0], ratio[31]), (1.0, 8.0), "short wavelengths stay, long ones are stretched");
        assert!(ratio.windows(2).all(|w| w[0] <= w[1]) && ratio.iter().any(|r| *r > 1.0 && *r < 8.0));
    }

    /// Frequencies and factors as transformers 5.17 computes them, rounded to nine digits behind the point.
    #[test]
    fn scalings_have_the_frequencies_of_transformers() {
        let yarn = |more: &str| {
            format!(
                r#", "rope_scaling": {{"rope_type": "yarn", "original_max_position_embeddings": 4096, {more}}}"#
            )
        };
        let pairs = [0, 5, 8, 11];
        for (rope, expected, last, factor) in [
            (yarn(r#""factor": 4.0"#), [1.0, 0.237137362, 0.1, 0.039736785], 3.3338e-5, 1.138629436),
            (
                yarn(r#""factor": 4.0, "truncate": false, "beta_fast": 16, "beta_slow": 2"#),
                [1.0, 0.237137362, 0.1, 0.042169649],
                3.3338e-5,
                1.138629436,
            ),
            (
                yarn(r#""factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.5"#),
                [1.0, 0.237137362, 0.1, 0.039006926],
                3.334e-6,
                1.064468904,
            ),
            (
                yarn(r#""factor": 4.0, "partial_rotary_factor": 0.5"#),
                [1.0, 0.056234129, 0.006785714, 0.0006351],
                4.4457e-5,
                1.138629436,
            ),
        ] {
            let rotary = Rotary::new(&config(&rope), 64).expect("valid");
            let have = pairs.map(|pair| rotary.frequencies[pair]);
            assert!(have.iter().zip(expected).all(|(h, e)| (h - e).abs() < 1e-8), "{rope}: {have:?}");
            assert!((rotary.frequencies.last().expect("pairs") - last).abs() < 1e-9, "{rope}");
            assert!((rotary.factor - factor).abs() < 1e-8, "{rope}: {}", rotary.factor);
        }
    }

    #[test]
    fn longrope_takes_other_factors_for_longer_sequences() {
        let list = |first: f64, step: f64| (0..24).map(|i| first + step * f64::from(i)).collect::<Vec<f64>>();
        let rope = format!(
            r#", "original_max_position_embeddings": 16, "partial_rotary_factor": 0.75,
                "rope_scaling": {{"type": "longrope", "short_factor": {:?}, "long_factor": {:?}}}"#,
            list(1.0, 0.1),
            list(2.0, 0.5)
        );
        let rotary = Rotary::new(&config(&rope), 64).expect("valid");
        // The model has 64 positions, four times the original ones.
        let factor = (1.0 + 4f64.ln() / 16f64.ln()).sqrt();
        for (context, expected) in
            [(16, [1.0, 0.097853281, 0.025786603]), (17, [0.5, 0.032617763, 0.00773598])]
        {
            let table = rotary.table(2, context);
            for (pair, frequency) in [0, 5, 8].into_iter().zip(expected) {
                let (cos, sin) = (f64::from(table[64 + pair]), f64::from(table[96 + pair]));
                assert!((cos - factor * f64::cos(frequency)).abs() < 1e-6, "{context}, pair {pair}: {cos}");
                assert!((sin - factor * f64::sin(frequency)).abs() < 1e-6, "{context}, pair {pair}: {sin}");
            }
            assert!((24..32).all(|still| (table[64 + still], table[96 + still]) == (1.0, 0.0)), "{table:?}");
        }
        assert_eq!(rotary.order(), [0..24, 48..56, 24..48, 56..64]);
        assert!(!rotary.is_whole());
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (rope, word) in [
            (r#", "rope_scaling": {"type": "dynamic", "factor": 4.0}"#, "dynamic"),
            (r#", "rope_scaling": {"type": "linear"}"#, "factor"),
            (r#", "partial_rotary_factor": 1.5"#, "partial_rotary_factor is 1.5"),
            (r#", "partial_rotary_factor": 0.3"#, "partial_rotary_factor is 0.3"),
            (
                r#", "rope_scaling": {"type": "longrope", "short_factor": [1.0]}"#,
                "`short_factor` for 32 pairs",
            ),
        ] {
            let error = Rotary::new(&config(rope), 64).expect_err("not supported").to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
