//! HTCondor: `condor_submit`, one `condor_q -json` for the states of all requests, `condor_history`
//! for those that it no longer lists, and `condor_rm`. A request for several nodes is one cluster
//! of jobs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use async_trait::async_trait;
use eyas_provision::{BatchEnd, BatchReport, BatchState};
use serde::Deserialize;

use crate::batch_command;
use crate::batch_error::BatchError;
use crate::batch_system::{BatchSystem, together};
use crate::request::{BatchJob, RequestPlan, write_private};
use crate::script::shell;

/// Ids in one command line.
const IDS_AT_ONCE: usize = 500;
/// What is asked of each job.
const ATTRIBUTES: &str =
    "ClusterId,ProcId,JobStatus,HoldReason,ExitCode,ExitBySignal,ExitSignal,RemoveReason";

pub(super) struct HtCondor;

#[async_trait]
impl BatchSystem for HtCondor {
    fn ask_every(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn names_hosts(&self) -> bool {
        false
    }

    fn node_number(&self) -> &'static str {
        "$EYAS_NODE"
    }

    async fn submit(&self, plan: &RequestPlan) -> Result<BatchJob, BatchError> {
        let description = describe(plan)?;
        let words = ["-terse".to_owned(), description];
        let printed = batch_command::run_ok("condor_submit", &words).await?;
        Ok(BatchJob { id: submitted(&printed)?, cluster: None, folder: plan.folder.clone() })
    }

    async fn find(&self, plan: &RequestPlan) -> Result<Option<BatchJob>, BatchError> {
        let mut found = BTreeMap::new();
        let which = ["-constraint".to_owned(), format!("JobBatchName == \"{}\"", plan.name())];
        collect("condor_q", &which, &mut found).await?;
        let id = found.into_keys().next();
        Ok(id.map(|id| BatchJob { id, cluster: None, folder: plan.folder.clone() }))
    }

    async fn states(&self, jobs: &[BatchJob]) -> Result<Vec<BatchReport>, BatchError> {
        let mut listed: BTreeMap<String, Vec<BatchState>> = BTreeMap::new();
        for some in jobs.chunks(IDS_AT_ONCE) {
            let ids: Vec<_> = some.iter().map(|job| job.id.clone()).collect();
            collect("condor_q", &ids, &mut listed).await?;
            // A job that is held stays in the list.
            let has_ended = |job: &&BatchJob| {
                listed
                    .get(&job.id)
                    .cloned()
                    .is_some_and(|states| matches!(together(states), BatchState::Ended(_)))
            };
            let held: Vec<_> = some.iter().filter(has_ended).cloned().collect();
            if !held.is_empty()
                && let Err(why) = self.withdraw(&held).await
            {
                tracing::warn!("jobs that are held are not removed: {why}");
            }
            let vanished: Vec<_> = ids.into_iter().filter(|id| !listed.contains_key(id)).collect();
            if !vanished.is_empty() {
                // Without a history, such requests stay unknown, and count as ended after some
                // questions.
                if let Err(why) = collect("condor_history", &vanished, &mut listed).await {
                    tracing::debug!("the ends of requests are not known: {why}");
                }
            }
        }
        let state =
            |job: &BatchJob| listed.get(&job.id).cloned().map_or(BatchState::Unknown, together);
        Ok(jobs.iter().map(|job| state(job).into()).collect())
    }

    async fn withdraw(&self, jobs: &[BatchJob]) -> Result<(), BatchError> {
        let ids: Vec<_> = jobs.iter().map(|job| job.id.clone()).collect();
        let output = batch_command::run("condor_rm", &ids).await?;
        let says = output.message();
        // A job may have ended in the meantime.
        match output.is_success || says.contains("not found") || says.contains("Couldn't find") {
            true => Ok(()),
            false => Err(BatchError::Failed { program: "condor_rm".into(), says }),
        }
    }

    async fn try_out(&self, plan: &RequestPlan) -> Result<String, BatchError> {
        let folder = plan.folder.clone();
        std::fs::create_dir_all(&folder).map_err(|why| BatchError::file(&folder, &why))?;
        let words =
            ["-dry-run", "/dev/null"].map(String::from).into_iter().chain([describe(plan)?]);
        let words: Vec<_> = words.collect();
        let output = batch_command::run("condor_submit", &words).await?;
        let says = output.message();
        if output.is_success {
            Ok(says)
        } else {
            Err(BatchError::Failed { program: "condor_submit".into(), says })
        }
    }
}

/// Writes the submit description of a request, and returns its path. Each word that is passed on
/// unchanged is a line of it, such as `requirements = (OpSysAndVer == "Debian12")`.
fn describe(plan: &RequestPlan) -> Result<String, BatchError> {
    let path = plan.folder.join("request.sub");
    write_private(&path, description(plan).as_bytes(), 0o600)
        .map_err(|why| BatchError::file(&path, &why))?;
    Ok(path.display().to_string())
}

fn description(plan: &RequestPlan) -> String {
    let options = &plan.options;
    let file = |name: &str| plan.folder.join(name).display().to_string();
    let seconds = options.time_limit_us.div_ceil(1_000_000);
    let mut text = String::new();
    let mut line = |name: &str, value: &str| _ = writeln!(text, "{name} = {value}");
    line("universe", "vanilla");
    line("executable", shell());
    // In this form of arguments, a double quotation mark is doubled, and single ones keep blanks.
    let script = plan.script().display().to_string().replace('"', "\"\"").replace('\'', "''");
    line("arguments", &format!("\"'{script}'\""));
    line("output", &file("stdout"));
    line("error", &file("stderr"));
    line("log", &file("condor.log"));
    line("should_transfer_files", "NO");
    line("getenv", "False");
    line("environment", "EYAS_NODE=$(Process)");
    line("kill_sig", "SIGTERM");
    // A job that is past its time is removed: the executor has left by then.
    line(
        "periodic_remove",
        &format!("JobStatus == 2 && time() - EnteredCurrentStatus > {seconds}"),
    );
    // It is not run again on another node, under the number of this request.
    line("max_retries", "0");
    if let Some(cpus) = options.cpus {
        line("request_cpus", &cpus.to_string());
    }
    if let Some(bytes) = options.memory_bytes {
        line("request_memory", &format!("{}K", bytes.div_ceil(1024)));
    }
    for (_, count) in options.resources.iter().filter(|(name, _)| name == "gpu") {
        line("request_gpus", &count.to_string());
    }
    for word in &options.verbatim {
        let _ = writeln!(text, "{}", word.replace('\n', " "));
    }
    // The last line with a name counts.
    let _ = writeln!(text, "batch_name = {}", plan.name());
    if !plan.excluded.is_empty() {
        let _ =
            writeln!(text, "requirements = {}", requirements(&options.verbatim, &plan.excluded));
    }
    let _ = writeln!(text, "queue {}", plan.nodes);
    text
}

/// The requirements of the user, and that the job runs on none of these hosts. A machine may have a
/// domain in its name.
fn requirements(verbatim: &[String], excluded: &[String]) -> String {
    let of_user = verbatim.iter().rev().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        name.trim().eq_ignore_ascii_case("requirements").then(|| format!("({})", value.trim()))
    });
    let is_other =
        |host: &String| format!("!regexp(\"^{}([.]|$)\", Machine)", host.replace('.', "[.]"));
    of_user.into_iter().chain(excluded.iter().map(is_other)).collect::<Vec<_>>().join(" && ")
}

/// What `-terse` prints: the first and the last job, `5.0 - 5.1`.
fn submitted(printed: &str) -> Result<String, BatchError> {
    let line =
        printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    match line.split_once('.') {
        Some((id, _)) if !id.is_empty() && id.chars().all(|c| c.is_ascii_digit()) => Ok(id.into()),
        _ => Err(BatchError::unknown("condor_submit", printed)),
    }
}

/// A job in the answer of `condor_q` or `condor_history`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CondorJob {
    cluster_id: u64,
    job_status: u32,
    hold_reason: Option<String>,
    remove_reason: Option<String>,
    exit_code: Option<i64>,
    exit_by_signal: Option<bool>,
    exit_signal: Option<i64>,
}

/// Adds the states of jobs that a command lists, by the ids of their requests. `which` are ids, or
/// a constraint.
async fn collect(
    program: &str,
    which: &[String],
    listed: &mut BTreeMap<String, Vec<BatchState>>,
) -> Result<(), BatchError> {
    let mut words: Vec<String> = ["-json", "-attributes", ATTRIBUTES].map(String::from).into();
    words.extend(which.iter().cloned());
    let printed = batch_command::run_ok(program, &words).await?;
    for job in read_jobs(program, &printed)? {
        listed.entry(job.cluster_id.to_string()).or_default().push(state_of(&job));
    }
    Ok(())
}

/// Without jobs, the commands print nothing instead of an empty list.
fn read_jobs(program: &str, printed: &str) -> Result<Vec<CondorJob>, BatchError> {
    if printed.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(printed).map_err(|_| BatchError::unknown(program, printed))
}

fn state_of(job: &CondorJob) -> BatchState {
    let ended = |says: String| BatchState::Ended(BatchEnd { says, is_of_node: false });
    match job.job_status {
        1 => BatchState::Pending(Some("idle".into())),
        2 | 6 | 7 => BatchState::Running,
        3 => ended(job.remove_reason.clone().unwrap_or_else(|| "removed".into())),
        4 => ended(match (job.exit_by_signal, job.exit_signal, job.exit_code) {
            (Some(true), Some(signal), _) => format!("killed by signal {signal}"),
            (_, _, Some(code)) => format!("exit code {code}"),
            _ => "ended".into(),
        }),
        // It would wait until its user releases it.
        5 => ended(format!("held: {}", job.hold_reason.as_deref().unwrap_or("no reason given"))),
        other => BatchState::Pending(Some(format!("status {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_from_json() {
        let json = r#"[
            {"ClusterId": 5, "ProcId": 0, "JobStatus": 2},
            {"ClusterId": 5, "ProcId": 1, "JobStatus": 1},
            {"ClusterId": 6, "ProcId": 0, "JobStatus": 5, "HoldReason": "no such file"},
            {"ClusterId": 7, "ProcId": 0, "JobStatus": 4, "ExitCode": 0, "ExitBySignal": false}]"#;
        let jobs = read_jobs("condor_q", json).unwrap();
        let states: Vec<_> = jobs.iter().map(state_of).collect();
        assert_eq!(together(states[..2].to_vec()), BatchState::Running);
        let end = |says: &str| BatchState::Ended(BatchEnd { says: says.into(), is_of_node: false });
        assert_eq!(states[2..], [end("held: no such file"), end("exit code 0")]);
        assert!(read_jobs("condor_q", "\n").unwrap().is_empty());
        assert!(read_jobs("condor_q", "-- Failed to fetch ads").is_err());
    }

    #[test]
    fn bad_hosts_are_excluded_besides_what_the_user_requires() {
        let hosts = ["n1".to_owned(), "n2.site".to_owned()];
        let excluded = r#"!regexp("^n1([.]|$)", Machine) && !regexp("^n2[.]site([.]|$)", Machine)"#;
        assert_eq!(requirements(&[], &hosts), excluded);
        let of_user = [r#"Requirements = Arch == "X86_64" || HasGpu"#.to_owned()];
        assert_eq!(
            requirements(&of_user, &hosts),
            format!(r#"(Arch == "X86_64" || HasGpu) && {excluded}"#)
        );
    }

    #[test]
    fn ids_are_read() {
        assert_eq!(submitted("5.0 - 5.1\n").unwrap(), "5");
        assert!(submitted("ERROR: no queue").is_err() && submitted("").is_err());
    }
}
