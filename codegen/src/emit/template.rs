//! The embedded templates. Tera's default delimiters are pairs of braces, which are common in C++ and Rust, so the
//! files under `templates/` use `<$ value $>`, `<% statement %>` and `<# comment #>`; tera 2 accepts any two-byte
//! delimiters.

use std::sync::LazyLock;

use serde::Serialize;
use tera::{Context, Delimiters, Tera, TeraResult};

const TEMPLATES: [(&str, &str); 2] = [
    ("header", include_str!("../../templates/header.h.tera")),
    ("handle", include_str!("../../templates/handle.rs.tera")),
];

fn parsed() -> TeraResult<Tera> {
    let mut templates = Tera::new();
    templates.set_delimiters(Delimiters {
        block_start: "<%".into(),
        block_end: "%>".into(),
        variable_start: "<$".into(),
        variable_end: "$>".into(),
        comment_start: "<#".into(),
        comment_end: "#>".into(),
    })?;
    templates.add_raw_templates(TEMPLATES)?;
    Ok(templates)
}

/// Renders an embedded template. A value missing from the context is an error, which the tests of this module detect.
pub(super) fn render(name: &'static str, context: &Context) -> String {
    static PARSED: LazyLock<TeraResult<Tera>> = LazyLock::new(parsed);
    good(
        PARSED
            .as_ref()
            .map_err(ToString::to_string)
            .and_then(|tera| tera.render(name, context).map_err(|error| error.to_string())),
    )
}

/// Renders a template that another package embeds, with the fields of a struct. It uses this package's delimiters:
/// `<$ value $>`, `<% statement %>`, `<# comment #>`.
///
/// ```
/// #[derive(serde::Serialize)]
/// struct Values {
///     slots: u32,
/// }
/// assert_eq!(cusync_gen::emit::fill("int slots[<$ slots $>];", &Values { slots: 3 }), "int slots[3];");
/// ```
pub fn fill(template: &str, values: &impl Serialize) -> String {
    let context = Context::from_serialize(values);
    let rendered = context.and_then(|context| parsed()?.render_str(template, &context, false));
    good(rendered.map_err(|error| error.to_string()))
}

/// Templates are parts of programs: a fault in one fails every test of its module.
fn good(rendered: Result<String, String>) -> String {
    rendered.unwrap_or_else(|error| unreachable!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_do_not_collide_with_braces() {
        let text = "a{{1, 2}, {<$ x $>}}; {% {# <% if x == 3 %>three<% endif %><# unseen #> }} %} $(y)";
        let rendered = parsed()
            .and_then(|templates| templates.render_str(text, &tera::context! { x => &3 }, false))
            .expect("renders");
        assert_eq!(rendered, "a{{1, 2}, {3}}; {% {# three }} %} $(y)");
    }

    #[test]
    fn a_value_that_is_not_there_is_an_error() {
        let rendered = parsed().and_then(|t| t.render_str("<$ x.y $>", &tera::context! { x => &3 }, false));
        assert!(rendered.is_err(), "{rendered:?}");
    }
}
