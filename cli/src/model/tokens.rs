//! `cusync model bench --check-tokens`: greedy tokens beside PyTorch's.

use cusync::codegen::graph::Element;
use cusync::element::Bits;
use cusync_models::{Control, Event, ModelConfig, Request, Sampling, architecture};
use serde::{Deserialize, Serialize};

use super::bench::BenchArgs;
use super::peer::{Peer, PeerWork, Setting};
use super::{ModelArgs, open};
use crate::fault::Fault;
use crate::print::{Output, Page};

/// Tokens of the prompt: enough for the layers of prompts, which take at least 16.
const PROMPT: usize = 32;

/// Greedy tokens beside PyTorch's.
#[derive(Serialize, Default)]
pub(crate) struct TokensReport {
    pub(crate) element: &'static str,
    /// Tokens that were compared.
    pub(crate) tokens: usize,
    #[serde(flatten)]
    pub(crate) agreement: Agreement,
    /// Whether our tokens agree with float32, within the rounding of the element type.
    pub(crate) right: Option<bool>,
    /// Reason why nothing was compared.
    pub(crate) failed: Option<String>,
}

/// Answer of the peer.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub(crate) struct Agreement {
    /// First tokens that are equal: ours and PyTorch's in float32.
    pub(crate) agree_until: Option<usize>,
    /// PyTorch's in the element type and in float32.
    pub(crate) peer_agree_until: Option<usize>,
    /// Ours and PyTorch's in the element type.
    pub(crate) halves_agree_until: Option<usize>,
    /// The token of ours that float32 likes least behind our text, by the differences of logits below.
    pub(crate) place: Option<usize>,
    /// There, the lead of the token that float32 likes best over ours.
    pub(crate) gap: Option<f64>,
    /// There, the largest difference between PyTorch's logits in the element type and in float32.
    pub(crate) noise: Option<f64>,
    /// Reason why there is no float32.
    pub(crate) unjudged: Option<String>,
}

impl Agreement {
    /// The verdict. A run in the element type may choose another token than float32 only where its lead is not larger
    /// than what that type puts both logits off by. Equal tokens are not asked for: at a near tie, PyTorch's own run
    /// may happen to choose as float32 does.
    fn right(&self) -> Option<bool> {
        Some(self.gap? <= 2.0 * self.noise?)
    }
}

impl TokensReport {
    /// Exit status if it is not 0: 1 for wrong tokens, 2 without a verdict.
    pub(super) fn status(&self) -> Option<u8> {
        match self.right {
            Some(true) => None,
            Some(false) => Some(1),
            None => Some(2),
        }
    }

    pub(super) fn text(&self, page: &Page) -> String {
        if let Some(failed) = &self.failed {
            return format!("tokens were not compared: {failed}");
        }
        let (count, element, is) = (self.tokens, self.element, &self.agreement);
        let number = |until: Option<usize>| until.map_or_else(|| "?".into(), |n| n.to_string());
        let Some(right) = self.right else {
            let why = is.unjudged.as_deref().unwrap_or("the peer named no difference of logits");
            let halves = number(is.halves_agree_until);
            return format!(
                "tokens: the first {halves} of {count} equal PyTorch's in {element}; no verdict: {why}"
            );
        };
        let verdict = page.good(right, if right { "right" } else { "WRONG" });
        let mut text = format!(
            "tokens: {verdict}. The first {} of {count} equal PyTorch's in float32, as do the first {} of PyTorch's in \
             {element}.",
            number(is.agree_until),
            number(is.peer_agree_until),
        );
        if let (Some(place), Some(gap), Some(noise)) = (is.place, is.gap, is.noise)
            && gap > 0.0
        {
            text.push_str(&format!(
                " Behind our text, float32 prefers another token most clearly at token {place}, by {gap:.1e}; there {element} \
                 puts PyTorch's logits off by up to {noise:.1e}."
            ));
        }
        text
    }
}

/// Checks that a text fits, before minutes of measurements.
pub(super) fn check(args: &BenchArgs) -> Result<(), Fault> {
    let room = match args.model.context {
        Some(context) => context,
        None => architecture::decoder(&ModelConfig::read(&args.model.folder)?)?.context,
    };
    match args.check_tokens {
        count if count > 0 && PROMPT + count > room => {
            let fault =
                format!("{count} tokens behind a prompt of {PROMPT} need a context of {}", PROMPT + count);
            let most = room.saturating_sub(PROMPT);
            Err(Fault::input("request", fault).help(format!("give at most {most}: --check-tokens {most}")))
        }
        _ => Ok(()),
    }
}

/// Our tokens, and the checkpoint that they come from.
pub(super) struct Ours {
    setting: Setting,
    /// A checkpoint with random weights; deleted with this.
    _random: Option<tempfile::TempDir>,
    prompt: Vec<u32>,
    tokens: Vec<u32>,
}

impl Ours {
    /// Generates tokens. With random weights PyTorch writes a checkpoint first, which both read.
    pub(super) fn generate(
        args: &BenchArgs,
        peer: &mut Peer,
        setting: &Setting,
        output: &Output,
    ) -> Result<Ours, String> {
        let mut setting = setting.clone();
        let random = match args.model.random {
            true => {
                let folder =
                    tempfile::tempdir().map_err(|e| format!("failed: no folder for weights: {e}"))?;
                let _: serde_json::Value = peer.ask(&setting, PeerWork::Write { to: folder.path() })?;
                // Our model needs the memory.
                peer.rest();
                setting.folder = folder.path().to_owned();
                Some(folder)
            }
            false => None,
        };
        let fault = |fault: Fault| format!("failed: {}", fault.message.lines().next().unwrap_or_default());
        let count = args.check_tokens;
        let place = ModelArgs { folder: setting.folder.clone(), random: false, ..args.model.clone() };
        let (mut model, _) = open(&place, 1, PROMPT + count, output).map_err(fault)?;
        let vocabulary = model.decoder().vocabulary as u32;
        let prompt: Vec<u32> = (0..PROMPT as u32).map(|i| (1 + 97 * i) % vocabulary).collect();
        let sampling = Sampling::default();
        let request =
            Request { prompt: prompt.clone(), max_tokens: count, sampling, seed: 0, ends: Vec::new() };
        let mut tokens = Vec::new();
        cusync_models::generate(&mut model, &[request], |event| {
            if let Event::Token { token, .. } = event {
                tokens.push(token);
            }
            if peer.interrupted() { Control::Stop } else { Control::Continue }
        })
        .map_err(|e| fault(e.into()))?;
        Ok(Ours { setting, _random: random, prompt, tokens })
    }

    /// Asks the peer for its tokens.
    fn compare(&self, peer: &mut Peer) -> Result<Agreement, String> {
        peer.ask(&self.setting, PeerWork::Tokens { prompt: &self.prompt, tokens: &self.tokens })
    }
}

/// The verdict on our tokens, if there are any.
pub(super) fn judge(ours: Result<Ours, String>, peer: &mut Peer, element: Element) -> TokensReport {
    let element = element.name();
    let compared = ours.and_then(|ours| Ok((ours.compare(peer)?, ours.tokens.len())));
    match compared {
        Ok((agreement, tokens)) => {
            let right = agreement.right();
            TokensReport { element, tokens, agreement, right, failed: None }
        }
        Err(failed) => TokensReport { element, failed: Some(failed), ..TokensReport::default() },
    }
}
