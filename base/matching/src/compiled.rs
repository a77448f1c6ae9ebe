//! A checked expression, and its evaluation.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use cel::common::types::{CelDouble, CelInt, CelString};
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use cel::{Context, Env, IdedExpr, Value};
use eyas_types::matching::{Attribute, EvaluationError, Expression, Fact, Facts};

/// A checked expression with the attributes that it uses; [`compile`](crate::compile) makes it.
pub(crate) struct CompiledExpression {
    text: String,
    expression: IdedExpr,
    /// Attributes that the expression uses, each once.
    mentions: Vec<Attribute>,
}

impl CompiledExpression {
    pub fn new(text: &str, expression: IdedExpr, mentions: Vec<Attribute>) -> Self {
        CompiledExpression { text: text.to_owned(), expression, mentions }
    }

    fn evaluate(&self, facts: &dyn Facts) -> Result<Value, EvaluationError> {
        let known = FactResolver(
            self.mentions.iter().map(|attribute| (*attribute, facts.fact(*attribute))).collect(),
        );
        let mut context = Context::with_env(language());
        context.set_variable_resolver(&known);
        Value::resolve(&self.expression, &context)
            .map_err(|error| EvaluationError::NoValue(error.to_string()))
    }
}

impl Expression for CompiledExpression {
    fn text(&self) -> &str {
        &self.text
    }

    fn is_fixed(&self) -> bool {
        self.mentions.iter().all(|attribute| attribute.is_fixed())
    }

    fn holds(&self, facts: &dyn Facts) -> Result<bool, EvaluationError> {
        match self.evaluate(facts)? {
            Value::Bool(holds) => Ok(holds),
            other => Err(EvaluationError::NotTruth(format!("{other:?}"))),
        }
    }

    fn number(&self, facts: &dyn Facts) -> Result<f64, EvaluationError> {
        match self.evaluate(facts)? {
            Value::Int(number) => Ok(number as f64),
            Value::Float(number) if !number.is_nan() => Ok(number),
            other => Err(EvaluationError::NotNumber(format!("{other:?}"))),
        }
    }
}

impl fmt::Debug for CompiledExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.text)
    }
}

/// CEL's operators and functions. Made once, because making them takes longer than an evaluation.
fn language() -> Arc<Env> {
    static LANGUAGE: OnceLock<Arc<Env>> = OnceLock::new();
    LANGUAGE.get_or_init(|| Arc::new(Env::stdlib())).clone()
}

/// The attributes that an expression uses, with their values.
struct FactResolver<'a>(Vec<(Attribute, Fact<'a>)>);

impl VariableResolver for FactResolver<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let (_, fact) = self.0.iter().find(|(attribute, _)| attribute.name() == variable)?;
        Some(match *fact {
            Fact::Whole(number) => {
                CowVal::owned(CelInt::from(i64::try_from(number).unwrap_or(i64::MAX)))
            }
            Fact::Fraction(number) => CowVal::owned(CelDouble::from(number)),
            Fact::Text(text) => CowVal::owned(CelString::from(text)),
            Fact::Labels(labels) => {
                let labels: HashMap<String, String> = labels.clone().into_iter().collect();
                CowVal::Owned(Value::from(labels).try_into().ok()?)
            }
        })
    }
}
