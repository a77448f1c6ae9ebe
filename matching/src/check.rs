//! Finds out what an expression is before it is ever evaluated: every name is known, every operator has operands that
//! it can work on.
//!
//! CEL itself leaves all this to the evaluation. There it would show only once a task waits, and only on the nodes on
//! which that part is reached. In one thing this is more lenient than CEL: where a whole number and a fraction meet in
//! a sum or product, the whole number is taken as a fraction.

use std::fmt;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr, LiteralValue, SelectExpr, operators as op};
use eyas_types::matching::{Attribute, AttributeType};

use crate::known_attributes;

/// What a part of an expression is.
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

/// What is wrong at which node of the tree.
pub(crate) struct Wrong {
    pub at: u64,
    pub why: String,
}

/// Functions that expressions may call, as they are shown.
const FUNCTIONS: &str = "size(), contains(), startsWith(), endsWith(), int(), double(), string(), has()";

/// Walks over one expression.
#[derive(Default)]
pub(crate) struct Checker {
    /// Attributes that were met, each once.
    pub mentions: Vec<Attribute>,
}

impl Checker {
    /// What the expression is.
    pub fn check(&mut self, expression: &mut IdedExpr) -> Result<Type, Wrong> {
        let at = expression.id;
        let wrong = |why: String| Wrong { at, why };
        if let Some(path) = dotted(&expression.expr)
            && let Some(attribute) = Attribute::ALL.iter().find(|attribute| attribute.name() == path)
        {
            if !self.mentions.contains(attribute) {
                self.mentions.push(*attribute);
            }
            return Ok(attribute.kind().into());
        }
        match &mut expression.expr {
            Expr::Literal(literal) => of_literal(literal).map_err(wrong),
            Expr::Ident(name) => Err(wrong(unknown(name))),
            Expr::Select(select) => self.select(at, select),
            Expr::Call(call) => self.call(at, call),
            Expr::List(list) => {
                let mut of: Option<Type> = None;
                for element in &mut list.elements {
                    let id = element.id;
                    let found = self.check(element)?;
                    match &of {
                        Some(of) if *of != found => {
                            return Err(Wrong { at: id, why: format!("a list of {of} cannot have {found} in it") });
                        }
                        _ => of = Some(found),
                    }
                }
                of.map(|of| Type::List(Box::new(of))).ok_or_else(|| wrong("the list is empty".into()))
            }
            Expr::Comprehension(_) => Err(wrong(
                "all, exists, map and filter are not allowed: expressions are evaluated very often, and cannot loop"
                    .into(),
            )),
            Expr::Map(_) | Expr::Struct(_) => Err(wrong("maps and messages cannot be written here".into())),
            Expr::Unspecified => Err(wrong("something is missing".into())),
        }
    }

    /// `node.labels.NAME`, and whether there is one.
    fn select(&mut self, at: u64, select: &mut SelectExpr) -> Result<Type, Wrong> {
        let path = dotted(&select.operand.expr);
        let is_attribute = |path: &str| {
            let is_it = |name: &str| path == name || path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
            Attribute::ALL.iter().any(|attribute| is_it(attribute.name()))
        };
        if let Some(path) = path.filter(|path| !is_attribute(path)) {
            return Err(Wrong { at, why: unknown(&format!("{path}.{}", select.field)) });
        }
        match (self.check(&mut select.operand)?, select.test) {
            (Type::Labels, true) => Ok(Type::Truth),
            (Type::Labels, false) => Ok(Type::Text),
            (other, _) => Err(Wrong { at, why: format!("only node.labels has names in it; this is {other}") }),
        }
    }

    fn call(&mut self, at: u64, call: &mut CallExpr) -> Result<Type, Wrong> {
        let mut types = Vec::new();
        for operand in call.target.as_deref_mut().into_iter().chain(&mut call.args) {
            types.push(self.check(operand)?);
        }
        let has_target = call.target.is_some();
        let name = call.func_name.as_str();
        let shown = name.trim_matches('_').trim_start_matches('@').replace('_', " ");
        let wrong = |why: String| Wrong { at, why };
        let cannot = |wants: &str| {
            let given: Vec<_> = types.iter().map(Type::to_string).collect();
            wrong(format!("`{shown}` wants {wants}, not {}", given.join(" and ")))
        };
        match (name, has_target, &types[..]) {
            (op::LOGICAL_AND | op::LOGICAL_OR, false, [Type::Truth, Type::Truth]) => Ok(Type::Truth),
            (op::LOGICAL_AND | op::LOGICAL_OR, false, _) => Err(cannot("two that are true or false")),
            (op::LOGICAL_NOT, false, [Type::Truth]) => Ok(Type::Truth),
            (op::LOGICAL_NOT, false, _) => Err(cannot("something true or false")),
            (op::NEGATE, false, [number]) if number.is_number() => Ok(number.clone()),
            (op::NEGATE, false, _) => Err(cannot("a number")),
            (op::EQUALS | op::NOT_EQUALS, false, [a, b]) if a == b || a.is_number() && b.is_number() => Ok(Type::Truth),
            (op::EQUALS | op::NOT_EQUALS, false, _) => Err(cannot("two of a kind")),
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
            (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE, false, [a, b]) if a.is_number() && b.is_number() => {
                Ok(as_one(&types, &mut call.args))
            }
            (op::ADD, false, _) => Err(cannot("two numbers or two texts")),
            (op::SUBSTRACT | op::MULTIPLY | op::DIVIDE, false, _) => Err(cannot("two numbers")),
            (op::CONDITIONAL, false, [Type::Truth, a, b]) if a == b => Ok(a.clone()),
            (op::CONDITIONAL, false, [Type::Truth, a, b]) if a.is_number() && b.is_number() => {
                Ok(as_one(&types[1..], &mut call.args[1..]))
            }
            (op::CONDITIONAL, false, _) => Err(cannot("a condition and two of a kind")),
            (op::INDEX, false, [Type::Labels, Type::Text]) => Ok(Type::Text),
            (op::INDEX, false, _) => Err(cannot("labels and a name")),
            (op::IN, false, [Type::Text, Type::Labels]) => Ok(Type::Truth),
            (op::IN, false, [a, Type::List(of)]) if *a == **of || a.is_number() && of.is_number() => Ok(Type::Truth),
            (op::IN, false, _) => Err(cannot("a name and labels, or something and a list of its kind")),
            ("contains" | "startsWith" | "endsWith", true, [Type::Text, Type::Text]) => Ok(Type::Truth),
            ("contains" | "startsWith" | "endsWith", _, _) => {
                Err(wrong(format!("`{name}` is called as text.{name}(text)")))
            }
            ("size", _, [Type::Text | Type::Labels | Type::List(_)]) => Ok(Type::Whole),
            ("size", _, _) => Err(cannot("a text, a list or labels")),
            ("int", false, [Type::Whole | Type::Fraction | Type::Text]) => Ok(Type::Whole),
            ("double", false, [Type::Whole | Type::Fraction | Type::Text]) => Ok(Type::Fraction),
            ("int" | "double", _, _) => Err(cannot("a number or a text")),
            ("string", false, [Type::Whole | Type::Fraction | Type::Text | Type::Truth]) => Ok(Type::Text),
            ("string", _, _) => Err(cannot("one value")),
            _ => Err(wrong(format!("there is no function `{name}`; there are {FUNCTIONS}"))),
        }
    }
}

/// Of two numbers, takes the whole one as a fraction if the other is one; what they are then.
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

fn of_literal(literal: &LiteralValue) -> Result<Type, String> {
    match literal {
        LiteralValue::Boolean(_) => Ok(Type::Truth),
        LiteralValue::Int(_) => Ok(Type::Whole),
        LiteralValue::Double(_) => Ok(Type::Fraction),
        LiteralValue::String(_) => Ok(Type::Text),
        LiteralValue::UInt(_) => Err("whole numbers are written without u".into()),
        LiteralValue::Bytes(_) => Err("texts are written without b".into()),
        LiteralValue::Null => Err("nothing here is ever null: ask with has()".into()),
    }
}

/// `a.b.c`, if it is no more than that.
fn dotted(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => Some(format!("{}.{}", dotted(&select.operand.expr)?, select.field)),
        _ => None,
    }
}

fn unknown(path: &str) -> String {
    format!("there is no attribute `{path}`; there are {}", known_attributes())
}
