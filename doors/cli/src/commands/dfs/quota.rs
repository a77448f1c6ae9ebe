//! `eyas dfs quota`: limits on everything below a folder.

use eyas_client::files::FolderUsage;
use eyas_client::types::dfs::{FileName, Quota};
use eyas_client::types::units::format_bytes;
use eyas_client::view::files::QuotaView;

use super::DfsSession;
use super::arguments::QuotaCommand;
use crate::error::CliError;
use crate::print::say;
use crate::show::{self, Table};

impl DfsSession {
    pub(super) async fn quota(&self, command: QuotaCommand) -> Result<(), CliError> {
        match command {
            QuotaCommand::Set { folder, bytes, files } => {
                Ok(self.files.set_quota(&folder, Some(Quota { bytes, files })).await?)
            }
            QuotaCommand::Remove { folder } => Ok(self.files.set_quota(&folder, None).await?),
            QuotaCommand::Show { folder } => self.show_quotas(folder).await,
        }
    }

    async fn show_quotas(&self, folder: Option<FileName>) -> Result<(), CliError> {
        let folders = match folder {
            Some(folder) => {
                let quota = self.files.lookup(&folder).await?.record.quota;
                vec![(folder, quota.unwrap_or_default())]
            }
            None => {
                let entries = self.files.list_entries("").await?;
                entries.into_iter().filter_map(|entry| Some((entry.name, entry.quota?))).collect()
            }
        };
        let mut views = Vec::with_capacity(folders.len());
        for (folder, Quota { bytes, files }) in folders {
            let FolderUsage { bytes: used_bytes, files: used_files } =
                self.files.folder_usage(folder.as_str()).await?;
            views.push(QuotaView { folder, bytes, used_bytes, files, used_files });
        }
        if self.json {
            return show::json("quotas", &views);
        }
        if views.is_empty() {
            say!("no folder has a quota");
            return Ok(());
        }
        let mut table = Table::new(&["FOLDER", "BYTES", "USED", "FILES", "USED"]);
        let limit = |limit: Option<String>| limit.unwrap_or_else(|| "-".into());
        for QuotaView { folder, bytes, used_bytes, files, used_files } in views {
            let (bytes, files) = (bytes.map(format_bytes), files.map(|files| files.to_string()));
            let row = [
                folder.to_string(),
                limit(bytes),
                format_bytes(used_bytes),
                limit(files),
                used_files.to_string(),
            ];
            table.row(row.into());
        }
        table.print()
    }
}
