//! Checks an expression before it is evaluated: every name is known, and every operator has
//! operands of the right types.
//!
//! CEL itself checks at evaluation. Then a mistake would show only while a task waits, and only on
//! nodes on which that part of the expression is evaluated. This check is more lenient than CEL in
//! one case: in a sum or product of a whole number and a fraction, the whole number is converted to
//! a fraction.

use std::fmt;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr, LiteralValue, SelectExpr, operators as op};
use eyas_types::matching::{Attribute, AttributeType};
use thiserror::Error;

use crate::known_attributes;

/// The type of a part of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    Truth,
    Whole,
    Fraction,
    Text,
    Labels,
    List(Box<Type>),
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Truth => write!(f, "true or false"),
            Type::Whole => write!(f, "a whole number"),
            Type::Fraction => write!(f, "a fraction"),
            Type::Text => write!(f, "a text"),
            Type::Labels => write!(f, "labels"),
            Type::List(of) => write!(f, "a list, each {of}"),
        }
    }
}

impl From<AttributeType> for Type {
    fn from(kind: AttributeType) -> Self {
        match kind {
            AttributeType::Whole => Type::Whole,
            AttributeType::Fraction => Type::Fraction,
            AttributeType::Text => Type::Text,
            AttributeType::Labels => Type::Labels,
        }
    }
}

impl Type {
    fn is_number(&self) -> bool {
        matches!(self, Type::Whole | Type::Fraction)
    }
}

/// A mistake in an expression.
#[derive(Debug, Error)]
#[error("{problem}")]
pub(crate) struct CheckError {
    /// The node of the syntax tree.
    pub at: u64,
    pub problem: ExpressionProblem,
}

/// Mistakes in expressions.
#[derive(Debug, Error)]
pub(crate) enum ExpressionProblem {
    #[error("there is no attribute `{0}`; there are {known}", known = known_attributes())]
    UnknownAttribute(String),
    #[error("there is no function `{0}`; there are {FUNCTIONS}")]
    UnknownFunction(String),
    #[error("`{operator}` needs {wanted}, not {given}")]
    Operands { operator: String, wanted: &'static str, given: String },
    #[error("`{0}` is called as text.{0}(text)")]
    CalledOnText(String),
    #[error("only node.labels has named parts; this is {0}")]
    NoParts(Type),
    #[error("a list of {of} cannot have {found} in it")]
    MixedList { of: Type, found: Type },
    #[error("the list is empty")]
    EmptyList,
    #[error(
        "all, exists, map and filter are not allowed: expressions are evaluated very often, and \
         cannot loop"
    )]
    Loop,
    #[error("maps and messages cannot be written here")]
    Structure,
    #[error("a part of the expression is missing")]
    Missing,
    #[error("whole numbers are written without u")]
    UnsignedLiteral,
    #[error("texts are written without b")]
    BytesLiteral,
    #[error("no value is ever null: test with has()")]
    Null,
}

/// Functions that expressions may call, as messages show them.
const FUNCTIONS: &str =
    "size(), contains(), startsWith(), endsWith(), int(), double(), string(), has()";

/// Checks one expression.
#[derive(Default)]
pub(crate) struct Checker {
    /// Attributes that the expression uses, each once.
    pub mentions: Vec<Attribute>,
}

impl Checker {
    /// The type of an expression.
    pub fn check(&mut self, expression: &mut IdedExpr) -> Result<Type, CheckError> {
        let at = expression.id;
        let wrong = |problem| CheckError { at, problem };
        if let Some(path) = dotted(&expression.expr)
            && let Some(attribute) =
                Attribute::ALL.iter().find(|attribute| attribute.name() == path)
        {
            if !self.mentions.contains(attribute) {
                self.mentions.push(*attribute);
            }
            return Ok(attribute.kind().into());
        }
        match &mut expression.expr {
            Expr::Literal(literal) => of_literal(literal).map_err(wrong),
            Expr::Ident(name) => Err(wrong(ExpressionProblem::UnknownAttribute(name.clone()))),
            Expr::Select(select) => self.select(at, select),
            Expr::Call(call) => self.call(at, call),
            Expr::List(list) => {
                let mut of: Option<Type> = None;
                for element in &mut list.elements {
                    let id = element.id;
                    let found = self.check(element)?;
                    match &of {
                        Some(of) if *of != found => {
                            return Err(CheckError {
                                at: id,
                                problem: ExpressionProblem::MixedList { of: of.clone(), found },
                            });
                        }
                        _ => of = Some(found),
                    }
                }
                of.map(|of| Type::List(Box::new(of)))
                    .ok_or_else(|| wrong(ExpressionProblem::EmptyList))
            }
            Expr::Comprehension(_) => Err(wrong(ExpressionProblem::Loop)),
            Expr::Map(_) | Expr::Struct(_) => Err(wrong(ExpressionProblem::Structure)),
            Expr::Unspecified => Err(wrong(ExpressionProblem::Missing)),
        }
    }

    /// The type of `node.labels.NAME`, and of `has(node.labels.NAME)`.
    fn select(&mut self, at: u64, select: &mut SelectExpr) -> Result<Type, CheckError> {
        let path = dotted(&select.operand.expr);
        let is_attribute = |path: &str| {
            let is_it = |name: &str| {
                path == name || path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
            };
            Attribute::ALL.iter().any(|attribute| is_it(attribute.name()))
        };
        if let Some(path) = path.filter(|path| !is_attribute(path)) {
            let name = format!("{path}.{}", select.field);
            return Err(CheckError { at, problem: ExpressionProblem::UnknownAttribute(name) });
        }
        match (self.check(&mut select.operand)?, select.test) {
            (Type::Labels, true) => Ok(Type::Truth),
            (Type::Labels, false) => Ok(Type::Text),
            (other, _) => Err(CheckError { at, problem: ExpressionProblem::NoParts(other) }),
        }
    }

    fn call(&mut self, at: u64, call: &mut CallExpr) -> Result<Type, CheckError> {
        let mut types = Vec::new();
        for operand in call.target.as_deref_mut().into_iter().chain(&mut call.args) {
            types.push(self.check(operand)?);
        }
        type_of_call(at, call, &types)
    }
}

/// The type of a call of a function or operator, by the types of its operands. Apart from
/// [`Checker::call`], so that deep expressions do not have a frame of this function on the stack at
/// each level.
fn type_of_call(at: u64, call: &mut CallExpr, types: &[Type]) -> Result<Type, CheckError> {
    let has_target = call.target.is_some();
    let name = call.func_name.as_str();
    let wrong = |problem| CheckError { at, problem };
    let cannot = |wanted| wrong(wrong_operands(name, types, wanted));
    match (name, has_target, types) {
        (op::LOGICAL_AND | op::LOGICAL_OR, false, [Type::Truth, Type::Truth]) => Ok(Type::Truth),
        (op::LOGICAL_AND | op::LOGICAL_OR, false, _) => Err(cannot("two truth values")),
        (op::LOGICAL_NOT, false, [Type::Truth]) => Ok(Type::Truth),
        (op::LOGICAL_NOT, false, _) => Err(cannot("a truth value")),
        (op::NEGATE, false, [number]) if number.is_number() => Ok(number.clone()),
        (op::NEGATE, false, _) => Err(cannot("a number")),
        (op::EQUALS | op::NOT_EQUALS, false, [a, b])
            if a == b || a.is_number() && b.is_number() =>
        {
            Ok(Type::Truth)
        }
        (op::EQUALS | op::NOT_EQUALS, false, _) => Err(cannot("two values of one type")),
        (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, false, [a, b])
            if a.is_number() && b.is_number() || (a, b) == (&Type::Text, &Type::Text) =>
        {
            Ok(Type::Truth)
        }
        (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, false, _) => {
            Err(cannot("two numbers or two texts"))
        }
        (op::ADD, false, [Type::Text, Type::Text]) => Ok(Type::Text),
        (op::MODULO, false, [Type::Whole, Type::Whole]) => Ok(Type::Whole),
        (op::MODULO, false, _) => Err(cannot("two whole numbers")),
        (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE, false, [a, b])
            if a.is_number() && b.is_number() =>
        {
            Ok(as_one(types, &mut call.args))
        }
        (op::ADD, false, _) => Err(cannot("two numbers or two texts")),
        (op::SUBSTRACT | op::MULTIPLY | op::DIVIDE, false, _) => Err(cannot("two numbers")),
        (op::CONDITIONAL, false, [Type::Truth, a, b]) if a == b => Ok(a.clone()),
        (op::CONDITIONAL, false, [Type::Truth, a, b]) if a.is_number() && b.is_number() => {
            Ok(as_one(&types[1..], &mut call.args[1..]))
        }
        (op::CONDITIONAL, false, _) => Err(cannot("a condition and two values of one type")),
        (op::INDEX, false, [Type::Labels, Type::Text]) => Ok(Type::Text),
        (op::INDEX, false, _) => Err(cannot("labels and a name")),
        (op::IN, false, [Type::Text, Type::Labels]) => Ok(Type::Truth),
        (op::IN, false, [a, Type::List(of)]) if *a == **of || a.is_number() && of.is_number() => {
            Ok(Type::Truth)
        }
        (op::IN, false, _) => Err(cannot("a name and labels, or a value and a list of its type")),
        _ => type_of_function(name, has_target, types).map_err(wrong),
    }
}

/// The type of a call of a function that is not an operator.
fn type_of_function(
    name: &str,
    has_target: bool,
    types: &[Type],
) -> Result<Type, ExpressionProblem> {
    let cannot = |wanted| wrong_operands(name, types, wanted);
    match (name, has_target, types) {
        ("contains" | "startsWith" | "endsWith", true, [Type::Text, Type::Text]) => Ok(Type::Truth),
        ("contains" | "startsWith" | "endsWith", _, _) => {
            Err(ExpressionProblem::CalledOnText(name.to_owned()))
        }
        ("size", _, [Type::Text | Type::Labels | Type::List(_)]) => Ok(Type::Whole),
        ("size", _, _) => Err(cannot("a text, a list or labels")),
        ("int", false, [Type::Whole | Type::Fraction | Type::Text]) => Ok(Type::Whole),
        ("double", false, [Type::Whole | Type::Fraction | Type::Text]) => Ok(Type::Fraction),
        ("int" | "double", _, _) => Err(cannot("a number or a text")),
        ("string", false, [Type::Whole | Type::Fraction | Type::Text | Type::Truth]) => {
            Ok(Type::Text)
        }
        ("string", _, _) => Err(cannot("one value")),
        _ => Err(ExpressionProblem::UnknownFunction(name.to_owned())),
    }
}

/// An operator or a function has operands of other types than it needs.
fn wrong_operands(name: &str, types: &[Type], wanted: &'static str) -> ExpressionProblem {
    let operator = name.trim_matches('_').trim_start_matches('@').replace('_', " ");
    let given: Vec<_> = types.iter().map(Type::to_string).collect();
    ExpressionProblem::Operands { operator, wanted, given: given.join(" and ") }
}

/// Converts the whole one of two numbers to a fraction if the other is a fraction. Returns their
/// common type.
fn as_one(types: &[Type], numbers: &mut [IdedExpr]) -> Type {
    if types.iter().all(|number| *number == Type::Whole) {
        return Type::Whole;
    }
    for (number, _) in numbers.iter_mut().zip(types).filter(|(_, found)| **found == Type::Whole) {
        let id = number.id;
        let whole = std::mem::take(number);
        let call = CallExpr { func_name: "double".into(), target: None, args: vec![whole] };
        *number = IdedExpr { id, expr: Expr::Call(call) };
    }
    Type::Fraction
}

fn of_literal(literal: &LiteralValue) -> Result<Type, ExpressionProblem> {
    match literal {
        LiteralValue::Boolean(_) => Ok(Type::Truth),
        LiteralValue::Int(_) => Ok(Type::Whole),
        LiteralValue::Double(_) => Ok(Type::Fraction),
        LiteralValue::String(_) => Ok(Type::Text),
        LiteralValue::UInt(_) => Err(ExpressionProblem::UnsignedLiteral),
        LiteralValue::Bytes(_) => Err(ExpressionProblem::BytesLiteral),
        LiteralValue::Null => Err(ExpressionProblem::Null),
    }
}

/// The path of an expression of the form `a.b.c`.
fn dotted(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => {
            Some(format!("{}.{}", dotted(&select.operand.expr)?, select.field))
        }
        _ => None,
    }
}
