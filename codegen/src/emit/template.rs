//! The embedded templates. Jinja's own delimiters are pairs of braces, which C++ and Rust are full of, so the files
//! under `templates/` write `<$ value $>`, `<% statement %>` and `<# comment #>`.

use std::sync::LazyLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, UndefinedBehavior, Value};

const HEADER: &str = include_str!("../../templates/header.h.jinja");
const HANDLE: &str = include_str!("../../templates/handle.rs.jinja");

fn environment() -> Result<Environment<'static>, Error> {
    let mut templates = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    syntax.block_delimiters("<%", "%>").variable_delimiters("<$", "$>").comment_delimiters("<#", "#>");
    templates.set_syntax(syntax.keep_trailing_newline(true).build()?);
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    templates.add_template("header", HEADER)?;
    templates.add_template("handle", HANDLE)?;
    Ok(templates)
}

/// Renders an embedded template.
pub(super) fn render(name: &'static str, context: Value) -> String {
    static TEMPLATES: LazyLock<Result<Environment<'static>, Error>> = LazyLock::new(environment);
    let templates = TEMPLATES.as_ref().map_err(|error| error.to_string());
    let rendered = templates.and_then(|templates| {
        templates.get_template(name).and_then(|t| t.render(context)).map_err(|error| format!("{error:#}"))
    });
    // The text is part of the program: a fault in it fails every test of this module.
    rendered.unwrap_or_else(|error| unreachable!("template {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_do_not_collide_with_braces() {
        let text = "a{{1, 2}, {<$ x $>}}; {% {# <% if x == 3 %>three<% endif %><# unseen #> }} %} $(y)";
        let rendered = environment()
            .and_then(|templates| templates.render_str(text, minijinja::context! { x => 3 }))
            .expect("renders");
        assert_eq!(rendered, "a{{1, 2}, {3}}; {% {# three }} %} $(y)");
    }
}
