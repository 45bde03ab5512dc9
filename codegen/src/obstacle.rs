//! Obstacles: why an executor cannot run a pipeline.
//!
//! ```
//! use cusync_gen::check::Executor;
//! use cusync_gen::{choose, device::Profile, spec};
//!
//! let text = r#"Pipeline(name: "thin", dims: {}, stages: [
//!     Conv2d(name: "c", input: "X(1,20,20,8)", filter: "F(3,3,8,8)", out: "Y(1,2,2,8)", stride: (9,9)),
//! ])"#;
//! let resolved = spec::parse(text, "thin.ron")?.resolve(&[])?;
//! let h200 = Profile::named("h200").expect("it ships");
//! let obstacle = choose::obstacle(&resolved, h200, Executor::Fused).expect("no kernel loads it");
//! assert_eq!((obstacle.stage.as_deref(), obstacle.numbers), (Some("c"), Some((9, 8))));
//! assert_eq!(choose::obstacle(&resolved, h200, Executor::Cpu), None);
//! # Ok::<(), cusync_gen::diagnostic::Diagnostic>(())
//! ```

use std::fmt;

use crate::diagnostic::Diagnostic;
use crate::executor::Executor;
use crate::graph::Resolved;

/// The first reason why an executor cannot run a pipeline on a device. As text it is one sentence without a full stop:
/// ``stage `gate` gives a worker 258 rows of weights; it has room for 256``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Name of the stage; `None` if it is about the whole pipeline, the device, or a statement of the spec.
    pub stage: Option<String>,
    /// The reason: the text after the stage name, or a sentence if there is none.
    pub reason: String,
    /// The offending number, and its limit or the number it must be a multiple of.
    pub numbers: Option<(u64, u64)>,
    /// A way to fix it, other than another executor.
    pub help: Option<String>,
    /// The error of the offending statement.
    pub(crate) statement: Option<Box<Diagnostic>>,
}

impl Obstacle {
    /// An obstacle of a whole pipeline or of a device.
    pub(crate) fn new(reason: impl Into<String>) -> Obstacle {
        Obstacle { stage: None, reason: reason.into(), numbers: None, help: None, statement: None }
    }

    /// Adds the offending number, and its limit or the number it must be a multiple of.
    pub(crate) fn numbers(self, have: impl Into<u64>, limit: impl Into<u64>) -> Obstacle {
        Obstacle { numbers: Some((have.into(), limit.into())), ..self }
    }

    /// Adds a way to fix it.
    pub(crate) fn help(self, help: impl Into<String>) -> Obstacle {
        Obstacle { help: Some(help.into()), ..self }
    }

    /// Names the stage.
    pub(crate) fn of_stage(self, name: &str) -> Obstacle {
        Obstacle { stage: Some(name.into()), ..self }
    }

    /// The obstacle that comes nearest to its limit; on a tie, the first.
    pub(crate) fn nearest(all: impl IntoIterator<Item = Obstacle>) -> Option<Obstacle> {
        let excess =
            |o: &Obstacle| o.numbers.map_or(f64::INFINITY, |(have, limit)| have as f64 / limit as f64);
        all.into_iter().min_by(|a, b| excess(a).total_cmp(&excess(b)))
    }

    /// The error for a request of `executor`; `other` runs the pipeline.
    pub(crate) fn to_diagnostic(
        &self,
        resolved: &Resolved,
        executor: Executor,
        other: Executor,
    ) -> Diagnostic {
        if let Some(statement) = &self.statement {
            return (**statement).clone();
        }
        let message = format!("the {} executor cannot run this pipeline: {self}", executor.name());
        let mut diagnostic = Diagnostic::new("no-kernel", message);
        if let Some(stage) = resolved.stages.iter().find(|s| self.stage.as_ref() == Some(&s.name.value)) {
            diagnostic = diagnostic.at(stage.name.span, "this stage");
        }
        if let Some(help) = &self.help {
            diagnostic = diagnostic.help(help);
        }
        if other == executor {
            return diagnostic;
        }
        diagnostic
            .help(format!("the {0} executor runs it: leave --executor out, or choose {0}", other.name()))
    }
}

impl From<Diagnostic> for Obstacle {
    /// A statement of the spec that no kernel or no proof allows.
    fn from(statement: Diagnostic) -> Obstacle {
        let help = statement.help.first().cloned();
        let reason = statement.message.clone();
        Obstacle { help, statement: Some(Box::new(statement)), ..Obstacle::new(reason) }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stage {
            Some(stage) => write!(f, "stage `{stage}` {}", self.reason),
            None => write!(f, "{}", self.reason),
        }
    }
}
