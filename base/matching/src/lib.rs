//! Match expressions: which executors may run a task, which of them is preferred, and which tasks
//! an executor accepts.
//!
//! They are written in CEL, the Common Expression Language, over the attributes of
//! [`eyas_types::matching`]. This crate checks and compiles them. Every mistake that can be found
//! without a cluster (syntax, names, types) is an error with its position, so a wrong job is
//! refused at submission and does not wait in the queue. When an expression is evaluated, and what
//! its value means, is decided by the dispatcher's decider, never here.
//!
//! Expressions are evaluated very often, so they are short ([`MAX_BYTES`]) and cannot loop.

#![forbid(unsafe_code)]

mod check;
mod compiled;
mod parts;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use cel::parser::Parser;
use eyas_types::matching::{Attribute, Expression, Terms};
use thiserror::Error;

use check::{Checker, Type};
use compiled::CompiledExpression;

/// Longest expression.
pub const MAX_BYTES: usize = 1024;
/// Deepest nesting of brackets in an expression.
const MAX_NESTING: u16 = 16;

/// A mistake in an expression.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} `{text}`, column {column}: {why}")]
pub struct ExpressionError {
    /// The option: `requirements`, `rank` or `accept`.
    pub what: &'static str,
    /// The expression.
    pub text: String,
    /// Position of the mistake, in characters from 1.
    pub column: usize,
    /// The mistake, and the correct form.
    pub why: String,
}

/// The terms of a task with these expressions; `None` without expressions.
///
/// # Errors
/// If one of the expressions is wrong.
pub fn terms(
    requirements: Option<&str>,
    rank: Option<&str>,
) -> Result<Option<Arc<Terms>>, ExpressionError> {
    if requirements.is_none() && rank.is_none() {
        return Ok(None);
    }
    let requirements =
        requirements.map(|text| condition("requirements", text)).transpose()?.unwrap_or_default();
    let rank = rank.map(|text| compile("rank", text, ExpressionType::Number)).transpose()?;
    Ok(Some(Arc::new(Terms {
        requirements,
        rank: rank.map(|rank| Arc::new(rank) as Arc<dyn Expression>),
    })))
}

/// The condition of an executor on tasks, in parts that must all hold.
///
/// # Errors
/// If the expression is wrong.
pub fn accept(text: &str) -> Result<Box<[Arc<dyn Expression>]>, ExpressionError> {
    condition("accept", text)
}

/// A condition, in the parts that `&&` joins at any depth. So fixed parts are evaluated once and
/// only the others at each decision, and explanations name the part that does not hold.
fn condition(
    what: &'static str,
    text: &str,
) -> Result<Box<[Arc<dyn Expression>]>, ExpressionError> {
    let whole = compile(what, text, ExpressionType::Truth)?;
    let parts: Result<Vec<_>, _> = parts::of(text)
        .into_iter()
        .map(|part| compile(what, part, ExpressionType::Truth))
        .collect();
    let parts = parts.unwrap_or_else(|_| vec![whole]);
    Ok(parts.into_iter().map(|part| Arc::new(part) as Arc<dyn Expression>).collect())
}

/// The wanted type of an expression's value.
#[derive(Clone, Copy, PartialEq)]
enum ExpressionType {
    Truth,
    Number,
}

fn compile(
    what: &'static str,
    text: &str,
    wanted: ExpressionType,
) -> Result<CompiledExpression, ExpressionError> {
    let wrong =
        |column: usize, why: String| ExpressionError { what, text: text.to_owned(), column, why };
    if text.trim().is_empty() {
        return Err(wrong(1, "it is empty: leave the option out instead".into()));
    }
    if text.len() > MAX_BYTES {
        return Err(wrong(
            MAX_BYTES,
            format!("it has {} bytes, at most {MAX_BYTES} are allowed", text.len()),
        ));
    }
    let parsed = Parser::new().max_recursion_depth(MAX_NESTING).parse_with_source_info(text);
    let (mut expression, places) = parsed.map_err(|errors| {
        let first = errors.errors.first();
        let column = first.map_or(1, |error| column_of(text, error.pos));
        wrong(column, first.map_or_else(|| "it cannot be read".into(), |error| error.msg.clone()))
    })?;
    let mut checker = Checker::default();
    let found = checker.check(&mut expression).map_err(|error| {
        let column = places.offset_for(error.at).map_or(1, |(start, _)| start as usize + 1);
        wrong(column, error.problem.to_string())
    })?;
    match (wanted, found) {
        (ExpressionType::Truth, Type::Truth)
        | (ExpressionType::Number, Type::Whole | Type::Fraction) => {}
        (ExpressionType::Truth, other) => {
            return Err(wrong(
                1,
                format!("it has to be true or false, and is {other}: add a comparison"),
            ));
        }
        (ExpressionType::Number, other) => {
            return Err(wrong(
                1,
                format!("it has to be a number, and is {other}: write `CONDITION ? 1 : 0`"),
            ));
        }
    }
    Ok(CompiledExpression::new(text.trim(), expression, checker.mentions))
}

/// The position in the whole text of a line and column, all counted from 1.
fn column_of(text: &str, (line, column): (isize, isize)) -> usize {
    let before: usize = text
        .split_inclusive('\n')
        .take(line.max(1) as usize - 1)
        .map(|line| line.chars().count())
        .sum();
    before + column.max(1) as usize
}

/// The names of all attributes, for messages.
pub fn known_attributes() -> String {
    Attribute::ALL.iter().map(|attribute| attribute.name()).collect::<Vec<_>>().join(", ")
}
