//! What accounts do with their jobs: create, set parameters, run, abort, delete. UWS and the pages
//! come here.

use std::fs;
use std::sync::Arc;

use tokio::task::block_in_place;

use crate::job_store::{MAX_JOBS_OF_ACCOUNT, MAX_POSITIONS_OF_ACCOUNT, StoreError};
use crate::params::{StackParams, run_id};
use crate::portal::Portal;
use crate::position_files::{PreparedList, write_positions};
use crate::position_list::PositionList;
use crate::positions::read_positions;
use crate::problem::Problem;
use crate::record::{Phase, StackJob};
use crate::runner;
use crate::secrets::{new_id, unix_ms};
use crate::upload::{Form, unpacked};

/// Fields that are no parameters of the job.
pub const ACTIONS: [&str; 4] = ["PHASE", "ACTION", "DESTRUCTION", "EXECUTIONDURATION"];
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
}

/// The list of a form, if it has one.
fn list_in(form: &Form) -> Result<Option<PositionList>, Problem> {
    let mut list = None;
    // An empty field of a page is a list that was not given.
    let is_list =
        |name: &str, value: &[u8]| LISTS.contains(&name) && !value.trim_ascii().is_empty();
    for (_, value) in form.fields().filter(|(name, value)| is_list(name, value)) {
        list = Some(read_positions(&unpacked(value)?)?);
    }
    Ok(list)
}

/// Checks the fields of a form but the list, which takes a moment.
fn check(
    portal: &Portal,
    form: &Form,
    list: Option<&PositionList>,
    mut params: StackParams,
) -> Result<Checked, Problem> {
    let mut id = None;
    let is_param = |name: &str| !ACTIONS.contains(&name) && !LISTS.contains(&name);
    for (name, value) in form.fields().filter(|(name, _)| is_param(name)) {
        let text = std::str::from_utf8(value).map(str::trim);
        let text = text.map_err(|_| Problem::wrong("a field of the form is not UTF-8 text"))?;
        match &*name {
            "RUNID" => id = Some(run_id(text)?),
            _ => params.set(&name, text, &portal.surveys)?,
        }
    }
    if let Some(list) = list {
        params.positions = (list.positions.len() + list.off_sky.len()) as u64;
    }
    Ok(Checked { params, run_id: id })
}

/// Creates a job, which waits for `run`.
pub fn create(portal: &Portal, owner: &str, form: &Form) -> Result<StackJob, Problem> {
    if form.text("ACTION").is_some() {
        return Err(Problem::wrong("ACTION is for a job that exists: create the job without it"));
    }
    let duration_s = form.text("EXECUTIONDURATION").map_or(Ok(0), duration_in)?;
    let asked_ms = form.text("DESTRUCTION").map(|text| destruction_in(portal, text)).transpose()?;
    let list = list_in(form)?;
    let params = StackParams::default();
    let Checked { params, run_id } = check(portal, form, list.as_ref(), params)?;
    has_room(portal, owner, 1, params.positions)?;
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
        destruction_ms: asked_ms.unwrap_or(now_ms + portal.kept_ms),
        duration_s,
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
    let kept = kept.map_err(|why| disk(&why)).and_then(|()| {
        portal.jobs.add(job.clone(), || has_room(portal, owner, 1, job.params.positions))
    });
    if kept.is_err() {
        // A folder without a job would stay for ever.
        let _ = fs::remove_dir_all(&folder);
    }
    kept.map(|()| job)
}

/// Refuses an account more jobs or positions than it may keep.
fn has_room(portal: &Portal, owner: &str, jobs: usize, positions: u64) -> Result<(), Problem> {
    let (held_jobs, held_positions) = portal.jobs.held_by(owner);
    if held_jobs + jobs > MAX_JOBS_OF_ACCOUNT {
        let words = format!("the account has {held_jobs} jobs: delete some first");
        return Err(Problem::forbidden(words));
    }
    match held_positions + positions > MAX_POSITIONS_OF_ACCOUNT {
        true => Err(Problem::forbidden(format!(
            "the jobs of the account have {held_positions} positions, and it may keep \
             {MAX_POSITIONS_OF_ACCOUNT}: delete some jobs first"
        ))),
        false => Ok(()),
    }
}

/// Sets parameters of a job that has not begun.
pub fn set_params(portal: &Portal, id: &str, form: &Form) -> Result<StackJob, Problem> {
    let job = portal.jobs.get(id).ok_or_else(|| StoreError::Gone(id.to_owned()))?;
    must_be_pending(&job)?;
    // All that takes a while is done before the change, which others wait for.
    let list = list_in(form)?;
    let prepared = list.as_ref().map(|list| PreparedList::write(&portal.folder_of(id), list));
    let prepared = prepared.transpose().map_err(|why| disk(&why))?;
    portal.jobs.change(id, |job| {
        must_be_pending(job)?;
        let before = job.params.clone();
        let Checked { params, run_id } = check(portal, form, list.as_ref(), before)?;
        let more = params.positions.saturating_sub(job.params.positions);
        has_room(portal, &job.owner, 0, more)?;
        if let Some(prepared) = &prepared {
            prepared.put_in_place().map_err(|why| disk(&why))?;
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
    let begin = |job: &mut StackJob| {
        if job.phase.is_active() {
            return Ok(());
        }
        must_be_pending(job)?;
        job.params.check(&portal.surveys)?;
        job.phase = Phase::Queued;
        begins = true;
        Ok(())
    };
    let job = block_in_place(|| portal.jobs.change::<Problem>(id, begin))?;
    if begins {
        tokio::spawn(runner::run(portal.clone(), id.to_owned()));
    }
    Ok(job)
}

/// Aborts a job. One that has ended stays as it is.
pub fn abort(portal: &Arc<Portal>, id: &str) -> Result<StackJob, Problem> {
    let abort = |job: &mut StackJob| {
        end_early(job);
        Ok(())
    };
    block_in_place(|| portal.jobs.change(id, abort))
}

/// Ends a job that has not ended.
fn end_early(job: &mut StackJob) {
    if !job.phase.is_over() {
        job.to_cancel |= job.phase.is_active();
        (job.phase, job.ended_ms) = (Phase::Aborted, Some(unix_ms()));
        job.waits_for = None;
    }
}

/// Deletes a job with its files. Its runner cancels its work first.
pub fn delete(portal: &Portal, id: &str) -> Result<(), StoreError> {
    let delete = |job: &mut StackJob| {
        end_early(job);
        job.is_deleted = true;
        Ok(())
    };
    let changed = block_in_place(|| portal.jobs.change::<StoreError>(id, delete));
    let is_idle = |job: &StackJob| !job.to_cancel && !job.phase.is_active();
    let must_wait = match changed {
        Ok(job) => job.to_cancel,
        // A full disk keeps no change, and removing the job makes room.
        Err(StoreError::File(..)) if portal.jobs.get(id).is_some_and(|job| is_idle(&job)) => false,
        Err(why) => return Err(why),
    };
    match must_wait {
        // The runner sees the change, cancels, and removes the job.
        true => Ok(()),
        false => block_in_place(|| portal.remove_job(id)),
    }
}

/// Removes jobs that were deleted and could not be removed then.
pub fn remove_deleted(portal: &Portal) {
    for job in portal.jobs.list(|job| job.is_deleted && !job.to_cancel) {
        if let Err(why) = block_in_place(|| portal.remove_job(&job.id)) {
            tracing::error!("job {} is not removed: {why}", job.id);
        }
    }
}

fn duration_in(text: &str) -> Result<u64, Problem> {
    let seconds = text.parse::<u64>().ok().filter(|seconds| *seconds <= MAX_DURATION_S);
    seconds.ok_or_else(|| {
        Problem::wrong(format!("EXECUTIONDURATION is in seconds, from 0 to {MAX_DURATION_S}"))
    })
}

/// Sets the time for which a job may run, seconds; 0 for no bound.
pub fn set_duration(portal: &Portal, id: &str, text: &str) -> Result<StackJob, Problem> {
    let seconds = duration_in(text)?;
    portal.jobs.change(id, |job| {
        must_be_pending(job)?;
        job.duration_s = seconds;
        Ok(())
    })
}

/// A time of destruction. One beyond the portal's bound becomes the bound, as UWS has it.
fn destruction_in(portal: &Portal, text: &str) -> Result<u64, Problem> {
    let wrong = || Problem::wrong("DESTRUCTION is a time such as 2030-01-31T12:00:00Z");
    let with_zone = if text.ends_with('Z') { text.to_owned() } else { format!("{text}Z") };
    let time: jiff::Timestamp = text.parse().or_else(|_| with_zone.parse()).map_err(|_| wrong())?;
    let at_ms = u64::try_from(time.as_millisecond()).map_err(|_| wrong())?;
    Ok(at_ms.min(unix_ms() + portal.kept_ms))
}

/// Sets the time at which a job is deleted.
pub fn set_destruction(portal: &Portal, id: &str, text: &str) -> Result<StackJob, Problem> {
    let at_ms = destruction_in(portal, text)?;
    portal.jobs.change(id, |job| {
        job.destruction_ms = at_ms;
        Ok(())
    })
}
