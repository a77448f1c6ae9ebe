//! Commands that ask a running cluster something.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::units::format_count;
use eyas_client::types::{JobId, Name, ObjectId, TaskId};
use eyas_client::view::{JobReport, JobState, ObjectView};
use eyas_client::{Client, ClientError, Draft, read_job_file};
use eyas_store::{name_of, path_of, url_of};

use crate::command::{
    CatalogCommand, ExecutorCommand, JobCommand, Reach, ReconnectArgs, ReportArgs, SubmitArgs, TaskCommand, WhichJob,
};
use crate::interrupt::{INTERRUPTED, Interrupt};
use crate::print::{self, out, say};
use crate::report::Form;
use crate::waiting::{self, Progress};
use crate::{Failure, detach, get, report as pages, show, trace};

/// A cluster that was told to stop is waited for so long.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

pub(crate) async fn connect(reach: &Reach) -> Result<Client, Failure> {
    Ok(Client::connect(&reach.cluster()?.access()?).await?)
}

pub(crate) fn unexpected<T>() -> Result<T, Failure> {
    Err(ClientError::Unexpected.into())
}

/// `eyas submit`
pub(crate) async fn submit(args: SubmitArgs, reach: &Reach) -> Result<ExitCode, Failure> {
    let (mut interrupt, progress) = (Interrupt::listen(), Progress::begin());
    let submitted = submit_file(&args, reach, &progress, &mut interrupt).await;
    let (mut client, job) = match submitted.inspect_err(|_| progress.clear())? {
        Ok(submitted) => submitted,
        Err(code) => {
            progress.clear();
            return Ok(code);
        }
    };
    match reach.json {
        // One answer: with `--wait` it is how the job has ended.
        true if args.wait => {}
        true => show::json("job", &job)?,
        false => progress.suspend(|| out!("{job}"))?,
    }
    if args.wait {
        return wait(&mut client, &[job], args.reconnect, progress, interrupt, reach).await;
    }
    progress.clear();
    Ok(ExitCode::SUCCESS)
}

/// Submits a job file; the exit code if there is no job.
async fn submit_file(
    args: &SubmitArgs,
    reach: &Reach,
    progress: &Progress,
    interrupt: &mut Interrupt,
) -> Result<Result<(Client, JobId), ExitCode>, Failure> {
    let mut draft = tokio::select! {
        draft = read_job_file(&args.file, args.priority, progress.preparing()) => draft?,
        () = interrupt.comes() => return Ok(Err(ExitCode::from(INTERRUPTED))),
    };
    if args.reuse {
        draft.reuse_results();
    }
    if let Some(distribution) = args.distribution {
        draft.distribute(distribution);
    }
    if draft.is_empty() {
        progress.suspend(|| say!("{} has no tasks; nothing was submitted", args.file));
        return Ok(Err(ExitCode::SUCCESS));
    }
    let mut client = connect(reach).await?;
    let job = waiting::submit(&mut client, draft, progress, interrupt).await?;
    Ok(job.map(|job| (client, job)).ok_or(ExitCode::from(INTERRUPTED)))
}

/// Waits for the end of jobs, one after the other.
async fn wait(
    client: &mut Client,
    jobs: &[JobId],
    reconnect: ReconnectArgs,
    mut progress: Progress,
    mut interrupt: Interrupt,
    reach: &Reach,
) -> Result<ExitCode, Failure> {
    let mut ended = Vec::new();
    for (place, job) in jobs.iter().enumerate() {
        let watched = waiting::wait(client, *job, reconnect.patience(), &mut progress, &mut interrupt).await;
        let Some(view) = watched.inspect_err(|_| progress.clear())? else {
            progress.clear();
            jobs[place..].iter().for_each(|job| say!("{}", waiting::goes_on(*job)));
            return Ok(ExitCode::from(INTERRUPTED));
        };
        if !reach.json {
            let whose = if jobs.len() > 1 { format!("job {job}: ") } else { String::new() };
            progress.suspend(|| say!("{whose}{}", show::summary(&view)));
        }
        ended.push(view);
    }
    progress.clear();
    if reach.json {
        show::json("jobs", &ended)?;
    }
    let have_succeeded = ended.iter().all(|job| job.state == JobState::Succeeded);
    Ok(if have_succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The job that is meant.
async fn job_of(client: &mut Client, which: WhichJob) -> Result<JobId, Failure> {
    match which {
        WhichJob::Id(job) => Ok(job),
        WhichJob::Last => match client.ask(FromClient::Jobs { job: None }).await? {
            ToClient::Jobs(jobs) => {
                let last = jobs.iter().map(|job| job.job).max();
                Ok(last.ok_or("there is no job: `eyas submit` submits one")?)
            }
            _ => unexpected(),
        },
    }
}

/// `eyas job …`
pub(crate) async fn job(which: JobCommand, reach: &Reach) -> Result<ExitCode, Failure> {
    let mut client = connect(reach).await?;
    let request = match which {
        JobCommand::List => FromClient::Jobs { job: None },
        JobCommand::Show { job } => FromClient::Jobs { job: Some(job_of(&mut client, job).await?) },
        JobCommand::Wait { jobs, reconnect } => {
            let mut meant = Vec::new();
            for which in jobs {
                meant.push(job_of(&mut client, which).await?);
            }
            return wait(&mut client, &meant, reconnect, Progress::begin(), Interrupt::listen(), reach).await;
        }
        JobCommand::Get { job, place } => {
            let job = job_of(&mut client, job).await?;
            return get::get(&mut client, job, None, Vec::new(), place, reach).await;
        }
        JobCommand::Cancel { job } => FromClient::Cancel { job: job_of(&mut client, job).await?, task: None },
        JobCommand::Retry { job } => FromClient::Retry { job: job_of(&mut client, job).await? },
        JobCommand::Release { job } => FromClient::Release { job: job_of(&mut client, job).await? },
        JobCommand::Forget { jobs } => {
            let mut ids = Vec::new();
            for which in jobs {
                ids.push(job_of(&mut client, which).await?);
            }
            for job in &ids {
                client.ask(FromClient::Forget { job: *job }).await?;
            }
            say_done(ids.len() as u64, "jobs", reach)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let what = if matches!(request, FromClient::Release { .. }) { "objects" } else { "tasks" };
    match client.ask(request).await? {
        ToClient::Jobs(jobs) if reach.json => show::json("jobs", &jobs)?,
        ToClient::Jobs(jobs) => show::jobs(&jobs)?,
        ToClient::Done(tasks) => say_done(tasks, what, reach)?,
        _ => return unexpected(),
    }
    Ok(ExitCode::SUCCESS)
}

fn say_done(count: u64, what: &str, reach: &Reach) -> Result<(), Failure> {
    match reach.json {
        true => show::json(what, &count)?,
        false => say!("{count} {what}"),
    }
    Ok(())
}

/// `eyas task …`
pub(crate) async fn task(which: TaskCommand, reach: &Reach) -> Result<ExitCode, Failure> {
    let mut client = connect(reach).await?;
    let (request, stderr) = match which {
        TaskCommand::List { job, failed, from, limit } => {
            let tasks = client.tasks(job, from, limit, failed).await?;
            if reach.json {
                show::json("tasks", &tasks)?
            } else {
                show::tasks(&tasks)?
            }
            return Ok(ExitCode::SUCCESS);
        }
        TaskCommand::Show { task } => (FromClient::Explain { task }, false),
        TaskCommand::Log { task, stderr } => (FromClient::Log { task }, stderr),
        TaskCommand::Get { task, files, place } => {
            return get::get(&mut client, task.job, Some(task.index), files, place, reach).await;
        }
        TaskCommand::Cancel { task } => (FromClient::Cancel { job: task.job, task: Some(task.index) }, false),
    };
    match client.ask(request).await? {
        ToClient::Explained(explanation) if reach.json => show::json("task", &explanation.task)?,
        ToClient::Explained(explanation) => show::tasks(std::slice::from_ref(&explanation.task))?,
        ToClient::Log(None) => return Err("the task has not ended: it has no log yet".into()),
        ToClient::Log(Some(result)) if reach.json => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let outcome = &result.outcome;
            let log = serde_json::json!({
                "status": outcome.status.to_string(),
                "stdout": text(&outcome.stdout),
                "stderr": text(&outcome.stderr),
                "cut_bytes": outcome.cut_bytes,
            });
            show::json("log", &log)?;
        }
        ToClient::Log(Some(result)) => {
            let outcome = &result.outcome;
            print::bytes(if stderr { &outcome.stderr } else { &outcome.stdout })?;
            if outcome.cut_bytes > 0 {
                say!("{}", show::cut(outcome.cut_bytes));
            }
        }
        ToClient::Done(tasks) => say_done(tasks, "tasks", reach)?,
        _ => return unexpected(),
    }
    Ok(ExitCode::SUCCESS)
}

/// `eyas explain`
pub(crate) async fn explain(task: TaskId, reach: &Reach) -> Result<ExitCode, Failure> {
    match connect(reach).await?.ask(FromClient::Explain { task }).await? {
        ToClient::Explained(explanation) if reach.json => show::json("explanation", &explanation)?,
        ToClient::Explained(explanation) => show::explanation(&explanation)?,
        _ => return unexpected(),
    }
    Ok(ExitCode::SUCCESS)
}

/// `eyas executor …`
pub(crate) async fn executor(which: ExecutorCommand, reach: &Reach) -> Result<ExitCode, Failure> {
    let request = match which {
        ExecutorCommand::List => FromClient::Executors,
        ExecutorCommand::Stop { executor } => FromClient::StopExecutor { executor },
    };
    match connect(reach).await?.ask(request).await? {
        ToClient::Executors(executors) if reach.json => show::json("executors", &executors)?,
        ToClient::Executors(executors) => show::executors(&executors)?,
        ToClient::Done(executors) => say_done(executors, "executors", reach)?,
        _ => return unexpected(),
    }
    Ok(ExitCode::SUCCESS)
}

/// `eyas catalog …`
pub(crate) async fn catalog(which: CatalogCommand, reach: &Reach) -> Result<ExitCode, Failure> {
    let CatalogCommand::Show { object } = which;
    let id: Option<ObjectId> = object.as_str().and_then(|object| object.parse().ok());
    let source = match id {
        Some(_) => Name::default(),
        // Kept in the cluster alone; nothing of persistent storage.
        None if object.starts_with(b"eyas://") => object.clone(),
        None if object.is_url() => url_of(&object)?,
        None => {
            let path: PathBuf = std::env::current_dir()?.join(path_of(&object)).components().collect();
            url_of(&name_of(path))?
        }
    };
    let mut client = connect(reach).await?;
    let mut objects = ask_catalog(&mut client, id, source).await?;
    if objects.is_empty() && id.is_none() && !object.starts_with(b"eyas://") {
        objects = by_version(&mut client, &object).await?;
    }
    match reach.json {
        _ if objects.is_empty() => return Err(format!("the catalog has no object `{object}`").into()),
        true => show::json("objects", &objects)?,
        false => show::objects(&objects)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn ask_catalog(client: &mut Client, object: Option<ObjectId>, source: Name) -> Result<Vec<ObjectView>, Failure> {
    match client.ask(FromClient::Catalog { object, source }).await? {
        ToClient::Objects(objects) => Ok(objects),
        _ => unexpected(),
    }
}

/// What no job reads has no name at the dispatcher, but an id: that of its source at the version it has now.
async fn by_version(client: &mut Client, source: &Name) -> Result<Vec<ObjectView>, Failure> {
    let mut draft = Draft::new("catalog");
    if draft.look_at(std::slice::from_ref(source)).await.is_err() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for object in draft.into_objects() {
        let views = ask_catalog(client, Some(object.id()), Name::default()).await?;
        found.extend(views.into_iter().map(|view| ObjectView { source: Some(object.source.clone()), ..view }));
    }
    Ok(found)
}

/// `eyas stop`: returns once the dispatcher has ended, and all processes of the cluster on this machine.
pub(crate) async fn stop(reach: &Reach) -> Result<ExitCode, Failure> {
    let mut client = connect(reach).await?;
    match client.ask(FromClient::Stop).await? {
        ToClient::Stopping { executors, processes } => {
            let ended = async {
                client.closed().await;
                detach::wait_until_ended(&processes).await;
            };
            if tokio::time::timeout(STOP_DEADLINE, ended).await.is_err() {
                return Err(
                    "the cluster was told to stop, but some of its processes have not ended yet; see its log".into()
                );
            }
            match reach.json {
                true => show::json("executors stopped", &executors)?,
                false => say!("stopped {}", format_count(executors, "executor")),
            }
        }
        _ => return unexpected(),
    }
    Ok(ExitCode::SUCCESS)
}

/// `eyas report`
pub(crate) async fn report(args: ReportArgs, reach: &Reach) -> Result<ExitCode, Failure> {
    let mut client = connect(reach).await?;
    let job = job_of(&mut client, args.job).await?;
    let report = fetch_report(&mut client, job).await?;
    let baseline = match args.baseline {
        Some(which) => {
            let job = job_of(&mut client, which).await?;
            Some(fetch_report(&mut client, job).await?)
        }
        None => None,
    };
    if let Some(path) = &args.trace {
        trace::write(&mut client, &report.job, path).await?;
    }
    if reach.json {
        print::text(&(pages::json(&report) + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = args.output.unwrap_or_else(|| PathBuf::from(format!("eyas-report-{job}.html")));
    write_report(&path, &report, baseline.as_ref())?;
    print::text(&pages::table(&report))?;
    say!("the report is in {}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// A job's report data.
pub(crate) async fn fetch_report(client: &mut Client, job: JobId) -> Result<JobReport, Failure> {
    match client.ask(FromClient::Report { job }).await? {
        ToClient::Report(report) => Ok(*report),
        _ => unexpected(),
    }
}

/// Writes a report in the form that the file's ending names.
pub(crate) fn write_report(path: &Path, report: &JobReport, baseline: Option<&JobReport>) -> Result<(), Failure> {
    let form =
        Form::of(path).ok_or_else(|| format!("{}: a report's name ends in .html, .csv or .json", path.display()))?;
    let text = form.text(report, baseline);
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|e| format!("cannot make the folder {}: {e}", folder.display()))?;
    }
    std::fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()).into())
}
