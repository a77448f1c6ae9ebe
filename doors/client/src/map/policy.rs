//! A scheduler of blocks and its parameters as one text, for the libraries: `lean,alpha=0.7`.

use eyas_files::blocks::{Alpha, BlockParameterError, BlockParameters, BlockPolicy};
use eyas_types::units;
use thiserror::Error;

/// Why a text is not a scheduler of blocks.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PolicyTextError {
    /// There is no scheduler with this name.
    #[error("`{0}` is not a scheduler of blocks: write lean, static, multiwave or io-aware")]
    Name(String),
    /// No scheduler has this parameter.
    #[error("`{0}` is not a parameter of a scheduler: write alpha, beta, min-block or waves")]
    Key(String),
    /// The parameter belongs to other schedulers.
    #[error("{parameter} is a parameter of {policies} only: leave it out")]
    Foreign {
        /// Name of the parameter.
        parameter: &'static str,
        /// Names of the schedulers that have it.
        policies: &'static str,
    },
    /// The value is not possible.
    #[error("{key} of a scheduler cannot be `{value}`: write {expected}")]
    Value {
        /// Name of the parameter.
        key: String,
        /// The value.
        value: String,
        /// What is possible.
        expected: &'static str,
    },
    /// Weights that exceed 1.
    #[error("the weights alpha and beta of io-aware exceed 1 together: write smaller ones")]
    Weights,
}

/// The scheduler that a text names, with the parameters after its name: `lean`, `lean,alpha=0.7`,
/// `multiwave,min-block=1MiB,waves=3`, `io-aware,alpha=0.5,beta=0.25`.
///
/// # Errors
/// If there is no such scheduler or parameter, or a value is not possible.
pub fn parse_policy(text: &str) -> Result<BlockPolicy, PolicyTextError> {
    let mut parts = text.split(',');
    let name = parts.next().unwrap_or_default();
    let policy = BlockPolicy::named(name).ok_or_else(|| PolicyTextError::Name(name.to_owned()))?;
    let mut parameters = BlockParameters::default();
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        read(&mut parameters, key, value)?;
    }
    policy.with(parameters).map_err(|error| match error {
        BlockParameterError::Foreign { parameter, policies } => {
            PolicyTextError::Foreign { parameter, policies }
        }
        BlockParameterError::AutoWeight => wrong("alpha", "auto", SHARE),
        BlockParameterError::Weights { .. } => PolicyTextError::Weights,
    })
}

const SHARE: &str = "a number from 0 to 1";

fn wrong(key: &str, value: &str, expected: &'static str) -> PolicyTextError {
    PolicyTextError::Value { key: key.to_owned(), value: value.to_owned(), expected }
}

/// Reads one parameter.
fn read(to: &mut BlockParameters, key: &str, value: &str) -> Result<(), PolicyTextError> {
    let share = || value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    let expected = match key {
        "alpha" if value == "auto" => {
            to.alpha = Some(Alpha::Auto);
            return Ok(());
        }
        "alpha" => {
            to.alpha = share().map(Alpha::Fixed);
            to.alpha.is_none().then_some(SHARE)
        }
        "beta" => {
            to.beta = share();
            to.beta.is_none().then_some(SHARE)
        }
        "min-block" => {
            to.min_block_bytes = units::parse_bytes(value).ok();
            to.min_block_bytes.is_none().then_some("a size such as 8MiB")
        }
        "waves" => {
            to.max_waves = value.parse().ok().filter(|waves| *waves > 0);
            to.max_waves.is_none().then_some("a number from 1 on")
        }
        _ => return Err(PolicyTextError::Key(key.to_owned())),
    };
    expected.map_or(Ok(()), |expected| Err(wrong(key, value, expected)))
}

#[cfg(test)]
mod tests {
    use eyas_files::blocks::{IoAware, Lean, Multiwave};

    use super::*;

    #[test]
    fn a_text_names_a_scheduler_and_its_parameters() {
        assert_eq!(parse_policy("static"), Ok(BlockPolicy::Static));
        let lean = parse_policy("lean,alpha=0.7").unwrap();
        assert!(matches!(lean, BlockPolicy::Lean(Lean { alpha: Alpha::Fixed(0.7), .. })));
        assert_eq!(parse_policy("lean,alpha=auto"), parse_policy("lean"));
        assert_eq!(
            parse_policy("multiwave,min-block=1MiB,waves=3"),
            Ok(BlockPolicy::MultiwaveWith(Multiwave {
                min_block_bytes: 1 << 20,
                max_waves: Some(3)
            }))
        );
        assert_eq!(
            parse_policy("io-aware,alpha=0.5,beta=0.25"),
            Ok(BlockPolicy::IoAware(IoAware { alpha: 0.5, beta: 0.25 }))
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, part) in [
            ("", "`` is not a scheduler"),
            ("Lean", "is not a scheduler"),
            ("static,alpha=0.5", "alpha is a parameter of lean or io-aware only"),
            ("lean,waves=3", "waves is a parameter of multiwave only"),
            ("lean,speed=3", "`speed` is not a parameter"),
            ("lean,alpha=2", "from 0 to 1"),
            ("lean,alpha", "from 0 to 1"),
            ("io-aware,alpha=auto", "from 0 to 1"),
            ("io-aware,alpha=0.6,beta=0.6", "exceed 1 together"),
            ("multiwave,waves=0", "from 1 on"),
            ("multiwave,min-block=much", "a size such as"),
        ] {
            let error = parse_policy(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
