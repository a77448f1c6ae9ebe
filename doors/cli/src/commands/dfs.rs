//! `eyas dfs …`: reads, writes and manages files of the cluster's file system.

use std::collections::BTreeSet;
use std::fs::File as LocalFile;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyas_client::files::{
    DfsClient, File, FilePart, FilesError, FilesErrorKind, Listing, Recovery, SMALL_CHUNK_BYTES,
    SparseFile, WriteOptions,
};
use eyas_client::messages::FromClient;
use eyas_client::types::dfs::{FileName, Format, NodeId, RecordFormat};
use eyas_client::types::shown;
use eyas_client::types::units::{format_bytes, format_count};
use eyas_client::view::files::FilesUsageView;
use eyas_client::{Client, cluster_files, cluster_files_to_read};
use eyas_session::Access;
use eyas_store::output_mode;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::Semaphore;

use crate::connect::connect_to;
use crate::error::{CliError, INTERRUPTED};
use crate::exit_code::ExitCode;
use crate::gather::gather;
use crate::global::GlobalArgs;
use crate::interrupt::interrupted;
use crate::print::{self, say};
use crate::show;

mod arguments;
mod audit;
mod copy;
mod many;
mod quota;
mod sources;
mod tree;
mod views;

use arguments::FileShapeArgs;
use many::FilesOutcome;
use sources::{NamedSources, OpenSource, open};

pub(crate) use arguments::{DfsCommand, OwnerArgs, own_by_map};

/// Runs the command until it ends or an interrupt comes. An interrupted command leaves no
/// incomplete file.
pub(crate) async fn dfs(command: DfsCommand, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let access = global.cluster()?.access()?;
    let mut client = connect_to(&access, global).await?;
    if let DfsCommand::Recover { anew: true, .. } = command {
        client.ask(FromClient::ForgetFiles).await?;
        say!(
            "the next node that joins determines the file system of this cluster, or starts a new \
             one"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let waits =
        || say!("the dispatcher has just started; waiting for an executor that keeps files");
    let files = client.files_seeing(waits).await?;
    let session = DfsSession { files, access, json: global.json };
    tokio::select! {
        biased;
        () = interrupted(false) => Ok(ExitCode::from(INTERRUPTED)),
        done = session.act(command, &mut client) => done,
    }
}

/// How the source of a file is read.
#[derive(Clone)]
struct SourceReader {
    /// Bounds the number of sources that are read at the same time.
    readers: Arc<Semaphore>,
    /// Whether it is the only source, with a progress bar.
    is_alone: bool,
    /// Whether the file keeps the permissions and the time of its source.
    keeps: bool,
}

#[derive(Clone)]
struct DfsSession {
    files: DfsClient,
    access: Access,
    json: bool,
}

impl DfsSession {
    async fn act(self, command: DfsCommand, client: &mut Client) -> Result<ExitCode, CliError> {
        match command {
            DfsCommand::Cp { source, to, shape } => {
                copy::copy(client, &self.files, (&source, &to), shape, self.json).await?;
            }
            DfsCommand::Put { sources, name, recursive, owner, shape } => {
                owner.apply(&self.access)?;
                self.put(&sources, &name, recursive, shape).await?;
            }
            DfsCommand::Get { name, to, recursive, force } => {
                self.get(&name, to, recursive, force).await?
            }
            DfsCommand::Rm { names, recursive } => self.remove(&names, recursive).await?,
            DfsCommand::Cat { names, recursive, offset, length } => {
                self.cat(&names, recursive, offset, length).await?
            }
            DfsCommand::Ls { folder, long, recursive } => {
                self.list(&folder, recursive, long).await?
            }
            DfsCommand::Mkdir { folders, parents } => self.make_folders(&folders, parents).await?,
            DfsCommand::Rmdir { folders } => self.remove_folders(&folders).await?,
            DfsCommand::Ln { target, name, .. } => self.link(&target, &name).await?,
            DfsCommand::Chmod { mode, names, recursive } => {
                self.change_mode(mode, &names, recursive).await?
            }
            DfsCommand::Chown { owner, names, recursive } => {
                self.change_owner(owner, &names, recursive).await?
            }
            DfsCommand::Show { name } => {
                let file = self.files.stat(&name).await?;
                views::chunks(&file, &self.files.places(&file).await, self.json)?;
            }
            DfsCommand::Append { source, name } => self.append(&source, &name).await?,
            DfsCommand::Set { records, names } => self.set_records(&names, records).await?,
            DfsCommand::Rename { from, to, force } => self.rename(&from, &to, force).await?,
            DfsCommand::Stat { name } => views::stat(&self.files.lookup(&name).await?, self.json)?,
            DfsCommand::Quota(command) => self.quota(command).await?,
            DfsCommand::Audit { folder, since } => self.audit(&folder, since).await?,
            DfsCommand::Du { folder } => self.usage(folder).await?,
            DfsCommand::Rebalance { folder } => self.rebalance(&folder).await?,
            DfsCommand::Recover { without, .. } => {
                return self.recover(without.into_iter().collect()).await;
            }
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
        let NamedSources { files, folders, links } = sources::named(sources, name, recursive)?;
        gather(&self.files, shape.replicas.into()).await?;
        self.put_folders(folders).await?;
        self.put_links(links).await?;
        let sources: Vec<PathBuf> = files.iter().map(|(source, _)| source.clone()).collect();
        let (readers, is_alone) = (many::readers(), sources.len() == 1);
        let put_one = |(source, name)| {
            let reader = SourceReader { readers: readers.clone(), is_alone, keeps: recursive };
            self.clone().put_guessed(source, name, shape, reader)
        };
        let completed = |file: &File| {
            if !self.json {
                say!(
                    "{}: {} in {}",
                    shown(file.name.as_str()),
                    format_bytes(file.record.size_bytes()),
                    chunks(file)
                );
            }
        };
        let outcome =
            FilesOutcome::of(files, |(source, _)| many::cost_to_put(source), put_one, completed)
                .await;
        if self.json {
            views::files(&outcome.done.iter().flatten().cloned().collect::<Vec<_>>())?;
        }
        outcome.all_or_why("stored", |place| sources[place].display().to_string()).map(drop)
    }

    /// Stores a file. If a block of a compressed one is longer than a record may be, the file is
    /// one record.
    async fn put_guessed(
        self,
        source: PathBuf,
        name: FileName,
        shape: FileShapeArgs,
        reader: SourceReader,
    ) -> Result<File, CliError> {
        let (format, is_file, written) =
            self.put_one(&source, &name, shape, reader.clone()).await?;
        match written {
            // Another source cannot be read again.
            Err(error)
                if error.kind == FilesErrorKind::WrongFormat
                    && is_file
                    && format.is_guessed
                    && format.is_compressed() =>
            {
                let shape = FileShapeArgs { format: Some(format.without_records()), ..shape };
                let (.., written) = self.put_one(&source, &name, shape, reader).await?;
                written
            }
            written => written,
        }
        .map_err(|error| of(&source, error))
    }

    async fn put_one(
        &self,
        source: &Path,
        name: &FileName,
        shape: FileShapeArgs,
        SourceReader { readers, is_alone, keeps }: SourceReader,
    ) -> Result<(RecordFormat, bool, Result<File, FilesError>), CliError> {
        let (path, named) = (source.to_owned(), name.clone());
        let opened = {
            // The semaphore is never closed.
            let _reader = readers.acquire().await?;
            tokio::task::spawn_blocking(move || sources::begin(&path, &named, shape.format)).await
        };
        let OpenSource { content, source: input, size_bytes, kept, format } =
            opened.unwrap_or_else(eyas_panics::resume)?;
        let default = WriteOptions::of(format);
        let creation = match (kept, keeps) {
            (None, _) => default.creation,
            (Some(kept), false) => kept.new_file(),
            (Some(kept), true) => kept.creation(),
        };
        let options = WriteOptions {
            chunk_bytes: shape.chunk_size,
            replication: shape.replicas,
            creation,
            ..default
        };
        let written = if content.len() <= SMALL_CHUNK_BYTES {
            self.files.write_content(name, content, options).await
        } else {
            let bar = if is_alone { self.bar(name, size_bytes) } else { ProgressBar::hidden() };
            let written =
                self.files.write(name, input, options, |bytes| bar.set_position(bytes)).await;
            bar.finish_and_clear();
            written
        };
        Ok((format, size_bytes.is_some(), written))
    }

    async fn set_records(&self, names: &[FileName], records: Format) -> Result<(), CliError> {
        let mut files = Vec::new();
        for name in names {
            let file = self.files.stat(name).await?;
            files.push(
                self.files
                    .set_format(&file, records.into())
                    .await
                    .map_err(|error| of(Path::new(name.as_str()), error))?,
            );
        }
        match self.json {
            true => views::files(&files)?,
            false => files.iter().for_each(|file| {
                say!("{}: {} of {records}", shown(file.name.as_str()), chunks(file))
            }),
        }
        Ok(())
    }

    async fn append(&self, source: &Path, name: &FileName) -> Result<(), CliError> {
        let (input, metadata) = open(source)?;
        let size_bytes = metadata.map(|metadata| metadata.len());
        gather(&self.files, self.files.stat(name).await?.record.replication.into()).await?;
        let bar = self.bar(name, size_bytes);
        let file =
            self.files.append(name, SparseFile(input), |bytes| bar.set_position(bytes)).await;
        bar.finish_and_clear();
        let file = file.map_err(|error| of(source, error))?;
        match self.json {
            true => views::files(&[file])?,
            false => say!(
                "{}: {} in {}",
                shown(name.as_str()),
                format_bytes(file.record.size_bytes()),
                chunks(&file)
            ),
        }
        Ok(())
    }

    async fn get(
        &self,
        name: &str,
        to: Option<PathBuf>,
        recursive: bool,
        force: bool,
    ) -> Result<(), CliError> {
        if !recursive {
            let names = cluster_files_to_read(&self.files, name).await?;
            let [name] = &names[..] else { return self.get_all(&names, to, force).await };
            let file = self.files.stat(name).await?;
            return match to {
                Some(to) if to == Path::new("-") => {
                    self.print(&file, 0, file.record.size_bytes()).await
                }
                Some(to) if to.is_dir() => {
                    self.bring(&file, &to.join(name.base_name()), force, true).await
                }
                Some(to) => self.bring(&file, &to, force, true).await,
                None => self.bring(&file, Path::new(name.base_name()), force, true).await,
            };
        }
        self.get_tree(name, to, force).await
    }

    /// Copies files, many at the same time, each to its place.
    async fn bring_all(
        &self,
        placed: Vec<(FileName, PathBuf, u64)>,
        force: bool,
    ) -> Result<(), CliError> {
        let names: Vec<FileName> = placed.iter().map(|(name, ..)| name.clone()).collect();
        let is_alone = names.len() == 1;
        let bring = |(name, place, _): (FileName, PathBuf, u64)| {
            let session = self.clone();
            async move {
                let file = session.files.stat(&name).await?;
                session.bring(&file, &place, force, is_alone).await
            }
        };
        let outcome =
            FilesOutcome::of(placed, |(.., bytes)| many::cost_to_read(*bytes), bring, |()| {})
                .await;
        outcome.all_or_why("copied", |place| names[place].to_string()).map(drop)
    }

    /// Copies the files that match a pattern, each under its own name.
    async fn get_all(
        &self,
        names: &[FileName],
        to: Option<PathBuf>,
        force: bool,
    ) -> Result<(), CliError> {
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
                "several files are named {base}: copy the folder with -r, which keeps the folders \
                 of the files"
            )
            .into());
        }
        std::fs::create_dir_all(Path::new(".").join(&to))
            .map_err(|e| format!("cannot create {}: {e}", to.display()))?;
        // Their sizes are not known yet.
        let placed = names
            .iter()
            .map(|name| (name.clone(), to.join(name.base_name()), many::LARGE_FILE_BYTES));
        self.bring_all(placed.collect(), force).await
    }

    /// Writes a file under a temporary name, and renames it when it is complete. An existing pipe
    /// or device is written to directly.
    async fn bring(
        &self,
        file: &File,
        place: &Path,
        force: bool,
        is_alone: bool,
    ) -> Result<(), CliError> {
        let cannot = |e: std::io::Error| format!("cannot write {}: {e}", place.display());
        match place.metadata() {
            Ok(there) if !there.is_file() => {
                let mut into = LocalFile::options().write(true).open(place).map_err(cannot)?;
                return self.copy(file, &mut into, place, is_alone, false).await;
            }
            Ok(_) if !force => {
                return Err(
                    format!("{} already exists: replace it with --force", place.display()).into()
                );
            }
            _ => {}
        }
        let folder = place
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        // The process's umask takes its bits away. The owner may read what is fetched, whatever the
        // mode says.
        let mode = output_mode(file.record.attributes.mode.into(), place) | 0o400;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        let mut builder = tempfile::Builder::new();
        let landing = builder.prefix(".eyas-").suffix(".tmp").permissions(mode).tempfile_in(folder);
        let mut landing = landing.map_err(cannot)?;
        self.copy(file, landing.as_file_mut(), place, is_alone, true).await?;
        match force {
            true => landing.persist(place).map(drop).map_err(|e| cannot(e.error))?,
            false => landing.persist_noclobber(place).map(drop).map_err(|e| cannot(e.error))?,
        }
        if !self.json {
            say!(
                "{} ({})",
                shown(place.as_os_str().as_encoded_bytes()),
                format_bytes(file.record.size_bytes())
            );
        }
        Ok(())
    }

    /// Copies the content of a file, with its holes if `keeps_holes` is set: then `into` is a new
    /// file.
    async fn copy(
        &self,
        file: &File,
        into: &mut LocalFile,
        place: &Path,
        is_alone: bool,
        keeps_holes: bool,
    ) -> Result<(), CliError> {
        let cannot = |e: std::io::Error| format!("cannot write {}: {e}", place.display());
        let bar = if is_alone {
            self.bar(&file.name, Some(file.record.size_bytes()))
        } else {
            ProgressBar::hidden()
        };
        let mut reading = self.files.read(file);
        while let Some(part) = reading.next_part().await? {
            let bytes = match part {
                FilePart::Bytes(bytes) => into.write_all(&bytes).map(|()| bytes.len() as u64),
                FilePart::Hole(bytes) if keeps_holes => {
                    into.seek(SeekFrom::Current(bytes as i64)).map(|_| bytes)
                }
                FilePart::Hole(bytes) => into.write_all(&vec![0; bytes as usize]).map(|()| bytes),
            };
            bar.inc(bytes.map_err(cannot)?);
        }
        if keeps_holes {
            into.set_len(file.record.size_bytes()).map_err(cannot)?;
        }
        bar.finish_and_clear();
        Ok(())
    }

    async fn cat(
        &self,
        names: &[String],
        recursive: bool,
        offset: u64,
        length: Option<u64>,
    ) -> Result<(), CliError> {
        let mut all = Vec::new();
        for name in names {
            match recursive {
                true => all.extend(self.within(name).await?),
                false => all.extend(cluster_files_to_read(&self.files, name).await?),
            }
        }
        for name in &all {
            let file = self.files.stat(name).await?;
            let size_bytes = file.record.size_bytes();
            let start = offset.min(size_bytes);
            let end =
                length.map_or(size_bytes, |length| start.saturating_add(length).min(size_bytes));
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
                let names = cluster_files(&self.files, name).await?;
                let remove = |name| {
                    let files = self.files.clone();
                    async move { Ok(files.remove(&name).await?) }
                };
                let outcome = FilesOutcome::of(names.clone(), |_| 0, remove, |()| {}).await;
                outcome.all_or_why("removed", |place| names[place].to_string())?;
                continue;
            }
            if !self.remove_all(&rooted(name.trim_end_matches('/'))).await? {
                return Err(format!("there is no file in {name}").into());
            }
        }
        Ok(())
    }

    async fn rebalance(&self, folder: &str) -> Result<(), CliError> {
        let listed = self.files.list(&rooted(folder.trim_end_matches('/'))).await?;
        let names: Vec<FileName> = listed.iter().map(|listing| listing.name.clone()).collect();
        let rebalance = |listing: Listing| {
            let files = self.files.clone();
            async move {
                let rebalanced = match files.stat(&listing.name).await {
                    Ok(file) => files.rebalance(&file).await,
                    Err(error) => Err(error),
                };
                match rebalanced {
                    // The file was removed or written meanwhile; a new version is placed on the
                    // right nodes when written.
                    Err(error)
                        if matches!(
                            error.kind,
                            FilesErrorKind::NotFound | FilesErrorKind::Changed
                        ) =>
                    {
                        Ok(0)
                    }
                    rebalanced => Ok(rebalanced?),
                }
            }
        };
        let cost = |listing: &Listing| many::cost_to_move(listing.size_bytes);
        let outcome = FilesOutcome::of(listed, cost, rebalance, |_| {}).await;
        let moved: u64 =
            outcome.all_or_why("rebalanced", |place| names[place].to_string())?.into_iter().sum();
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
                say!(
                    "the file system continues with {}",
                    format_count(members.len() as u64, "node")
                );
                Ok(ExitCode::SUCCESS)
            }
            Recovery::Missing(missing) => {
                let words: Vec<_> =
                    missing.iter().map(|node| format!("--without {node}")).collect();
                say!(
                    "nothing was changed: {} missing. To continue without them, and lose the data \
                     that only they hold, run\neyas dfs recover {}",
                    count_missing(missing.len()),
                    words.join(" ")
                );
                Ok(ExitCode::FAILURE)
            }
        }
    }

    async fn usage(&self, folder: Option<String>) -> Result<(), CliError> {
        let listed =
            self.files.list(&rooted(folder.as_deref().unwrap_or("").trim_end_matches('/'))).await;
        let (mut nodes, mut is_settled) = (Vec::new(), None);
        if folder.is_none() {
            let membership = self.files.membership().await?;
            is_settled = Some(membership.is_settled);
            // Any node knows the loads of all, unless it is of an earlier version.
            let loads = match membership.alive.first() {
                Some(member) => self.files.loads(member).await.unwrap_or_default(),
                None => Vec::new(),
            };
            for member in &membership.alive {
                let load = loads.iter().find(|(node, _)| *node == member.node);
                let usage = self.files.usage(member).await.ok();
                nodes.push(views::node(member, &membership, usage, load.map(|(_, load)| *load)));
            }
            nodes.extend(membership.missing().into_iter().map(views::missing));
            if let (Err(_), false) = (&listed, self.json) {
                // The missing nodes are the reason of the error.
                views::nodes(nodes)?;
                return Err(listed.expect_err("matched above").into());
            }
        }
        let listed = listed?;
        let bytes = listed.iter().map(|file| file.size_bytes).sum();
        views::usage(
            FilesUsageView { files: listed.len() as u64, bytes, is_settled, nodes },
            self.json,
        )
    }

    async fn verify(&self, names: &[String], thoroughly: bool) -> Result<ExitCode, CliError> {
        let mut verified = Vec::new();
        for name in names {
            let listed = self.files.list(&rooted(name.trim_end_matches('/'))).await?;
            let names: Vec<FileName> = listed.iter().map(|listing| listing.name.clone()).collect();
            let verify = |listing: Listing| {
                let files = self.files.clone();
                async move {
                    match files.stat(&listing.name).await {
                        Err(error) if error.kind == FilesErrorKind::NotFound => Ok(None),
                        file => {
                            let file = file?;
                            let found = files.verify(&file, thoroughly).await?;
                            Ok(Some((file.name, found)))
                        }
                    }
                }
            };
            let outcome = FilesOutcome::of(
                listed,
                |listing| many::cost_to_read(listing.size_bytes),
                verify,
                |_| {},
            )
            .await;
            verified.extend(
                outcome
                    .all_or_why("checked", |place| names[place].to_string())?
                    .into_iter()
                    .flatten(),
            );
        }
        views::verified(&verified, self.json)?;
        let is_good = verified.iter().all(|(_, found)| found.is_good());
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn restore(&self, copy: &Path, name: &FileName) -> Result<(), CliError> {
        let opened =
            LocalFile::open(copy).map_err(|e| format!("cannot read {}: {e}", copy.display()))?;
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
        let style = ProgressStyle::with_template(
            "eyas: {msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
        );
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

fn of(source: &Path, error: FilesError) -> CliError {
    match error.kind {
        FilesErrorKind::Invalid | FilesErrorKind::WrongFormat | FilesErrorKind::Local => {
            format!("{}: {error}", source.display()).into()
        }
        _ => error.into(),
    }
}
