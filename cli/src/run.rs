//! `eyas run`: the main job. Drafts it, finds or starts a cluster, submits, shows progress and results, writes the
//! report, and stops what it started.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use eyas_client::messages::{FromClient, TaskResult, ToClient};
use eyas_client::types::units::format_count;
use eyas_client::types::{JobId, Name, Status, shown};
use eyas_client::view::{FailureView, JobState, JobView};
use eyas_client::{
    Bytes, Client, Draft, Duration as Span, InputFields, OneOrMore, OutputFields, Seen, TaskFields, home,
};
use eyas_session::Access;
use tokio::sync::Notify;

use crate::command::{Reach, RunArgs, named_amounts, words};
use crate::interrupt::{INTERRUPTED, Interrupt};
use crate::local::LocalCluster;
use crate::print::{self, PrintError, say};
use crate::waiting::Progress;
use crate::{Failure, ask, show, waiting};

/// With `--keep-order`, results that are ahead of their turn are kept up to so many bytes; of others, the dispatcher is
/// asked again when it is their turn.
const MAX_KEPT_BYTES: usize = 64 << 20;
/// After an interrupt, the job's end is waited for so long.
const CANCEL_DEADLINE: Duration = Duration::from_secs(10);
/// Failed tasks that are named on standard error; the rest is counted.
const MAX_NAMED_FAILURES: u64 = 20;
/// Exit code if some task did not succeed.
const FAILED: u8 = 1;

/// Runs a job to its end.
pub(crate) async fn run(args: Box<RunArgs>, reach: &Reach) -> Result<ExitCode, Failure> {
    let (mut interrupt, progress) = (Interrupt::listen(), Progress::begin());
    if args.report.is_empty() {
        // Without a place for the report, the job is refused before it runs.
        home().map_err(|e| format!("{e}; without a report (--report none), a local cluster needs no such place"))?;
    }
    let drafted = tokio::select! {
        draft = draft(&args, &progress) => draft.map(Some),
        () = interrupt.comes() => Ok(None),
    };
    let Some(draft) = drafted.inspect_err(|_| progress.clear())? else {
        progress.clear();
        return Ok(ExitCode::from(INTERRUPTED));
    };
    if draft.is_empty() {
        say!("there is nothing to run over: no tasks");
        return Ok(ExitCode::SUCCESS);
    }
    if reach.is_named() {
        return run_on(&reach.cluster()?.access()?, draft, &args, false, progress, interrupt).await;
    }
    let folder = private_folder()?;
    let local = tokio::select! {
        local = LocalCluster::start(&folder, "run", &args.shape, true) => local,
        () = interrupt.comes() => return Ok(ExitCode::from(INTERRUPTED)),
    }?;
    let access = local.access.clone();
    let done = run_on(&access, draft, &args, true, progress, interrupt).await;
    local.stop().await;
    done
}

/// Where a cluster of this run's own has its folder, by a name that cannot be guessed. The cluster's dispatcher makes and
/// removes it: it outlives this process, also if that is killed at once.
fn private_folder() -> Result<PathBuf, Failure> {
    // Each state has keys of its own from the system's source of randomness.
    let random = std::collections::hash_map::RandomState::new().hash_one(unix_s());
    let temporary = std::env::temp_dir();
    if !temporary.is_dir() {
        return Err(format!("there is no temporary folder {}: set TMPDIR to one", temporary.display()).into());
    }
    Ok(temporary.join(format!("eyas-run-{}-{random:016x}", std::process::id())))
}

async fn draft(args: &RunArgs, progress: &Progress) -> Result<Draft, Failure> {
    let program = args.command.first().map_or("noop".into(), |program| {
        String::from_utf8_lossy(program.rsplit(|byte| *byte == b'/').next().unwrap_or(program))
    });
    let mut draft = Draft::new(args.name.as_deref().unwrap_or(&program)).seen_by(progress.preparing());
    let output = |word: &Name| match words::split_once(word) {
        Some((file, to)) => OutputFields { file: file.into(), to: Some(to.into()), ..OutputFields::default() },
        None => OutputFields { file: word.clone(), ..OutputFields::default() },
    };
    let broadcast = |path: &Name| InputFields::Named { path: path.clone(), name: None, broadcast: true };
    let fields = TaskFields {
        command: args.command.clone(),
        noop: args.noop,
        each: OneOrMore(args.each.clone()),
        each_line: args.each_line.clone(),
        separator: args.colsep.clone(),
        append: args.no_append.then_some(false),
        array: args.array.clone(),
        inputs: args.input.iter().cloned().map(InputFields::Path).chain(args.broadcast.iter().map(broadcast)).collect(),
        outputs: args.output.iter().map(output).collect(),
        env: args.env.iter().cloned().collect(),
        folder: if args.sandbox { Some("sandbox".into()) } else { args.folder.clone() },
        cpus: Some(args.cpus),
        memory: args.memory.map(Bytes),
        disk: args.disk.map(Bytes),
        resources: named_amounts(&args.resource)?.into_iter().collect(),
        requirements: args.requirements.clone(),
        rank: args.rank.clone(),
        timeout: args.timeout.map(Span),
        priority: args.priority,
        retries: args.retries,
        capture: args.capture.map(Bytes),
        ..TaskFields::default()
    };
    fields.draft(&mut draft).await?;
    draft.distribute(args.distribution);
    if args.reuse {
        draft.reuse_results();
    }
    Ok(draft)
}

/// Runs a job on a cluster; one that `is_own` will not grow, so that a task too large for it is an error.
async fn run_on(
    access: &Access,
    draft: Draft,
    args: &RunArgs,
    is_own: bool,
    progress: Progress,
    mut interrupt: Interrupt,
) -> Result<ExitCode, Failure> {
    let mut client = Client::connect(access).await?;
    let submitted = match is_own {
        // Nothing of a job is left when its cluster has gone.
        true => tokio::select! {
            job = client.submit(draft) => job.map(Some).map_err(Failure::from),
            () = interrupt.comes() => Ok(None),
        },
        false => waiting::submit(&mut client, draft, &progress, &mut interrupt).await,
    };
    let Some(job) = submitted.inspect_err(|_| progress.clear())? else {
        progress.clear();
        return Ok(ExitCode::from(INTERRUPTED));
    };
    interrupt.last_words((!is_own).then(|| waiting::goes_on(job)));
    let stuck = Arc::new(Notify::new());
    let mut output = Output::new(args.keep_order, progress, is_own.then(|| stuck.clone()));
    // A cluster of its own is not started again by anyone.
    let patience = if is_own { Duration::ZERO } else { args.reconnect.patience() };
    let watched = tokio::select! {
        watched = client.watch(job, true, patience, |seen| output.see(seen)) => Ok(watched?),
        () = interrupt.comes() => Err(INTERRUPTED),
        () = stuck.notified() => Err(FAILED),
    };
    let (ended, code) = match watched {
        Ok(ended) if ended.state == JobState::Succeeded => (ended, 0),
        Ok(ended) => (ended, FAILED),
        Err(code) => {
            output.progress.message("ending what runs");
            let ended = tokio::time::timeout(CANCEL_DEADLINE, cancel(access, job, &mut output)).await;
            let ended = ended.unwrap_or_else(|_| Err("the job was cancelled but did not end in time".into()));
            match ended {
                Ok(ended) => (ended, code),
                Err(error) if is_own => return Err(error),
                Err(error) => {
                    return Err(format!("{error}. If it could not be cancelled, {}", waiting::goes_on(job)).into());
                }
            }
        }
    };
    output.finish(access, job).await?;
    say!("{}", show::summary(&ended));
    if let Err(error) = write_reports(access, job, args).await {
        let (at, again) = (where_results_are(args), if is_own { String::new() } else { report_again(job) });
        say!("the job's report could not be written: {error}. {at}{again}");
    }
    if let Some(error) = output.error.filter(|error| !error.is_broken_pipe()) {
        return Err(error.into());
    }
    Ok(ExitCode::from(code))
}

/// Cancels a job and sees it to its end; results from before are not seen again.
async fn cancel(access: &Access, job: JobId, output: &mut Output) -> Result<JobView, Failure> {
    let mut client = Client::connect(access).await?;
    client.ask(FromClient::Cancel { job, task: None }).await?;
    Ok(client.watch(job, true, Duration::ZERO, |seen| output.see(seen)).await?)
}

async fn write_reports(access: &Access, job: JobId, args: &RunArgs) -> Result<(), Failure> {
    let paths = report_paths(args, job)?;
    if paths.is_empty() {
        return Ok(());
    }
    // The watch's connection may have been cut in the middle of an answer.
    let report = ask::fetch_report(&mut Client::connect(access).await?, job).await?;
    for path in paths {
        ask::write_report(&path, &report, None)?;
        say!("report: {}", path.display());
    }
    Ok(())
}

/// What a job without a report has left.
fn where_results_are(args: &RunArgs) -> String {
    let destination = |output: &Name| {
        let (file, to) = words::split_once(output).unwrap_or((output, b"the current folder"));
        format!("`{}` in {}", shown(file), shown(to))
    };
    let outputs: Vec<_> = args.output.iter().map(destination).collect();
    let files = if outputs.is_empty() { String::new() } else { format!(", and their files {}", outputs.join(", ")) };
    format!("Results are not affected: what tasks printed is on standard output{files}.")
}

fn report_again(job: JobId) -> String {
    format!(" `eyas report {job} -o FILE` writes the report elsewhere.")
}

fn report_paths(args: &RunArgs, job: JobId) -> Result<Vec<PathBuf>, Failure> {
    if args.report.is_empty() {
        return Ok(vec![home()?.join("reports").join(format!("{}-{}-{job}.html", unix_s(), std::process::id()))]);
    }
    Ok(args.report.iter().filter(|path| *path != "none").map(PathBuf::from).collect())
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Results on standard output, progress on standard error.
struct Output {
    keep_order: bool,
    /// The index whose turn it is, and results that are ahead of it; `None` where its output was let go.
    next: u32,
    ahead: BTreeMap<u32, Option<TaskResult>>,
    kept_bytes: usize,
    /// Results seen so far, by index: a second watch shows those of the first again.
    seen: std::collections::HashSet<u32>,
    failures: u64,
    /// Failed tasks whose results are still to come or to be printed.
    described: BTreeMap<u32, FailureView>,
    /// What tasks wrote past the bound on captured output.
    cut_bytes: u64,
    error: Option<PrintError>,
    progress: Progress,
    /// Told when the job cannot go on.
    stuck: Option<Arc<Notify>>,
}

impl Output {
    fn new(keep_order: bool, progress: Progress, stuck: Option<Arc<Notify>>) -> Self {
        Output {
            keep_order,
            next: 0,
            ahead: BTreeMap::new(),
            kept_bytes: 0,
            seen: std::collections::HashSet::new(),
            failures: 0,
            described: BTreeMap::new(),
            cut_bytes: 0,
            error: None,
            progress,
            stuck,
        }
    }

    fn see(&mut self, seen: Seen) {
        self.progress.see(&seen);
        match seen {
            Seen::Results(results) => results.into_iter().for_each(|result| self.result(result)),
            Seen::Failures(failures) => self.described.extend(failures.into_iter().map(|view| (view.task.index, view))),
            Seen::Progress(view) if view.is_stuck => self.stuck.iter().for_each(|stuck| stuck.notify_one()),
            Seen::Progress(_) | Seen::Lost(_) | Seen::Back => {}
        }
    }

    fn result(&mut self, result: TaskResult) {
        if !self.seen.insert(result.index) {
            return;
        }
        if !self.keep_order {
            return self.print(&result);
        }
        let bytes = result.outcome.stdout.len() + result.outcome.stderr.len();
        let keep = self.kept_bytes + bytes <= MAX_KEPT_BYTES || result.index == self.next;
        self.kept_bytes += if keep { bytes } else { 0 };
        self.ahead.insert(result.index, keep.then_some(result));
        while let Some(Some(_)) = self.ahead.get(&self.next) {
            if let Some(Some(result)) = self.ahead.remove(&self.next) {
                self.kept_bytes -= result.outcome.stdout.len() + result.outcome.stderr.len();
                self.print(&result);
            }
            self.next += 1;
        }
    }

    /// Prints what is still kept, in order, asking for what was let go.
    async fn finish(&mut self, access: &Access, job: JobId) -> Result<(), Failure> {
        self.progress.clear();
        let ahead = std::mem::take(&mut self.ahead);
        let mut client = None;
        for (index, result) in ahead {
            let result = match result {
                Some(result) => Some(result),
                None => {
                    if client.is_none() {
                        client = Some(Client::connect(access).await?);
                    }
                    let task = eyas_client::types::TaskId { job, index };
                    match client.as_mut().expect("just connected").ask(FromClient::Log { task }).await? {
                        ToClient::Log(result) => result.map(|result| *result),
                        _ => None,
                    }
                }
            };
            result.iter().for_each(|result| self.print(result));
        }
        if self.failures > MAX_NAMED_FAILURES {
            say!("{} did not succeed", format_count(self.failures - MAX_NAMED_FAILURES, "more task"));
        }
        if self.cut_bytes > 0 {
            say!("{}", show::cut(self.cut_bytes));
        }
        Ok(())
    }

    fn print(&mut self, result: &TaskResult) {
        let outcome = &result.outcome;
        let failed = !matches!(outcome.status, Status::Succeeded | Status::Cancelled);
        let says = !outcome.stdout.is_empty() || !outcome.stderr.is_empty() || failed;
        if self.error.is_some() || !says {
            return;
        }
        self.failures += u64::from(failed);
        self.cut_bytes += outcome.cut_bytes;
        let described = self.described.remove(&result.index);
        let named = failed && self.failures <= MAX_NAMED_FAILURES;
        let written = self.progress.suspend(|| {
            print::complain(&outcome.stderr);
            match (named, described) {
                // All of its standard error has just been printed.
                (true, Some(view)) => {
                    let view = FailureView { stderr: String::new(), ..view };
                    say!("{}", show::failure(&result.index.to_string(), &view));
                }
                (true, None) => say!("task {} did not succeed: {}", result.index, outcome.status),
                (false, _) => {}
            }
            print::bytes(&outcome.stdout)
        });
        self.error = written.err();
    }
}
