//! Where the API server is, and with which credentials it is used: a kubeconfig, or the service
//! account of the Pod in which the dispatcher runs.

use std::path::{Path, PathBuf};

use eyas_session::private::PrivateError;
use eyas_session::trusted;
use eyas_wire::pool::KubernetesOptions;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::KubernetesError;
use super::yaml;

/// Files of a Pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The context of a dispatcher that runs in a Pod without a kubeconfig.
const IN_POD: &str = "service account";
/// The namespace of a context that names none.
const DEFAULT_NAMESPACE: &str = "default";

/// A context: a cluster, a user, and the namespace that is used.
#[derive(Debug)]
pub(super) struct KubeContext {
    pub name: String,
    pub namespace: String,
    pub cluster: KubeCluster,
    pub user: KubeUser,
}

/// An API server.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct KubeCluster {
    pub server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    pub insecure_skip_tls_verify: bool,
    pub tls_server_name: Option<String>,
    pub proxy_url: Option<String>,
}

/// Credentials, or where they are.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct KubeUser {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    pub token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    pub username: Option<String>,
    pub password: Option<String>,
    pub exec: Option<KubeExec>,
    auth_provider: Option<serde_json::Value>,
}

/// A program that prints credentials.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KubeExec {
    pub api_version: String,
    pub command: String,
    #[serde(default)]
    pub args: Option<Vec<String>>,
    #[serde(default)]
    pub env: Option<Vec<KubeVariable>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct KubeVariable {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContextFields {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: KubeCluster,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    context: ContextFields,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: KubeUser,
}

/// One or several kubeconfigs.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Kubeconfig {
    #[serde(skip)]
    path: String,
    current_context: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    contexts: Option<Vec<NamedContext>>,
    users: Option<Vec<NamedUser>>,
}

/// The environment of the dispatcher, as far as it says where the API server is.
#[derive(Clone, Debug, Default)]
pub(super) struct KubeEnvironment {
    /// `KUBECONFIG`.
    pub kubeconfig: Option<String>,
    pub home: Option<PathBuf>,
    /// `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`, which a Pod has.
    pub service: Option<(String, String)>,
}

impl KubeEnvironment {
    pub fn of_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        KubeEnvironment {
            kubeconfig: variable("KUBECONFIG"),
            home: variable("HOME").map(Into::into),
            service: variable("KUBERNETES_SERVICE_HOST").zip(variable("KUBERNETES_SERVICE_PORT")),
        }
    }

    /// The kubeconfigs to read, separated by colons.
    fn kubeconfig(&self, options: &KubernetesOptions) -> Option<String> {
        let usual = || {
            self.home.as_ref().map(|home| home.join(".kube/config")).filter(|path| path.exists())
        };
        let named = options.kubeconfig.clone().or_else(|| self.kubeconfig.clone());
        named.or_else(|| usual().map(|path| path.display().to_string()))
    }
}

/// Writes the kubeconfig, the context and the namespace that are used now into the options of a
/// pool, so that the pool stays where it is when the user changes to another context.
pub(super) fn pin(
    options: &mut KubernetesOptions,
    environment: &KubeEnvironment,
) -> Result<(), KubernetesError> {
    let context = KubeContext::read(options, environment)?;
    options.kubeconfig = environment.kubeconfig(options);
    options.context = options.kubeconfig.is_some().then_some(context.name);
    options.namespace = Some(context.namespace);
    Ok(())
}

impl KubeContext {
    /// Reads the context that the options name, or the current one.
    pub fn read(
        options: &KubernetesOptions,
        environment: &KubeEnvironment,
    ) -> Result<Self, KubernetesError> {
        let namespace = |of_context: Option<String>| {
            options.namespace.clone().or(of_context).unwrap_or_else(|| DEFAULT_NAMESPACE.into())
        };
        let Some(paths) = environment.kubeconfig(options) else {
            let Some((host, port)) = &environment.service else {
                let home = environment.home.clone().unwrap_or_default();
                return Err(KubernetesError::NoConfig {
                    looked: home.join(".kube/config").display().to_string(),
                });
            };
            return in_pod(host, port, &namespace);
        };
        let config = Kubeconfig::read(&paths)?;
        let Kubeconfig { path, current_context, clusters, contexts, users } = config;
        let wrong = |why: String| KubernetesError::Config { path: path.clone(), why };
        let contexts = contexts.unwrap_or_default();
        let known =
            contexts.iter().map(|context| context.name.clone()).collect::<Vec<_>>().join(", ");
        let current = current_context.filter(|name| !name.is_empty());
        let name = options.context.clone().or(current);
        let name = name.ok_or_else(|| {
            wrong(format!(
                "it has no current context; name one of its contexts with --context: {known}"
            ))
        })?;
        let Some(fields) = contexts.into_iter().find(|context| context.name == name) else {
            return Err(KubernetesError::NoContext { path, context: name, known });
        };
        let ContextFields { cluster, user, namespace: of_context } = fields.context;
        let found = clusters.into_iter().flatten().find(|other| other.name == cluster);
        let cluster = found.ok_or_else(|| {
            wrong(format!("context `{name}` names a cluster `{cluster}`, which is missing"))
        })?;
        let found = users.into_iter().flatten().find(|other| other.name == user);
        let user = match found {
            Some(found) => found.user,
            None if user.is_empty() => KubeUser::default(),
            None => {
                return Err(wrong(format!(
                    "context `{name}` names a user `{user}`, which is missing"
                )));
            }
        };
        let cluster = cluster.cluster;
        if cluster.server.is_empty() {
            return Err(wrong(format!("the cluster of context `{name}` has no `server`")));
        }
        if user.auth_provider.is_some() {
            return Err(wrong(format!(
                "the user of context `{name}` has an `auth-provider`, which Kubernetes has \
                 dropped: use `exec` instead"
            )));
        }
        Ok(KubeContext { namespace: namespace(of_context), name, cluster, user })
    }
}

/// The context of a Pod's service account.
fn in_pod(
    host: &str,
    port: &str,
    namespace: &dyn Fn(Option<String>) -> String,
) -> Result<KubeContext, KubernetesError> {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let folder = Path::new(SERVICE_ACCOUNT);
    let own =
        std::fs::read_to_string(folder.join("namespace")).ok().map(|text| text.trim().to_owned());
    let cluster = KubeCluster {
        server: format!("https://{host}:{port}"),
        certificate_authority: Some(folder.join("ca.crt")),
        ..KubeCluster::default()
    };
    let user = KubeUser { token_file: Some(folder.join("token")), ..KubeUser::default() };
    Ok(KubeContext { name: IN_POD.into(), namespace: namespace(own), cluster, user })
}

/// The text of a kubeconfig, which may name programs, and so must be written by no other user.
fn text_of(path: &str) -> std::io::Result<String> {
    let real = trusted::file(Path::new(path)).map_err(|why| match why {
        PrivateError::Io { source, .. } => source,
        why => std::io::Error::new(std::io::ErrorKind::PermissionDenied, why.to_string()),
    })?;
    std::fs::read_to_string(real)
}

impl Kubeconfig {
    /// Reads files that are separated by colons. What is in the first file counts. Missing files
    /// are left out, unless all are missing.
    fn read(paths: &str) -> Result<Self, KubernetesError> {
        let mut all = Kubeconfig { path: paths.to_owned(), ..Kubeconfig::default() };
        let (mut missing, mut is_empty) = (None, true);
        for path in paths.split(':').filter(|path| !path.is_empty()) {
            match text_of(path) {
                Ok(text) => all.merge(Kubeconfig::parse(path, &text)?),
                Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
                    missing.get_or_insert_with(|| KubernetesError::File {
                        path: path.into(),
                        why: why.to_string(),
                    });
                    continue;
                }
                Err(why) => {
                    return Err(KubernetesError::File { path: path.into(), why: why.to_string() });
                }
            }
            is_empty = false;
        }
        match missing.filter(|_| is_empty) {
            Some(error) => Err(error),
            None => Ok(all),
        }
    }

    fn parse(path: &str, text: &str) -> Result<Self, KubernetesError> {
        let wrong = |why: String| KubernetesError::Config { path: path.into(), why };
        let value = yaml::parse(text).map_err(|e| wrong(e.to_string()))?;
        let mut config: Kubeconfig = of_value(value).map_err(|e| wrong(e.to_string()))?;
        // Relative paths begin at the folder of their file.
        let folder = Path::new(path).parent().unwrap_or(Path::new(""));
        let absolute = |path: &mut Option<PathBuf>| {
            if let Some(path) = path {
                *path = folder.join(&*path);
            }
        };
        for cluster in config.clusters.iter_mut().flatten() {
            absolute(&mut cluster.cluster.certificate_authority);
        }
        for NamedUser { user, .. } in config.users.iter_mut().flatten() {
            absolute(&mut user.client_certificate);
            absolute(&mut user.client_key);
            absolute(&mut user.token_file);
            // A command without a slash is looked for in PATH.
            if let Some(exec) = user.exec.as_mut().filter(|exec| exec.command.contains('/')) {
                exec.command = folder.join(&exec.command).display().to_string();
            }
        }
        Ok(config)
    }

    fn merge(&mut self, other: Kubeconfig) {
        let current = other.current_context.filter(|name| !name.is_empty());
        self.current_context = self.current_context.take().or(current);
        // The first entry with a name is found first.
        self.clusters.get_or_insert_default().extend(other.clusters.into_iter().flatten());
        self.contexts.get_or_insert_default().extend(other.contexts.into_iter().flatten());
        self.users.get_or_insert_default().extend(other.users.into_iter().flatten());
    }
}

fn of_value<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(value)
}

impl KubeCluster {
    /// The certificate of the API server's authority, PEM; `None` for the authorities of the
    /// system.
    pub fn authority(&self) -> Result<Option<Vec<u8>>, KubernetesError> {
        content(self.certificate_authority_data.as_deref(), self.certificate_authority.as_deref())
    }
}

impl KubeUser {
    /// The client's certificate and key, PEM.
    pub fn identity(&self) -> Result<Option<Vec<u8>>, KubernetesError> {
        let certificate =
            content(self.client_certificate_data.as_deref(), self.client_certificate.as_deref())?;
        let key = content(self.client_key_data.as_deref(), self.client_key.as_deref())?;
        Ok(certificate
            .zip(key)
            .map(|(certificate, key)| [certificate, b"\n".to_vec(), key].concat()))
    }

    /// The bearer token, which is read anew each time if it is in a file.
    pub fn token(&self) -> Result<Option<String>, KubernetesError> {
        match &self.token_file {
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|why| KubernetesError::File {
                    path: path.clone(),
                    why: why.to_string(),
                })?;
                Ok(Some(text.trim().to_owned()))
            }
            None => Ok(self.token.clone().filter(|token| !token.is_empty())),
        }
    }
}

/// The content of a file that is in the kubeconfig itself, in base64, or beside it.
fn content(data: Option<&str>, path: Option<&Path>) -> Result<Option<Vec<u8>>, KubernetesError> {
    use base64::Engine;
    match (data.filter(|data| !data.is_empty()), path) {
        (Some(data), _) => {
            let decoded = base64::engine::general_purpose::STANDARD.decode(data.trim());
            let wrong = |why| {
                KubernetesError::Options(format!(
                    "the kubeconfig has data that is not base64: {why}"
                ))
            };
            decoded.map(Some).map_err(wrong)
        }
        (None, Some(path)) => {
            let read = std::fs::read(path);
            read.map(Some).map_err(|why| KubernetesError::File {
                path: path.to_owned(),
                why: why.to_string(),
            })
        }
        (None, None) => Ok(None),
    }
}
