//! Slurm: `sbatch`, one `squeue` for the states of all requests, `sacct` or `scontrol` for those
//! that it no longer lists, and `scancel`.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use eyas_provision::{BatchEnd, BatchReport, BatchState};
use eyas_wire::pool::PoolOptions;

use crate::batch_command;
use crate::batch_error::BatchError;
use crate::batch_system::BatchSystem;
use crate::request::{BatchJob, RequestPlan};

/// Ids in one command line. `squeue` compares each job of the user with each id; with more ids it
/// lists all of them.
const IDS_AT_ONCE: usize = 1_000;

/// What Slurm writes for a host or reason that it does not know, or that there is not.
const NOT_KNOWN: &[&str] = &["", "None", "N/A", "n/a", "Unknown", "None assigned", "(null)"];

pub(super) struct Slurm;

#[async_trait]
impl BatchSystem for Slurm {
    fn ask_every(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Requests of one list of clusters are asked for together.
    fn scope(&self, options: &PoolOptions) -> String {
        option(&options.verbatim, "--clusters", "-M").unwrap_or_default()
    }

    fn directives(&self, plan: &RequestPlan) -> Vec<String> {
        let options = &plan.options;
        let mut words = vec![
            format!("--nodes={}", plan.nodes),
            format!("--ntasks={}", plan.nodes),
            "--ntasks-per-node=1".into(),
            format!("--time={}", time_limit(options.time_limit_us)),
            // The executor is told to leave before the time limit ends it.
            format!("--signal=B:TERM@{}", warning_s(options.time_limit_us)),
            "--no-requeue".into(),
            "--open-mode=append".into(),
        ];
        words.extend(options.cpus.map(|cpus| format!("--cpus-per-task={cpus}")));
        words.extend(options.memory_bytes.map(|bytes| format!("--mem={}K", bytes.div_ceil(1024))));
        let gres = options
            .resources
            .iter()
            .filter(|(name, _)| name == "gpu")
            .map(|(_, count)| format!("--gres=gpu:{count}"));
        words.extend(gres);
        words.iter().map(|word| format!("#SBATCH {word}")).collect()
    }

    fn launcher(&self, plan: &RequestPlan) -> String {
        if plan.nodes > 1 { "srun --kill-on-bad-exit=0 --wait=0".into() } else { String::new() }
    }

    async fn submit(&self, plan: &RequestPlan) -> Result<BatchJob, BatchError> {
        let printed = batch_command::run_ok("sbatch", &submission(plan, "--parsable")).await?;
        let (id, cluster) = submitted(&printed)?;
        Ok(BatchJob { id, cluster, folder: plan.folder.clone() })
    }

    async fn find(&self, plan: &RequestPlan) -> Result<Option<BatchJob>, BatchError> {
        let clusters = option(&plan.options.verbatim, "--clusters", "-M");
        let of_plan = [format!("--user={}", user()), format!("--name={}", plan.name())];
        let listed = ["--noheader", "--states=all", "--format=%i"].map(String::from);
        let words: Vec<_> = of_cluster(clusters.as_deref()).chain(listed).chain(of_plan).collect();
        let found = found(&batch_command::run_ok("squeue", &words).await?);
        Ok(found.map(|(id, cluster)| BatchJob {
            id,
            cluster: cluster.or(clusters),
            folder: plan.folder.clone(),
        }))
    }

    async fn states(&self, jobs: &[BatchJob]) -> Result<Vec<BatchReport>, BatchError> {
        let mut known = BTreeMap::new();
        for (cluster, jobs) in by_cluster(jobs) {
            known.extend(states_of(cluster, &jobs).await?);
        }
        let report = |job: &BatchJob| known.remove(&job.id).unwrap_or(BatchState::Unknown.into());
        Ok(jobs.iter().map(report).collect())
    }

    async fn withdraw(&self, jobs: &[BatchJob]) -> Result<(), BatchError> {
        for (cluster, jobs) in by_cluster(jobs) {
            for some in jobs.chunks(IDS_AT_ONCE) {
                let ids = some.iter().map(|job| job.id.clone());
                let words: Vec<_> = of_cluster(cluster).chain(ids).collect();
                batch_command::run_ok("scancel", &words).await?;
            }
        }
        Ok(())
    }

    async fn try_out(&self, plan: &RequestPlan) -> Result<String, BatchError> {
        let mut words = submission(plan, "--test-only");
        // The script is not written for a try.
        words.pop();
        let directives = self.directives(plan);
        let options =
            directives.iter().filter_map(|line| line.strip_prefix("#SBATCH ")).map(String::from);
        let words: Vec<_> = options.chain(words).chain(["--wrap=true".into()]).collect();
        let output = batch_command::run("sbatch", &words).await?;
        let says = output.message();
        if output.is_success {
            Ok(says)
        } else {
            Err(BatchError::Failed { program: "sbatch".into(), says })
        }
    }
}

/// The words of `sbatch`; the script is the last one.
fn submission(plan: &RequestPlan, mode: &str) -> Vec<String> {
    // A per cent sign begins a placeholder.
    let file = |name: &str| plan.folder.join(name).display().to_string().replace('%', "%%");
    let mut words = vec![
        mode.to_owned(),
        format!("--output={}", file("stdout")),
        format!("--error={}", file("stderr")),
        format!("--chdir={}", plan.folder.parent().unwrap_or(&plan.folder).display()),
    ];
    words.extend(plan.options.verbatim.iter().cloned());
    words.push(format!("--job-name={}", plan.name()));
    if !plan.excluded.is_empty() {
        // The last one counts, so it has what the user excludes too.
        let of_user = option(&plan.options.verbatim, "--exclude", "-x");
        let hosts: Vec<_> = of_user.into_iter().chain(plan.excluded.iter().cloned()).collect();
        words.push(format!("--exclude={}", hosts.join(",")));
    }
    words.push(plan.script().display().to_string());
    words
}

/// `DAYS-HOURS:MINUTES:SECONDS`, rounded up to a minute, which is Slurm's unit.
fn time_limit(us: u64) -> String {
    let minutes = us.div_ceil(60_000_000);
    format!("{}-{:02}:{:02}:00", minutes / 1440, minutes / 60 % 24, minutes % 60)
}

/// Seconds before the time limit at which executors are told to leave.
fn warning_s(us: u64) -> u64 {
    (us / 1_000_000 / 10).clamp(1, 60)
}

/// What `--parsable` prints: `ID` or `ID;CLUSTER`, perhaps after warnings.
fn submitted(printed: &str) -> Result<(String, Option<String>), BatchError> {
    let line =
        printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let (id, cluster) =
        line.split_once(';').map_or((line, None), |(id, cluster)| (id, Some(cluster.to_owned())));
    match id.is_empty() || !id.chars().all(|c| c.is_ascii_digit()) {
        true => Err(BatchError::unknown("sbatch", printed)),
        false => Ok((id.into(), cluster)),
    }
}

/// The first job in a list of `squeue`, in which the name of a cluster stands before its jobs.
fn found(printed: &str) -> Option<(String, Option<String>)> {
    let mut cluster = None;
    for line in printed.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("CLUSTER:") {
            cluster = Some(name.trim().to_owned());
        } else if line.starts_with(|c: char| c.is_ascii_digit()) {
            return Some((line.into(), cluster));
        }
    }
    None
}

/// Number of the user of the requests.
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The value of an option, which has a long and a short name.
fn option(words: &[String], long: &str, short: &str) -> Option<String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == long || word == short {
            return words.next().cloned();
        }
        let long = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
        let short = || word.strip_prefix(short).filter(|_| !word.starts_with("--"));
        if let Some(value) = long.or_else(short) {
            return Some(value.into());
        }
    }
    None
}

fn by_cluster(jobs: &[BatchJob]) -> BTreeMap<Option<&str>, Vec<&BatchJob>> {
    let mut of_clusters: BTreeMap<_, Vec<_>> = BTreeMap::new();
    jobs.iter().for_each(|job| of_clusters.entry(job.cluster.as_deref()).or_default().push(job));
    of_clusters
}

fn of_cluster(cluster: Option<&str>) -> impl Iterator<Item = String> + use<> {
    cluster.map(|name| format!("--clusters={name}")).into_iter()
}

/// The states of some requests of one cluster, by their ids.
async fn states_of(
    cluster: Option<&str>,
    jobs: &[&BatchJob],
) -> Result<BTreeMap<String, BatchReport>, BatchError> {
    let which = match jobs.len() <= IDS_AT_ONCE {
        true => format!(
            "--jobs={}",
            jobs.iter().map(|job| job.id.as_str()).collect::<Vec<_>>().join(",")
        ),
        false => format!("--user={}", user()),
    };
    let queued = ["--noheader", "--states=all", "--format=%i|%T|%B|%r"].map(String::from);
    let words: Vec<_> = of_cluster(cluster).chain(queued).chain([which]).collect();
    let output = batch_command::run("squeue", &words).await?;
    // With a single id that it has forgotten, `squeue` fails.
    if !output.is_success && !output.stderr.contains("Invalid job id") {
        return Err(BatchError::Failed { program: "squeue".into(), says: output.message() });
    }
    let mut states: BTreeMap<_, _> = output.stdout.lines().filter_map(parse_line).collect();
    let vanished: Vec<_> = jobs
        .iter()
        .filter(|job| !states.contains_key(&job.id))
        .map(|job| job.id.as_str())
        .collect();
    for some in vanished.chunks(IDS_AT_ONCE) {
        let finished = [
            "--noheader",
            "--parsable2",
            "--allocations",
            "--format=JobIDRaw,State,NodeList,Reason",
        ]
        .map(String::from);
        let words: Vec<_> = of_cluster(cluster)
            .chain(finished)
            .chain([format!("--jobs={}", some.join(","))])
            .collect();
        // Without accounting, such requests stay unknown, and count as ended after some questions.
        if let Ok(printed) = batch_command::run_ok("sacct", &words).await {
            states.extend(printed.lines().filter_map(parse_line));
        }
    }
    Ok(states)
}

/// A line `ID|STATE|HOST|REASON`.
fn parse_line(line: &str) -> Option<(String, BatchReport)> {
    let mut fields = line.trim().splitn(4, '|');
    let (id, state) = (fields.next()?, fields.next()?);
    let mut known = || fields.next().map(str::trim).filter(|text| !NOT_KNOWN.contains(text));
    // Several hosts are written as `n[1-3]` or `n1,n5`.
    let host = known().filter(|host| !host.contains(['[', ',']));
    let report = BatchReport { host: host.map(String::from), state: parse_state(state, known()) };
    id.chars().all(|c| c.is_ascii_digit()).then(|| (id.to_owned(), report))
}

/// A state of Slurm, such as `CANCELLED by 1000`. A state that is not known counts as pending, with
/// its own words: the request is asked for again.
fn parse_state(state: &str, reason: Option<&str>) -> BatchState {
    let word = state.split([' ', '+']).next().unwrap_or_default();
    let says = || match reason {
        Some(reason) => format!("{state} ({reason})"),
        None => state.to_owned(),
    };
    let ended = |is_of_node| BatchState::Ended(BatchEnd { says: says(), is_of_node });
    match word {
        "RUNNING" | "COMPLETING" | "SUSPENDED" | "STOPPED" | "SIGNALING" | "STAGE_OUT" => {
            BatchState::Running
        }
        "BOOT_FAIL" | "NODE_FAIL" | "PREEMPTED" | "REVOKED" => ended(true),
        "COMPLETED" | "CANCELLED" | "FAILED" | "TIMEOUT" | "DEADLINE" | "OUT_OF_MEMORY"
        | "SPECIAL_EXIT" | "LAUNCH_FAILED" | "RECONFIG_FAIL" => ended(false),
        _ => BatchState::Pending(Some(says())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_states_are_understood() {
        let of_node = |state: &str| match parse_state(state, None) {
            BatchState::Ended(end) => Some(end.is_of_node),
            _ => None,
        };
        for state in ["NODE_FAIL", "PREEMPTED", "BOOT_FAIL"] {
            assert_eq!(of_node(state), Some(true), "{state}");
        }
        for state in
            ["OUT_OF_MEMORY", "CANCELLED by 1000", "CANCELLED+", "FAILED", "TIMEOUT", "COMPLETED"]
        {
            assert_eq!(of_node(state), Some(false), "{state}");
        }
        for state in
            ["PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "A_NEW_ONE"]
        {
            assert!(matches!(parse_state(state, None), BatchState::Pending(_)), "{state}");
        }
        let pending = parse_line("17|PENDING|n/a|Priority").unwrap();
        assert_eq!(
            pending,
            ("17".into(), BatchState::Pending(Some("PENDING (Priority)".into())).into())
        );
        assert_eq!(parse_line("17.batch|RUNNING|n1|"), None);
        let host = |line: &str| parse_line(line).unwrap().1.host;
        assert_eq!(host("17|FAILED|n2|NonZeroExitCode").as_deref(), Some("n2"));
        assert_eq!(
            (host("17|FAILED|n[1-2]|"), host("17|FAILED|n1,n5|"), host("17|FAILED")),
            (None, None, None)
        );
        assert_eq!(parse_line("slurm_load_jobs error: Unable to contact"), None);
    }

    #[test]
    fn ids_are_read_after_warnings_and_with_clusters() {
        assert_eq!(submitted("12\n").unwrap(), ("12".into(), None));
        assert_eq!(submitted("a warning\n12;far\n").unwrap(), ("12".into(), Some("far".into())));
        assert!(submitted("").is_err() && submitted("Submitted batch job 12").is_err());
        assert_eq!(found("17\n18\n"), Some(("17".into(), None)));
        assert_eq!(found("CLUSTER: a\n\nCLUSTER: b\n17\n"), Some(("17".into(), Some("b".into()))));
        assert_eq!(found("CLUSTER: a\n"), None);
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let clusters = |text: &[&str]| option(&words(text), "--clusters", "-M");
        assert_eq!(clusters(&["-p", "x", "--clusters", "a,b"]).as_deref(), Some("a,b"));
        assert_eq!(clusters(&["-Mc"]).as_deref(), Some("c"));
        assert_eq!(clusters(&["--partition=x"]), None);
    }

    #[test]
    fn time_limits_are_whole_minutes() {
        assert_eq!(time_limit(3_600_000_000), "0-01:00:00");
        assert_eq!(time_limit(90_000_000), "0-00:02:00");
        assert_eq!(time_limit(90_000_000_000), "1-01:00:00");
    }
}
