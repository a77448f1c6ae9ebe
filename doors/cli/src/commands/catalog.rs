//! `eyas catalog …`: shows which executors hold an object.

use std::path::PathBuf;

use clap::Subcommand;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::object::is_kept_name;
use eyas_client::types::{Name, ObjectId};
use eyas_client::view::ObjectView;
use eyas_client::{Client, Draft};
use eyas_store::{name_of, path_of, url_of};

use crate::connect::{connect, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
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
}

pub(crate) async fn catalog(
    command: CatalogCommand,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    let CatalogCommand::Show { object } = command;
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
