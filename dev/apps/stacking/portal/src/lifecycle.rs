//! What accounts do with their jobs: create, set parameters, run, abort, delete. UWS and the pages
//! come here.

use std::fs;
use std::sync::Arc;

use crate::job_store::{MAX_JOBS_OF_ACCOUNT, StoreError};
use crate::params::{StackParams, run_id};
use crate::portal::Portal;
use crate::position_files::write_positions;
use crate::position_list::PositionList;
use crate::positions::read_positions;
use crate::problem::Problem;
use crate::record::{Phase, StackJob};
use crate::runner;
use crate::secrets::{new_id, unix_ms};
use crate::upload::{Form, unpacked};

/// Fields that are no parameters of the job.
const ACTIONS: [&str; 4] = ["PHASE", "ACTION", "DESTRUCTION", "EXECUTIONDURATION"];
/// The fields with the list: the text, or an uploaded file.
const LISTS: [&str; 2] = ["POSITIONS", "POSITIONS_FILE"];
/// The longest time for which a job may run, seconds: a year.
const MAX_DURATION_S: u64 = 366 * 24 * 3600;

impl From<StoreError> for Problem {
    fn from(why: StoreError) -> Self {
        match why {
            StoreError::Gone(_) => Problem::missing(why.to_string()),
            why => disk(&why),
        }
    }
}

fn disk(why: &dyn std::fmt::Display) -> Problem {
    tracing::error!("{why}");
    Problem::of_portal("the portal cannot write to its disk: tell its administrator")
}

/// Values of a form, checked.
struct Checked {
    params: StackParams,
    run_id: Option<Option<String>>,
    list: Option<PositionList>,
}

/// Checks the fields of a form.
fn check(portal: &Portal, form: &Form, mut params: StackParams) -> Result<Checked, Problem> {
    let (mut id, mut list) = (None, None);
    for (name, value) in form.fields() {
        if ACTIONS.contains(&&*name) {
            continue;
        }
        if LISTS.contains(&&*name) {
            // An empty field of a page is a list that was not given.
            if !value.trim_ascii().is_empty() {
                list = Some(read_positions(&unpacked(value)?)?);
            }
            continue;
        }
        let text = std::str::from_utf8(value).map(str::trim);
        let text = text.map_err(|_| Problem::wrong("a field of the form is not UTF-8 text"))?;
        match &*name {
            "RUNID" => id = Some(run_id(text)?),
            _ => params.set(&name, text, &portal.surveys)?,
        }
    }
    if let Some(list) = &list {
        params.positions = (list.positions.len() + list.off_sky.len()) as u64;
    }
    Ok(Checked { params, run_id: id, list })
}

/// Creates a job, which waits for `run`.
pub fn create(portal: &Portal, owner: &str, form: &Form) -> Result<StackJob, Problem> {
    let Checked { params, run_id, list } = check(portal, form, StackParams::default())?;
    if portal.jobs.list(|job| job.owner == owner && !job.is_deleted).len() >= MAX_JOBS_OF_ACCOUNT {
        let words = format!("the account has {MAX_JOBS_OF_ACCOUNT} jobs: delete some first");
        return Err(Problem::forbidden(words));
    }
    let id = new_id().map_err(|why| disk(&why))?;
    let now_ms = unix_ms();
    let job = StackJob {
        id: id.clone(),
        owner: owner.to_owned(),
        run_id: run_id.flatten(),
        phase: Phase::Pending,
        params,
        created_ms: now_ms,
        started_ms: None,
        ended_ms: None,
        destruction_ms: now_ms + portal.lifetimes.kept_ms,
        duration_s: 0,
        step: Default::default(),
        counts: Default::default(),
        stack: Default::default(),
        sum: Default::default(),
        resubmitted: 0,
        waits_for: None,
        error: None,
        to_cancel: false,
        is_deleted: false,
        measured: Vec::new(),
        results: Vec::new(),
    };
    let folder = portal.folder_of(&id);
    fs::create_dir(&folder).map_err(|why| disk(&why))?;
    let kept = list.map_or(Ok(()), |list| write_positions(&folder, &list));
    let kept = kept.map_err(|why| disk(&why)).and_then(|()| Ok(portal.jobs.add(job.clone())?));
    if kept.is_err() {
        // A folder without a job would stay for ever.
        let _ = fs::remove_dir_all(&folder);
    }
    kept.map(|()| job)
}

/// Sets parameters of a job that has not begun.
pub fn set_params(portal: &Portal, id: &str, form: &Form) -> Result<StackJob, Problem> {
    let folder = portal.folder_of(id);
    portal.jobs.change(id, |job| {
        must_be_pending(job)?;
        let Checked { params, run_id, list } = check(portal, form, job.params.clone())?;
        if let Some(list) = list {
            write_positions(&folder, &list).map_err(|why| disk(&why))?;
        }
        job.params = params;
        if let Some(run_id) = run_id {
            job.run_id = run_id;
        }
        Ok(())
    })
}

fn must_be_pending(job: &StackJob) -> Result<(), Problem> {
    match job.phase {
        Phase::Pending => Ok(()),
        phase => Err(Problem::forbidden(format!(
            "the job is {}: parameters are set while it is PENDING",
            phase.name()
        ))),
    }
}

/// Has a job run. One that runs already goes on.
pub fn run(portal: &Arc<Portal>, id: &str) -> Result<StackJob, Problem> {
    let mut begins = false;
    let job = portal.jobs.change::<Problem>(id, |job| {
        if job.phase.is_active() {
            return Ok(());
        }
        must_be_pending(job)?;
        job.params.check(&portal.surveys)?;
        job.phase = Phase::Queued;
        begins = true;
        Ok(())
    })?;
    if begins {
        tokio::spawn(runner::run(portal.clone(), id.to_owned()));
    }
    Ok(job)
}

/// Aborts a job. One that has ended stays as it is.
pub fn abort(portal: &Arc<Portal>, id: &str) -> Result<StackJob, Problem> {
    portal.jobs.change(id, |job| {
        if !job.phase.is_over() {
            job.to_cancel = job.phase.is_active();
            (job.phase, job.ended_ms) = (Phase::Aborted, Some(unix_ms()));
        }
        Ok(())
    })
}

/// Deletes a job with its files. Its runner cancels its work first.
pub fn delete(portal: &Arc<Portal>, id: &str) -> Result<(), StoreError> {
    let job = portal.jobs.change::<StoreError>(id, |job| {
        if !job.phase.is_over() {
            job.to_cancel |= job.phase.is_active();
            (job.phase, job.ended_ms) = (Phase::Aborted, Some(unix_ms()));
        }
        job.is_deleted = true;
        Ok(())
    })?;
    match job.to_cancel {
        // The runner sees the change, cancels, and removes the job.
        true => Ok(()),
        false => portal.remove_job(id),
    }
}

/// Sets the time for which a job may run, seconds; 0 for no bound.
pub fn set_duration(portal: &Portal, id: &str, text: &str) -> Result<StackJob, Problem> {
    let seconds = text.parse::<u64>().ok().filter(|seconds| *seconds <= MAX_DURATION_S);
    let seconds = seconds.ok_or_else(|| {
        Problem::wrong(format!("EXECUTIONDURATION is in seconds, from 0 to {MAX_DURATION_S}"))
    })?;
    portal.jobs.change(id, |job| {
        must_be_pending(job)?;
        job.duration_s = seconds;
        Ok(())
    })
}

/// Sets the time at which a job is deleted. A time beyond the portal's bound becomes the bound, as
/// UWS has it.
pub fn set_destruction(portal: &Portal, id: &str, text: &str) -> Result<StackJob, Problem> {
    let wrong = || Problem::wrong("DESTRUCTION is a time such as 2030-01-31T12:00:00Z");
    let with_zone = if text.ends_with('Z') { text.to_owned() } else { format!("{text}Z") };
    let time: jiff::Timestamp = text.parse().or_else(|_| with_zone.parse()).map_err(|_| wrong())?;
    let at_ms = u64::try_from(time.as_millisecond()).map_err(|_| wrong())?;
    let latest_ms = unix_ms() + portal.lifetimes.longest_kept_ms;
    portal.jobs.change(id, |job| {
        job.destruction_ms = at_ms.min(latest_ms);
        Ok(())
    })
}
