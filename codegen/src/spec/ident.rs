//! Names: what becomes an identifier in generated C++ and Rust, and what was probably meant.

use crate::diagnostic::Diagnostic;

use super::source::Text;

/// Longest name.
const MAX_NAME: usize = 64;

/// Reserved in C++20 or in Rust (2024), current and future, and common macros. Sorted.
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

/// Why a name cannot be used in generated code, if it cannot.
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

/// Refuses a name that cannot be an identifier of generated code.
pub(super) fn validate(name: &Text, what: &str) -> Result<(), Diagnostic> {
    match fault(&name.value) {
        None => Ok(()),
        Some(why) => {
            let message =
                format!("{what} name `{}` cannot be used in generated code", name.value.escape_debug());
            let diagnostic = Diagnostic::new("bad-name", message).at(name.span, why);
            Err(match usable(&name.value) {
                Some(better) => diagnostic.help(format!("`{better}` would do")),
                None => diagnostic.help("use letters, digits and single `_`"),
            })
        }
    }
}

/// A usable name that resembles a bad one.
fn usable(name: &str) -> Option<String> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let joined: String = words.collect::<Vec<_>>().join("_").chars().take(MAX_NAME - 2).collect();
    [joined.clone(), format!("{joined}_"), format!("x{joined}")]
        .into_iter()
        .find(|name| fault(name).is_none())
}

/// The candidate that is nearest to a misspelt word, if one is near.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Of a word of one or two letters nothing is left to recognise after a change of one: only its case may differ.
    let limit = word.chars().count() / 3;
    candidates
        .into_iter()
        .map(|candidate| {
            let distance = edit_distance(&word.to_lowercase(), &candidate.to_lowercase());
            (distance, candidate)
        })
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Adds "did you mean" or, when nothing is near, the list of what there is.
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

/// Levenshtein distance with transpositions of neighbours, over at most 64 characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(MAX_NAME).collect();
    let b: Vec<char> = b.chars().take(MAX_NAME).collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
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
    }
}
