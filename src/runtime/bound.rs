//! Checks bound memory against the proof, which assumes that every tensor has memory of its own, except for
//! stated aliases, and that no run writes weights.

use std::ops::Range;

/// Memory that already has a name in the pipeline.
pub(super) struct Known {
    pub(super) name: String,
    /// Address range.
    pub(super) bytes: Range<usize>,
    /// Whether a stage of the pipeline writes it.
    pub(super) written: bool,
}

/// Memory that is about to be bound.
pub(super) struct New<'a> {
    pub(super) name: &'a str,
    pub(super) bytes: Range<usize>,
    /// Whether a run loads it before waiting for earlier runs.
    pub(super) constant: bool,
    /// Whether a stage of any pipeline writes it.
    pub(super) output: bool,
}

/// Reason why the proof does not hold with this memory.
pub(super) fn conflict(new: &New, known: &[Known]) -> Option<String> {
    let New { name, bytes, .. } = new;
    let overlaps = |known: &&Known| known.bytes.start < bytes.end && bytes.start < known.bytes.end;
    if let Some(Known { name: other, written, .. }) = known.iter().find(overlaps) {
        return Some(if *written {
            format!(
                "{name} is bound to memory that a run writes: {other} is there\n  help: bind memory of its own, or state an alias in the \
                 spec, so that it is proved"
            )
        } else {
            format!(
                "{name} is bound to memory that is bound already: {other} is there\n  help: give both one name in the spec, so that \
                 the proof covers it"
            )
        });
    }
    (new.constant && new.output).then(|| {
        format!(
            "{name} is bound to memory that another run writes, and weights are loaded before a run waits for those before it\n  \
             help: copy it into memory of its own, or make both pipelines one"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<Known> {
        let known_as = |name: &str, bytes, written| Known { name: name.into(), bytes, written };
        vec![known_as("Y", 0..100, true), known_as("X", 100..200, false)]
    }

    fn bind(bytes: Range<usize>, constant: bool, output: bool) -> Option<String> {
        conflict(&New { name: "W", bytes, constant, output }, &known())
    }

    #[test]
    fn memory_of_its_own_is_bound() {
        assert_eq!(bind(200..300, true, false), None);
        // Activations may be the output of another run: they are read after the wait for that run.
        assert_eq!(bind(200..300, false, true), None);
    }

    #[test]
    fn an_output_is_no_input() {
        for bytes in [0..100, 99..150, 50..51] {
            let text = bind(bytes, false, true).expect("refused");
            assert!(text.starts_with("W is bound to memory that a run writes: Y is there"), "{text}");
        }
    }

    #[test]
    fn a_buffer_is_bound_once() {
        let text = bind(150..250, false, false).expect("refused");
        assert!(text.starts_with("W is bound to memory that is bound already: X is there"), "{text}");
    }

    #[test]
    fn a_weight_is_nobodys_output() {
        let text = bind(200..300, true, true).expect("refused");
        assert!(text.contains("another run writes") && text.contains("help: copy it"), "{text}");
    }
}
