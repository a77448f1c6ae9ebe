//! States of requests, read from what the API server says of their Jobs and Pods. Only the fields
//! that matter are read.

use std::collections::BTreeMap;

use eyas_provision::{BatchEnd, BatchState};
use serde::Deserialize;

/// A list that the API server answers with.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub(super) struct KubeList<T> {
    #[serde(default)]
    pub metadata: KubeListMeta,
    pub items: Vec<T>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct KubeListMeta {
    /// Where the next part of the list begins; absent or empty after the last part.
    #[serde(rename = "continue")]
    pub next: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct KubeMeta {
    pub name: String,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub deletion_timestamp: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct KubeJob {
    pub metadata: KubeMeta,
    #[serde(default)]
    status: KubeJobStatus,
}

#[derive(Debug, Default, Deserialize)]
struct KubeJobStatus {
    #[serde(default)]
    conditions: Vec<KubeCondition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KubeCondition {
    r#type: String,
    status: String,
    reason: String,
    message: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct KubePod {
    pub metadata: KubeMeta,
    #[serde(default)]
    spec: KubePodSpec,
    #[serde(default)]
    status: KubePodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KubePodSpec {
    node_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KubePodStatus {
    phase: String,
    reason: String,
    message: String,
    conditions: Vec<KubeCondition>,
    init_container_statuses: Vec<KubeContainer>,
    container_statuses: Vec<KubeContainer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KubeContainer {
    state: KubeContainerState,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KubeContainerState {
    waiting: Option<KubeWaiting>,
    terminated: Option<KubeTerminated>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KubeWaiting {
    reason: String,
    message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KubeTerminated {
    reason: String,
    message: String,
    exit_code: i32,
}

/// Something that has happened to an object, such as a Pod that could not be made.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KubeEvent {
    pub involved_object: KubeMeta,
    #[serde(default)]
    pub message: String,
}

/// Reasons of a Pod that was ended by a fault of its node, or by a decision of the cluster.
const OF_NODE: &[&str] = &[
    "Evicted",
    "NodeLost",
    "NodeShutdown",
    "NodeAffinity",
    "Terminated",
    "Shutdown",
    "Preempting",
    "UnexpectedAdmissionError",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfpods",
    "OutOfephemeral-storage",
];

impl KubeMeta {
    /// Name of the Job to which a Pod belongs.
    fn job(&self) -> Option<&str> {
        self.labels
            .get("batch.kubernetes.io/job-name")
            .or_else(|| self.labels.get("job-name"))
            .map(String::as_str)
    }
}

impl KubeCondition {
    fn holds(&self) -> bool {
        self.status == "True"
    }

    fn says(&self) -> String {
        says(&self.reason, &self.message)
    }
}

/// Pods by the names of their Jobs.
pub(super) fn by_job(pods: Vec<KubePod>) -> BTreeMap<String, Vec<KubePod>> {
    let mut of_jobs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for pod in pods {
        if let Some(job) = pod.metadata.job().map(String::from) {
            of_jobs.entry(job).or_default().push(pod);
        }
    }
    of_jobs
}

/// `REASON: MESSAGE`, or the one that is not empty.
fn says(reason: &str, message: &str) -> String {
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match (reason, message.as_str()) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

/// The state of a request, from its Job and the Pods of the Job. `no_pod` says why the Job has no
/// Pod, if this is known.
pub(super) fn state_of(job: &KubeJob, pods: &[KubePod], no_pod: Option<&str>) -> BatchState {
    let condition =
        |kind: &str| job.status.conditions.iter().find(|condition| condition.r#type == kind);
    let holds = |kind: &str| condition(kind).filter(|condition| condition.holds());
    if let Some(failed) = holds("Failed") {
        let of_pods = pods.iter().filter_map(KubePod::end).max_by_key(|end| !end.is_of_node);
        return BatchState::Ended(
            of_pods.unwrap_or_else(|| BatchEnd { says: failed.says(), is_of_node: false }),
        );
    }
    if holds("Complete").is_some() {
        return BatchState::Ended(BatchEnd { says: "completed".into(), is_of_node: false });
    }
    if job.metadata.deletion_timestamp.is_some() {
        return deleted();
    }
    if pods.iter().any(KubePod::is_running) {
        return BatchState::Running;
    }
    let waiting =
        pods.iter().find(|pod| pod.status.phase == "Pending" || pod.status.phase.is_empty());
    match (waiting, holds("Suspended")) {
        (Some(pod), _) => pod.pending(),
        (None, Some(suspended)) => BatchState::Pending(Some(suspended.says())),
        (None, None) => BatchState::Pending(no_pod.map(String::from)),
    }
}

/// The node of the only Pod of a request.
pub(super) fn host_of(pods: &[KubePod]) -> Option<String> {
    match pods {
        [pod] => pod.spec.node_name.clone().filter(|name| !name.is_empty()),
        _ => None,
    }
}

/// The state of a request whose Job is not in the list of all Jobs.
pub(super) fn deleted() -> BatchState {
    BatchState::Ended(BatchEnd { says: "its Job was deleted".into(), is_of_node: false })
}

impl KubePod {
    pub fn is_running(&self) -> bool {
        self.status.phase == "Running" && self.metadata.deletion_timestamp.is_none()
    }

    fn containers(&self) -> impl Iterator<Item = &KubeContainer> {
        self.status.init_container_statuses.iter().chain(&self.status.container_statuses)
    }

    fn condition(&self, kind: &str) -> Option<&KubeCondition> {
        self.status.conditions.iter().find(|condition| condition.r#type == kind)
    }

    /// The state of a Pod that has not started.
    fn pending(&self) -> BatchState {
        let is_placed = self.condition("PodScheduled").is_some_and(KubeCondition::holds);
        let waiting = self.containers().filter_map(|container| container.state.waiting.as_ref());
        // Containers that wait for another one say nothing.
        let idle = |waiting: &&KubeWaiting| {
            !matches!(&*waiting.reason, "ContainerCreating" | "PodInitializing" | "")
        };
        match waiting.filter(idle).map(|waiting| says(&waiting.reason, &waiting.message)).next() {
            Some(text) => BatchState::Starting(Some(text)),
            None if is_placed => BatchState::Starting(None),
            None => {
                let unplaced = self.condition("PodScheduled").map(KubeCondition::says);
                BatchState::Pending(unplaced.filter(|text| !text.is_empty()))
            }
        }
    }

    /// How the Pod failed; `None` if it has not.
    fn end(&self) -> Option<BatchEnd> {
        let status = &self.status;
        if status.phase != "Failed" {
            return None;
        }
        if let Some(disruption) =
            self.condition("DisruptionTarget").filter(|condition| condition.holds())
        {
            return Some(BatchEnd { says: disruption.says(), is_of_node: true });
        }
        if !status.reason.is_empty() {
            let is_of_node = OF_NODE.contains(&status.reason.as_str());
            return Some(BatchEnd { says: says(&status.reason, &status.message), is_of_node });
        }
        let ended = self.containers().filter_map(|container| container.state.terminated.as_ref());
        let text = ended.filter(|ended| ended.exit_code != 0).map(KubeTerminated::says).next();
        Some(BatchEnd { says: text.unwrap_or_else(|| "its Pod failed".into()), is_of_node: false })
    }
}

impl KubeTerminated {
    fn says(&self) -> String {
        match &*self.reason {
            "Error" | "" => says(&format!("exit code {}", self.exit_code), &self.message),
            "OOMKilled" => {
                "OOMKilled: the executor and its tasks passed the memory of the Pod".into()
            }
            reason => says(&format!("{reason}, exit code {}", self.exit_code), &self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(conditions: Value) -> KubeJob {
        serde_json::from_value(
            json!({"metadata": {"name": "j"}, "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    fn pod(status: Value) -> KubePod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap()
    }

    fn pending(text: &str) -> BatchState {
        BatchState::Pending(Some(text.into()))
    }

    fn starting(text: &str) -> BatchState {
        BatchState::Starting(Some(text.into()))
    }

    #[test]
    fn a_pod_that_has_not_started_says_why() {
        let unplaced = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available:\n3 Insufficient cpu."});
        let placed = json!({"type": "PodScheduled", "status": "True"});
        let waits = |reason: &str, message: &str| {
            let waiting = json!({"waiting": {"reason": reason, "message": message}});
            json!({"phase": "Pending", "conditions": [placed.clone()],
                "containerStatuses": [{"state": waiting}]})
        };
        let table = [
            (json!({"phase": "Pending"}), BatchState::Pending(None)),
            (
                json!({"phase": "Pending", "conditions": [unplaced]}),
                pending("Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."),
            ),
            (
                json!({"phase": "Pending", "conditions": [placed.clone()]}),
                BatchState::Starting(None),
            ),
            (waits("ContainerCreating", ""), BatchState::Starting(None)),
            (
                waits("ImagePullBackOff", "no such image"),
                starting("ImagePullBackOff: no such image"),
            ),
            (waits("ErrImagePull", ""), starting("ErrImagePull")),
            (
                waits("CreateContainerConfigError", "no secret"),
                starting("CreateContainerConfigError: no secret"),
            ),
            (json!({"phase": "Running"}), BatchState::Running),
        ];
        for (status, expected) in table {
            assert_eq!(
                state_of(&job(json!([])), &[pod(status.clone())], None),
                expected,
                "{status}"
            );
        }
    }

    #[test]
    fn a_job_without_a_pod_says_why() {
        let quota = "pods \"a\" is forbidden: exceeded quota";
        assert_eq!(state_of(&job(json!([])), &[], Some(quota)), pending(quota));
        assert_eq!(state_of(&job(json!([])), &[], None), BatchState::Pending(None));
        let suspended = json!([{
            "type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "queued"
        }]);
        assert_eq!(state_of(&job(suspended), &[], None), pending("JobSuspended: queued"));
        let deleted_one =
            json!({"metadata": {"name": "j", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(state_of(&serde_json::from_value(deleted_one).unwrap(), &[], None), deleted());
    }

    #[test]
    fn ends_say_whether_the_node_is_at_fault() {
        let failed = job(json!([{
            "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
            "message": "Job has reached the specified backoff limit"
        }]));
        let terminated = |reason: &str, code: i32| {
            json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated":
                {"reason": reason, "exitCode": code}}}]})
        };
        let disrupted = json!({"phase": "Failed", "conditions": [{
            "type": "DisruptionTarget", "status": "True",
            "reason": "PreemptionByScheduler", "message": "preempted"
        }]});
        let table = [
            (json!({"phase": "Failed", "reason": "DeadlineExceeded"}), "DeadlineExceeded", false),
            (
                json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}),
                "Evicted: low on memory",
                true,
            ),
            (json!({"phase": "Failed", "reason": "NodeLost"}), "NodeLost", true),
            (disrupted, "PreemptionByScheduler: preempted", true),
            (
                terminated("OOMKilled", 137),
                "OOMKilled: the executor and its tasks passed the memory of the Pod",
                false,
            ),
            (terminated("Error", 3), "exit code 3", false),
            (terminated("StartError", 128), "StartError, exit code 128", false),
        ];
        for (status, text, is_of_node) in table {
            let expected = BatchState::Ended(BatchEnd { says: text.into(), is_of_node });
            assert_eq!(state_of(&failed, &[pod(status.clone())], None), expected, "{status}");
        }
        // The Pod is gone already.
        let text = "BackoffLimitExceeded: Job has reached the specified backoff limit";
        assert_eq!(
            state_of(&failed, &[], None),
            BatchState::Ended(BatchEnd { says: text.into(), is_of_node: false })
        );
        let complete = job(json!([{"type": "Complete", "status": "True"}]));
        let expected = BatchState::Ended(BatchEnd { says: "completed".into(), is_of_node: false });
        assert_eq!(state_of(&complete, &[], None), expected);
    }
}
