//! What a submission's expressions are compiled with, where jobs are checked.

use std::sync::Arc;

use eyas_jobs::InvalidExpression;
use eyas_types::matching::Terms;

/// Compiles a template's requirements and rank.
///
/// # Errors
/// The error is a message for people.
pub(crate) fn compile(
    requirements: Option<&str>,
    rank: Option<&str>,
) -> Result<Option<Arc<Terms>>, InvalidExpression> {
    eyas_matching::terms(requirements, rank).map_err(|e| InvalidExpression(e.to_string()))
}

#[cfg(test)]
mod tests {
    use eyas_jobs::{JobSpec, MAX_TERMS, SpecError};
    use eyas_types::{Program, TaskItem, TaskTemplate};

    use super::*;

    #[test]
    fn expressions_are_compiled_once_and_errors_are_told() {
        let with = |requirements: &[&str], rank: Option<&str>| {
            let mut spec = JobSpec::default();
            spec.push(&[TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() }]).unwrap();
            for text in requirements {
                let mut template = TaskTemplate::new(Program::Noop);
                (template.requirements, template.rank) =
                    (Some((*text).to_owned()), rank.map(str::to_owned));
                spec.templates.push(template);
            }
            spec
        };
        let mut spec = with(&["node.cpus > 1", "node.cpus > 2", "node.cpus > 1"], None);
        assert_eq!(spec.validate(&compile), Ok(()));
        assert_eq!(spec.need(0), spec.need(2));
        assert_ne!(spec.need(0), spec.need(1));
        for (requirements, rank, told) in [
            (
                "node.cpu > 1",
                None,
                "requirements `node.cpu > 1`, column 5: there is no attribute `node.cpu`; there \
                 are",
            ),
            ("node.name > 1", None, "column 11: `>` needs two numbers or two texts"),
            ("true", Some("node.name"), "rank `node.name`, column 1: it has to be a number"),
        ] {
            let error = with(&[requirements], rank).validate(&compile).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        let many: Vec<_> = (0..=MAX_TERMS).map(|number| format!("node.cpus > {number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(with(&many, None).validate(&compile), Err(SpecError::TooManyTerms));
        assert_eq!(with(&many[1..], None).validate(&compile), Ok(()));
    }
}
