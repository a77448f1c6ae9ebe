//! Hosts that are reached by `ssh`: an executor is started on each host that is requested, and
//! ended when it is given back. The words that are passed on unchanged are the hosts. Keys, ports
//! and users belong in the configuration of `ssh` (`~/.ssh/config`), because no user can type a
//! password.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use eyas_provision::{BatchEnd, BatchReport, BatchState};
use eyas_wire::pool::PoolOptions;
use tokio::task::JoinSet;

use crate::batch_command;
use crate::batch_error::BatchError;
use crate::batch_system::{BatchSystem, process_line, together, whole, written_process};
use crate::request::{BatchJob, RequestPlan};
use crate::script::quoted;

/// Options of every `ssh`: it never asks a question, and notices that a host is gone.
const OPTIONS: &[&str] =
    &["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=10"];

/// Connections at the same time, when hosts are asked for the states of requests.
const HOSTS_AT_ONCE: usize = 32;

/// Beginning of the name of the file in a request's folder with its process on a host.
const PROCESS: &str = "process-";
/// Beginning of the name of the file in a request's folder that forbids to start a node on a host.
const PASSED_OVER: &str = "passed-over-";

#[derive(Default)]
pub(super) struct Ssh {
    /// Hosts that have an executor of the pool.
    busy: Mutex<BTreeSet<String>>,
    /// Hosts on which no executor could be started, and why, until the pool has taken note.
    failed: Mutex<BTreeMap<String, String>>,
}

/// A process on a host: `HOST:PROCESS:START`, where the start tells it from a later process with
/// the same number.
struct RemoteProcess<'a> {
    host: &'a str,
    process: u32,
    start: u64,
}

impl<'a> RemoteProcess<'a> {
    fn parse(id: &'a str) -> Option<Self> {
        let mut fields = id.rsplitn(3, ':');
        let (start, process, host) = (fields.next()?, fields.next()?, fields.next()?);
        Some(RemoteProcess { host, process: process.parse().ok()?, start: start.parse().ok()? })
    }

    /// A test of a shell that is true while the process lives.
    fn lives(&self) -> String {
        format!(
            "[ \"$(cut -d ' ' -f 22 /proc/{}/stat 2>/dev/null)\" = {} ]",
            self.process, self.start
        )
    }
}

impl Ssh {
    fn busy(&self) -> MutexGuard<'_, BTreeSet<String>> {
        locked(&self.busy)
    }

    /// A host of the pool without an executor, which is busy from now on.
    fn take(&self, hosts: &[String], passed_over: &BTreeSet<String>) -> Option<String> {
        let mut busy = self.busy();
        let host =
            hosts.iter().find(|host| !busy.contains(*host) && !passed_over.contains(*host))?;
        busy.insert(host.clone());
        Some(host.clone())
    }

    /// Forbids a host to start a node for a request later on.
    async fn pass_over(&self, host: &str, plan: &RequestPlan) -> Result<(), BatchError> {
        let path = plan.folder.join(format!("{PASSED_OVER}{host}"));
        std::fs::write(&path, "").map_err(|why| BatchError::file(&path, &why))?;
        match started(host, plan) {
            Some(id) => {
                self.withdraw(&[BatchJob { id, cluster: None, folder: plan.folder.clone() }]).await
            }
            None => Ok(()),
        }
    }
}

/// The process of a request on a host, as far as the folder of the request tells.
fn started(host: &str, plan: &RequestPlan) -> Option<String> {
    Some(format!("{host}:{}", written_process(&plan.folder.join(format!("{PROCESS}{host}")))?))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No update can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl BatchSystem for Ssh {
    fn ask_every(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Each pool knows which of its own hosts are busy.
    fn scope(&self, options: &PoolOptions) -> String {
        options.verbatim.join(" ")
    }

    fn node_number(&self) -> &'static str {
        "$EYAS_NODE"
    }

    /// The process is found by its file if the connection is lost while it starts. A host that was
    /// passed over may do as it was told later: a file forbids that, which is read after the
    /// process was written.
    fn directives(&self, plan: &RequestPlan) -> Vec<String> {
        let file = |name: &str| {
            format!("{}\"$EYAS_NODE\"", quoted(&plan.folder.join(name).display().to_string()))
        };
        vec![process_line(&file(PROCESS)), format!("[ ! -e {} ] || exit 1", file(PASSED_OVER))]
    }

    async fn submit(&self, plan: &RequestPlan) -> Result<BatchJob, BatchError> {
        let (mut ids, mut failures) = (Vec::new(), Vec::new());
        let mut passed_over: BTreeSet<_> = plan.excluded.iter().cloned().collect();
        while ids.len() < plan.nodes as usize {
            let Some(host) = self.take(&plan.options.verbatim, &passed_over) else { break };
            passed_over.insert(host.clone());
            match start(&host, plan).await.or_else(|error| started(&host, plan).ok_or(error)) {
                Ok(id) => ids.push(id),
                Err(error) => {
                    self.pass_over(&host, plan).await?;
                    self.busy().remove(&host);
                    failures.push(format!("{host}: {error}"));
                    locked(&self.failed).insert(host, error.to_string());
                }
            }
        }
        if let Some(job) = whole(self, plan, &ids).await? {
            return Ok(job);
        }
        let says = match failures.is_empty() {
            true if plan.excluded.is_empty() => "every host of the pool has an executor; add \
                                                 hosts, or limit the pool with --max-nodes"
                .to_owned(),
            true => format!(
                "every host of the pool has an executor, except those that have failed: {}",
                plan.excluded.join(", ")
            ),
            false => failures.join("; "),
        };
        Err(BatchError::NoHost { says })
    }

    async fn find(&self, plan: &RequestPlan) -> Result<Option<BatchJob>, BatchError> {
        let is_passed_over = |host: &str| plan.folder.join(format!("{PASSED_OVER}{host}")).exists();
        let hosts = plan.options.verbatim.iter().filter(|host| !is_passed_over(host));
        let ids: Vec<_> = hosts.filter_map(|host| started(host, plan)).collect();
        whole(self, plan, &ids).await
    }

    async fn states(&self, jobs: &[BatchJob]) -> Result<Vec<BatchReport>, BatchError> {
        let mut ids = jobs.iter().flat_map(|job| job.id.split(',')).map(String::from);
        let mut asking = JoinSet::new();
        let ask = |id: String| async move { (state_of(&id).await, id) };
        for id in ids.by_ref().take(HOSTS_AT_ONCE) {
            asking.spawn(ask(id));
        }
        let mut known = BTreeMap::new();
        while let Some(asked) = asking.join_next().await {
            ids.next().map(|id| asking.spawn(ask(id)));
            let (state, id) = asked.unwrap_or_else(eyas_panics::resume);
            if let Some(process) = RemoteProcess::parse(&id) {
                match state {
                    BatchState::Ended(_) => _ = self.busy().remove(process.host),
                    _ => _ = self.busy().insert(process.host.to_owned()),
                }
            }
            known.insert(id, state);
        }
        let state = |id: &str| known.get(id).cloned().unwrap_or(BatchState::Unknown);
        let report = |job: &BatchJob| BatchReport {
            state: together(job.id.split(',').map(state)),
            host: RemoteProcess::parse(&job.id)
                .filter(|_| !job.id.contains(','))
                .map(|process| process.host.to_owned()),
        };
        Ok(jobs.iter().map(report).collect())
    }

    fn take_failed_hosts(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *locked(&self.failed)).into_iter().collect()
    }

    async fn withdraw(&self, jobs: &[BatchJob]) -> Result<(), BatchError> {
        let mut answer = Ok(());
        for process in
            jobs.iter().flat_map(|job| job.id.split(',')).filter_map(RemoteProcess::parse)
        {
            // The number of the process is that of its group. `dash` knows no `--` here.
            let end = format!("if {}; then kill -TERM -{}; fi", process.lives(), process.process);
            answer = answer.and(run(process.host, &end).await.map(|_| ()));
        }
        answer
    }

    async fn try_out(&self, plan: &RequestPlan) -> Result<String, BatchError> {
        let hosts = &plan.options.verbatim;
        if hosts.is_empty() {
            let says = "name the hosts after `--`, such as `eyas pool add ssh lab -- node1 node2`"
                .to_owned();
            return Err(BatchError::Failed { program: "ssh".into(), says });
        }
        let look = format!("test -x {}", quoted(&plan.eyas.display().to_string()));
        let mut failures = Vec::new();
        for host in hosts {
            if let Err(error) = run(host, &look).await {
                failures.push(format!("{host}: {error}"));
            }
        }
        // One bad host does not make the others useless.
        match failures.len() == hosts.len() {
            true => Err(BatchError::Failed { program: "ssh".into(), says: failures.join("; ") }),
            false if failures.is_empty() => Ok(format!("all {} hosts answer", hosts.len())),
            false => Ok(format!(
                "{} of {} hosts do not answer: {}",
                failures.len(),
                hosts.len(),
                failures.join("; ")
            )),
        }
    }
}

/// Starts the script of a request on a host, in a session of its own, which outlives the
/// connection. Returns its id.
async fn start(host: &str, plan: &RequestPlan) -> Result<String, BatchError> {
    let file = |name: &str| quoted(&plan.folder.join(name).display().to_string());
    let script = quoted(&plan.script().display().to_string());
    let command = format!(
        "test -r {script} || {{ echo {script} is not on this host: the folder of the dispatcher \
         must be shared >&2; exit 1; }}; EYAS_NODE={} setsid sh {script} >>{} 2>>{} </dev/null & \
         echo $! $(cut -d ' ' -f 22 /proc/$!/stat)",
        quoted(host),
        file("stdout"),
        file("stderr")
    );
    let printed = run(host, &command).await?;
    let line = printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    match fields[..] {
        [process, start] => Ok(format!("{host}:{process}:{start}")),
        _ => Err(BatchError::unknown("ssh", &printed)),
    }
}

async fn state_of(id: &str) -> BatchState {
    let Some(process) = RemoteProcess::parse(id) else { return BatchState::Unknown };
    let ask = format!("if {}; then echo lives; else echo gone; fi", process.lives());
    match run(process.host, &ask).await.as_deref().map(str::trim) {
        Ok("lives") => BatchState::Running,
        Ok("gone") => {
            BatchState::Ended(BatchEnd { says: "it has ended".into(), is_of_node: false })
        }
        _ => BatchState::Unknown,
    }
}

/// Runs a command of a shell on a host.
async fn run(host: &str, command: &str) -> Result<String, BatchError> {
    let mut words: Vec<String> = OPTIONS.iter().map(|word| (*word).to_owned()).collect();
    words.extend(["--".to_owned(), host.to_owned(), command.to_owned()]);
    let output = batch_command::run("ssh", &words).await?;
    if output.is_success {
        Ok(output.stdout)
    } else {
        Err(BatchError::Failed { program: "ssh".into(), says: output.message() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_on_hosts_have_names() {
        let process = RemoteProcess::parse("user@fe80::1:17:99").unwrap();
        assert_eq!((process.host, process.process, process.start), ("user@fe80::1", 17, 99));
        assert!(RemoteProcess::parse("host:17").is_none() && RemoteProcess::parse("").is_none());
    }

    #[test]
    fn each_host_has_one_executor() {
        let (ssh, hosts) = (Ssh::default(), ["a", "b"].map(String::from));
        assert_eq!(ssh.take(&hosts, &BTreeSet::new()).as_deref(), Some("a"));
        assert_eq!(ssh.take(&hosts, &BTreeSet::from(["b".to_owned()])), None);
        assert_eq!(ssh.take(&hosts, &BTreeSet::new()).as_deref(), Some("b"));
        ssh.busy().remove("a");
        assert_eq!(ssh.take(&hosts, &BTreeSet::new()).as_deref(), Some("a"));
    }
}
