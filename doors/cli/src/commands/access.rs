//! `eyas access …`: shows, replaces and revokes the cluster's keys.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use eyas_client::messages::{FromClient, KeysRequest, ToClient};
use eyas_client::types::access::{KeyId, KeyRole};
use eyas_client::types::units::{format_duration_us, parse_duration_us};
use eyas_session::private::PrivateFolder;
use eyas_wire::trust::SecretText;
use eyas_wire::view::{KeyState, KeyView};

use crate::clock::unix_ms;
use crate::connect::{connect, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::print::say;
use crate::show::{self, Table};

#[derive(Subcommand)]
pub(crate) enum AccessCommand {
    /// List the cluster's keys, or write an access file for a role
    Show {
        /// Write an access file for this role: admin, submit, read or executor
        #[arg(long, value_name = "ROLE", requires = "output")]
        role: Option<KeyRole>,
        /// Write the access file to FILE, with mode 0600; it holds a secret key
        #[arg(long, short = 'o', value_name = "FILE", requires = "role")]
        output: Option<PathBuf>,
    },
    /// Replace keys by new keys. Connected executors get the new key; clients need the new access
    /// file
    Rotate {
        /// Replace only the key of this role [default: all roles]
        #[arg(long, value_name = "ROLE")]
        role: Option<KeyRole>,
        /// Accept the old keys for this long
        #[arg(
            long,
            value_name = "DURATION",
            default_value = "10min",
            value_parser = parse_duration_us
        )]
        grace: u64,
    },
    /// Revoke a key, and end all sessions that were opened with it, including those of executors
    Revoke {
        /// The key's id, as `eyas access show` lists it
        key: KeyId,
    },
}

pub(crate) async fn access(what: AccessCommand, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    match what {
        AccessCommand::Show { role: Some(role), output: Some(file) } => {
            let ToClient::Access(SecretText(text)) =
                ask(KeysRequest::Issue { role }, global).await?
            else {
                return unexpected();
            };
            write(&file, &text)?;
            if global.json {
                show::json("access_file", &file)?;
            } else {
                say!("wrote an access file of role {role} to {}", file.display());
            }
        }
        AccessCommand::Show { .. } => print(&keys(KeysRequest::List, global).await?, global)?,
        AccessCommand::Rotate { role, grace } => {
            let grace_s = Duration::from_micros(grace).as_secs();
            let keys = keys(KeysRequest::Rotate { role, grace_s }, global).await?;
            print(&keys, global)?;
            say!(
                "the cluster's folder has the new access file, and connected executors have a new \
                 key. Old access files are accepted for {}; write new ones with `eyas access show \
                 --role ROLE -o FILE`",
                format_duration_us(grace_s * 1_000_000)
            );
        }
        AccessCommand::Revoke { key } => {
            print(&keys(KeysRequest::Revoke { key }, global).await?, global)?;
            say!(
                "sessions of {key} have ended. Restart executors that were started with it, from \
                 an access file that `eyas access show --role executor -o FILE` writes"
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn ask(request: KeysRequest, global: &GlobalArgs) -> Result<ToClient, CliError> {
    Ok(connect(global).await?.ask(FromClient::Keys(request)).await?)
}

async fn keys(request: KeysRequest, global: &GlobalArgs) -> Result<Vec<KeyView>, CliError> {
    match ask(request, global).await? {
        ToClient::Keys(keys) => Ok(keys),
        _ => unexpected(),
    }
}

fn write(file: &Path, text: &str) -> Result<(), CliError> {
    let name =
        file.file_name().ok_or_else(|| format!("{} is not the name of a file", file.display()))?;
    let folder = PrivateFolder::make(file.parent().unwrap_or(Path::new(".")))?;
    Ok(folder.write(name, text.as_bytes())?)
}

fn print(keys: &[KeyView], global: &GlobalArgs) -> Result<(), CliError> {
    if global.json {
        return show::json("keys", keys);
    }
    let now_ms = unix_ms();
    let mut table = Table::new(&["KEY", "ROLE", "AGE", "STATE"]);
    for key in keys {
        let age = format_duration_us(now_ms.saturating_sub(key.made_unix_ms) * 1000);
        let state = match (key.state, key.until_unix_ms) {
            (KeyState::Retiring, Some(until)) => {
                format!("accepted for {}", format_duration_us(until.saturating_sub(now_ms) * 1000))
            }
            (state, _) => state.name().into(),
        };
        table.row(vec![key.key.clone(), key.role.clone(), age, state]);
    }
    table.print()
}
