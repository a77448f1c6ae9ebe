//! An experiment of the paper that was simulated, and how its figures are written: for the command's table and for documents.

use eyas_types::PlacementPolicy;

use super::{Experiment, Measured};
use crate::bound::Needs;
use crate::outcome::Outcome;

/// What came of an experiment.
pub struct Repeated {
    /// Which.
    pub experiment: Experiment,
    /// With the paper's policies.
    pub there: Outcome,
    /// With eyas's, and cost placement, unless something is changed.
    pub eyas: Option<Outcome>,
    /// The best that any placement could do.
    pub bound: f64,
}

/// What the columns of [`Repeated::cells`] are.
pub const HEADINGS: [&str; 16] = [
    "EXPERIMENT",
    "IN",
    "POLICY",
    "PAPER",
    "AS THERE",
    "DIFFERENCE",
    "EYAS",
    "BOUND",
    "PAPER H",
    "THERE H",
    "EYAS H",
    "LOCAL",
    "PEER",
    "STORAGE",
    "STORAGE GB",
    "EYAS GB",
];

/// What is said below a table of them.
pub const LEGEND: &str = "\
AS THERE: the paper's policies on its cluster; so are LOCAL to STORAGE GB. DIFFERENCE: of it from the paper.
EYAS: what eyas does, with cost placement; so is EYAS GB. BOUND: no placement could do better.
H: processor hours of nodes while they were there, in the paper, as there, and with eyas.
LOCAL, PEER, STORAGE: of all that tasks read from their node's store and nodes got for tasks, also for tasks that then ran elsewhere.";

impl Repeated {
    /// Simulates all that is to be said of an experiment.
    pub fn of(experiment: Experiment) -> Self {
        let there = experiment.with_the_papers_policies();
        let eyas = (!experiment.is_changed).then(|| experiment.with_ours(PlacementPolicy::Cost));
        let makespan_ns = Needs::of(&*experiment.workload).bound_ns(&experiment.cluster);
        let bound = experiment.measure(&Outcome { makespan_ns, ..Outcome::default() });
        Repeated { experiment, there, eyas, bound }
    }

    /// Whether all tasks have ended.
    pub fn is_complete(&self) -> bool {
        self.there.is_complete() && self.eyas.as_ref().is_none_or(Outcome::is_complete)
    }

    /// What the paper says.
    pub fn paper(&self) -> f64 {
        let (Measured::Makespan(paper) | Measured::Efficiency(paper)) = self.experiment.measured;
        paper
    }

    /// What was measured, of an outcome.
    pub fn measure(&self, outcome: &Outcome) -> f64 {
        self.experiment.measure(outcome)
    }

    /// Its row for people, below [`HEADINGS`].
    pub fn cells(&self) -> Vec<String> {
        let Repeated { experiment, there, eyas, .. } = self;
        let written = |value: f64| match experiment.measured {
            Measured::Makespan(_) => format!("{value:.0} s"),
            Measured::Efficiency(_) => format!("{:.1}%", value * 100.0),
        };
        let hours = |hours: f64| format!("{hours:.0}");
        let gb = |outcome: &Outcome| format!("{:.0}", outcome.storage_bytes as f64 / 1e9);
        let [local, peer, storage] = there.read_shares().map(|share| format!("{:.1}%", share * 100.0));
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
