//! PBS and Torque: `qsub`, one `qstat -f` for the states of all requests, and `qdel`. A request for
//! several nodes is several jobs, because options for more than one node differ between versions.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use eyas_provision::{BatchEnd, BatchReport, BatchState};

use crate::batch_command;
use crate::batch_error::BatchError;
use crate::batch_system::{BatchSystem, together, whole};
use crate::request::{BatchJob, RequestPlan};
use crate::script::shell;

/// Ids in one command line.
const IDS_AT_ONCE: usize = 500;

#[derive(Default)]
pub(super) struct Pbs {
    /// The form in which `qstat` answers, once an answer was understood.
    form: OnceLock<AnswerForm>,
}

/// PBS answers in JSON; TORQUE knows text only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerForm {
    Json,
    Text,
}

#[async_trait]
impl BatchSystem for Pbs {
    fn ask_every(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn directives(&self, plan: &RequestPlan) -> Vec<String> {
        let options = &plan.options;
        let mut words = vec![
            format!("-S {}", shell()),
            format!("-l walltime={}", time_limit(options.time_limit_us)),
            "-r n".into(),
        ];
        // What the user says of the node replaces what the pool says.
        if !options.verbatim.iter().any(|word| word.contains("select=") || word.contains("nodes="))
        {
            words.push(format!("-l nodes=1:ppn={}", options.cpus.unwrap_or(1)));
            words.extend(
                options.memory_bytes.map(|bytes| format!("-l mem={}kb", bytes.div_ceil(1024))),
            );
        }
        words.iter().map(|word| format!("#PBS {word}")).collect()
    }

    fn names_hosts(&self) -> bool {
        false
    }

    fn node_number(&self) -> &'static str {
        "$PBS_JOBID"
    }

    async fn submit(&self, plan: &RequestPlan) -> Result<BatchJob, BatchError> {
        let words = submission(plan);
        let mut ids: Vec<String> = Vec::new();
        for _ in 0..plan.nodes {
            let submitted = match batch_command::run_ok("qsub", &words).await {
                Ok(printed) => submitted(&printed),
                Err(error) => Err(error),
            };
            match submitted {
                Ok(id) => ids.push(id),
                Err(error) => {
                    if let Err(why) = whole(self, plan, &ids).await {
                        tracing::warn!(
                            "jobs {} of a request that failed are not removed: {why}",
                            ids.join(", ")
                        );
                    }
                    return Err(error);
                }
            }
        }
        Ok(BatchJob { id: ids.join(","), cluster: None, folder: plan.folder.clone() })
    }

    async fn find(&self, plan: &RequestPlan) -> Result<Option<BatchJob>, BatchError> {
        let printed = batch_command::run_ok("qselect", &["-N".to_owned(), name(plan)]).await?;
        let ids: Vec<_> =
            printed.split_whitespace().filter(|word| is_id(word)).map(String::from).collect();
        whole(self, plan, &ids).await
    }

    async fn states(&self, jobs: &[BatchJob]) -> Result<Vec<BatchReport>, BatchError> {
        let ids: Vec<String> =
            jobs.iter().flat_map(|job| job.id.split(',')).map(String::from).collect();
        let mut known = BTreeMap::new();
        for some in ids.chunks(IDS_AT_ONCE) {
            known.extend(self.states_of(some).await?);
        }
        let state = |id: &str| known.get(id).cloned().unwrap_or(BatchState::Unknown);
        Ok(jobs.iter().map(|job| together(job.id.split(',').map(state)).into()).collect())
    }

    async fn withdraw(&self, jobs: &[BatchJob]) -> Result<(), BatchError> {
        let ids: Vec<String> =
            jobs.iter().flat_map(|job| job.id.split(',')).map(String::from).collect();
        for some in ids.chunks(IDS_AT_ONCE) {
            let output = batch_command::run("qdel", some).await?;
            let says = output.message();
            // A job may have ended in the meantime.
            let has_ended = ["Unknown Job", "has finished", "Invalid job id", "invalid state"];
            if !output.is_success && !has_ended.iter().any(|end| says.contains(end)) {
                return Err(BatchError::Failed { program: "qdel".into(), says });
            }
        }
        Ok(())
    }

    async fn try_out(&self, _: &RequestPlan) -> Result<String, BatchError> {
        // PBS has no way to check a job without submitting it.
        let output = batch_command::run("qstat", &["-Q".to_owned()]).await?;
        match output.is_success {
            true => Ok("PBS answers; it checks the options of a request only when the request is \
                        submitted"
                .into()),
            false => Err(BatchError::Failed { program: "qstat".into(), says: output.message() }),
        }
    }
}

impl Pbs {
    /// The states of some jobs, by their ids. `-x` shows jobs that have ended; versions without
    /// JSON do not know it.
    async fn states_of(&self, ids: &[String]) -> Result<BTreeMap<String, BatchState>, BatchError> {
        let ask = |options: &[&str]| {
            options.iter().map(|word| (*word).to_owned()).chain(ids.iter().cloned()).collect()
        };
        if self.form.get() != Some(&AnswerForm::Text) {
            let in_json: Vec<String> = ask(&["-x", "-f", "-F", "json"]);
            let output = batch_command::run("qstat", &in_json).await?;
            // Some of the ids may be unknown; the answer has the others.
            if let Some(states) = read_json(&output.stdout) {
                self.form.get_or_init(|| AnswerForm::Json);
                return Ok(states);
            }
        }
        let as_text: Vec<String> = ask(&["-f"]);
        let output = batch_command::run("qstat", &as_text).await?;
        let states = read_text(&output.stdout);
        let says = output.message();
        let is_unknown = says.contains("Unknown Job") || says.contains("Invalid job id");
        if !output.is_success && !is_unknown && states.is_empty() {
            return Err(BatchError::Failed { program: "qstat".into(), says });
        }
        if !states.is_empty() {
            self.form.get_or_init(|| AnswerForm::Text);
        }
        Ok(states)
    }
}

/// The words of `qsub`; the script is the last one.
fn submission(plan: &RequestPlan) -> Vec<String> {
    let file = |name: &str| plan.folder.join(name).display().to_string();
    let mut words = vec!["-o".into(), file("stdout"), "-e".into(), file("stderr")];
    words.extend(plan.options.verbatim.iter().cloned());
    words.extend(["-N".into(), name(plan)]);
    words.push(plan.script().display().to_string());
    words
}

/// Older versions of PBS cut names of jobs at 15 characters, or refuse longer ones.
fn name(plan: &RequestPlan) -> String {
    format!("eyas-{}", plan.mark)
}

fn time_limit(us: u64) -> String {
    let seconds = us.div_ceil(1_000_000);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// What `qsub` prints: an id such as `12.server`, perhaps after warnings.
fn submitted(printed: &str) -> Result<String, BatchError> {
    let line =
        printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    if is_id(line) { Ok(line.into()) } else { Err(BatchError::unknown("qsub", printed)) }
}

fn is_id(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit()) && !word.contains(char::is_whitespace)
}

/// The states in the JSON of `qstat`; `None` if it is not such JSON.
fn read_json(text: &str) -> Option<BTreeMap<String, BatchState>> {
    let answer: serde_json::Value = serde_json::from_str(text).ok()?;
    let jobs =
        answer.get("Jobs").and_then(serde_json::Value::as_object).cloned().unwrap_or_default();
    answer.get("pbs_version").or(answer.get("Jobs"))?;
    let state = |fields: &serde_json::Value| {
        let text = |name: &str| fields.get(name).and_then(serde_json::Value::as_str);
        let exit = fields.get("Exit_status").and_then(serde_json::Value::as_i64);
        parse_state(text("job_state").unwrap_or_default(), text("comment"), exit)
    };
    Some(jobs.iter().map(|(id, fields)| (id.clone(), state(fields))).collect())
}

/// The states in the text of `qstat -f`.
fn read_text(text: &str) -> BTreeMap<String, BatchState> {
    let mut states = BTreeMap::new();
    for part in text.split("Job Id:").skip(1) {
        let id = part.lines().next().unwrap_or_default().trim();
        let field = |name: &str| {
            let mut fields = part.lines().filter_map(|line| line.split_once(" = "));
            fields.find(|(field, _)| field.trim() == name).map(|(_, value)| value.trim())
        };
        let exit =
            field("exit_status").or(field("Exit_status")).and_then(|status| status.parse().ok());
        states.insert(
            id.to_owned(),
            parse_state(field("job_state").unwrap_or_default(), field("comment"), exit),
        );
    }
    states
}

/// A state of PBS: one letter. A letter that is not known counts as pending: the job is asked for
/// again.
fn parse_state(letter: &str, comment: Option<&str>, exit: Option<i64>) -> BatchState {
    match letter {
        "R" | "E" | "S" | "U" | "B" => BatchState::Running,
        "F" | "C" | "X" => {
            let says = match (exit, comment) {
                (Some(status), _) => format!("exit status {status}"),
                (None, Some(comment)) => comment.to_owned(),
                (None, None) => "ended".into(),
            };
            // PBS has negative statuses for what was not the job's own end, such as a node that
            // failed.
            BatchState::Ended(BatchEnd { says, is_of_node: exit.is_some_and(|status| status < 0) })
        }
        letter => BatchState::Pending(Some(match comment {
            Some(comment) => format!("{letter} ({comment})"),
            None => letter.to_owned(),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_from_json() {
        let json = r#"{"timestamp": 1, "pbs_version": "23.06.06", "Jobs": {
            "12.head": {"Job_Name": "eyas", "job_state": "R"},
            "13.head": {"job_state": "Q",
                "comment": "Not Running: Insufficient amount of resource: ncpus"},
            "14.head": {"job_state": "F", "Exit_status": 271},
            "15.head": {"job_state": "F", "Exit_status": -3}}}"#;
        let states = read_json(json).unwrap();
        assert_eq!(states["12.head"], BatchState::Running);
        let waits = "Q (Not Running: Insufficient amount of resource: ncpus)";
        assert_eq!(states["13.head"], BatchState::Pending(Some(waits.into())));
        let end =
            |says: &str, is_of_node| BatchState::Ended(BatchEnd { says: says.into(), is_of_node });
        assert_eq!(states["14.head"], end("exit status 271", false));
        assert_eq!(states["15.head"], end("exit status -3", true));
        assert_eq!(read_json(r#"{"pbs_version": "23", "timestamp": 1}"#), Some(BTreeMap::new()));
        assert!(read_json("qstat: invalid option -- 'x'").is_none() && read_json("[]").is_none());
    }

    #[test]
    fn states_are_read_from_text() {
        let text = "Job Id: 12.head\n    Job_Name = eyas-a-1\n    job_state = R\n    queue = \
                    batch\n\nJob Id: 13\n    job_state = C\n    exit_status = 0\n\nJob Id: 14\n    \
                    job_state = H\n";
        let states = read_text(text);
        assert_eq!(states["12.head"], BatchState::Running);
        assert!(matches!(&states["13"], BatchState::Ended(end) if end.says == "exit status 0"));
        assert_eq!(states["14"], BatchState::Pending(Some("H".into())));
        assert!(read_text("qstat: cannot connect to server").is_empty());
    }

    #[test]
    fn ids_are_read_after_warnings() {
        assert_eq!(submitted("welcome\n12.head.site\n").unwrap(), "12.head.site");
        assert!(
            submitted("").is_err()
                && submitted("qsub: Job rejected by all possible destinations").is_err()
        );
        assert_eq!(time_limit(90_000_000), "00:01:30");
    }
}
