//! Traces: real jobs as they were recorded, and run again in a simulated cluster.
//!
//! A trace is a text: a heading with its version, then a task a line, each of them JSON. `eyas report JOB --trace` writes
//! one from what the dispatcher knows of a job; as a [`Workload`], its tasks come when they came, read what they read and
//! compute as long as they ran.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use eyas_types::ObjectId;
use serde::{Deserialize, Serialize};

use crate::arrival::{Arrival, Objects};
use crate::clock::MAX_TIME_US;
use crate::file::FileError;
use crate::run::MAX_TASKS;
use crate::workload::Workload;

/// The version of traces that are written and read. Another one is refused.
pub const VERSION: u32 = 1;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heading {
    /// [`VERSION`].
    pub eyas_trace: u32,
    /// The job's name.
    pub name: String,
}

/// Any other line: a task that ended. Times are microseconds from the job's submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracedTask {
    /// When it came into the queue.
    pub at_us: u64,
    /// When its process started.
    pub started_us: u64,
    /// When the dispatcher knew of its end.
    pub ended_us: u64,
    /// How long it ran, reading its inputs and delivering its outputs included; without what it was suspended for.
    pub ran_us: u64,
    /// Its processor time.
    pub cpu_us: u64,
    /// What it read, with sizes in bytes.
    pub inputs: Vec<(ObjectId, u64)>,
}

/// What counts as computing when a trace is run again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compute {
    /// All the time that a task ran.
    #[default]
    Ran,
    /// Its processor time: of tasks that read more than they compute, what is left when the simulator adds their reads.
    Cpu,
}

/// A trace as a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    sizes: Vec<u64>,
    tasks: Vec<Arrival>,
}

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// Why it cannot be read, or what is wrong and in which line.
    pub fn read(path: &Path, compute: Compute) -> Result<Trace, FileError> {
        let file = File::open(path).map_err(|e| FileError::unreadable(path, e))?;
        Trace::parse(BufReader::new(file), compute).map_err(|wrong| FileError::wrong(path, wrong))
    }

    fn parse(text: impl BufRead, compute: Compute) -> Result<Trace, (usize, String)> {
        let mut lines = text.lines().zip(1..).map(|(line, number)| match line {
            Ok(line) => Ok((number, line)),
            Err(e) => Err((number, format!("cannot be read: {e}"))),
        });
        check_heading(&lines.next().transpose()?.unwrap_or_default().1).map_err(|why| (1, why))?;
        let mut trace = Trace { sizes: Vec::new(), tasks: Vec::new() };
        let mut numbers = HashMap::new();
        for line in lines {
            let (number, line) = line?;
            if line.trim().is_empty() {
                continue;
            }
            let task: TracedTask = serde_json::from_str(&line).map_err(|e| (number, format!("not a task: {e}")))?;
            trace.add(task, compute, &mut numbers).map_err(|why| (number, why))?;
        }
        if trace.tasks.is_empty() {
            return Err((1, "the trace has no tasks: none had ended when it was written".into()));
        }
        trace.tasks.sort_by_key(|task| task.at_us);
        Ok(trace)
    }

    fn add(&mut self, task: TracedTask, compute: Compute, numbers: &mut HashMap<ObjectId, u32>) -> Result<(), String> {
        let mut inputs = Objects::new();
        for (id, size_bytes) in task.inputs {
            let next = self.sizes.len() as u32;
            let object = *numbers.entry(id).or_insert(next);
            if object == next {
                self.sizes.push(size_bytes);
            }
            let known_bytes = self.sizes[object as usize];
            if known_bytes != size_bytes {
                return Err(format!("object {id} has {size_bytes} bytes here and {known_bytes} before"));
            }
            if !inputs.contains(&object) {
                inputs.push(object);
            }
        }
        let compute_us = match compute {
            Compute::Ran => task.ran_us,
            Compute::Cpu => task.cpu_us,
        };
        if task.at_us.max(compute_us) > MAX_TIME_US {
            return Err("the task comes or runs later than a hundred years".into());
        }
        if self.tasks.len() >= MAX_TASKS as usize {
            return Err(format!("there are more than {MAX_TASKS} tasks"));
        }
        self.tasks.push(Arrival { at_us: task.at_us, inputs, compute_us, ..Arrival::default() });
        Ok(())
    }
}

fn check_heading(line: &str) -> Result<(), String> {
    let heading: Heading = serde_json::from_str(line)
        .map_err(|_| "this is not a trace: `eyas report JOB --trace FILE` writes one".to_owned())?;
    match heading.eyas_trace {
        VERSION => Ok(()),
        other => Err(format!(
            "this is a trace of version {other}, and only version {VERSION} is read: write it again with this eyas"
        )),
    }
}

impl Workload for Trace {
    fn objects(&self) -> u32 {
        self.sizes.len() as u32
    }

    fn object_bytes(&self) -> u64 {
        self.data_bytes().checked_div(self.sizes.len() as u64).unwrap_or(0)
    }

    fn size_bytes(&self, object: u32) -> u64 {
        self.sizes[object as usize]
    }

    fn tasks(&self) -> u64 {
        self.tasks.len() as u64
    }

    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_> {
        Box::new(self.tasks.iter().cloned())
    }

    fn data_bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = r#"{"eyas_trace":1,"name":"survey"}"#;

    fn id(of: u8) -> ObjectId {
        ObjectId([of; 16])
    }

    fn line(at_us: u64, inputs: &[(ObjectId, u64)]) -> String {
        let (started_us, ended_us, inputs) = (at_us + 1, at_us + 9, inputs.to_vec());
        let task = TracedTask { at_us, started_us, ended_us, ran_us: 7, cpu_us: 5, inputs };
        serde_json::to_string(&task).expect("a task becomes JSON")
    }

    fn parse(lines: &[&str], compute: Compute) -> Result<Trace, (usize, String)> {
        Trace::parse(lines.join("\n").as_bytes(), compute)
    }

    #[test]
    fn tasks_come_when_they_came_and_read_what_they_read() {
        let (late, early) = (line(30, &[(id(1), 100), (id(2), 50)]), line(10, &[(id(2), 50), (id(2), 50)]));
        let trace = parse(&[HEADING, &late, "", &early], Compute::Ran).unwrap();
        assert_eq!((trace.objects(), trace.data_bytes(), trace.tasks()), (2, 150, 2));
        assert_eq!((trace.size_bytes(0), trace.size_bytes(1), trace.object_bytes()), (100, 50, 75));
        let tasks: Vec<_> = trace.arrivals().map(|task| (task.at_us, task.inputs.to_vec(), task.compute_us)).collect();
        assert_eq!(tasks, [(10, vec![1], 7), (30, vec![0, 1], 7)]);
        let cpu = parse(&[HEADING, &late], Compute::Cpu).unwrap();
        assert_eq!(cpu.arrivals().next().unwrap().compute_us, 5);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        let (one, other) = (line(0, &[(id(1), 100)]), line(0, &[(id(1), 101)]));
        let cases: [(&[&str], usize, &str); 7] = [
            (&[], 1, "not a trace"),
            (&["at_us,inputs"], 1, "not a trace"),
            (&[r#"{"eyas_trace":2,"name":"x"}"#, "whatever version 2 has"], 1, "version 2"),
            (&[HEADING], 1, "no tasks"),
            (&[HEADING, &one, "{}"], 3, "not a task"),
            (&[HEADING, &one, &other], 3, "101 bytes here and 100 before"),
            (&[HEADING, &line(u64::MAX - 9, &[])], 2, "hundred years"),
        ];
        for (lines, number, why) in cases {
            let error = parse(lines, Compute::Ran).unwrap_err();
            assert_eq!(error.0, number, "{error:?}");
            assert!(error.1.contains(why), "{error:?}");
        }
        let error = Trace::read(Path::new("/nowhere/job.jsonl"), Compute::Ran).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/job.jsonl cannot be read: "), "{error}");
    }
}
