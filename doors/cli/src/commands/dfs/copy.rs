//! `eyas dfs cp`: a file from a kept output, or from another file.

use eyas_client::Client;
use eyas_client::files::{CopyOptions, DfsClient, File};
use eyas_client::types::dfs::{DEFAULT_CHUNK_BYTES, DEFAULT_REPLICATION, FileName};
use eyas_client::types::name::scheme_of;
use eyas_client::types::object::is_kept_name;
use eyas_client::types::units::format_bytes;
use eyas_client::types::{Name, shown};

use super::arguments::CopyShapeArgs;
use super::{chunks, views};
use crate::error::CliError;
use crate::print::say;

/// Copies a kept output or a file to a new file.
pub(super) async fn copy(
    client: &mut Client,
    files: &DfsClient,
    (source, to): (&Name, &Name),
    shape: CopyShapeArgs,
    json: bool,
) -> Result<(), CliError> {
    if is_kept_name(to) {
        return Err(format!(
            "{to} would be a kept output, and those are made by tasks alone: run a task with `-o \
             FILE` and `keep = true`, or name a file of the cluster"
        )
        .into());
    }
    let file = if is_kept_name(source) {
        let to = destination(to, source)?;
        let options = CopyOptions {
            format: shape.format,
            chunk_bytes: shape.chunk_size.unwrap_or(DEFAULT_CHUNK_BYTES),
            replication: shape.replicas.unwrap_or(DEFAULT_REPLICATION),
        };
        client.copy_kept(files, source, &to, options).await?
    } else {
        if shape.format.is_some() || shape.chunk_size.is_some() {
            let why =
                "a copy of a file has the chunks of that file: leave --format and --chunk-size out";
            return Err(why.into());
        }
        let from = files.stat(&name_of(source)?).await?;
        let replication = shape.replicas.unwrap_or(from.record.replication);
        files.copy(&from, &destination(to, source)?, replication).await?
    };
    if json {
        return views::files(&[file]);
    }
    let File { name, record, .. } = &file;
    say!("{}: {} in {}", shown(name.as_str()), format_bytes(record.size_bytes()), chunks(&file));
    Ok(())
}

/// The name of the new file. A folder gets a file with the last part of the source's name.
fn destination(to: &Name, source: &Name) -> Result<FileName, CliError> {
    if !to.ends_with(b"/") {
        return name_of(to);
    }
    let base = source.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name_of(&Name::concat(&[to, base]))
}

/// The name of a file of the cluster, with or without `eyas://` before it.
fn name_of(name: &Name) -> Result<FileName, CliError> {
    let path = match scheme_of(name) {
        Some((b"eyas", path)) => path,
        Some(_) => {
            return Err(format!(
                "{name} is no file of the cluster: `eyas dfs put` copies local files"
            )
            .into());
        }
        None => name,
    };
    let path = str::from_utf8(path)
        .map_err(|_| format!("{name} is not UTF-8, as names of files in the cluster are"))?;
    Ok(path.parse()?)
}
