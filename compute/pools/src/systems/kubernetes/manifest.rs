//! The objects of a request: a Job, whose Pods are nodes, and a Secret with the script and the
//! access file.
//!
//! | decision | reason |
//! | --- | --- |
//! | one Job a request, `completionMode: Indexed` | each node of a request has a number |
//! | no Pod is started again | the pool requests another node, and counts what has failed |
//! | the time limit is that of the Pod | that of a Job also counts the wait for a node |
//! | files come from a Secret of the Job | no key in a command line; the Secret ends with the Job |
//! | no service account's token, unless an account is named | executors do not use the API |

use std::path::PathBuf;
use std::sync::Arc;

use eyas_wire::pool::{KubernetesOptions, PoolOptions};
use serde_json::{Map, Value, json};

use super::error::KubernetesError;
use super::yaml;
use crate::request::RequestPlan;

/// Label with the name of the pool.
const POOL_LABEL: &str = "eyas/pool";
/// Label with the number of the request.
const REQUEST_LABEL: &str = "eyas/request";
/// Label with the name of the cluster of eyas.
pub(super) const CLUSTER_LABEL: &str = "eyas/cluster";

/// Folder of the script and the access file in a Pod.
pub(super) const FILES: &str = "/run/eyas";
/// Folder of the executor's store and sandboxes in a Pod.
pub(super) const STORE: &str = "/var/lib/eyas";
/// Name of the container in a template that runs the executor.
const CONTAINER: &str = "eyas";

/// Longest value of a label.
const MAX_LABEL: usize = 63;
/// Characters of the pool's name in the name of a Job. The name of a Pod has at most 63 characters.
const MAX_POOL_PART: usize = 30;
/// Ended Jobs are removed after this time if the dispatcher no longer does so, seconds.
const KEPT_S: u64 = 600;

/// The name of a request's Job and Secret.
pub(super) fn object_name(plan: &RequestPlan) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let pool: String = plan.pool.chars().map(plain).take(MAX_POOL_PART).collect();
    format!("eyas-{}-{}-{}", pool.trim_matches('-'), plan.number, plan.mark)
}

/// A text as the value of a label.
pub(super) fn label_value(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let value: String = text.chars().map(plain).take(MAX_LABEL).collect();
    value.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

fn labels(plan: &RequestPlan, cluster: &str) -> Map<String, Value> {
    let labels = [(POOL_LABEL, label_value(&plan.pool)), (REQUEST_LABEL, plan.number.to_string())];
    let labels = labels.into_iter().chain([(CLUSTER_LABEL, cluster.to_owned())]);
    labels.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// The Job of a request.
pub(super) fn job(plan: &RequestPlan, cluster: &str, name: &str) -> Result<Value, KubernetesError> {
    let labels = labels(plan, cluster);
    let mut spec = json!({
        "parallelism": plan.nodes,
        "completions": plan.nodes,
        "completionMode": "Indexed",
        "ttlSecondsAfterFinished": KEPT_S,
        "template": pods(plan, &labels, name)?,
    });
    if plan.nodes == 1 {
        spec["backoffLimit"] = 0.into();
    } else {
        // With a limit for all of them, the end of one node would end the others.
        spec["backoffLimitPerIndex"] = 0.into();
        spec["maxFailedIndexes"] = plan.nodes.into();
    }
    let metadata = json!({"name": name, "labels": labels});
    Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}))
}

/// The Secret of a request: files by their names. It is removed together with its Job.
pub(super) fn secret(
    plan: &RequestPlan,
    cluster: &str,
    name: &str,
    job_uid: &str,
    files: &Value,
) -> Value {
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job_uid});
    let metadata =
        json!({"name": name, "labels": labels(plan, cluster), "ownerReferences": [owner]});
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "immutable": true,
        "stringData": files,
    })
}

/// The Pods of a request: the pool's template with what every node of eyas has.
fn pods(
    plan: &RequestPlan,
    labels: &Map<String, Value>,
    secret: &str,
) -> Result<Value, KubernetesError> {
    let given = KubernetesOptions::default();
    let own = plan.options.kubernetes.as_ref().unwrap_or(&given);
    let mut pods = own.template.as_deref().map_or_else(|| Ok(json!({})), read_template)?;
    table(table(&mut pods, "metadata")?, "labels")?.as_object_mut().into_iter().for_each(|all| {
        all.extend(labels.clone());
    });
    let spec = table(&mut pods, "spec")?;
    spec["restartPolicy"] = "Never".into();
    spec["activeDeadlineSeconds"] = (plan.options.time_limit_us.div_ceil(1_000_000)).into();
    match &own.service_account {
        Some(account) => spec["serviceAccountName"] = account.as_str().into(),
        None if spec.get("serviceAccountName").is_none() => {
            spec["automountServiceAccountToken"] = false.into()
        }
        None => {}
    }
    exclude(spec, &plan.excluded)?;
    // Only the user of the container, or its group, can read the files.
    let of_secret =
        json!({"name": "eyas-files", "secret": {"secretName": secret, "defaultMode": 0o400}});
    insert(list(spec, "volumes")?, "name", of_secret);
    add(list(spec, "volumes")?, "name", json!({"name": "eyas-store", "emptyDir": {}}));
    let containers = list(spec, "containers")?;
    let is_ours = |container: &Value| container["name"] == CONTAINER;
    let place = containers.iter().position(is_ours).unwrap_or_else(|| {
        containers.insert(0, json!({"name": CONTAINER}));
        0
    });
    container(plan, own, &mut containers[place])?;
    Ok(pods)
}

/// Keeps Pods away from nodes, whatever other nodes the template allows.
fn exclude(spec: &mut Value, nodes: &[String]) -> Result<(), KubernetesError> {
    if nodes.is_empty() {
        return Ok(());
    }
    let affinity = table(table(spec, "affinity")?, "nodeAffinity")?;
    let required = table(affinity, "requiredDuringSchedulingIgnoredDuringExecution")?;
    let terms = list(required, "nodeSelectorTerms")?;
    if terms.is_empty() {
        terms.push(json!({}));
    }
    for term in terms {
        // Each of them has one value.
        let other =
            |node: &String| json!({"key": "metadata.name", "operator": "NotIn", "values": [node]});
        list(term, "matchFields")?.extend(nodes.iter().map(other));
    }
    Ok(())
}

/// Completes the container that runs the executor.
fn container(
    plan: &RequestPlan,
    own: &KubernetesOptions,
    container: &mut Value,
) -> Result<(), KubernetesError> {
    match &own.image {
        Some(image) => container["image"] = image.as_str().into(),
        None if container["image"].is_string() => {}
        None => {
            let why =
                "--image names the container image of the nodes; it must have `eyas` and `sh`";
            return Err(KubernetesError::Options(why.into()));
        }
    }
    container["command"] = json!(["/bin/sh", format!("{FILES}/script.sh")]);
    let files = json!({"name": "eyas-files", "mountPath": FILES, "readOnly": true});
    insert(list(container, "volumeMounts")?, "mountPath", files);
    add(
        list(container, "volumeMounts")?,
        "mountPath",
        json!({"name": "eyas-store", "mountPath": STORE}),
    );
    let resources = table(container, "resources")?;
    let options = &plan.options;
    if let Some(cpus) = options.cpus {
        table(resources, "requests")?["cpu"] = cpus.to_string().into();
    }
    if let Some(bytes) = options.memory_bytes {
        table(resources, "requests")?["memory"] = bytes.to_string().into();
        table(resources, "limits")?["memory"] = bytes.to_string().into();
    }
    for (name, count) in &options.resources {
        // Names of other resources mean something to eyas only.
        let known = if name == "gpu" { "nvidia.com/gpu" } else { name };
        if known.contains('/') {
            table(resources, "limits")?[known] = count.to_string().into();
        }
    }
    if options.cpus.is_none() && resources["requests"]["cpu"].is_null() {
        let why = "--cpus says how many processors each node requests; without it, a Pod would \
                   get an arbitrary part of a machine";
        return Err(KubernetesError::Options(why.into()));
    }
    Ok(())
}

/// Reads a template of Pods: a PodTemplate, a Pod, or what has `metadata` and `spec` of one.
fn read_template(text: &str) -> Result<Value, KubernetesError> {
    let wrong = |why: String| KubernetesError::Template(why);
    let mut read = yaml::parse(text).map_err(|e| wrong(e.to_string()))?;
    let kind = read["kind"].as_str().map(String::from);
    let mut template = match kind.as_deref() {
        Some("PodTemplate") => read["template"].take(),
        Some("Pod") | None => read,
        Some(other) => return Err(wrong(format!("it is a {other}, not a PodTemplate or a Pod"))),
    };
    let Some(fields) = template.as_object_mut() else {
        return Err(wrong("it has no fields `metadata` and `spec`".into()));
    };
    fields.retain(|name, _| name == "metadata" || name == "spec");
    if fields.is_empty() {
        return Err(wrong("it has neither `metadata` nor `spec`".into()));
    }
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        // A Pod of a Job cannot have a name of its own.
        metadata.retain(|name, _| name == "labels" || name == "annotations");
    }
    Ok(template)
}

/// The table under a name, which is made if it is missing.
fn table<'a>(of: &'a mut Value, name: &str) -> Result<&'a mut Value, KubernetesError> {
    field(of, name, json!({}), Value::is_object, "a mapping")
}

/// The list under a name, which is made if it is missing.
fn list<'a>(of: &'a mut Value, name: &str) -> Result<&'a mut Vec<Value>, KubernetesError> {
    let found = field(of, name, json!([]), Value::is_array, "a list")?;
    Ok(found.as_array_mut().expect("this was checked"))
}

fn field<'a>(
    of: &'a mut Value,
    name: &str,
    empty: Value,
    is_right: impl Fn(&Value) -> bool,
    kind: &str,
) -> Result<&'a mut Value, KubernetesError> {
    let wrong = |what: &str, kind: &str| KubernetesError::Template(format!("{what} is not {kind}"));
    let fields =
        of.as_object_mut().ok_or_else(|| wrong(&format!("what has `{name}`"), "a mapping"))?;
    let found = fields.entry(name).or_insert(Value::Null);
    if found.is_null() {
        *found = empty;
    }
    if is_right(found) { Ok(found) } else { Err(wrong(&format!("`{name}`"), kind)) }
}

/// Puts an item into a list, in the place of the one with the same key.
fn insert(list: &mut Vec<Value>, key: &str, item: Value) {
    list.retain(|other| other[key] != item[key]);
    list.push(item);
}

/// Adds an item to a list that has none with its key.
fn add(list: &mut Vec<Value>, key: &str, item: Value) {
    if list.iter().all(|other| other[key] != item[key]) {
        list.push(item);
    }
}

/// Checks what does not depend on a request.
pub(super) fn check(options: &PoolOptions) -> Result<(), KubernetesError> {
    let plan = RequestPlan {
        pool: "check".into(),
        number: 0,
        nodes: 1,
        mark: "check".into(),
        excluded: Vec::new(),
        options: Arc::new(options.clone()),
        folder: PathBuf::new(),
        eyas: PathBuf::new(),
    };
    job(&plan, "check", "check").map(|_| ())
}
