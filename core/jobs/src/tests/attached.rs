//! Jobs that are attached to connections of clients.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;

use eyas_types::{Input, InputFrom, Program, TaskId, TaskItem, TaskTemplate, Value};

use super::{Step, World, apply};
use crate::{Event, Extension, Job, SpecError, TaskError};

/// Tasks that are added to an attached job. Each may read the output of one before it.
pub(super) fn extension(job: &Job, readers: &[u8], unneeded: &BTreeSet<TaskId>) -> Extension {
    let mut extension = Extension::default();
    if job.spec.templates.is_empty() {
        extension.templates = super::job(&[0], 1, false).templates.clone();
        extension.templates.push(TaskTemplate::new(Program::Noop));
        extension.compile(&|_, _| Ok(None)).expect("sound templates");
    }
    for reads in readers {
        // One in two keeps no output.
        let template = u16::from(reads % 2);
        let keeps = |task: u32| {
            (task as usize) < job.tasks.len()
                && job.spec.items.template(task) == 0
                && !unneeded.contains(&TaskId { job: job.id, index: task })
        };
        let task =
            (u32::from(*reads)).checked_rem(job.tasks.len() as u32).filter(|task| keeps(*task));
        let input = |task| Input { from: InputFrom::Output { task, output: 0 }, name: None };
        let values = vec![Value { text: "some content of a task".into(), input: None }];
        extension.items.push(TaskItem {
            template,
            values,
            inputs: task.map(input).into_iter().collect(),
        });
    }
    extension
}

#[test]
fn a_wrong_extension_is_refused_as_a_whole() {
    let mut world = World::new();
    apply(&mut world, Step::Attach);
    apply(&mut world, Step::Extend(0, vec![0, 1]));
    let id = *world.delivered.keys().next().expect("it is attached");
    let item = |template, inputs| TaskItem { template, values: vec![], inputs };
    let later = Input { from: InputFrom::Output { task: 4, output: 0 }, name: None };
    for (items, wrong) in [
        (
            vec![item(0, vec![]), item(7, vec![])],
            SpecError::Task { task: 3, source: TaskError::NoTemplate(7) },
        ),
        (vec![item(0, vec![later])], SpecError::Task { task: 2, source: TaskError::NoSuchTask(4) }),
    ] {
        let mut job = world.jobs.table.remove(id).expect("it is attached");
        let before = job.spec.clone();
        let mut extension = Extension::default();
        extension.items = items;
        let refused = job.extend(extension);
        assert_eq!(refused.expect_err("it is wrong"), wrong);
        assert_eq!((job.tasks.len(), &job.spec), (2, &before));
        world.jobs.table.insert(job);
    }
}

#[test]
fn content_of_ended_tasks_goes_and_that_of_others_stays() {
    let mut world = World::new();
    apply(&mut world, Step::Attach);
    // Of two tasks, the second keeps no output.
    (0..20).for_each(|_| apply(&mut world, Step::Extend(0, vec![0, 1])));
    world.join();
    let id = *world.delivered.keys().next().expect("it is attached");
    let values = |world: &World, index| {
        world.jobs.get(id).expect("it is attached").spec.items.get(index).values.len()
    };
    for _ in 0..30 {
        let task = world.executors.iter().find_map(|(by, has)| Some((*by, *has.tasks.last()?)));
        let (executor, task) = task.expect("tasks run");
        world.end(executor, task, 9);
        world.tell(Event::Deliver);
        world.validate();
    }
    let job = world.jobs.get(id).expect("it is attached");
    let has_ended = |index: &u32| job.tasks[*index as usize].phase.has_ended();
    let count = job.tasks.len() as u32;
    assert!(
        (0..count)
            .filter(|index| index % 2 == 0 || !has_ended(index))
            .all(|index| values(&world, index) == 1)
    );
    assert!(
        (0..count)
            .filter(|index| index % 2 == 1 && has_ended(index))
            .any(|index| values(&world, index) == 0)
    );
}

#[test]
fn unneeded_outputs_are_released_when_their_last_reader_has_ended() {
    let mut world = World::new();
    apply(&mut world, Step::Attach);
    let id = *world.delivered.keys().next().expect("it is attached");
    // The second task reads the output of the first, and keeps one, which the third reads. The
    // third keeps nothing.
    apply(&mut world, Step::Extend(0, vec![0]));
    for (template, reads) in [(0, 0), (1, 1)] {
        let mut extension = Extension::default();
        let input = Input { from: InputFrom::Output { task: reads, output: 0 }, name: None };
        extension.items.push(TaskItem { template, values: vec![], inputs: vec![input] });
        world.tell(Event::Extended { job: id, extension: Box::new(extension) });
    }
    world.join();
    let end = |world: &mut World, index| {
        let task = TaskId { job: id, index };
        let by =
            world.executors.iter().find(|(_, has)| has.tasks.contains(&task)).map(|(by, _)| *by);
        world.end(by.expect("the task runs"), task, 9);
        world.tell(Event::Deliver);
        world.validate();
    };
    let keeps = |world: &World, index| {
        world.jobs.get(id).is_some_and(|job| job.kept_by(index).next().is_some())
    };
    let unneeded = |world: &mut World, index| {
        world.tell(Event::Unneeded { job: id, tasks: vec![index] });
        world.validate();
    };
    end(&mut world, 0);
    unneeded(&mut world, 0);
    let first = world.jobs.get(id).and_then(|job| job.kept_by(0).next()).map(|(object, _)| object);
    let first = first.expect("the second task still reads it");
    assert!(world.kept.contains_key(&first));
    end(&mut world, 1);
    assert!(!world.kept.contains_key(&first), "all that read it have done so");
    assert!(
        keeps(&world, 0),
        "it may be made again for the second task, whose output the third needs"
    );
    end(&mut world, 2);
    unneeded(&mut world, 1);
    assert!(!keeps(&world, 0) && !keeps(&world, 1));
    assert!(world.kept.is_empty());
}
