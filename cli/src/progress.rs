//! Progress of a long command, only on a terminal's standard error.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::print::Output;

/// A status line; disappears when dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Draws nothing if standard error is not a terminal.
    pub(crate) fn start(output: &Output) -> Self {
        let bar = ProgressBar::new_spinner();
        if output.progress {
            let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(120));
        } else {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Progress(bar)
    }

    /// Shows the next step.
    pub(crate) fn say(&self, message: impl Into<String>) {
        self.0.set_message(message.into());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
