//! `scancel`, `scontrol` and `sinfo`.

use eyas_client::Client;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::view::ExecutorView;

use super::amounts::{elapsed, time_of};
use super::columns::{line, on_one_line, pieces};
use super::hostlist::hostnames;
use super::listing::selected;
use super::options::{KnownOption, flag, parse, value};
use super::records::{ShimFolder, ShimJob};
use crate::connect::{connect, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::print::{self, out, say};

const SCANCEL: &[KnownOption] = &[
    value('u', "user"),
    value('n', "name"),
    value('t', "state"),
    value('p', "partition"),
    value('s', "signal"),
    value('M', "clusters"),
    flag('Q', "quiet"),
    flag('v', "verbose"),
    flag('f', "full"),
    flag('b', "batch"),
    flag(' ', "me"),
];
const SCONTROL: &[KnownOption] =
    &[flag('o', "oneliner"), flag('d', "details"), value('M', "clusters"), flag('Q', "quiet")];
const SINFO: &[KnownOption] = &[
    flag('h', "noheader"),
    value('o', "format"),
    value('p', "partition"),
    value('t', "states"),
    value('M', "clusters"),
    flag('N', "Node"),
    flag('s', "summarize"),
    flag('a', "all"),
];
/// Seconds for which jobs stay in the answer of `squeue`, as Slurm names it: snakemake reads it.
const MIN_JOB_AGE_S: u64 = 2 * 24 * 3600;

/// Runs `scancel`.
pub(crate) async fn scancel(
    words: &[String],
    shim: &ShimFolder,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    let words = parse(words, &[SCANCEL], false).map_err(|e| format!("scancel: {e}"))?;
    if let Some(signal) = words.value("signal").filter(|signal| !is_of_the_end(signal)) {
        return Err(format!(
            "scancel: eyas cannot send the signal {signal} to a job; without --signal, it ends \
             the job"
        )
        .into());
    }
    let has_filter =
        ["user", "name", "state", "partition", "me"].iter().any(|filter| words.has(filter));
    if words.others.is_empty() && !has_filter {
        return Err("scancel: name the jobs by their ids, or use --name, --user or --me".into());
    }
    let mut client = connect(global).await?;
    let jobs = shim.jobs(&mut client).await?;
    let mut code = ExitCode::SUCCESS;
    for id in
        words.others.iter().filter(|id| jobs.iter().all(|job| job.record.job.to_string() != **id))
    {
        if !words.has("quiet") {
            say!(
                "scancel: error: Kill job error on job id {id}: no job with this id was submitted \
                 with this shim"
            );
            code = ExitCode::FAILURE;
        }
    }
    let is_named = |job: &ShimJob| {
        words.others.is_empty() || words.others.contains(&job.record.job.to_string())
    };
    for job in selected(jobs, &words).iter().filter(|job| !job.state.has_ended() && is_named(job)) {
        client.ask(FromClient::Cancel { job: job.record.job, task: None }).await?;
    }
    Ok(code)
}

fn is_of_the_end(signal: &str) -> bool {
    let signal = signal.to_ascii_uppercase();
    ["TERM", "KILL", "INT", "15", "9", "2"].contains(&signal.strip_prefix("SIG").unwrap_or(&signal))
}

/// Prints jobs, or the one with an id, their fields with `end` between them.
fn show_jobs(jobs: &[ShimJob], id: Option<&str>, end: &str) -> Result<(), CliError> {
    let is_it = |job: &&ShimJob| id.is_none_or(|id| job.record.job.to_string() == id);
    let mut shown = jobs.iter().filter(is_it).peekable();
    if let (None, Some(id)) = (shown.peek(), id) {
        return Err(format!("scontrol: no job {id} was submitted with this shim").into());
    }
    for job in shown {
        out!("{}", fields_of(job).join(end))?;
    }
    Ok(())
}

/// Runs `scontrol`.
pub(crate) async fn scontrol(
    words: &[String],
    shim: &ShimFolder,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    let words = parse(words, &[SCONTROL], false).map_err(|e| format!("scontrol: {e}"))?;
    let others: Vec<&str> = words.others.iter().map(String::as_str).collect();
    let what = match &others[..] {
        ["show", what, ..] => what.to_ascii_lowercase(),
        _ => {
            let known = "`show config`, `show hostnames [LIST]`, `show job [ID]`, `show node` and \
                         `show partition`";
            return Err(format!("scontrol: eyas knows {known}").into());
        }
    };
    if what == "hostnames" {
        let of_job = || std::env::var("SLURM_JOB_NODELIST").unwrap_or_default();
        let list = others.get(2).map_or_else(of_job, |list| (*list).to_owned());
        let names = hostnames(&list).map_err(|why| format!("scontrol: {why}"))?;
        out!("{}", names.join("\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut client = connect(global).await?;
    let end = if words.has("oneliner") { " " } else { "\n   " };
    match what.as_str() {
        "config" => {
            out!("ClusterName             = eyas")?;
            out!("MinJobAge               = {MIN_JOB_AGE_S} sec")?;
            out!("SLURM_VERSION           = eyas {}", env!("CARGO_PKG_VERSION"))?;
        }
        "job" | "jobs" | "jobid" => {
            show_jobs(&shim.jobs(&mut client).await?, others.get(2).copied(), end)?;
        }
        "partition" | "partitions" => {
            let executors = executors(&mut client).await?;
            let fields = [
                "PartitionName=eyas".to_owned(),
                "Default=YES".to_owned(),
                "MaxTime=UNLIMITED".to_owned(),
                "State=UP".to_owned(),
                format!("TotalCPUs={}", cpus(&executors)),
                format!("TotalNodes={}", executors.len()),
            ];
            out!("{}", fields.join(end))?;
        }
        "node" | "nodes" => {
            for executor in executors(&mut client).await? {
                let fields = [
                    format!("NodeName={}", executor.name),
                    format!("NodeHostName={}", executor.host),
                    format!("CPUTot={}", executor.capacity.cpus_milli / 1000),
                    format!("RealMemory={}", executor.capacity.memory_bytes >> 20),
                    format!("State={}", state_of(&executor).to_uppercase()),
                ];
                out!("{}", fields.join(end))?;
            }
        }
        other => return Err(format!("scontrol: eyas has no `show {other}`").into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn fields_of(job: &ShimJob) -> Vec<String> {
    let record = &job.record;
    let end = record.end.as_ref();
    let (code, signal) = end.map_or((0, 0), |end| (end.code, end.signal));
    let limit =
        record.time_limit_us.map_or("UNLIMITED".into(), |us| elapsed(us / 1_000_000, false));
    let command = if record.command.is_empty() { "(null)" } else { &record.command };
    let fields = [
        format!("JobId={} JobName={}", record.job, record.name),
        format!("UserId={} Account={} Partition={}", record.user, record.account, record.partition),
        format!("JobState={} ExitCode={code}:{signal}", job.state.names().0),
        format!("SubmitTime={} TimeLimit={limit}", time_of(record.submitted_unix_ms / 1000)),
        format!("StartTime={}", job.began_unix_s.map_or("Unknown".into(), time_of)),
        format!("EndTime={}", end.map_or("Unknown".into(), |end| time_of(end.ended_unix_s))),
        format!("NodeList={} NumNodes=1 NumCPUs={}", job.node, record.cpus),
        format!("Command={command}"),
        format!("WorkDir={}", record.folder),
        format!("Comment={}", record.comment),
        format!("StdOut={}", record.output.replace("%j", &record.job.to_string())),
    ];
    fields.iter().map(|field| on_one_line(field)).collect()
}

async fn executors(client: &mut Client) -> Result<Vec<ExecutorView>, CliError> {
    match client.ask(FromClient::Executors).await? {
        ToClient::Executors(executors) => Ok(executors),
        _ => unexpected(),
    }
}

fn cpus(executors: &[ExecutorView]) -> u32 {
    executors.iter().map(|executor| executor.capacity.cpus_milli / 1000).sum()
}

fn state_of(executor: &ExecutorView) -> &'static str {
    match (executor.state.as_str(), executor.assigned_milli) {
        ("set aside", _) => "drain",
        (_, 0) => "idle",
        (_, assigned) if assigned >= executor.capacity.cpus_milli.into() => "alloc",
        _ => "mix",
    }
}

/// Runs `sinfo`: one partition, and a line for each state of nodes.
pub(crate) async fn sinfo(words: &[String], global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let words = parse(words, &[SINFO], false).map_err(|e| format!("sinfo: {e}"))?;
    let executors = executors(&mut connect(global).await?).await?;
    let format = words.value("format").unwrap_or("%9P %5a %.10l %.6D %.6t %N");
    let pieces = pieces(format, title).map_err(|why| format!("sinfo: {why}"))?;
    let mut text = String::new();
    let mut states: Vec<&str> = executors.iter().map(state_of).collect();
    states.sort_unstable();
    states.dedup();
    let states = states.into_iter().filter(|state| {
        words.list("states").is_none_or(|list| list.iter().any(|one| one == state))
    });
    if !words.has("noheader") {
        text += &line(&pieces, |letter| title(letter).unwrap_or_default().into());
    }
    for state in states {
        let nodes: Vec<ExecutorView> =
            executors.iter().filter(|executor| state_of(executor) == state).cloned().collect();
        let names: Vec<&str> = nodes.iter().map(|executor| executor.name.as_str()).collect();
        text += &line(&pieces, |letter| match letter {
            'P' => "eyas*".to_owned(),
            'R' => "eyas".to_owned(),
            'a' => "up".to_owned(),
            'l' => "infinite".to_owned(),
            'D' => nodes.len().to_string(),
            't' | 'T' => state.to_owned(),
            'N' => names.join(","),
            'c' => nodes.first().map_or(0, |node| node.capacity.cpus_milli / 1000).to_string(),
            'C' => cpus(&nodes).to_string(),
            _ => nodes.first().map_or(0, |node| node.capacity.memory_bytes >> 20).to_string(),
        });
    }
    print::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn title(letter: char) -> Option<&'static str> {
    Some(match letter {
        'P' | 'R' => "PARTITION",
        'a' => "AVAIL",
        'l' => "TIMELIMIT",
        'D' => "NODES",
        't' | 'T' => "STATE",
        'N' => "NODELIST",
        'c' | 'C' => "CPUS",
        'm' => "MEMORY",
        _ => return None,
    })
}
