//! Requests to the API server of a Kubernetes cluster.

use std::error::Error;
use std::process::Stdio;
use std::time::Duration;

use eyas_wire::pool::KubernetesOptions;
use reqwest::{Certificate, Client, ClientBuilder, Identity, Method, Proxy, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Mutex;

use super::config::{KubeContext, KubeEnvironment, KubeExec};
use super::error::KubernetesError;
use super::states::KubeList;

/// An answer must come within this time.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// A connection must be made within this time.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// A program that prints credentials must end within this time.
const CREDENTIALS_DEADLINE: Duration = Duration::from_secs(60);
/// Most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Objects in one part of a list.
const LIST_PART: usize = 500;
/// Last lines of a log that are read.
const LOG_LINES: &str = "5000";
/// Characters of a message that are shown.
const MAX_SAID: usize = 2_000;

/// A kind of objects in the pool's namespace.
#[derive(Clone, Copy, Debug)]
pub(super) enum KubeResource {
    Jobs,
    Pods,
    Secrets,
    Events,
}

/// The API server of a pool. A connection is made when it is needed, and again when its credentials
/// are refused.
#[derive(Debug)]
pub(super) struct ApiServer {
    options: KubernetesOptions,
    connection: Mutex<Option<ApiConnection>>,
}

#[derive(Clone, Debug)]
struct ApiConnection {
    client: Client,
    server: String,
    namespace: String,
    context: String,
    /// The value of the header `Authorization`.
    authorization: Option<String>,
}

impl KubeResource {
    fn path(self, namespace: &str) -> String {
        let (group, name) = match self {
            KubeResource::Jobs => ("/apis/batch/v1", "jobs"),
            KubeResource::Pods => ("/api/v1", "pods"),
            KubeResource::Secrets => ("/api/v1", "secrets"),
            KubeResource::Events => ("/api/v1", "events"),
        };
        format!("{group}/namespaces/{namespace}/{name}")
    }
}

impl ApiServer {
    pub fn new(options: KubernetesOptions) -> Self {
        ApiServer { options, connection: Mutex::default() }
    }

    /// Where requests go, for messages.
    pub async fn place(&self) -> Result<String, KubernetesError> {
        let connection = self.connection(false).await?;
        Ok(format!("namespace {} of {}", connection.namespace, connection.server))
    }

    /// Makes an object, or asks whether it could be made.
    pub async fn create(
        &self,
        what: KubeResource,
        object: &Value,
        is_tried: bool,
    ) -> Result<Value, KubernetesError> {
        let query: &[_] = if is_tried { &[("dryRun", "All")] } else { &[] };
        self.call(Method::POST, what, "", query, Some(object)).await
    }

    /// The objects with these labels or fields, in parts.
    pub async fn list<T: DeserializeOwned>(
        &self,
        what: KubeResource,
        selector: (&str, &str),
    ) -> Result<Vec<T>, KubernetesError> {
        let (mut all, mut from) = (Vec::new(), String::new());
        let limit = LIST_PART.to_string();
        loop {
            let query = [selector, ("limit", &limit), ("continue", &from)];
            let query = if from.is_empty() { &query[..2] } else { &query[..] };
            let part: KubeList<T> = self.call(Method::GET, what, "", query, None).await?;
            all.extend(part.items);
            match part.metadata.next.filter(|next| !next.is_empty()) {
                Some(next) => from = next,
                None => return Ok(all),
            }
        }
    }

    /// Deletes an object; what it owns is deleted later.
    pub async fn delete(
        &self,
        what: KubeResource,
        name: &str,
        is_tried: bool,
    ) -> Result<(), KubernetesError> {
        let query = [("propagationPolicy", "Background"), ("dryRun", "All")];
        let query = if is_tried { &query[..] } else { &query[..1] };
        self.call::<Value>(Method::DELETE, what, &format!("/{name}"), query, None).await.map(|_| ())
    }

    /// The end of what the containers of a Pod have printed.
    pub async fn log(&self, pod: &str, most_bytes: u64) -> Result<String, KubernetesError> {
        let bytes = most_bytes.to_string();
        let query =
            [("limitBytes", bytes.as_str()), ("tailLines", LOG_LINES), ("container", "eyas")];
        let bytes = self
            .answer(Method::GET, KubeResource::Pods, &format!("/{pod}/log"), &query, None)
            .await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        what: KubeResource,
        rest: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<T, KubernetesError> {
        let bytes = self.answer(method, what, rest, query, body).await?;
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(value),
            Err(why) => {
                let server = self.connection(false).await?.server;
                Err(KubernetesError::Answer { server, why: why.to_string() })
            }
        }
    }

    async fn answer(
        &self,
        method: Method,
        what: KubeResource,
        rest: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Vec<u8>, KubernetesError> {
        let mut is_new = false;
        loop {
            let connection = self.connection(is_new).await?;
            let path = what.path(&connection.namespace) + rest;
            match connection.send(method.clone(), &path, query, body).await {
                // A token may have been replaced in its file, or its program has a new one.
                Err(KubernetesError::Unauthorized { .. }) if !is_new => is_new = true,
                answer => return answer,
            }
        }
    }

    async fn connection(&self, is_new: bool) -> Result<ApiConnection, KubernetesError> {
        let mut connection = self.connection.lock().await;
        match &*connection {
            Some(connection) if !is_new => Ok(connection.clone()),
            _ => Ok(connection.insert(ApiConnection::make(&self.options).await?).clone()),
        }
    }
}

impl ApiConnection {
    async fn make(options: &KubernetesOptions) -> Result<Self, KubernetesError> {
        let context = KubeContext::read(options, &KubeEnvironment::of_process())?;
        let mut token = context.user.token()?;
        let mut identity = context.user.identity()?;
        if let Some(exec) = &context.user.exec {
            let printed = credentials(exec, &context.name).await?;
            token = printed.token.or(token);
            let pair = printed.client_certificate_data.zip(printed.client_key_data);
            identity = pair
                .map(|(certificate, key)| format!("{certificate}\n{key}").into_bytes())
                .or(identity);
        }
        let basic = context.user.username.as_ref().map(|name| {
            use base64::Engine;
            let password = context.user.password.as_deref().unwrap_or_default();
            format!(
                "Basic {}",
                base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"))
            )
        });
        let authorization = token.map(|token| format!("Bearer {token}")).or(basic);
        let mut builder = builder(&context, identity.as_deref())?;
        let mut server = context.cluster.server.trim_end_matches('/').to_owned();
        if let Some(name) = &context.cluster.tls_server_name {
            // The server is asked for by the name in its certificate, and found at its address.
            let unreached =
                |why: String| KubernetesError::NotReached { server: server.clone(), why };
            let mut url = Url::parse(&server).map_err(|e| unreached(e.to_string()))?;
            let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let port = url.port_or_known_default().unwrap_or_default();
            let found = tokio::net::lookup_host((host, port))
                .await
                .map_err(|e| unreached(e.to_string()))?;
            builder = builder.resolve_to_addrs(name, &found.collect::<Vec<_>>());
            url.set_host(Some(name)).map_err(|e| unreached(e.to_string()))?;
            server = url.as_str().trim_end_matches('/').to_owned();
        }
        let client = builder.build().map_err(|e| unusable(&context, "settings", &e))?;
        let KubeContext { name, namespace, .. } = context;
        Ok(ApiConnection { client, server, namespace, context: name, authorization })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Vec<u8>, KubernetesError> {
        let address = format!("{}{path}", self.server);
        let wrong = |why: String| KubernetesError::NotReached { server: self.server.clone(), why };
        let url = Url::parse_with_params(&address, query).map_err(|e| wrong(e.to_string()))?;
        let mut request = self.client.request(method, url).header("Accept", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        let mut answer = request.send().await.map_err(|e| wrong(chain(&e)))?;
        let status = answer.status();
        let mut bytes = Vec::new();
        while let Some(some) = answer.chunk().await.map_err(|e| wrong(chain(&e)))? {
            if bytes.len() + some.len() > MAX_ANSWER_BYTES {
                return Err(wrong(format!("an answer has more than {MAX_ANSWER_BYTES} bytes")));
            }
            bytes.extend_from_slice(&some);
        }
        if status.is_success() {
            return Ok(bytes);
        }
        let says = message(&bytes, status.canonical_reason().unwrap_or_default());
        Err(match status.as_u16() {
            401 => KubernetesError::Unauthorized { context: self.context.clone(), says },
            403 => KubernetesError::Forbidden { says },
            status => KubernetesError::Refused { status, says },
        })
    }
}

fn unusable(context: &KubeContext, what: &str, why: &dyn Error) -> KubernetesError {
    KubernetesError::Options(format!(
        "context `{}` has {what} that cannot be used: {}",
        context.name,
        chain(why)
    ))
}

fn builder(
    context: &KubeContext,
    identity: Option<&[u8]>,
) -> Result<ClientBuilder, KubernetesError> {
    let wrong = |what: &str, why: &dyn Error| unusable(context, what, why);
    // Fails if the process has a default provider already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("eyas/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_DEADLINE)
        .timeout(ANSWER_DEADLINE);
    if let Some(authority) = context.cluster.authority()? {
        let certificates =
            Certificate::from_pem_bundle(&authority).map_err(|e| wrong("a certificate", &e))?;
        builder = builder.tls_certs_only(certificates);
    } else if context.cluster.server.starts_with("http:") {
        builder = builder.tls_certs_only([]);
    }
    if let Some(identity) = identity {
        builder = builder
            .identity(Identity::from_pem(identity).map_err(|e| wrong("a client certificate", &e))?);
    }
    if let Some(proxy) = &context.cluster.proxy_url {
        builder = builder.proxy(Proxy::all(proxy).map_err(|e| wrong("a proxy", &e))?);
    }
    Ok(builder.tls_danger_accept_invalid_certs(context.cluster.insecure_skip_tls_verify))
}

/// What a program with credentials prints: an `ExecCredential`.
#[derive(Debug, Deserialize)]
struct ExecCredential {
    status: ExecStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs the program that has the credentials of a context.
async fn credentials(exec: &KubeExec, context: &str) -> Result<ExecStatus, KubernetesError> {
    let failed = |says: String| KubernetesError::Credentials {
        program: exec.command.clone(),
        context: context.into(),
        says: shortened(&says),
    };
    let info = json!({
        "apiVersion": exec.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": false},
    });
    let mut command = Command::new(&exec.command);
    command.args(exec.args.iter().flatten()).env("KUBERNETES_EXEC_INFO", info.to_string());
    command.envs(exec.env.iter().flatten().map(|variable| (&variable.name, &variable.value)));
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(CREDENTIALS_DEADLINE, command.output()).await;
    let output = output
        .map_err(|_| failed(format!("no answer within {} s", CREDENTIALS_DEADLINE.as_secs())))?;
    let output = output.map_err(|why| failed(why.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!(
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    let printed: Result<ExecCredential, _> = serde_json::from_slice(&output.stdout);
    Ok(printed.map_err(|why| failed(format!("it printed no ExecCredential: {why}")))?.status)
}

/// What an API server says of a failure: the message of its `Status`, or its text.
fn message(bytes: &[u8], otherwise: &str) -> String {
    let status: Option<Value> = serde_json::from_slice(bytes).ok();
    let message = status.as_ref().and_then(|status| status["message"].as_str()).map(String::from);
    let text = message.unwrap_or_else(|| String::from_utf8_lossy(bytes).into_owned());
    match shortened(&text) {
        text if text.is_empty() => otherwise.to_owned(),
        text => text,
    }
}

/// The beginning of a text, on one line.
fn shortened(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_SAID).collect()
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    let mut text = error.to_string();
    for cause in causes.map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
