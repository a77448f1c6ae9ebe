//! What patterns name: local files, objects of a bucket, and files of the cluster. A name that exists as it is stands for itself,
//! whatever characters it has.

use eyas_dfs::{DfsClient, FilesErrorKind};
use eyas_store::{Glob, GlobError, Storage, StorageErrorKind};
use eyas_types::Name;
use eyas_types::dfs::{FileName, FileNameError};
use thiserror::Error;

use crate::client::ClientError;
use crate::sources::{SourceError, files_of, wrong_pattern};

/// Whether some character of it makes a name a pattern.
fn is_pattern(name: &[u8]) -> bool {
    name.iter().any(is_special)
}

fn is_special(byte: &u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[')
}

/// What comes before the first character that makes a name a pattern.
fn literal_prefix(pattern: &[u8]) -> &[u8] {
    &pattern[..pattern.iter().position(is_special).unwrap_or(pattern.len())]
}

/// The files or objects that a pattern names, in order of name. `name` is the same without escapes: if there is something of
/// that name, it is meant.
///
/// # Errors
/// If there are none, or one cannot be looked for.
pub(crate) async fn find(storage: &Storage, name: &Name, pattern: &Name) -> Result<Vec<Name>, SourceError> {
    if pattern.starts_with(b"s3://") && is_pattern(pattern) {
        return find_objects(storage, name, pattern).await;
    }
    let (name, sought) = (name.clone(), pattern.clone());
    // Folders may be large, and slow.
    let found = tokio::task::spawn_blocking(move || match eyas_store::path_of(&name).exists() {
        true => Ok(vec![name]),
        false => files_of(&sought),
    });
    found.await.map_err(|e| SourceError::Unreadable { what: pattern.clone(), why: e.to_string() })?
}

async fn find_objects(storage: &Storage, name: &Name, pattern: &Name) -> Result<Vec<Name>, SourceError> {
    match storage.stat(name, None).await {
        Ok(_) => return Ok(vec![name.clone()]),
        Err(error) if matches!(error.kind, StorageErrorKind::NotFound | StorageErrorKind::Invalid) => {}
        Err(error) => return Err(error.into()),
    }
    let glob = Glob::parse(pattern).map_err(|e| wrong_pattern(pattern, e))?;
    let mut found = storage.list(&literal_prefix(pattern).into()).await?;
    found.retain(|url| glob.names(url));
    found.sort_unstable();
    match found.is_empty() {
        true => Err(SourceError::NoMatch(pattern.clone())),
        false => Ok(found),
    }
}

/// The files of the cluster that a pattern names, in order of name. What is no pattern is the name of a file, whether there is
/// one or not.
///
/// # Errors
/// If it is no name, a pattern names no file, or the file system does not answer.
pub async fn cluster_files(files: &DfsClient, pattern: &str) -> Result<Vec<FileName>, ClusterFilesError> {
    let as_it_is = pattern.parse::<FileName>();
    if !is_pattern(pattern.as_bytes()) {
        return Ok(vec![as_it_is?]);
    }
    if let Ok(name) = as_it_is {
        match files.stat(&name).await {
            Ok(_) => return Ok(vec![name]),
            Err(error) if error.kind == FilesErrorKind::NotFound => {}
            Err(error) => return Err(ClientError::from(error).into()),
        }
    }
    let rooted = if pattern.starts_with('/') { pattern.to_owned() } else { format!("/{pattern}") };
    let glob = Glob::parse(rooted.as_bytes())?;
    let literal = &rooted[..literal_prefix(rooted.as_bytes()).len()];
    let folder = literal.rsplit_once('/').map_or("", |(folder, _)| folder);
    let listed = files.list(folder).await.map_err(ClientError::from)?;
    let names = listed.into_iter().map(|listing| listing.name);
    let found: Vec<_> = names.filter(|name| glob.names(name.as_str().as_bytes())).collect();
    match found.is_empty() {
        true => Err(ClusterFilesError::NoMatch(pattern.to_owned())),
        false => Ok(found),
    }
}

/// Why files of the cluster cannot be named.
#[derive(Debug, Error)]
pub enum ClusterFilesError {
    /// It is no name of a file.
    #[error(transparent)]
    Name(#[from] FileNameError),
    /// It is no pattern.
    #[error(transparent)]
    Pattern(#[from] GlobError),
    /// A pattern meets nothing.
    #[error("`{0}` names no file of the cluster: `eyas dfs ls` lists them")]
    NoMatch(String),
    /// The file system does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
}
