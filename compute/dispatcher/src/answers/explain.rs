//! Why a task waits, or what became of it, in words.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::iter;
use std::ops::Deref;

use eyas_jobs::{Job, MAX_INTERRUPTIONS, Phase, RetainedOutput};
use eyas_sched::{Mismatch, WaitReason};
use eyas_types::{Estimate, ExecutorId, Name, Need, ObjectId, ObjectSpec, TaskId, units};
use eyas_wire::view::{Explanation, TaskView};

use super::{MAX_NAMES, ResultReader, Views, check_task};
use crate::copies::{CopyToRead, copies_of};
use crate::executors::ConnectedExecutor;
use crate::service::answer::Answer;

/// Inputs of a task that an explanation lists.
const MAX_INPUTS_SHOWN: usize = 1000;

/// Says why tasks are where they are.
#[derive(Clone, Copy)]
pub(crate) struct Explainer<'a>(pub Views<'a>);

impl<'a> Deref for Explainer<'a> {
    type Target = Views<'a>;

    fn deref(&self) -> &Views<'a> {
        &self.0
    }
}

impl Explainer<'_> {
    pub(crate) fn explain(&self, task: TaskId) -> Answer<Explanation> {
        let job = self.job(task.job)?;
        check_task(job, task.index)?;
        let view = self.task(job, task.index, &mut ResultReader::default());
        let mut because = Vec::new();
        let mut inputs = Vec::new();
        if let Some(scheduled) = self.scheduler.explain_task(task, MAX_INPUTS_SHOWN) {
            because.push(match (scheduled.executor, &scheduled.waits) {
                (Some(executor), _) => {
                    format!("It was given to {}.", self.executors.name(executor))
                }
                (None, Some(reason)) => self.why_waiting(reason, &scheduled.need),
                (None, None) => "It waits.".into(),
            });
            if scheduled.executor.is_none() {
                because.extend(self.why_no_node_comes(&scheduled.need));
            }
            because.extend(interruptions(job.tasks[task.index as usize].interrupted));
            if let Some(executor) = self.suspended_on(job, task.index) {
                let name = &executor.name;
                because.push(format!(
                    "It is suspended there: tasks of higher priority have its processors on \
                     {name}."
                ));
            }
            let item = job.spec.items.get(task.index);
            let shown: HashSet<_> = scheduled.inputs.iter().map(|input| input.object).collect();
            let objects = job.inputs_with_ids(&item).filter_map(|(_, object)| object);
            let is_named =
                |(id, _): &(ObjectId, _)| shown.contains(id) || job.spec.chunks.contains_key(id);
            let sources: HashMap<_, _> =
                objects.filter(is_named).map(|(id, object)| (id, &object.source)).collect();
            let copies = names_of_copies(job, task.index);
            for input in &scheduled.inputs {
                let source = sources.get(&input.object).copied();
                inputs.push(self.object(input, source.or(copies.get(&input.object)).cloned()));
            }
            if scheduled.all_inputs > MAX_INPUTS_SHOWN {
                let all = scheduled.all_inputs;
                because.push(format!(
                    "It reads {all} objects, of which {MAX_INPUTS_SHOWN} are listed."
                ));
            }
            if scheduled.placed_inputs < scheduled.all_inputs {
                let (all, placed) = (scheduled.all_inputs, scheduled.placed_inputs);
                because.push(format!(
                    "It is placed by {placed} of the {all} objects, each of which stands for \
                     others."
                ));
            }
            because.extend(self.where_chunks_are(job, &sources));
            let estimate = scheduled.estimate.as_ref().and_then(in_words);
            because
                .extend(estimate.map(|soon| format!("It was estimated to be done there {soon}.")));
            if let Some(executor) = scheduled.executor {
                because.extend((scheduled.all_inputs > 0).then(|| {
                    let [held, all] =
                        [scheduled.held_bytes, scheduled.input_bytes].map(units::format_bytes);
                    let about =
                        if scheduled.placed_inputs < scheduled.all_inputs { "about " } else { "" };
                    format!("That executor holds {about}{held} of the {all} it reads.")
                }));
                because.extend(self.by_proxy(executor));
            }
        } else {
            because.extend(self.why_not_scheduled(job, task, &view));
        }
        because.extend(self.about_places(job, task.index));
        Ok(Explanation { task: view, because, inputs })
    }

    /// Which places of the task's named inputs were passed over, and which inputs have none.
    fn about_places(&self, job: &Job, index: u32) -> Vec<String> {
        let has_ended = job.tasks[index as usize].phase.has_ended();
        let item = job.spec.items.get(index);
        let objects = job.inputs_with_ids(&item).filter_map(|(_, object)| object);
        let named = objects.map(|(_, object)| object).filter(|object| object.is_named());
        let about = |object: &ObjectSpec| {
            let source = &object.source;
            let lacks = !has_ended && self.names.places_of(object).is_empty();
            let none = lacks.then(|| {
                format!(
                    "`{source}` has no place with the content that the job was submitted with; \
                     only replicas of it on executors can be read."
                )
            });
            self.names.failures(source).into_iter().chain(none)
        };
        named.take(MAX_INPUTS_SHOWN).flat_map(about).take(MAX_NAMES).collect()
    }

    fn why_waiting(&self, reason: &WaitReason, need: &Need) -> String {
        match reason {
            WaitReason::NoExecutors if self.pools.are_on() => {
                "It waits because no executor has joined.".into()
            }
            WaitReason::NoExecutors => "It waits because no executor has joined: start some with \
                                        `eyas start executor`."
                .into(),
            WaitReason::TooLarge => format!(
                "It waits because no executor has as much as it needs: {}.",
                self.why_too_large(&need.resources)
            ),
            WaitReason::Unmatched(mismatches) => {
                let all = self.executors.len();
                let parts: Vec<_> =
                    mismatches.iter().map(|(what, on)| mismatch(what, *on)).collect();
                format!(
                    "It waits because no executor matches it now; of {all}, {}.",
                    parts.join("; ")
                )
            }
            WaitReason::Refused(by) => {
                format!(
                    "It waits because {} could not take it and the others are busy.",
                    self.names(by)
                )
            }
            WaitReason::SlotsTaken => {
                "It waits because every executor that could take it is busy.".into()
            }
            WaitReason::ForHolders(holders) => format!(
                "It waits because policy {} keeps it for those that hold the most of its inputs, \
                 which are busy: {}.",
                self.policy,
                self.names(holders)
            ),
            WaitReason::Soonest { home, there, elsewhere } => {
                let name = self.executors.name(*home);
                let there = in_words(there).map_or_else(String::new, |soon| format!(": {soon}"));
                match elsewhere {
                    Some((other, estimate)) => {
                        let later = in_words(estimate).unwrap_or_else(|| "later".into());
                        format!(
                            "It waits for {name}, where it is done the soonest{there}; on {}, \
                             which is free, {later}.",
                            self.executors.name(*other)
                        )
                    }
                    None => format!(
                        "It waits because every executor that could take it is busy; {name} is \
                         likely to finish it first{there}."
                    ),
                }
            }
        }
    }

    /// Which executors have most of the chunks of inputs that are files of several chunks.
    fn where_chunks_are(&self, job: &Job, sources: &HashMap<ObjectId, &Name>) -> Vec<String> {
        let mut of_files = Vec::new();
        for (object, chunks) in job.spec.chunks.iter() {
            let Some(source) = sources.get(object) else { continue };
            let mut held: Vec<_> = self.scheduler.bytes_held(chunks).into_iter().collect();
            held.sort_by_key(|(executor, bytes)| (Reverse(*bytes), *executor));
            let all = units::format_bytes(chunks.iter().map(|(_, size_bytes)| size_bytes).sum());
            let names = held.iter().take(MAX_NAMES).map(|(executor, bytes)| {
                format!("{} has {}", self.executors.name(*executor), units::format_bytes(*bytes))
            });
            let names = names.collect::<Vec<_>>().join(", ");
            of_files.push(match held.is_empty() {
                true => format!("No executor that is here has chunks of `{source}`."),
                false => format!("Of {all} in chunks of `{source}`, {names}."),
            });
        }
        of_files.truncate(MAX_NAMES);
        of_files
    }

    /// The way by which data of other nodes reaches an executor that is behind a proxy.
    fn by_proxy(&self, executor: ExecutorId) -> Option<String> {
        let proxy = self.executors.get(executor)?.transfer.proxy?;
        Some(format!(
            "That executor is behind the proxy {proxy}. Executors elsewhere send it objects \
             through the proxy, and only those that persistent storage does not have."
        ))
    }

    fn why_not_scheduled(&self, job: &Job, task: TaskId, view: &TaskView) -> Vec<String> {
        match (job.tasks[task.index as usize].phase, &view.status) {
            (Phase::Blocked, _) if !self.why_kept_inputs_lack(job, task.index).is_empty() => {
                self.why_kept_inputs_lack(job, task.index)
            }
            (Phase::Blocked, _) => {
                let waits_for = job.waits_for(task.index);
                let names: Vec<_> = waits_for
                    .iter()
                    .take(MAX_NAMES)
                    .map(|index| job.task_id(*index).to_string())
                    .collect();
                vec![format!(
                    "It waits for the outputs of {} still to end: {} …",
                    units::format_count(waits_for.len() as u64, "task"),
                    names.join(", ")
                )]
            }
            (Phase::Waiting, _) => vec![match self.jobs.why_refused(task) {
                Some(reason) => {
                    format!("It waits to be tried again, as no executor had room for it: {reason}.")
                }
                None if job.is_pushed_first() => "It waits until its job's inputs are with all \
                                                  executors, along a spanning tree."
                    .into(),
                None => "Its job is still being put into the queue.".into(),
            }],
            (_, Some(status)) => self.how_ended(job, task.index, view, status),
            (phase, None) => vec![format!("It is {}.", phase.name())],
        }
    }

    /// Where a task has ended, and with which times and inputs.
    fn how_ended(&self, job: &Job, index: u32, view: &TaskView, status: &str) -> Vec<String> {
        let place = view.executor.as_ref().map(|name| format!(" on {name}")).unwrap_or_default();
        // Tries count from 1, as in the table of tasks.
        let which = if view.tries > 1 { format!(" in try {}", view.tries) } else { String::new() };
        let mut because = vec![format!("It has ended{place}{which}: {status}.")];
        because.extend(view.estimate.map(|estimate| {
            let [waited, ran] = [view.waited_us, view.ran_us].map(units::format_duration_us);
            match in_words(&estimate) {
                Some(soon) => format!(
                    "It was estimated to be done there {soon}; it waited {waited} there, and ran \
                     {ran}."
                ),
                None => format!("It waited {waited} there, and ran {ran}."),
            }
        }));
        because.extend(self.delivered_after_failure(job, index));
        let of_other = |task| format!("It did not run: this is the result of task {task}.");
        because.extend(view.reused.map(of_other));
        let times = job.tasks[index as usize].recomputed;
        if times > 0 {
            because.push(format!(
                "It ran {} more, as what it kept in the cluster was lost.",
                units::format_count(times.into(), "time")
            ));
        }
        let is_missing = |(object, left): (_, &RetainedOutput)| {
            left.is_promised() && !self.scheduler.is_held(object)
        };
        if job.kept_by(index).any(is_missing) {
            because.push("No executor that is here has what it keeps in the cluster.".into());
        }
        let reads = &view.reads;
        if reads.count() > 0 {
            because.push(format!(
                "Its inputs came from the local store ({}), peers ({}), persistent storage ({}) \
                 and files of the cluster (own node {}, other nodes {}).",
                units::format_bytes(reads.local.bytes),
                units::format_bytes(reads.peer.bytes),
                units::format_bytes(reads.persistent.bytes),
                units::format_bytes(reads.files.own_bytes),
                units::format_bytes(reads.files.other_bytes)
            ));
        }
        let is_its = |executor: &ConnectedExecutor| view.executor.as_ref() == Some(&executor.name);
        let ran_on = self.executors.iter().find(|(_, executor)| is_its(executor));
        because.extend(ran_on.and_then(|(executor, _)| self.by_proxy(executor)));
        because
    }

    /// Where the outputs are that a task has delivered although it did not succeed.
    fn delivered_after_failure(&self, job: &Job, index: u32) -> Option<String> {
        let has_failed = job.tasks[index as usize].phase.has_ended_unsuccessfully();
        if !has_failed || !job.template_at(index).delivers_after_failure() {
            return None;
        }
        // If its result cannot be read, that was told before.
        let result = ResultReader::default().last(self.records, job, index).ok()??;
        let outputs = &result.outcome.outputs;
        let place = |source: &Name| {
            let path = source.strip_prefix(b"file://").map(Name::from);
            // Without a destination of its own, a file goes to `./`.
            format!("`{}`", path.as_ref().unwrap_or(source)).replace("/./", "/")
        };
        let places: Vec<_> =
            outputs.iter().take(MAX_NAMES).map(|output| place(&output.object.source)).collect();
        let more = match outputs.len().saturating_sub(MAX_NAMES) {
            0 => String::new(),
            more => format!(" and {}", units::format_count(more as u64, "other place")),
        };
        let delivered =
            format!("Outputs that it delivers after a failure are at {}{more}.", places.join(", "));
        (!places.is_empty()).then_some(delivered)
    }

    /// Why a blocked task waits for tasks that had succeeded before, of its own job or of other
    /// jobs.
    fn why_kept_inputs_lack(&self, job: &Job, index: u32) -> Vec<String> {
        let why = |producer: u32| {
            let (task, state) = (job.task_id(producer), job.tasks[producer as usize]);
            match (state.phase, state.recomputed) {
                (Phase::Succeeded, _) => Some(format!(
                    "It waits for the output of task {task}, which no executor that is here has \
                     just now."
                )),
                (_, 0) => None,
                (_, times) => Some(format!(
                    "It waits for the output of task {task}, which was lost with the executors \
                     that kept it: that task runs again (repetition {times})."
                )),
            }
        };
        let of_others = job.lacks(index).filter_map(|object| {
            let source = &self.jobs.kept_spec(object)?.source;
            Some(format!("It waits for `{source}`, which no executor that is here has just now."))
        });
        job.waits_for(index).into_iter().filter_map(why).chain(of_others).take(MAX_NAMES).collect()
    }
}

/// What it means that nodes were ended while a task ran on them.
fn interruptions(times: u8) -> Option<String> {
    (times > 0).then(|| {
        format!(
            "Of {MAX_INTERRUPTIONS} starts after which it fails, {times} were in vain: its node \
             was ended before the task could end. It starts only where more time is left than it \
             has run; if that is nowhere, give the pool a longer --time-limit."
        )
    })
}

/// A reason why a task cannot run on some executors, and their number.
fn mismatch(what: &Mismatch, on: u32) -> String {
    match what {
        Mismatch::TooSmall => format!("{on} have less than it takes"),
        Mismatch::Requirement(part) => format!("{on} do not meet `{part}`"),
        Mismatch::Accept(part) => format!("{on} accept only tasks with `{part}`"),
        Mismatch::Error(part, why) => format!("on {on} `{part}` cannot be told ({why})"),
        Mismatch::Time => format!("{on} are ended by their batch system before it could end"),
        Mismatch::Disk => format!("{on} have no room on their disk for what it reads and takes"),
    }
}

/// How soon a task would be done, and why, as far as this is known: of a first task, neither times
/// nor rates are.
fn in_words(estimate: &Estimate) -> Option<String> {
    let Estimate { wait_us, transfer_us, compute_us } = *estimate;
    let parts = [
        (wait_us, "until a slot is free"),
        (transfer_us, "to fetch inputs"),
        (compute_us, "to compute"),
    ];
    let parts: Vec<_> = parts
        .iter()
        .filter(|(us, _)| *us > 0)
        .map(|(us, what)| format!("{} {what}", units::format_duration_us(*us)))
        .collect();
    let finish = units::format_duration_us(estimate.finish_us());
    (!parts.is_empty()).then(|| format!("in {finish} ({})", parts.join(", ")))
}

/// What the derived copies that a task reads are called.
fn names_of_copies(job: &Job, task: u32) -> HashMap<ObjectId, Name> {
    let copies = if job.spec.reads_copies { copies_of(job, task) } else { Vec::new() };
    let named = |copy: CopyToRead| {
        let name = Name::concat(&[b"what is made of ", &copy.of]);
        let packed = copy.packed.map(|packed| (packed, Name::concat(&[&name, b", packed"])));
        iter::once((copy.copy, name)).chain(packed)
    };
    copies.into_iter().flat_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_leaves_out_what_is_not_known() {
        let estimate = |wait_us, transfer_us, compute_us| {
            in_words(&Estimate { wait_us, transfer_us, compute_us })
        };
        assert_eq!(estimate(0, 0, 0), None);
        assert_eq!(
            estimate(0, 2_000_000, 0).as_deref(),
            Some("in 2.00 s (2.00 s to fetch inputs)")
        );
        assert_eq!(
            estimate(500, 0, 2_000).as_deref(),
            Some("in 2.5 ms (500 us until a slot is free, 2.0 ms to compute)")
        );
    }
}
