//! PTX: the bodies of kernels and of the functions that they name.

use std::collections::{HashMap, HashSet};

use super::{Found, no_kernel};

/// The text of PTX, without the zeros that end it.
pub(super) fn text(image: &[u8]) -> Option<&str> {
    let end = image.iter().rposition(|&byte| byte != 0)? + 1;
    std::str::from_utf8(&image[..end]).ok().filter(|text| text.contains(".version"))
}

/// Words and single punctuation marks, without comments and strings.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_$%.".contains(c);
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start();
            let skipped = |from: &str, end: &str| from.find(end).map_or(from.len(), |at| at + end.len());
            if rest.starts_with("//") {
                rest = &rest[skipped(rest, "\n")..];
            } else if let Some(comment) = rest.strip_prefix("/*") {
                rest = &comment[skipped(comment, "*/")..];
            } else if let Some(string) = rest.strip_prefix('"') {
                rest = &string[skipped(string, "\"")..];
            } else {
                break;
            }
        }
        let first = rest.chars().next()?;
        let end = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (token, after) = rest.split_at(end);
        rest = after;
        Some(token)
    })
}

/// A body: its tokens, and whether it is a kernel's.
struct Body<'a> {
    is_kernel: bool,
    tokens: Vec<&'a str>,
}

/// The bodies of kernels and functions by their names. Declarations have none.
fn bodies(text: &str) -> HashMap<&str, Body<'_>> {
    let (mut found, mut tokens) = (HashMap::new(), tokens(text));
    while let Some(token) = tokens.next() {
        let is_kernel = token == ".entry";
        if !is_kernel && token != ".func" {
            continue;
        }
        // The name is the first word outside parentheses, which hold results, parameters and attributes.
        let (mut name, mut depth) = (None, 0);
        let end = tokens.by_ref().find(|&token| {
            match token {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ if depth == 0 && name.is_none() && !token.starts_with('.') => name = Some(token),
                _ => {}
            }
            matches!(token, "{" | ";")
        });
        if let (Some(name), Some("{")) = (name, end) {
            let mut open = 1;
            let body = tokens.by_ref().take_while(|token| {
                open += i32::from(*token == "{") - i32::from(*token == "}");
                open > 0
            });
            found.insert(name, Body { is_kernel, tokens: body.collect() });
        }
    }
    found
}

pub(super) fn scan(text: &str, kernel: &str) -> Result<Found, String> {
    let bodies = bodies(text);
    let entry = bodies.get(kernel).filter(|body| body.is_kernel).ok_or_else(|| no_kernel(kernel))?;
    let (mut found, mut seen, mut open) = (Found::default(), HashSet::from([kernel]), vec![entry]);
    while let Some(body) = open.pop() {
        for statement in body.tokens.split(|token| *token == ";") {
            found.wait |= statement.contains(&"griddepcontrol.wait");
            found.trigger |= statement.contains(&"griddepcontrol.launch_dependents");
            let mut named =
                statement.iter().filter_map(|token| Some((*token, bodies.get(token)?))).peekable();
            let calls = statement.iter().any(|token| *token == "call" || token.starts_with("call."));
            if calls && named.peek().is_none() {
                let unseen = "it calls a function that the image does not have, or through a pointer";
                found.unseen.get_or_insert_with(|| unseen.into());
            }
            open.extend(named.filter(|(name, _)| seen.insert(name)).map(|(_, body)| body));
        }
    }
    Ok(found)
}
