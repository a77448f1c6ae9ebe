//! The requests of a pool: how they are submitted, change their states, fail, and are forgotten
//! after their end.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::units;

use super::PoolDecider;
use super::event::{
    BatchReport, BatchState, NodeTraces, PoolEffect, PoolStatus, RememberedRequest,
    SubmissionAnswer,
};
use super::hosts::{MAX_FAILURES_THERE, REST_US};
use super::request::{BatchJobId, MAX_UNKNOWN, PoolRequest, RequestPhase, mark_of, request_name};
use crate::event::{Event, Mode, NodeRequestId};

/// Requests that failed in a row before the pool is paused.
pub const MAX_FAILURES: u32 = 5;
/// Ended requests whose folders are kept.
const MAX_ENDED: usize = 32;
/// After its last node has left, the batch system has this time to end a request by itself.
const END_GRACE_US: u64 = 30_000_000;

impl PoolDecider {
    /// A request of the pool.
    pub fn request_of(&self, number: u64) -> Option<&PoolRequest> {
        self.requests.get(&number)
    }

    /// The requests that the batch system may have, and some that ended last.
    pub fn requests(&self) -> impl Iterator<Item = (u64, &PoolRequest)> {
        self.requests.iter().map(|(number, request)| (*number, request))
    }

    /// Number of the newest request.
    pub fn newest_request(&self) -> Option<u64> {
        self.requests.last_key_value().map(|(number, _)| *number)
    }

    /// Whether the batch system has requests, or may have them.
    pub fn has_open(&self) -> bool {
        let is_asked_for = |request: &PoolRequest| {
            request.phase() == RequestPhase::Unclear || request.is_open() && request.job.is_some()
        };
        self.requests.values().any(is_asked_for)
    }

    /// Requests whose state the batch system is to be asked for.
    pub fn open_jobs(&self) -> impl Iterator<Item = (u64, &BatchJobId)> {
        let open = self.requests.iter().filter(|(_, request)| request.is_open());
        open.filter_map(|(number, request)| Some((*number, request.job.as_ref()?)))
    }

    /// Requests that the batch system may have, and that are to be looked for by their names.
    pub fn unclear(&self) -> impl Iterator<Item = (u64, &PoolRequest)> {
        self.requests().filter(|(_, request)| request.phase() == RequestPhase::Unclear)
    }

    /// Submitted requests that have not ended and of which no node is connected.
    pub fn jobs_without_nodes(&self) -> impl Iterator<Item = (u64, &BatchJobId)> {
        self.open_jobs().filter(|(number, _)| self.requests[number].present == 0)
    }

    /// Hosts on which no node is requested now.
    pub fn excluded(&self, now_us: u64) -> Vec<String> {
        self.failed_hosts.excluded(now_us)
    }

    fn name_of(&self, number: u64, request: &PoolRequest) -> String {
        request_name(&self.config.name, number, &request.mark)
    }

    fn save_request(&self, number: u64, effects: &mut Vec<PoolEffect>) {
        let Some(request) = self.requests.get(&number) else { return };
        if request.is_unwanted() {
            effects.push(PoolEffect::ShutOut { request: number });
        }
        effects.push(PoolEffect::SaveRequest { request: number, state: request.clone() });
    }

    /// Makes a request. Returns the effect that submits it, once the pool is saved.
    pub(super) fn request(
        &mut self,
        now_us: u64,
        number: u64,
        nodes: u32,
        effects: &mut Vec<PoolEffect>,
    ) -> PoolEffect {
        let mark = mark_of(self.config.seed, number);
        self.requests.insert(number, PoolRequest::new(nodes, mark.clone(), now_us));
        self.counts.nodes_requested += u64::from(nodes);
        self.counts.next_request = number + 1;
        // After a crash, the request is looked for by the name that is written here.
        self.save_request(number, effects);
        let work = units::format_count(self.waiting, "waiting task");
        let text =
            format!("request {number} for {}: {work}", units::format_count(nodes.into(), "node"));
        effects.push(PoolEffect::Note(text));
        PoolEffect::Submit { request: number, nodes, mark, excluded: self.excluded(now_us) }
    }

    /// Keeps the [`MAX_ENDED`] newest requests that have ended, and forgets the others.
    pub(super) fn forget_ended(&mut self, effects: &mut Vec<PoolEffect>) {
        let ended: Vec<_> = self
            .requests()
            .filter(|(_, request)| request.is_over())
            .map(|(number, _)| number)
            .collect();
        for number in ended.iter().take(ended.len().saturating_sub(MAX_ENDED)) {
            self.requests.remove(number);
            effects.push(PoolEffect::ForgetRequest { request: *number });
        }
    }

    pub(super) fn withdraw(&mut self, now_us: u64, number: u64, effects: &mut Vec<PoolEffect>) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        request.unwant(now_us, "fewer nodes are enough");
        // To withdraw a request ends all of its nodes. If some have joined, they are given back one
        // by one instead.
        let job = request.job.clone().filter(|_| request.present == 0);
        self.save_request(number, effects);
        effects.extend(job.map(|job| PoolEffect::Withdraw(vec![(number, job)])));
        let text = format!("request {number} is withdrawn: fewer nodes are enough for the work");
        effects.push(PoolEffect::Note(text));
    }

    /// A node of a request is here, perhaps again.
    pub(super) fn count_joined(
        &mut self,
        now_us: u64,
        number: u64,
        is_back: bool,
        effects: &mut Vec<PoolEffect>,
    ) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        request.present += 1;
        if !is_back && request.joined < request.nodes {
            request.joined += 1;
            self.counts.nodes_granted += 1;
        }
        // The batch system is asked seconds later.
        if request.phase() == RequestPhase::Pending {
            request.enter(now_us, RequestPhase::Running, "a node of it has joined");
            request.says = None;
        }
        self.save_request(number, effects);
    }

    pub(super) fn submitted(
        &mut self,
        now_us: u64,
        number: u64,
        answer: SubmissionAnswer,
        effects: &mut Vec<PoolEffect>,
    ) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        match answer {
            SubmissionAnswer::Accepted(job) => {
                request.unknown = 0;
                let phase =
                    if request.present > 0 { RequestPhase::Running } else { RequestPhase::Pending };
                request.enter(now_us, phase, "the batch system has it");
                request.job = Some(job.clone());
                let is_withdrawn = request.is_withdrawn();
                self.save_request(number, effects);
                if is_withdrawn {
                    effects.push(PoolEffect::Withdraw(vec![(number, job)]));
                }
            }
            SubmissionAnswer::Refused(why) => {
                request.says = Some(why.clone());
                self.failed(now_us, number, why, true, effects);
            }
            SubmissionAnswer::Unclear(why) => {
                // The command was ended because the cluster stops.
                if request.phase() != RequestPhase::Unclear {
                    request.enter(
                        now_us,
                        RequestPhase::Unclear,
                        "its submission had no clear answer",
                    );
                }
                request.says = Some(why.clone());
                let name = self.name_of(number, &self.requests[&number]);
                let text = format!(
                    "request {number} is looked for by its name {name}, as it may have been \
                     submitted"
                );
                effects.push(PoolEffect::Note(format!("{text}: {why}")));
                self.save_request(number, effects);
            }
        }
    }

    /// The request of that number, if it is looked for. The batch system has answered.
    fn looked_for(&mut self, number: u64) -> Option<&mut PoolRequest> {
        let request = self
            .requests
            .get_mut(&number)
            .filter(|request| request.phase() == RequestPhase::Unclear)?;
        (self.states_failure, self.look_failure) = (None, None);
        Some(request)
    }

    pub(super) fn found(
        &mut self,
        now_us: u64,
        number: u64,
        job: BatchJobId,
        effects: &mut Vec<PoolEffect>,
    ) {
        if self.looked_for(number).is_some() {
            effects.push(PoolEffect::Note(format!(
                "request {number} was submitted: it is job {}",
                job.id
            )));
            self.submitted(now_us, number, SubmissionAnswer::Accepted(job), effects);
        }
    }

    pub(super) fn not_found(
        &mut self,
        now_us: u64,
        number: u64,
        traces: NodeTraces,
        effects: &mut Vec<PoolEffect>,
    ) {
        let Some(request) = self.looked_for(number) else { return };
        request.unknown += 1;
        if request.unknown >= MAX_UNKNOWN {
            let says = request.says.clone().unwrap_or_else(|| "it was not submitted".into());
            self.ended(now_us, number, says, traces, true, effects);
        }
    }

    /// A job that starts for a request that is shut out ends at once, so nothing is lost if such a
    /// request counts as not there. Else a pool could not be removed while its batch system cannot
    /// be asked.
    pub(super) fn look_failed(
        &mut self,
        now_us: u64,
        number: u64,
        why: &str,
        traces: NodeTraces,
        effects: &mut Vec<PoolEffect>,
    ) {
        let text = format!("request {number} cannot be looked for: {why}");
        if self.look_failure.as_ref() != Some(&text) {
            effects.push(PoolEffect::Note(text.clone()));
        }
        if self.requests.get(&number).is_some_and(PoolRequest::is_unwanted) {
            self.not_found(now_us, number, traces, effects);
        }
        self.look_failure = Some(text);
    }

    /// The batch system did not say the states of requests. This is noted once for each reason.
    pub(super) fn states_unknown(&mut self, why: &str, effects: &mut Vec<PoolEffect>) {
        let text = format!("the states of requests are not known: {why}");
        if self.states_failure.as_ref() != Some(&text) {
            effects.push(PoolEffect::Note(text.clone()));
            self.states_failure = Some(text);
        }
    }

    pub(super) fn see_state(
        &mut self,
        now_us: u64,
        number: u64,
        report: BatchReport,
        traces: NodeTraces,
        effects: &mut Vec<PoolEffect>,
    ) {
        let Some(request) = self.requests.get_mut(&number).filter(|request| request.is_open())
        else {
            return;
        };
        let before = request.phase();
        self.states_failure = None;
        request.unknown = if report.state == BatchState::Unknown { request.unknown + 1 } else { 0 };
        request.host = report.host.or(request.host.take());
        match report.state {
            BatchState::Pending(says) => {
                if before != RequestPhase::Pending {
                    request.enter(
                        now_us,
                        RequestPhase::Pending,
                        "the batch system has queued it again",
                    );
                }
                (request.says, request.waits_since_us) = (says, None);
                if request.is_withdrawn() {
                    // The command may have failed.
                    effects.extend(
                        request.job.clone().map(|job| PoolEffect::Withdraw(vec![(number, job)])),
                    );
                }
            }
            BatchState::Running | BatchState::Starting(_) => {
                let says = if let BatchState::Starting(says) = report.state { says } else { None };
                if before != RequestPhase::Running {
                    request.enter(now_us, RequestPhase::Running, "the batch system has granted it");
                }
                request.says = says;
                let since_us = *request.waits_since_us.get_or_insert(now_us);
                if request.present == 0 {
                    self.check_overdue(now_us, number, since_us, traces, effects);
                }
            }
            BatchState::Ended(end) => {
                return self.ended(now_us, number, end.says, traces, !end.is_of_node, effects);
            }
            BatchState::Unknown if request.unknown >= MAX_UNKNOWN => {
                let says = "the batch system no longer knows it".to_owned();
                return self.ended(now_us, number, says, traces, false, effects);
            }
            BatchState::Unknown => {}
        }
        // What the batch system says is not kept on disk: it is asked for again after a restart.
        if self.requests.get(&number).is_some_and(|request| request.phase() != before) {
            self.save_request(number, effects);
        }
    }

    /// Ends a granted request whose nodes do not join, or have left.
    fn check_overdue(
        &mut self,
        now_us: u64,
        number: u64,
        since_us: u64,
        traces: NodeTraces,
        effects: &mut Vec<PoolEffect>,
    ) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        let Some(job) = request.job.clone() else { return };
        if request.is_withdrawn() || request.joined >= request.nodes {
            if now_us >= since_us + END_GRACE_US {
                request.waits_since_us = Some(now_us);
                effects.push(PoolEffect::Withdraw(vec![(number, job)]));
            }
        } else if request.joined == 0 && now_us >= since_us + self.config.join_timeout_us {
            // It is asked for until the batch system has ended it.
            request.unwant(now_us, "no node of it has joined in time");
            request.waits_since_us = Some(now_us);
            let after = units::format_duration_us(self.config.join_timeout_us);
            let because = request.says.as_ref().map(|says| format!(": {says}")).unwrap_or_default();
            let says =
                format!("no node joined within {after} after the request was granted{because}");
            let why = request.take_end(says, traces);
            effects.push(PoolEffect::Withdraw(vec![(number, job)]));
            let overdue = Event::RequestOverdue { request: NodeRequestId(number) };
            self.count_failure(now_us, overdue, number, why, true, effects);
        }
    }

    /// The batch system has ended a request.
    fn ended(
        &mut self,
        now_us: u64,
        number: u64,
        says: String,
        traces: NodeTraces,
        counts: bool,
        effects: &mut Vec<PoolEffect>,
    ) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        let why = request.take_end(says.clone(), traces);
        if request.joined > 0 || request.is_withdrawn() {
            let (missing, is_withdrawn) = (request.missing(), request.is_withdrawn());
            request.enter(now_us, RequestPhase::Ended, "it has ended");
            self.save_request(number, effects);
            effects.push(PoolEffect::Note(format!("request {number} has ended: {says}")));
            if is_withdrawn {
                self.tell(now_us, Event::RequestEnded { request: NodeRequestId(number) }, effects);
            } else if missing > 0 {
                self.tell(now_us, Event::RequestFailed { request: NodeRequestId(number) }, effects);
            }
            return;
        }
        self.failed(now_us, number, why, counts, effects);
    }

    /// A request is over before a node has joined.
    fn failed(
        &mut self,
        now_us: u64,
        number: u64,
        why: String,
        counts: bool,
        effects: &mut Vec<PoolEffect>,
    ) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        request.enter(now_us, RequestPhase::Ended, "it is over before a node has joined");
        if request.is_withdrawn() {
            self.save_request(number, effects);
            return self.tell(
                now_us,
                Event::RequestEnded { request: NodeRequestId(number) },
                effects,
            );
        }
        let failed = Event::RequestFailed { request: NodeRequestId(number) };
        self.count_failure(now_us, failed, number, why, counts, effects);
    }

    /// A request failed before a node joined. Only failures that say something about the request
    /// lead to a pause.
    fn count_failure(
        &mut self,
        now_us: u64,
        event: Event,
        number: u64,
        why: String,
        counts: bool,
        effects: &mut Vec<PoolEffect>,
    ) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        request.has_failed = true;
        let host = request.host.clone().filter(|_| counts);
        self.save_request(number, effects);
        self.counts.failures += 1;
        let on_host = host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
        effects.push(PoolEffect::Note(format!("request {number} failed{on_host}: {why}")));
        // A host that fails again says nothing more about the request.
        let is_new = host.is_none_or(|host| self.host_failed(now_us, &host, 1, &why, effects));
        self.failures_in_row += u32::from(counts && is_new);
        self.last_failure.clone_from(&why);
        self.save(effects);
        self.tell(now_us, event, effects);
        if self.failures_in_row >= MAX_FAILURES && self.status == PoolStatus::Active {
            let excluded = self.excluded(now_us);
            let hosts = match excluded.is_empty() {
                true => String::new(),
                false => format!("; hosts that failed are excluded: {}", excluded.join(", ")),
            };
            let why = format!(
                "{} in a row failed, the last one so: {why}{hosts}; mend the cause, then `eyas \
                 pool resume {}`",
                units::format_count(MAX_FAILURES.into(), "request"),
                self.config.name
            );
            effects.push(PoolEffect::Note(format!("the pool is paused: {why}")));
            self.set_status(now_us, PoolStatus::Paused(why), effects);
        }
    }

    /// Requests have failed on a host. Returns whether no request has failed there since the last
    /// node joined.
    fn host_failed(
        &mut self,
        now_us: u64,
        host: &str,
        failures: u32,
        why: &str,
        effects: &mut Vec<PoolEffect>,
    ) -> bool {
        let (is_new, is_excluded) = self.failed_hosts.add(now_us, host, failures, why);
        if is_excluded {
            let rest = units::format_duration_us(REST_US);
            effects.push(PoolEffect::Note(format!("host {host} is excluded for {rest}: {why}")));
        }
        is_new
    }

    /// Hosts on which the batch system could start no node, and why. Each costs a submission a
    /// while, so it is excluded at once.
    pub(super) fn pass_over(
        &mut self,
        now_us: u64,
        hosts: Vec<(String, String)>,
        effects: &mut Vec<PoolEffect>,
    ) {
        for (host, why) in hosts {
            self.host_failed(now_us, &host, MAX_FAILURES_THERE, &why, effects);
        }
    }

    /// The cluster stops, and wants no request any longer. Requests that cannot be withdrawn now
    /// are withdrawn at the next start of the cluster.
    pub(super) fn unwant_all(&mut self, now_us: u64, effects: &mut Vec<PoolEffect>) {
        self.tell(now_us, Event::ModeSet(Mode::Paused), effects);
        for number in self.open_numbers() {
            let Some(request) = self.requests.get_mut(&number) else { continue };
            request.unwant(now_us, "the cluster stops");
            // Its command has ended, or will be ended.
            if request.phase() == RequestPhase::Submitting {
                request.enter(
                    now_us,
                    RequestPhase::Unclear,
                    "the cluster stops during its submission",
                );
            }
            request.says = Some("the cluster was stopped".into());
            // Also nodes of a request that has some.
            effects.push(PoolEffect::ShutOut { request: number });
            self.save_request(number, effects);
        }
        self.save(effects);
    }

    /// The cluster stops, and all requests are withdrawn.
    pub(super) fn end_all(&mut self, now_us: u64, effects: &mut Vec<PoolEffect>) {
        for number in self.open_numbers() {
            let Some(request) = self.requests.get_mut(&number) else { continue };
            request.enter(now_us, RequestPhase::Ended, "the cluster stops, and it is withdrawn");
            self.save_request(number, effects);
        }
    }

    fn open_numbers(&self) -> Vec<u64> {
        self.requests().filter(|(_, request)| request.is_open()).map(|(number, _)| number).collect()
    }

    /// Takes up the requests that were on disk when the dispatcher started.
    pub(super) fn remember(&mut self, now_us: u64, remembered: BTreeMap<u64, RememberedRequest>) {
        for (number, RememberedRequest { mut request, has_script }) in remembered {
            request.take_up(now_us);
            if request.is_open() {
                // Its nodes connect again, and join anew; also before the batch system has answered
                // the submission.
                let joined = core::mem::take(&mut request.joined);
                self.counts.nodes_granted = self.counts.nodes_granted.saturating_sub(joined.into());
            }
            if matches!(request.phase(), RequestPhase::Submitting | RequestPhase::Unclear) {
                request.says = Some("the dispatcher ended during the submission".into());
            }
            if request.phase() == RequestPhase::Submitting {
                // Without a script it was not submitted.
                let phase = if has_script { RequestPhase::Unclear } else { RequestPhase::Ended };
                request.enter(now_us, phase, "the dispatcher ended during its submission");
            } else if request.phase() == RequestPhase::Unclear && !has_script {
                request.enter(
                    now_us,
                    RequestPhase::Ended,
                    "the dispatcher ended before its submission",
                );
            }
            let nodes = if request.is_open() { request.nodes } else { 0 };
            let is_withdrawn = request.is_withdrawn();
            let found = Event::RequestFound { request: NodeRequestId(number), nodes, is_withdrawn };
            self.provisioner.handle(now_us, found, &mut Vec::new());
            self.requests.insert(number, request);
        }
        let newest = self.requests.last_key_value().map_or(0, |(number, _)| number + 1);
        if let Some(last) = self.counts.next_request.checked_sub(1).filter(|last| *last >= newest) {
            let found =
                Event::RequestFound { request: NodeRequestId(last), nodes: 0, is_withdrawn: false };
            self.provisioner.handle(now_us, found, &mut Vec::new());
        }
    }
}

impl PoolRequest {
    /// Takes note of what the request says at its end. Returns that, with the last lines that its
    /// nodes have printed.
    fn take_end(&mut self, says: String, traces: NodeTraces) -> String {
        self.host = self.host.take().or(traces.host);
        self.says = Some(says.clone());
        if traces.said.is_empty() {
            says
        } else {
            format!("{says}; the node said: {}", traces.said)
        }
    }
}
