//! The policy by which `eyas map` assigns chunks, and the parameters of each.

use clap::Args;
use eyas_client::files::blocks::{Alpha, BlockParameterError, BlockParameters, BlockPolicy};
use eyas_client::types::units;

use crate::error::{CliError, ValueError};
use crate::node_args::parse_share;

const AUTO_WEIGHT: &str = "--alpha auto applies only to --policy lean: with io-aware, write the \
                           weight of the disk load, such as --alpha 0.4";

#[derive(Args)]
pub(super) struct BlockPolicyArgs {
    /// Policy that assigns chunks to tasks: lean, static, multiwave or io-aware
    #[arg(long, value_name = "POLICY", default_value = "lean", value_parser = parse_policy)]
    policy: BlockPolicy,
    /// With --policy lean: share of the chunks that is assigned in advance, from 0 to 1, or `auto`
    /// [default: auto]. With --policy io-aware: weight of a node's disk load, from 0 to 1
    /// [default: a third]
    #[arg(long, value_name = "SHARE", value_parser = parse_alpha)]
    alpha: Option<Alpha>,
    /// With --policy io-aware: weight of a node's processor load; the rest, 1 - alpha - beta, is
    /// the weight of the chunks that the node already has [default: a third]
    #[arg(long, value_name = "WEIGHT", value_parser = parse_share)]
    beta: Option<f64>,
    /// With --policy multiwave: each wave gives each task at least this many bytes [default: 8MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    min_block: Option<u64>,
    /// With --policy multiwave: maximum number of waves [default: as many as --min-block allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    waves: Option<u32>,
}

fn parse_policy(name: &str) -> Result<BlockPolicy, ValueError> {
    BlockPolicy::named(name).ok_or_else(|| ValueError::BlockPolicy(name.into()))
}

fn parse_alpha(text: &str) -> Result<Alpha, ValueError> {
    match text.parse() {
        _ if text == "auto" => Ok(Alpha::Auto),
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(Alpha::Fixed(share)),
        _ => Err(ValueError::ShareOrAuto(text.into())),
    }
}

impl BlockPolicyArgs {
    /// The policy with its parameters.
    ///
    /// # Errors
    /// If there is a parameter of another policy, or the weights of io-aware are not possible.
    pub fn policy(&self) -> Result<BlockPolicy, CliError> {
        let parameters = BlockParameters {
            alpha: self.alpha,
            beta: self.beta,
            min_block_bytes: self.min_block,
            max_waves: self.waves,
        };
        self.policy.with(parameters).map_err(|error| in_options(error).into())
    }
}

/// The error in the words of the options.
fn in_options(error: BlockParameterError) -> String {
    match error {
        BlockParameterError::Foreign { parameter, policies } => format!(
            "--{parameter} applies only to --policy {policies}: leave one of the two options out"
        ),
        BlockParameterError::AutoWeight => AUTO_WEIGHT.into(),
        BlockParameterError::Weights { alpha, beta } => format!(
            "the weights --alpha {alpha:.3} and --beta {beta:.3} exceed 1 together: what they \
             leave of 1 is the weight of the chunks that a node already has. Write smaller ones"
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use eyas_client::files::blocks::{IoAware, Lean, Multiwave};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BlockPolicyArgs,
    }

    fn policy(line: &str) -> Result<BlockPolicy, String> {
        let words = std::iter::once("map").chain(line.split_whitespace());
        let parsed = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        parsed.args.policy().map_err(|error| error.to_string())
    }

    #[test]
    fn each_policy_has_its_own_parameters() {
        let lean = policy("--alpha 0.5").unwrap();
        assert!(matches!(lean, BlockPolicy::Lean(Lean { alpha: Alpha::Fixed(0.5), .. })));
        assert_eq!(policy("--policy static"), Ok(BlockPolicy::Static));
        assert_eq!(policy("--policy multiwave"), Ok(BlockPolicy::Multiwave));
        assert_eq!(
            policy("--policy multiwave --min-block 1MiB --waves 3"),
            Ok(BlockPolicy::MultiwaveWith(Multiwave {
                min_block_bytes: 1 << 20,
                max_waves: Some(3)
            }))
        );
        assert_eq!(
            policy("--policy io-aware --alpha 0.5 --beta 0.25"),
            Ok(BlockPolicy::IoAware(IoAware { alpha: 0.5, beta: 0.25 }))
        );
    }

    #[test]
    fn parameters_of_other_policies_and_impossible_ones_are_refused() {
        for (line, part) in [
            ("--policy static --alpha 0.5", "--alpha applies only to --policy lean or io-aware"),
            ("--beta 0.5", "--beta applies only to --policy io-aware"),
            ("--policy io-aware --waves 2", "--waves applies only to --policy multiwave"),
            ("--policy multiwave --waves 2 --alpha 0", "--alpha applies only to"),
            ("--min-block 1MiB", "--min-block applies only to --policy multiwave"),
            ("--policy io-aware --alpha 0.6 --beta 0.6", "exceed 1 together"),
            ("--policy io-aware --alpha auto", "--alpha auto applies only to --policy lean"),
            ("--policy multiwave --waves 0", "0 is not in 1.."),
            ("--alpha 2", "`2` is not a share"),
        ] {
            let error = policy(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
