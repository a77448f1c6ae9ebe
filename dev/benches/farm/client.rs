//! Submits the tasks of an experiment when they arrive.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use eyas_session::{Access, dial};
use eyas_sim::arrival::Arrival;
use eyas_sim::paper::Experiment;
use eyas_types::{
    FileMode, Input, InputFrom, ObjectSpec, Program, TaskItem, TaskTemplate, Value, Version,
};
use eyas_wire::Role;
use tokio::time::sleep_until;

use super::submission::submit_objects;

/// Tasks that arrive within this time of each other are one job.
const TOGETHER_US: u64 = 250_000;

/// Submits each task when it arrives, with its number as the value of its item. Returns when all
/// are accepted.
pub fn submit_as_they_arrive(access: &Access, experiment: &Experiment) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut session = dial(access, Role::Client).await.expect("it listens");
        let (mut arrivals, mut first) = (experiment.workload.arrivals().peekable(), 0);
        let began = Instant::now();
        while let Some(at_us) = arrivals.peek().map(|next| next.at_us) {
            let is_together = |next: &Arrival| next.at_us / TOGETHER_US == at_us / TOGETHER_US;
            let tasks: Vec<Arrival> =
                std::iter::from_fn(|| arrivals.next_if(|next| is_together(next))).collect();
            let last_us = tasks.last().map_or(at_us, |last| last.at_us);
            sleep_until((began + Duration::from_micros(last_us)).into()).await;
            let (mut numbers, mut objects) = (HashMap::new(), Vec::new());
            for object in tasks.iter().flat_map(|task| &task.inputs) {
                numbers.entry(*object).or_insert_with(|| {
                    objects.push(file(*object, experiment.workload.size_bytes(*object)));
                    objects.len() as u32 - 1
                });
            }
            let item = |task: u32| {
                let input =
                    |object: &u32| Input { from: InputFrom::Object(numbers[object]), name: None };
                let inputs = tasks[task as usize].inputs.iter().map(input).collect();
                let number = Value { text: (first + task).to_string().into(), input: None };
                TaskItem { template: 0, values: vec![number], inputs }
            };
            let (template, count) = (TaskTemplate::new(Program::Noop), tasks.len() as u32);
            let name = experiment.name;
            submit_objects(&mut session, name, template, objects.into_iter(), count, item).await;
            first += count;
        }
    });
}

/// An object of a workload as a file of persistent storage.
pub fn file(object: u32, size_bytes: u64) -> ObjectSpec {
    let version = Version::Modified { mtime_ns: 1_600_000_000_000_000_000, size_bytes };
    let source = format!("file:///data/set/item-{object:05}").into();
    ObjectSpec { source, version, mode: FileMode::READABLE }
}
