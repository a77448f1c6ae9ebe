//! The options of a pool, for `eyas pool add` and `eyas run --pool`.

use std::path::{Path, PathBuf};

use clap::{Args, Parser};
use eyas_client::types::{ProvisioningPolicy, units};
use eyas_wire::pool::{KubernetesOptions, PoolOptions};

use crate::error::{CliError, ValueError};
use crate::node_args::{labels, named_amounts, parse_amount, parse_label};

/// The options of a pool.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Pool")]
pub(crate) struct PoolArgs {
    /// Time for which each node is requested; tasks that run then go back to the queue [default:
    /// 1h]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration_us)]
    time_limit: Option<u64>,
    /// Maximum number of requests that wait in the batch system [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    backlog: Option<u32>,
    /// Maximum number of nodes of one request; large requests usually wait longer [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes_per_request: Option<u32>,
    /// Number of nodes that are kept even without tasks [default: 0]
    #[arg(long, value_name = "N")]
    min_nodes: Option<u32>,
    /// Maximum number of nodes [default: 10]
    #[arg(long, value_name = "N")]
    max_nodes: Option<u32>,
    /// Give back a node after this time without tasks [default: 5min]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration_us)]
    idle_timeout: Option<u64>,
    /// Keep a node without tasks for up to this much longer than --idle-timeout, while it would
    /// take as long to fetch again what only this node holds and tasks are going to read [default:
    /// 10min]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration_us)]
    keep_data: Option<u64>,
    /// Policy that decides how many nodes are requested: one-at-a-time, additive, exponential,
    /// all-at-once or demand [default: demand]
    #[arg(long = "provision", value_name = "POLICY")]
    policy: Option<ProvisioningPolicy>,
    /// With the policy `demand`: request enough nodes to finish the waiting tasks within this time
    /// [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration_us)]
    target: Option<u64>,
    /// A request has failed if no node joins within this time after the batch system has granted
    /// it [default: 5min]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration_us)]
    join_timeout: Option<u64>,
    /// Shell command that runs on each node before its executor starts, such as 'module load
    /// python'
    #[arg(long, value_name = "COMMAND")]
    start_command: Option<String>,
    /// Shell command that runs on each node after its executor has ended
    #[arg(long, value_name = "COMMAND")]
    stop_command: Option<String>,
    /// Words before the command that starts an executor, such as 'apptainer exec image.sif'
    #[arg(long, value_name = "WORDS")]
    wrap: Option<String>,
    /// Request no nodes once the pool has used this many node-hours; its nodes are given back then
    #[arg(long, value_name = "HOURS", value_parser = parse_number)]
    max_node_hours: Option<f64>,
    /// Request no nodes once the pool has cost this much; its nodes are given back then
    #[arg(long, value_name = "COST", value_parser = parse_number)]
    max_cost: Option<f64>,
    /// Cost of a node for an hour, in any unit; the cheapest pool that suits a task is used first
    /// [default: 0]
    #[arg(long, value_name = "COST", value_parser = parse_number)]
    price: Option<f64>,
    /// A label of each node, such as site=a, for the requirements of tasks (may be repeated)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_label)]
    label: Vec<(String, String)>,
    /// Number of processors of each node [default: what the first node reports]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    cpus: Option<u32>,
    /// Memory of each node [default: what the first node reports]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    memory: Option<u64>,
    /// Another resource of each node, such as gpu=1 (may be repeated)
    #[arg(long, value_name = "NAME=N", value_parser = parse_amount)]
    node_resource: Vec<(String, u64)>,
    /// A further option of `eyas start executor`, such as --executor-option=--cache=50GB (may be
    /// repeated)
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    executor_option: Vec<String>,
    /// Options for the batch system, which are passed on unchanged
    #[arg(last = true, value_name = "OPTION")]
    verbatim: Vec<String>,
    #[command(flatten)]
    kubernetes: KubernetesArgs,
}

/// A number of at least 0.
fn parse_number(text: &str) -> Result<f64, ValueError> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| ValueError::Number(text.into()))
}

const MINUTE_US: u64 = 60_000_000;
const HOUR_US: u64 = 60 * MINUTE_US;

impl PoolArgs {
    /// These options, and those of `below` that these do not have. Lists have both.
    pub fn over(self, below: PoolArgs) -> PoolArgs {
        PoolArgs {
            time_limit: self.time_limit.or(below.time_limit),
            backlog: self.backlog.or(below.backlog),
            nodes_per_request: self.nodes_per_request.or(below.nodes_per_request),
            min_nodes: self.min_nodes.or(below.min_nodes),
            max_nodes: self.max_nodes.or(below.max_nodes),
            idle_timeout: self.idle_timeout.or(below.idle_timeout),
            keep_data: self.keep_data.or(below.keep_data),
            policy: self.policy.or(below.policy),
            target: self.target.or(below.target),
            join_timeout: self.join_timeout.or(below.join_timeout),
            start_command: self.start_command.or(below.start_command),
            stop_command: self.stop_command.or(below.stop_command),
            wrap: self.wrap.or(below.wrap),
            max_node_hours: self.max_node_hours.or(below.max_node_hours),
            max_cost: self.max_cost.or(below.max_cost),
            price: self.price.or(below.price),
            label: [below.label, self.label].concat(),
            cpus: self.cpus.or(below.cpus),
            memory: self.memory.or(below.memory),
            node_resource: [below.node_resource, self.node_resource].concat(),
            executor_option: [below.executor_option, self.executor_option].concat(),
            kubernetes: self.kubernetes.over(below.kubernetes),
            verbatim: [below.verbatim, self.verbatim].concat(),
        }
    }

    /// The options of a pool of a batch system.
    pub fn options(&self, system: &str) -> Result<PoolOptions, CliError> {
        Ok(PoolOptions {
            system: system.into(),
            time_limit_us: self.time_limit.unwrap_or(HOUR_US),
            backlog: self.backlog.unwrap_or(8),
            nodes_per_request: self.nodes_per_request.unwrap_or(1),
            min_nodes: self.min_nodes.unwrap_or(0),
            max_nodes: self.max_nodes.unwrap_or(10),
            idle_timeout_us: self.idle_timeout.unwrap_or(5 * MINUTE_US),
            keep_us: self.keep_data.unwrap_or(10 * MINUTE_US),
            policy: self.policy.unwrap_or(ProvisioningPolicy::Demand),
            target_us: self.target.unwrap_or(MINUTE_US / 6),
            join_timeout_us: self.join_timeout.unwrap_or(5 * MINUTE_US),
            start_command: self.start_command.clone(),
            stop_command: self.stop_command.clone(),
            wrap: self.wrap.clone(),
            max_node_hours: self.max_node_hours,
            max_cost: self.max_cost,
            price: self.price.unwrap_or(0.0),
            labels: labels(&self.label)?,
            cpus: self.cpus,
            memory_bytes: self.memory,
            resources: named_amounts(&self.node_resource)?,
            executor_options: self.executor_option.clone(),
            verbatim: self.verbatim.clone(),
            kubernetes: self.kubernetes.options()?,
        })
    }
}

/// Options that only Kubernetes has.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Kubernetes")]
struct KubernetesArgs {
    /// Container image of the nodes, which has `eyas` and `sh` [default: the image in the
    /// template]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Namespace in which Jobs are made [default: the namespace of the context]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Service account of the nodes, for tasks that use the API of Kubernetes [default: no access
    /// to the API]
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// File with a PodTemplate, in YAML or JSON, for volumes, node selectors, tolerations and
    /// other fields of the nodes' Pods; the container called `eyas` runs the executor
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// The kubeconfig on the dispatcher's host [default: KUBECONFIG, ~/.kube/config, or the
    /// service account of the dispatcher's Pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current context, which the pool keeps]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl KubernetesArgs {
    fn over(self, below: KubernetesArgs) -> KubernetesArgs {
        KubernetesArgs {
            image: self.image.or(below.image),
            namespace: self.namespace.or(below.namespace),
            service_account: self.service_account.or(below.service_account),
            template: self.template.or(below.template),
            kubeconfig: self.kubeconfig.or(below.kubeconfig),
            context: self.context.or(below.context),
        }
    }

    /// The options, if there are any.
    fn options(&self) -> Result<Option<KubernetesOptions>, CliError> {
        let cannot_read =
            |path: &Path, why: std::io::Error| format!("cannot read {}: {why}", path.display());
        let read =
            |path: &PathBuf| std::fs::read_to_string(path).map_err(|why| cannot_read(path, why));
        let absolute =
            |path: &PathBuf| std::path::absolute(path).map(|path| path.display().to_string());
        let options = KubernetesOptions {
            image: self.image.clone(),
            namespace: self.namespace.clone(),
            service_account: self.service_account.clone(),
            template: self.template.as_ref().map(read).transpose()?,
            kubeconfig: self.kubeconfig.as_ref().map(absolute).transpose()?,
            context: self.context.clone(),
        };
        Ok((options != KubernetesOptions::default()).then_some(options))
    }
}

/// Words as on the command line of `eyas pool add`, after the name of the pool.
#[derive(Parser)]
#[command(name = "options of a pool", disable_help_flag = true, no_binary_name = true)]
struct PoolWords {
    #[command(flatten)]
    args: PoolArgs,
}

/// The options of a pool, from words.
pub(crate) fn parse_pool_words(
    words: impl IntoIterator<Item = impl Into<String>>,
) -> Result<PoolArgs, clap::Error> {
    PoolWords::try_parse_from(words.into_iter().map(Into::into)).map(|words| words.args)
}
