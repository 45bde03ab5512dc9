//! The embedded templates. Tera's own delimiters are pairs of braces, which C++ and Rust are full of, so the files
//! under `templates/` write `<$ value $>`, `<% statement %>` and `<# comment #>`, translated here.

use std::sync::LazyLock;

use tera::{Context, Tera};

const HEADER: &str = include_str!("../../templates/header.h.tera");
const HANDLE: &str = include_str!("../../templates/handle.rs.tera");

/// Our delimiters and Tera's; then the brace, which Tera must print and never join with what follows.
const TOKENS: [(&str, &str); 7] =
    [("<$", "{{"), ("$>", "}}"), ("<%", "{%"), ("%>", "%}"), ("<#", "{#"), ("#>", "#}"), ("{", "{{ '{' }}")];

/// A template text in Tera's delimiters.
fn translate(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some((ours, tera)) = TOKENS.iter().find(|(ours, _)| rest.starts_with(ours)) {
            out.push_str(tera);
            rest = &rest[ours.len()..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

static TEMPLATES: LazyLock<Tera> = LazyLock::new(|| {
    let mut tera = Tera::default();
    tera.autoescape_on(Vec::new());
    for (name, text) in [("header", HEADER), ("handle", HANDLE)] {
        // The text is part of the program: a fault in it fails every test of this module.
        if let Err(error) = tera.add_raw_template(name, &translate(text)) {
            unreachable!("template {name}: {error:?}");
        }
    }
    tera
});

/// Renders an embedded template.
pub(super) fn render(name: &'static str, context: &Context) -> String {
    match TEMPLATES.render(name, context) {
        Ok(text) => text,
        Err(error) => unreachable!("template {name}: {error:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_do_not_collide_with_braces() {
        let mut tera = Tera::default();
        let text = "a{{1, 2}, {<$ x $>}}; {% {# <% if x == 3 %>three<% endif %><# unseen #> }} %} $(y)";
        tera.add_raw_template("t", &translate(text)).expect("valid");
        let mut context = Context::new();
        context.insert("x", &3);
        assert_eq!(tera.render("t", &context).expect("renders"), "a{{1, 2}, {3}}; {% {# three }} %} $(y)");
    }
}
