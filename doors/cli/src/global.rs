//! Options that several commands share: the cluster, the format of answers, reconnection to the
//! dispatcher, and the id of a job.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use eyas_client::types::id::IdError;
use eyas_client::types::{JobId, units};
use eyas_client::{Cluster, ClusterError, DEFAULT_CLUSTER};
use thiserror::Error;

/// Options of every command.
#[derive(Args)]
pub(crate) struct GlobalArgs {
    /// Use the cluster with this name [default: $EYAS_CLUSTER, else `default`; if none is named and
    /// `default` does not run, `eyas run` starts a temporary one]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    pub cluster: Option<String>,
    /// Use the cluster of this access file [default: $EYAS_ACCESS]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        conflicts_with = "cluster",
        help_heading = "Global options"
    )]
    pub access: Option<PathBuf>,
    /// Print the answer as JSON with a `schema_version`; output of tasks and programs is printed
    /// unchanged
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
}

impl GlobalArgs {
    /// The selected cluster.
    pub fn cluster(&self) -> Result<Cluster, ClusterError> {
        match (&self.access, &self.cluster) {
            (Some(access), _) => Ok(Cluster::with_access(access)),
            (None, Some(name)) => Cluster::named(name),
            (None, None) => Cluster::implied(),
        }
    }

    /// Whether a cluster was named, on the command line or in the environment.
    pub fn names_cluster(&self) -> bool {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        self.access.is_some()
            || self.cluster.is_some()
            || is_set("EYAS_ACCESS")
            || is_set("EYAS_CLUSTER")
    }

    /// The name of the selected cluster.
    pub fn cluster_name(&self) -> String {
        let implied = || std::env::var("EYAS_CLUSTER").ok().filter(|name| !name.is_empty());
        self.cluster.clone().or_else(implied).unwrap_or_else(|| DEFAULT_CLUSTER.into())
    }

    /// The option of this command line that selects the cluster, with a space before it, for
    /// commands in messages; empty if there is none.
    pub fn named_option(&self) -> String {
        match (&self.access, &self.cluster) {
            (None, None) => String::new(),
            _ => format!(" {}", self.cluster_option()),
        }
    }

    /// The option that selects this cluster, for messages.
    pub fn cluster_option(&self) -> String {
        match &self.access {
            Some(access) => format!("--access {}", access.display()),
            None => format!("--cluster {}", self.cluster_name()),
        }
    }
}

/// Reconnection of commands that wait for the dispatcher.
#[derive(Args, Clone, Copy)]
pub(crate) struct ReconnectArgs {
    /// Keep reconnecting to a lost dispatcher for this long
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10min",
        value_parser = units::parse_duration_us
    )]
    reconnect: u64,
}

impl ReconnectArgs {
    /// Time during which the command tries to reconnect.
    pub fn patience(self) -> Duration {
        Duration::from_micros(self.reconnect)
    }
}

/// A job by its id, or the job that was submitted last.
#[derive(Clone, Copy)]
pub(crate) enum WhichJob {
    Id(JobId),
    Last,
}

/// A task of a job.
#[derive(Clone, Copy)]
pub(crate) struct WhichTask {
    pub job: WhichJob,
    pub index: u32,
}

/// Neither the id of a task nor a task of the job that was submitted last.
#[derive(Debug, Error)]
#[error("{0}, or last.17 for a task of the job that was submitted last")]
pub(crate) struct WhichTaskError(#[from] IdError);

impl FromStr for WhichTask {
    type Err = WhichTaskError;

    fn from_str(text: &str) -> Result<Self, WhichTaskError> {
        let wrong = || IdError::Task(text.into());
        let (job, index) = text.split_once('.').ok_or_else(wrong)?;
        Ok(WhichTask {
            job: job.parse().map_err(|_| wrong())?,
            index: index.parse().map_err(|_| wrong())?,
        })
    }
}

/// Neither the id of a job nor `last`.
#[derive(Debug, Error)]
#[error("{0}; `last` is the job that was submitted last")]
pub(crate) struct WhichJobError(#[from] IdError);

impl FromStr for WhichJob {
    type Err = WhichJobError;

    fn from_str(text: &str) -> Result<Self, WhichJobError> {
        match text {
            "last" => Ok(WhichJob::Last),
            id => Ok(WhichJob::Id(id.parse()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_messages_name_the_cluster_that_this_one_names() {
        let global = |cluster: Option<&str>, access: Option<&str>| GlobalArgs {
            cluster: cluster.map(str::to_owned),
            access: access.map(PathBuf::from),
            json: false,
        };
        assert_eq!(global(None, None).named_option(), "");
        assert_eq!(global(Some("sky"), None).named_option(), " --cluster sky");
        assert_eq!(global(None, Some("a.toml")).named_option(), " --access a.toml");
    }

    #[test]
    fn last_is_understood_wherever_a_job_is_named() {
        assert!(matches!("last".parse(), Ok(WhichJob::Last)));
        assert!(matches!("7".parse(), Ok(WhichJob::Id(JobId(7)))));
        assert!(matches!("last.2".parse(), Ok(WhichTask { job: WhichJob::Last, index: 2 })));
        assert!(matches!("7.2".parse(), Ok(WhichTask { job: WhichJob::Id(JobId(7)), index: 2 })));
        for wrong in ["7", "last", "last.", "0.1", "x.1", "7.-1"] {
            let said = wrong.parse::<WhichTask>().err().expect("it is wrong").to_string();
            assert!(said.contains("write JOB.INDEX") && said.contains("or last.17"), "{said}");
        }
    }
}
