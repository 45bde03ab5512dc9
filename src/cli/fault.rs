//! Why a command could not answer.

use serde::Serialize;

use super::report::ObstacleReport;

/// A refusal, ready to print: what is wrong and the way out.
#[derive(Debug, Serialize)]
pub(crate) struct Fault {
    /// One or more lines; without `error:` unless it is rendered already.
    #[serde(rename = "error")]
    pub(crate) message: String,
    /// What to do, where the message does not say it.
    pub(crate) help: Option<String>,
    /// What keeps executors from running a pipeline, where that is the fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) obstacles: Vec<ObstacleReport>,
    /// Exit status: 2 for bad input or a missing part of the machine, 1 for a refuted spec or a wrong result.
    pub(crate) status: u8,
}

impl Fault {
    /// Bad input or a missing part of the machine.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Fault { message: message.into(), help: None, obstacles: Vec::new(), status: 2 }
    }

    /// A result that is wrong or refuted.
    pub(crate) fn refuted(message: impl Into<String>) -> Self {
        Fault { status: 1, ..Fault::input(message) }
    }

    /// Adds a way out.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds what keeps executors from running the pipeline.
    pub(crate) fn obstacles(self, obstacles: Vec<ObstacleReport>) -> Self {
        Fault { obstacles, ..self }
    }
}

/// The name nearest to `word`, when one is near: for "did you mean".
pub(crate) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near =
        names.map(|n| (strsim::damerau_levenshtein(word, n), n)).filter(|(d, n)| *d <= 1 + n.len() / 4);
    near.min().map(|(_, n)| n)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_of_the_finger_is_found_and_a_stranger_is_not() {
        let names = || ["gpt3_mlp", "llama65_mlp", "diamond"].into_iter();
        assert_eq!(nearest("gtp3_mlp", names()), Some("gpt3_mlp"));
        assert_eq!(nearest("diamnd", names()), Some("diamond"));
        assert_eq!(nearest("attention", names()), None);
    }
}
