//! Expands patterns to the names of local files, objects of a bucket, and files of the cluster. The
//! name of an existing file matches that file only, even if it has special characters.

use eyas_files::{DfsClient, FilesErrorKind};
use eyas_store::{Glob, GlobError, Storage, StorageErrorKind};
use eyas_types::Name;
use eyas_types::dfs::{FileName, FileNameError};
use eyas_types::named::NAMED;
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
pub(crate) fn literal_prefix(pattern: &[u8]) -> &[u8] {
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
    let is_listed = [&b"s3://"[..], b"eyas:///", NAMED.as_bytes()];
    if is_listed.iter().any(|scheme| pattern.starts_with(scheme)) && is_pattern(pattern) {
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

/// The files of the cluster to read, as [`cluster_files`]. A name or pattern that only files of
/// this machine have is refused with the command that copies them to the cluster.
///
/// # Errors
/// As [`cluster_files`], or if the files are only on this machine.
pub async fn cluster_files_to_read(
    files: &DfsClient,
    pattern: &str,
) -> Result<Vec<FileName>, ClusterFilesError> {
    let found = cluster_files(files, pattern).await;
    let local = local_files(pattern);
    match (&found, local) {
        (Ok(names), Some(local)) if !is_pattern(pattern.as_bytes()) => {
            match files.stat(&names[0]).await {
                Err(error) if error.kind == FilesErrorKind::NotFound => Err(local),
                _ => found,
            }
        }
        (Err(ClusterFilesError::NoMatch(_) | ClusterFilesError::Name(_)), Some(local)) => {
            Err(local)
        }
        _ => found,
    }
}

/// The error for files of this machine in place of files of the cluster, if there are any.
fn local_files(pattern: &str) -> Option<ClusterFilesError> {
    let local = files_of(&pattern.into()).ok()?;
    let first = local.first().filter(|first| !first.is_url())?;
    let last = first.rsplit(|byte| *byte == b'/').next()?;
    let name = String::from_utf8_lossy(last).into_owned();
    Some(ClusterFilesError::Local { pattern: pattern.to_owned(), first: first.clone(), name })
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
    /// The files are on this machine and not in the cluster.
    #[error(
        "the cluster has no file `{pattern}`, but this machine has: copy it to the cluster first, \
         with `eyas dfs put {first} /{name}`, and then name /{name}"
    )]
    Local {
        /// The name or pattern.
        pattern: String,
        /// The first file of this machine.
        first: Name,
        /// Its name without folders.
        name: String,
    },
    /// The file system does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_this_machine_are_told_from_those_of_the_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("big.log"), "").unwrap();
        for pattern in [path("big.log"), path("*.log")] {
            let said = local_files(&pattern).expect("there is one").to_string();
            let says = format!(
                "the cluster has no file `{pattern}`, but this machine has: copy it to the cluster \
                 first, with `eyas dfs put {} /big.log`, and then name /big.log",
                path("big.log")
            );
            assert_eq!(said, says);
        }
        for pattern in [path("none.log"), path("*.none"), "eyas:///big.log".into()] {
            assert!(local_files(&pattern).is_none(), "{pattern}");
        }
    }
}
