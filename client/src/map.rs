//! Jobs over the blocks of files: programs that read their block on standard input, chunk after chunk, and what they write,
//! gathered or shuffled by key into a reduce (elastic-blocks §2.5).
//!
//! Such a job is a *run*, which says who reads which chunks and whose output counts, and ordinary tasks that work at it:
//! each is eyas itself ([`map_worker`]), and has the program as its child. What they write is hidden until all is done.

mod busy;
mod partition;
mod pipeline;
mod reduce;
mod worker;

use std::time::Duration;

use eyas_dfs::blocks::{BlockPolicy, DEFAULT_TERM_US, POLICIES};
use eyas_dfs::{BlockRunId, DfsClient, File, FilesError, FilesErrorKind, RunAddress, RunSpec, RunStatus};
use eyas_session::Access;
use eyas_types::access::FilesScope;
use eyas_types::dfs::{FileName, FileNameError, NodeId};
use eyas_types::task::Program;
use eyas_types::units::format_count;
use eyas_types::{JobId, Resources, Status, TaskItem, TaskTemplate, Template, TemplatePart, WorkingFolder};
use eyas_wire::client::{FromClient, TaskResult, ToClient};
use eyas_wire::view::{JobState, JobView};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

pub use partition::MAX_REDUCERS;
pub use reduce::{ReduceTask, reduce_worker};
pub use worker::{MapTask, Shuffle, WorkError, map_worker};

use crate::client::{Client, ClientError, Seen};
use crate::draft::{Draft, DraftError};
use crate::jobfile::same;

/// How often it is asked how the run stands.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A dispatcher that is lost is dialled for so long.
const RECONNECT: Duration = Duration::from_secs(600);

/// The node that leads a run answers by then, unless it is gone for the moment.
const LOOK_DEADLINE: Duration = Duration::from_secs(5);

/// When all chunks are read, tasks have so long to end by themselves.
const LINGER: Duration = Duration::from_millis(500);

/// When all is done, or nothing can be, what still runs is waited for so long.
const END_DEADLINE: Duration = Duration::from_secs(10);

/// The leader forgets a run of which it has heard nothing for so long, and removes what it has left.
const ABANDONED: Duration = Duration::from_secs(1800);

/// It hears of it so often, as long as somebody has need of it.
const ASK_EVERY: Duration = Duration::from_secs(60);

/// Of an executor that is no node of the file system, where its slots are concerned.
const NO_NODE: NodeId = NodeId(0);

/// A job over the blocks of files, as it is put together.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use eyas_client::{Cluster, MapJob};
///
/// let program = ["grep", "M31"].map(String::from).to_vec();
/// let mut job = MapJob::new(vec!["/data/sky.csv".parse()?], program);
/// job.to = Some("/data/m31".into());
/// let mut mapping = job.begin(&Cluster::named("survey")?.access()?).await?;
/// let done = mapping.run(|_| {}).await;
/// mapping.end().await?;
/// println!("{} blocks", done?.parts.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MapJob {
    /// What it reads.
    pub files: Vec<FileName>,
    /// What reads the blocks, and its arguments.
    pub program: Vec<String>,
    /// Who gets what.
    pub policy: BlockPolicy,
    /// A task that nothing is heard of for so long loses its block.
    pub term: Duration,
    /// How many tasks there are: as many as executors have slots, if it is not said.
    pub tasks: Option<u32>,
    /// How often each is tried again.
    pub retries: u32,
    /// Whether the program is started anew for each file, so that it reads one alone. It is also if its name, `{file}`, is
    /// among the arguments.
    pub by_file: bool,
    /// Local files that are brought along, such as the program.
    pub inputs: Vec<String>,
    /// What becomes of the lines that the program writes; they are gathered as they are, if it is not said.
    pub reduce: Option<Reduce>,
    /// The folder in which what was written appears; it stays hidden, if it is not said.
    pub to: Option<String>,
}

/// A reduce: it reads lines `key TAB value`, sorted by key.
#[derive(Clone, Debug)]
pub struct Reduce {
    /// A shell's command.
    pub command: String,
    /// How many of them there are; each has all lines of its keys.
    pub reducers: u32,
    /// A shell's command that is applied to what one program wrote, sorted by key, before that is stored.
    pub combine: Option<String>,
}

/// Why a job over blocks came to nothing.
#[derive(Debug, Error)]
pub enum MapError {
    /// The dispatcher, or the connection to it.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The file system.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// What is brought along.
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// It cannot be: there is no executor, or too many reducers.
    #[error("{0}")]
    Invalid(String),
    /// The folder for the outputs is not a name.
    #[error(transparent)]
    Folder(#[from] FileNameError),
    /// Its tasks have failed.
    #[error("{0}")]
    Failed(String),
}

/// What is seen of a job over blocks.
#[derive(Debug)]
pub enum MapSeen<'a> {
    /// How its run stands.
    Progress(&'a RunStatus),
    /// A task has ended.
    Result(&'a TaskResult),
    /// How its tasks stand.
    Tasks(&'a JobView),
    /// The dispatcher is gone, or back.
    Dispatcher(&'a Seen),
}

/// A job over blocks that has begun.
pub struct Mapping {
    job: MapJob,
    access: Access,
    client: Client,
    files: DfsClient,
    place: RunAddress,
    /// Chunks in all.
    chunks: u32,
    /// Has its leader remember it.
    _asking: Asking,
    /// Those of its jobs that may have tasks which have not ended.
    under_way: Vec<JobId>,
    outputs: Vec<FileName>,
}

impl MapJob {
    /// A job with nothing else asked for.
    pub fn new(files: Vec<FileName>, program: Vec<String>) -> Self {
        MapJob {
            files,
            program,
            policy: POLICIES[0].1,
            term: Duration::from_micros(DEFAULT_TERM_US),
            tasks: None,
            retries: 0,
            by_file: false,
            inputs: Vec::new(),
            reduce: None,
            to: None,
        }
    }

    /// Looks at the files, and has the run led.
    ///
    /// # Errors
    /// If a file is missing, the job cannot be, or the cluster does not answer.
    pub async fn begin(self, access: &Access) -> Result<Mapping, MapError> {
        if self.reduce.as_ref().is_some_and(|reduce| !(1..=MAX_REDUCERS).contains(&reduce.reducers)) {
            return Err(MapError::Invalid(format!("there are 1 to {MAX_REDUCERS} reducers")));
        }
        let mut client = Client::connect(access).await?;
        let files = client.files().await?;
        if let Some(to) = &self.to {
            part_in(to, 0)?;
            if !files.list(to).await?.is_empty() {
                return Err(MapError::Invalid(format!(
                    "there are files in {to} already: remove them first, or choose another folder"
                )));
            }
        }
        let mut read = Vec::new();
        for name in &self.files {
            read.push(files.stat(name).await?);
        }
        let chunks = read.iter().map(|file: &File| file.record.chunks.len() as u32).sum();
        let slots = slots(&mut client, &files, self.tasks, chunks).await?;
        let term_us = self.term.as_micros() as u64;
        let spec = RunSpec { files: read, policy: self.policy, slots: slots.clone(), term_us, idle: ABANDONED };
        let place = files.open_run(spec).await?;
        let asking = Asking(tokio::spawn(keep_asking(files.clone(), place)));
        let job = MapJob { tasks: Some(slots.len() as u32), ..self };
        let access = access.clone();
        let (under_way, outputs) = (Vec::new(), Vec::new());
        Ok(Mapping { job, access, client, files, place, chunks, _asking: asking, under_way, outputs })
    }

    /// Tasks that run these words of eyas's.
    async fn draft(&self, name: &str, words: Vec<Template>, tasks: u32, run: BlockRunId) -> Result<Draft, DraftError> {
        let mut draft = Draft::new(name);
        let mut template = TaskTemplate::new(Program::Noop);
        let mut words = words;
        for path in &self.inputs {
            let place = template.inputs.len() as u16;
            template.inputs.push(draft.input(&path.as_str().into()).await?);
            for word in &mut words {
                if matches!(&word.0[..], [TemplatePart::Literal(text)] if same(text, path.as_bytes())) {
                    *word = Template(vec![TemplatePart::Input(place)]);
                }
            }
        }
        template.program = Program::Command(words);
        template.base = draft.folder()?;
        template.folder = WorkingFolder::Path(template.base.clone());
        template.resources = Resources { cpus_milli: 1000, ..Resources::default() };
        template.retries = self.retries;
        // With the token of its job, a task may read these, and write what is not yet to be seen.
        template.files = FilesScope { reads: self.files.clone(), folders: vec![run.folder()] };
        let template = draft.template(template)?;
        for _ in 0..tasks {
            draft.task(TaskItem { template, values: Vec::new(), inputs: Vec::new() })?;
        }
        Ok(draft)
    }
}

impl Mapping {
    /// Chunks that its files have.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Has all chunks read, the reduce done if there is one, and what was written appear where it is to; tells how the run
    /// went. Nothing is to be seen before.
    ///
    /// # Errors
    /// If its tasks fail, or the cluster does not answer.
    pub async fn run(&mut self, mut see: impl FnMut(MapSeen)) -> Result<RunStatus, MapError> {
        let status = self.map(&mut see).await?;
        let run = self.place.run;
        self.outputs = match self.job.reduce.clone() {
            None => status.parts.iter().map(|part| run.file(worker::part_name(part.worker))).collect(),
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

    /// What was written, in order: what one program wrote in the order of the first chunks that each has read, what a reduce
    /// wrote by its number. Unless they have appeared in a folder, they are hidden files, which go with this job.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn outputs(&self) -> Result<Vec<File>, MapError> {
        let mut files = Vec::new();
        for name in &self.outputs {
            files.push(self.files.stat(name).await?);
        }
        Ok(files)
    }

    /// The file system that they are in.
    pub fn files(&self) -> &DfsClient {
        &self.files
    }

    /// Ends what still runs, and removes what was not published.
    ///
    /// # Errors
    /// If the cluster does not answer.
    pub async fn end(mut self) -> Result<(), MapError> {
        for job in self.under_way.drain(..) {
            // The connection may be in the middle of a watch.
            let mut client = Client::connect(&self.access).await?;
            client.ask(FromClient::Cancel { job, task: None }).await?;
            // What stands still is killed by its executor, and can store nothing more once the run is closed.
            if let Ok(watched) = timeout(END_DEADLINE, client.watch(job, false, Duration::ZERO, |_| {})).await {
                watched?;
            }
        }
        // If its leader has gone, so has all that it knew of it.
        if !has_left(&self.files, self.place.node).await {
            let _ = timeout(END_DEADLINE, self.files.close_run(self.place)).await;
        }
        for listing in self.files.list(&self.place.run.folder()).await? {
            match self.files.remove(&listing.name).await {
                Err(error) if error.kind == FilesErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    /// Has all chunks read.
    async fn map(&mut self, see: &mut impl FnMut(MapSeen)) -> Result<RunStatus, MapError> {
        if self.chunks == 0 {
            return Ok(self.files.run_status(self.place).await?);
        }
        let mut words = vec!["eyas".to_owned(), "worker".into(), "map".into(), self.place.to_string()];
        if let Some(reduce) = &self.job.reduce {
            words.extend(["--partitions".into(), reduce.reducers.to_string()]);
            words.extend(reduce.combine.iter().flat_map(|combine| ["--combine".to_owned(), combine.clone()]));
        }
        if self.job.by_file || self.job.program.iter().any(|word| word.contains(worker::FILE)) {
            words.push("--by-file".into());
        }
        words.push("--".into());
        words.extend(self.job.program.iter().cloned());
        let words = words.into_iter().map(Template::literal).collect();
        let tasks = self.job.tasks.expect("it was counted when it began");
        let draft = self.job.draft(&name_of(&self.job.program), words, tasks, self.place.run).await?;
        let job = self.client.submit(draft).await?;
        self.under_way.push(job);
        let mut failures = Failures::default();
        let (status, is_over) = self.see_through(job, &mut failures, see).await?;
        match is_over {
            true => self.under_way.clear(),
            // The connection may be in the middle of an answer.
            false => self.client = Client::connect(&self.access).await?,
        }
        match status.is_complete {
            true => Ok(status),
            false => Err(failures.error(format!(
                "{} of {} chunks were not read",
                self.chunks - status.committed_chunks,
                self.chunks
            ))),
        }
    }

    /// Waits until all chunks are read or all tasks have ended; tells how the run stands, and whether they have.
    async fn see_through(
        &mut self,
        job: JobId,
        failures: &mut Failures,
        see: &mut impl FnMut(MapSeen),
    ) -> Result<(RunStatus, bool), MapError> {
        let (tell, mut told) = mpsc::unbounded_channel();
        let watching = self.client.watch(job, true, RECONNECT, |seen| drop(tell.send(seen)));
        let mut watching = std::pin::pin!(watching);
        let mut looks = interval(LOOK_EVERY);
        let (mut is_over, mut is_lost) = (false, false);
        loop {
            tokio::select! {
                ended = &mut watching, if !is_over => {
                    ended?;
                    is_over = true;
                }
                _ = looks.tick() => {}
            }
            let Ok(status) = timeout(LOOK_DEADLINE, self.files.run_status(self.place)).await else {
                // Until others count on it no more it may come back, and tasks go on.
                if is_lost && (is_over || has_left(&self.files, self.place.node).await) {
                    let node = self.place.node;
                    let gone = format!("node {node} of the file system, which led the job, is gone: run it again");
                    return Err(MapError::Failed(gone));
                }
                is_lost = true;
                continue;
            };
            let status = status?;
            is_lost = false;
            // Tasks end when nothing is left to do; but some may stand still whose work others have done.
            if status.is_complete && !is_over {
                is_over = matches!(timeout(LINGER, &mut watching).await, Ok(Ok(_)));
            }
            while let Ok(seen) = told.try_recv() {
                failures.see(&seen, see);
            }
            see(MapSeen::Progress(&status));
            if is_over || status.is_complete {
                return Ok((status, is_over));
            }
        }
    }

    /// Has the reduce done.
    async fn reduce(&mut self, reduce: &Reduce, see: &mut impl FnMut(MapSeen)) -> Result<(), MapError> {
        let literal = |text: &str| Template::literal(text);
        let (place, reducers) = (self.place.to_string(), reduce.reducers.to_string());
        let mut words: Vec<_> = ["eyas", "worker", "reduce", &place].into_iter().map(literal).collect();
        // Tasks count from 1.
        words.push(Template(vec![TemplatePart::Number]));
        words.extend(["--of", &reducers, "--", "sh", "-c", &reduce.command].into_iter().map(literal));
        let draft = self.job.draft("reduce", words, reduce.reducers, self.place.run).await?;
        let job = self.client.submit(draft).await?;
        self.under_way.push(job);
        let mut failures = Failures::default();
        let ended = self.client.watch(job, true, RECONNECT, |seen| failures.see(&seen, see)).await?;
        self.under_way.retain(|other| *other != job);
        match ended.state {
            JobState::Succeeded => Ok(()),
            _ => Err(failures.error("the reduce has not come to its end".into())),
        }
    }

    /// Has what was written appear as `part-00000`, `part-00001` … in a folder, one after the other, each whole; or none, if
    /// one cannot.
    async fn publish(&mut self, folder: &str) -> Result<(), MapError> {
        let mut published = Vec::new();
        for (number, hidden) in self.outputs.iter().enumerate() {
            let name = part_in(folder, number)?;
            if let Err(error) = self.files.rename(hidden, &name).await {
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

/// Whether the others do not count on a node any more. If they do not answer, nothing is known.
async fn has_left(files: &DfsClient, node: NodeId) -> bool {
    let membership = timeout(LOOK_DEADLINE, files.membership()).await;
    matches!(membership, Ok(Ok(membership)) if !membership.has_joined(node))
}

/// Ends when it is dropped.
struct Asking(JoinHandle<()>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Asks how a run stands, so that its leader does not forget it: nobody else may do so in a long reduce, or while somebody
/// reads what came of it. Whoever needs the answer asks, too.
async fn keep_asking(files: DfsClient, place: RunAddress) {
    let mut asks = interval(ASK_EVERY);
    loop {
        asks.tick().await;
        let _ = files.run_status(place).await;
    }
}

/// What tasks say that fail.
#[derive(Default)]
struct Failures {
    count: u64,
    first: Option<String>,
}

impl Failures {
    fn see(&mut self, seen: &Seen, see: &mut impl FnMut(MapSeen)) {
        match seen {
            Seen::Results(results) => {
                for result in results {
                    if !matches!(result.outcome.status, Status::Succeeded | Status::Cancelled) {
                        self.count += 1;
                        self.first.get_or_insert_with(|| said(result));
                    }
                    see(MapSeen::Result(result));
                }
            }
            Seen::Progress(view) => see(MapSeen::Tasks(view)),
            Seen::Lost(_) | Seen::Back => see(MapSeen::Dispatcher(seen)),
            // The command of a worker says nothing to a user.
            Seen::Failures(_) => {}
        }
    }

    fn error(&self, what: String) -> MapError {
        MapError::Failed(match &self.first {
            Some(first) => format!("{what}; {} failed, the first: {first}", format_count(self.count, "task")),
            None => what,
        })
    }
}

/// A failed task's own last words.
fn said(result: &TaskResult) -> String {
    let outcome = &result.outcome;
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    match stderr.lines().rfind(|line| !line.trim().is_empty()) {
        Some(last) => format!("task {}: {}: {last}", result.index, outcome.status),
        None => format!("task {}: {}", result.index, outcome.status),
    }
}

fn name_of(program: &[String]) -> String {
    program.first().and_then(|program| program.rsplit('/').next()).unwrap_or("map").to_owned()
}

fn part_in(folder: &str, number: usize) -> Result<FileName, FileNameError> {
    format!("{}/part-{number:05}", folder.trim_end_matches('/')).parse()
}

/// The node of each slot that executors have: one of each executor, then a second of each that has more, and so on. As many
/// as tasks are asked for; else no more than there are chunks.
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
    let node =
        |address| alive.iter().find(|member| Some(member.address) == address).map_or(NO_NODE, |member| member.node);
    let executors: Vec<_> =
        executors.iter().map(|executor| (node(executor.files), executor.capacity.cpus_milli / 1000)).collect();
    let most = executors.iter().map(|(_, slots)| *slots).max().unwrap_or(0);
    let turns = (0..most).flat_map(|turn| executors.iter().filter(move |(_, slots)| *slots > turn));
    let all: Vec<_> = turns.map(|(node, _)| *node).collect();
    if all.is_empty() {
        return Err(MapError::Invalid(
            "no executor can run a task: start some with `eyas start executor --dfs`".into(),
        ));
    }
    let count = tasks.unwrap_or_else(|| chunks.clamp(1, all.len() as u32));
    Ok(all.iter().copied().cycle().take(count as usize).collect())
}
