//! Why something cannot be done with a Kubernetes cluster.

use std::path::PathBuf;

use thiserror::Error;

/// Something cannot be done with a Kubernetes cluster.
#[derive(Clone, Debug, Error)]
pub enum KubernetesError {
    /// The pool's options cannot be used.
    #[error("{0}")]
    Options(String),
    /// There is no way to the cluster.
    #[error(
        "no Kubernetes cluster is configured: the dispatcher finds no kubeconfig in {looked}, and \
         runs in no Pod. Set KUBECONFIG before you start the dispatcher, or use --kubeconfig"
    )]
    NoConfig {
        /// The file that does not exist.
        looked: String,
    },
    /// A kubeconfig cannot be used.
    #[error("the kubeconfig {path} cannot be used: {why}")]
    Config {
        /// The file.
        path: String,
        /// The mistake in it.
        why: String,
    },
    /// A file that a kubeconfig names, or that a Pod has, cannot be read.
    #[error("cannot read {path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        why: String,
    },
    /// The kubeconfig has no such context.
    #[error("the kubeconfig {path} has no context `{context}`: its contexts are {known}")]
    NoContext {
        /// The file.
        path: String,
        /// The context.
        context: String,
        /// The contexts that there are.
        known: String,
    },
    /// The program that has the credentials did not give them.
    #[error(
        "the program `{program}`, which has the credentials of context `{context}`, failed: {says}"
    )]
    Credentials {
        /// The program.
        program: String,
        /// The context.
        context: String,
        /// What the program has printed.
        says: String,
    },
    /// The template of Pods cannot be used.
    #[error("the template of Pods cannot be used: {0}")]
    Template(String),
    /// The API server does not answer.
    #[error("the API server {server} does not answer: {why}")]
    NotReached {
        /// Its address.
        server: String,
        /// What went wrong.
        why: String,
    },
    /// The credentials are not valid, or no longer.
    #[error(
        "the credentials of context `{context}` are refused (401): {says}. They may have expired: \
         log in to the cluster again, then try again"
    )]
    Unauthorized {
        /// The context.
        context: String,
        /// What the API server says.
        says: String,
    },
    /// The user or service account may not do this.
    #[error(
        "permission denied (403): {says}. examples/kubernetes/rbac.yaml of eyas has a Role with \
         the permissions that a pool needs"
    )]
    Forbidden {
        /// What the API server says: the user, the verb and the resource.
        says: String,
    },
    /// The API server refuses the request.
    #[error("the API server refuses the request ({status}): {says}")]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// What the API server says.
        says: String,
    },
    /// The answer is not one of a Kubernetes API server.
    #[error("the answer of the API server {server} is not understood: {why}")]
    Answer {
        /// Its address.
        server: String,
        /// What is wrong with it.
        why: String,
    },
}

impl KubernetesError {
    /// Whether what was asked for may have been done, or may still be done.
    pub(crate) fn leaves_open(&self) -> bool {
        match self {
            KubernetesError::NotReached { .. } | KubernetesError::Answer { .. } => true,
            KubernetesError::Refused { status, .. } => *status >= 500,
            _ => false,
        }
    }

    /// Whether there is such an object already.
    pub(super) fn is_present(&self) -> bool {
        matches!(self, KubernetesError::Refused { status: 409, .. })
    }

    /// Whether there is no such object.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, KubernetesError::Refused { status: 404, .. })
    }
}
