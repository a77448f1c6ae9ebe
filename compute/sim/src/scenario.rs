//! Scenarios: a user's own cluster, workload and policies in a TOML file
//! (`docs/guides/simulation.md`).
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
//! Errors name the line. A scenario that can never end is refused before it runs, as far as that is
//! known beforehand. Every run ends at its scenario's `limit`.

use std::ops::ControlFlow;
use std::path::Path;

use eyas_types::mistake::{line_at, plainly};
use serde::Deserialize;

use crate::bound::Needs;
use crate::clock::{MICROSECOND, Ns};
use crate::cluster::{Policies, SimCluster};
use crate::file::FileError;
use crate::outcome::RunOutcome;

mod amount;
mod cluster;
mod impossible;
mod job;
mod mistake;
mod nodes;
mod workload;

use amount::Time;
use cluster::{ClusterFields, PolicyFields};
use job::JobFields;
use nodes::{FailureFields, ProvisioningFields};
use workload::{MistakeAt, WorkloadFields};

pub use impossible::ImpossibleRun;
pub use mistake::ScenarioMistake;

pub use crate::workload::SharedWorkload;

/// Default limit of a run: 30 days of simulated time.
const LIMIT_US: u64 = 30 * 86_400 * 1_000_000;

/// A cluster, a workload and the policies to simulate.
pub struct Scenario {
    /// Name of the scenario.
    pub name: String,
    /// The cluster.
    pub cluster: SimCluster,
    /// The workload.
    pub workload: SharedWorkload,
    /// The policies of the deciders.
    pub policies: Policies,
    /// What the workload needs under any placement.
    pub needs: Needs,
    /// Seed of all random numbers.
    pub seed: u64,
    /// The run is stopped at this time, in microseconds of simulated time.
    pub limit_us: u64,
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

/// The bytes of a scenario's file at which its sections, and some of its fields, begin.
struct Places {
    cache: usize,
    dispatchers: usize,
    workload: usize,
    job: usize,
    policies: usize,
    provisioning: usize,
    failures: usize,
}

impl Places {
    /// A field that is not there is taken to be where its section begins, and a section that is not
    /// there, where the file begins.
    fn of(fields: &ScenarioFields) -> Places {
        let ScenarioFields { cluster, workload, job, policies, provisioning, failures, .. } =
            fields;
        let cluster_at = start_of(cluster.as_ref(), 0);
        let cluster = cluster.as_ref().map(toml::Spanned::get_ref);
        let cache = cluster.and_then(|cluster| cluster.cache.as_ref());
        let dispatchers = cluster.and_then(|cluster| cluster.dispatchers.as_ref());
        Places {
            cache: start_of(cache, cluster_at),
            dispatchers: start_of(dispatchers, cluster_at),
            workload: workload.span().start,
            job: start_of(job.as_ref(), 0),
            policies: start_of(policies.as_ref(), 0),
            provisioning: start_of(provisioning.as_ref(), 0),
            failures: start_of(failures.as_ref(), 0),
        }
    }

    /// The place of the field or section that makes a run impossible.
    fn of_reason(&self, impossible: &ImpossibleRun) -> usize {
        match impossible {
            ImpossibleRun::CacheTooSmall { .. } | ImpossibleRun::CacheTooSmallForAll { .. } => {
                self.cache
            }
            ImpossibleRun::PushWithProvisioning | ImpossibleRun::OutOfTime { .. } => {
                self.provisioning
            }
            ImpossibleRun::PushUnderFirstAvailable => self.policies,
            ImpossibleRun::NoNodes { .. } | ImpossibleRun::ProvisionedDispatchers(_) => {
                self.dispatchers
            }
            ImpossibleRun::KeptUnderFirstAvailable | ImpossibleRun::StagesWithDispatchers(_) => {
                self.job
            }
            ImpossibleRun::RestartWithProvisioning => self.failures,
            ImpossibleRun::TooLong { .. } => self.workload,
        }
    }
}

fn start_of<T>(part: Option<&toml::Spanned<T>>, otherwise: usize) -> usize {
    part.map_or(otherwise, |part| part.span().start)
}

impl Scenario {
    /// Reads a scenario file. Relative paths in it start from its folder.
    ///
    /// # Errors
    /// If the file cannot be read, or a line of it is wrong.
    pub fn read(path: &Path) -> Result<Scenario, FileError<ScenarioMistake>> {
        let text = std::fs::read_to_string(path).map_err(|e| FileError::unreadable(path, e))?;
        let stem = path.file_stem().map_or("scenario".into(), |stem| stem.to_string_lossy());
        let folder = path.parent().unwrap_or(Path::new(""));
        Scenario::parse(&text, &stem, folder).map_err(|wrong| FileError::wrong(path, wrong))
    }

    /// Reads the text of a scenario. `name` is its name if it does not have one. Relative paths in
    /// it start from `folder`.
    ///
    /// # Errors
    /// The first mistake, with its line.
    pub fn parse(
        text: &str,
        name: &str,
        folder: &Path,
    ) -> Result<Scenario, (usize, ScenarioMistake)> {
        let line_of = |offset: usize| line_at(text, offset);
        let fields: ScenarioFields = toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(1, |span| line_of(span.start));
            (line, ScenarioMistake::Syntax(plainly(e.message())))
        })?;
        let places = Places::of(&fields);
        let ScenarioFields {
            name: own_name,
            seed,
            limit,
            cluster,
            workload,
            job,
            policies,
            provisioning,
            failures,
        } = fields;
        let mut cluster = cluster.map(toml::Spanned::into_inner).unwrap_or_default().cluster();
        if let Some(fields) = provisioning {
            let batch = fields.get_ref().batch(&cluster);
            cluster.batch = Some(batch.map_err(|why| (line_of(places.provisioning), why))?);
        }
        if let Some(fields) = failures {
            let failures = fields.get_ref().failures(&cluster);
            cluster.failures = failures.map_err(|why| (line_of(places.failures), why))?;
        }
        let workload = workload.into_inner().workload(seed, folder);
        let in_workload = |(at, why): MistakeAt| (line_of(at.unwrap_or(places.workload)), why);
        let mut workload = workload.map_err(in_workload)?;
        if let Some(job) = job {
            let in_job = |(at, why): MistakeAt| (line_of(at.unwrap_or(places.job)), why);
            workload = job.into_inner().job(workload).map_err(in_job)?;
        }
        let policies =
            policies.map_or(PolicyFields::default(), toml::Spanned::into_inner).policies();
        let scenario = Scenario {
            name: own_name.unwrap_or_else(|| name.to_owned()),
            cluster,
            needs: Needs::of(&*workload),
            workload,
            policies,
            seed,
            limit_us: limit.map_or(LIMIT_US, |limit| limit.0),
        };
        scenario
            .check(&scenario.cluster, &scenario.policies)
            .map_err(|impossible| (line_of(places.of_reason(&impossible)), impossible.into()))?;
        Ok(scenario)
    }

    /// Checks that the workload can end on a cluster under these policies, as far as that is known
    /// beforehand.
    ///
    /// # Errors
    /// If it cannot end.
    pub fn check(&self, cluster: &SimCluster, policies: &Policies) -> Result<(), ImpossibleRun> {
        let (cache_bytes, inputs_bytes) = (cluster.cache_bytes, self.needs.inputs_bytes);
        if inputs_bytes > cache_bytes {
            return Err(ImpossibleRun::CacheTooSmall { cache_bytes, inputs_bytes });
        }
        let SimCluster { dispatchers, nodes, .. } = *cluster;
        if dispatchers > nodes {
            return Err(ImpossibleRun::NoNodes { dispatchers, nodes });
        }
        if dispatchers > 1 && cluster.batch.is_some() {
            return Err(ImpossibleRun::ProvisionedDispatchers(dispatchers));
        }
        if self.needs.keeps && !policies.caches() {
            return Err(ImpossibleRun::KeptUnderFirstAvailable);
        }
        if self.needs.is_staged && dispatchers > 1 {
            return Err(ImpossibleRun::StagesWithDispatchers(dispatchers));
        }
        let dies = cluster.failures.dispatcher_dies_after_ns.is_some();
        if dies && (cluster.batch.is_some() || policies.distribution.is_some()) {
            return Err(ImpossibleRun::RestartWithProvisioning);
        }
        if policies.distribution.is_some() {
            let data_bytes = self.workload.data_bytes();
            if !policies.caches() {
                return Err(ImpossibleRun::PushUnderFirstAvailable);
            }
            if cluster.batch.is_some() {
                return Err(ImpossibleRun::PushWithProvisioning);
            }
            if data_bytes > cache_bytes {
                return Err(ImpossibleRun::CacheTooSmallForAll { cache_bytes, data_bytes });
            }
        }
        let (task_us, walltime_ns) =
            (self.needs.longest_us, cluster.batch.as_ref().map(|batch| batch.walltime_ns));
        if let Some(walltime_us) =
            walltime_ns.map(|ns| ns / MICROSECOND).filter(|walltime_us| task_us >= *walltime_us)
        {
            return Err(ImpossibleRun::OutOfTime { task_us, walltime_us });
        }
        let limit_us = self.limit_us;
        let too_long =
            self.needs.least(cluster).into_iter().find(|(_, least_ns)| *least_ns > self.limit_ns());
        too_long.map_or(Ok(()), |(what, least_ns)| {
            Err(ImpossibleRun::TooLong { what, least_us: least_ns / MICROSECOND, limit_us })
        })
    }

    /// Runs the workload on a cluster until its end or the limit. `watch` is called regularly with
    /// the outcome so far, and may stop the run.
    pub fn run(
        &self,
        cluster: &SimCluster,
        policies: &Policies,
        watch: &mut dyn FnMut(&RunOutcome) -> ControlFlow<()>,
    ) -> RunOutcome {
        crate::run_watched(cluster, policies, &*self.workload, self.seed, self.limit_ns(), watch)
    }

    /// The limit of a run, in nanoseconds.
    pub fn limit_ns(&self) -> Ns {
        self.limit_us * MICROSECOND
    }
}

#[cfg(test)]
mod tests;
