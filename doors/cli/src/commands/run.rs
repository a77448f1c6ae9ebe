//! `eyas run`: prepares a job, connects to a cluster or starts one, submits the job, prints
//! progress and results, writes the report, and stops the cluster that it started.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::error::ErrorKind;
use eyas_client::types::{JobId, shown};
use eyas_client::{Client, ClientError, Draft, ScratchFolder, TaskTexts, home};
use eyas_session::private::{PrivateFolder, temporary_folder};
use eyas_session::{Access, SessionError, trusted};
use tokio::sync::mpsc;

use crate::clock::unix_s;
use crate::connect::connect_to;
use crate::error::{CliError, FAILED, INTERRUPTED};
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::interrupt::Interrupt;
use crate::local::{LocalCluster, LocalFolders};
use crate::node_args::ShapeArgs;
use crate::print::say;
use crate::waiting::{self, ProgressDisplay};
use crate::words::OutputWord;
use crate::{report as pages, show};
use draft::draft;
pub(crate) use dry_run::print_commands;
use halt::HaltWatch;
use kept_results::KeptResults;
use own_cluster::{RunPool, private_folder, start_own};
use result_printer::{PrintOptions, ResultPrinter};
pub(crate) use resume::ResumeArgs;
use resume::{Resumption, how_to_resume};
pub(crate) use run_args::RunArgs;
use running_job::RunningJob;

mod draft;
mod dry_run;
mod halt;
mod in_job;
mod kept_results;
mod lists;
mod own_cluster;
mod result_args;
mod result_files;
mod result_printer;
mod resume;
mod run_args;
mod run_records;
mod running_job;
mod tag;

/// Reports in eyas's home: the newest are kept, up to this number.
const MAX_REPORTS: usize = 100;
/// Reports in eyas's home are kept for this long.
const MAX_REPORT_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Runs a job to its end.
pub(crate) async fn run(args: Box<RunArgs>, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    if args.in_job.is_elsewhere() && !args.results.dry_run {
        return in_job::run(&args).await;
    }
    let (mut interrupt, progress) = (Interrupt::listen(), ProgressDisplay::begin());
    if args.report.is_empty() {
        // The report is written to eyas's home: if there is none, the job is refused before it
        // runs.
        home().map_err(|e| format!("{e}; or skip the report with --report none"))?;
    }
    let on_cluster = on_cluster(&args, global).await?;
    let is_known = on_cluster || global.names_cluster();
    let cluster = is_known.then(|| global.cluster()).transpose()?;
    let drafted = tokio::select! {
        draft = draft(&args, cluster.as_ref(), &progress) => draft.map(Some),
        () = interrupt.received() => Ok(None),
    };
    let Some(mut draft) = drafted.inspect_err(|_| progress.clear())? else {
        progress.clear();
        return Ok(ExitCode::from(INTERRUPTED));
    };
    if draft.is_empty() {
        if args.resume.has_earlier_words() {
            let why = "the run to go on with had a list, which is empty now: if it came from a \
                       pipe, write the whole command line again, with the pipe";
            return Err(why.into());
        }
        say!("no tasks: {}", args.why_no_tasks());
        return Ok(ExitCode::SUCCESS);
    }
    let resumption = Resumption::of(&draft, &args.command, &args.resume)?;
    if args.results.dry_run {
        progress.clear();
        print_commands(&TaskTexts::of(&draft), &resumption.done())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(code) = resumption.say(draft.len() as u64) {
        progress.clear();
        return Ok(code);
    }
    let texts = args.results.texts(&draft);
    let done = resumption.done();
    if !done.is_empty() {
        draft.leave_out(&done)?;
    }
    let work = Work { draft, texts, resumption };
    if let Some(cluster) = cluster.filter(|_| on_cluster) {
        let access = cluster.access()?;
        let mut client = connect_to(&access, global).await?;
        let on = global.named_option();
        work.resumption.refuse_if_job_goes_on(&mut client, &access, &on).await?;
        return run_on(&access, client, work, &args, Some(&on), progress, interrupt).await;
    }
    run_on_own(work, &args, progress, interrupt).await
}

/// Runs a job on a cluster that is started for it.
async fn run_on_own(
    work: Work,
    args: &RunArgs,
    progress: ProgressDisplay,
    mut interrupt: Interrupt,
) -> Result<ExitCode, CliError> {
    let pool = args.pool.as_ref().map(|word| RunPool::new(word, args)).transpose()?;
    // Nodes of a batch system read the folder, which must be on a disk that they share.
    let temporary = match &pool {
        Some(pool) if pool.is_elsewhere => home()?.join("runs"),
        _ => temporary_folder(),
    };
    if pool.is_some() {
        trusted::folder(&temporary, 0o700)?;
    }
    let folder = args
        .in_job
        .folder()
        .map_or_else(|| private_folder(&temporary), |folder| Ok(folder.to_owned()))?;
    let is_kept = args.reuse && args.in_job.folder().is_none();
    let kept = if is_kept { KeptResults::take().await } else { None };
    let shape = args.shape(work.draft.len());
    let (local, client, kept) = tokio::select! {
        started = start_reusing(kept, (&temporary, &folder), &shape, pool) => started,
        () = interrupt.received() => return Ok(ExitCode::from(INTERRUPTED)),
    }?;
    let access = local.access.clone();
    let done = run_on(&access, client, work, args, None, progress, interrupt).await;
    local.stop().await;
    if let Some((kept, stores)) = kept {
        drop(stores);
        kept.keep();
    }
    done
}

/// Starts a cluster: with the results of earlier runs, if they are given and can be used. The
/// folders are that of temporary files, and that of a cluster of which nothing stays.
async fn start_reusing(
    mut kept: Option<KeptResults>,
    (temporary, folder): (&Path, &Path),
    shape: &ShapeArgs,
    pool: Option<RunPool>,
) -> Result<(LocalCluster, Client, Option<(KeptResults, ScratchFolder)>), CliError> {
    let mut has_failed = false;
    while let Some(journal) = kept.take() {
        let scratch = ScratchFolder::make(temporary, "stores")?;
        let (state, stores) = (journal.folder().to_owned(), scratch.path().to_owned());
        let own = LocalFolders::ephemeral(folder);
        let folders = LocalFolders { state, stores, keeps_state: true, ..own };
        match start_own(folders, shape, pool.clone()).await {
            Ok((local, client)) => return Ok((local, client, Some((journal, scratch)))),
            // A new journal is tried once.
            Err(error) if has_failed => return Err(error),
            Err(error) => {
                kept = journal.after_failed_start(error)?;
                has_failed = true;
            }
        }
    }
    let (local, client) = start_own(LocalFolders::ephemeral(folder), shape, pool).await?;
    Ok((local, client, None))
}

/// Whether the job runs on a cluster that is there: on the one that is named, as with every
/// command; else on `default`, if it runs and no option shapes a cluster of the job's own.
async fn on_cluster(args: &RunArgs, global: &GlobalArgs) -> Result<bool, CliError> {
    if args.pool.is_some() {
        return match args.gives_nodes() {
            true => Err(wrong_option(
                "--nodes cannot be used with --pool, whose nodes a batch system grants: write \
                 --pool-options '--max-nodes N'",
            )),
            false => Ok(false),
        };
    }
    if global.names_cluster() {
        return match args.shape_given.first() {
            Some(option) => Err(wrong_option(&format!(
                "{option} is for a cluster that `eyas run` starts for the job, but the job runs \
                 on a cluster that is there ({}): leave {option} out, or name no cluster",
                global.cluster_option()
            ))),
            None => Ok(true),
        };
    }
    // Without a home for clusters, there is none.
    let Ok(cluster) = global.cluster() else { return Ok(false) };
    if !args.shape_given.is_empty() || !cluster.access_path().exists() {
        return Ok(false);
    }
    match Client::connect(&cluster.access()?).await {
        Ok(_) => Ok(true),
        Err(ClientError::Session(SessionError::Unreachable { .. })) => {
            say!(
                "the cluster `{}` does not run, so the job gets a temporary cluster",
                global.cluster_name()
            );
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

fn wrong_option(why: &str) -> CliError {
    clap::Error::raw(ErrorKind::ArgumentConflict, format!("{why}\n")).into()
}

/// The tasks of a run, before they are submitted.
struct Work {
    draft: Draft,
    /// The texts of the tasks, if an option needs them.
    texts: Option<TaskTexts>,
    resumption: Resumption,
}

/// Runs a job on a cluster. `stays` is the option that names it. Without it, this command has
/// started the cluster; then the cluster does not grow, and a task that is too large for it is an
/// error.
async fn run_on(
    access: &Access,
    mut client: Client,
    Work { draft, texts, mut resumption }: Work,
    args: &RunArgs,
    stays: Option<&str>,
    mut progress: ProgressDisplay,
    mut interrupt: Interrupt,
) -> Result<ExitCode, CliError> {
    let is_own = stays.is_none();
    if args.results.bar {
        progress.print_lines();
    }
    let tasks = draft.len() as u64;
    let goes_on = args.resume.is_given();
    let files = args.results.files(texts.as_ref(), goes_on);
    let mut files = files.inspect_err(|_| progress.clear())?;
    let submitted = submit(&mut client, draft, is_own, &progress, &mut interrupt).await;
    let Some(job) = submitted.inspect_err(|_| progress.clear())? else {
        progress.clear();
        return Ok(ExitCode::from(INTERRUPTED));
    };
    files.submitted_now();
    let on_dispatcher = stays.map(|_| (access.dispatcher.clone(), job));
    match resumption.begin_record(&args.command, &args.resume, on_dispatcher) {
        Ok(record) => files.record = record,
        Err(error) => files.record_failed(&error),
    }
    interrupt.set_final_message(stays.map(|on| waiting::continues(job, on)));
    let (stops, stopped) = mpsc::unbounded_channel();
    let [succeeded, failed] = resumption.counts();
    let mut output = ResultPrinter::new(
        PrintOptions {
            keep_order: args.keep_order,
            is_joined: tasks > 1,
            job: (!is_own).then_some(job),
            tags: texts.filter(|_| args.results.tag),
            done: resumption.done(),
        },
        progress,
        files,
        HaltWatch::new(args.results.halt.clone(), tasks - succeeded - failed),
        stops,
    );
    // Nothing restarts the dispatcher of a cluster that this command has started.
    let patience = if is_own { Duration::ZERO } else { args.reconnect.patience() };
    let running = RunningJob { access, job, stays, patience };
    let (code, mut ended) =
        running.until_end(&mut client, &mut output, &mut interrupt, stopped).await?;
    output.finish(access, job).await?;
    let code = if output.has_cut() { code_after_cut(code, args) } else { code };
    output.without_done(&mut ended.tasks);
    output.progress.warn(&ended);
    say!("{}", show::summary(&ended));
    let resume = output.files.record.take().and_then(|record| how_to_resume(record.end()));
    // On a cluster that stays, the job itself goes on.
    let go_on = stays.map_or(resume, |on| waiting::again(&ended, on));
    go_on.iter().for_each(|line| say!("{line}"));
    write_reports(access, job, args, stays).await;
    if let Some(error) = output.error.filter(|error| !error.is_broken_pipe()) {
        return Err(error.into());
    }
    if !output.files.errors.is_empty() {
        return Err(output.files.errors.join("; ").into());
    }
    // Tasks that have failed in the run before this one have still failed.
    let code = if code == 0 && failed > 0 { FAILED } else { code };
    Ok(ExitCode::from(code))
}

/// Submits the job; `None` after an interrupt.
async fn submit(
    client: &mut Client,
    draft: Draft,
    is_own: bool,
    progress: &ProgressDisplay,
    interrupt: &mut Interrupt,
) -> Result<Option<JobId>, CliError> {
    if !is_own {
        return waiting::submit(client, draft, progress, interrupt).await;
    }
    // The job ends with its cluster, so it need not be cancelled.
    tokio::select! {
        job = client.submit(draft) => Ok(Some(job?)),
        () = interrupt.received() => Ok(None),
    }
}

/// The exit code of a job whose output was cut, if it is `code` otherwise.
fn code_after_cut(code: u8, args: &RunArgs) -> u8 {
    // A user who names a limit on what is remembered wants no more.
    if args.capture.is_some() {
        say!(
            "with --capture, cut output does not change the exit code; with --max-output, the exit \
             code is 1"
        );
        return code;
    }
    if code == 0 { FAILED } else { code }
}

/// Writes the job's report, or says why not.
async fn write_reports(access: &Access, job: JobId, args: &RunArgs, stays: Option<&str>) {
    if let Err(error) = try_to_write_reports(access, job, args).await {
        let at = where_results_are(args);
        let again = stays.map_or_else(String::new, |on| report_again(job, on));
        say!("the job's report could not be written: {error}. {at}{again}");
    }
}

async fn try_to_write_reports(access: &Access, job: JobId, args: &RunArgs) -> Result<(), CliError> {
    if args.report.iter().all(|path| path == "none") && !args.report.is_empty() {
        return Ok(());
    }
    // The connection of the watch may have been closed in the middle of an answer, so a new one is
    // opened.
    let mut client = Client::connect(access).await?;
    let report = pages::fetch(&mut client, job).await?;
    let details = pages::fetch_details(&mut client, &report).await?;
    for path in args.report.iter().filter(|path| *path != "none").map(Path::new) {
        pages::write(path, &report, Some(&details), None)?;
        say!("report: {}", path.display());
    }
    if args.report.is_empty() {
        let path = home()?.join("reports");
        let name = format!("{}-{}-{job}.html", unix_s(), std::process::id());
        // Command lines and paths are for their user alone.
        let folder = PrivateFolder::make(&path)?;
        folder.close()?;
        folder
            .write_for_now(name.as_ref(), pages::html(&report, Some(&details), None).as_bytes())?;
        say!("report: {}", path.join(name).display());
        remove_old_reports(&path);
    }
    Ok(())
}

/// Removes the reports in eyas's home that are too old or too many. Errors are ignored: the next
/// run tries again.
fn remove_old_reports(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_report =
        |name: &OsStr| Path::new(name).extension().is_some_and(|ending| ending == "html");
    let mut reports: Vec<_> = entries
        .filter(|entry| is_report(&entry.file_name()))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    reports.sort_unstable_by(|a, b| b.cmp(a));
    let is_old = |written: SystemTime| written.elapsed().is_ok_and(|age| age > MAX_REPORT_AGE);
    for (index, (written, path)) in reports.iter().enumerate() {
        if index >= MAX_REPORTS || is_old(*written) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Where the results of the job are, for the message that the report could not be written.
fn where_results_are(args: &RunArgs) -> String {
    let destination = |OutputWord { file, to, .. }: &OutputWord| {
        let to = to.as_deref().unwrap_or(b"the current folder");
        format!("`{}` in {}", shown(file), shown(to))
    };
    let outputs: Vec<_> = args.output.iter().map(destination).collect();
    let files = if outputs.is_empty() {
        String::new()
    } else {
        format!(", their files are {}", outputs.join(", "))
    };
    format!("Results are not affected: the output of tasks is on standard output{files}.")
}

fn report_again(job: JobId, on: &str) -> String {
    format!(" `eyas report {job}{on} -o FILE` writes the report to another file.")
}
