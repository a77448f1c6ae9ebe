//! `eyas dfs audit`: the acknowledged changes of files.

use eyas_client::files::{ChangeEntry, FilesOrigin};
use eyas_client::types::units::{format_bytes, format_count};
use eyas_client::view::files::ChangeView;

use super::{DfsSession, rooted};
use crate::clock::unix_us;
use crate::error::CliError;
use crate::print::{out, say};
use crate::report::moment;
use crate::show;

impl DfsSession {
    pub(super) async fn audit(&self, folder: &str, since: Option<u64>) -> Result<(), CliError> {
        let now_us = unix_us();
        let since_us = since.map_or(0, |since| now_us.saturating_sub(since));
        let mut changes =
            self.files.changes(&rooted(folder.trim_end_matches('/')), since_us).await?;
        if !changes.absent().is_empty() {
            let nodes: Vec<String> = changes.absent().iter().map(ToString::to_string).collect();
            say!(
                "the changes that were acknowledged by {} are missing: {}. Start their executors \
                 again with their folders",
                format_count(nodes.len() as u64, "unreachable node"),
                nodes.join(", ")
            );
        }
        let mut views = Vec::new();
        while let Some(entry) = changes.next().await? {
            match self.json {
                true => views.push(view(entry)),
                // Printed as they come: there may be many.
                false => print(&view(entry))?,
            }
        }
        if self.json { show::json("changes", &views) } else { Ok(()) }
    }
}

fn view(entry: ChangeEntry) -> ChangeView {
    let ChangeEntry { time_us, holder, principal, door, operation, name, to, size } = entry;
    let door = match door {
        FilesOrigin::Dfs => "dfs",
        FilesOrigin::Task => "task",
        FilesOrigin::Map => "map",
        FilesOrigin::Mount => "mount",
    };
    ChangeView { time_us, holder, principal, door: door.into(), operation, name, to, size }
}

fn print(change: &ChangeView) -> Result<(), CliError> {
    let ChangeView { time_us, holder, principal, door, operation, name, to, size } = change;
    let mut line = format!("{} UTC  {door}  {operation}", moment(time_us / 1000));
    match (name, size) {
        (Some(name), Some(bytes)) => line.push_str(&format!(" {name} ({})", format_bytes(*bytes))),
        (Some(name), None) => line.push_str(&format!(" {name}")),
        (None, size) => line.push_str(&format!(" {}", size.unwrap_or(0))),
    }
    if let Some(to) = to {
        line.push_str(&format!(" to {to}"));
    }
    let user = principal.as_ref().map_or(String::new(), |user| format!(" for {user}"));
    out!("{line}; {holder}{user}")?;
    Ok(())
}
