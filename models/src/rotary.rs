//! Angles of the rotation of queries and keys.

use std::f64::consts::TAU;

use crate::config::{ModelConfig, Rope};
use crate::error::{Error, Result};

/// Frequencies of a head's pairs, radians per position.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotary {
    frequencies: Vec<f64>,
}

impl Rotary {
    /// Frequencies for heads of `columns` columns.
    ///
    /// # Errors
    /// A kind of scaling that is not supported, or rotation of a part of a head.
    pub fn new(config: &ModelConfig, columns: usize) -> Result<Rotary> {
        let rope = config.rope_parameters.as_ref().or(config.rope_scaling.as_ref());
        let part = config.partial_rotary_factor.or(rope.and_then(|r| r.partial_rotary_factor));
        if part.is_some_and(|part| part != 1.0) {
            return Err(Error::Config("rotation of a part of a head is not supported".into()));
        }
        let base = rope.and_then(|r| r.rope_theta).or(config.rope_theta).unwrap_or(10_000.0);
        let plain = |pair: usize| base.powf(-2.0 * pair as f64 / columns as f64);
        let mut frequencies: Vec<f64> = (0..columns / 2).map(plain).collect();
        let kind = rope.and_then(|r| r.rope_type.as_deref()).unwrap_or("default");
        match (kind, rope) {
            ("linear", Some(rope)) => {
                let factor = given(rope.factor, "factor")?;
                frequencies.iter_mut().for_each(|f| *f /= factor);
            }
            ("llama3", Some(rope)) => {
                let scale = Stretch::new(rope)?;
                frequencies.iter_mut().for_each(|f| *f = scale.apply(*f));
            }
            ("default", _) => {}
            (other, _) => {
                let text = format!("rope scaling {other} is not supported");
                return Err(Error::Config(text + "\n  help: default, linear and llama3 are"));
            }
        }
        Ok(Rotary { frequencies })
    }

    /// The table of `docs/spec.md`: row p holds the cosines of position p, then its sines.
    pub fn table(&self, positions: usize) -> Vec<f32> {
        let mut table = Vec::with_capacity(positions * self.frequencies.len() * 2);
        for position in 0..positions {
            let angles = self.frequencies.iter().map(|f| position as f64 * f);
            table.extend(angles.clone().map(|angle| angle.cos() as f32));
            table.extend(angles.map(|angle| angle.sin() as f32));
        }
        table
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
        let table = plain.table(2);
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

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (rope, word) in [
            (r#", "rope_scaling": {"type": "yarn", "factor": 4.0}"#, "yarn"),
            (r#", "rope_scaling": {"type": "linear"}"#, "factor"),
            (r#", "partial_rotary_factor": 0.5"#, "part of a head"),
        ] {
            let error = Rotary::new(&config(rope), 64).expect_err("not supported").to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
