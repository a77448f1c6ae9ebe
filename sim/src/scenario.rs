//! Scenarios: a user's own cluster, workload and policies, in a TOML file (`docs/guides/simulation.md`).
//!
//! ```toml
//! name = "survey"
//! seed = 1
//!
//! [cluster]
//! like = "teragrid-64"
//! nodes = 32
//! cache = "2 GB"
//!
//! [workload.zipf]
//! objects = 1_000
//! size = "10 MB"
//! tasks = 20_000
//! interval = "2 ms"
//! compute = "10 ms"
//!
//! [policies]
//! placement = "cost"
//! ```
//!
//! What is wrong in it is told with its line. What could never end is refused before it begins, as far as that is known
//! then; every run ends at its scenario's `limit`.

use std::ops::ControlFlow;
use std::path::Path;

use eyas_types::units::{format_bytes, format_duration_us};
use serde::Deserialize;
use thiserror::Error;

use crate::bound::Needs;
use crate::clock::{MICROSECOND, Ns};
use crate::cluster::{Cluster, Policies};
use crate::file::FileError;
use crate::outcome::Outcome;

mod amount;
mod cluster;
mod job;
mod nodes;
mod workload;

use amount::Time;
use cluster::{ClusterFields, PolicyFields};
use job::JobFields;
use nodes::{FailureFields, ProvisioningFields};
use workload::WorkloadFields;

pub use crate::workload::SharedWorkload;

/// Where a run ends if its scenario says nothing else: 30 days of its own time.
const LIMIT_US: u64 = 30 * 86_400 * 1_000_000;

/// What is simulated.
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it runs on.
    pub cluster: Cluster,
    /// What it runs.
    pub workload: SharedWorkload,
    /// How it is decided.
    pub policies: Policies,
    /// What the workload needs.
    pub needs: Needs,
    /// Of all dice.
    pub seed: u64,
    /// A run that has not ended by then is broken off, microseconds of its own time.
    pub limit_us: u64,
}

/// Why a workload cannot end on a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Hopeless {
    /// No store has room for what a task reads.
    #[error("a store of {} has no room for the inputs of a task, {}: make `cache` larger", format_bytes(*.cache_bytes), format_bytes(*.inputs_bytes))]
    CacheTooSmall {
        /// Bytes of each store.
        cache_bytes: u64,
        /// Bytes of the inputs of the task that reads the most.
        inputs_bytes: u64,
    },
    /// A dispatcher has no part of the nodes.
    #[error("{dispatchers} dispatchers for {nodes} nodes: each needs one at least")]
    NoNodes {
        /// How many dispatchers there are.
        dispatchers: u32,
        /// How many nodes.
        nodes: u32,
    },
    /// Nodes come as all dispatchers together need them, not each.
    #[error("{0} dispatchers: nodes are asked for on behalf of one alone")]
    Provisioned(u32),
    /// No store has room for all that is pushed to it.
    #[error("a store of {} has no room for all objects, {}, which `distribution` pushes to each: make `cache` larger", format_bytes(*.cache_bytes), format_bytes(*.data_bytes))]
    CacheTooSmallForAll {
        /// Bytes of each store.
        cache_bytes: u64,
        /// Bytes of all objects.
        data_bytes: u64,
    },
    /// Objects are pushed to those who are there at the beginning.
    #[error("`distribution` pushes to the nodes that are there at the beginning; with [provisioning] there are none")]
    PushedToNobody,
    /// Nodes keep nothing of what is pushed to them.
    #[error(
        "`distribution` pushes into stores, and under `fa` nodes keep nothing: leave it out, or choose another `placement`"
    )]
    KeptByNobody,
    /// Nodes keep nothing, and outputs are to be kept.
    #[error(
        "`kept` has nodes keep outputs, and under `fa` nodes keep nothing: leave it out, or choose another `placement`"
    )]
    KeptUnderFirstAvailable,
    /// A task reads what a task of another dispatcher writes.
    #[error("`stages` has tasks read what others write, which {0} dispatchers would not know of each other: use one")]
    StagesOfSeveral(u32),
    /// What the dispatcher has asked for or pushed is not in its journal.
    #[error("`dispatcher_dies_after` cannot be simulated with [provisioning] or `distribution`: leave one of them out")]
    RestartedWithNodes,
    /// A node is there for less time than a task takes.
    #[error(
        "a task computes for {}, a node is there for {} only: make `walltime` longer, or no such task ever ends",
        format_duration_us(*.task_us), format_duration_us(*.walltime_us)
    )]
    OutOfTime {
        /// What the longest task computes.
        task_us: u64,
        /// For how long a node is there.
        walltime_us: u64,
    },
    /// It takes longer than it may.
    #[error("{what} takes at least {}, the run is broken off after {}: make `limit` longer", format_duration_us(*.least_us), format_duration_us(*.limit_us))]
    TooLong {
        /// What takes so long.
        what: &'static str,
        /// How long, if nothing stands in its way.
        least_us: u64,
        /// How long it may take.
        limit_us: u64,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFields {
    name: Option<String>,
    #[serde(default = "first")]
    seed: u64,
    limit: Option<Time>,
    #[serde(default)]
    cluster: Option<toml::Spanned<ClusterFields>>,
    workload: toml::Spanned<WorkloadFields>,
    job: Option<toml::Spanned<JobFields>>,
    policies: Option<toml::Spanned<PolicyFields>>,
    provisioning: Option<toml::Spanned<ProvisioningFields>>,
    failures: Option<toml::Spanned<FailureFields>>,
}

fn first() -> u64 {
    1
}

impl Scenario {
    /// Reads a scenario file. Files that it names are looked for in its folder.
    ///
    /// # Errors
    /// Why it cannot be read, or what is wrong and in which line.
    pub fn read(path: &Path) -> Result<Scenario, FileError> {
        let text = std::fs::read_to_string(path).map_err(|e| FileError::unreadable(path, e))?;
        let stem = path.file_stem().map_or("scenario".into(), |stem| stem.to_string_lossy());
        let folder = path.parent().unwrap_or(Path::new(""));
        Scenario::parse(&text, &stem, folder).map_err(|wrong| FileError::wrong(path, wrong))
    }

    /// Reads the text of a scenario, which has that `name` if it does not say another. Files that it names are looked for in
    /// `folder`.
    ///
    /// # Errors
    /// In which line what is wrong.
    pub fn parse(text: &str, name: &str, folder: &Path) -> Result<Scenario, (usize, String)> {
        let line_of = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
        let fields: ScenarioFields = toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(1, |span| line_of(span.start));
            (line, e.message().to_owned())
        })?;
        let ScenarioFields { name: own_name, seed, limit, cluster, workload, job, policies, provisioning, failures } =
            fields;
        let (cluster_at, cluster) = match cluster {
            Some(cluster) => (cluster.span().start, cluster.into_inner()),
            None => (0, ClusterFields::default()),
        };
        let cache_at = cluster.cache.as_ref().map_or(cluster_at, |cache| cache.span().start);
        let dispatchers_at = cluster.dispatchers.as_ref().map_or(cluster_at, |dispatchers| dispatchers.span().start);
        let mut cluster = cluster.cluster();
        let provisioning_at = provisioning.as_ref().map_or(0, |fields| fields.span().start);
        if let Some(fields) = provisioning {
            let batch = fields.get_ref().batch(&cluster).map_err(|why| (line_of(fields.span().start), why))?;
            cluster.batch = Some(batch);
        }
        let failures_at = failures.as_ref().map_or(0, |fields| fields.span().start);
        if let Some(fields) = failures {
            cluster.failures =
                fields.get_ref().failures(&cluster).map_err(|why| (line_of(fields.span().start), why))?;
        }
        let workload_at = workload.span().start;
        let workload = workload.into_inner().workload(seed, folder);
        let workload = workload.map_err(|(at, why)| (line_of(at.unwrap_or(workload_at)), why))?;
        let job_at = job.as_ref().map_or(0, |fields| fields.span().start);
        let workload = match job {
            Some(job) => job.into_inner().job(workload).map_err(|(at, why)| (line_of(at.unwrap_or(job_at)), why))?,
            None => workload,
        };
        let policies_at = policies.as_ref().map_or(0, |fields| fields.span().start);
        let policies = policies.map_or(PolicyFields::default(), toml::Spanned::into_inner).policies();
        let scenario = Scenario {
            name: own_name.unwrap_or_else(|| name.to_owned()),
            cluster,
            needs: Needs::of(&*workload),
            workload,
            policies,
            seed,
            limit_us: limit.map_or(LIMIT_US, |limit| limit.0),
        };
        scenario.check(&scenario.cluster, &scenario.policies).map_err(|hopeless| {
            let at = match hopeless {
                Hopeless::CacheTooSmall { .. } | Hopeless::CacheTooSmallForAll { .. } => cache_at,
                Hopeless::PushedToNobody | Hopeless::OutOfTime { .. } => provisioning_at,
                Hopeless::KeptByNobody => policies_at,
                Hopeless::NoNodes { .. } | Hopeless::Provisioned(_) => dispatchers_at,
                Hopeless::KeptUnderFirstAvailable | Hopeless::StagesOfSeveral(_) => job_at,
                Hopeless::RestartedWithNodes => failures_at,
                Hopeless::TooLong { .. } => workload_at,
            };
            (line_of(at), hopeless.to_string())
        })?;
        Ok(scenario)
    }

    /// Whether its workload can end on that cluster under those policies, as far as that is known beforehand.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(&self, cluster: &Cluster, policies: &Policies) -> Result<(), Hopeless> {
        let (cache_bytes, inputs_bytes) = (cluster.cache_bytes, self.needs.inputs_bytes);
        if inputs_bytes > cache_bytes {
            return Err(Hopeless::CacheTooSmall { cache_bytes, inputs_bytes });
        }
        let Cluster { dispatchers, nodes, .. } = *cluster;
        if dispatchers > nodes {
            return Err(Hopeless::NoNodes { dispatchers, nodes });
        }
        if dispatchers > 1 && cluster.batch.is_some() {
            return Err(Hopeless::Provisioned(dispatchers));
        }
        if self.needs.keeps && !policies.caches() {
            return Err(Hopeless::KeptUnderFirstAvailable);
        }
        if self.needs.is_staged && dispatchers > 1 {
            return Err(Hopeless::StagesOfSeveral(dispatchers));
        }
        let dies = cluster.failures.dispatcher_dies_after_ns.is_some();
        if dies && (cluster.batch.is_some() || policies.distribution.is_some()) {
            return Err(Hopeless::RestartedWithNodes);
        }
        if policies.distribution.is_some() {
            let data_bytes = self.workload.data_bytes();
            if !policies.caches() {
                return Err(Hopeless::KeptByNobody);
            }
            if cluster.batch.is_some() {
                return Err(Hopeless::PushedToNobody);
            }
            if data_bytes > cache_bytes {
                return Err(Hopeless::CacheTooSmallForAll { cache_bytes, data_bytes });
            }
        }
        let (task_us, walltime_ns) = (self.needs.longest_us, cluster.batch.as_ref().map(|batch| batch.walltime_ns));
        if let Some(walltime_us) = walltime_ns.map(|ns| ns / MICROSECOND).filter(|walltime_us| task_us >= *walltime_us)
        {
            return Err(Hopeless::OutOfTime { task_us, walltime_us });
        }
        let limit_us = self.limit_us;
        let too_long = self.needs.least(cluster).into_iter().find(|(_, least_ns)| *least_ns > self.limit_ns());
        too_long.map_or(Ok(()), |(what, least_ns)| {
            Err(Hopeless::TooLong { what, least_us: least_ns / MICROSECOND, limit_us })
        })
    }

    /// Runs its workload on a cluster, to its end or to the limit; `watch` is told what has come of it so far, and may break
    /// it off.
    pub fn run(
        &self,
        cluster: &Cluster,
        policies: &Policies,
        watch: &mut dyn FnMut(&Outcome) -> ControlFlow<()>,
    ) -> Outcome {
        crate::run_watched(cluster, policies, &*self.workload, self.seed, self.limit_ns(), watch)
    }

    /// Where a run is broken off.
    pub fn limit_ns(&self) -> Ns {
        self.limit_us * MICROSECOND
    }
}

#[cfg(test)]
mod tests;
