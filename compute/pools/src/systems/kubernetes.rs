//! Kubernetes: nodes are the Pods of Jobs. A request is one Job, and a Secret with the request's
//! script and access file. The states of all requests take one list of Jobs and one of Pods; a list
//! of events is needed only while a Job has no Pod.
//!
//! eyas speaks to the API server with the HTTP client that it also uses for storage. The crate
//! `kube` would add 30 crates, among them a parser generator and all types of the API; a pool needs
//! seven requests.
//!
//! A Job that has ended is deleted once its log is in the request's folder. So a namespace has the
//! Jobs of open requests, and Kubernetes removes what a dispatcher leaves that does not come back
//! (`ttlSecondsAfterFinished`).

mod api;
mod config;
pub(crate) mod error;
mod manifest;
mod states;
#[cfg(test)]
mod tests;
mod yaml;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use eyas_provision::{BatchReport, BatchState};
use eyas_wire::pool::PoolOptions;
use serde_json::{Value, json};

use self::api::{ApiServer, KubeResource};
use self::config::KubeEnvironment;
pub use self::error::KubernetesError;
use self::manifest::{CLUSTER_LABEL, FILES, STORE};
use self::states::{KubeEvent, KubeJob, KubeMeta, KubePod};
use crate::batch_error::BatchError;
use crate::batch_system::{BatchSystem, NodePaths};
use crate::request::{BatchJob, RequestPlan, write_private};

/// Bytes of a Pod's log that are kept.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// Levels of folders from a request's folder up to the folder of its cluster of eyas.
const CLUSTER_LEVEL: usize = 4;

pub(super) struct Kubernetes {
    server: ApiServer,
}

/// Checks the options that only Kubernetes has, and completes them: a pool keeps its API server and
/// its namespace.
pub(super) fn settle(options: &mut PoolOptions) -> Result<(), KubernetesError> {
    if !options.verbatim.is_empty() {
        let why = "options after `--` have no meaning for Kubernetes: use --template for what its \
                   Pods need";
        return Err(KubernetesError::Options(why.into()));
    }
    config::pin(options.kubernetes.get_or_insert_default(), &KubeEnvironment::of_process())?;
    manifest::check(options)
}

impl Kubernetes {
    pub fn new(options: &PoolOptions) -> Self {
        Kubernetes { server: ApiServer::new(options.kubernetes.clone().unwrap_or_default()) }
    }

    /// Makes the Job of a request, and then its Secret, which the Job owns. The Pods wait for the
    /// Secret.
    async fn make(&self, plan: &RequestPlan, name: &str) -> Result<(), BatchError> {
        let cluster = cluster_of(&plan.folder);
        let job = self
            .server
            .create(KubeResource::Jobs, &manifest::job(plan, &cluster, name)?, false)
            .await?;
        let uid = job["metadata"]["uid"].as_str().unwrap_or_default();
        let secret = manifest::secret(plan, &cluster, name, uid, &files(plan)?);
        self.server.create(KubeResource::Secrets, &secret, false).await?;
        Ok(())
    }

    /// The Pods of all requests of a cluster of eyas, by the names of their Jobs.
    async fn pods(
        &self,
        selector: &str,
    ) -> Result<BTreeMap<String, Vec<KubePod>>, KubernetesError> {
        Ok(states::by_job(self.server.list(KubeResource::Pods, ("labelSelector", selector)).await?))
    }

    /// Why Jobs have no Pods, by the names of the Jobs: a quota, or a service account that does not
    /// exist.
    async fn failed_creations(&self) -> BTreeMap<String, String> {
        let selector = ("fieldSelector", "involvedObject.kind=Job,reason=FailedCreate");
        match self.server.list::<KubeEvent>(KubeResource::Events, selector).await {
            Ok(events) => events
                .into_iter()
                .map(|event| (event.involved_object.name, event.message))
                .collect(),
            Err(why) => {
                tracing::debug!("the events of Jobs are not known: {why}");
                BTreeMap::new()
            }
        }
    }

    /// Writes what Pods have printed into the request's folder. Kubernetes does not tell the two
    /// output streams apart.
    async fn save_log(&self, job: &BatchJob, pods: &[KubePod]) -> Result<(), BatchError> {
        let (mut all, mut failure) = (String::new(), None);
        for pod in pods {
            let name = &pod.metadata.name;
            match self.server.log(name, MAX_LOG_BYTES).await {
                Ok(log) if pods.len() > 1 => all += &format!("==> {name}\n{log}"),
                Ok(log) => all += &log,
                // A Pod that has not started has none.
                Err(why) => failure = Some(why),
            }
        }
        match failure {
            Some(why) if all.is_empty() => Err(why.into()),
            _ if pods.is_empty() => Ok(()),
            _ => {
                let path = job.folder.join("stderr");
                write_private(&path, all.as_bytes(), 0o600)
                    .map_err(|why| BatchError::file(&path, &why))
            }
        }
    }

    /// Keeps what the Pods of a Job have printed, and deletes the Job. Its Pods and its Secret go
    /// with it.
    async fn put_away(&self, job: &BatchJob, pods: &[KubePod]) -> Result<(), KubernetesError> {
        if let Err(why) = self.save_log(job, pods).await {
            tracing::debug!("the log of {} is not kept: {why}", job.id);
        }
        match self.server.delete(KubeResource::Jobs, &job.id, false).await {
            Err(why) if why.is_absent() => Ok(()),
            deleted => deleted,
        }
    }
}

/// The name of the cluster of eyas to which a request belongs, as a label has it.
fn cluster_of(folder: &Path) -> String {
    let name = folder.ancestors().nth(CLUSTER_LEVEL).and_then(Path::file_name).unwrap_or_default();
    manifest::label_value(&name.to_string_lossy())
}

fn of_cluster(jobs: &[BatchJob]) -> String {
    let cluster = jobs.first().map(|job| cluster_of(&job.folder)).unwrap_or_default();
    format!("{CLUSTER_LABEL}={cluster}")
}

/// Where a node has its files.
fn node_paths() -> NodePaths {
    let of_store = |name: &str| Path::new(STORE).join(name);
    NodePaths {
        eyas: "eyas".into(),
        access: of_store("access.toml"),
        folder: Some(of_store("node")),
    }
}

/// The files that a node gets.
fn files(plan: &RequestPlan) -> Result<Value, BatchError> {
    let text =
        |path: &Path| std::fs::read_to_string(path).map_err(|why| BatchError::file(path, &why));
    Ok(json!({"script.sh": text(&plan.script())?, "access.toml": text(&plan.access())?}))
}

#[async_trait]
impl BatchSystem for Kubernetes {
    fn ask_every(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Pools with the same API server and namespace are asked for together.
    fn scope(&self, options: &PoolOptions) -> String {
        let own = options.kubernetes.clone().unwrap_or_default();
        let parts = [own.kubeconfig, own.context, own.namespace];
        parts.map(Option::unwrap_or_default).join("\n")
    }

    fn directives(&self, _: &RequestPlan) -> Vec<String> {
        let access = node_paths().access;
        vec![
            "# An access file must belong to the user of the executor and be readable by that \
             user alone."
                .into(),
            format!("(umask 077; cat {FILES}/access.toml >{}) || exit 1", access.display()),
        ]
    }

    fn node_number(&self) -> &'static str {
        "$JOB_COMPLETION_INDEX"
    }

    fn node_paths(&self, _: &RequestPlan) -> NodePaths {
        node_paths()
    }

    async fn submit(&self, plan: &RequestPlan) -> Result<BatchJob, BatchError> {
        let name = manifest::object_name(plan);
        if let Err(why) = self.make(plan, &name).await {
            // The Job may have been made, without its Secret. It is looked for if this fails too.
            return match self.server.delete(KubeResource::Jobs, &name, false).await {
                Err(also) if !also.is_absent() => Err(also.into()),
                _ => Err(why),
            };
        }
        Ok(BatchJob { id: name, cluster: None, folder: plan.folder.clone() })
    }

    async fn find(&self, plan: &RequestPlan) -> Result<Option<BatchJob>, BatchError> {
        let (cluster, name) = (cluster_of(&plan.folder), manifest::object_name(plan));
        let selector = format!("{CLUSTER_LABEL}={cluster}");
        let jobs: Vec<KubeJob> =
            self.server.list(KubeResource::Jobs, ("labelSelector", &selector)).await?;
        let is_there = |job: &KubeMeta| job.name == name && job.deletion_timestamp.is_none();
        let Some(job) = jobs.into_iter().find(|job| is_there(&job.metadata)) else {
            return Ok(None);
        };
        // Its Pods wait for the Secret, which may be missing. Without an access file, it is only to
        // be withdrawn.
        if plan.access().exists() {
            let secret = manifest::secret(plan, &cluster, &name, &job.metadata.uid, &files(plan)?);
            match self.server.create(KubeResource::Secrets, &secret, false).await {
                Err(why) if !why.is_present() => return Err(why.into()),
                _ => {}
            }
        }
        Ok(Some(BatchJob { id: name, cluster: None, folder: plan.folder.clone() }))
    }

    async fn states(&self, jobs: &[BatchJob]) -> Result<Vec<BatchReport>, BatchError> {
        let selector = of_cluster(jobs);
        let listed: Vec<KubeJob> =
            self.server.list(KubeResource::Jobs, ("labelSelector", &selector)).await?;
        let listed: BTreeMap<_, _> =
            listed.into_iter().map(|job| (job.metadata.name.clone(), job)).collect();
        let pods = self.pods(&selector).await?;
        let has_pod = |job: &BatchJob| pods.contains_key(&job.id);
        let is_podless = jobs.iter().any(|job| listed.contains_key(&job.id) && !has_pod(job));
        let causes = if is_podless { self.failed_creations().await } else { BTreeMap::new() };
        let mut reports = Vec::with_capacity(jobs.len());
        for job in jobs {
            let pods = pods.get(&job.id).map_or(&[][..], Vec::as_slice);
            let cause = causes.get(&job.id).map(String::as_str);
            let known = listed.get(&job.id);
            let state =
                known.map_or_else(states::deleted, |found| states::state_of(found, pods, cause));
            if known.is_some()
                && matches!(state, BatchState::Ended(_))
                && let Err(why) = self.put_away(job, pods).await
            {
                tracing::warn!("the Job {}, which has ended, is not deleted: {why}", job.id);
            }
            // A node is not at fault for an image that it cannot get.
            let host =
                if matches!(state, BatchState::Starting(_)) { None } else { states::host_of(pods) };
            reports.push(BatchReport { state, host });
        }
        Ok(reports)
    }

    async fn withdraw(&self, jobs: &[BatchJob]) -> Result<(), BatchError> {
        let mut pods = self.pods(&of_cluster(jobs)).await.unwrap_or_default();
        let mut answer = Ok(());
        for job in jobs {
            // Only a Pod that has started has printed something.
            let mut started = pods.remove(&job.id).unwrap_or_default();
            started.retain(KubePod::is_running);
            answer = answer.and(self.put_away(job, &started).await);
        }
        Ok(answer?)
    }

    async fn try_out(&self, plan: &RequestPlan) -> Result<String, BatchError> {
        let (cluster, name) = (cluster_of(&plan.folder), manifest::object_name(plan));
        let server = &self.server;
        server.create(KubeResource::Jobs, &manifest::job(plan, &cluster, &name)?, true).await?;
        let secret = manifest::secret(plan, &cluster, &name, "try", &json!({}));
        server.create(KubeResource::Secrets, &secret, true).await?;
        // The permissions that a pool also needs: there is no object with this name.
        let selector = format!("{CLUSTER_LABEL}={cluster},job-name={name}");
        server.list::<Value>(KubeResource::Jobs, ("labelSelector", &selector)).await?;
        server.list::<Value>(KubeResource::Pods, ("labelSelector", &selector)).await?;
        let of_job = format!("involvedObject.name={name}");
        server.list::<Value>(KubeResource::Events, ("fieldSelector", &of_job)).await?;
        let deleted = server.delete(KubeResource::Jobs, &name, true).await;
        let read = server.log(&name, 1).await.map(|_| ());
        for answer in [deleted, read] {
            answer.or_else(|why| if why.is_absent() { Ok(()) } else { Err(why) })?;
        }
        Ok(format!("{} accepts such a Job", server.place().await?))
    }

    async fn bring_log(&self, job: &BatchJob) -> Result<(), BatchError> {
        let selector = format!("job-name={}", job.id);
        let pods = self.pods(&selector).await?.remove(&job.id).unwrap_or_default();
        self.save_log(job, &pods).await
    }
}
