//! The experiments of the data diffusion paper, and what came of them there (section 5, figures 16 to 40, table 2).

use std::sync::OnceLock;

use eyas_types::PlacementPolicy;

use crate::cluster::{Cluster, Policies};
use crate::nodes::Batch;
use crate::outcome::Outcome;
use crate::workload::{AllPairs, MonotonicallyIncreasing, Order, SineWave, Workload};

/// Which tasks read which objects does not matter; those of this seed.
const SEED: u64 = 1;

/// One of the paper's experiments.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Where it is in the paper.
    pub place: &'static str,
    /// What it ran on.
    pub cluster: Cluster,
    /// What it ran.
    pub workload: Box<dyn Workload + Sync>,
    /// Its placement policy.
    pub placement: PlacementPolicy,
    /// What was measured.
    pub measured: Measured,
    /// Processor hours of nodes while they were there, if it says so.
    pub cpu_hours: Option<f64>,
    all_local_s: OnceLock<f64>,
}

/// What the paper says of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measured {
    /// Seconds from the first arrival to the last end.
    Makespan(f64),
    /// The part of that which it would take if all data were local.
    Efficiency(f64),
}

impl Experiment {
    /// All of them, in the paper's order.
    pub fn all() -> Vec<Experiment> {
        use PlacementPolicy::{
            FirstAvailable as Fa, GoodCacheCompute as Gcc, MaxCacheHit as Mch, MaxComputeUtil as Mcu,
        };
        let provisioned = |cluster| Cluster { batch: Some(Batch::of_the_paper()), ..cluster };
        let mi = |name, place, cache_bytes, placement, makespan_s, cpu_hours| Experiment {
            name,
            place,
            cluster: provisioned(Cluster::teragrid_64(cache_bytes)),
            workload: Box::new(MonotonicallyIncreasing::paper(SEED)),
            placement,
            measured: Measured::Makespan(makespan_s),
            cpu_hours,
            all_local_s: OnceLock::new(),
        };
        let teragrid = || Cluster::teragrid_100(50_000_000_000);
        let sw = |name, place, cluster, placement, makespan_s, cpu_hours| Experiment {
            name,
            place,
            cluster,
            workload: Box::new(SineWave::paper(SEED)),
            placement,
            measured: Measured::Makespan(makespan_s),
            cpu_hours: Some(cpu_hours),
            all_local_s: OnceLock::new(),
        };
        let ap = |name, place, cluster, workload, placement, efficiency| Experiment {
            name,
            place,
            cluster,
            workload: Box::new(workload),
            placement,
            measured: Measured::Efficiency(efficiency),
            cpu_hours: None,
            all_local_s: OnceLock::new(),
        };
        let small = |compute_us| AllPairs { compute_us, ..AllPairs::cluster(Order::Rows) };
        let large = || AllPairs::supercomputer(Order::Rows);
        vec![
            mi("mi-fa", "figure 17", 1_000_000_000, Fa, 5011.0, None),
            mi("mi-gcc-1gb", "figure 18", 1_000_000_000, Gcc, 3762.0, None),
            mi("mi-gcc-1.5gb", "figure 19", 1_500_000_000, Gcc, 1596.0, None),
            mi("mi-gcc-2gb", "figure 20", 2_000_000_000, Gcc, 1436.0, Some(24.0)),
            mi("mi-gcc-4gb", "figure 21", 4_000_000_000, Gcc, 1427.0, Some(17.0)),
            mi("mi-mch-4gb", "figure 22", 4_000_000_000, Mch, 2888.0, None),
            mi("mi-mcu-4gb", "figure 23", 4_000_000_000, Mcu, 2037.0, None),
            sw("sw-fa", "figure 30", teragrid(), Fa, 20_491.0, 1138.0),
            sw("sw-gcc", "figure 31", teragrid(), Gcc, 6505.0, 361.0),
            sw("sw-gcc-drp", "figure 32", provisioned(teragrid()), Gcc, 6697.0, 253.0),
            ap("ap-500-fa", "section 5.3", teragrid(), small(1_000_000), Fa, 0.26),
            ap("ap-500-1s", "figure 36", teragrid(), small(1_000_000), Gcc, 0.80),
            ap("ap-500-0.1s", "figure 37", teragrid(), small(100_000), Gcc, 0.75),
            ap("ap-blue-gene-p", "figure 38", Cluster::blue_gene_p(), large(), Gcc, 0.86),
            ap("ap-sicortex", "figure 39", Cluster::sicortex(), large(), Gcc, 0.27),
        ]
    }

    /// The same with the paper's policies.
    pub fn with_the_papers_policies(&self) -> Outcome {
        crate::run(&self.cluster, &Policies::of_the_paper(self.placement), &*self.workload, SEED)
    }

    /// The same with eyas's dispatcher, what it does beside, and that placement.
    pub fn with_ours(&self, placement: PlacementPolicy) -> Outcome {
        crate::run(&self.cluster.under_eyas(), &Policies::of_eyas(placement), &*self.workload, SEED)
    }

    /// What was measured in the paper, of an outcome.
    pub fn measure(&self, outcome: &Outcome) -> f64 {
        match self.measured {
            Measured::Makespan(_) => outcome.makespan_s(),
            Measured::Efficiency(_) => self.all_local_s() / outcome.makespan_s(),
        }
    }

    /// How long it takes if all data are local.
    fn all_local_s(&self) -> f64 {
        *self.all_local_s.get_or_init(|| crate::all_local_s(&self.cluster, &*self.workload))
    }
}
