//! `eyas dfs …`: reads, writes and manages files of the cluster's file system.

use std::collections::BTreeSet;
use std::fs::File as LocalFile;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use eyas_client::cluster_files;
use eyas_client::files::{DfsClient, File, FilesError, FilesErrorKind, Recovery, WriteOptions};
use eyas_client::messages::FromClient;
use eyas_client::types::dfs::{FileName, Format, NodeId};
use eyas_client::types::units::{format_bytes, format_count};
use eyas_store::name_of;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::connect::connect;
use crate::error::{CliError, INTERRUPTED};
use crate::gather::gather;
use crate::global::GlobalArgs;
use crate::interrupt::interrupted;
use crate::print::{self, say};
use crate::show;

mod arguments;
mod views;

use arguments::FileShapeArgs;

pub(crate) use arguments::DfsCommand;

/// Number of bytes at the beginning of a file that decide whether it is text.
const PROBE_BYTES: usize = 8 << 10;

/// Runs the command until it ends or an interrupt comes. An interrupted command leaves no incomplete file.
pub(crate) async fn dfs(command: DfsCommand, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let mut client = connect(global).await?;
    if let DfsCommand::Recover { anew: true, .. } = command {
        client.ask(FromClient::ForgetFiles).await?;
        say!("the next node that joins determines the file system of this cluster, or starts a new one");
        return Ok(ExitCode::SUCCESS);
    }
    let waits = || say!("the dispatcher has just started; waiting for an executor that keeps files");
    let files = client.files_seeing(waits).await?;
    let session = DfsSession { files, json: global.json };
    tokio::select! {
        biased;
        () = interrupted(false) => Ok(ExitCode::from(INTERRUPTED)),
        done = session.act(command) => done,
    }
}

struct DfsSession {
    files: DfsClient,
    json: bool,
}

impl DfsSession {
    async fn act(self, command: DfsCommand) -> Result<ExitCode, CliError> {
        match command {
            DfsCommand::Put { sources, name, recursive, shape } => self.put(&sources, &name, recursive, shape).await?,
            DfsCommand::Get { name, to, recursive, force } => self.get(&name, to, recursive, force).await?,
            DfsCommand::Rm { names, recursive } => self.remove(&names, recursive).await?,
            DfsCommand::Cat { names, recursive, offset, length } => self.cat(&names, recursive, offset, length).await?,
            DfsCommand::Ls { folder } => {
                let folder = rooted(folder.trim_end_matches('/'));
                if !folder.is_empty() {
                    folder.parse::<FileName>()?;
                }
                views::list(&self.files.list(&folder).await?, self.json)?;
            }
            DfsCommand::Show { name } => {
                let file = self.files.stat(&name).await?;
                views::chunks(&file, &self.files.membership().await?, self.json)?;
            }
            DfsCommand::Append { source, name } => self.append(&source, &name).await?,
            DfsCommand::Rename { from, to } => self.files.rename(&from, &to).await?,
            DfsCommand::Stat { name } => views::stat(&self.files.stat(&name).await?, self.json)?,
            DfsCommand::Du { folder } => self.usage(folder).await?,
            DfsCommand::Rebalance { folder } => self.rebalance(&folder).await?,
            DfsCommand::Recover { without, .. } => return self.recover(without.into_iter().collect()).await,
            DfsCommand::Format { .. } => self.remove_all("").await.map(drop)?,
            DfsCommand::Restore { copy, name } => self.restore(&copy, &name).await?,
            DfsCommand::Verify { names, quick } => return self.verify(&names, !quick).await,
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn put(
        &self,
        sources: &[PathBuf],
        name: &str,
        recursive: bool,
        shape: FileShapeArgs,
    ) -> Result<(), CliError> {
        let into_folder = name.ends_with('/') || sources.len() > 1;
        let mut all = Vec::new();
        for source in sources {
            let named = match (into_folder, base_name(source)) {
                (false, _) => name.to_owned(),
                (true, Some(base)) => format!("{}/{base}", name.trim_end_matches('/')),
                (true, None) => {
                    return Err(format!("{} has no file name: give the name of the new file", source.display()).into());
                }
            };
            match source.is_dir() {
                true if recursive => {
                    let mut within = Vec::new();
                    files_within(source, &mut within)?;
                    for path in within {
                        let rest = path.strip_prefix(source)?.to_str().ok_or_else(|| not_unicode(&path))?.to_owned();
                        all.push((path, format!("{}/{rest}", named.trim_end_matches('/'))));
                    }
                }
                true => return Err(format!("{} is a folder: write it with -r", source.display()).into()),
                false => all.push((source.clone(), named)),
            }
        }
        gather(&self.files, shape.replicas.into()).await?;
        let mut put = Vec::new();
        for (source, name) in all {
            let name: FileName = name.parse()?;
            let (input, size_bytes) = open(&source)?;
            let (format, input) = match shape.format {
                Some(format) => (format, input),
                None => guess(&source, input)?,
            };
            let options = WriteOptions { format, chunk_bytes: shape.chunk_size, replication: shape.replicas };
            let bar = self.bar(&name, size_bytes);
            let file = self.files.write(&name, input, options, |bytes| bar.set_position(bytes)).await;
            bar.finish_and_clear();
            let file = file.map_err(|error| of(&source, error))?;
            if !self.json {
                say!("{name}: {} in {}", format_bytes(file.record.size_bytes()), chunks(&file));
            }
            put.push(file);
        }
        if self.json {
            views::files(&put)?;
        }
        Ok(())
    }

    async fn append(&self, source: &Path, name: &FileName) -> Result<(), CliError> {
        let (input, size_bytes) = open(source)?;
        gather(&self.files, self.files.stat(name).await?.record.replication.into()).await?;
        let bar = self.bar(name, size_bytes);
        let file = self.files.append(name, input, |bytes| bar.set_position(bytes)).await;
        bar.finish_and_clear();
        let file = file.map_err(|error| of(source, error))?;
        match self.json {
            true => views::files(&[file])?,
            false => say!("{name}: {} in {}", format_bytes(file.record.size_bytes()), chunks(&file)),
        }
        Ok(())
    }

    async fn get(&self, name: &str, to: Option<PathBuf>, recursive: bool, force: bool) -> Result<(), CliError> {
        if !recursive {
            let names = cluster_files(&self.files, name).await?;
            let [name] = &names[..] else { return self.get_all(&names, to, force).await };
            let file = self.files.stat(name).await?;
            return match to {
                Some(to) if to == Path::new("-") => self.print(&file, 0, file.record.size_bytes()).await,
                Some(to) if to.is_dir() => self.bring(&file, &to.join(name.base_name()), force).await,
                Some(to) => self.bring(&file, &to, force).await,
                None => self.bring(&file, Path::new(name.base_name()), force).await,
            };
        }
        let folder = name.trim_end_matches('/');
        let listed = self.files.list(&rooted(folder)).await?;
        if listed.is_empty() {
            return Err(format!("there is no file in {name}").into());
        }
        let to = to
            .unwrap_or_else(|| PathBuf::from(folder.rsplit('/').next().filter(|last| !last.is_empty()).unwrap_or(".")));
        for listing in listed {
            let rest = listing.name.as_str()[rooted(folder).len()..].trim_start_matches('/');
            // `rest` is empty if `name` is a file and not a folder.
            let place = if rest.is_empty() { to.join(listing.name.base_name()) } else { to.join(rest) };
            let file = self.files.stat(&listing.name).await?;
            if let Some(parent) = place.parent() {
                std::fs::create_dir_all(parent).map_err(|e| format!("cannot create {}: {e}", parent.display()))?;
            }
            self.bring(&file, &place, force).await?;
        }
        Ok(())
    }

    /// Copies the files that match a pattern, each under its own name.
    async fn get_all(&self, names: &[FileName], to: Option<PathBuf>, force: bool) -> Result<(), CliError> {
        let to = to.unwrap_or_default();
        if to == Path::new("-") {
            for name in names {
                let file = self.files.stat(name).await?;
                self.print(&file, 0, file.record.size_bytes()).await?;
            }
            return Ok(());
        }
        let mut known = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !known.insert(name.base_name())) {
            let base = twice.base_name();
            return Err(format!(
                "several files are named {base}: copy the folder with -r, which keeps the folders of the files"
            )
            .into());
        }
        std::fs::create_dir_all(Path::new(".").join(&to))
            .map_err(|e| format!("cannot create {}: {e}", to.display()))?;
        for name in names {
            let file = self.files.stat(name).await?;
            self.bring(&file, &to.join(name.base_name()), force).await?;
        }
        Ok(())
    }

    /// Writes a file under a temporary name, and renames it when it is complete. An existing pipe or device is written
    /// to directly.
    async fn bring(&self, file: &File, place: &Path, force: bool) -> Result<(), CliError> {
        let cannot = |e: std::io::Error| format!("cannot write {}: {e}", place.display());
        match place.metadata() {
            Ok(there) if !there.is_file() => {
                let mut into = LocalFile::options().write(true).open(place).map_err(cannot)?;
                return self.copy(file, &mut into, place).await;
            }
            Ok(_) if !force => {
                return Err(format!("{} already exists: replace it with --force", place.display()).into());
            }
            _ => {}
        }
        let folder = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let landing = tempfile::Builder::new().prefix(".eyas-").suffix(".tmp").tempfile_in(folder);
        let mut landing = landing.map_err(cannot)?;
        self.copy(file, landing.as_file_mut(), place).await?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666 & !umask());
        landing.as_file().set_permissions(mode).map_err(cannot)?;
        match force {
            true => landing.persist(place).map(drop).map_err(|e| cannot(e.error))?,
            false => landing.persist_noclobber(place).map(drop).map_err(|e| cannot(e.error))?,
        }
        if !self.json {
            say!("{} ({})", place.display(), format_bytes(file.record.size_bytes()));
        }
        Ok(())
    }

    async fn copy(&self, file: &File, into: &mut LocalFile, place: &Path) -> Result<(), CliError> {
        let bar = self.bar(&file.name, Some(file.record.size_bytes()));
        let mut reading = self.files.read(file);
        while let Some(part) = reading.next().await? {
            into.write_all(&part).map_err(|e| format!("cannot write {}: {e}", place.display()))?;
            bar.inc(part.len() as u64);
        }
        bar.finish_and_clear();
        Ok(())
    }

    async fn cat(&self, names: &[String], recursive: bool, offset: u64, length: Option<u64>) -> Result<(), CliError> {
        let mut all = Vec::new();
        for name in names {
            match recursive {
                true => all.extend(self.within(name).await?),
                false => all.extend(cluster_files(&self.files, name).await?),
            }
        }
        for name in &all {
            let file = self.files.stat(name).await?;
            let size_bytes = file.record.size_bytes();
            let start = offset.min(size_bytes);
            let end = length.map_or(size_bytes, |length| start.saturating_add(length).min(size_bytes));
            self.print(&file, start, end).await?;
        }
        Ok(())
    }

    /// The files of a folder and its subfolders; an error if there is no file.
    async fn within(&self, folder: &str) -> Result<Vec<FileName>, CliError> {
        let listed = self.files.list(&rooted(folder.trim_end_matches('/'))).await?;
        if listed.is_empty() {
            return Err(format!("there is no file in {folder}").into());
        }
        Ok(listed.into_iter().map(|listing| listing.name).collect())
    }

    async fn print(&self, file: &File, start: u64, end: u64) -> Result<(), CliError> {
        let mut reading = self.files.read_range(file, start..end);
        while let Some(part) = reading.next().await? {
            print::bytes(&part)?;
        }
        Ok(())
    }

    async fn remove(&self, names: &[String], recursive: bool) -> Result<(), CliError> {
        for name in names {
            if !recursive {
                for name in cluster_files(&self.files, name).await? {
                    self.files.remove(&name).await?;
                }
                continue;
            }
            if !self.remove_all(&rooted(name.trim_end_matches('/'))).await? {
                return Err(format!("there is no file in {name}").into());
            }
        }
        Ok(())
    }

    /// Removes the files of a folder; returns whether there were any.
    async fn remove_all(&self, folder: &str) -> Result<bool, CliError> {
        let listed = self.files.list(folder).await?;
        for listing in &listed {
            match self.files.remove(&listing.name).await {
                // Another client has removed the file at the same time.
                Err(error) if error.kind == FilesErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(!listed.is_empty())
    }

    async fn rebalance(&self, folder: &str) -> Result<(), CliError> {
        let mut moved = 0;
        for listing in self.files.list(&rooted(folder.trim_end_matches('/'))).await? {
            let rebalanced = match self.files.stat(&listing.name).await {
                Ok(file) => self.files.rebalance(&file).await,
                Err(error) => Err(error),
            };
            match rebalanced {
                Ok(count) => moved += count,
                // The file was removed or written meanwhile; a new version is placed on the right nodes when written.
                Err(error) if matches!(error.kind, FilesErrorKind::NotFound | FilesErrorKind::Changed) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.json {
            true => show::json("moved", &moved)?,
            false => say!("{} moved", format_count(moved, "replica")),
        }
        Ok(())
    }

    async fn recover(&self, without: BTreeSet<NodeId>) -> Result<ExitCode, CliError> {
        let recovery = self.files.recover(&without).await?;
        if self.json {
            views::recovery(&recovery)?;
        }
        match recovery {
            Recovery::Recovered(members) => {
                say!("the file system continues with {}", format_count(members.len() as u64, "node"));
                Ok(ExitCode::SUCCESS)
            }
            Recovery::Missing(missing) => {
                let words: Vec<_> = missing.iter().map(|node| format!("--without {node}")).collect();
                say!(
                    "nothing was changed: {} missing. To continue without them, and lose the data that only they hold, \
                     run\neyas dfs recover {}",
                    count_missing(missing.len()),
                    words.join(" ")
                );
                Ok(ExitCode::FAILURE)
            }
        }
    }

    async fn usage(&self, folder: Option<String>) -> Result<(), CliError> {
        let listed = self.files.list(&rooted(folder.as_deref().unwrap_or("").trim_end_matches('/'))).await;
        let mut nodes = Vec::new();
        if folder.is_none() {
            let membership = self.files.membership().await?;
            for member in &membership.alive {
                nodes.push(views::node(member, &membership, self.files.usage(member).await.ok()));
            }
            nodes.extend(membership.missing().into_iter().map(views::missing));
            if let (Err(_), false) = (&listed, self.json) {
                // The missing nodes are the reason of the error.
                views::nodes(nodes)?;
                return Err(listed.expect_err("matched above").into());
            }
        }
        let listed = listed?;
        let (count, bytes) = (listed.len(), listed.iter().map(|file| file.size_bytes).sum());
        views::usage(count as u64, bytes, nodes, self.json)
    }

    async fn verify(&self, names: &[String], thoroughly: bool) -> Result<ExitCode, CliError> {
        let mut verified = Vec::new();
        for name in names {
            for listing in self.files.list(&rooted(name.trim_end_matches('/'))).await? {
                let file = match self.files.stat(&listing.name).await {
                    Err(error) if error.kind == FilesErrorKind::NotFound => continue,
                    file => file?,
                };
                let found = self.files.verify(&file, thoroughly).await?;
                verified.push((file.name, found));
            }
        }
        views::verified(&verified, self.json)?;
        let is_good = verified.iter().all(|(_, found)| found.is_good());
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn restore(&self, copy: &Path, name: &FileName) -> Result<(), CliError> {
        let opened = LocalFile::open(copy).map_err(|e| format!("cannot read {}: {e}", copy.display()))?;
        let restored = self.files.restore(name, opened).await.map_err(|error| of(copy, error))?;
        match self.json {
            true => show::json("restored", &restored)?,
            false => say!("{name}: {} restored", format_count(restored as u64, "chunk")),
        }
        Ok(())
    }

    fn bar(&self, name: &FileName, bytes: Option<u64>) -> ProgressBar {
        if self.json {
            return ProgressBar::hidden();
        }
        let style =
            ProgressStyle::with_template("eyas: {msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
        let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr());
        bar.with_style(style.expect("a valid template")).with_message(name.to_string())
    }
}

fn count_missing(nodes: usize) -> String {
    format!("{} {}", format_count(nodes as u64, "node"), if nodes == 1 { "is" } else { "are" })
}

fn chunks(file: &File) -> String {
    format_count(file.record.chunks.len() as u64, "chunk")
}

/// A folder with the slash at its beginning that names have.
fn rooted(folder: &str) -> String {
    match folder.is_empty() || folder.starts_with('/') {
        true => folder.to_owned(),
        false => format!("/{folder}"),
    }
}

fn base_name(path: &Path) -> Option<&str> {
    path.file_name().filter(|name| *name != "-")?.to_str()
}

fn not_unicode(path: &Path) -> CliError {
    format!("the name of `{}` is not UTF-8, and names in the cluster must be: rename the file first", name_of(path))
        .into()
}

fn of(source: &Path, error: FilesError) -> CliError {
    match error.kind {
        FilesErrorKind::Invalid | FilesErrorKind::Local => format!("{}: {error}", source.display()).into(),
        _ => error.into(),
    }
}

/// The files of a folder and its subfolders, in the order of their names. Links to files are followed, links to folders
/// are not.
fn files_within(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), CliError> {
    let cannot = |e: std::io::Error| format!("cannot read {}: {e}", folder.display());
    let mut entries = std::fs::read_dir(folder).map_err(cannot)?.collect::<Result<Vec<_>, _>>().map_err(cannot)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, is_folder) = (entry.path(), entry.file_type().map_err(cannot)?.is_dir());
        match is_folder {
            true => files_within(&path, files)?,
            false if path.is_file() => files.push(path),
            false => say!("{} is not a file, and is left out", path.display()),
        }
    }
    Ok(())
}

/// Opens a source; returns its size if the source is a file.
fn open(source: &Path) -> Result<(Box<dyn Read + Send>, Option<u64>), CliError> {
    if source == Path::new("-") {
        return Ok((Box::new(std::io::stdin()), None));
    }
    let file = LocalFile::open(source).map_err(|e| format!("cannot read {}: {e}", source.display()))?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(format!("{} is a folder", source.display()).into());
    }
    Ok((Box::new(file), metadata.is_file().then_some(metadata.len())))
}

/// Guesses the record format of a source from its name and its first bytes. Returns the source from its beginning on.
fn guess(source: &Path, mut input: Box<dyn Read + Send>) -> Result<(Format, Box<dyn Read + Send>), CliError> {
    let mut beginning = Vec::new();
    (&mut input).take(PROBE_BYTES as u64).read_to_end(&mut beginning)?;
    let is_text = !beginning.contains(&0);
    let format = Format::guess(base_name(source).unwrap_or(""), is_text);
    Ok((format, Box::new(std::io::Cursor::new(beginning).chain(input))))
}

/// The mode bits that the process removes from files that it creates.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("Umask:")?.trim(), 8).ok());
    mask.unwrap_or(0o022)
}
