//! The experiments of the data diffusion paper and their measured results (section 5, figures 16 to
//! 40, table 2).

use std::sync::OnceLock;

use eyas_types::{Distribution, PlacementPolicy};

use crate::clock::SECOND;
use crate::cluster::{Policies, SimCluster};
use crate::nodes::Batch;
use crate::outcome::RunOutcome;
use crate::workload::{
    AdaptedWorkload, AllPairs, MonotonicallyIncreasing, Order, SharedWorkload, SineWave, Workload,
};

mod document;
mod simulated_experiment;

pub use document::{NoResults, stamp, stamp_in, with_results};
pub use simulated_experiment::{HEADINGS, LEGEND, SimulatedExperiment};

/// Seed of the choice of objects; the choice does not matter.
const SEED: u64 = 1;
/// Rows and columns of a tile. A million pairs are then about as many tiles as nodes.
const TILE: u32 = 32;
/// Size of a store on the 100 nodes of the TeraGrid.
const TERAGRID_CACHE_BYTES: u64 = 50_000_000_000;
/// Delay of the catalog that is suspected in the paper.
const LATE: u64 = 12 * SECOND;

/// An experiment of the paper, or a variant of one.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Figure or section of the paper.
    pub place: &'static str,
    /// The cluster.
    pub cluster: SimCluster,
    /// The workload.
    pub workload: SharedWorkload,
    /// The paper's policies.
    pub policies: Policies,
    /// The result that the paper reports.
    pub measured: PaperResult,
    /// Processor hours of the nodes while they were held, if the paper reports them.
    pub cpu_hours: Option<f64>,
    /// The reason why the simulated result with the paper's policies differs by more than 10 %. Of
    /// a variant, the change.
    pub cause: &'static str,
    /// Whether this is a variant.
    pub is_changed: bool,
    all_local_s: OnceLock<f64>,
}

/// The result that the paper reports of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PaperResult {
    /// Seconds from the first arrival to the end of the last task.
    Makespan(f64),
    /// Run time with all data local, divided by the run time.
    Efficiency(f64),
}

use PaperResult::{Efficiency, Makespan};
use PlacementPolicy::{
    FirstAvailable as Fa, GoodCacheCompute as Gcc, MaxCacheHit as Mch, MaxComputeUtil as Mcu,
};

// Reasons of differences from the paper.
const OLDEST: &str = "below its utilisation threshold, the paper's scheduler takes the oldest \
                      task, whatever the executor holds (figure 5); with the smallest stores, the \
                      utilisation may have been below the threshold all the time, if processors \
                      that wait for data did not count as busy: see `oldest` of --sensitivities";
const OLDEST_OF_DISK: &str = "two causes explain a part of the difference: the oldest task goes \
                              first (figure 5), and there is no page cache: see `oldest` of \
                              --sensitivities; the cause of the rest is unknown";
const DISK: &str = "the missing page cache explains a part of the difference: see `disk` of \
                    --sensitivities; the cause of the rest is unknown";
const PAGES: &str = "nodes read from a page cache, which the baseline \"all data accesses \
                     occurring to local disk\" does not have; without it, the result is nearer to \
                     the paper's: see `disk` of --sensitivities";
const ROUNDS: &str = "each of seven rounds takes 96 s through cards of 1 Gb/s; the paper's figure \
                      leaves 69 s for all";
const READ_MORE: &str =
    "tasks read more from persistent storage than the 906 GB of the paper; the cause is unknown";
const ROW_BY_ROW: &str = "in the paper, tasks arrived row by row";

/// The size of experiments.
#[derive(Clone, Copy)]
struct Scale {
    /// Factor by which nodes, and rows and columns of All-Pairs, are fewer than in the paper.
    smaller: u32,
    /// Most tasks of other workloads.
    most_tasks: u64,
}

const FULL: Scale = Scale { smaller: 1, most_tasks: u64::MAX };

impl Scale {
    /// An experiment of this size, with the paper's policies.
    fn experiment(
        self,
        name: &'static str,
        place: &'static str,
        cluster: SimCluster,
        workload: SharedWorkload,
        placement: PlacementPolicy,
        measured: PaperResult,
    ) -> Experiment {
        Experiment {
            name,
            place,
            cluster: SimCluster { nodes: cluster.nodes.div_ceil(self.smaller), ..cluster },
            workload,
            policies: Policies::of_the_paper(placement),
            measured,
            cpu_hours: None,
            cause: "",
            is_changed: false,
            all_local_s: OnceLock::new(),
        }
    }

    /// The first tasks of a workload.
    fn first_tasks(self, workload: impl Workload + Send + Sync + 'static) -> SharedWorkload {
        Box::new(AdaptedWorkload::first_tasks(Box::new(workload), self.most_tasks))
    }
}

/// The cluster, whose nodes are requested from its batch system.
fn provisioned(cluster: SimCluster) -> SimCluster {
    SimCluster { batch: Some(Batch::of_the_paper()), ..cluster }
}

/// The experiments with arrivals that become more frequent.
fn monotonically_increasing(scale: Scale) -> Vec<Experiment> {
    let mi = |name, place, cache_bytes, placement, makespan_s, cpu_hours, cause| {
        let cluster = provisioned(SimCluster::teragrid_64(cache_bytes));
        let workload = scale.first_tasks(MonotonicallyIncreasing::paper(SEED));
        let makespan = Makespan(makespan_s);
        let mi = scale.experiment(name, place, cluster, workload, placement, makespan);
        Experiment { cpu_hours, cause, ..mi }
    };
    vec![
        mi("mi-fa", "figure 17", 1_000_000_000, Fa, 5011.0, None, ""),
        mi("mi-gcc-1gb", "figure 18", 1_000_000_000, Gcc, 3762.0, None, OLDEST),
        mi("mi-gcc-1.5gb", "figure 19", 1_500_000_000, Gcc, 1596.0, None, ""),
        mi("mi-gcc-2gb", "figure 20", 2_000_000_000, Gcc, 1436.0, Some(24.0), ""),
        mi("mi-gcc-4gb", "figure 21", 4_000_000_000, Gcc, 1427.0, Some(17.0), ""),
        mi("mi-mch-4gb", "figure 22", 4_000_000_000, Mch, 2888.0, None, DISK),
        mi("mi-mcu-4gb", "figure 23", 4_000_000_000, Mcu, 2037.0, None, OLDEST_OF_DISK),
    ]
}

/// The experiments with arrivals that follow a sine.
fn sine_wave(scale: Scale) -> Vec<Experiment> {
    let teragrid = || SimCluster::teragrid_100(TERAGRID_CACHE_BYTES);
    let sw = |name, place, cluster, placement, makespan_s, cpu_hours| {
        let workload = scale.first_tasks(SineWave::paper(SEED));
        let makespan = Makespan(makespan_s);
        let sw = scale.experiment(name, place, cluster, workload, placement, makespan);
        Experiment { cpu_hours: Some(cpu_hours), ..sw }
    };
    vec![
        sw("sw-fa", "figure 30", teragrid(), Fa, 20_491.0, 1138.0),
        sw("sw-gcc", "figure 31", teragrid(), Gcc, 6505.0, 361.0),
        sw("sw-gcc-drp", "figure 32", provisioned(teragrid()), Gcc, 6697.0, 253.0),
    ]
}

/// The experiments that compare all pairs of objects.
fn all_pairs(scale: Scale) -> Vec<Experiment> {
    let teragrid = || SimCluster::teragrid_100(TERAGRID_CACHE_BYTES);
    let (blue_gene_p, sicortex) = (SimCluster::blue_gene_p, SimCluster::sicortex);
    let ap = |name, place, cluster, pairs: AllPairs, placement, efficiency, cause| {
        let pairs = Box::new(AllPairs { side: pairs.side.div_ceil(scale.smaller), ..pairs });
        let efficiency = Efficiency(efficiency);
        let ap = scale.experiment(name, place, cluster, pairs, placement, efficiency);
        Experiment { cause, ..ap }
    };
    // The paper's best case has no decisions, so the faster dispatcher is used.
    let active = |name, cluster: SimCluster, pairs: AllPairs, efficiency, cause| {
        let cluster = SimCluster { cache_bytes: pairs.data_bytes(), ..cluster }.under_eyas();
        let mut active = ap(name, "section 5.3", cluster, pairs, Gcc, efficiency, cause);
        active.policies.distribution = Some(Distribution::SpanningTree);
        active
    };
    let small = |compute_us| AllPairs { compute_us, ..AllPairs::cluster(Order::Rows) };
    let rows = || AllPairs::supercomputer(Order::Rows);
    let tiles = || AllPairs::supercomputer(Order::Tiles(TILE));
    vec![
        ap("ap-500-fa", "section 5.3", teragrid(), small(1_000_000), Fa, 0.26, ""),
        ap("ap-500-1s", "figure 36", teragrid(), small(1_000_000), Gcc, 0.80, PAGES),
        ap("ap-500-0.1s", "figure 37", teragrid(), small(100_000), Gcc, 0.75, PAGES),
        active("ap-500-active", teragrid(), small(1_000_000), 0.96, ROUNDS),
        ap("ap-blue-gene-p", "figure 38", blue_gene_p(), rows(), Gcc, 0.86, ""),
        ap("ap-blue-gene-p-tiles", "figure 38", blue_gene_p(), tiles(), Gcc, 0.86, ROW_BY_ROW),
        active("ap-blue-gene-p-active", blue_gene_p(), rows(), 0.35, ""),
        ap("ap-sicortex", "figure 39", sicortex(), rows(), Gcc, 0.27, READ_MORE),
        ap("ap-sicortex-tiles", "figure 39", sicortex(), tiles(), Gcc, 0.27, ROW_BY_ROW),
        active("ap-sicortex-active", sicortex(), rows(), 0.27, ""),
    ]
}

impl Experiment {
    /// All experiments, in the paper's order.
    pub fn all() -> Vec<Experiment> {
        Experiment::all_at(FULL)
    }

    /// All experiments and variants, made `smaller` by this factor and with at most `most_tasks`
    /// tasks. They take seconds and do not reproduce the paper.
    pub(crate) fn small(smaller: u32, most_tasks: u64) -> Vec<Experiment> {
        let scale = Scale { smaller, most_tasks };
        Experiment::all_at(scale).into_iter().chain(Experiment::sensitivities_at(scale)).collect()
    }

    fn all_at(scale: Scale) -> Vec<Experiment> {
        let mut all = monotonically_increasing(scale);
        all.extend(sine_wave(scale));
        all.extend(all_pairs(scale));
        all
    }

    /// An experiment for the stamp alone. The paper's experiments, made smaller, do not show how
    /// tasks with two inputs are found: an executor holds parts of fewer tasks than it remembers,
    /// and all tasks are there before it holds anything. Here, tasks still come while an executor
    /// holds parts of thousands, and it remembers 256.
    pub(crate) fn guard() -> (SimCluster, Policies, AllPairs) {
        let teragrid = SimCluster::teragrid_100(50_000_000_000);
        let cluster = SimCluster { nodes: 16, page_cache_bytes: 0, ..teragrid };
        let pairs = AllPairs { side: 200, compute_us: 100_000, ..AllPairs::cluster(Order::Rows) };
        (cluster, Policies::of_the_paper(PlacementPolicy::GoodCacheCompute), pairs)
    }

    /// Variants of experiments that differ from the paper by more than 10 %, and of some others.
    /// Each changes one or two things that could cause the difference.
    pub fn sensitivities() -> Vec<Experiment> {
        Experiment::sensitivities_at(FULL)
    }

    fn sensitivities_at(scale: Scale) -> Vec<Experiment> {
        let changed = |of: &str, name, cause, change: fn(&mut Experiment)| {
            let all = Experiment::all_at(scale).into_iter();
            let mut experiment =
                all.into_iter().find(|other| other.name == of).expect("it is one of them");
            (experiment.name, experiment.cause, experiment.is_changed) = (name, cause, true);
            change(&mut experiment);
            experiment
        };
        let is_oldest = "the oldest task goes first at any utilisation, not a task whose input \
                         the executor holds";
        let (is_late, is_shallow) =
            ("the catalog learns of changes after 12 s", "a window of 100 tasks");
        vec![
            changed("mi-gcc-1gb", "mi-gcc-1gb-late", is_late, late),
            changed("mi-gcc-1gb", "mi-gcc-1gb-w100", is_shallow, shallow),
            changed("mi-gcc-1gb", "mi-gcc-1gb-oldest", is_oldest, oldest),
            changed("mi-gcc-1gb", "mi-gcc-1gb-oldest-late", "both `oldest` and `late`", |of| {
                oldest(of);
                late(of);
            }),
            changed("mi-gcc-1.5gb", "mi-gcc-1.5gb-oldest", is_oldest, oldest),
            changed("mi-gcc-2gb", "mi-gcc-2gb-oldest", is_oldest, oldest),
            changed("mi-gcc-4gb", "mi-gcc-4gb-oldest", is_oldest, oldest),
            changed("mi-mch-4gb", "mi-mch-4gb-late", is_late, late),
            changed("mi-mch-4gb", "mi-mch-4gb-w100", is_shallow, shallow),
            changed("mi-mch-4gb", "mi-mch-4gb-disk", "no page cache", pageless),
            changed("mi-mcu-4gb", "mi-mcu-4gb-late", is_late, late),
            changed("mi-mcu-4gb", "mi-mcu-4gb-w100", is_shallow, shallow),
            changed(
                "mi-mcu-4gb",
                "mi-mcu-4gb-oldest",
                "the oldest task goes first; no page cache",
                |of| {
                    oldest(of);
                    pageless(of);
                },
            ),
            changed("ap-500-1s", "ap-500-1s-disk", "no page cache", pageless),
            changed("ap-500-0.1s", "ap-500-0.1s-disk", "no page cache", pageless),
        ]
    }

    /// A description of the whole experiment, for a digest.
    fn described(&self) -> String {
        let Experiment {
            name, place, cluster, workload, policies, measured, cpu_hours, cause, ..
        } = self;
        let shape = (workload.tasks(), workload.objects(), workload.object_bytes());
        format!(
            "{name} {place} {cluster:?} {shape:?} {policies:?} {measured:?} {cpu_hours:?} {cause}"
        )
    }

    /// The distribution of its data, or else its placement policy.
    pub fn policy(&self) -> &'static str {
        self.policies.distribution.map_or(self.policies.placement.name(), Distribution::name)
    }

    /// Runs the experiment with the paper's policies.
    pub fn with_the_papers_policies(&self) -> RunOutcome {
        crate::run(&self.cluster, &self.policies, &*self.workload, SEED)
    }

    /// Runs the experiment with the dispatcher and policies of eyas and this placement. A push
    /// along a spanning tree becomes a push in chains.
    pub fn with_ours(&self, placement: PlacementPolicy) -> RunOutcome {
        let distribution = self.policies.distribution.map(|_| Distribution::Chain);
        let policies = Policies { distribution, ..Policies::of_eyas(placement) };
        crate::run(&self.cluster.under_eyas(), &policies, &*self.workload, SEED)
    }

    /// The quantity that the paper reports, of an outcome.
    pub fn measure(&self, outcome: &RunOutcome) -> f64 {
        match self.measured {
            Makespan(_) => outcome.makespan_s(),
            Efficiency(_) => self.all_local_s() / outcome.makespan_s(),
        }
    }

    /// Run time with all data local, in seconds.
    fn all_local_s(&self) -> f64 {
        *self.all_local_s.get_or_init(|| crate::all_local_s(&self.cluster, &*self.workload, SEED))
    }
}

fn late(of: &mut Experiment) {
    of.cluster.catalog_delay_ns = LATE;
}

fn shallow(of: &mut Experiment) {
    of.policies.window = Some(100);
}

fn pageless(of: &mut Experiment) {
    of.cluster.page_cache_bytes = 0;
}

/// GCC when it never sees enough processors busy to wait for holders: MCU as in the paper's figure
/// 5.
fn oldest(of: &mut Experiment) {
    (of.policies.placement, of.policies.hits_first) = (PlacementPolicy::MaxComputeUtil, false);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn sensitivities_differ_from_their_experiments_in_name_and_setup() {
        let names = |all: &[Experiment]| {
            all.iter().map(|experiment| experiment.name).collect::<BTreeSet<_>>()
        };
        let (all, changed) = (Experiment::all(), Experiment::sensitivities());
        assert_eq!(names(&all).union(&names(&changed)).count(), all.len() + changed.len());
        for experiment in &changed {
            let of = all
                .iter()
                .rev()
                .find(|of| experiment.name.starts_with(of.name))
                .expect("it is named after one");
            assert_eq!((experiment.measured, experiment.place), (of.measured, of.place));
            assert!(
                (&experiment.cluster, experiment.policies) != (&of.cluster, of.policies),
                "{}",
                experiment.name
            );
            assert!(experiment.is_changed && !of.is_changed && !experiment.cause.is_empty());
        }
    }

    #[test]
    fn causes_name_sensitivities_that_there_are() {
        let changed = Experiment::sensitivities();
        for Experiment { name, cause, .. } in Experiment::all() {
            let quoted = cause
                .split('`')
                .nth(1)
                .map(|kind| (format!("-{kind}"), cause.contains("--sensitivities")));
            let there_is = |kind: &str| {
                changed.iter().any(|of| of.name.starts_with(name) && of.name.ends_with(kind))
            };
            assert!(
                quoted.is_none_or(|(kind, is_named)| is_named && there_is(&kind)),
                "{name}: {cause}"
            );
        }
    }
}
