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
        let inputs = (0..INPUTS)
            .map(|number| Input { from: InputFrom::Object(number), name: None })
            .collect();
        let templates = vec![TaskTemplate { inputs, ..TaskTemplate::new(Program::Noop) }];
        let objects = (0..INPUTS).map(object).collect();
        let mut spec = JobSpec { templates, objects, ..JobSpec::default() };
        spec.push(&vec![TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() }; tasks])
            .unwrap();
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
    dispatcher.core.change(job, |job| changes::cancel(job, Some(0))).unwrap();
    dispatcher.core.handle(CoreMessage::Messages {
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
                assert!(
                    objects == (0..INPUTS).map(object).collect::<Vec<_>>(),
                    "inputs of {task} lack, or are others"
                );
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

#[tokio::test]
async fn outputs_of_two_runs_of_a_task_are_not_mixed() {
    let mut dispatcher = Dispatcher::start();
    dispatcher.core.caching = true;
    // The wide task reads an output of the first task before all other inputs, and another one
    // behind them.
    let output = |output| Input { from: InputFrom::Output { task: 0, output }, name: None };
    let objects = (0..INPUTS).map(|number| Input { from: InputFrom::Object(number), name: None });
    let inputs = [output(0)].into_iter().chain(objects).chain([output(1)]).collect();
    let mut templates = [(); 3].map(|()| TaskTemplate::new(Program::Noop));
    templates[0].outputs = ["x", "y"]
        .map(|name| OutputSpec {
            pattern: Template::literal(name),
            destination: None,
            replicas: 1,
            until_read: false,
            optional: false,
            when: DeliverWhen::Success,
        })
        .into();
    templates[1].inputs = inputs;
    // No executor is large enough for the third, for which a lost output is made again.
    templates[2].resources.cpus_milli = 64_000;
    templates[2].inputs = vec![output(0)];
    let mut spec = JobSpec {
        templates: templates.into(),
        objects: (0..INPUTS).map(object).collect(),
        ..JobSpec::default()
    };
    spec.push(&[0, 1, 2].map(|template| TaskItem {
        template,
        values: Vec::new(),
        inputs: Vec::new(),
    }))
    .unwrap();
    let executor = dispatcher.join(2);
    let job = dispatcher.submit_spec(spec);
    let run_first = |dispatcher: &mut Dispatcher, content: &str| {
        let written = ["x", "y"]
            .map(|name| ObjectSpec::kept(task(job, 0), name, 7, content, FileMode::READABLE));
        written.iter().for_each(|object| dispatcher.store(executor, object));
        let delivered = |(object, output)| Delivered { output, object, place: None };
        let outputs = written.clone().into_iter().zip(0..).map(delivered).collect();
        dispatcher.end(executor, task(job, 0), Outcome { outputs, ..wrote(0) });
        dispatcher.settle();
        written
    };
    let before = run_first(&mut dispatcher, "first");
    dispatcher.core.do_part();
    assert_eq!(dispatcher.phases(job), [Phase::Succeeded, Phase::Assigned, Phase::Waiting]);
    let lost = FromExecutor::Evicted { object: before[0].id() };
    dispatcher.core.handle(CoreMessage::Messages { executor, messages: vec![lost] });
    assert_eq!(dispatcher.phases(job), [Phase::Assigned, Phase::Assigned, Phase::Blocked]);
    run_first(&mut dispatcher, "second");
    while dispatcher.core.has_parts() {
        dispatcher.core.do_part();
    }
    dispatcher.core.executors.flush();
    let mut inputs = Vec::new();
    for command in dispatcher.sent() {
        match command {
            ToExecutor::Inputs(part) => inputs.extend(part),
            ToExecutor::Assign(Assignment { task, inputs: last, .. }) if task.index == 1 => {
                inputs.extend(last)
            }
            _ => {}
        }
    }
    let read: Vec<_> = inputs.into_iter().map(|input| input.object).collect();
    assert_eq!(read.len(), INPUTS as usize + 2);
    assert_eq!([read.first(), read.last()], [Some(&before[0]), Some(&before[1])]);
}

/// What an executor was sent for a task, in order.
fn kinds(dispatcher: &mut Dispatcher) -> Vec<String> {
    let kind = |command| match command {
        ToExecutor::Token { .. } => Some("token".into()),
        ToExecutor::Template { .. } => Some("template".into()),
        ToExecutor::Assign(Assignment { task, .. }) => Some(format!("assign {}", task.index)),
        ToExecutor::Cancel { .. } => Some("cancel".into()),
        _ => None,
    };
    dispatcher.sent().into_iter().filter_map(kind).collect()
}

#[tokio::test]
async fn a_cancelled_task_of_which_nothing_was_sent_is_not_sent() {
    let mut dispatcher = Dispatcher::start();
    dispatcher.core.executors.give_tokens(dispatcher.handle.keys.clone());
    dispatcher.join(2);
    let job = dispatcher.submit_wide(2);
    assert_eq!(dispatcher.phases(job), [Phase::Assigned; 2]);
    dispatcher.core.change(job, |job| changes::cancel(job, Some(0))).unwrap();
    assert_eq!(dispatcher.phases(job), [Phase::Cancelled, Phase::Assigned]);
    let mut turns = 0;
    while dispatcher.core.has_parts() {
        dispatcher.core.do_part();
        turns += 1;
    }
    dispatcher.core.executors.flush();
    assert_eq!(kinds(&mut dispatcher), ["token", "template", "assign 1"]);
    assert!(turns <= (INPUTS as usize).div_ceil(INPUTS_PART) + 1, "{turns} turns");
    // A template that was to go before a task that was not sent goes before the next one.
    let job = dispatcher.submit_wide(1);
    dispatcher.cancel(job, None);
    assert_eq!(dispatcher.phases(job), [Phase::Cancelled]);
    assert_eq!(dispatcher.retry(job), 1);
    while dispatcher.core.has_parts() {
        dispatcher.core.do_part();
    }
    dispatcher.core.executors.flush();
    assert_eq!(kinds(&mut dispatcher), ["token", "template", "assign 0"]);
}
