//! Traces: recorded jobs that run again in a simulated cluster.
//!
//! A trace is a text file: a heading with its version, then one task per line, all of them JSON.
//! `eyas report JOB --trace` writes one from the dispatcher's records of a job. As a [`Workload`],
//! its tasks arrive when they arrived, read the same inputs and compute as long as they ran.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use eyas_types::ObjectId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::arrival::{Arrival, Objects};
use crate::clock::MAX_TIME_US;
use crate::file::FileError;
use crate::run::MAX_TASKS;
use crate::workload::{KeepRule, Workload};

/// The version of traces that is written and read. Other versions are refused.
pub const VERSION: u32 = 1;

/// The first line of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heading {
    /// Version of the trace: [`VERSION`].
    pub eyas_trace: u32,
    /// Name of the job.
    pub name: String,
}

/// Any other line: a task that ended. Times are microseconds since the job was submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracedTask {
    /// Time at which the task was queued.
    pub at_us: u64,
    /// Time at which the process started.
    pub started_us: u64,
    /// Time at which the dispatcher learned of the end.
    pub ended_us: u64,
    /// Run time in microseconds, with reading inputs and delivering outputs, without suspensions.
    pub ran_us: u64,
    /// Processor time in microseconds.
    pub cpu_us: u64,
    /// Inputs, with sizes in bytes.
    pub inputs: Vec<(ObjectId, u64)>,
    /// Outputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<TracedOutput>,
}

/// An object that a task wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracedOutput {
    /// Id of the object.
    pub object: ObjectId,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Number of nodes that kept a replica; 0 if it was written to persistent storage.
    #[serde(default)]
    pub kept: u8,
    /// Whether nodes kept it only until all tasks that read it had succeeded.
    #[serde(default)]
    pub until_read: bool,
}

/// Which recorded time becomes computing time when a trace runs again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compute {
    /// The whole run time.
    #[default]
    Ran,
    /// The processor time. For tasks that read more than they compute, the simulator adds the time
    /// of reading.
    Cpu,
}

/// A mistake in a line of a trace. The message says how to correct it.
#[derive(Debug, Error)]
pub enum TraceMistake {
    /// The line cannot be read, or is not UTF-8.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// The first line is not the heading of a trace.
    #[error("this is not a trace: `eyas report JOB --trace FILE` writes one")]
    NotATrace,
    /// The trace has another version.
    #[error(
        "the trace has version {0}, and this eyas reads only version {VERSION}: write the trace \
         again with it"
    )]
    Version(u32),
    /// The line is not a task.
    #[error("not a task: {0}")]
    NotATask(serde_json::Error),
    /// No task of the job had ended.
    #[error("the trace has no tasks: no task of the job had ended when it was written")]
    NoTasks,
    /// The trace has more tasks than a run can have.
    #[error("the trace has more than {MAX_TASKS} tasks")]
    TooManyTasks,
    /// An object has different sizes on different lines.
    #[error("object {id} has {size_bytes} bytes on this line and {known_bytes} on an earlier one")]
    OtherSize {
        /// Id of the object.
        id: ObjectId,
        /// Size on this line, in bytes.
        size_bytes: u64,
        /// Size on an earlier line, in bytes.
        known_bytes: u64,
    },
    /// A task was queued before the task that writes its input.
    #[error("the task was queued before the task that writes its input, object {0}")]
    ReadBeforeWritten(ObjectId),
    /// A task was queued too late, or ran too long, for simulated time.
    #[error("the task was queued after a hundred years, or ran for longer")]
    TooLong,
}

/// A trace that was read, as a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    sizes: Vec<u64>,
    /// Number of objects that existed before the job. Outputs of its tasks have higher numbers.
    objects: u32,
    /// How each output is kept, by its number counted from `objects`.
    keep: Vec<Option<KeepRule>>,
    tasks: Vec<Arrival>,
}

/// A trace while it is read.
#[derive(Default)]
struct Reader {
    /// Numbers of the objects that tasks read or wrote.
    numbers: HashMap<ObjectId, u32>,
    sizes: Vec<u64>,
    /// Tasks with their line numbers.
    tasks: Vec<(usize, TracedTask)>,
}

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// If the file cannot be read, or a line of it is wrong.
    pub fn read(path: &Path, compute: Compute) -> Result<Trace, FileError<TraceMistake>> {
        let file = File::open(path).map_err(|e| FileError::unreadable(path, e))?;
        Trace::parse(BufReader::new(file), compute).map_err(|wrong| FileError::wrong(path, wrong))
    }

    fn parse(text: impl BufRead, compute: Compute) -> Result<Trace, (usize, TraceMistake)> {
        let mut lines = text.lines().zip(1..).map(|(line, number)| match line {
            Ok(line) => Ok((number, line)),
            Err(e) => Err((number, TraceMistake::Unreadable(e))),
        });
        check_heading(&lines.next().transpose()?.unwrap_or_default().1).map_err(|why| (1, why))?;
        let mut reader = Reader::default();
        for line in lines {
            let (number, line) = line?;
            if line.trim().is_empty() {
                continue;
            }
            let task: TracedTask =
                serde_json::from_str(&line).map_err(|e| (number, TraceMistake::NotATask(e)))?;
            if reader.tasks.len() >= MAX_TASKS as usize {
                return Err((number, TraceMistake::TooManyTasks));
            }
            reader.tasks.push((number, task));
        }
        if reader.tasks.is_empty() {
            return Err((1, TraceMistake::NoTasks));
        }
        reader.trace(compute)
    }
}

impl Reader {
    /// The whole trace, or its first mistake.
    fn trace(mut self, compute: Compute) -> Result<Trace, (usize, TraceMistake)> {
        let mut tasks = std::mem::take(&mut self.tasks);
        let outputs = tasks.iter().flat_map(|(_, task)| &task.outputs).map(|output| output.object);
        let written: HashSet<ObjectId> = outputs.collect();
        for (line, task) in &tasks {
            for (id, size_bytes) in task.inputs.iter().filter(|(id, _)| !written.contains(id)) {
                self.number(*id, *size_bytes).map_err(|why| (*line, why))?;
            }
        }
        let (objects, mut keep) = (self.sizes.len() as u32, Vec::new());
        tasks.sort_by_key(|(_, task)| task.at_us);
        let mut arrivals: Vec<Arrival> = Vec::with_capacity(tasks.len());
        let mut came: HashMap<u32, u64> = HashMap::new();
        for (line, task) in tasks {
            let arrival =
                self.arrival(task, compute, &mut keep, &mut came).map_err(|why| (line, why))?;
            arrivals.push(arrival);
        }
        // Tasks that waited for others arrive together with them. The writer of an object stays
        // before its readers.
        arrivals.sort_by_key(|task| task.at_us);
        Ok(Trace { sizes: self.sizes, objects, keep, tasks: arrivals })
    }

    /// The number of an object, whose size must be the same on every line.
    fn number(&mut self, id: ObjectId, size_bytes: u64) -> Result<u32, TraceMistake> {
        let next = self.sizes.len() as u32;
        let object = *self.numbers.entry(id).or_insert(next);
        if object == next {
            self.sizes.push(size_bytes);
        }
        let known_bytes = self.sizes[object as usize];
        if known_bytes == size_bytes {
            Ok(object)
        } else {
            Err(TraceMistake::OtherSize { id, size_bytes, known_bytes })
        }
    }

    /// The task of a line. All tasks that were queued earlier have been converted. `came` has the
    /// arrival time of the writer of each object.
    fn arrival(
        &mut self,
        task: TracedTask,
        compute: Compute,
        keep: &mut Vec<Option<KeepRule>>,
        came: &mut HashMap<u32, u64>,
    ) -> Result<Arrival, TraceMistake> {
        let (mut inputs, mut outputs) = (Objects::new(), Objects::new());
        let mut waited_for = None;
        for (id, size_bytes) in task.inputs {
            if !self.numbers.contains_key(&id) {
                return Err(TraceMistake::ReadBeforeWritten(id));
            }
            let object = self.number(id, size_bytes)?;
            waited_for = waited_for.max(came.get(&object).copied());
            if !inputs.contains(&object) {
                inputs.push(object);
            }
        }
        // The simulator decides again when the inputs are ready.
        let at_us = waited_for.unwrap_or(task.at_us);
        for TracedOutput { object, size_bytes, kept, until_read } in task.outputs {
            let is_new = !self.numbers.contains_key(&object);
            let object = self.number(object, size_bytes)?;
            if is_new {
                keep.push((kept > 0).then_some(KeepRule { replicas: kept, until_read }));
                came.insert(object, at_us);
                outputs.push(object);
            }
        }
        let compute_us = match compute {
            Compute::Ran => task.ran_us,
            Compute::Cpu => task.cpu_us,
        };
        if at_us.max(compute_us) > MAX_TIME_US {
            return Err(TraceMistake::TooLong);
        }
        Ok(Arrival { at_us, inputs, compute_us, outputs })
    }
}

fn check_heading(line: &str) -> Result<(), TraceMistake> {
    let heading: Heading = serde_json::from_str(line).map_err(|_| TraceMistake::NotATrace)?;
    match heading.eyas_trace {
        VERSION => Ok(()),
        other => Err(TraceMistake::Version(other)),
    }
}

impl Workload for Trace {
    fn objects(&self) -> u32 {
        self.objects
    }

    fn keep(&self, object: u32) -> Option<KeepRule> {
        self.keep[(object - self.objects) as usize]
    }

    fn object_bytes(&self) -> u64 {
        self.data_bytes().checked_div(self.objects.into()).unwrap_or(0)
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
        self.sizes[..self.objects as usize].iter().sum()
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
        let task = TracedTask {
            at_us,
            started_us,
            ended_us,
            ran_us: 7,
            cpu_us: 5,
            inputs,
            outputs: Vec::new(),
        };
        serde_json::to_string(&task).expect("a task becomes JSON")
    }

    fn parse(lines: &[&str], compute: Compute) -> Result<Trace, (usize, TraceMistake)> {
        Trace::parse(lines.join("\n").as_bytes(), compute)
    }

    #[test]
    fn tasks_come_when_they_came_and_read_what_they_read() {
        let (late, early) =
            (line(30, &[(id(1), 100), (id(2), 50)]), line(10, &[(id(2), 50), (id(2), 50)]));
        let trace = parse(&[HEADING, &late, "", &early], Compute::Ran).unwrap();
        assert_eq!((trace.objects(), trace.data_bytes(), trace.tasks()), (2, 150, 2));
        assert_eq!((trace.size_bytes(0), trace.size_bytes(1), trace.object_bytes()), (100, 50, 75));
        let tasks: Vec<_> = trace
            .arrivals()
            .map(|task| (task.at_us, task.inputs.to_vec(), task.compute_us))
            .collect();
        assert_eq!(tasks, [(10, vec![1], 7), (30, vec![0, 1], 7)]);
        let cpu = parse(&[HEADING, &late], Compute::Cpu).unwrap();
        assert_eq!(cpu.arrivals().next().unwrap().compute_us, 5);
    }

    #[test]
    fn readers_wait_for_the_tasks_that_write_their_inputs() {
        let write =
            r#"{"at_us":5,"started_us":6,"ended_us":9,"ran_us":3,"cpu_us":3,"inputs":[],OUTPUTS}"#;
        let outputs = format!(r#""outputs":[{{"object":"{}","size_bytes":7,"kept":2}}]"#, id(9));
        let write = write.replace("OUTPUTS", &outputs);
        let read = line(40, &[(id(9), 7), (id(1), 100)]);
        let trace = parse(&[HEADING, &read, &write], Compute::Ran).unwrap();
        assert_eq!((trace.objects(), trace.data_bytes(), trace.size_bytes(1)), (1, 100, 7));
        assert_eq!(trace.keep(1), Some(KeepRule { replicas: 2, until_read: false }));
        let tasks: Vec<_> = trace
            .arrivals()
            .map(|task| (task.at_us, task.inputs.to_vec(), task.outputs.to_vec()))
            .collect();
        assert_eq!(
            tasks,
            [(5, vec![], vec![1]), (5, vec![1, 0], vec![])],
            "it arrives with the writer"
        );
        let early = line(1, &[(id(9), 7)]);
        let (number, why) = parse(&[HEADING, &write, &early], Compute::Ran).unwrap_err();
        assert!(
            number == 3 && why.to_string().contains("queued before the task that writes"),
            "{why}"
        );
    }

    #[test]
    fn invalid_traces_are_refused_with_the_line() {
        let (one, other) = (line(0, &[(id(1), 100)]), line(0, &[(id(1), 101)]));
        let cases: [(&[&str], usize, &str); 7] = [
            (&[], 1, "not a trace"),
            (&["at_us,inputs"], 1, "not a trace"),
            (&[r#"{"eyas_trace":2,"name":"x"}"#, "whatever version 2 has"], 1, "version 2"),
            (&[HEADING], 1, "no tasks"),
            (&[HEADING, &one, "{}"], 3, "not a task"),
            (&[HEADING, &one, &other], 3, "101 bytes on this line and 100"),
            (&[HEADING, &line(u64::MAX - 9, &[])], 2, "hundred years"),
        ];
        for (lines, number, why) in cases {
            let error = parse(lines, Compute::Ran).unwrap_err();
            assert_eq!(error.0, number, "{error:?}");
            assert!(error.1.to_string().contains(why), "{error:?}");
        }
        let error =
            Trace::read(Path::new("/nowhere/job.jsonl"), Compute::Ran).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/job.jsonl cannot be read: "), "{error}");
    }
}
