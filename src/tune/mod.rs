//! Chooses how to run a pipeline: by prediction, or better by measuring the best predictions.
//!
//! A prediction needs no GPU and no time, and is the fallback of everything. `cusync tune` measures the
//! configurations with the best predicted times, interleaved on the available GPU, and keeps the winner in a
//! [`PlanCache`]: a JSON file that can be shipped and merged, keyed by everything that the result depends on
//! ([`Key`]). An entry is a stated configuration ([`Config`]), not a plan: its plan is proved like any spec,
//! so a wrong or stale cache cannot launch anything unproved.
//!
//! ```
//! use cusync::codegen::device::Profile;
//! use cusync::runtime::{Overrides, resolve_text, shipped};
//! use cusync::tune::{first_choice, proposals};
//!
//! let h200 = Profile::named("h200").expect("it ships");
//! let resolved = resolve_text(shipped("two_gemms").expect("it ships"), "two_gemms", &Overrides::default())?;
//! let all = proposals(&resolved, h200, None).expect("kernels run it");
//! let first = first_choice(&all).expect("something is chosen for each executor");
//! assert!(all.iter().all(|other| !other.automatic || other.predicted_us >= first.predicted_us));
//! # Ok::<(), cusync::runtime::Error>(())
//! ```

pub mod calibrate;

mod answer;
mod cache;
mod confirm;
mod error;
mod in_turn;
mod key;
mod proposals;
mod store;
mod what_if;

pub use answer::{Origin, Planned, SourcedCandidate, answer, pipeline, plan};
pub use cache::{CacheEntry, PlanCache, Tried, VERSION};
pub use confirm::{Confirmed, Measure, confirm};
pub use cusync_gen::choose::{Config, EdgeConfig, StageConfig, StageExecutor};
pub use error::{Error, Result};
pub use in_turn::in_turn;
pub use key::{Key, Machine, asked_name};
pub use proposals::{Proposal, first_choice, predicted, predicted_us, proposals, shortlist};
pub use store::{Store, replace_file};
pub use what_if::decisions;
