//! Runs a job: finds its frames, has eyas stack each frame and sum the sums, and writes the
//! results. Each step is on disk before the next begins, so a restart goes on where it was. A
//! cluster that does not answer is waited for.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::cluster_api::{ClusterError, JobProgress};
use crate::collect::{
    SumMeasures, add_left_out, check_partials, collect_outcomes, printed_measures,
};
use crate::find::find_frames;
use crate::job_store::StoreError;
use crate::outcome_files::PARTIALS_FILE;
use crate::params::Weights;
use crate::portal::Portal;
use crate::record::{ClusterJob, Phase, StackJob, Step};
use crate::results::{remove_scratch, write_results};
use crate::runner_error::RunError;
use crate::secrets::unix_ms;

/// Jobs of all accounts that run; others are QUEUED.
const MAX_RUNNING_JOBS: usize = 32;
static RUNNING: Semaphore = Semaphore::const_new(MAX_RUNNING_JOBS);
/// Pauses before a cluster that does not answer is asked again; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Submissions of a job of eyas that was lost; after these, the job fails.
const MAX_RESUBMISSIONS: u32 = 3;
/// Looks for a job whose submission was interrupted, before none is taken to have arrived.
const LOOKS_FOR_LATE: u32 = 8;
/// Tries of a task in addition to the first.
const RETRIES: u32 = 2;

/// Runs a job to its end, and does what is left of one that was aborted or deleted.
pub async fn run(portal: Arc<Portal>, id: String) {
    let Some(job) = portal.jobs.get(&id) else { return };
    if job.phase.is_active() {
        tokio::select! {
            () = until_over(&portal, &id) => {}
            () = work(&portal, &id) => {}
        }
    }
    clean_up(&portal, &id).await;
}

/// Waits until a job was aborted, deleted or has run for too long.
async fn until_over(portal: &Portal, id: &str) {
    portal.jobs.wait_while(id, Phase::Queued).await;
    let Some(job) = portal.jobs.get(id) else { return };
    let ends_ms = job.started_ms.unwrap_or_default() + job.duration_s * 1000;
    let over = portal.jobs.wait_while(id, Phase::Executing);
    if job.duration_s == 0 {
        return over.await;
    }
    let left = Duration::from_millis(ends_ms.saturating_sub(unix_ms()));
    tokio::select! {
        () = over => {}
        () = sleep(left) => {
            let words = format!("the job was aborted after its EXECUTIONDURATION, {} s: set a \
                longer one, or 0 for no bound", job.duration_s);
            end(portal, id, Phase::Aborted, Some(words)).await;
        }
    }
}

/// Ends a job that has not ended. While the disk is full, the job waits for its end.
async fn end(portal: &Portal, id: &str, phase: Phase, error: Option<String>) {
    let ended = |job: &mut StackJob| {
        if job.phase.is_active() {
            job.to_cancel = true;
            (job.phase, job.ended_ms) = (phase, Some(unix_ms()));
            (job.error, job.waits_for) = (error.clone(), None);
        }
        Ok(())
    };
    let mut pause = FIRST_PAUSE;
    while let Err(why) = block_in_place(|| portal.jobs.change::<StoreError>(id, ended)) {
        if matches!(why, StoreError::Gone(_)) {
            return;
        }
        tracing::error!("the end of job {id} cannot be kept yet: {why}");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn work(portal: &Portal, id: &str) {
    let Some(job) = portal.jobs.get(id) else { return };
    // An account waits for its own jobs before it waits for those of others. The semaphores are
    // never closed.
    let of_account = portal.slots.of_account(&job.owner);
    let Ok(_of_account) = of_account.acquire().await else { return };
    let Ok(_permit) = RUNNING.acquire().await else { return };
    let mut pause = FIRST_PAUSE;
    while portal.jobs.get(id).is_some_and(|job| job.phase.is_active()) {
        let done = match step(portal, id).await {
            Err(RunError::Lost(_)) => lose(portal, id),
            done => done,
        };
        let error = match done {
            Ok(()) => {
                pause = FIRST_PAUSE;
                continue;
            }
            // A disk that is full has room again later: the step is done again then.
            Err(why) if why.may_pass() => {
                tracing::error!("job {id} waits: {why}");
                let words = "the portal cannot write to its disk: tell its administrator";
                portal.jobs.show(id, |job| job.waits_for = Some(words.into()));
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                continue;
            }
            Err(why) => why,
        };
        tracing::info!("job {id} has failed: {error}");
        // What is known of objects and frames is shown of a failed job, too.
        if let Some(job) = portal.jobs.get(id).filter(|job| job.step != Step::Find)
            && let Ok(results) = write_results(portal, &job)
        {
            portal.jobs.show(id, |job| job.results = results);
        }
        return end(portal, id, Phase::Error, Some(error.to_string())).await;
    }
}

/// Forgets a job of eyas that is lost.
fn lose(portal: &Portal, id: &str) -> Result<(), RunError> {
    portal.jobs.change(id, |job| {
        job.resubmitted += 1;
        let (times, step) = (job.resubmitted, job.step);
        if times > MAX_RESUBMISSIONS {
            return Err(RunError::Lost(times));
        }
        let of_step = if step == Step::Sum { &mut job.sum } else { &mut job.stack };
        *of_step = ClusterJob { tasks: of_step.tasks, ..ClusterJob::default() };
        Ok(())
    })?;
    Ok(())
}

/// Does the next step of a job. After the last one, the job has ended.
async fn step(portal: &Portal, id: &str) -> Result<(), RunError> {
    // What a restart finds out again is not worth a write to disk: that it runs, and the ids of its
    // jobs of eyas.
    portal.jobs.show(id, |job| {
        if job.phase == Phase::Queued {
            (job.phase, job.started_ms) = (Phase::Executing, job.started_ms.or(Some(unix_ms())));
        }
    });
    let job = portal.jobs.get(id).ok_or_else(|| StoreError::Gone(id.to_owned()))?;
    tracing::debug!("job {id} is at the step {:?}", job.step);
    match job.step {
        Step::Find => find(portal, &job).await,
        Step::Stack => {
            let ended = on_cluster(portal, &job, stack_request(portal, &job)).await?;
            tracing::debug!("the tasks of job {id} have ended");
            let outcomes = patiently(portal, id, || collect_outcomes(portal, &job, &ended)).await?;
            let outcomes = outcomes?;
            let not_found = block_in_place(|| add_left_out(&portal.folder_of(id)))?;
            portal.jobs.change::<RunError>(id, |job| {
                job.counts.not_readable += outcomes.not_readable;
                job.counts.nodes = outcomes.nodes;
                job.counts.not_found = not_found;
                job.step = Step::Sum;
                Ok(())
            })?;
            Ok(())
        }
        Step::Sum => {
            block_in_place(|| check_partials(portal, &job))?;
            let ended = on_cluster(portal, &job, sum_request(portal, &job)).await?;
            tracing::debug!("the sum of job {id} has ended");
            let measured = patiently(portal, id, || printed_measures(portal, &ended)).await?;
            let measured = measured.map_err(RunError::Job)?;
            complete(portal, id, measured)
        }
    }
}

/// Writes the results of a job, and ends it. Both are kept at once.
fn complete(portal: &Portal, id: &str, measured: SumMeasures) -> Result<(), RunError> {
    let mut job = portal.jobs.get(id).ok_or_else(|| StoreError::Gone(id.to_owned()))?;
    job.measured = measured.measured;
    (job.counts.stacked, job.counts.skipped) = (measured.stacked, measured.skipped);
    job.results = block_in_place(|| write_results(portal, &job))?;
    portal.jobs.change::<RunError>(id, |kept| {
        // It may have been aborted meanwhile.
        if kept.phase == Phase::Executing {
            (kept.phase, kept.ended_ms) = (Phase::Completed, Some(unix_ms()));
            (kept.measured, kept.counts, kept.results) = (job.measured, job.counts, job.results);
        }
        Ok(())
    })?;
    Ok(())
}

async fn find(portal: &Portal, job: &StackJob) -> Result<(), RunError> {
    let survey = job.params.check(&portal.surveys);
    let survey = survey.map_err(|why| RunError::Job(why.message))?;
    // An account that was removed meanwhile has no quota.
    let account = portal.accounts.account(&job.owner).ok().flatten();
    let quota = account.map_or(0, |account| account.quota);
    portal.usage.must_have_left(&job.owner, quota, &job.id, unix_ms())?;
    let found = find_frames(portal, job, survey).await?;
    if found.object_frames > survey.quota {
        return Err(RunError::Job(format!(
            "the job has {} object-frames, and the survey permits {}: stack fewer positions",
            found.object_frames, survey.quota
        )));
    }
    portal.usage.charge(&job.owner, quota, &job.id, found.object_frames, unix_ms())?;
    portal.jobs.change::<RunError>(&job.id, |job| {
        job.counts.object_frames = found.object_frames;
        job.counts.frames = found.frames;
        job.counts.not_found = found.not_found;
        job.counts.not_readable = found.not_readable;
        job.stack.tasks = found.tasks;
        job.step = Step::Stack;
        Ok(())
    })?;
    if found.tasks == 0 && found.not_readable > 0 {
        return Err(RunError::Job(
            "none of the frames that show the positions can be read: see the list of data that \
             could not be read"
                .into(),
        ));
    }
    if found.tasks == 0 {
        return Err(RunError::Job(
            "no frame of the survey shows one of the positions in this band: see the list of \
             objects that were not found"
                .into(),
        ));
    }
    Ok(())
}

/// The job of eyas with a task for each frame. A line of `tasks.tsv` has the frame, the list of its
/// objects and the partial sum.
fn stack_request(portal: &Portal, job: &StackJob) -> Value {
    let folder = portal.folder_of(&job.id);
    let edge = job.params.edge().to_string();
    let mut command = vec![json!(portal.stack), json!("--size"), json!(edge)];
    if job.params.weights == Weights::Variance {
        command.push(json!("--weights=variance"));
    }
    let survey = job.params.survey.as_deref().and_then(|name| portal.surveys.named(name));
    if let Some(sky) = survey.and_then(|survey| survey.sky.as_ref()) {
        command.push(json!(format!("--sky={sky}")));
    }
    if let Some(cal) = survey.and_then(|survey| survey.cal) {
        command.push(json!(format!("--cal={cal}")));
    }
    if let Some(band) = survey.and_then(|survey| survey.band.as_ref()) {
        command.push(json!(format!("--band={band}")));
    }
    if let Some(keyword) = survey.and_then(|survey| survey.band_keyword.as_ref()) {
        command.push(json!(format!("--band-keyword={keyword}")));
    }
    let words = ["--hdu", "{4}", "--report", "report.json", "--list", "{2}", "{1}"];
    command.extend(words.map(|word| json!(word)));
    command.extend(["--out", "partial.fits"].map(|word| json!(word)));
    json!({
        "name": job_name(job),
        "task": [{
            "each_line": folder.join("tasks.tsv"),
            "separator": "\t",
            "inputs": ["{1}"],
            "command": command,
            "outputs": [
                { "file": "partial.fits", "to": "{3}" },
                { "file": "report.json", "to": "{5}" },
            ],
            "retries": RETRIES,
        }],
    })
}

/// The job of eyas with one task, which sums the partial sums.
fn sum_request(portal: &Portal, job: &StackJob) -> Value {
    let folder = portal.folder_of(&job.id);
    let list = format!("@{}", folder.join(PARTIALS_FILE).display());
    let output = |name: &str| json!({ "file": name, "to": folder.join(name) });
    let images = [("--out", "image.fits"), ("--png", "image.png"), ("--jpeg", "image.jpg")];
    let mut command = vec![json!(portal.stack), json!("--sum"), json!(list)];
    command.extend(images.iter().flat_map(|(word, name)| [json!(word), json!(name)]));
    json!({
        "name": job_name(job),
        "task": [{
            "command": command,
            "outputs": images.map(|(_, name)| output(name)),
            "retries": RETRIES,
        }],
    })
}

/// The name of a job of eyas: one that no other has, so that it is found again.
fn job_name(job: &StackJob) -> String {
    let step = if job.step == Step::Sum { "sum" } else { "stack" };
    format!("astroportal-{}-{step}-{}", job.id, job.resubmitted)
}

/// Submits a job of eyas, if that was not done, and follows it to its end.
async fn on_cluster(
    portal: &Portal,
    job: &StackJob,
    request: Value,
) -> Result<JobProgress, RunError> {
    let (id, step) = (&*job.id, job.step);
    let of_step = if step == Step::Sum { &job.sum } else { &job.stack };
    let cluster_id = match of_step.id {
        Some(known) => known,
        None => {
            let name = job_name(job);
            let submitted = patiently(portal, id, || submit(portal, &name, &request)).await?;
            let submitted = submitted.map_err(|why| RunError::Job(why.to_string()))?;
            portal.jobs.show(id, |job| {
                of_step_mut(job, step).id = Some(submitted);
                of_step_mut(job, step).name = name;
            });
            submitted
        }
    };
    let followed = patiently(portal, id, || async {
        let followed = portal.cluster.follow(cluster_id, |progress| {
            show(portal, id, step, progress);
        });
        match followed.await {
            Err(ClusterError::Missing) => Ok(Err(RunError::Lost(job.resubmitted))),
            Ok(progress) => Ok(Ok(progress)),
            Err(why) => Err(why),
        }
    });
    followed.await?
}

/// Submits a job unless the answer to an earlier submission was lost.
async fn submit(
    portal: &Portal,
    name: &str,
    request: &Value,
) -> Result<Result<u64, ClusterError>, ClusterError> {
    if let Some(found) = portal.cluster.find(name).await? {
        return Ok(Ok(found.job));
    }
    match portal.cluster.submit(request).await {
        Err(why @ ClusterError::Refused(_)) => Ok(Err(why)),
        Err(why) => Err(why),
        Ok(id) => Ok(Ok(id)),
    }
}

fn of_step_mut(job: &mut StackJob, step: Step) -> &mut ClusterJob {
    if step == Step::Sum { &mut job.sum } else { &mut job.stack }
}

fn show(portal: &Portal, id: &str, step: Step, progress: &JobProgress) {
    portal.jobs.show(id, |job| {
        job.waits_for = progress.warnings.first().cloned();
        let of_step = of_step_mut(job, step);
        (of_step.tasks, of_step.ended) = (progress.tasks.all(), progress.tasks.ended());
        if of_step.ended > 0 && of_step.first_end_ms.is_none() {
            of_step.first_end_ms = Some(unix_ms());
        }
    });
}

/// Asks a cluster until it answers. The job says meanwhile why it waits.
async fn patiently<T, F: Future<Output = Result<T, ClusterError>>>(
    portal: &Portal,
    id: &str,
    ask: impl Fn() -> F,
) -> Result<T, RunError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let why = match ask().await {
            Ok(answer) => {
                portal.jobs.show(id, |job| job.waits_for = None);
                return Ok(answer);
            }
            Err(ClusterError::Missing) => return Err(RunError::Lost(0)),
            Err(why @ ClusterError::Refused(_)) => return Err(RunError::Job(why.to_string())),
            Err(why) => why.to_string(),
        };
        tracing::warn!("job {id} waits: {why}");
        portal.jobs.show(id, |job| job.waits_for = Some(why));
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Cancels the jobs of eyas of a job that was aborted, and removes one that was deleted.
async fn clean_up(portal: &Portal, id: &str) {
    let Some(job) = portal.jobs.get(id) else { return };
    if job.to_cancel {
        let mut pause = FIRST_PAUSE;
        while let Err(why) = cancel(portal, &job).await {
            tracing::warn!("job {id} is not cancelled yet: {why}");
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
    let mut pause = FIRST_PAUSE;
    while let Err(why) = block_in_place(|| put_away(portal, id)) {
        tracing::error!("job {id} is not removed yet: {why}");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Removes a deleted job, or of another one the files that no result needs.
fn put_away(portal: &Portal, id: &str) -> Result<(), StoreError> {
    let Some(job) = portal.jobs.get(id) else { return Ok(()) };
    if job.is_deleted {
        // Nothing is written: the disk may be full.
        return portal.remove_job(id);
    }
    if job.phase.is_over() {
        let folder = portal.folder_of(id);
        remove_scratch(&folder).map_err(|why| StoreError::File(folder, why))?;
    }
    let changed = portal.jobs.change::<StoreError>(id, |job| {
        job.to_cancel = false;
        Ok(())
    });
    match changed {
        // It was deleted meanwhile.
        Ok(job) if job.is_deleted => portal.remove_job(id),
        Ok(_) | Err(StoreError::Gone(_)) => Ok(()),
        Err(why) => Err(why),
    }
}

/// Cancels what may run for a job, also if the answer to its submission was lost.
async fn cancel(portal: &Portal, job: &StackJob) -> Result<(), ClusterError> {
    if job.step == Step::Find {
        return Ok(());
    }
    let of_step = if job.step == Step::Sum { &job.sum } else { &job.stack };
    if let Some(id) = of_step.id {
        return portal.cluster.cancel(id).await;
    }
    // A submission that was interrupted may arrive a little later.
    for _ in 0..LOOKS_FOR_LATE {
        if let Some(found) = portal.cluster.find(&job_name(job)).await? {
            return portal.cluster.cancel(found.job).await;
        }
        sleep(FIRST_PAUSE).await;
    }
    Ok(())
}

/// Goes on with all jobs after a restart.
pub fn resume(portal: &Arc<Portal>) {
    // A job that had ended when the portal was killed may have files left that no result needs.
    let has_scratch = |job: &StackJob| portal.folder_of(&job.id).join("partials").exists();
    let is_left = |job: &StackJob| {
        let must_go = job.to_cancel || job.is_deleted;
        job.phase.is_active() || must_go || job.phase.is_over() && has_scratch(job)
    };
    for job in portal.jobs.list(is_left) {
        tokio::spawn(run(portal.clone(), job.id));
    }
}
