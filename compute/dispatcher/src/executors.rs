//! The executors that have joined, as the dispatcher sees them.

mod connected;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use eyas_sched as sched;
use eyas_session::{Outbox, OutboxError};
use eyas_types::dfs::FileSystemId;
use eyas_types::{ExecutorId, JobId, ObjectSpec, TaskId, TaskTemplate};
use eyas_wire::executor::{FileSystemMembership, FilesNode, PeerHint, Registration, ToExecutor};
use eyas_wire::trust::SecretText;
use thiserror::Error;

pub(crate) use self::connected::ConnectedExecutor;
use crate::clock::Clock;
use crate::keys::Keys;
use crate::outgoing::{AssignmentInParts, AssignmentPart, WithdrawnAssignment};

/// Lost executors that are remembered, so that executors on their hosts end their leftovers.
const MAX_LOST: usize = 1024;
/// Number of nodes of the file system that a new node or a client is told; they know the others.
const FILES_NODES_TOLD: usize = 16;

/// No executor has this name or id.
#[derive(Debug, Error)]
#[error("there is no executor `{0}`: see `eyas executor list`")]
pub struct NoSuchExecutor(String);

#[derive(Default)]
pub(crate) struct ConnectedExecutors {
    present: BTreeMap<ExecutorId, ConnectedExecutor>,
    joined: u32,
    /// Hosts and names of lost processes, the latest last. Their tasks may still run there.
    lost: VecDeque<(String, String)>,
    /// Executors with messages to send.
    to_send: Vec<ExecutorId>,
    /// Executors to which an assignment is being sent in parts, in the order of their turns.
    sent_in_parts: VecDeque<ExecutorId>,
    /// Makes tokens of jobs.
    keys: Option<Arc<Keys>>,
    /// Names in use.
    names: HashSet<String>,
    /// No executor counts as lost before this time, microseconds since 1970; `None` if that is not
    /// known. Asked for after each batch of messages, so that it must not take a look at each
    /// executor.
    no_loss_before_us: Option<u64>,
}

impl ConnectedExecutors {
    /// Adds an executor and returns its new id.
    pub fn join(
        &mut self,
        (registration, minor): (&Registration, u16),
        outbox: Outbox<ToExecutor>,
        clock: Clock,
    ) -> ExecutorId {
        let id = ExecutorId(self.joined);
        self.joined += 1;
        // Names are for people: two of the same are told apart by the id.
        let is_taken = self.names.contains(&registration.name);
        let name = if is_taken {
            format!("{}-{id}", registration.name)
        } else {
            registration.name.clone()
        };
        self.names.insert(name.clone());
        let executor = ConnectedExecutor::new(name, (registration, minor), outbox, clock);
        self.present.insert(id, executor);
        id
    }

    /// Has the executors on a lost executor's host end its leftovers, because its tasks run
    /// elsewhere now.
    pub fn lost(&mut self, gone: &ConnectedExecutor) {
        if self.lost.len() == MAX_LOST {
            self.lost.pop_front();
        }
        self.lost.push_back((gone.host.clone(), gone.incarnation.clone()));
        let beside: Vec<_> =
            self.iter().filter(|(_, other)| other.host == gone.host).map(|(id, _)| id).collect();
        for id in beside {
            self.send(id, ToExecutor::EndLeftovers { incarnation: gone.incarnation.clone() });
        }
    }

    /// Tells a new executor which executors were lost on its host. If it was lost itself, it is
    /// back.
    pub fn tell_lost(&mut self, id: ExecutorId) {
        let Some((host, own)) =
            self.get(id).map(|entry| (entry.host.clone(), entry.incarnation.clone()))
        else {
            return;
        };
        self.lost.retain(|(_, incarnation)| *incarnation != own);
        let there: Vec<_> = self.lost.iter().filter(|(on, _)| *on == host).cloned().collect();
        for (_, incarnation) in there {
            self.send(id, ToExecutor::EndLeftovers { incarnation });
        }
    }

    /// Takes a new executor's node into the cluster's file system. If the node is of another one,
    /// other nodes must not find it; what is returned, as part of its welcome, tells it why.
    pub fn take_into(
        &mut self,
        system: FileSystemId,
        id: ExecutorId,
        node: &FilesNode,
    ) -> FileSystemMembership {
        let is_of_another = node.system.is_some_and(|own| own != system);
        if is_of_another && let Some(entry) = self.get_mut(id) {
            entry.files = None;
        }
        let founds = system == FileSystemId::founded_by(node.node);
        FileSystemMembership { system, founds, nodes: self.files_nodes(Some(id)) }
    }

    /// Sends a new executor the addresses of some nodes of the file system. If its own node is one
    /// of them, sends them to all executors.
    pub fn tell_files_nodes(&mut self, id: ExecutorId) {
        let nodes = self.files_nodes(None);
        if nodes.is_empty() {
            return;
        }
        let is_news =
            self.get(id).is_some_and(|entry| entry.files.is_some_and(|node| nodes.contains(&node)));
        let to: Vec<_> = if is_news { self.present.keys().copied().collect() } else { vec![id] };
        for executor in to {
            self.send(executor, ToExecutor::FilesNodes(nodes.clone()));
        }
    }

    pub fn leave(&mut self, id: ExecutorId) -> Option<ConnectedExecutor> {
        let gone = self.present.remove(&id)?;
        self.names.remove(&gone.name);
        self.sent_in_parts.retain(|other| *other != id);
        gone.sign_of_life.give_up();
        Some(gone)
    }

    pub fn get(&self, id: ExecutorId) -> Option<&ConnectedExecutor> {
        self.present.get(&id)
    }

    pub fn get_mut(&mut self, id: ExecutorId) -> Option<&mut ConnectedExecutor> {
        self.present.get_mut(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (ExecutorId, &ConnectedExecutor)> {
        self.present.iter().map(|(id, executor)| (*id, executor))
    }

    pub fn len(&self) -> usize {
        self.present.len()
    }

    /// Addresses at which connected holders serve objects.
    pub fn where_to_ask(&self, holders: &[sched::Holder]) -> Vec<PeerHint> {
        let holders = holders.iter().filter_map(|sched::Holder { executor, is_relay, others }| {
            let transfer = self.get(*executor)?.transfer;
            Some(PeerHint { transfer, is_relay: *is_relay, others: *others })
        });
        holders.collect()
    }

    /// The connected executor that sends objects from this address.
    pub fn at(&self, transfer: SocketAddr) -> Option<ExecutorId> {
        self.iter().find(|(_, executor)| executor.transfer.address == transfer).map(|it| it.0)
    }

    /// Addresses at which executors, their nodes of the file system, and the proxies of executors
    /// listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let of = |executor: &ConnectedExecutor| {
            [Some(executor.transfer.address), executor.files, executor.transfer.proxy]
        };
        self.iter().flat_map(|(_, executor)| of(executor)).flatten().collect()
    }

    /// Addresses of some nodes of the file system, without the node of executor `but`.
    pub fn files_nodes(&self, but: Option<ExecutorId>) -> Vec<SocketAddr> {
        let others = self.iter().filter(|(id, _)| Some(*id) != but);
        others.filter_map(|(_, executor)| executor.files).take(FILES_NODES_TOLD).collect()
    }

    /// Counts all executors as heard of now.
    pub fn count_as_heard(&self, now_us: u64) {
        self.present.values().for_each(|executor| _ = executor.sign_of_life.note_at(now_us));
    }

    /// Executors that have missed messages, or were not heard of for this long. They are given up.
    pub fn lost_at(&mut self, now_us: u64, deadline_us: u64) -> Vec<ExecutorId> {
        if self.no_loss_before_us.is_some_and(|before_us| now_us < before_us) {
            return Vec::new();
        }
        self.no_loss_before_us = None;
        let since_us = now_us.saturating_sub(deadline_us);
        let is_lost = |executor: &ConnectedExecutor| {
            executor.is_deaf || executor.sign_of_life.give_up_unless_heard_since(since_us)
        };
        self.iter().filter(|(_, executor)| is_lost(executor)).map(|(id, _)| id).collect()
    }

    /// When the next executor may count as lost: not earlier, and later if it is heard of before.
    pub fn next_loss_us(&mut self, deadline_us: u64) -> Option<u64> {
        let lost_us = |executor: &ConnectedExecutor| {
            if executor.is_deaf { 0 } else { executor.sign_of_life.last_us() + deadline_us + 1 }
        };
        if self.no_loss_before_us.is_none() {
            self.no_loss_before_us = self.present.values().map(lost_us).min();
        }
        self.no_loss_before_us
    }

    /// The executor with this name or id.
    pub fn find(&self, name_or_id: &str) -> Result<ExecutorId, NoSuchExecutor> {
        let found = self
            .iter()
            .find(|(id, executor)| id.to_string() == name_or_id || executor.name == name_or_id);
        found.map(|(id, _)| id).ok_or_else(|| NoSuchExecutor(name_or_id.to_owned()))
    }

    /// The executor's name; its id if it has left.
    pub fn name(&self, id: ExecutorId) -> String {
        self.get(id).map_or_else(|| id.to_string(), |executor| executor.name.clone())
    }

    /// Queues a message for an executor; the next [`flush`](Self::flush) sends it.
    pub fn send(&mut self, id: ExecutorId, message: ToExecutor) {
        let token = match &message {
            ToExecutor::Template { job, spec, .. } => self.token(id, *job, spec),
            _ => None,
        };
        let Some(executor) = self.present.get_mut(&id) else { return };
        let (was_ready, is_stop) =
            (!executor.outgoing.is_nothing_ready(), matches!(message, ToExecutor::Stop));
        token.into_iter().chain([message]).for_each(|message| executor.outgoing.put(message));
        if !was_ready && !executor.outgoing.is_nothing_ready() {
            self.to_send.push(id);
        }
        if is_stop {
            // It is sent no more parts.
            self.sent_in_parts.retain(|other| *other != id);
        }
    }

    /// Queues an assignment for an executor, which is sent in parts. Further assignments to the
    /// executor wait behind it.
    pub fn send_in_parts(&mut self, id: ExecutorId, assignment: AssignmentInParts) {
        let Some(executor) = self.present.get_mut(&id) else { return };
        if executor.outgoing.in_parts().is_none() {
            self.sent_in_parts.push_back(id);
        }
        executor.outgoing.put_in_parts(assignment);
    }

    /// Takes back an assignment in parts of which the executor was sent nothing. Returns the number
    /// of earlier assignments of the task.
    pub fn withdraw_in_parts(&mut self, id: ExecutorId, task: TaskId) -> Option<u32> {
        let executor = self.present.get_mut(&id)?;
        let was_ready = !executor.outgoing.is_nothing_ready();
        let WithdrawnAssignment { attempt, unsent_template } = executor.outgoing.withdraw(task)?;
        if let Some(template) = unsent_template {
            executor.templates.remove(&template);
        }
        if !was_ready && !executor.outgoing.is_nothing_ready() {
            self.to_send.push(id);
        }
        if executor.outgoing.in_parts().is_none() {
            self.sent_in_parts.retain(|other| *other != id);
        }
        Some(attempt)
    }

    /// Outputs of a task were replaced; `before` is what they were. Assignments that are being sent
    /// keep these.
    pub fn keep_replaced(&mut self, task: TaskId, before: &[(u16, ObjectSpec)]) {
        for id in &self.sent_in_parts {
            if let Some(executor) = self.present.get_mut(id) {
                executor.outgoing.keep_replaced(task, before);
            }
        }
    }

    /// Whether an assignment is being sent in parts.
    pub fn are_sent_in_parts(&self) -> bool {
        !self.sent_in_parts.is_empty()
    }

    /// The executor whose turn it is to be sent the next part of an assignment, and the assignment.
    pub fn next_in_parts(&self) -> Option<(ExecutorId, &AssignmentInParts)> {
        let id = *self.sent_in_parts.front()?;
        Some((id, self.present.get(&id)?.outgoing.in_parts()?))
    }

    /// Queues the next part of the assignment that an executor is being sent. Its turn ends with
    /// the last part: tasks begin the sooner if assignments are sent one after the other.
    pub fn send_part(&mut self, id: ExecutorId, part: AssignmentPart) {
        let token = match &part.template {
            Some(ToExecutor::Template { job, spec, .. }) => self.token(id, *job, spec),
            _ => None,
        };
        let Some(executor) = self.present.get_mut(&id) else { return };
        if executor.outgoing.is_nothing_ready() {
            self.to_send.push(id);
        }
        let is_last = part.is_last;
        executor.outgoing.put_part(token, part);
        if is_last {
            self.sent_in_parts.retain(|other| *other != id);
            if executor.outgoing.in_parts().is_some() {
                self.sent_in_parts.push_back(id);
            }
        }
    }

    /// Sends the queued messages.
    pub fn flush(&mut self) {
        for id in self.to_send.drain(..) {
            let Some(executor) = self.present.get_mut(&id) else { continue };
            let messages = executor.outgoing.take();
            // If the connection has ended, its session will report that.
            if executor.outbox.post(messages) == Err(OutboxError::Full)
                && !std::mem::replace(&mut executor.is_deaf, true)
            {
                self.no_loss_before_us = None;
                tracing::warn!(
                    executor = %id,
                    "does not read what it is sent; its connection will end"
                );
            }
        }
    }

    /// From now on, executors get the token of a job with its first template.
    pub fn give_tokens(&mut self, keys: Arc<Keys>) {
        self.keys = Some(keys);
    }

    /// The token of a template's job, if the executor does not have it yet.
    fn token(&mut self, to: ExecutorId, job: JobId, template: &TaskTemplate) -> Option<ToExecutor> {
        let keys = self.keys.as_ref()?;
        match keys.token(job, &template.files) {
            Ok(token) if self.present.get_mut(&to)?.tokens.insert(job) => {
                Some(ToExecutor::Token { job, access: SecretText(token.to_string()) })
            }
            Ok(_) => None,
            Err(e) => {
                tracing::error!(%job, "its tasks run without a token: {e}");
                None
            }
        }
    }

    /// Has all executors forget a job, and ends its token.
    pub fn forget_job(&mut self, job: JobId) {
        if let Some(keys) = &self.keys {
            keys.end_job(job);
        }
        let knew = |executor: &mut ConnectedExecutor| {
            let before = executor.templates.len();
            executor.templates.retain(|(of, _)| *of != job);
            executor.tokens.remove(&job);
            executor.templates.len() < before
        };
        let who_knew: Vec<_> = self
            .present
            .iter_mut()
            .filter_map(|(id, executor)| knew(executor).then_some(*id))
            .collect();
        who_knew.into_iter().for_each(|id| self.send(id, ToExecutor::ForgetJob { job }));
    }
}
