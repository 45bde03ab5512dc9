//! Checked arithmetic for tensor shapes, custom grids, affine footprints and tiles.

use std::collections::BTreeMap;

use super::source::Text;
use crate::diagnostic::{Diagnostic, Span};

/// Maximum nesting of an expression.
const MAX_DEPTH: usize = 32;

/// An expression as written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expr {
    pub(crate) node: ExprKind,
    pub(crate) span: Span,
}

/// Its node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExprKind {
    Number(i64),
    Name(String),
    Negate(Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
}

/// Operators; `CeilDiv` is written `ceil_div(a, b)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    CeilDiv,
}

/// `name(a, b, ...)`: a tensor with its shape, or a tile with its coordinates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallExpr {
    pub(crate) name: String,
    pub(crate) name_span: Span,
    pub(crate) args: Vec<Expr>,
    pub(crate) span: Span,
}

/// A value linear in some variables.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Affine {
    pub(crate) constant: i64,
    /// Nonzero coefficients.
    pub(crate) terms: BTreeMap<String, i64>,
}

/// Meaning of a name in an expression.
pub(crate) enum Meaning {
    Constant(i64),
    Variable,
}

impl Expr {
    /// An integer literal outside a string.
    pub(crate) fn number(value: i64, span: Span) -> Self {
        Expr { node: ExprKind::Number(value), span }
    }

    /// The value; `meaning` resolves names, and `known` lists them for messages.
    pub(crate) fn affine(
        &self,
        meaning: &dyn Fn(&str) -> Option<Meaning>,
        known: &[&str],
    ) -> Result<Affine, Diagnostic> {
        match &self.node {
            ExprKind::Number(value) => Ok(Affine::constant(*value)),
            ExprKind::Name(name) => match meaning(name) {
                Some(Meaning::Constant(value)) => Ok(Affine::constant(value)),
                Some(Meaning::Variable) => {
                    Ok(Affine { constant: 0, terms: [(name.clone(), 1)].into_iter().collect() })
                }
                None => {
                    let diagnostic = Diagnostic::new("unknown-dim", format!("unknown name `{name}`"))
                        .at(self.span, "neither a dim nor a variable");
                    Err(super::ident::suggest(diagnostic, name, known))
                }
            },
            ExprKind::Negate(inner) => {
                let value = inner.affine(meaning, known)?;
                self.fits(Affine::default().combine(&value, i64::checked_sub))
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (a.affine(meaning, known)?, b.affine(meaning, known)?);
                self.apply(*op, &a, &b)
            }
        }
    }

    fn apply(&self, op: BinaryOp, a: &Affine, b: &Affine) -> Result<Affine, Diagnostic> {
        match op {
            BinaryOp::Add => self.fits(a.combine(b, i64::checked_add)),
            BinaryOp::Sub => self.fits(a.combine(b, i64::checked_sub)),
            BinaryOp::Mul if a.terms.is_empty() => self.fits(b.map(|x| x.checked_mul(a.constant))),
            BinaryOp::Mul if b.terms.is_empty() => self.fits(a.map(|x| x.checked_mul(b.constant))),
            BinaryOp::Mul => Err(Diagnostic::new("not-affine", "a product of two variables is not affine")
                .at(self.span, "both factors vary")
                .help("multiply variables by constants and dims only")),
            BinaryOp::Div | BinaryOp::CeilDiv => self.divide(op, a, b),
        }
    }

    fn divide(&self, op: BinaryOp, a: &Affine, b: &Affine) -> Result<Affine, Diagnostic> {
        if !b.terms.is_empty() || b.constant <= 0 {
            return Err(Diagnostic::new("bad-division", "the divisor must be a positive constant")
                .at(self.span, "divides by zero, a negative number or a variable")
                .help("divide by a positive number or dim"));
        }
        let divisor = b.constant;
        if op == BinaryOp::CeilDiv && a.terms.is_empty() {
            let quotient = a.constant.div_euclid(divisor) + i64::from(a.constant.rem_euclid(divisor) != 0);
            return Ok(Affine::constant(quotient));
        }
        if a.constant % divisor != 0 || a.terms.values().any(|c| c % divisor != 0) {
            let exact = if a.terms.is_empty() {
                format!("{} / {divisor} leaves a remainder", a.constant)
            } else {
                format!("not every coefficient is a multiple of {divisor}")
            };
            return Err(Diagnostic::new("inexact-division", "the division is not exact")
                .at(self.span, exact)
                .help("write `ceil_div(a, b)` to round up"));
        }
        self.fits(a.map(|x| x.checked_div(divisor)))
    }

    fn fits(&self, value: Option<Affine>) -> Result<Affine, Diagnostic> {
        value.ok_or_else(|| {
            Diagnostic::new("overflow", "the expression overflows 64 bits")
                .at(self.span, "too large")
                .help("use smaller numbers")
        })
    }
}

impl Affine {
    fn constant(value: i64) -> Self {
        Affine { constant: value, terms: BTreeMap::new() }
    }

    /// The coefficient of a variable.
    pub(crate) fn coefficient(&self, name: &str) -> i64 {
        self.terms.get(name).copied().unwrap_or(0)
    }

    /// The difference; `None` on overflow.
    pub(crate) fn minus(&self, other: &Affine) -> Option<Affine> {
        self.combine(other, i64::checked_sub)
    }

    fn combine(&self, other: &Affine, f: impl Fn(i64, i64) -> Option<i64>) -> Option<Affine> {
        let mut terms = BTreeMap::new();
        for name in self.terms.keys().chain(other.terms.keys()) {
            let value = f(self.coefficient(name), other.coefficient(name))?;
            if value != 0 {
                terms.insert(name.clone(), value);
            }
        }
        Some(Affine { constant: f(self.constant, other.constant)?, terms })
    }

    fn map(&self, f: impl Fn(i64) -> Option<i64>) -> Option<Affine> {
        let mut terms = BTreeMap::new();
        for (name, value) in &self.terms {
            let value = f(*value)?;
            if value != 0 {
                terms.insert(name.clone(), value);
            }
        }
        Some(Affine { constant: f(self.constant)?, terms })
    }
}

/// One expression.
pub(crate) fn parse_expr(text: &Text) -> Result<Expr, Diagnostic> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let expr = parser.sum()?;
    parser.end()?;
    Ok(expr)
}

/// `first..end`, excluding the end.
pub(crate) fn parse_range(text: &Text) -> Result<(Expr, Expr), Diagnostic> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let first = parser.sum()?;
    if !parser.eat("..") {
        return Err(
            parser.expected("`..` and the end of the range", "a range is `first..end`, the end excluded")
        );
    }
    let end = parser.sum()?;
    parser.end()?;
    Ok((first, end))
}

/// `name(a, b)`; `example` shows the form in messages.
pub(crate) fn parse_call(text: &Text, example: &str) -> Result<CallExpr, Diagnostic> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let help = format!("write it like `{example}`");
    let Some((name, name_span)) = parser.word() else {
        return Err(parser.expected("a name", &help));
    };
    if !parser.eat("(") {
        return Err(parser.expected("`(`", &help));
    }
    let mut args = Vec::new();
    loop {
        args.push(parser.sum()?);
        if parser.eat(")") {
            break;
        }
        if !parser.eat(",") {
            return Err(parser.expected("`,` or `)`", &help));
        }
    }
    parser.end()?;
    Ok(CallExpr { name, name_span, args, span: text.span })
}

struct Parser<'t> {
    text: &'t Text,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn rest(&mut self) -> &str {
        let rest = &self.text.value[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text.value[self.at..]
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn word(&mut self) -> Option<(String, Span)> {
        let rest = self.rest();
        let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let starts = rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts {
            return None;
        }
        let word = rest[..length].to_string();
        let span = self.text.part(self.at, self.at + length);
        self.at += length;
        Some((word, span))
    }

    fn expected(&mut self, form: &str, help: &str) -> Diagnostic {
        let length = self.rest().chars().next().map_or(0, char::len_utf8);
        let found = if length == 0 { "the text ends here" } else { "found this" };
        Diagnostic::new("bad-expression", format!("expected {form}"))
            .at(self.text.part(self.at, self.at + length), found)
            .help(help)
    }

    fn end(&mut self) -> Result<(), Diagnostic> {
        if self.rest().is_empty() {
            return Ok(());
        }
        Err(self.expected("the end of the text", "remove what follows"))
    }

    fn sum(&mut self) -> Result<Expr, Diagnostic> {
        self.chain(&[("+", BinaryOp::Add), ("-", BinaryOp::Sub)], Self::product)
    }

    fn product(&mut self) -> Result<Expr, Diagnostic> {
        self.chain(&[("*", BinaryOp::Mul), ("/", BinaryOp::Div)], Self::factor)
    }

    fn chain(
        &mut self,
        operators: &[(&str, BinaryOp)],
        next: fn(&mut Self) -> Result<Expr, Diagnostic>,
    ) -> Result<Expr, Diagnostic> {
        let mut left = next(self)?;
        // Each operator nests the tree one level deeper on the left, so chains count toward the depth.
        let before = self.depth;
        while let Some(&(_, op)) = operators.iter().find(|(token, _)| self.eat(token)) {
            self.deeper()?;
            let right = next(self)?;
            left = binary(op, left, right);
        }
        self.depth = before;
        Ok(left)
    }

    fn deeper(&mut self) -> Result<(), Diagnostic> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.expected("a shorter expression", "an expression nests at most 32 levels"));
        }
        Ok(())
    }

    fn factor(&mut self) -> Result<Expr, Diagnostic> {
        self.deeper()?;
        let expr = self.atom();
        self.depth = self.depth.saturating_sub(1);
        expr
    }

    fn atom(&mut self) -> Result<Expr, Diagnostic> {
        self.rest();
        let start = self.at;
        if self.eat("(") {
            let inner = self.sum()?;
            return if self.eat(")") {
                Ok(inner)
            } else {
                Err(self.expected("`)`", "close the parenthesis"))
            };
        }
        if self.eat("-") {
            let inner = self.factor()?;
            let span = self.text.part(start, self.at);
            return Ok(Expr { node: ExprKind::Negate(Box::new(inner)), span });
        }
        if let Some((name, span)) = self.word() {
            if name != "ceil_div" {
                return Ok(Expr { node: ExprKind::Name(name), span });
            }
            let shape = "write `ceil_div(a, b)`";
            if !self.eat("(") {
                return Err(self.expected("`(`", shape));
            }
            let a = self.sum()?;
            if !self.eat(",") {
                return Err(self.expected("`,`", shape));
            }
            let b = self.sum()?;
            if !self.eat(")") {
                return Err(self.expected("`)`", shape));
            }
            let span = self.text.part(start, self.at);
            return Ok(Expr { span, ..binary(BinaryOp::CeilDiv, a, b) });
        }
        let rest = self.rest();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits == 0 {
            return Err(
                self.expected("a number or a name", "expressions know dims, integers and + - * / ceil_div")
            );
        }
        let number = rest[..digits].parse::<i64>();
        let span = self.text.part(start, start + digits);
        self.at += digits;
        number.map(|value| Expr::number(value, span)).map_err(|_| {
            Diagnostic::new("overflow", "the number overflows 64 bits")
                .at(span, "too large")
                .help("use a smaller number")
        })
    }
}

fn binary(op: BinaryOp, a: Expr, b: Expr) -> Expr {
    let span = Span::new(a.span.start.min(b.span.start), a.span.end.max(b.span.end));
    Expr { node: ExprKind::Binary(op, Box::new(a), Box::new(b)), span }
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    fn text(content: &str) -> Text {
        let literal = format!("\"{content}\"");
        let raw = ron::value::RawValue::from_ron(&literal).expect("a string");
        Source { text: &literal }.text(raw, "text").expect("a string")
    }

    fn eval(content: &str) -> Result<Affine, Diagnostic> {
        let meaning = |name: &str| match name {
            "M" => Some(Meaning::Constant(300)),
            "m" | "n" => Some(Meaning::Variable),
            _ => None,
        };
        parse_expr(&text(content))?.affine(&meaning, &["M", "m", "n"])
    }

    #[test]
    fn values() {
        for (content, constant, m, n) in [
            ("2 + 3*4", 14, 0, 0),
            ("(2 + 3)*4", 20, 0, 0),
            ("10 - 3 - 2", 5, 0, 0),
            ("24/4/2", 3, 0, 0),
            ("-M + 1", -299, 0, 0),
            ("ceil_div(M, 128)", 3, 0, 0),
            ("ceil_div(-M, 128)", -2, 0, 0),
            ("128*m - n*2 + M", 300, 128, -2),
            ("(8*m + 16*n)/8", 0, 1, 2),
            ("m - m", 0, 0, 0),
        ] {
            let value = eval(content).unwrap_or_else(|d| panic!("{content}: {d}"));
            assert_eq!(
                (value.constant, value.coefficient("m"), value.coefficient("n")),
                (constant, m, n),
                "{content}"
            );
        }
    }

    #[test]
    fn faults_have_codes_and_places() {
        for (content, code, place) in [
            ("M/128", "inexact-division", 1..6),
            ("m*n", "not-affine", 1..4),
            ("M/m", "bad-division", 1..4),
            ("1 + K", "unknown-dim", 5..6),
            ("M M", "bad-expression", 3..4),
            ("", "bad-expression", 1..1),
            ("9223372036854775807 + 1", "overflow", 1..24),
            ("92233720368547758080", "overflow", 1..21),
        ] {
            let diagnostic = eval(content).expect_err(content);
            let span = diagnostic.primary.as_ref().expect("has a place").span;
            assert_eq!((diagnostic.code, span.start..span.end), (code, place), "{content}");
        }
    }
}
