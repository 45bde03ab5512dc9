//! How the products of queries and keys become exponents of weights, and which keys a query sees.

use crate::diagnostic::{Diagnostic, Spanned};
use crate::graph::op::Stated;
use crate::spec::AttentionSpec;

/// The scores of an attention: `softcap * tanh(scale * q k / softcap)`, or `scale * q k` without a softcap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// Factor on the product of a query and a key.
    pub scale: f32,
    /// Bound of the magnitudes of scores.
    pub softcap: Option<f32>,
    /// Tokens that a token attends to at most: itself and those just before it.
    pub window: Option<u32>,
}

impl Scores {
    /// Those of most models: the scale is one over the root of a head's columns.
    pub fn usual(dim: u32) -> Scores {
        Scores { scale: 1.0 / (dim as f32).sqrt(), softcap: None, window: None }
    }

    /// The first token of its sequence that the token at a position attends to.
    pub fn first_seen(&self, position: u32) -> u32 {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// Deviations from [`Scores::usual`], for labels.
    pub(super) fn suffix(&self, dim: u32) -> String {
        let scale = (self.scale != Scores::usual(dim).scale).then(|| format!(" scale {:e},", self.scale));
        let softcap = self.softcap.map(|softcap| format!(" softcap {softcap},"));
        let window = self.window.map(|window| format!(" window of {window} tokens,"));
        [scale, softcap, window].into_iter().flatten().collect()
    }
}

/// The scores as stated, with their defaults. Also checks that a window is behind a causal mask.
pub(super) fn lower(
    spec: &AttentionSpec,
    stated: &Stated<'_>,
    dim: u32,
    generates: bool,
) -> Result<Scores, Diagnostic> {
    let usual = Scores::usual(dim);
    let positive = |value: &Option<Spanned<f64>>, noun: &str| {
        let Some(stated) = value else { return Ok(None) };
        let number = stated.value as f32;
        if number.is_normal() && number > 0.0 {
            return Ok(Some(number));
        }
        Err(Diagnostic::new("bad-scores", format!("the {noun} of scores is {}", stated.value))
            .at(stated.span, "not a positive float32")
            .help(format!(
                "leave it out, or state a {noun} such as {}",
                if noun == "scale" { 0.125 } else { 50.0 }
            )))
    };
    let window = match &spec.window {
        Some(window) => Some(stated.dims.size(window, "the window")?),
        None => None,
    };
    let causal = generates || spec.causal.as_ref().is_none_or(|causal| causal.value);
    if let Some(window) = spec.window.as_ref().filter(|_| !causal) {
        return Err(Diagnostic::new("bad-scores", "only a causal attention has a window")
            .at(window.span, "the attention is not causal")
            .help("remove `causal: false`, or the window"));
    }
    Ok(Scores {
        scale: positive(&spec.scale, "scale")?.unwrap_or(usual.scale),
        softcap: positive(&spec.softcap, "softcap")?,
        window,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_at_its_token() {
        let windowed = Scores { window: Some(3), ..Scores::usual(64) };
        let first: Vec<u32> = (0..5).map(|position| windowed.first_seen(position)).collect();
        assert_eq!(first, [0, 0, 0, 1, 2]);
        assert_eq!(Scores::usual(64).first_seen(7), 0);
        assert_eq!(Scores::usual(64).scale, 0.125);
        assert_eq!(windowed.suffix(64), " window of 3 tokens,");
    }
}
