//! The requests of a pool: submission, states, failures, and the folders of those that have ended.

use super::*;

/// After its last node has left, the batch system has this time to end a request by itself.
const END_GRACE_US: u64 = 30_000_000;
/// The mark of a plan that is tried and never submitted.
pub(crate) const TRIED_MARK: &str = "try";
/// Bytes of a node's messages that are shown when it fails.
const TAIL_BYTES: usize = 1_000;

impl Pool {
    /// The plan of a request that is made now.
    pub fn plan(&self, now_us: u64, number: u64, nodes: u32) -> RequestPlan {
        RequestPlan {
            pool: self.name.clone(),
            number,
            nodes,
            mark: self.requests.get(&number).map_or_else(|| TRIED_MARK.into(), |request| request.mark.clone()),
            options: self.options.clone(),
            excluded: self.failed_hosts.excluded(now_us),
            folder: self.folder.request(number),
            eyas: self.eyas.clone(),
        }
    }

    pub(super) fn save_request(&self, number: u64) {
        let Some(request) = self.requests.get(&number) else { return };
        if request.is_unwanted() {
            // A job of which the batch system does not tell ends at once if it starts.
            let _ = std::fs::remove_file(self.plan(0, number, request.nodes).access());
        }
        if let Err(why) = request.save(&self.folder.request(number)) {
            tracing::warn!("request {number} of pool {} is not kept on disk: {why}", self.name);
        }
    }

    pub(super) fn request(&mut self, now_us: u64, number: u64, nodes: u32, actions: &mut Vec<PoolAction>) {
        self.requests.insert(number, PoolRequest::new(nodes, now_us / 1000));
        self.counts.nodes_requested += u64::from(nodes);
        self.counts.next_request = number + 1;
        // After a crash, the request is looked for by the name that is written here.
        self.save_request(number);
        let work = units::format_count(self.waiting, "waiting task");
        let text = format!("request {number} for {}: {work}", units::format_count(nodes.into(), "node"));
        self.note(now_us, text);
        actions.push(PoolAction::Submit(self.plan(now_us, number, nodes)));
    }

    /// Keeps the folders of the [`MAX_ENDED`] newest requests that have ended, and removes the others.
    pub(super) fn forget_ended(&mut self) {
        let ended: Vec<_> =
            self.requests.iter().filter(|(_, request)| request.is_over()).map(|(number, _)| *number).collect();
        for number in ended.iter().take(ended.len().saturating_sub(MAX_ENDED)) {
            self.requests.remove(number);
            self.folder.remove_request(*number);
        }
    }

    pub(super) fn withdraw(&mut self, now_us: u64, number: u64, actions: &mut Vec<PoolAction>) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        request.is_withdrawn = true;
        // To withdraw a request ends all of its nodes. If some have joined, they are given back one by one instead.
        if request.present == 0
            && let Some(job) = &request.job
        {
            actions.push(PoolAction::Withdraw(vec![job.clone()]));
        }
        self.save_request(number);
        self.note(now_us, format!("request {number} is withdrawn: fewer nodes are enough for the work"));
    }

    /// A request was submitted, or refused, or neither is known.
    pub fn submitted(&mut self, now_us: u64, number: u64, submission: Submission, actions: &mut Vec<PoolAction>) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        match submission {
            Submission::Accepted(job) => {
                (request.is_unclear, request.unknown) = (false, 0);
                request.phase = if request.present > 0 { RequestPhase::Running } else { RequestPhase::Pending };
                if request.is_withdrawn {
                    actions.push(PoolAction::Withdraw(vec![job.clone()]));
                }
                request.job = Some(job);
                self.save_request(number);
            }
            Submission::Refused(why) => {
                request.says = Some(why.to_string());
                self.failed(now_us, number, why.to_string(), true, actions);
            }
            Submission::Unclear(why) => {
                (request.is_unclear, request.says) = (true, Some(why.to_string()));
                let name = self.plan(now_us, number, 0).name();
                let text = format!("request {number} is looked for by its name {name}, as it may have been submitted");
                self.note(now_us, format!("{text}: {why}"));
                self.save_request(number);
            }
        }
    }

    /// Requests that the batch system may have, as far as is known. A request without a script was not submitted.
    pub fn unclear(&self, now_us: u64) -> impl Iterator<Item = RequestPlan> {
        let unclear = self.requests.iter().filter(|(_, request)| request.is_unclear);
        let plans = unclear.map(move |(number, request)| self.plan(now_us, *number, request.nodes));
        plans.filter(|plan| plan.script().exists())
    }

    /// The batch system was asked for an unclear request.
    pub fn looked_for(
        &mut self,
        now_us: u64,
        number: u64,
        answer: Result<Option<BatchJob>, BatchError>,
        actions: &mut Vec<PoolAction>,
    ) {
        let Some(request) = self.requests.get_mut(&number).filter(|request| request.is_unclear) else { return };
        if answer.is_ok() {
            self.states_failure = None;
        }
        match answer {
            Ok(Some(job)) => {
                self.note(now_us, format!("request {number} was submitted: it is job {}", job.id));
                self.submitted(now_us, number, Submission::Accepted(job), actions);
            }
            Err(why) if why.leaves_open() => self.states_unknown(now_us, &why),
            _ => {
                request.unknown += 1;
                if request.unknown >= MAX_UNKNOWN {
                    request.is_unclear = false;
                    let says = request.says.clone().unwrap_or_else(|| "it was not submitted".into());
                    self.ended(now_us, number, says, true, actions);
                }
            }
        }
    }

    /// Whether the batch system has requests, or may have them.
    pub fn has_open(&self) -> bool {
        self.requests
            .values()
            .any(|request| request.is_unclear || request.phase != RequestPhase::Ended && request.job.is_some())
    }

    /// Requests whose state the batch system is to be asked for.
    pub fn open_jobs(&self) -> impl Iterator<Item = (u64, &BatchJob)> {
        let open = self.requests.iter().filter(|(_, request)| request.phase != RequestPhase::Ended);
        open.filter_map(|(number, request)| Some((*number, request.job.as_ref()?)))
    }

    /// The batch system did not say the states of requests. This is noted once for each reason.
    pub fn states_unknown(&mut self, now_us: u64, why: &BatchError) {
        let text = format!("the states of requests are not known: {why}");
        if self.states_failure.as_ref() != Some(&text) {
            self.note(now_us, text.clone());
            self.states_failure = Some(text);
        }
    }

    /// The batch system has said how a request stands.
    pub fn see_state(&mut self, now_us: u64, number: u64, report: BatchReport, actions: &mut Vec<PoolAction>) {
        let Some(request) = self.requests.get_mut(&number).filter(|request| request.phase != RequestPhase::Ended)
        else {
            return;
        };
        let before = request.phase;
        self.states_failure = None;
        request.unknown = if report.state == BatchState::Unknown { request.unknown + 1 } else { 0 };
        request.host = report.host.or(request.host.take());
        match report.state {
            BatchState::Pending(says) => {
                (request.phase, request.says) = (RequestPhase::Pending, says);
                request.waits_since_us = None;
                if request.is_withdrawn {
                    // The command may have failed.
                    actions.extend(request.job.clone().map(|job| PoolAction::Withdraw(vec![job])));
                }
            }
            BatchState::Running | BatchState::Starting(_) => {
                let says = if let BatchState::Starting(says) = report.state { says } else { None };
                (request.phase, request.says) = (RequestPhase::Running, says);
                let since_us = *request.waits_since_us.get_or_insert(now_us);
                if request.present == 0 {
                    self.check_overdue(now_us, number, since_us, actions);
                }
            }
            BatchState::Ended(end) => return self.ended(now_us, number, end.says, !end.is_of_node, actions),
            BatchState::Unknown if request.unknown >= MAX_UNKNOWN => {
                let says = "the batch system no longer knows it".to_owned();
                return self.ended(now_us, number, says, false, actions);
            }
            BatchState::Unknown => {}
        }
        // What the batch system says is not kept on disk: it is asked for again after a restart.
        if self.requests.get(&number).is_some_and(|request| request.phase != before) {
            self.save_request(number);
        }
    }

    /// Ends a granted request whose nodes do not join, or have left.
    fn check_overdue(&mut self, now_us: u64, number: u64, since_us: u64, actions: &mut Vec<PoolAction>) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        let Some(job) = request.job.clone() else { return };
        if request.is_withdrawn || request.joined >= request.nodes {
            if now_us >= since_us + END_GRACE_US {
                request.waits_since_us = Some(now_us);
                actions.push(PoolAction::Withdraw(vec![job]));
            }
        } else if request.joined == 0 && now_us >= since_us + self.options.join_timeout_us {
            // It is asked for until the batch system has ended it.
            (request.is_withdrawn, request.waits_since_us) = (true, Some(now_us));
            actions.push(PoolAction::Withdraw(vec![job]));
            let after = units::format_duration_us(self.options.join_timeout_us);
            let because = request.says.as_ref().map(|says| format!(": {says}")).unwrap_or_default();
            let says = format!("no node joined within {after} after the request was granted{because}");
            let why = self.take_end(number, says);
            self.count_failure(now_us, number, why, true, actions);
        }
    }

    /// Takes note of what a request says at its end. Returns that, with the last lines that its nodes have printed.
    fn take_end(&mut self, number: u64, says: String) -> String {
        let (tail, host) = (self.tail(number), self.written_host(number));
        if let Some(request) = self.requests.get_mut(&number) {
            request.host = request.host.take().or(host);
            request.says = Some(says.clone());
        }
        if tail.is_empty() { says } else { format!("{says}; the node said: {tail}") }
    }

    /// The batch system has ended a request.
    fn ended(&mut self, now_us: u64, number: u64, says: String, counts: bool, actions: &mut Vec<PoolAction>) {
        let why = self.take_end(number, says.clone());
        let Some(request) = self.requests.get_mut(&number) else { return };
        if request.joined > 0 || request.is_withdrawn {
            let missing = request.missing();
            request.phase = RequestPhase::Ended;
            self.save_request(number);
            self.note(now_us, format!("request {number} has ended: {says}"));
            if missing > 0 {
                self.tell(now_us, Event::RequestFailed { request: NodeRequestId(number) }, actions);
            }
            return;
        }
        self.failed(now_us, number, why, counts, actions);
    }

    /// A request is over before a node has joined.
    fn failed(&mut self, now_us: u64, number: u64, why: String, counts: bool, actions: &mut Vec<PoolAction>) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        request.phase = RequestPhase::Ended;
        if request.is_withdrawn {
            return self.save_request(number);
        }
        self.count_failure(now_us, number, why, counts, actions);
    }

    /// A request failed before a node joined. Only failures that say something about the request lead to a pause.
    fn count_failure(&mut self, now_us: u64, number: u64, why: String, counts: bool, actions: &mut Vec<PoolAction>) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        request.has_failed = true;
        let host = request.host.clone().filter(|_| counts);
        self.save_request(number);
        self.counts.failures += 1;
        let on_host = host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
        self.note(now_us, format!("request {number} failed{on_host}: {why}"));
        // A host that fails again says nothing more about the request.
        let is_new = host.is_none_or(|host| self.host_failed(now_us, host, &why));
        self.failures_in_row += u32::from(counts && is_new);
        self.last_failure.clone_from(&why);
        self.save();
        self.tell(now_us, Event::RequestFailed { request: NodeRequestId(number) }, actions);
        if self.failures_in_row >= MAX_FAILURES && self.status == PoolStatus::Active {
            let excluded = self.failed_hosts.excluded(now_us);
            let hosts = match excluded.is_empty() {
                true => String::new(),
                false => format!("; hosts that failed are excluded: {}", excluded.join(", ")),
            };
            let why = format!(
                "{} in a row failed, the last one so: {why}{hosts}; mend the cause, then `eyas pool resume {}`",
                units::format_count(MAX_FAILURES.into(), "request"),
                self.name
            );
            self.note(now_us, format!("the pool is paused: {why}"));
            self.set_status(now_us, PoolStatus::Paused(why), actions);
        }
    }

    pub fn has_request(&self, number: u64) -> bool {
        self.requests.contains_key(&number)
    }

    pub fn newest_request(&self) -> Option<u64> {
        self.requests.last_key_value().map(|(number, _)| *number)
    }

    /// The cluster stops, and wants no request any longer. Requests that cannot be withdrawn now are withdrawn at the
    /// next start of the cluster.
    pub fn unwant_all(&mut self) {
        for number in self.open_numbers() {
            let Some(request) = self.requests.get_mut(&number) else { continue };
            request.is_withdrawn = true;
            // Its command has ended, or will be ended.
            request.is_unclear = request.phase == RequestPhase::Submitting;
            request.says = Some("the cluster was stopped".into());
            self.save_request(number);
        }
        self.save();
    }

    /// The cluster stops, and all requests are withdrawn.
    pub fn end_all(&mut self) {
        for number in self.open_numbers() {
            let Some(request) = self.requests.get_mut(&number) else { continue };
            request.phase = RequestPhase::Ended;
            self.save_request(number);
        }
    }

    fn open_numbers(&self) -> Vec<u64> {
        let open = self.requests.iter().filter(|(_, request)| request.phase != RequestPhase::Ended);
        open.map(|(number, _)| *number).collect()
    }

    /// Submitted requests that have not ended and of which no node is connected.
    pub fn jobs_without_nodes(&self) -> Vec<BatchJob> {
        let open = self.requests.values().filter(|request| request.phase != RequestPhase::Ended);
        open.filter(|request| request.present == 0).filter_map(|request| request.job.clone()).collect()
    }

    /// Ends everything at once: tasks on the pool's nodes run again elsewhere.
    pub fn give_up(&mut self, actions: &mut Vec<PoolAction>) {
        let nodes = self.executors().collect::<Vec<_>>();
        actions.extend(nodes.into_iter().map(|executor| PoolAction::Order(PoolOrder::Release { executor })));
        let jobs: Vec<_> = self.open_jobs().map(|(_, job)| job.clone()).collect();
        if !jobs.is_empty() {
            actions.push(PoolAction::Withdraw(jobs));
        }
    }

    /// Why requested nodes have not joined: how the oldest request stands.
    pub(super) fn why_requested_wait(&self, now_us: u64) -> Option<String> {
        let (number, request) = self.requests.iter().find(|(_, request)| request.missing() > 0)?;
        let waited = units::format_duration_us(now_us.saturating_sub(request.requested_unix_ms * 1000));
        let phase = match request.phase {
            RequestPhase::Submitting if request.is_unclear => "is looked for in the batch system",
            RequestPhase::Submitting => "is being submitted",
            RequestPhase::Running => "was granted, and its node has not joined",
            _ => "waits in the batch system",
        };
        let says = request.says.as_ref().map(|says| format!(" ({says})")).unwrap_or_default();
        Some(format!("request {number}, made {waited} ago, {phase}{says}"))
    }

    /// The last lines that the nodes of a request have printed.
    fn tail(&self, number: u64) -> String {
        let Ok(bytes) = std::fs::read(self.folder.request(number).join("stderr")) else { return String::new() };
        let last = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        let text = String::from_utf8_lossy(last);
        text.lines().rev().take(3).map(str::trim).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("; ")
    }

    /// The host that the script of a request has written, if it has.
    fn written_host(&self, number: u64) -> Option<String> {
        let host = std::fs::read_to_string(self.folder.request(number).join(HOST_FILE)).ok()?;
        Some(host.trim().to_owned()).filter(|host| is_host_name(host))
    }

    /// Reads the requests from disk when the dispatcher starts.
    pub(super) fn take_up_requests(&mut self, now_us: u64) {
        self.requests = self.folder.load_requests();
        for (number, request) in &mut self.requests {
            request.waits_since_us = Some(now_us);
            if request.phase != RequestPhase::Ended {
                // Its nodes connect again, and join anew; also before the batch system has answered the submission.
                let joined = std::mem::take(&mut request.joined);
                self.counts.nodes_granted = self.counts.nodes_granted.saturating_sub(joined.into());
            }
            if request.phase == RequestPhase::Submitting {
                request.says = Some("the dispatcher ended during the submission".into());
                // Without a script it was not submitted.
                match self.folder.request(*number).join(SCRIPT).exists() {
                    true => request.is_unclear = true,
                    false => request.phase = RequestPhase::Ended,
                }
            }
            let found = Event::RequestFound { request: NodeRequestId(*number), nodes: request.missing() };
            self.provisioner.handle(now_us, found, &mut Vec::new());
        }
        let newest = self.requests.last_key_value().map_or(0, |(number, _)| number + 1);
        if let Some(last) = self.counts.next_request.checked_sub(1).filter(|last| *last >= newest) {
            let found = Event::RequestFound { request: NodeRequestId(last), nodes: 0 };
            self.provisioner.handle(now_us, found, &mut Vec::new());
        }
    }
}

fn is_host_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}
