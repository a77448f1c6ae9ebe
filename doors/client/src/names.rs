//! The names of a cluster's files, `lfn://NAME`: listed and changed.

use std::io;
use std::path::PathBuf;

use eyas_store::{Glob, GlobError, StorageError, name_of, path_of, url_of};
use eyas_types::named::{InvalidNameEntry, NAMED, check_place, name_in, on_disk_of};
use eyas_types::{Name, NameChange};
use eyas_wire::client::{FromClient, NAMES_PART_BYTES, ToClient};
use eyas_wire::frame::in_parts_of;
use eyas_wire::view::NamedFileView;
use thiserror::Error;

use crate::client::Client;
use crate::client_error::ClientError;
use crate::globs::{is_pattern, literal_prefix};

/// Why names of files are not listed or changed.
#[derive(Debug, Error)]
pub enum FileNamesError {
    /// The dispatcher does not answer, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A change cannot be made. None was made.
    #[error("{why}")]
    Change {
        /// The number of the change, from 0.
        index: usize,
        /// The reason.
        why: String,
    },
    /// The text is not a pattern.
    #[error(transparent)]
    Pattern(#[from] GlobError),
}

/// Why a text is not the place of a file.
#[derive(Debug, Error)]
pub enum PlaceError {
    /// A path begins at the current folder, which is unknown.
    #[error("the current folder is unknown: {0}")]
    Folder(#[from] io::Error),
    /// Files with names are not at such places.
    #[error(transparent)]
    Entry(#[from] InvalidNameEntry),
    /// It is not a URL.
    #[error(transparent)]
    Url(#[from] StorageError),
}

/// The name of a file, which may be written as the source of an input: `lfn://NAME`.
pub fn bare_name(name: &Name) -> Name {
    name_in(name).map_or_else(|| name.clone(), Name::from)
}

/// The URL of a place. A path begins at the current folder; `NODE:/PATH` is a file on the own disk
/// of a node.
///
/// # Errors
/// If it is no place of a file.
pub fn url_of_place(place: &Name) -> Result<Name, PlaceError> {
    let url = if let Some(url) = on_disk_of_node(place) {
        url
    } else if place.is_url() {
        place.clone()
    } else {
        let path: PathBuf = std::env::current_dir()?.join(path_of(place)).components().collect();
        url_of(&name_of(path))?
    };
    check_place(&url)?;
    match on_disk_of(&url) {
        Some(_) => Ok(url),
        None => Ok(url_of(&url)?),
    }
}

/// The URL of `NODE:/PATH`, a file on the own disk of a node.
fn on_disk_of_node(place: &Name) -> Option<Name> {
    let (node, path) = place.split_at(place.iter().position(|byte| *byte == b':')?);
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let is_path = path.starts_with(b":/") && !path.starts_with(b"://");
    (is_path && !node.is_empty() && node.iter().all(is_name))
        .then(|| Name::concat(&[b"file://", node, &path[1..]]))
}

/// The files whose names match a pattern, in their order; all files without a pattern. The name
/// of a file matches that file only.
///
/// # Errors
/// If the text is not a pattern, or as [`Client::look_up_names`].
pub async fn find_names(
    client: &mut Client,
    pattern: Option<&Name>,
) -> Result<Vec<NamedFileView>, FileNamesError> {
    let Some(pattern) = pattern else {
        let mut found = Vec::new();
        client.each_name_part(&Name::default(), |part| found.extend(part)).await?;
        return Ok(found);
    };
    if !is_pattern(pattern) {
        return Ok(client.look_up_names(std::slice::from_ref(pattern)).await?);
    }
    let url = |name: &[u8]| Name::concat(&[NAMED.as_bytes(), name]);
    let glob = Glob::parse(&url(pattern))?;
    let mut found = Vec::new();
    let matching = |part: Vec<NamedFileView>| {
        found.extend(part.into_iter().filter(|file| glob.names(&url(&file.name))));
    };
    client.each_name_part(&literal_prefix(pattern).into(), matching).await?;
    Ok(found)
}

/// Changes names of files: makes all changes, or none. Returns their number.
///
/// # Errors
/// If a change cannot be made, the dispatcher is of an earlier version, or the connection ends.
pub async fn change_names(
    client: &mut Client,
    changes: Vec<NameChange>,
) -> Result<u64, FileNamesError> {
    client.check_names()?;
    let size_of = |change: &NameChange| size_of::<NameChange>() + change.size_of_texts();
    let mut parts = in_parts_of(NAMES_PART_BYTES, changes, size_of).into_iter();
    loop {
        let changes = parts.next().unwrap_or_default();
        let is_last = parts.len() == 0;
        match client.ask(FromClient::ChangeNames { changes, is_last }).await? {
            ToClient::Done(count) if is_last => return Ok(count),
            ToClient::Done(_) => {}
            ToClient::NamesRefused { index, why } => {
                return Err(FileNamesError::Change { index: index as usize, why });
            }
            _ => return Err(ClientError::Unexpected.into()),
        }
    }
}
