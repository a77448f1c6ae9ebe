//! What is sent to one executor, in order.
//!
//! An assignment of a task with very many inputs is sent in parts, each in another turn of the core, so that nobody
//! waits until all of it is made. An executor adds up the parts until the last one comes, so no other assignment may be
//! between them: further assignments wait behind it, with the templates and tokens that they need, and with commands
//! about these tasks. Other messages go ahead.

use std::collections::VecDeque;

use eyas_types::{TaskId, TaskItem};
use eyas_wire::executor::{AssignedInput, Assignment, ToExecutor};

#[derive(Default)]
pub(crate) struct OutgoingMessages {
    /// Messages that are sent with the next [flush](crate::executors::ConnectedExecutors::flush).
    ready: Vec<ToExecutor>,
    /// An assignment that is sent in parts, and what waits behind it; empty if there is none.
    behind: VecDeque<Outgoing>,
}

enum Outgoing {
    Message(ToExecutor),
    InParts(AssignmentInParts),
}

/// An assignment of which some inputs were sent.
pub(crate) struct AssignmentInParts {
    pub task: TaskId,
    /// Number of earlier assignments of the task.
    pub attempt: u32,
    pub item: TaskItem,
    /// Whether the executor lacks the task's template, which goes before the first part: one with a million inputs is
    /// copied for a while.
    pub needs_template: bool,
    /// The number of inputs that were sent.
    pub sent: usize,
}

/// A part of an assignment.
pub(crate) struct AssignmentPart {
    /// The message with the task's template, before the first part.
    pub template: Option<ToExecutor>,
    pub inputs: Vec<AssignedInput>,
    pub is_last: bool,
}

impl OutgoingMessages {
    /// Adds a message.
    pub fn put(&mut self, message: ToExecutor) {
        if matches!(message, ToExecutor::Stop) {
            // The executor leaves, and runs none of these tasks.
            self.behind.clear();
        }
        if self.waits_behind(&message) {
            self.behind.push_back(Outgoing::Message(message));
        } else {
            self.ready.push(message);
        }
    }

    fn waits_behind(&self, message: &ToExecutor) -> bool {
        match message {
            ToExecutor::Token { .. }
            | ToExecutor::Template { .. }
            | ToExecutor::Inputs(_)
            | ToExecutor::Assign(_)
            | ToExecutor::ForgetJob { .. } => !self.behind.is_empty(),
            ToExecutor::Recall { task } | ToExecutor::Cancel { task } => self.behind.iter().any(|other| match other {
                Outgoing::InParts(assignment) => assignment.task == *task,
                Outgoing::Message(ToExecutor::Assign(assignment)) => assignment.task == *task,
                Outgoing::Message(_) => false,
            }),
            ToExecutor::Welcome { .. }
            | ToExecutor::FilesNodes(_)
            | ToExecutor::Refused(_)
            | ToExecutor::Key { .. }
            | ToExecutor::Trust(_)
            | ToExecutor::Heard
            | ToExecutor::Hold { .. }
            | ToExecutor::Release { .. }
            | ToExecutor::Verify { .. }
            | ToExecutor::Claimed { .. }
            | ToExecutor::Check { .. }
            | ToExecutor::EndLeftovers { .. }
            | ToExecutor::Stop => false,
        }
    }

    /// Adds an assignment that is sent in parts.
    pub fn put_in_parts(&mut self, assignment: AssignmentInParts) {
        self.behind.push_back(Outgoing::InParts(assignment));
    }

    /// The assignment of which parts are to be sent now.
    pub fn in_parts(&self) -> Option<&AssignmentInParts> {
        match self.behind.front() {
            Some(Outgoing::InParts(assignment)) => Some(assignment),
            Some(Outgoing::Message(_)) => unreachable!("a message waits behind nothing"),
            None => None,
        }
    }

    /// Adds the next inputs of that assignment. After the last ones, what waits behind the assignment is ready, up to
    /// the next one that is sent in parts.
    pub fn put_part(&mut self, part: AssignmentPart) {
        let Some(Outgoing::InParts(mut assignment)) = self.behind.pop_front() else { return };
        let AssignmentPart { template, inputs, is_last } = part;
        self.ready.extend(template);
        if !is_last {
            assignment.sent += inputs.len();
            self.ready.push(ToExecutor::Inputs(inputs));
            return self.behind.push_front(Outgoing::InParts(assignment));
        }
        let AssignmentInParts { task, attempt, item: TaskItem { template, values, .. }, .. } = assignment;
        self.ready.push(ToExecutor::Assign(Assignment { task, attempt, template, values, inputs }));
        while let Some(Outgoing::Message(message)) =
            self.behind.pop_front_if(|next| matches!(next, Outgoing::Message(_)))
        {
            self.ready.push(message);
        }
    }

    /// Whether no message can be sent now.
    pub fn is_nothing_ready(&self) -> bool {
        self.ready.is_empty()
    }

    /// Takes the messages that can be sent now.
    pub fn take(&mut self) -> Vec<ToExecutor> {
        std::mem::take(&mut self.ready)
    }
}

#[cfg(test)]
mod tests {
    use eyas_types::{FileMode, JobId, ObjectSpec, Version};

    use super::*;

    fn task(index: u32) -> TaskId {
        TaskId { job: JobId(1), index }
    }

    fn in_parts(index: u32) -> AssignmentInParts {
        let item = TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() };
        AssignmentInParts { task: task(index), attempt: 0, item, needs_template: false, sent: 0 }
    }

    fn input(name: &str) -> AssignedInput {
        let version = Version::Modified { mtime_ns: 1, size_bytes: 1 };
        let object = ObjectSpec { source: format!("file:///{name}").into(), version, mode: FileMode::READABLE };
        AssignedInput { object, part: None, name: None, holders: Vec::new() }
    }

    fn part(inputs: Vec<AssignedInput>, is_last: bool) -> AssignmentPart {
        AssignmentPart { template: None, inputs, is_last }
    }

    fn assigned(index: u32, inputs: Vec<AssignedInput>) -> ToExecutor {
        let (task, attempt, template, values) = (task(index), 0, 0, Vec::new());
        ToExecutor::Assign(Assignment { task, attempt, template, values, inputs })
    }

    #[test]
    fn only_what_concerns_no_waiting_task_overtakes_an_assignment_in_parts() {
        let mut outgoing = OutgoingMessages::default();
        let [recall, cancel] = [ToExecutor::Recall { task: task(1) }, ToExecutor::Cancel { task: task(2) }];
        let of_others = [ToExecutor::Cancel { task: task(3) }, ToExecutor::Heard];
        outgoing.put_in_parts(in_parts(1));
        outgoing.put(recall.clone());
        outgoing.put_in_parts(in_parts(2));
        outgoing.put(cancel.clone());
        of_others.iter().for_each(|message| outgoing.put(message.clone()));
        assert_eq!(outgoing.take(), of_others);
        outgoing.put_part(part(vec![input("a"), input("b")], false));
        assert_eq!(outgoing.take(), [ToExecutor::Inputs(vec![input("a"), input("b")])]);
        assert_eq!(outgoing.in_parts().map(|next| (next.task, next.sent)), Some((task(1), 2)));
        outgoing.put_part(part(vec![input("c")], true));
        assert_eq!(outgoing.take(), [assigned(1, vec![input("c")]), recall]);
        assert_eq!(outgoing.in_parts().map(|next| (next.task, next.sent)), Some((task(2), 0)));
        outgoing.put_part(part(Vec::new(), true));
        assert_eq!(outgoing.take(), [assigned(2, Vec::new()), cancel]);
        assert!(outgoing.in_parts().is_none() && outgoing.is_nothing_ready());
        outgoing.put_in_parts(in_parts(3));
        outgoing.put(ToExecutor::Recall { task: task(3) });
        outgoing.put(ToExecutor::Stop);
        assert_eq!(outgoing.take(), [ToExecutor::Stop]);
        assert!(outgoing.in_parts().is_none());
    }
}
