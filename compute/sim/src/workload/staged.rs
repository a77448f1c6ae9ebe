//! A workload whose tasks write outputs and read outputs of earlier stages, with requests of the
//! client.

use super::{ClientRequests, Derivation, KeepRule, Workload};
use crate::arrival::{Arrival, Objects};

/// Another workload, whose tasks also write outputs. The tasks are divided into consecutive stages
/// of equal size; the last may be smaller. A task of a later stage also reads the first outputs of
/// some tasks of the stage before.
pub struct StagedWorkload<W> {
    /// The workload to extend.
    pub workload: W,
    /// Number of outputs of each task.
    pub outputs: u32,
    /// Size of each output in bytes.
    pub output_bytes: u64,
    /// How outputs are kept in the cluster; `None` if they are written to persistent storage.
    pub keep: Option<KeepRule>,
    /// Number of stages, at least 1.
    pub stages: u32,
    /// Number of tasks of the stage before whose output a task reads.
    pub reads: u32,
    /// Requests of the client in addition to the submission.
    pub requests: ClientRequests,
}

impl<W: Workload> StagedWorkload<W> {
    /// Number of tasks of each stage except the last.
    fn stage_tasks(&self) -> u32 {
        (self.workload.tasks() as u32).div_ceil(self.stages.max(1)).max(1)
    }
}

impl<W: Workload> Workload for StagedWorkload<W> {
    fn objects(&self) -> u32 {
        self.workload.objects()
    }

    fn derivation(&self) -> Option<Derivation> {
        self.workload.derivation()
    }

    fn object_bytes(&self) -> u64 {
        self.workload.object_bytes()
    }

    fn size_bytes(&self, object: u32) -> u64 {
        if object < self.objects() { self.workload.size_bytes(object) } else { self.output_bytes }
    }

    fn keep(&self, _object: u32) -> Option<KeepRule> {
        self.keep
    }

    fn requests(&self) -> ClientRequests {
        self.requests.clone()
    }

    fn tasks(&self) -> u64 {
        self.workload.tasks()
    }

    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_> {
        let (first, stage) = (self.objects(), self.stage_tasks());
        let outputs = self.outputs;
        let reads = if outputs == 0 { 0 } else { self.reads.min(stage) };
        Box::new(self.workload.arrivals().zip(0..).map(move |(mut task, number)| {
            if let Some(before) = (number / stage).checked_sub(1) {
                let producers =
                    (0..reads).map(|next| before * stage + (number % stage + next) % stage);
                task.inputs.extend(producers.map(|producer| first + producer * outputs));
            }
            let own = first + number * outputs;
            task.outputs = (own..own + outputs).collect::<Objects>();
            task
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Scan;

    #[test]
    fn tasks_of_a_stage_read_what_the_stage_before_writes() {
        let scan = Scan { objects: 5, rounds: 1, ..Scan::default() };
        let staged = StagedWorkload {
            workload: scan,
            outputs: 2,
            output_bytes: 7,
            keep: None,
            stages: 2,
            reads: 2,
            requests: ClientRequests::default(),
        };
        let tasks: Vec<_> =
            staged.arrivals().map(|task| (task.inputs.to_vec(), task.outputs.to_vec())).collect();
        // The first stage has three tasks, with the outputs 5 and 6, 7 and 8, 9 and 10.
        assert_eq!(tasks[2], (vec![2], vec![9, 10]));
        assert_eq!(tasks[3], (vec![3, 5, 7], vec![11, 12]));
        assert_eq!(tasks[4], (vec![4, 7, 9], vec![13, 14]));
        assert_eq!((staged.size_bytes(5), staged.size_bytes(4)), (7, Scan::default().object_bytes));
    }
}
