//! `eyas catalog …`: shows which executors hold an object, and keeps names of files, each with the
//! places of its content.

use std::fmt::Display;
use std::path::PathBuf;

use clap::Subcommand;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::named::{InvalidNameEntry, NAMED, check_name};
use eyas_client::types::object::is_kept_name;
use eyas_client::types::units::{format_count, parse_bytes};
use eyas_client::types::{Name, NameChange, ObjectId, Sha256};
use eyas_client::view::ObjectView;
use eyas_client::{
    Client, Draft, FileNamesError, ListLine, bare_name, change_names, find_names, lines_of,
    url_of_place,
};
use eyas_store::{name_of, path_of, url_of};
use serde::Deserialize;

use crate::connect::{connect, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::print::out;
use crate::{show, words};

#[derive(Subcommand)]
pub(crate) enum CatalogCommand {
    /// Show which executors hold an object, and which are receiving it
    Show {
        /// The object's id, URL or path; or eyas://JOB/TASK/FILE for an output that is kept in the
        /// cluster, where JOB may be `last`
        #[arg(value_parser = words::name())]
        object: Name,
    },
    /// Register places of a file under a name, which inputs of jobs may be: lfn://NAME
    ///
    /// All places have the same content. A node reads it from the place that it measures to be the
    /// fastest, and passes over a place that fails or has other content. Registering a name again
    /// adds places.
    Register {
        /// The name, such as survey/frame-001.fits
        #[arg(value_parser = words::name())]
        name: Name,
        /// Paths, or file, http, https or s3 URLs, of the content; NODE:/PATH for a file on the own
        /// disk of a node, by the name of its executor or host
        #[arg(required = true, value_name = "URL", value_parser = words::name())]
        places: Vec<Name>,
        /// Size of the content; if it is not given, it is looked up when a job is submitted
        #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
        size: Option<u64>,
        /// SHA-256 of the content: nodes refuse any other content
        #[arg(long, value_name = "HEX")]
        sha256: Option<Sha256>,
    },
    /// Remove places of a name, or the name with all of its places
    Unregister {
        /// The name
        #[arg(value_parser = words::name())]
        name: Name,
        /// The places to remove; if none is given, the name is removed
        #[arg(value_name = "URL", value_parser = words::name())]
        places: Vec<Name>,
    },
    /// List names with their places, and why executors passed places over
    Query {
        /// A name, or a pattern in quotes, such as 'survey/*.fits'; all names if it is missing
        #[arg(value_name = "NAME|PATTERN", value_parser = words::name())]
        pattern: Option<Name>,
    },
    /// Register the names in a file: all of them, or none
    ///
    /// A line is `NAME URL…`, and may end with `size=BYTES` and `sha256=HEX`, or is a JSON object
    /// {"name": …, "places": [URL, …], "size_bytes": …, "sha256": …}. Lines that begin with # are
    /// skipped.
    Import {
        /// The file; `-` for standard input
        #[arg(value_parser = words::name())]
        file: Name,
    },
}

pub(crate) async fn catalog(
    command: CatalogCommand,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    match command {
        CatalogCommand::Show { object } => show_object(object, global).await,
        CatalogCommand::Register { name, places, size, sha256 } => {
            let places = places.iter().map(url_of_place).collect::<Result<_, _>>()?;
            let name = bare_name(&name);
            let change =
                NameChange::Register { name: name.clone(), places, size_bytes: size, sha256 };
            change_one_name(change, global).await?;
            done(&format!("{NAMED}{name} is registered."), global)
        }
        CatalogCommand::Unregister { name, places } => {
            let places = places.iter().map(url_of_place).collect::<Result<_, _>>()?;
            let name = bare_name(&name);
            let change = NameChange::Unregister { name: name.clone(), places };
            change_one_name(change, global).await?;
            done(&format!("{NAMED}{name} is unregistered."), global)
        }
        CatalogCommand::Query { pattern } => query(pattern, global).await,
        CatalogCommand::Import { file } => import(&file, global).await,
    }
}

async fn change_one_name(change: NameChange, global: &GlobalArgs) -> Result<u64, CliError> {
    Ok(change_names(&mut connect(global).await?, vec![change]).await?)
}

/// Says that it is done.
fn done(what: &str, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    if global.json {
        show::json("done", &true)?;
    } else {
        out!("{what}")?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn query(pattern: Option<Name>, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let pattern = pattern.as_ref().map(bare_name);
    let found = find_names(&mut connect(global).await?, pattern.as_ref()).await?;
    if let (Some(name), true) = (&pattern, found.is_empty()) {
        return Err(format!(
            "no name is or matches `{name}`: `eyas catalog query` lists all names"
        )
        .into());
    }
    if global.json {
        show::json("names", &found)?;
    } else {
        show::names(&found)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Registers what a file says. An error names the line.
async fn import(file: &Name, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let at = |line: usize, why: &dyn Display| format!("{file}, line {line}: {why}");
    let (mut lines, mut changes) = (Vec::new(), Vec::new());
    for ListLine { number, columns } in lines_of(file, None)? {
        let Some(change) = change_of(&columns[0]).map_err(|why| at(number, &why))? else {
            continue;
        };
        lines.push(number);
        changes.push(change);
    }
    if changes.is_empty() {
        return Err(format!("{file} has no names: write lines such as `NAME URL URL`").into());
    }
    let count = match change_names(&mut connect(global).await?, changes).await {
        Ok(count) => count,
        Err(FileNamesError::Change { index, why }) => {
            let line = lines.get(index).copied().unwrap_or_default();
            return Err(format!("{}; no name was registered", at(line, &why)).into());
        }
        Err(error) => return Err(error.into()),
    };
    done(&format!("{} registered.", format_count(count, "name")), global)
}

/// A line of a file of names as JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NameLine {
    name: Name,
    places: Vec<Name>,
    size_bytes: Option<u64>,
    sha256: Option<Sha256>,
}

/// What a line of a file of names registers; nothing if it is empty or a comment.
fn change_of(line: &Name) -> Result<Option<NameChange>, CliError> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    let read = if line.starts_with(b"{") {
        serde_json::from_slice::<NameLine>(line)?
    } else {
        words_of_line(line)?
    };
    let name = bare_name(&read.name);
    check_name(&name)?;
    let places = read.places.iter().map(url_of_place).collect::<Result<Vec<_>, _>>()?;
    if places.is_empty() {
        return Err(InvalidNameEntry::Count(0).into());
    }
    let NameLine { size_bytes, sha256, .. } = read;
    Ok(Some(NameChange::Register { name, places, size_bytes, sha256 }))
}

fn words_of_line(line: &[u8]) -> Result<NameLine, CliError> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let name = words.next().unwrap_or_default().into();
    let mut read = NameLine { name, places: Vec::new(), size_bytes: None, sha256: None };
    for word in words {
        let text = str::from_utf8(word).unwrap_or_default();
        if let Some(size) = text.strip_prefix("size=") {
            read.size_bytes = Some(parse_bytes(size)?);
        } else if let Some(sum) = text.strip_prefix("sha256=") {
            read.sha256 = Some(sum.parse()?);
        } else {
            read.places.push(word.into());
        }
    }
    Ok(read)
}

async fn show_object(object: Name, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let id: Option<ObjectId> = object.as_str().and_then(|object| object.parse().ok());
    let mut client = connect(global).await?;
    let source = match id {
        Some(_) => Name::default(),
        // The `eyas://` name of a kept output is its source.
        None if is_kept_name(&object) => eyas_client::numbered(&mut client, &object).await?,
        None if object.is_url() => url_of(&object)?,
        None => {
            let path: PathBuf =
                std::env::current_dir()?.join(path_of(&object)).components().collect();
            url_of(&name_of(path))?
        }
    };
    let mut objects = ask_catalog(&mut client, id, source).await?;
    if objects.is_empty() && id.is_none() && !is_kept_name(&object) {
        objects = find_by_version(&mut client, &object, global).await?;
    }
    if objects.is_empty() {
        return Err(format!(
            "the catalog has no object `{object}`: no job has named it, and no executor holds it"
        )
        .into());
    }
    if global.json {
        show::json("objects", &objects)?;
    } else {
        show::objects(&objects)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn ask_catalog(
    client: &mut Client,
    object: Option<ObjectId>,
    source: Name,
) -> Result<Vec<ObjectView>, CliError> {
    match client.ask(FromClient::Catalog { object, source }).await? {
        ToClient::Objects(objects) => Ok(objects),
        _ => unexpected(),
    }
}

/// Looks up an object by its id, which is made from its source and present version. The dispatcher
/// knows an object that no job reads only by its id.
async fn find_by_version(
    client: &mut Client,
    source: &Name,
    global: &GlobalArgs,
) -> Result<Vec<ObjectView>, CliError> {
    let mut draft = Draft::new("catalog").on_cluster(&global.cluster()?);
    if draft.look_up(std::slice::from_ref(source)).await.is_err() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for object in draft.into_objects() {
        let views = ask_catalog(client, Some(object.id()), Name::default()).await?;
        found.extend(
            views
                .into_iter()
                .map(|view| ObjectView { source: Some(object.source.clone()), ..view }),
        );
    }
    Ok(found)
}
