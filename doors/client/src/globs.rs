//! Expands patterns to the names of local files, objects of a bucket, and files of the cluster. The
//! name of an existing file matches that file only, even if it has special characters.

use eyas_files::{DfsClient, FilesErrorKind};
use eyas_store::{Glob, GlobError, Storage, StorageErrorKind};
use eyas_types::Name;
use eyas_types::dfs::{FileName, FileNameError};
use thiserror::Error;

use crate::client_error::ClientError;
use crate::sources::{SourceError, files_of, wrong_pattern};

/// Whether a name has special characters.
pub(crate) fn is_pattern(name: &[u8]) -> bool {
    name.iter().any(is_special)
}

fn is_special(byte: &u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[')
}

/// The part of a pattern before its first special character.
fn literal_prefix(pattern: &[u8]) -> &[u8] {
    &pattern[..pattern.iter().position(is_special).unwrap_or(pattern.len())]
}

/// The files or objects that match a pattern, sorted by name. `name` is the pattern without
/// escapes: if a file or object with this name exists, the result is that name only.
///
/// # Errors
/// If nothing matches, or a folder or bucket cannot be listed.
pub(crate) async fn find(
    storage: &Storage,
    name: &Name,
    pattern: &Name,
) -> Result<Vec<Name>, SourceError> {
    if (pattern.starts_with(b"s3://") || pattern.starts_with(b"eyas:///")) && is_pattern(pattern) {
        return find_objects(storage, name, pattern).await;
    }
    let (name, sought) = (name.clone(), pattern.clone());
    // Listing large folders, or folders on slow file systems, blocks for long.
    let found = tokio::task::spawn_blocking(move || {
        if eyas_store::path_of(&name).exists() {
            return Ok(vec![name]);
        }
        files_of(&sought)
    });
    found
        .await
        .map_err(|e| SourceError::Unreadable { what: pattern.clone(), why: e.to_string() })?
}

async fn find_objects(
    storage: &Storage,
    name: &Name,
    pattern: &Name,
) -> Result<Vec<Name>, SourceError> {
    match storage.stat(name).await {
        Ok(_) => return Ok(vec![name.clone()]),
        Err(error)
            if matches!(error.kind, StorageErrorKind::NotFound | StorageErrorKind::Invalid) => {}
        Err(error) => return Err(error.into()),
    }
    if pattern.starts_with(b"s3://") {
        // Patterns pass over empty parts and `.`, which keys of objects may have.
        eyas_store::url_of(pattern)?;
    }
    let glob = Glob::parse(pattern).map_err(|e| wrong_pattern(pattern, e))?;
    let mut found = storage.list(&literal_prefix(pattern).into()).await?;
    found.retain(|url| glob.names(url));
    found.sort_unstable();
    if found.is_empty() {
        return Err(SourceError::NoMatch(pattern.clone()));
    }
    Ok(found)
}

/// The files of the cluster that match a pattern, sorted by name. A text without special characters
/// is returned as a name, whether or not the file exists.
///
/// # Errors
/// If the text cannot be a name, a pattern matches no file, or the file system does not answer.
pub async fn cluster_files(
    files: &DfsClient,
    pattern: &str,
) -> Result<Vec<FileName>, ClusterFilesError> {
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
    if found.is_empty() {
        return Err(ClusterFilesError::NoMatch(pattern.to_owned()));
    }
    Ok(found)
}

/// Why files of the cluster cannot be listed.
#[derive(Debug, Error)]
pub enum ClusterFilesError {
    /// The text cannot be the name of a file.
    #[error(transparent)]
    Name(#[from] FileNameError),
    /// The text is not a valid pattern.
    #[error(transparent)]
    Pattern(#[from] GlobError),
    /// No file matches the pattern.
    #[error("no file of the cluster matches `{0}`: `eyas dfs ls` lists the files")]
    NoMatch(String),
    /// The file system does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
}
