//! Clients that follow a running task.

use eyas_wire::printed::{MINOR_OF_PRINTED, Printed, PrintedPiece, PrintedPosition};

use super::*;
use crate::printed::PrintedNow;

impl Dispatcher {
    fn printed(&mut self, task: TaskId) -> Answer<PrintedNow> {
        let from = PrintedPosition { stdout_bytes: 3, ..PrintedPosition::default() };
        let now = self.core.read_printed(task, from);
        self.core.executors.flush();
        now
    }

    /// The number of the question that an executor was asked about a task.
    fn question(&mut self, task: TaskId) -> u64 {
        match &self.sent()[..] {
            [.., ToExecutor::ReadPrinted { question, task: about, from }] => {
                assert_eq!((*about, from.stdout_bytes), (task, 3));
                *question
            }
            others => panic!("it was not asked: {others:?}"),
        }
    }
}

#[tokio::test]
async fn the_executor_of_a_running_task_is_asked_and_what_else_there_is_is_said() {
    let mut dispatcher = Dispatcher::start();
    let task = task(dispatcher.submit(1), 0);
    let Ok(PrintedNow::Known(Printed::Waiting { why })) = dispatcher.printed(task) else {
        panic!("no executor has joined")
    };
    assert!(why.contains("no executor has joined"), "{why}");
    let executor = dispatcher.join(1);
    let name = || "n".to_owned();
    for piece in [None, Some(PrintedPiece { stdout: b"out".into(), ..PrintedPiece::default() })] {
        let now = dispatcher.printed(task).unwrap();
        let question = dispatcher.question(task);
        let answer = FromExecutor::Printed { question, piece: piece.clone().map(Box::new) };
        dispatcher.core.handle(CoreMessage::Messages { executor, messages: vec![answer] });
        let expected = match piece {
            Some(piece) => Printed::Running { executor: name(), is_suspended: false, piece },
            None => Printed::NotRunning { executor: name() },
        };
        assert_eq!(now.settled().await, expected);
    }
    let now = dispatcher.printed(task).unwrap();
    dispatcher.core.handle(CoreMessage::Gone { executor });
    assert_eq!(now.settled().await, Printed::Silent { executor: name() });
    let executor = dispatcher.join(1);
    dispatcher.end(executor, task, Outcome::of(Status::Succeeded));
    let ended = dispatcher.printed(task).unwrap().settled().await;
    assert_eq!(ended, Printed::Ended);
}

#[tokio::test]
async fn calls_of_workers_and_tasks_of_earlier_executors_are_not_followed() {
    let mut dispatcher = Dispatcher::start();
    let call = Program::Call(vec![Template::literal("worker")]);
    let mut spec = JobSpec { templates: vec![TaskTemplate::new(call)], ..JobSpec::default() };
    spec.push(&[TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() }]).unwrap();
    let call = task(dispatcher.submit_spec(spec), 0);
    assert!(matches!(dispatcher.printed(call), Err(ServiceError::IsCall(_))));
    let task = task(dispatcher.submit(1), 0);
    dispatcher.minor = MINOR_OF_PRINTED - 1;
    dispatcher.join(2);
    assert!(
        matches!(dispatcher.printed(task), Err(ServiceError::EarlierExecutor(name)) if name == "n")
    );
    let none = TaskId { index: 7, ..task };
    assert!(matches!(dispatcher.printed(none), Err(ServiceError::NoSuchTask { .. })));
}
