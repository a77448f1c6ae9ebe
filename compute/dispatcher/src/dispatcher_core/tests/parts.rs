//! Tasks with so many inputs that they are sent in parts.

use eyas_wire::executor::{Assignment, INPUTS_PART};

use super::*;

const INPUTS: u32 = 20_000;

fn object(number: u32) -> ObjectSpec {
    let version = Version::Modified { mtime_ns: 1, size_bytes: 10 };
    ObjectSpec { source: format!("file:///in/{number}").into(), version, mode: FileMode::READABLE }
}

impl Dispatcher {
    /// Submits tasks that read the same inputs.
    fn submit_wide(&mut self, tasks: usize) -> JobId {
        let inputs = (0..INPUTS).map(|number| Input { from: InputFrom::Object(number), name: None }).collect();
        let templates = vec![TaskTemplate { inputs, ..TaskTemplate::new(Program::Noop) }];
        let objects = (0..INPUTS).map(object).collect();
        let mut spec = JobSpec { templates, objects, ..JobSpec::default() };
        spec.push(&vec![TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() }; tasks]).unwrap();
        self.submit_spec(spec)
    }
}

#[tokio::test]
async fn all_inputs_come_in_order_and_nothing_about_the_task_before_them() {
    let mut dispatcher = Dispatcher::start();
    let id = dispatcher.join(2);
    let job = dispatcher.submit_wide(2);
    assert_eq!(dispatcher.phases(job), [Phase::Assigned; 2]);
    assert!(dispatcher.core.has_parts());
    dispatcher.core.do_part();
    dispatcher.core.cancel(job, Some(0)).unwrap();
    dispatcher.core.handle(CoreMessage::Said {
        executor: id,
        messages: vec![FromExecutor::Heartbeat { free_disk_bytes: 1 << 40 }],
    });
    let mut turns = 1;
    while dispatcher.core.has_parts() {
        dispatcher.core.do_part();
        turns += 1;
    }
    dispatcher.core.executors.flush();
    let (mut inputs, mut seen) = (Vec::new(), Vec::new());
    for command in dispatcher.sent() {
        match command {
            ToExecutor::Inputs(part) => {
                assert_eq!(part.len(), INPUTS_PART);
                inputs.extend(part);
            }
            ToExecutor::Assign(Assignment { task, inputs: last, .. }) => {
                inputs.extend(last);
                let objects: Vec<_> = inputs.drain(..).map(|input| input.object).collect();
                assert!(objects == (0..INPUTS).map(object).collect::<Vec<_>>(), "inputs of {task} lack, or are others");
                seen.push(format!("assign {}", task.index));
            }
            ToExecutor::Cancel { task } => seen.push(format!("cancel {}", task.index)),
            ToExecutor::Heard => seen.push("heard".into()),
            ToExecutor::Template { .. } => seen.push("template".into()),
            _ => {}
        }
    }
    assert_eq!(seen, ["template", "heard", "assign 0", "assign 1", "cancel 0"]);
    assert_eq!(turns, 2 * (INPUTS as usize).div_ceil(INPUTS_PART));
}

#[tokio::test]
async fn parts_end_with_the_executor_and_the_task_runs_elsewhere() {
    let mut dispatcher = Dispatcher::start();
    let first = dispatcher.join(1);
    let job = dispatcher.submit_wide(1);
    dispatcher.core.do_part();
    dispatcher.core.handle(CoreMessage::Gone { executor: first });
    assert_eq!(dispatcher.phases(job), [Phase::Waiting]);
    assert!(!dispatcher.core.has_parts());
    let second = dispatcher.join(1);
    while dispatcher.core.has_parts() {
        dispatcher.core.do_part();
    }
    let because = dispatcher.explain(task(job, 0)).because.join(" ");
    assert!(because.contains("It is placed by 10000 of the 20000 objects"), "{because}");
    dispatcher.end(second, task(job, 0), Outcome::of(Status::Succeeded));
    assert_eq!(dispatcher.phases(job), [Phase::Succeeded]);
}
