//! Traces: real jobs as they were recorded, and run again in a simulated cluster.
//!
//! A trace is a text: a heading with its version, then a task a line, each of them JSON. `eyas report JOB --trace` writes
//! one from what the dispatcher knows of a job; as a [`Workload`], its tasks come when they came, read what they read and
//! compute as long as they ran.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use eyas_types::ObjectId;
use serde::{Deserialize, Serialize};

use crate::arrival::{Arrival, Objects};
use crate::clock::MAX_TIME_US;
use crate::file::FileError;
use crate::run::MAX_TASKS;
use crate::workload::{KeepRule, Workload};

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
    /// What it wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<TracedOutput>,
}

/// An object that a task wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracedOutput {
    /// The object.
    pub object: ObjectId,
    /// Its size.
    pub size_bytes: u64,
    /// How many nodes kept a replica; none if it was written to persistent storage.
    #[serde(default)]
    pub kept: u8,
    /// Nodes kept it only until all tasks that read it had succeeded.
    #[serde(default)]
    pub until_read: bool,
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
    /// Objects that existed before the job; what its tasks wrote follows.
    objects: u32,
    /// How each object is kept that a task wrote.
    keep: Vec<Option<KeepRule>>,
    tasks: Vec<Arrival>,
}

/// A trace as far as it is read.
#[derive(Default)]
struct Reader {
    /// Numbers of the objects that were read or written.
    numbers: HashMap<ObjectId, u32>,
    sizes: Vec<u64>,
    /// Tasks, with their lines.
    tasks: Vec<(usize, TracedTask)>,
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
        let mut reader = Reader::default();
        for line in lines {
            let (number, line) = line?;
            if line.trim().is_empty() {
                continue;
            }
            let task: TracedTask = serde_json::from_str(&line).map_err(|e| (number, format!("not a task: {e}")))?;
            if reader.tasks.len() >= MAX_TASKS as usize {
                return Err((number, format!("there are more than {MAX_TASKS} tasks")));
            }
            reader.tasks.push((number, task));
        }
        if reader.tasks.is_empty() {
            return Err((1, "the trace has no tasks: none had ended when it was written".into()));
        }
        reader.trace(compute)
    }
}

impl Reader {
    /// The whole trace, if nothing is wrong with it: else what, and in which line.
    fn trace(mut self, compute: Compute) -> Result<Trace, (usize, String)> {
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
            let arrival = self.arrival(task, compute, &mut keep, &mut came).map_err(|why| (line, why))?;
            arrivals.push(arrival);
        }
        // Those that waited for others come with them. A writer stays before its readers.
        arrivals.sort_by_key(|task| task.at_us);
        Ok(Trace { sizes: self.sizes, objects, keep, tasks: arrivals })
    }

    /// The number of an object of that size.
    fn number(&mut self, id: ObjectId, size_bytes: u64) -> Result<u32, String> {
        let next = self.sizes.len() as u32;
        let object = *self.numbers.entry(id).or_insert(next);
        if object == next {
            self.sizes.push(size_bytes);
        }
        let known_bytes = self.sizes[object as usize];
        if known_bytes == size_bytes {
            Ok(object)
        } else {
            Err(format!("object {id} has {size_bytes} bytes here and {known_bytes} before"))
        }
    }

    /// A task, which comes after all that were read before. `came` has when the writer of each object came.
    fn arrival(
        &mut self,
        task: TracedTask,
        compute: Compute,
        keep: &mut Vec<Option<KeepRule>>,
        came: &mut HashMap<u32, u64>,
    ) -> Result<Arrival, String> {
        let (mut inputs, mut outputs) = (Objects::new(), Objects::new());
        let mut waited_for = None;
        for (id, size_bytes) in task.inputs {
            if !self.numbers.contains_key(&id) {
                return Err(format!("the task reads object {id} before the task that writes it comes"));
            }
            let object = self.number(id, size_bytes)?;
            waited_for = waited_for.max(came.get(&object).copied());
            if !inputs.contains(&object) {
                inputs.push(object);
            }
        }
        // When its inputs are there is decided again.
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
            return Err("the task comes or runs later than a hundred years".into());
        }
        Ok(Arrival { at_us, inputs, compute_us, outputs })
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
        let task = TracedTask { at_us, started_us, ended_us, ran_us: 7, cpu_us: 5, inputs, outputs: Vec::new() };
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
    fn what_tasks_wrote_others_wait_for() {
        let write = r#"{"at_us":5,"started_us":6,"ended_us":9,"ran_us":3,"cpu_us":3,"inputs":[],"outputs":[{"object":"ID","size_bytes":7,"kept":2}]}"#;
        let write = write.replace("ID", &id(9).to_string());
        let read = line(40, &[(id(9), 7), (id(1), 100)]);
        let trace = parse(&[HEADING, &read, &write], Compute::Ran).unwrap();
        assert_eq!((trace.objects(), trace.data_bytes(), trace.size_bytes(1)), (1, 100, 7));
        assert_eq!(trace.keep(1), Some(KeepRule { replicas: 2, until_read: false }));
        let tasks: Vec<_> =
            trace.arrivals().map(|task| (task.at_us, task.inputs.to_vec(), task.outputs.to_vec())).collect();
        assert_eq!(tasks, [(5, vec![], vec![1]), (5, vec![1, 0], vec![])], "it comes with the task that it waited for");
        let early = line(1, &[(id(9), 7)]);
        let (number, why) = parse(&[HEADING, &write, &early], Compute::Ran).unwrap_err();
        assert!(number == 3 && why.contains("before the task that writes it"), "{why}");
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
