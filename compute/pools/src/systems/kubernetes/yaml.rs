//! YAML and JSON texts as values: kubeconfigs and templates of Pods.

use serde_json::{Map, Value};
use thiserror::Error;
use yaml_rust2::{ScanError, Yaml, YamlLoader};

/// Why a text is not understood.
#[derive(Debug, Error)]
pub(super) enum YamlError {
    #[error("it is not YAML: {0}")]
    Syntax(#[from] ScanError),
    #[error("it has {0} documents; one is needed")]
    Documents(usize),
    #[error("it has a value that JSON cannot have: {0}")]
    Value(String),
}

/// The only document of a text.
pub(super) fn parse(text: &str) -> Result<Value, YamlError> {
    match &mut parse_all(text)?[..] {
        [document] => Ok(document.take()),
        documents => Err(YamlError::Documents(documents.len())),
    }
}

/// The documents of a text.
pub(super) fn parse_all(text: &str) -> Result<Vec<Value>, YamlError> {
    YamlLoader::load_from_str(text)?.into_iter().map(value).collect()
}

fn value(yaml: Yaml) -> Result<Value, YamlError> {
    Ok(match yaml {
        Yaml::Null => Value::Null,
        Yaml::Boolean(value) => value.into(),
        Yaml::Integer(value) => value.into(),
        Yaml::Real(ref text) => match yaml.as_f64().and_then(serde_json::Number::from_f64) {
            Some(number) => Value::Number(number),
            None => return Err(YamlError::Value(text.clone())),
        },
        Yaml::String(text) => text.into(),
        Yaml::Array(items) => Value::Array(items.into_iter().map(value).collect::<Result<_, _>>()?),
        Yaml::Hash(fields) => {
            let named = fields.into_iter().map(|(name, field)| Ok((key(name)?, value(field)?)));
            Value::Object(named.collect::<Result<Map<_, _>, YamlError>>()?)
        }
        other => return Err(YamlError::Value(format!("{other:?}"))),
    })
}

fn key(yaml: Yaml) -> Result<String, YamlError> {
    match value(yaml)? {
        Value::String(text) => Ok(text),
        other => Ok(other.to_string()),
    }
}
