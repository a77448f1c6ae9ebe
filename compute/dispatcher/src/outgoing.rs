//! What is sent to one executor, in order.
//!
//! An assignment of a task with very many inputs is sent in parts, each in another turn of the
//! core, so that nobody waits until all of it is made. An executor adds up the parts until the last
//! one comes, so no other assignment may be between them: further assignments wait behind it, with
//! the templates and tokens that they need, and with commands about these tasks. Other messages go
//! ahead.

use std::collections::{BTreeMap, VecDeque};

use eyas_types::{JobId, ObjectId, ObjectSpec, TaskId, TaskItem};
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

/// An assignment that was withdrawn before anything of it was sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WithdrawnAssignment {
    pub attempt: u32,
    /// The template that was to go before it, and that no other assignment needs now.
    pub unsent_template: Option<(JobId, u16)>,
}

/// An assignment of which some inputs were sent.
pub(crate) struct AssignmentInParts {
    pub task: TaskId,
    /// Number of earlier assignments of the task.
    pub attempt: u32,
    pub item: TaskItem,
    /// Whether the executor lacks the task's template, which goes before the first part: one with
    /// a million inputs is copied for a while.
    pub needs_template: bool,
    /// The number of inputs that were sent.
    pub sent: usize,
    /// What outputs of tasks were when the first inputs were sent, where they were replaced since:
    /// by task and output. A task never reads outputs of two runs of another task. If what it is
    /// to read is gone, it is tried again.
    pub replaced: BTreeMap<(u32, u16), (ObjectId, ObjectSpec)>,
}

impl AssignmentInParts {
    pub fn new(task: TaskId, attempt: u32, item: TaskItem, needs_template: bool) -> Self {
        AssignmentInParts {
            task,
            attempt,
            item,
            needs_template,
            sent: 0,
            replaced: BTreeMap::new(),
        }
    }

    fn template(&self) -> (JobId, u16) {
        (self.task.job, self.item.template)
    }
}

/// A part of an assignment.
pub(crate) struct AssignmentPart {
    /// The message with the task's template, before the first part.
    pub template: Option<ToExecutor>,
    /// The messages with the places of its named inputs.
    pub places: Vec<ToExecutor>,
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
            | ToExecutor::Places(_)
            | ToExecutor::Copies(_)
            | ToExecutor::Assign(_)
            | ToExecutor::ForgetJob { .. } => !self.behind.is_empty(),
            ToExecutor::Recall { task }
            | ToExecutor::Cancel { task }
            | ToExecutor::ReadPrinted { task, .. } => self.behind.iter().any(|other| match other {
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
            | ToExecutor::HoldNamed { .. }
            | ToExecutor::Release { .. }
            | ToExecutor::Verify { .. }
            | ToExecutor::Claimed { .. }
            | ToExecutor::LastTry { .. }
            | ToExecutor::Derive { .. }
            | ToExecutor::Check { .. }
            | ToExecutor::EndLeftovers { .. }
            | ToExecutor::Stop => false,
        }
    }

    /// Adds an assignment that is sent in parts.
    pub fn put_in_parts(&mut self, assignment: AssignmentInParts) {
        self.behind.push_back(Outgoing::InParts(assignment));
    }

    /// Takes back an assignment in parts of which nothing was sent. What waits behind it moves up.
    /// If a template was to go before it, the template goes before the next assignment in parts
    /// that needs it; where an assignment that is not sent in parts needs it first, nothing is
    /// taken back.
    pub fn withdraw(&mut self, task: TaskId) -> Option<WithdrawnAssignment> {
        let is_it = |other: &Outgoing| match other {
            Outgoing::InParts(it) => it.task == task && it.sent == 0,
            _ => false,
        };
        let place = self.behind.iter().position(is_it)?;
        let Outgoing::InParts(it) = &self.behind[place] else { return None };
        let (attempt, template) = (it.attempt, it.template());
        let mut unsent_template = it.needs_template.then_some(template);
        if it.needs_template {
            let needs = |other: &&mut Outgoing| match other {
                Outgoing::InParts(other) => other.template() == template,
                Outgoing::Message(ToExecutor::Assign(other)) => {
                    (other.task.job, other.template) == template
                }
                Outgoing::Message(_) => false,
            };
            match self.behind.iter_mut().skip(place + 1).find(needs) {
                Some(Outgoing::InParts(next)) => {
                    next.needs_template = true;
                    unsent_template = None;
                }
                Some(Outgoing::Message(_)) => return None,
                None => {}
            }
        }
        self.behind.remove(place);
        self.move_up();
        Some(WithdrawnAssignment { attempt, unsent_template })
    }

    /// Outputs of a task were replaced; `before` is what they were. An assignment that is being
    /// sent keeps these.
    pub fn keep_replaced(&mut self, task: TaskId, before: &[(u16, ObjectSpec)]) {
        let Some(Outgoing::InParts(assignment)) = self.behind.front_mut() else { return };
        if assignment.task.job == task.job && assignment.sent > 0 {
            for (output, object) in before {
                let replaced = assignment.replaced.entry((task.index, *output));
                replaced.or_insert_with(|| (object.id(), object.clone()));
            }
        }
    }

    /// The assignment of which parts are to be sent now.
    pub fn in_parts(&self) -> Option<&AssignmentInParts> {
        match self.behind.front() {
            Some(Outgoing::InParts(assignment)) => Some(assignment),
            Some(Outgoing::Message(_)) => unreachable!("a message waits behind nothing"),
            None => None,
        }
    }

    /// Adds the next inputs of that assignment, behind the token of its job if that goes before its
    /// template. After the last inputs, what waits behind the assignment is ready, up to the next
    /// one that is sent in parts.
    pub fn put_part(&mut self, token: Option<ToExecutor>, part: AssignmentPart) {
        let Some(Outgoing::InParts(mut assignment)) = self.behind.pop_front() else { return };
        let AssignmentPart { template, places, inputs, is_last } = part;
        self.ready.extend(token.into_iter().chain(template).chain(places));
        if !is_last {
            assignment.sent += inputs.len();
            self.ready.push(ToExecutor::Inputs(inputs));
            return self.behind.push_front(Outgoing::InParts(assignment));
        }
        let AssignmentInParts { task, attempt, item: TaskItem { template, values, .. }, .. } =
            assignment;
        self.ready.push(ToExecutor::Assign(Assignment { task, attempt, template, values, inputs }));
        self.move_up();
    }

    /// What waits behind no assignment in parts is ready.
    fn move_up(&mut self) {
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
    use eyas_types::{FileMode, Version};

    use super::*;

    fn task(index: u32) -> TaskId {
        TaskId { job: JobId(1), index }
    }

    fn in_parts(index: u32) -> AssignmentInParts {
        let item = TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() };
        AssignmentInParts::new(task(index), 0, item, false)
    }

    fn input(name: &str) -> AssignedInput {
        let version = Version::Modified { mtime_ns: 1, size_bytes: 1 };
        let object = ObjectSpec {
            source: format!("file:///{name}").into(),
            version,
            mode: FileMode::READABLE,
        };
        AssignedInput { object, part: None, name: None, holders: Vec::new() }
    }

    fn part(inputs: Vec<AssignedInput>, is_last: bool) -> AssignmentPart {
        AssignmentPart { template: None, places: Vec::new(), inputs, is_last }
    }

    fn assigned(index: u32, inputs: Vec<AssignedInput>) -> ToExecutor {
        let (task, attempt, template, values) = (task(index), 0, 0, Vec::new());
        ToExecutor::Assign(Assignment { task, attempt, template, values, inputs })
    }

    #[test]
    fn only_what_concerns_no_waiting_task_overtakes_an_assignment_in_parts() {
        let mut outgoing = OutgoingMessages::default();
        let [recall, cancel] =
            [ToExecutor::Recall { task: task(1) }, ToExecutor::Cancel { task: task(2) }];
        let of_others = [ToExecutor::Cancel { task: task(3) }, ToExecutor::Heard];
        outgoing.put_in_parts(in_parts(1));
        outgoing.put(recall.clone());
        outgoing.put_in_parts(in_parts(2));
        outgoing.put(cancel.clone());
        of_others.iter().for_each(|message| outgoing.put(message.clone()));
        assert_eq!(outgoing.take(), of_others);
        outgoing.put_part(None, part(vec![input("a"), input("b")], false));
        assert_eq!(outgoing.take(), [ToExecutor::Inputs(vec![input("a"), input("b")])]);
        assert_eq!(outgoing.in_parts().map(|next| (next.task, next.sent)), Some((task(1), 2)));
        outgoing.put_part(None, part(vec![input("c")], true));
        assert_eq!(outgoing.take(), [assigned(1, vec![input("c")]), recall]);
        assert_eq!(outgoing.in_parts().map(|next| (next.task, next.sent)), Some((task(2), 0)));
        outgoing.put_part(None, part(Vec::new(), true));
        assert_eq!(outgoing.take(), [assigned(2, Vec::new()), cancel]);
        assert!(outgoing.in_parts().is_none() && outgoing.is_nothing_ready());
        outgoing.put_in_parts(in_parts(3));
        outgoing.put(ToExecutor::Recall { task: task(3) });
        outgoing.put(ToExecutor::Stop);
        assert_eq!(outgoing.take(), [ToExecutor::Stop]);
        assert!(outgoing.in_parts().is_none());
    }

    #[test]
    fn an_assignment_of_which_nothing_was_sent_is_taken_back() {
        let mut outgoing = OutgoingMessages::default();
        let new = |index, needs_template| AssignmentInParts { needs_template, ..in_parts(index) };
        outgoing.put_in_parts(new(1, true));
        outgoing.put_in_parts(new(2, false));
        outgoing.put(ToExecutor::Recall { task: task(2) });
        assert_eq!(outgoing.withdraw(task(3)), None);
        let withdrawn = |unsent_template| Some(WithdrawnAssignment { attempt: 0, unsent_template });
        assert_eq!(outgoing.withdraw(task(1)), withdrawn(None));
        assert!(
            outgoing.in_parts().is_some_and(|next| next.task == task(2) && next.needs_template)
        );
        outgoing.put_part(None, part(vec![input("a")], false));
        assert_eq!(outgoing.withdraw(task(2)), None, "a part of it was sent");
        outgoing.put_part(None, part(Vec::new(), true));
        outgoing.put_in_parts(new(4, true));
        outgoing.take();
        assert_eq!(outgoing.withdraw(task(4)), withdrawn(Some((JobId(1), 0))));
        // Another assignment needs the template, and has none of its own.
        outgoing.put_in_parts(new(5, true));
        outgoing.put(assigned(6, Vec::new()));
        assert_eq!(outgoing.withdraw(task(5)), None);
        outgoing.put_part(None, part(Vec::new(), true));
        assert_eq!(outgoing.take(), [assigned(5, Vec::new()), assigned(6, Vec::new())]);
        // What waited behind it is ready.
        outgoing.put_in_parts(new(7, false));
        outgoing.put(assigned(8, Vec::new()));
        assert_eq!(outgoing.withdraw(task(7)), withdrawn(None));
        assert_eq!(outgoing.take(), [assigned(8, Vec::new())]);
        assert!(outgoing.in_parts().is_none());
    }
}
