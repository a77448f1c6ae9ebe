//! Batch systems: how nodes are requested from each. Adding one touches its own file and
//! [`SYSTEMS`].

mod htcondor;
pub(crate) mod kubernetes;
mod local;
mod pbs;
mod sge;
mod slurm;
mod ssh;

use std::sync::Arc;

use eyas_wire::pool::PoolOptions;

use crate::batch_error::BatchError;
use crate::batch_system::BatchSystem;

/// Makes a batch system for one pool.
type SystemMaker = fn(&PoolOptions) -> Arc<dyn BatchSystem>;

/// The only batch system with options of its own.
const KUBERNETES: &str = "kubernetes";

/// Every batch system, in the order in which help lists them.
const SYSTEMS: &[(&str, SystemMaker)] = &[
    ("slurm", |_| Arc::new(slurm::Slurm)),
    ("sge", |_| Arc::new(sge::GridEngine)),
    ("pbs", |_| Arc::new(pbs::Pbs::default())),
    ("htcondor", |_| Arc::new(htcondor::HtCondor)),
    (KUBERNETES, |options| Arc::new(kubernetes::Kubernetes::new(options))),
    ("ssh", |_| Arc::new(ssh::Ssh::default())),
    ("local", |_| Arc::new(local::LocalSystem)),
];

/// The names of all batch systems.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SYSTEMS.iter().map(|(name, _)| *name)
}

/// The batch system of a pool with these options.
pub(crate) fn of(options: &PoolOptions) -> Option<Arc<dyn BatchSystem>> {
    SYSTEMS.iter().find(|(known, _)| *known == options.system).map(|(_, make)| make(options))
}

/// Checks the options of a new pool that not all batch systems have, and completes them.
pub(crate) fn settle(options: &mut PoolOptions) -> Result<(), BatchError> {
    if options.system == KUBERNETES {
        return Ok(kubernetes::settle(options)?);
    }
    match options.kubernetes {
        Some(_) => Err(BatchError::ForeignOptions { system: options.system.clone() }),
        None => Ok(()),
    }
}
