//! The names of a cluster's files, `lfn://NAME`: listed and changed.

use eyas_store::{Glob, GlobError};
use eyas_types::named::NAMED;
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
