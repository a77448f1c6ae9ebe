//! The table of all experiments in a document, and the test that the table is up to date.
//!
//! It takes a processor half an hour to compute the table, too long for a test. So the document
//! carries a *stamp*: a digest of the experiments' descriptions, and of the results of small
//! experiments of the same kind, which take seconds. Any change to placement, flows or time changes
//! some of these results, and so the stamp.

use std::fmt::Write;

use eyas_types::{PlacementPolicy, Reads};
use thiserror::Error;

use super::simulated_experiment::{HEADINGS, LEGEND};
use super::{Experiment, SimulatedExperiment};
use crate::outcome::RunOutcome;
use crate::run;

/// Start of the part of a document that the command writes. The stamp and [`STAMPED`] follow.
const BEGINS: &str = "<!-- made by `eyas simulate paper --sensitivities --document FILE`; stamp ";
const STAMPED: &str = " -->\n";
/// End of that part.
const ENDS: &str = "<!-- end of what was made -->";

/// Factor by which the experiments of the stamp are smaller: nodes, and rows and columns of
/// All-Pairs.
const SMALLER: u32 = 16;
/// Most tasks of other workloads that run for the stamp.
const FEW_TASKS: u64 = 1_000;

/// A document has no place for results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the document has no line with `{mark}`, which marks the place of the results")]
pub struct NoResults {
    mark: &'static str,
}

/// The document with its results replaced.
///
/// # Errors
/// If the document has no place for results.
pub fn with_results(document: &str, all: &[SimulatedExperiment]) -> Result<String, NoResults> {
    with(document, &block(all), &stamp())
}

fn with(document: &str, block: &str, stamp: &str) -> Result<String, NoResults> {
    let (before, _, after) = parts(document)?;
    Ok(format!("{before}{BEGINS}{stamp}{STAMPED}{block}{after}"))
}

/// The stamp of the results in a document.
///
/// # Errors
/// If the document has no results.
pub fn stamp_in(document: &str) -> Result<&str, NoResults> {
    parts(document).map(|(_, stamp, _)| stamp)
}

/// The text before the results, their stamp, and the text after them.
fn parts(document: &str) -> Result<(&str, &str, &str), NoResults> {
    let missing = |mark: &'static str| NoResults { mark: mark.trim() };
    let (before, rest) = document.split_once(BEGINS).ok_or_else(|| missing(BEGINS))?;
    let (stamp, rest) = rest.split_once(STAMPED).ok_or_else(|| missing(STAMPED))?;
    let end = rest.find(ENDS).ok_or_else(|| missing(ENDS))?;
    Ok((before, stamp, &rest[end..]))
}

/// The results: the experiments, then the variants.
fn block(all: &[SimulatedExperiment]) -> String {
    let mut text = String::from("\n");
    let mut row = |cells: &[String]| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    row(&HEADINGS.map(String::from));
    row(&HEADINGS.map(|_| "---".to_owned()));
    all.iter().for_each(|of| row(&of.cells()));
    let _ = writeln!(text, "\n{}\n", LEGEND.replace('\n', "\\\n"));
    for Experiment { name, cause, .. } in
        all.iter().map(|of| &of.experiment).filter(|of| !of.cause.is_empty())
    {
        let _ = writeln!(text, "- `{name}`: {cause}.");
    }
    text + "\n"
}

/// A digest that changes when the results would change.
pub fn stamp() -> String {
    let mut digest = Digest::default();
    for experiment in Experiment::all().into_iter().chain(Experiment::sensitivities()) {
        digest.add(&experiment.described());
    }
    let (cluster, policies, pairs) = Experiment::guard();
    digest.add(&summary(&crate::run(&cluster, &policies, &pairs, super::SEED)));
    for experiment in Experiment::small(SMALLER, FEW_TASKS) {
        digest.add(&summary(&experiment.with_the_papers_policies()));
        if !experiment.is_changed {
            digest.add(&summary(&experiment.with_ours(PlacementPolicy::Cost)));
        }
        digest.add(
            &run::all_local_s(&experiment.cluster, &*experiment.workload, super::SEED).to_string(),
        );
    }
    format!("{:016x}", digest.0)
}

/// The figures of an outcome that the table is made from.
fn summary(outcome: &RunOutcome) -> String {
    let RunOutcome {
        makespan_ns, done, reads, loads, storage_bytes, peer_bytes, held_cpu_ns, ..
    } = outcome;
    // No task of the paper reads files of the cluster.
    let text = |Reads { local, peer, persistent, files: _ }: &Reads| {
        format!("Reads {{ local: {local:?}, peer: {peer:?}, persistent: {persistent:?} }}")
    };
    let (reads, loads) = (text(reads), text(loads));
    format!("{makespan_ns} {done} {reads} {loads} {storage_bytes} {peer_bytes} {held_cpu_ns}")
}

/// FNV-1a of 64 bits. No attacker chooses the input.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_in_the_documents_are_of_this_simulator() {
        let documents =
            [("docs/guides/simulation.md", include_str!("../../../../docs/guides/simulation.md"))];
        let now = stamp();
        for (name, document) in documents {
            let then = stamp_in(document).expect("the document has results");
            assert_eq!(
                then, now,
                "the results in {name} are old: compute them again with `eyas simulate paper \
                 --sensitivities --document {name}` (release build, half an hour), and check the \
                 text around them"
            );
        }
    }

    #[test]
    fn results_take_the_place_of_others() {
        let document = format!("before\n{BEGINS}0{STAMPED}old\n{ENDS}\nafter\n");
        let new = with(&document, &block(&[]), "1").expect("there is a place");
        assert!(
            new.starts_with("before\n")
                && new.ends_with(&format!("{ENDS}\nafter\n"))
                && !new.contains("old")
        );
        assert_eq!(stamp_in(&new), Ok("1"));
        assert!(with("no place", "", "1").is_err());
    }

    #[test]
    fn another_text_has_another_digest() {
        let of = |texts: &[&str]| {
            let mut digest = Digest::default();
            texts.iter().for_each(|text| digest.add(text));
            digest.0
        };
        assert!(
            of(&["a", "b"]) != of(&["ab"]) && of(&["a"]) != of(&["b"]) && of(&["a"]) == of(&["a"])
        );
    }
}
