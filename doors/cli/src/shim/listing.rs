//! `squeue` and `sacct`: lists of jobs, in the formats of Slurm.

use eyas_client::Client;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::TaskId;

use super::amounts::{elapsed, time_of};
use super::columns::{Piece, column, line, on_one_line, pieces, width};
use super::options::{KnownOption, Words, flag, parse, value};
use super::records::{ShimFolder, ShimJob, SlurmState};
use crate::clock::unix_s;
use crate::connect::connect;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::print;

const SQUEUE: &[KnownOption] = &[
    flag('h', "noheader"),
    value('o', "format"),
    value('t', "states"),
    value('u', "user"),
    value('j', "jobs"),
    value('n', "name"),
    value('p', "partition"),
    value('A', "account"),
    value('M', "clusters"),
    value('S', "sort"),
    flag(' ', "me"),
    flag('a', "all"),
    flag('l', "long"),
    flag('r', "array"),
];
const SACCT: &[KnownOption] = &[
    flag('n', "noheader"),
    value('o', "format"),
    value('s', "state"),
    value('u', "user"),
    value('j', "jobs"),
    value(' ', "name"),
    value('r', "partition"),
    value('A', "accounts"),
    value('M', "clusters"),
    value('S', "starttime"),
    value('E', "endtime"),
    flag('P', "parsable2"),
    flag('p', "parsable"),
    flag('X', "allocations"),
    flag('D', "duplicates"),
    flag('a', "allusers"),
    flag('L', "allclusters"),
    flag('l', "long"),
];
const SQUEUE_FORMAT: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const SACCT_FORMAT: &str = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode";
/// Jobs of one list whose reason to wait is asked for; the others are said to wait for resources.
const MAX_EXPLAINED: usize = 32;
/// Width of a column of `sacct`.
const SACCT_WIDTH: usize = 10;

/// The jobs that the options of `squeue`, `sacct` or `scancel` select.
pub(super) fn selected(jobs: Vec<ShimJob>, words: &Words) -> Vec<ShimJob> {
    let list = |names: [&str; 2]| names.iter().find_map(|name| words.list(name));
    let ids = words.list("jobs");
    let (names, states) = (words.list("name"), list(["states", "state"]));
    let (users, partitions) = (words.users(), words.list("partition"));
    let has = |list: &Option<Vec<String>>, given: &str| {
        list.as_ref().is_none_or(|list| list.iter().any(|x| x == given))
    };
    let is_selected = |job: &ShimJob| {
        let (long, short) = job.state.names();
        let is_state = |state: &String| {
            [long, short, "all"].iter().any(|name| name.eq_ignore_ascii_case(state))
        };
        states.as_ref().is_none_or(|states| states.iter().any(is_state))
            && has(&ids, &job.record.job.to_string())
            && has(&names, &job.record.name)
            && has(&users, &job.record.user)
            && has(&partitions, &job.record.partition)
    };
    jobs.into_iter().filter(is_selected).collect()
}

fn squeue_title(letter: char) -> Option<&'static str> {
    Some(match letter {
        'i' | 'A' | 'F' => "JOBID",
        'j' => "NAME",
        't' => "ST",
        'T' => "STATE",
        'u' => "USER",
        'P' => "PARTITION",
        'a' => "ACCOUNT",
        'M' => "TIME",
        'l' => "TIME_LIMIT",
        'N' => "NODELIST",
        'R' => "NODELIST(REASON)",
        'r' => "REASON",
        'D' => "NODES",
        'C' => "CPUS",
        'm' => "MIN_MEMORY",
        'V' => "SUBMIT_TIME",
        'S' => "START_TIME",
        'Z' => "WORK_DIR",
        'k' => "COMMENT",
        'Q' => "PRIORITY",
        _ => return None,
    })
}

fn squeue_field(job: &ShimJob, letter: char, reason: &str) -> String {
    let record = &job.record;
    let (long, short) = job.state.names();
    match letter {
        'i' | 'A' | 'F' => record.job.to_string(),
        'j' => record.name.clone(),
        't' => short.into(),
        'T' => long.into(),
        'u' => record.user.clone(),
        'P' => record.partition.clone(),
        'a' => record.account.clone(),
        'M' => elapsed(elapsed_s(job), true),
        'l' => record.time_limit_us.map_or("UNLIMITED".into(), |us| elapsed(us / 1_000_000, true)),
        'N' => job.node.clone(),
        'R' if job.node.is_empty() => format!("({reason})"),
        'R' => job.node.clone(),
        'r' => reason.into(),
        'D' => "1".into(),
        'C' => record.cpus.to_string(),
        'm' => format!("{}M", record.memory_bytes >> 20),
        'V' => time_of(record.submitted_unix_ms / 1000),
        'S' => job.began_unix_s.map_or("N/A".into(), time_of),
        'Z' => record.folder.clone(),
        'k' => record.comment.clone(),
        _ => "0".into(),
    }
}

/// Why a job waits, in the word of Slurm if its resources are in use, else in those of `eyas
/// explain`: perhaps no node can ever run the job.
async fn reason(client: &mut Client, job: &ShimJob) -> Result<String, CliError> {
    if job.state != SlurmState::Pending {
        return Ok("None".into());
    }
    let task = TaskId { job: job.record.job, index: 0 };
    let because = match client.ask(FromClient::Explain { task }).await? {
        ToClient::Explained(explained) => explained.because.into_iter().next().unwrap_or_default(),
        // It has ended meanwhile.
        _ => String::new(),
    };
    Ok(match because.strip_prefix("It waits because ") {
        Some(why) if !why.contains("is busy") => why.trim_end_matches('.').to_owned(),
        _ => "Resources".into(),
    })
}

/// Seconds for which the job has run.
fn elapsed_s(job: &ShimJob) -> u64 {
    let until = job.record.end.as_ref().map_or_else(unix_s, |end| end.ended_unix_s);
    job.began_unix_s.map_or(0, |began| until.saturating_sub(began))
}

/// Runs `squeue`.
pub(crate) async fn squeue(
    words: &[String],
    shim: &ShimFolder,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    let cannot = |why: String| format!("squeue: {why}");
    let words = parse(words, &[SQUEUE], false).map_err(cannot)?;
    let pieces =
        pieces(words.value("format").unwrap_or(SQUEUE_FORMAT), squeue_title).map_err(cannot)?;
    let has_reasons =
        pieces.iter().any(|piece| matches!(piece, Piece::Field { letter: 'R' | 'r', .. }));
    let mut client = connect(global).await?;
    let jobs = shim.jobs(&mut client).await?;
    // Without states, and without jobs by their ids, only jobs that have not ended are shown.
    let shows_ended = words.has("states") || words.has("jobs");
    let mut text = String::new();
    if !words.has("noheader") {
        text += &line(&pieces, |letter| squeue_title(letter).unwrap_or_default().into());
    }
    let mut explained = 0;
    for job in
        selected(jobs, &words).into_iter().filter(|job| shows_ended || !job.state.has_ended())
    {
        let reason = if has_reasons && explained < MAX_EXPLAINED {
            explained += usize::from(job.state == SlurmState::Pending);
            reason(&mut client, &job).await?
        } else {
            "Resources".into()
        };
        text += &line(&pieces, |letter| squeue_field(&job, letter, &reason));
    }
    print::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The value of a field of `sacct`, by its name in lower case.
fn sacct_field(job: &ShimJob, field: &str) -> Option<String> {
    let record = &job.record;
    let end = record.end.as_ref();
    Some(match field {
        "jobid" | "jobidraw" => record.job.to_string(),
        "jobname" => record.name.clone(),
        "state" => job.state.names().0.into(),
        "exitcode" | "derivedexitcode" => {
            end.map_or("0:0".into(), |end| format!("{}:{}", end.code, end.signal))
        }
        "user" => record.user.clone(),
        "account" => record.account.clone(),
        "partition" => record.partition.clone(),
        "cluster" => "eyas".into(),
        "nodelist" if job.node.is_empty() => "None assigned".into(),
        "nodelist" => job.node.clone(),
        "nnodes" | "allocnodes" => "1".into(),
        "alloccpus" | "ncpus" | "reqcpus" => record.cpus.to_string(),
        "reqmem" => format!("{}M", record.memory_bytes >> 20),
        "maxrss" | "qos" => String::new(),
        "comment" => record.comment.clone(),
        "workdir" => record.folder.clone(),
        "timelimit" => {
            record.time_limit_us.map_or("UNLIMITED".into(), |us| elapsed(us / 1_000_000, false))
        }
        "elapsed" => elapsed(elapsed_s(job), false),
        "elapsedraw" => elapsed_s(job).to_string(),
        "submit" => time_of(record.submitted_unix_ms / 1000),
        "start" => job.began_unix_s.map_or("Unknown".into(), time_of),
        "end" => end.map_or("Unknown".into(), |end| time_of(end.ended_unix_s)),
        _ => return None,
    })
}

/// Runs `sacct`.
pub(crate) async fn sacct(
    words: &[String],
    shim: &ShimFolder,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    let words = parse(words, &[SACCT], false).map_err(|e| format!("sacct: {e}"))?;
    if let Some(other) = words.others.first() {
        return Err(format!("sacct: `{other}` is not an option").into());
    }
    let format = words.value("format").unwrap_or(SACCT_FORMAT);
    let fields = format.split(',').map(sacct_column).collect::<Result<Vec<_>, _>>()?;
    let jobs = selected(shim.jobs(&mut connect(global).await?).await?, &words);
    let is_parsable = words.has("parsable") || words.has("parsable2");
    let line = |values: Vec<String>| {
        let in_columns = fields.iter().zip(values).map(|(field, value)| match is_parsable {
            // A program would read the part behind it as another field.
            true => on_one_line(&value).replace('|', "_"),
            false => column(&on_one_line(&value), Some(field.width), field.is_right),
        });
        let end = if words.has("parsable") { "|" } else { "" };
        in_columns.collect::<Vec<_>>().join(if is_parsable { "|" } else { " " }) + end
    };
    let mut lines = Vec::new();
    if !words.has("noheader") {
        lines.push(line(fields.iter().map(|field| field.name.to_owned()).collect()));
        if !is_parsable {
            lines.push(line(fields.iter().map(|field| "-".repeat(field.width)).collect()));
        }
    }
    for job in &jobs {
        let value = |field: &SacctColumn| {
            sacct_field(job, &field.name.to_lowercase())
                .ok_or_else(|| format!("sacct: eyas does not know the field `{}`", field.name))
        };
        lines.push(line(fields.iter().map(value).collect::<Result<_, _>>()?));
    }
    lines.push(String::new());
    print::text(&lines.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// A column of `sacct`.
struct SacctColumn<'a> {
    name: &'a str,
    width: usize,
    is_right: bool,
}

/// Reads `NAME`, `NAME%WIDTH`, or `NAME%-WIDTH` for a column that is aligned to the left.
fn sacct_column(field: &str) -> Result<SacctColumn<'_>, String> {
    let (name, width_of) = field.split_once('%').unwrap_or((field, ""));
    let digits = width_of.strip_prefix('-').unwrap_or(width_of);
    let width = width(digits).map_err(|why| format!("sacct: {why}"))?;
    let is_right = width.is_some() && digits == width_of;
    Ok(SacctColumn { name, width: width.unwrap_or(SACCT_WIDTH), is_right })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_sacct_are_read() {
        let read =
            |field| sacct_column(field).map(|column| (column.name, column.width, column.is_right));
        assert_eq!(read("JobID"), Ok(("JobID", 10, false)));
        assert_eq!(
            (read("JobID%20"), read("JobID%-20")),
            (Ok(("JobID", 20, true)), Ok(("JobID", 20, false)))
        );
        for wrong in
            ["JobID%70000", "JobID%-70000", "JobID%--1", "JobID%99999999999999999999", "JobID%x"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
