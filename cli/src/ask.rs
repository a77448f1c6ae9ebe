//! Commands that ask a running cluster something.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::units::format_count;
use eyas_client::types::{JobId, ObjectId, TaskId};
use eyas_client::view::{JobReport, JobState, JobView, ObjectView};
use eyas_client::{Client, ClientError, Draft, read_job_file};
use eyas_store::url_of;

use crate::command::{
    CatalogCommand, ExecutorCommand, JobCommand, Reach, ReconnectArgs, ReportArgs, SubmitArgs, TaskCommand,
};
use crate::report::Form;
use crate::{Failure, get, report as pages, show, trace};

/// A cluster that was told to stop is waited for so long.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

async fn connect(reach: &Reach) -> Result<Client, Failure> {
    Ok(Client::connect(&reach.cluster()?.access()?).await?)
}

fn unexpected<T>() -> Result<T, Failure> {
    Err(ClientError::Unexpected.into())
}

fn code_of(job: &JobView) -> ExitCode {
    if job.state == JobState::Succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `eyas submit`
pub(crate) async fn submit(args: SubmitArgs, reach: &Reach) -> Result<ExitCode, Failure> {
    let mut draft = read_job_file(&args.file, args.priority).await?;
    if args.reuse {
        draft.reuse_results();
    }
    if let Some(distribution) = args.distribution {
        draft.distribute(distribution);
    }
    if draft.is_empty() {
        eprintln!("eyas: {} has no tasks; nothing was submitted", args.file);
        return Ok(ExitCode::SUCCESS);
    }
    let mut client = connect(reach).await?;
    let job = client.submit(draft).await?;
    match reach.json {
        // One answer: with `--wait` it is how the job has ended.
        true if args.wait => {}
        true => show::json("job", &job)?,
        false => println!("{job}"),
    }
    if args.wait { wait(&mut client, job, args.reconnect, reach).await } else { Ok(ExitCode::SUCCESS) }
}

async fn wait(client: &mut Client, job: JobId, reconnect: ReconnectArgs, reach: &Reach) -> Result<ExitCode, Failure> {
    let ended = client.watch(job, false, reconnect.patience(), |seen| show::seen(&seen)).await?;
    match reach.json {
        true => show::json("jobs", std::slice::from_ref(&ended))?,
        false => eprintln!("eyas: {}", show::summary(&ended)),
    }
    Ok(code_of(&ended))
}

/// `eyas job …`
pub(crate) async fn job(which: JobCommand, reach: &Reach) -> Result<ExitCode, Failure> {
    let mut client = connect(reach).await?;
    let request = match which {
        JobCommand::List => FromClient::Jobs { job: None },
        JobCommand::Show { job } => FromClient::Jobs { job: Some(job) },
        JobCommand::Wait { job, reconnect } => return wait(&mut client, job, reconnect, reach).await,
        JobCommand::Get { job, place } => return get::get(&mut client, job, None, Vec::new(), place, reach).await,
        JobCommand::Cancel { job } => FromClient::Cancel { job, task: None },
        JobCommand::Retry { job } => FromClient::Retry { job },
        JobCommand::Release { job } => FromClient::Release { job },
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
        false => eprintln!("eyas: {count} {what}"),
    }
    Ok(())
}

/// `eyas task …`
pub(crate) async fn task(which: TaskCommand, reach: &Reach) -> Result<ExitCode, Failure> {
    let mut client = connect(reach).await?;
    let (request, stderr) = match which {
        TaskCommand::List { job, failed, from, limit } => (FromClient::Tasks { job, from, limit, failed }, false),
        TaskCommand::Show { task } => (FromClient::Explain { task }, false),
        TaskCommand::Log { task, stderr } => (FromClient::Log { task }, stderr),
        TaskCommand::Get { task, files, place } => {
            return get::get(&mut client, task.job, Some(task.index), files, place, reach).await;
        }
        TaskCommand::Cancel { task } => (FromClient::Cancel { job: task.job, task: Some(task.index) }, false),
    };
    match client.ask(request).await? {
        ToClient::Tasks(tasks) if reach.json => show::json("tasks", &tasks)?,
        ToClient::Tasks(tasks) => show::tasks(&tasks)?,
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
            std::io::stdout().write_all(if stderr { &outcome.stderr } else { &outcome.stdout })?;
            if outcome.cut_bytes > 0 {
                eprintln!("eyas: {}", show::cut(outcome.cut_bytes));
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
    let id: Option<ObjectId> = object.parse().ok();
    let source = match id {
        Some(_) => String::new(),
        // Kept in the cluster alone; nothing of persistent storage.
        None if object.starts_with("eyas://") => object.clone(),
        None if object.contains("://") => url_of(&object)?,
        None => {
            let path: PathBuf = std::env::current_dir()?.join(&object).components().collect();
            url_of(&path.to_string_lossy())?
        }
    };
    let mut client = connect(reach).await?;
    let mut objects = ask_catalog(&mut client, id, source).await?;
    if objects.is_empty() && id.is_none() && !object.starts_with("eyas://") {
        objects = by_version(&mut client, &object).await?;
    }
    match reach.json {
        _ if objects.is_empty() => return Err(format!("the catalog has no object `{object}`").into()),
        true => show::json("objects", &objects)?,
        false => show::objects(&objects)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn ask_catalog(
    client: &mut Client,
    object: Option<ObjectId>,
    source: String,
) -> Result<Vec<ObjectView>, Failure> {
    match client.ask(FromClient::Catalog { object, source }).await? {
        ToClient::Objects(objects) => Ok(objects),
        _ => unexpected(),
    }
}

/// What no job reads has no name at the dispatcher, but an id: that of its source at the version it has now.
async fn by_version(client: &mut Client, source: &str) -> Result<Vec<ObjectView>, Failure> {
    let mut draft = Draft::new("catalog");
    if draft.look_at(&[source.to_owned()]).await.is_err() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for object in draft.into_objects() {
        let views = ask_catalog(client, Some(object.id()), String::new()).await?;
        found.extend(views.into_iter().map(|view| ObjectView { source: Some(object.source.clone()), ..view }));
    }
    Ok(found)
}

/// `eyas stop`: returns once the dispatcher has ended.
pub(crate) async fn stop(reach: &Reach) -> Result<ExitCode, Failure> {
    let mut client = connect(reach).await?;
    match client.ask(FromClient::Stop).await? {
        ToClient::Done(executors) => {
            if tokio::time::timeout(STOP_DEADLINE, client.closed()).await.is_err() {
                return Err("the cluster was told to stop, but has not yet; see its log".into());
            }
            match reach.json {
                true => show::json("executors stopped", &executors)?,
                false => eprintln!("eyas: stopped {}", format_count(executors, "executor")),
            }
        }
        _ => return unexpected(),
    }
    Ok(ExitCode::SUCCESS)
}

/// `eyas report`
pub(crate) async fn report(args: ReportArgs, reach: &Reach) -> Result<ExitCode, Failure> {
    let mut client = connect(reach).await?;
    let report = fetch_report(&mut client, args.job).await?;
    let baseline = match args.baseline {
        Some(job) => Some(fetch_report(&mut client, job).await?),
        None => None,
    };
    if let Some(path) = &args.trace {
        trace::write(&mut client, &report.job, path).await?;
    }
    if reach.json {
        println!("{}", pages::json(&report));
        return Ok(ExitCode::SUCCESS);
    }
    let path = args.output.unwrap_or_else(|| PathBuf::from(format!("eyas-report-{}.html", args.job)));
    write_report(&path, &report, baseline.as_ref())?;
    print!("{}", pages::table(&report));
    eprintln!("eyas: the report is in {}", path.display());
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
