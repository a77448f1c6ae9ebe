//! Jobs over the blocks of files. Programs read their block on standard input, chunk after chunk.
//! Their outputs are gathered, or shuffled by key into a reduce (elastic-blocks §2.5).
//!
//! Such a job has a *run* and ordinary tasks. The leader of the run assigns chunks to workers and
//! decides whose output counts. Each task is a process of eyas itself ([`map_worker`]) that starts
//! the user's program as a child. Outputs are hidden files until the job has ended.

mod block_worker;
mod error;
mod failures;
mod formats;
mod header;
mod input;
mod line_sort;
mod partition;
mod pause;
mod pipeline;
mod policy;
mod reduce;
mod task_block;
mod worker;

use std::time::Duration;

use eyas_files::blocks::{BlockPolicy, DEFAULT_TERM_US, POLICIES};
use eyas_files::{
    BlockRunId, DfsClient, File, FilesError, FilesErrorKind, FilesOrigin, RenameOptions,
    RunAddress, RunSpec, RunStatus,
};
use eyas_session::Access;
use eyas_types::access::FilesScope;
use eyas_types::dfs::{FileName, FileNameError, Format, NodeId};
use eyas_types::task::Program;
use eyas_types::{JobId, Resources, TaskItem, TaskTemplate, Template, TemplatePart, WorkingFolder};
use eyas_wire::client::{FromClient, TaskResult, ToClient};
use eyas_wire::view::{JobState, JobView};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

pub use block_worker::{BlockPiece, BlockRun, BlockWorker, RunOptions};
pub use error::WorkError;
pub use failures::TaskFailures;
pub use partition::MAX_REDUCERS;
pub use pipeline::PipelineError;
pub use policy::{PolicyTextError, parse_policy};
pub use reduce::{ReduceTask, reduce_worker};
pub use worker::{MapTask, Shuffle, map_worker};

use crate::client::{Client, WatchEvent};
use crate::client_error::ClientError;
use crate::clusters::Cluster;
use crate::draft::{Draft, DraftError};
use crate::jobfile::same;

/// Interval at which the client asks for the state of the run.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// How long the client dials a lost dispatcher.
const RECONNECT: Duration = Duration::from_secs(600);

/// Time within which the leader of a run answers, unless it is unreachable.
const STATUS_DEADLINE: Duration = Duration::from_secs(5);

/// Time that tasks have to end by themselves after all chunks are read.
const LINGER: Duration = Duration::from_millis(500);

/// How long the end of a job waits for cancelled tasks, and for the leader to close the run.
const END_DEADLINE: Duration = Duration::from_secs(10);

/// The leader forgets a run that no client has asked about for this long, and removes its hidden
/// files.
const ABANDONED: Duration = Duration::from_secs(1800);

/// Interval of requests that keep the leader from forgetting the run.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(60);

/// Stands for the node of an executor that is not part of the file system.
const NO_NODE: NodeId = NodeId(0);

/// A job over the blocks of files, before it is begun.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use eyas_client::{Cluster, MapJob};
///
/// let program = ["grep", "M31"].map(String::from).to_vec();
/// let mut job = MapJob::new(vec!["/data/sky.csv".parse()?], program);
/// job.to = Some("/data/m31".into());
/// let mut run = job.begin(&Cluster::named("survey")?.access()?).await?;
/// let done = run.run(|_| {}).await;
/// run.end().await?;
/// println!("{} blocks", done?.parts.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MapJob {
    /// Files of the cluster to read.
    pub files: Vec<FileName>,
    /// The program that reads the blocks, and its arguments.
    pub program: Vec<String>,
    /// How chunks are divided into blocks and assigned to tasks.
    pub policy: BlockPolicy,
    /// Time after which the leader takes the block of a silent task away.
    pub term: Duration,
    /// Number of tasks; by default the number of slots of all executors.
    pub tasks: Option<u32>,
    /// Number of retries of a failed task.
    pub retries: u32,
    /// Whether the program is started anew for each file, so that one process reads one file only.
    /// An argument with `{file}`, the name of the file, implies this.
    pub by_file: bool,
    /// Whether each program reads the header of its file first: the first row, or the lines with
    /// `#` of a VCF file and those with `@` of a SAM file.
    pub repeats_header: bool,
    /// Local files that are copied to the tasks, such as the program; also files of `cluster`,
    /// `eyas:///PATH`.
    pub inputs: Vec<String>,
    /// The cluster, if inputs are files of it.
    pub cluster: Option<Cluster>,
    /// Reduce of the lines that the program writes; without it, the outputs stay as they are.
    pub reduce: Option<Reduce>,
    /// Folder of the cluster in which the outputs appear; without it, the outputs stay hidden.
    pub to: Option<String>,
    /// The number of an account of memory on which nodes keep the chunks, for further jobs over the
    /// same files.
    pub memory: Option<u128>,
}

/// A reduce. Each reducer reads lines `key TAB value`, sorted by key, and gets all lines of its
/// keys.
#[derive(Clone, Debug)]
pub struct Reduce {
    /// Shell command of a reducer.
    pub command: String,
    /// Number of reducers.
    pub reducers: u32,
    /// Shell command that each task of the map applies to its output, sorted by key, before it
    /// stores the result.
    pub combine: Option<String>,
}

/// Why a job over blocks failed.
#[derive(Debug, Error)]
pub enum MapError {
    /// The dispatcher refused a request, or the connection was lost.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The file system failed.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// An input cannot be read.
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// The number of reducers is out of range.
    #[error("a job cannot have {0} reducers: choose a number from 1 to {MAX_REDUCERS}")]
    Reducers(u32),
    /// A compressed file was cut anywhere, so that no program could decompress its part.
    #[error(
        "{0} is compressed, and its chunks were cut as `{1}`, at any byte: no program could \
         decompress a chunk. Cut the file at its blocks (`eyas dfs set --records bgzf`, or bzip2 \
         or zstd), make it one record (`--records whole`), or let a task read all of it (`eyas \
         run --each eyas://{0}`)"
    )]
    Compressed(FileName, Format),
    /// The folder for the outputs has files already.
    #[error("there are files in {0} already: remove them first, or choose another folder")]
    FolderInUse(String),
    /// The cluster has no executor with a whole processor.
    #[error("no executor can run a task: start some with `eyas start executor --dfs`")]
    NoExecutor,
    /// The folder for the outputs cannot be a name.
    #[error(transparent)]
    Folder(#[from] FileNameError),
    /// The node that led the run has left the file system.
    #[error("node {0} of the file system, which led the job, has failed: run the job again")]
    LeaderGone(NodeId),
    /// Tasks of the map ended before all chunks were read.
    #[error("{unread} of {chunks} chunks were not read{failures}")]
    Unread {
        /// Number of chunks that were not read.
        unread: u32,
        /// Number of chunks of all files.
        chunks: u32,
        /// Failed tasks.
        failures: TaskFailures,
    },
    /// Tasks of the reduce failed.
    #[error("the reduce failed{0}")]
    Reduce(TaskFailures),
}

/// An event of a job over blocks.
#[derive(Debug)]
pub enum MapEvent<'a> {
    /// Present state of the run.
    Progress(&'a RunStatus),
    /// A task has ended.
    Result(&'a TaskResult),
    /// Present state of the tasks.
    Tasks(&'a JobView),
    /// The dispatcher was lost, or has answered again.
    Dispatcher(&'a WatchEvent),
}

/// A job over blocks that has begun. Call [`end`](Self::end) when it is no longer needed.
pub struct MapRun {
    job: MapJob,
    access: Access,
    client: Client,
    files: DfsClient,
    address: RunAddress,
    /// Number of chunks of all files.
    chunks: u32,
    _keep_alive: KeepAlive,
    /// Jobs of this run whose tasks may still run.
    under_way: Vec<JobId>,
    outputs: Vec<FileName>,
}

impl MapJob {
    /// A job with defaults: no reduce, no retries, outputs that stay hidden.
    pub fn new(files: Vec<FileName>, program: Vec<String>) -> Self {
        MapJob {
            files,
            program,
            policy: POLICIES[0].1,
            term: Duration::from_micros(DEFAULT_TERM_US),
            tasks: None,
            retries: 0,
            by_file: false,
            repeats_header: false,
            inputs: Vec::new(),
            cluster: None,
            reduce: None,
            to: None,
            memory: None,
        }
    }

    /// Reads the records of the files, and opens a run on one node of the file system, its leader.
    ///
    /// # Errors
    /// If a file is missing, the job is not possible, or the cluster does not answer.
    pub async fn begin(self, access: &Access) -> Result<MapRun, MapError> {
        let mut client = Client::connect(access).await?;
        let files = client.files().await?;
        files.set_door(FilesOrigin::Map);
        self.begin_with(client, files).await
    }

    /// Does the same as [`begin`](Self::begin), with connections to the dispatcher and to the file
    /// system of its cluster.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub async fn begin_with(
        self,
        mut client: Client,
        files: DfsClient,
    ) -> Result<MapRun, MapError> {
        if let Some(reduce) =
            self.reduce.as_ref().filter(|reduce| !(1..=MAX_REDUCERS).contains(&reduce.reducers))
        {
            return Err(MapError::Reducers(reduce.reducers));
        }
        if let Some(to) = &self.to {
            part_in(to, 0)?;
            if !files.list(to).await?.is_empty() {
                return Err(MapError::FolderInUse(to.clone()));
            }
        }
        let mut read = Vec::new();
        for name in &self.files {
            read.push(files.stat(name).await?);
        }
        for file in &read {
            formats::check(file)?;
        }
        let chunks = read.iter().map(|file: &File| file.record.blocks().count() as u32).sum();
        let slots = slots(&mut client, &files, self.tasks, chunks).await?;
        // A program for each file has to read all of a small one. Other policies divide the input
        // as their authors do.
        let may_divide = matches!(self.policy, BlockPolicy::Lean(_)) && !self.is_by_file();
        let pieces = if may_divide { RunSpec::pieces_of(&read, slots.len()) } else { 1 };
        let term_us = self.term.as_micros() as u64;
        let spec = RunSpec {
            files: read,
            policy: self.policy,
            slots: slots.clone(),
            pieces,
            term_us,
            idle: ABANDONED,
        };
        let address = files.open_run(spec).await?;
        Ok(MapRun {
            job: MapJob { tasks: Some(slots.len() as u32), ..self },
            access: client.access().clone(),
            client,
            _keep_alive: KeepAlive(tokio::spawn(keep_alive(files.clone(), address))),
            files,
            address,
            chunks,
            under_way: Vec::new(),
            outputs: Vec::new(),
        })
    }

    /// Whether the program is started anew for each file.
    fn is_by_file(&self) -> bool {
        self.by_file || self.program.iter().any(|word| word.contains(worker::FILE))
    }

    /// A job whose tasks all run the same command, `words`.
    async fn draft(
        &self,
        name: &str,
        words: Vec<Template>,
        tasks: u32,
        run: BlockRunId,
    ) -> Result<Draft, DraftError> {
        let mut draft = Draft::new(name);
        if let Some(cluster) = &self.cluster {
            draft = draft.on_cluster(cluster);
        }
        let mut template = TaskTemplate::new(Program::Noop);
        let mut words = words;
        for path in &self.inputs {
            let index = template.inputs.len() as u32;
            template.inputs.push(draft.input(&path.as_str().into()).await?);
            for word in &mut words {
                if let [TemplatePart::Literal(text)] = &word.0[..]
                    && same(text, path.as_bytes())
                {
                    *word = Template(vec![TemplatePart::Input(index)]);
                }
            }
        }
        template.program = Program::Command(words);
        template.base = draft.folder()?;
        template.folder = WorkingFolder::Path(template.base.clone());
        template.resources = Resources { cpus_milli: 1000, ..Resources::default() };
        template.retries = self.retries;
        // The token of the job lets a task read these files, and write into the hidden folder of
        // the run.
        template.files = FilesScope { reads: self.files.clone(), folders: vec![run.folder()] };
        let template = draft.template(template)?;
        for _ in 0..tasks {
            draft.task(TaskItem { template, values: Vec::new(), inputs: Vec::new() })?;
        }
        Ok(draft)
    }
}

impl MapRun {
    /// Number of chunks of all files.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Runs the map and the reduce, if the job has one, and publishes the outputs in the
    /// destination. Returns the final state of the map. No output appears before all tasks have
    /// succeeded.
    ///
    /// # Errors
    /// If tasks fail, or the cluster does not answer.
    pub async fn run(&mut self, mut see: impl FnMut(MapEvent)) -> Result<RunStatus, MapError> {
        let status = self.map(&mut see).await?;
        let run = self.address.run;
        self.outputs = match self.job.reduce.clone() {
            None => {
                status.parts.iter().map(|part| run.file(worker::part_name(part.worker))).collect()
            }
            Some(reduce) => {
                self.reduce(&reduce, &mut see).await?;
                (1..=reduce.reducers).map(|part| run.file(reduce::part_name(part))).collect()
            }
        };
        if let Some(folder) = self.job.to.clone() {
            self.publish(&folder).await?;
        }
        Ok(status)
    }

    /// The output files: outputs of a reduce by the number of the reducer, outputs of a map by the
    /// first chunk that each program has read. Outputs that were not published in a folder are
    /// hidden, and are removed by [`end`](Self::end).
    ///
    /// # Errors
    /// If the file system does not answer.
    pub async fn outputs(&self) -> Result<Vec<File>, MapError> {
        let mut files = Vec::new();
        for name in &self.outputs {
            files.push(self.files.stat(name).await?);
        }
        Ok(files)
    }

    /// The file system with the outputs.
    pub fn files(&self) -> &DfsClient {
        &self.files
    }

    /// Cancels tasks that still run, and removes outputs that were not published.
    ///
    /// # Errors
    /// If the cluster does not answer.
    pub async fn end(mut self) -> Result<(), MapError> {
        for job in self.under_way.drain(..) {
            // A new connection, because the other one may be in the middle of a watch.
            let mut client = Client::connect(&self.access).await?;
            client.ask(FromClient::Cancel { job, task: None }).await?;
            // After the deadline, executors kill the tasks that hang. Tasks can store nothing once
            // the run is closed.
            if let Ok(watched) =
                timeout(END_DEADLINE, client.watch(job, false, Duration::ZERO, |_| {})).await
            {
                watched?;
            }
        }
        // A leader that has left the file system has taken the state of the run with it.
        if !has_left(&self.files, self.address.node).await {
            let _ = timeout(END_DEADLINE, self.files.close_run(self.address)).await;
        }
        Ok(remove_outputs(&self.files, self.address.run).await?)
    }

    /// Runs the tasks that read the chunks, until all chunks are read.
    async fn map(&mut self, see: &mut impl FnMut(MapEvent)) -> Result<RunStatus, MapError> {
        if self.chunks == 0 {
            return Ok(self.files.run_status(self.address).await?);
        }
        let mut words =
            vec!["eyas".to_owned(), "worker".into(), "map".into(), self.address.to_string()];
        if let Some(reduce) = &self.job.reduce {
            words.extend(["--partitions".into(), reduce.reducers.to_string()]);
            words.extend(
                reduce.combine.iter().flat_map(|combine| ["--combine".to_owned(), combine.clone()]),
            );
        }
        if self.job.is_by_file() {
            words.push("--by-file".into());
        }
        if self.job.repeats_header {
            words.push("--repeat-header".into());
        }
        words.extend(self.job.memory.map(|account| format!("--memory={account}")));
        words.push("--".into());
        words.extend(self.job.program.iter().cloned());
        let words = words.into_iter().map(Template::literal).collect();
        let tasks = self.job.tasks.expect("`begin` has counted the slots");
        let draft =
            self.job.draft(&name_of(&self.job.program), words, tasks, self.address.run).await?;
        let job = self.client.submit(draft).await?;
        self.under_way.push(job);
        let mut failures = TaskFailures::default();
        let (status, is_over) = self.watch_map(job, &mut failures, see).await?;
        if is_over {
            self.under_way.clear();
        } else {
            // The old connection is in the middle of a watch.
            self.client = Client::connect(&self.access).await?;
        }
        if !status.is_complete {
            let unread = self.chunks - status.committed_chunks;
            return Err(MapError::Unread { unread, chunks: self.chunks, failures });
        }
        Ok(status)
    }

    /// Waits until all chunks are read or all tasks have ended. Returns the state of the run, and
    /// whether all tasks have ended.
    async fn watch_map(
        &mut self,
        job: JobId,
        failures: &mut TaskFailures,
        see: &mut impl FnMut(MapEvent),
    ) -> Result<(RunStatus, bool), MapError> {
        let (sender, mut events) = mpsc::unbounded_channel();
        let watching = self.client.watch(job, true, RECONNECT, |event| drop(sender.send(event)));
        let mut watching = std::pin::pin!(watching);
        let mut ticks = interval(STATUS_INTERVAL);
        let (mut is_over, mut is_lost) = (false, false);
        loop {
            tokio::select! {
                ended = &mut watching, if !is_over => {
                    ended?;
                    is_over = true;
                }
                _ = ticks.tick() => {}
            }
            let Ok(status) = timeout(STATUS_DEADLINE, self.files.run_status(self.address)).await
            else {
                // While the leader is a member, it may answer again, and tasks continue.
                if is_lost && (is_over || has_left(&self.files, self.address.node).await) {
                    return Err(MapError::LeaderGone(self.address.node));
                }
                is_lost = true;
                continue;
            };
            let status = status?;
            is_lost = false;
            // Tasks end when no chunk is left. A task that hangs does not: its chunks were read by
            // other tasks.
            if status.is_complete && !is_over {
                is_over = matches!(timeout(LINGER, &mut watching).await, Ok(Ok(_)));
            }
            while let Ok(event) = events.try_recv() {
                failures.see(&event, see);
            }
            see(MapEvent::Progress(&status));
            if is_over || status.is_complete {
                return Ok((status, is_over));
            }
        }
    }

    /// Runs the tasks of the reduce to their end.
    async fn reduce(
        &mut self,
        reduce: &Reduce,
        see: &mut impl FnMut(MapEvent),
    ) -> Result<(), MapError> {
        let literal = |text: &str| Template::literal(text);
        let (address, reducers) = (self.address.to_string(), reduce.reducers.to_string());
        let mut words: Vec<_> =
            ["eyas", "worker", "reduce", &address].into_iter().map(literal).collect();
        // The number of a task counts from 1.
        words.push(Template(vec![TemplatePart::Number]));
        words.extend(
            ["--of", &reducers, "--", "sh", "-c", &reduce.command].into_iter().map(literal),
        );
        let draft = self.job.draft("reduce", words, reduce.reducers, self.address.run).await?;
        let job = self.client.submit(draft).await?;
        self.under_way.push(job);
        let mut failures = TaskFailures::default();
        let ended =
            self.client.watch(job, true, RECONNECT, |event| failures.see(&event, see)).await?;
        self.under_way.retain(|other| *other != job);
        match ended.state {
            JobState::Succeeded => Ok(()),
            _ => Err(MapError::Reduce(failures)),
        }
    }

    /// Renames the outputs to `part-00000`, `part-00001` … in a folder. If one rename fails,
    /// removes the files that were renamed before.
    async fn publish(&mut self, folder: &str) -> Result<(), MapError> {
        let options = RenameOptions { replaces: false, makes_parents: true, keeps_format: true };
        let mut published = Vec::new();
        for (number, hidden) in self.outputs.iter().enumerate() {
            let name = part_in(folder, number)?;
            if let Err(error) = self.files.rename(hidden, &name, options).await {
                for name in &published {
                    self.files.remove(name).await?;
                }
                return Err(error.into());
            }
            published.push(name);
        }
        self.outputs = published;
        Ok(())
    }
}

/// Removes the hidden files of a run.
async fn remove_outputs(files: &DfsClient, run: BlockRunId) -> Result<(), FilesError> {
    for listing in files.list(&run.folder()).await? {
        match files.remove(&listing.name).await {
            Err(error) if error.kind == FilesErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// Whether the file system has removed a node from its members; `false` if the other nodes do not
/// answer.
async fn has_left(files: &DfsClient, node: NodeId) -> bool {
    let membership = timeout(STATUS_DEADLINE, files.membership()).await;
    matches!(membership, Ok(Ok(membership)) if !membership.has_joined(node))
}

/// Keeps the leader from forgetting a run, until it is dropped.
struct KeepAlive(JoinHandle<()>);

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Asks for the state of a run from time to time. During a long reduce, or while the outputs are
/// read, no other request reaches the leader.
async fn keep_alive(files: DfsClient, address: RunAddress) {
    let mut ticks = interval(KEEP_ALIVE_INTERVAL);
    loop {
        ticks.tick().await;
        let _ = files.run_status(address).await;
    }
}

fn name_of(program: &[String]) -> String {
    program.first().and_then(|program| program.rsplit('/').next()).unwrap_or("map").to_owned()
}

fn part_in(folder: &str, number: usize) -> Result<FileName, FileNameError> {
    format!("{}/part-{number:05}", folder.trim_end_matches('/')).parse()
}

/// The node of each task's slot: the first slot of every executor, then the second slot of those
/// that have one, and so on, and again from the beginning. By default there are as many tasks as
/// slots, but no more than chunks.
async fn slots(
    client: &mut Client,
    files: &DfsClient,
    tasks: Option<u32>,
    chunks: u32,
) -> Result<Vec<NodeId>, MapError> {
    let ToClient::Executors(executors) = client.ask(FromClient::Executors).await? else {
        return Err(ClientError::Unexpected.into());
    };
    let alive = files.membership().await?.alive;
    let node = |address| {
        alive
            .iter()
            .find(|member| Some(member.address) == address)
            .map_or(NO_NODE, |member| member.node)
    };
    let executors: Vec<_> = executors
        .iter()
        .map(|executor| (node(executor.files), executor.capacity.cpus_milli / 1000))
        .collect();
    let most = executors.iter().map(|(_, slots)| *slots).max().unwrap_or(0);
    let in_turn =
        (0..most).flat_map(|slot| executors.iter().filter(move |(_, slots)| *slots > slot));
    let all: Vec<_> = in_turn.map(|(node, _)| *node).collect();
    if all.is_empty() {
        return Err(MapError::NoExecutor);
    }
    let count = tasks.unwrap_or_else(|| chunks.clamp(1, all.len() as u32));
    Ok(all.iter().copied().cycle().take(count as usize).collect())
}
