//! Names: validation as identifiers of generated C++ and Rust, and suggestions for misspellings.

use crate::diagnostic::Diagnostic;

/// Maximum length of a name.
const MAX_NAME: usize = 64;

/// Reserved in C++20 or in Rust (2024), now or in the future, and common macros. Sorted.
const RESERVED: &[&str] = &[
    "EOF",
    "INFINITY",
    "NAN",
    "NULL",
    "Self",
    "abstract",
    "alignas",
    "alignof",
    "and",
    "and_eq",
    "as",
    "asm",
    "assert",
    "async",
    "auto",
    "await",
    "become",
    "bitand",
    "bitor",
    "bool",
    "box",
    "break",
    "case",
    "catch",
    "char",
    "char16_t",
    "char32_t",
    "char8_t",
    "class",
    "co_await",
    "co_return",
    "co_yield",
    "compl",
    "concept",
    "const",
    "const_cast",
    "consteval",
    "constexpr",
    "constinit",
    "continue",
    "crate",
    "cusync",
    "decltype",
    "default",
    "delete",
    "do",
    "double",
    "dyn",
    "dynamic_cast",
    "else",
    "enum",
    "errno",
    "explicit",
    "export",
    "extern",
    "false",
    "final",
    "float",
    "fn",
    "for",
    "friend",
    "gen",
    "goto",
    "if",
    "impl",
    "in",
    "inline",
    "int",
    "let",
    "linux",
    "long",
    "loop",
    "macro",
    "main",
    "match",
    "mod",
    "move",
    "mut",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "not_eq",
    "nullptr",
    "operator",
    "or",
    "or_eq",
    "override",
    "priv",
    "private",
    "protected",
    "pub",
    "public",
    "ref",
    "register",
    "reinterpret_cast",
    "requires",
    "return",
    "self",
    "short",
    "signed",
    "sizeof",
    "static",
    "static_assert",
    "static_cast",
    "std",
    "stderr",
    "stdin",
    "stdout",
    "struct",
    "super",
    "switch",
    "template",
    "this",
    "thread_local",
    "throw",
    "trait",
    "true",
    "try",
    "type",
    "typedef",
    "typeid",
    "typename",
    "typeof",
    "union",
    "unix",
    "unsafe",
    "unsigned",
    "unsized",
    "use",
    "using",
    "virtual",
    "void",
    "volatile",
    "wchar_t",
    "where",
    "while",
    "xor",
    "xor_eq",
    "yield",
];

/// Why a name cannot be used in generated code, if so.
pub(super) fn fault(name: &str) -> Option<&'static str> {
    let mut chars = name.chars();
    let starts = chars.next().is_some_and(|c| c.is_ascii_alphabetic());
    if !starts || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Some("a name is an ASCII letter followed by letters, digits and `_`");
    }
    if name.len() > MAX_NAME {
        return Some("a name has at most 64 characters");
    }
    if name.contains("__") {
        return Some("C++ reserves names with `__`");
    }
    if RESERVED.binary_search(&name).is_ok() {
        return Some("this word has a meaning in C++ or Rust");
    }
    None
}

/// A valid name that resembles an invalid one.
pub(super) fn usable(name: &str) -> Option<String> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let joined: String = words.collect::<Vec<_>>().join("_").chars().take(MAX_NAME - 2).collect();
    [joined.clone(), format!("{joined}_"), format!("x{joined}")]
        .into_iter()
        .find(|name| fault(name).is_none())
}

/// The candidate nearest to a misspelled word, if one is near: its letters are similar and its numbers are equal,
/// because a different number means something else.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = candidates.into_iter().filter_map(|c| Some((distance(word, c)?, c)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// Number of wrong letters in a misspelled word; `None` if it is a different word, or contains a different number.
fn distance(word: &str, candidate: &str) -> Option<usize> {
    if word.len() > MAX_NAME {
        return None;
    }
    let (word, candidate) = (word.to_lowercase(), candidate.to_lowercase());
    let runs = |text: &str| -> Vec<String> {
        let chars: Vec<char> = text.chars().collect();
        chars
            .chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit())
            .map(|run| run.iter().collect())
            .collect()
    };
    let (words, candidates) = (runs(&word), runs(&candidate));
    if words.len() != candidates.len() {
        return None;
    }
    let wrong = words.iter().zip(&candidates).map(|(a, b)| {
        // A word of one or two letters is not recognizable after one change, so only its case may differ.
        let limit = if a.starts_with(|c: char| c.is_ascii_digit()) { 0 } else { a.chars().count() / 3 };
        Some(strsim::osa_distance(a, b)).filter(|distance| *distance <= limit)
    });
    wrong.sum()
}

/// Adds "did you mean" or, if nothing is near, the list of candidates.
pub(crate) fn suggest(diagnostic: Diagnostic, word: &str, candidates: &[&str]) -> Diagnostic {
    match nearest(word, candidates.iter().copied()) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None if candidates.is_empty() => diagnostic,
        None => {
            let list: Vec<_> = candidates.iter().take(16).map(|c| format!("`{c}`")).collect();
            diagnostic.help(format!("there are {}", list.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_words_are_sorted() {
        assert!(RESERVED.windows(2).all(|w| w[0] < w[1]), "binary search needs sorted words");
    }

    #[test]
    fn names() {
        for good in ["up", "W1", "gpt3_mlp", "a_b2"] {
            assert_eq!(fault(good), None, "{good}");
        }
        for bad in ["", "1a", "a-b", "\u{e9}", "class", "fn", "a__b", "_X", "a b", "a;b", &"x".repeat(65)] {
            assert!(fault(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn nearest_word() {
        assert_eq!(nearest("polcy", ["policy", "wait"]), Some("policy"));
        assert_eq!(nearest("dwon", ["up", "down"]), Some("down"));
        assert_eq!(nearest("zebra", ["up", "down"]), None);
        let shipped = ["gpt3_mlp", "llama65_mlp", "diamond"];
        assert_eq!(nearest("gtp3_mlp", shipped), Some("gpt3_mlp"));
        assert_eq!(nearest("diamnd", shipped), Some("diamond"));
        assert_eq!(nearest("attention", shipped), None);
        let devices = ["h200", "h100", "a100", "l40s", "rtx4090"];
        assert_eq!(nearest("H200", devices), Some("h200"));
        assert_eq!(nearest("rxt4090", devices), Some("rtx4090"));
        for other in
            ["b200", "b100", "h20", "h800", "a10", "a30", "l40", "l4", "rtx4080", "rtx5090", "gpt4_mlp", ""]
        {
            assert_eq!(nearest(other, devices.into_iter().chain(shipped)), None, "{other} is another one");
        }
    }
}
