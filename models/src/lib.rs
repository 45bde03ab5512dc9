//! Language models on cusync: the folder of a Hugging Face checkpoint in, tokens out.
//!
//! ```
//! use cusync_models::{Control, Event, Model, Options, Request, Sampling, Tokenizer, generate, tiny};
//!
//! let folder = tempfile::tempdir()?;
//! tiny::write(folder.path(), "LlamaForCausalLM")?;
//! let mut model = Model::open(folder.path(), &Options::default(), |_| ())?;
//! let text = Tokenizer::open(folder.path())?;
//! let request = Request {
//!     prompt: text.tokens("Once upon a time")?,
//!     max_tokens: 8,
//!     sampling: Sampling::default(),
//!     seed: 0,
//!     ends: model.ends().to_vec(),
//! };
//! let mut tokens = Vec::new();
//! generate(&mut model, &[request], |event| {
//!     if let Event::Token { token, .. } = event {
//!         tokens.push(token);
//!     }
//!     Control::Continue
//! })?;
//! assert!(tokens.len() <= 8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod architecture;
mod checkpoint;
mod config;
mod error;
mod generate;
mod given;
mod gpu;
mod gpus;
mod host;
mod launch;
mod logits;
mod model;
pub mod page;
mod pool;
mod prompts;
mod rotary;
mod sample;
mod shard;
#[cfg(feature = "text")]
mod text;
#[cfg(feature = "text")]
pub mod tiny;
mod weights;

pub use config::{ModelConfig, Rope, Tokens};
pub use error::{Error, Result};
pub use generate::{Control, End, Event, GenerationTimes, Request, generate};
pub use given::{Bytes, GivenWeight, WeightType};
pub use gpu::MAX_GPU_SLOTS;
pub use logits::Logits;
pub use model::{Model, Options, Place};
pub use pool::PAGE;
pub use rotary::Rotary;
pub use sample::{Next, Sampling};
#[cfg(feature = "text")]
pub use text::{Pieces, Tokenizer};
pub use weights::Loaded;
