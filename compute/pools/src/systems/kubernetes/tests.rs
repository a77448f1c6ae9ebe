//! Tests of kubeconfigs, of the objects of a request, and of the examples.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyas_types::ProvisioningPolicy;
use eyas_types::matching::Labels;
use eyas_wire::pool::{KubernetesOptions, PoolOptions};
use serde_json::{Value, json};

use super::config::{KubeContext, KubeEnvironment, pin};
use super::error::KubernetesError;
use super::{manifest, yaml};
use crate::request::RequestPlan;

fn plan(nodes: u32, kubernetes: KubernetesOptions) -> RequestPlan {
    let options = PoolOptions {
        system: "kubernetes".into(),
        time_limit_us: 90_000_000,
        backlog: 1,
        nodes_per_request: nodes,
        min_nodes: 0,
        max_nodes: nodes,
        idle_timeout_us: 1,
        keep_us: 0,
        policy: ProvisioningPolicy::Demand,
        target_us: 1,
        join_timeout_us: 1,
        start_command: None,
        stop_command: None,
        wrap: None,
        max_node_hours: None,
        max_cost: None,
        price: 0.0,
        labels: Labels::new(),
        cpus: Some(4),
        memory_bytes: Some(1 << 30),
        resources: vec![("gpu".into(), 2), ("licence".into(), 1)],
        executor_options: Vec::new(),
        verbatim: Vec::new(),
        kubernetes: Some(kubernetes),
    };
    RequestPlan {
        pool: "My_Pool-".into(),
        number: 7,
        nodes,
        mark: "abc".into(),
        excluded: vec!["bad".into()],
        options: Arc::new(options),
        folder: PathBuf::from("/home/clusters/test/pools/My_Pool-/requests/7"),
        eyas: "/usr/bin/eyas".into(),
    }
}

fn with_image(template: Option<&str>) -> KubernetesOptions {
    let template = template.map(String::from);
    KubernetesOptions {
        image: Some("registry/eyas".into()),
        template,
        ..KubernetesOptions::default()
    }
}

fn job(template: Option<&str>) -> Result<Value, KubernetesError> {
    manifest::job(&plan(1, with_image(template)), "test", "eyas-a-7-x")
}

#[test]
fn names_and_labels_are_those_that_kubernetes_accepts() {
    assert_eq!(manifest::object_name(&plan(1, with_image(None))), "eyas-my-pool-7-abc");
    assert_eq!(manifest::label_value("_My pool-"), "My-pool");
    assert_eq!(manifest::label_value(&"a".repeat(80)).len(), 63);
}

#[test]
fn a_request_is_one_job_with_the_shape_of_the_pool() {
    let job = job(None).unwrap();
    let spec = &job["spec"];
    assert_eq!(
        (&spec["parallelism"], &spec["completions"], &spec["backoffLimit"]),
        (&json!(1), &json!(1), &json!(0))
    );
    let labels = json!({"eyas/pool": "My_Pool", "eyas/request": "7", "eyas/cluster": "test"});
    assert_eq!(
        (&job["metadata"]["labels"], &spec["template"]["metadata"]["labels"]),
        (&labels, &labels)
    );
    let pod = &spec["template"]["spec"];
    assert_eq!(
        (&pod["restartPolicy"], &pod["activeDeadlineSeconds"]),
        (&json!("Never"), &json!(90))
    );
    assert_eq!(pod["automountServiceAccountToken"], false);
    let secret =
        json!({"name": "eyas-files", "secret": {"secretName": "eyas-a-7-x", "defaultMode": 0o400}});
    assert_eq!(pod["volumes"], json!([secret, {"name": "eyas-store", "emptyDir": {}}]));
    let container = &pod["containers"][0];
    assert_eq!(container["command"], json!(["/bin/sh", "/run/eyas/script.sh"]));
    let memory = (1_u64 << 30).to_string();
    let expected = json!({
        "requests": {"cpu": "4", "memory": memory},
        "limits": {"memory": memory, "nvidia.com/gpu": "2"},
    });
    assert_eq!(container["resources"], expected);
    let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    let away = json!([{"matchFields": [
        {"key": "metadata.name", "operator": "NotIn", "values": ["bad"]},
    ]}]);
    assert_eq!(*terms, away);
}

#[test]
fn the_end_of_one_of_several_nodes_does_not_end_the_others() {
    let job = manifest::job(&plan(3, with_image(None)), "test", "j").unwrap();
    let spec = &job["spec"];
    assert_eq!((&spec["backoffLimitPerIndex"], &spec["maxFailedIndexes"]), (&json!(0), &json!(3)));
    assert!(spec["backoffLimit"].is_null() && spec["completionMode"] == "Indexed", "{spec}");
}

#[test]
fn a_template_is_completed() {
    let template = "
apiVersion: v1
kind: PodTemplate
metadata: {name: of-the-template}
template:
  metadata: {labels: {team: a}, name: refused}
  spec:
    tolerations: [{key: gpu, operator: Exists}]
    restartPolicy: Always
    volumes:
    - {name: data, persistentVolumeClaim: {claimName: data}}
    - {name: eyas-store, hostPath: {path: /scratch}}
    containers:
    - {name: side, image: other}
    - name: eyas
      env: [{name: A, value: b}]
      volumeMounts: [{name: data, mountPath: /data}]
";
    let job = job(Some(template)).unwrap();
    let template = &job["spec"]["template"];
    assert!(
        template["metadata"]["labels"]["team"] == "a"
            && template["metadata"]["labels"]["eyas/request"] == "7"
    );
    assert!(template["metadata"]["name"].is_null(), "{template:#}");
    let pod = &template["spec"];
    assert!(pod["restartPolicy"] == "Never" && pod["tolerations"][0]["key"] == "gpu", "{pod:#}");
    let names = |list: &Value| {
        list.as_array().unwrap().iter().map(|one| one["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&pod["volumes"]), ["data", "eyas-store", "eyas-files"]);
    assert_eq!(
        pod["volumes"][1]["hostPath"]["path"], "/scratch",
        "the store is where the template has it"
    );
    assert_eq!(names(&pod["containers"]), ["side", "eyas"]);
    let container = &pod["containers"][1];
    assert!(
        container["image"] == "registry/eyas" && container["env"][0]["name"] == "A",
        "{container:#}"
    );
    assert_eq!(names(&container["volumeMounts"]), ["data", "eyas-files", "eyas-store"]);
}

#[test]
fn a_template_that_cannot_be_used_is_refused() {
    let table = [
        ("a: [", "it is not YAML"),
        ("", "it has 0 documents"),
        ("a: 1\n---\nb: 2", "it has 2 documents"),
        ("kind: Deployment\nspec: {}", "it is a Deployment"),
        ("kind: Pod", "neither `metadata` nor `spec`"),
        ("[1]", "no fields"),
        ("spec: {containers: 3}", "`containers` is not a list"),
        ("spec: []", "`spec` is not a mapping"),
    ];
    for (template, why) in table {
        let error = job(Some(template)).unwrap_err().to_string();
        assert!(error.contains(why), "{template}: {error}");
    }
    let error =
        manifest::job(&plan(1, KubernetesOptions::default()), "test", "j").unwrap_err().to_string();
    assert!(error.contains("--image"), "{error}");
}

const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
current-context: lab
clusters:
- {name: one, cluster: \
                          {server: 'https://one:6443', certificate-authority: ca.pem}}
contexts:
- {name: lab, context: {cluster: one, user: me, namespace: work}}
- {name: lost, context: {cluster: two, user: me}}
- {name: nameless, context: {cluster: one, user: other}}
users:
- {name: me, user: {tokenFile: token}}
- {name: other, user: {auth-provider: {name: gcp}}}
";

/// A folder with a kubeconfig and its files.
fn kubeconfig() -> (tempfile::TempDir, KubeEnvironment) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config"), KUBECONFIG).unwrap();
    fs::write(folder.path().join("token"), "secret\n").unwrap();
    fs::write(folder.path().join("ca.pem"), "certificate").unwrap();
    let kubeconfig = Some(folder.path().join("config").display().to_string());
    (folder, KubeEnvironment { kubeconfig, ..KubeEnvironment::default() })
}

#[test]
fn a_context_has_its_cluster_user_and_namespace() {
    let (_folder, environment) = kubeconfig();
    let mut options = KubernetesOptions::default();
    let context = KubeContext::read(&options, &environment).unwrap();
    assert_eq!(
        (&*context.name, &*context.namespace, &*context.cluster.server),
        ("lab", "work", "https://one:6443")
    );
    assert_eq!(context.user.token().unwrap().as_deref(), Some("secret"));
    assert_eq!(context.cluster.authority().unwrap().as_deref(), Some(&b"certificate"[..]));
    pin(&mut options, &environment).unwrap();
    let pinned = (options.kubeconfig, options.context.as_deref(), options.namespace.as_deref());
    assert_eq!(pinned, (environment.kubeconfig, Some("lab"), Some("work")));
}

#[test]
fn a_kubeconfig_that_others_could_write_is_not_read() {
    let (folder, environment) = kubeconfig();
    let config = folder.path().join("config");
    fs::set_permissions(&config, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let said =
        KubeContext::read(&KubernetesOptions::default(), &environment).unwrap_err().to_string();
    assert!(said.contains("other users can write to") && said.contains("chmod go-w"), "{said}");
}

#[test]
fn the_first_of_several_kubeconfigs_counts() {
    let (folder, _) = kubeconfig();
    let first = "contexts:\n- {name: lab, context: {cluster: one, user: me, namespace: first}}";
    fs::write(folder.path().join("first"), first).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let kubeconfig = Some(format!("{}:{}:{}", path("missing"), path("first"), path("config")));
    let environment = KubeEnvironment { kubeconfig, ..KubeEnvironment::default() };
    assert_eq!(
        KubeContext::read(&KubernetesOptions::default(), &environment).unwrap().namespace,
        "first"
    );
}

#[test]
fn errors_of_a_kubeconfig_are_named() {
    let (folder, environment) = kubeconfig();
    let read = |context: &str| {
        let options =
            KubernetesOptions { context: Some(context.into()), ..KubernetesOptions::default() };
        KubeContext::read(&options, &environment).map(|_| ()).unwrap_err().to_string()
    };
    assert!(
        read("absent").contains("no context `absent`: its contexts are lab, lost, nameless"),
        "{}",
        read("absent")
    );
    assert!(read("lost").contains("a cluster `two`, which is missing"), "{}", read("lost"));
    assert!(read("nameless").contains("use `exec` instead"), "{}", read("nameless"));
    let of = |text: &str| {
        fs::write(folder.path().join("config"), text).unwrap();
        KubeContext::read(&KubernetesOptions::default(), &environment)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    assert!(of("a: [").contains("it is not YAML"), "{}", of("a: ["));
    assert!(of("kind: Config").contains("no current context"), "{}", of("kind: Config"));
    fs::remove_file(folder.path().join("config")).unwrap();
    let missing = KubeContext::read(&KubernetesOptions::default(), &environment).unwrap_err();
    assert!(matches!(missing, KubernetesError::File { .. }), "{missing}");
    let nowhere =
        KubeContext::read(&KubernetesOptions::default(), &KubeEnvironment::default()).unwrap_err();
    assert!(nowhere.to_string().contains("Set KUBECONFIG"), "{nowhere}");
}

#[test]
fn a_dispatcher_in_a_pod_uses_its_service_account() {
    let service = Some(("fd00::1".to_owned(), "443".to_owned()));
    let environment = KubeEnvironment { service, ..KubeEnvironment::default() };
    let mut options = KubernetesOptions::default();
    let context = KubeContext::read(&options, &environment).unwrap();
    assert_eq!(
        (&*context.cluster.server, &*context.namespace),
        ("https://[fd00::1]:443", "default")
    );
    pin(&mut options, &environment).unwrap();
    assert_eq!((options.kubeconfig, options.context), (None, None));
}

/// The documents of a file in `examples/kubernetes`.
fn example(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubernetes").join(name);
    yaml::parse_all(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_role_of_the_examples_permits_what_a_pool_does_and_no_more() {
    let documents = example("rbac.yaml");
    let kinds: Vec<_> =
        documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ServiceAccount", "Role", "RoleBinding"]);
    assert_eq!(documents[2]["roleRef"]["name"], documents[1]["metadata"]["name"]);
    assert_eq!(documents[2]["subjects"][0]["name"], documents[0]["metadata"]["name"]);
    let words = |value: &Value| {
        value.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let mut permitted = BTreeSet::new();
    for rule in documents[1]["rules"].as_array().unwrap() {
        let [groups, resources, verbs]: [Vec<String>; 3] =
            ["apiGroups", "resources", "verbs"].map(|name| words(&rule[name]));
        for (group, resource) in
            groups.iter().flat_map(|group| resources.iter().map(move |one| (group, one)))
        {
            permitted.extend(
                verbs.iter().map(|verb| format!("{verb} {resource} {group}").trim().to_owned()),
            );
        }
    }
    let needed = [
        "create jobs batch",
        "list jobs batch",
        "delete jobs batch",
        "create secrets",
        "list pods",
        "get pods/log",
        "list events",
    ];
    assert_eq!(permitted, needed.map(String::from).into());
}

#[test]
fn the_dispatcher_of_the_examples_is_reached_by_its_name() {
    let documents = example("dispatcher.yaml");
    let of_kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind).unwrap();
    let (service, deployment) = (of_kind("Service"), of_kind("Deployment"));
    let pod = &deployment["spec"]["template"];
    assert_eq!(service["spec"]["selector"], pod["metadata"]["labels"]);
    assert_eq!(pod["spec"]["serviceAccountName"], example("rbac.yaml")[0]["metadata"]["name"]);
    let container = &pod["spec"]["containers"][0];
    let words: Vec<_> = container["command"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    let after =
        |option: &str| words[words.iter().position(|word| *word == option).unwrap() + 1].to_owned();
    let port = &service["spec"]["ports"][0]["port"];
    assert_eq!(after("--listen"), format!("0.0.0.0:{port}"));
    assert_eq!(after("--advertise"), service["metadata"]["name"].as_str().unwrap());
    let claim = &pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"];
    assert_eq!(*claim, of_kind("PersistentVolumeClaim")["metadata"]["name"]);
}
