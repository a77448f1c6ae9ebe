//! A simulated experiment of the paper, and the format of its figures in the command's table and in
//! documents.

use eyas_types::PlacementPolicy;

use super::{Experiment, PaperResult};
use crate::bound::Needs;
use crate::outcome::RunOutcome;

/// An experiment with its simulated results.
pub struct SimulatedExperiment {
    /// The experiment.
    pub experiment: Experiment,
    /// Outcome with the paper's policies.
    pub there: RunOutcome,
    /// Outcome with the policies of eyas and cost placement; `None` for variants.
    pub eyas: Option<RunOutcome>,
    /// Bound that no placement can pass, in the unit of the experiment's result.
    pub bound: f64,
}

/// Headings of the columns of [`SimulatedExperiment::cells`].
pub const HEADINGS: [&str; 16] = [
    "EXPERIMENT",
    "IN",
    "POLICY",
    "PAPER",
    "SIMULATED",
    "DIFFERENCE",
    "EYAS",
    "BOUND",
    "PAPER H",
    "SIMULATED H",
    "EYAS H",
    "LOCAL",
    "PEER",
    "STORAGE",
    "STORAGE GB",
    "EYAS GB",
];

/// Legend below a table of these columns.
pub const LEGEND: &str = "\
PAPER: the paper's measurement. SIMULATED: the paper's policies on the paper's cluster, also for \
                          LOCAL to STORAGE GB.
DIFFERENCE: SIMULATED relative to PAPER. EYAS: the policies of eyas, with cost placement, also for \
                          EYAS GB.
BOUND: no placement does better. H: processor hours for which nodes were held, in each of the \
                          three.
LOCAL, PEER, STORAGE: shares of the inputs that tasks read from their node's store, and that nodes \
                          fetched for tasks, including tasks that then ran elsewhere.";

impl SimulatedExperiment {
    /// Simulates an experiment with the paper's policies and with those of eyas.
    pub fn of(experiment: Experiment) -> Self {
        let there = experiment.with_the_papers_policies();
        let eyas = (!experiment.is_changed).then(|| experiment.with_ours(PlacementPolicy::Cost));
        let makespan_ns = Needs::of(&*experiment.workload).bound_ns(&experiment.cluster);
        let bound = experiment.measure(&RunOutcome { makespan_ns, ..RunOutcome::default() });
        SimulatedExperiment { experiment, there, eyas, bound }
    }

    /// Whether all tasks have succeeded.
    pub fn is_complete(&self) -> bool {
        self.there.is_complete() && self.eyas.as_ref().is_none_or(RunOutcome::is_complete)
    }

    /// The result that the paper reports.
    pub fn paper(&self) -> f64 {
        let (PaperResult::Makespan(paper) | PaperResult::Efficiency(paper)) =
            self.experiment.measured;
        paper
    }

    /// The quantity that the paper reports, of an outcome.
    pub fn measure(&self, outcome: &RunOutcome) -> f64 {
        self.experiment.measure(outcome)
    }

    /// The row of the table, with the columns of [`HEADINGS`].
    pub fn cells(&self) -> Vec<String> {
        let SimulatedExperiment { experiment, there, eyas, .. } = self;
        let written = |value: f64| match experiment.measured {
            PaperResult::Makespan(_) => format!("{value:.0} s"),
            PaperResult::Efficiency(_) => format!("{:.1}%", value * 100.0),
        };
        let hours = |hours: f64| format!("{hours:.0}");
        let gb = |outcome: &RunOutcome| format!("{:.0}", outcome.storage_bytes as f64 / 1e9);
        let [local, peer, storage] =
            there.read_shares().map(|share| format!("{:.1}%", share * 100.0));
        vec![
            experiment.name.into(),
            experiment.place.into(),
            experiment.policy().into(),
            written(self.paper()),
            written(self.measure(there)),
            format!("{:+.1}%", 100.0 * (self.measure(there) / self.paper() - 1.0)),
            eyas.as_ref().map_or(String::new(), |eyas| written(self.measure(eyas))),
            written(self.bound),
            experiment.cpu_hours.map_or("-".into(), hours),
            hours(there.cpu_hours()),
            eyas.as_ref().map_or(String::new(), |eyas| hours(eyas.cpu_hours())),
            local,
            peer,
            storage,
            gb(there),
            eyas.as_ref().map_or(String::new(), gb),
        ]
    }
}
