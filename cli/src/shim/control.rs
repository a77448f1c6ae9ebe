//! `scancel`, `scontrol`, `sinfo` and `srun`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use eyas_client::Client;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::units::format_count;
use eyas_client::view::ExecutorView;

use super::amounts::{elapsed, time_of};
use super::listing::selected;
use super::options::{KnownOption, flag, parse, value};
use super::records::{ShimFolder, ShimJob};
use crate::connect::{connect, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::print::{out, say};

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
const SRUN: &[KnownOption] = &[
    value('n', "ntasks"),
    value('N', "nodes"),
    value('c', "cpus-per-task"),
    value('J', "job-name"),
    value('t', "time"),
    value(' ', "mem"),
    value(' ', "mem-per-cpu"),
    value(' ', "cpu-bind"),
    value(' ', "mem-bind"),
    value(' ', "mpi"),
    value('G', "gpus"),
    value(' ', "gres"),
    value(' ', "jobid"),
    value(' ', "export"),
    value('D', "chdir"),
    flag(' ', "exclusive"),
    flag(' ', "exact"),
    flag(' ', "overlap"),
    flag('l', "label"),
    flag('u', "unbuffered"),
    flag('Q', "quiet"),
    flag('K', "kill-on-bad-exit"),
];
/// Seconds for which jobs stay in the answer of `squeue`, as Slurm names it: snakemake reads it.
const MIN_JOB_AGE_S: u64 = 2 * 24 * 3600;

/// Runs `scancel`.
pub(crate) async fn scancel(words: &[String], shim: &ShimFolder, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let words = parse(words, &[SCANCEL], false).map_err(|e| format!("scancel: {e}"))?;
    if let Some(signal) = words.value("signal").filter(|signal| !is_of_the_end(signal)) {
        return Err(format!(
            "scancel: eyas cannot send the signal {signal} to a job; without --signal, it ends the job"
        )
        .into());
    }
    let has_filter = ["user", "name", "state", "partition", "me"].iter().any(|filter| words.has(filter));
    if words.others.is_empty() && !has_filter {
        return Err("scancel: name the jobs by their ids, or use --name, --user or --me".into());
    }
    let mut client = connect(global).await?;
    let jobs = shim.jobs(&mut client).await?;
    let mut code = ExitCode::SUCCESS;
    for id in words.others.iter().filter(|id| jobs.iter().all(|job| job.record.job.to_string() != **id)) {
        if !words.has("quiet") {
            say!("scancel: error: Kill job error on job id {id}: no job with this id was submitted with this shim");
            code = ExitCode::FAILURE;
        }
    }
    let is_named = |job: &ShimJob| words.others.is_empty() || words.others.contains(&job.record.job.to_string());
    for job in selected(jobs, &words).iter().filter(|job| !job.state.has_ended() && is_named(job)) {
        client.ask(FromClient::Cancel { job: job.record.job, task: None }).await?;
    }
    Ok(code)
}

fn is_of_the_end(signal: &str) -> bool {
    let signal = signal.to_ascii_uppercase();
    ["TERM", "KILL", "INT", "15", "9", "2"].contains(&signal.strip_prefix("SIG").unwrap_or(&signal))
}

/// Runs `scontrol`.
pub(crate) async fn scontrol(words: &[String], shim: &ShimFolder, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let words = parse(words, &[SCONTROL], false).map_err(|e| format!("scontrol: {e}"))?;
    let others: Vec<&str> = words.others.iter().map(String::as_str).collect();
    let what = match &others[..] {
        ["show", what, ..] => what.to_ascii_lowercase(),
        _ => return Err("scontrol: eyas knows `show config`, `show job [ID]`, `show node` and `show partition`".into()),
    };
    let mut client = connect(global).await?;
    let end = if words.has("oneliner") { " " } else { "\n   " };
    match what.as_str() {
        "config" => {
            out!("ClusterName             = eyas")?;
            out!("MinJobAge               = {MIN_JOB_AGE_S} sec")?;
            out!("SLURM_VERSION           = eyas {}", env!("CARGO_PKG_VERSION"))?;
        }
        "job" | "jobs" | "jobid" => {
            let id = others.get(2).copied();
            let jobs = shim.jobs(&mut client).await?;
            let mut count = 0;
            for job in jobs.iter().filter(|job| id.is_none_or(|id| job.record.job.to_string() == id)) {
                out!("{}", fields_of(job).join(end))?;
                count += 1;
            }
            if let (0, Some(id)) = (count, id) {
                return Err(format!("scontrol: no job {id} was submitted with this shim").into());
            }
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
    let limit = record.time_limit_us.map_or("UNLIMITED".into(), |us| elapsed(us / 1_000_000, false));
    vec![
        format!("JobId={} JobName={}", record.job, record.name),
        format!("UserId={} Account={} Partition={}", record.user, record.account, record.partition),
        format!("JobState={} ExitCode={code}:{signal}", job.state.names().0),
        format!("SubmitTime={} TimeLimit={limit}", time_of(record.submitted_unix_ms / 1000)),
        format!("StartTime={}", job.began_unix_s.map_or("Unknown".into(), time_of)),
        format!("EndTime={}", end.map_or("Unknown".into(), |end| time_of(end.ended_unix_s))),
        format!("NodeList={} NumNodes=1 NumCPUs={}", job.node, record.cpus),
        format!("WorkDir={}", record.folder),
        format!("Comment={}", record.comment),
        format!("StdOut={}", record.output.replace("%j", &record.job.to_string())),
    ]
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
    let mut states: Vec<&str> = executors.iter().map(state_of).collect();
    states.sort_unstable();
    states.dedup();
    let states =
        states.into_iter().filter(|state| words.list("states").is_none_or(|list| list.iter().any(|one| one == state)));
    if !words.has("noheader") {
        out!("{}", formatted(format, |letter| Some(title(letter)?.to_owned()))?)?;
    }
    for state in states {
        let nodes: Vec<ExecutorView> =
            executors.iter().filter(|executor| state_of(executor) == state).cloned().collect();
        let names: Vec<&str> = nodes.iter().map(|executor| executor.name.as_str()).collect();
        let field = |letter| {
            title(letter)?;
            Some(match letter {
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
            })
        };
        out!("{}", formatted(format, field)?)?;
    }
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

/// A line of a format, with the value of each field by its letter.
fn formatted(format: &str, value: impl Fn(char) -> Option<String>) -> Result<String, String> {
    let mut line = String::new();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            line.push(letter);
            continue;
        }
        let is_right = letters.next_if_eq(&'.').is_some();
        let mut digits = String::new();
        while let Some(digit) = letters.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        let width = digits.parse::<usize>().unwrap_or(0);
        let letter = letters.next().ok_or("sinfo: a format must not end in %")?;
        let text = value(letter).ok_or_else(|| format!("sinfo: eyas does not know %{letter} in a format"))?;
        line += &if is_right { format!("{text:>width$}") } else { format!("{text:<width$}") };
    }
    Ok(line)
}

/// Runs `srun` in a job: its command replaces this process.
pub(crate) fn srun(words: &[String]) -> Result<ExitCode, CliError> {
    let words = parse(words, &[SRUN], true).map_err(|e| format!("srun: {e}"))?;
    if std::env::var_os("SLURM_JOB_ID").is_none() {
        return Err("srun: outside of a job, use `sbatch --wait`, or `eyas run`".into());
    }
    if words.has("time") {
        return Err("srun: eyas has no time limits of parts of a job: use `timeout`, or --time of sbatch".into());
    }
    if let Some(other) = words.value("export").filter(|list| *list != "ALL") {
        return Err(format!("srun: --export={other}: the program has all variables of the job; use `env -i`").into());
    }
    for option in ["ntasks", "nodes"] {
        let number = words.value(option).unwrap_or("1");
        if number != "1" {
            let tasks = number.parse().map_or_else(|_| number.to_owned(), |number| format_count(number, "process"));
            return Err(format!("srun: --{option} {number}: eyas does not start {tasks} of a job; write -n 1").into());
        }
    }
    let Some((program, arguments)) = words.others.split_first() else {
        return Err("srun: name the program to run".into());
    };
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(folder) = words.value("chdir") {
        command.current_dir(folder);
    }
    Err(format!("srun: cannot start {program}: {}", command.exec()).into())
}
