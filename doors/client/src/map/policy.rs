//! A scheduler of blocks and its parameters as one text, for the libraries: `lean,alpha=0.7`.

use eyas_files::blocks::{Alpha, BlockPolicy, IoAware, Lean, Multiwave};
use eyas_types::units;
use thiserror::Error;

/// A text is not a scheduler of blocks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum PolicyTextError {
    #[error("`{0}` is not a scheduler of blocks: write lean, static, multiwave or io-aware")]
    Name(String),
    #[error(
        "the scheduler {policy} has no parameter `{key}`: alpha is one of lean and io-aware, beta \
         of io-aware, min-block and waves of multiwave"
    )]
    Key { policy: String, key: String },
    #[error("{key} of a scheduler cannot be `{value}`: {expected}")]
    Value { key: String, value: String, expected: &'static str },
    #[error("the weights alpha and beta of io-aware exceed 1 together: write smaller ones")]
    Weights,
}

const SHARE: &str = "write a number from 0 to 1";

/// The scheduler that a text names, with the parameters after its name: `lean`, `lean,alpha=0.7`,
/// `multiwave,min-block=1MiB,waves=3`, `io-aware,alpha=0.5,beta=0.25`.
///
/// # Errors
/// If there is no such scheduler or parameter, or a value is not possible.
pub fn parse_policy(text: &str) -> Result<BlockPolicy, PolicyTextError> {
    let mut parts = text.split(',');
    let name = parts.next().unwrap_or_default();
    let named = BlockPolicy::named(name).ok_or_else(|| PolicyTextError::Name(name.to_owned()))?;
    let policy = parts.try_fold(named, |policy, part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        with(policy, key, value)
            .ok_or_else(|| PolicyTextError::Key { policy: name.to_owned(), key: key.to_owned() })?
    })?;
    match policy {
        BlockPolicy::IoAware(IoAware { alpha, beta }) if alpha + beta > 1.0 => {
            Err(PolicyTextError::Weights)
        }
        policy => Ok(policy),
    }
}

/// The policy with this parameter; `None` if it has no such parameter.
fn with(
    policy: BlockPolicy,
    key: &str,
    value: &str,
) -> Option<Result<BlockPolicy, PolicyTextError>> {
    let wrong = |expected| PolicyTextError::Value {
        key: key.to_owned(),
        value: value.to_owned(),
        expected,
    };
    let share = || {
        let parsed = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        parsed.ok_or_else(|| wrong(SHARE))
    };
    let waves = |multiwave: Multiwave| match key {
        "min-block" => Some(
            units::parse_bytes(value)
                .map(|min_block_bytes| Multiwave { min_block_bytes, ..multiwave })
                .map_err(|_| wrong("write a size such as 8MiB")),
        ),
        "waves" => Some(match value.parse() {
            Ok(waves) if waves > 0 => Ok(Multiwave { max_waves: Some(waves), ..multiwave }),
            _ => Err(wrong("write a number from 1 on")),
        }),
        _ => None,
    };
    match (policy, key) {
        (BlockPolicy::Lean(lean), "alpha") if value == "auto" => {
            Some(Ok(BlockPolicy::Lean(Lean { alpha: Alpha::Auto, ..lean })))
        }
        (BlockPolicy::Lean(lean), "alpha") => Some(
            share().map(|share| BlockPolicy::Lean(Lean { alpha: Alpha::Fixed(share), ..lean })),
        ),
        (BlockPolicy::IoAware(weights), "alpha") => {
            Some(share().map(|alpha| BlockPolicy::IoAware(IoAware { alpha, ..weights })))
        }
        (BlockPolicy::IoAware(weights), "beta") => {
            Some(share().map(|beta| BlockPolicy::IoAware(IoAware { beta, ..weights })))
        }
        (BlockPolicy::Multiwave, _) => {
            waves(Multiwave::DEFAULT).map(|all| all.map(BlockPolicy::MultiwaveWith))
        }
        (BlockPolicy::MultiwaveWith(multiwave), _) => {
            waves(multiwave).map(|all| all.map(BlockPolicy::MultiwaveWith))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
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
            ("static,alpha=0.5", "has no parameter `alpha`"),
            ("lean,waves=3", "has no parameter `waves`"),
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
