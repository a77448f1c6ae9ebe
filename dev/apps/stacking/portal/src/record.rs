//! A job, as it is kept on disk: what it stacks, how far it is, and what came of it.

use serde::{Deserialize, Serialize};

use crate::params::StackParams;

/// Phases of UWS that jobs of the portal have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Phase {
    Pending,
    Queued,
    Executing,
    Completed,
    Error,
    Aborted,
}

impl Phase {
    const ALL: [(Phase, &str); 6] = [
        (Phase::Pending, "PENDING"),
        (Phase::Queued, "QUEUED"),
        (Phase::Executing, "EXECUTING"),
        (Phase::Completed, "COMPLETED"),
        (Phase::Error, "ERROR"),
        (Phase::Aborted, "ABORTED"),
    ];

    /// The name in UWS.
    pub fn name(self) -> &'static str {
        Phase::ALL.iter().find(|(phase, _)| *phase == self).map_or("UNKNOWN", |(_, name)| name)
    }

    /// The phase of a name.
    pub fn named(name: &str) -> Option<Phase> {
        Phase::ALL.iter().find(|(_, known)| *known == name).map(|(phase, _)| *phase)
    }

    /// Whether the job may still change by itself.
    pub fn is_active(self) -> bool {
        matches!(self, Phase::Queued | Phase::Executing)
    }

    /// Whether the job has ended.
    pub fn is_over(self) -> bool {
        matches!(self, Phase::Completed | Phase::Error | Phase::Aborted)
    }
}

/// How far the work is. It goes on from here after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The frames that show the positions are looked for.
    #[default]
    Find,
    /// The cutouts of each frame are summed.
    Stack,
    /// The sums of frames are summed, and the results are written.
    Sum,
}

/// A job of eyas that belongs to a job of the portal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterJob {
    /// Its name, by which it is found again if the answer to its submission was lost.
    pub name: String,
    /// Its id, when that is known.
    pub id: Option<u64>,
    /// Its tasks, and those that have ended.
    pub tasks: u64,
    pub ended: u64,
    /// When the first of its tasks ended, milliseconds since 1970.
    pub first_end_ms: Option<u64>,
}

/// Results and progress of a job so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Pairs of an object and a frame that shows it.
    pub object_frames: u64,
    /// Frames that are read.
    pub frames: u64,
    /// Objects without a region in the image: off the sky, on no frame, or left out of all frames.
    pub not_found: u64,
    /// Frames that could not be read.
    pub not_readable: u64,
    /// Regions that were summed, and that were left out because the frame's border cuts them, or
    /// because they have undefined pixels.
    pub stacked: u64,
    pub skipped: u64,
    /// Nodes that ran tasks of the job.
    pub nodes: u64,
}

/// What was measured in the result, by `stack --sum`: names and values.
pub type Measured = Vec<(String, String)>;

/// A file of the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultFile {
    /// The id in UWS, and the name of the file.
    pub id: String,
    pub mime: String,
    pub bytes: u64,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StackJob {
    pub id: String,
    /// The account that it belongs to.
    pub owner: String,
    pub run_id: Option<String>,
    pub phase: Phase,
    pub params: StackParams,
    pub created_ms: u64,
    pub started_ms: Option<u64>,
    pub ended_ms: Option<u64>,
    /// When the job and its files are deleted.
    pub destruction_ms: u64,
    /// Seconds for which it may run; 0 for no bound.
    pub duration_s: u64,
    #[serde(default)]
    pub step: Step,
    #[serde(default)]
    pub counts: Counts,
    /// Jobs of eyas: of step `Stack` and of step `Sum`.
    #[serde(default)]
    pub stack: ClusterJob,
    #[serde(default)]
    pub sum: ClusterJob,
    /// How often its jobs of eyas were submitted again, because they were lost.
    #[serde(default)]
    pub resubmitted: u32,
    /// Why it waits, in words; such as a cluster that does not answer.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Why it failed, and what to do.
    pub error: Option<String>,
    /// Its jobs of eyas are to be cancelled.
    #[serde(default)]
    pub to_cancel: bool,
    /// It was deleted: it is no longer shown, and goes when its jobs of eyas are cancelled.
    #[serde(default)]
    pub is_deleted: bool,
    #[serde(default)]
    pub measured: Measured,
    #[serde(default)]
    pub results: Vec<ResultFile>,
}

impl StackJob {
    /// Percent of the work that is done.
    pub fn percent(&self) -> u64 {
        let share = |job: &ClusterJob| match job.tasks {
            0 => 0.0,
            tasks => job.ended as f64 / tasks as f64,
        };
        match (self.phase, self.step) {
            (Phase::Completed, _) => 100,
            (_, Step::Find) => 0,
            (_, Step::Stack) => (1.0 + 93.0 * share(&self.stack)) as u64,
            (_, Step::Sum) => (94.0 + 5.0 * share(&self.sum)) as u64,
        }
    }

    /// The estimated end, milliseconds since 1970: the frames that are left take as long each as
    /// those before. For example, 30 of 90 frames ended in 20 s: the others take 40 s more.
    pub fn estimated_end_ms(&self, now_ms: u64) -> Option<u64> {
        let begun_ms = self.stack.first_end_ms.filter(|_| self.phase == Phase::Executing)?;
        if self.step != Step::Stack {
            return Some(now_ms);
        }
        let (ended, left) = (self.stack.ended, self.stack.tasks.saturating_sub(self.stack.ended));
        let taken_ms = now_ms.saturating_sub(begun_ms);
        Some(now_ms + taken_ms * left / ended.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> StackJob {
        let text = r#"{"id": "a", "owner": "ada", "run_id": null, "phase": "EXECUTING",
            "params": {"survey": null, "band": null, "size": null}, "created_ms": 0,
            "started_ms": null, "ended_ms": null, "destruction_ms": 0, "duration_s": 0,
            "error": null}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn progress_and_end_follow_from_the_frames_that_have_ended() {
        let mut job = job();
        assert_eq!((job.percent(), job.estimated_end_ms(5)), (0, None));
        job.step = Step::Stack;
        job.stack = ClusterJob { tasks: 90, ended: 30, ..ClusterJob::default() };
        assert_eq!((job.percent(), job.estimated_end_ms(5)), (32, None));
        job.stack.first_end_ms = Some(1_000_000);
        assert_eq!(job.estimated_end_ms(1_020_000), Some(1_060_000));
        job.step = Step::Sum;
        assert_eq!((job.percent(), job.estimated_end_ms(7)), (94, Some(7)));
        job.phase = Phase::Completed;
        assert_eq!((job.percent(), job.estimated_end_ms(7)), (100, None));
    }

    #[test]
    fn phases_have_the_names_of_uws() {
        for (phase, name) in Phase::ALL {
            assert_eq!((Phase::named(name), phase.name()), (Some(phase), name));
            let json = serde_json::to_string(&phase).unwrap();
            assert_eq!(json, format!("\"{name}\""));
        }
        assert_eq!(Phase::named("RUN"), None);
    }
}
