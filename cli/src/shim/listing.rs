//! `squeue` and `sacct`: lists of jobs, in the formats of Slurm.

use super::amounts::{elapsed, time_of};
use super::options::{KnownOption, Words, flag, parse, value};
use super::records::{ShimFolder, ShimJob, now_unix_ms};
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
/// Width of a column of `sacct`.
const SACCT_WIDTH: usize = 10;

/// The jobs that the options of `squeue`, `sacct` or `scancel` select.
pub(super) fn selected(jobs: Vec<ShimJob>, words: &Words) -> Vec<ShimJob> {
    let list = |names: [&str; 2]| names.iter().find_map(|name| words.list(name));
    let ids = words.list("jobs");
    let (names, states) = (words.list("name"), list(["states", "state"]));
    let (users, partitions) = (words.users(), words.list("partition"));
    let has =
        |list: &Option<Vec<String>>, given: &str| list.as_ref().is_none_or(|list| list.iter().any(|x| x == given));
    let is_selected = |job: &ShimJob| {
        let (long, short) = job.state.names();
        let is_state = |state: &String| [long, short, "all"].iter().any(|name| name.eq_ignore_ascii_case(state));
        states.as_ref().is_none_or(|states| states.iter().any(is_state))
            && has(&ids, &job.record.job.to_string())
            && has(&names, &job.record.name)
            && has(&users, &job.record.user)
            && has(&partitions, &job.record.partition)
    };
    jobs.into_iter().filter(is_selected).collect()
}

/// Text in a column. A negative width aligns it to the right, as in `printf` without `-`.
fn column(text: &str, width: Option<usize>, is_right: bool) -> String {
    match width {
        None => text.to_owned(),
        Some(width) => {
            let cut: String = text.chars().take(width).collect();
            if is_right { format!("{cut:>width$}") } else { format!("{cut:<width$}") }
        }
    }
}

/// A format of `squeue`: text, and fields with a letter, a width, and whether they are aligned to the right.
enum Piece {
    Text(String),
    Field { letter: char, width: Option<usize>, is_right: bool },
}

fn squeue_format(format: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            pieces.push(Piece::Text(letter.into()));
            continue;
        }
        let is_right = letters.next_if_eq(&'.').is_some();
        let mut digits = String::new();
        while let Some(digit) = letters.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        let letter = letters.next().ok_or("a format must not end in %")?;
        if letter == '%' {
            pieces.push(Piece::Text("%".into()));
        } else if squeue_title(letter).is_empty() {
            return Err(format!("eyas does not know %{letter} in a format of squeue"));
        } else {
            pieces.push(Piece::Field { letter, width: digits.parse().ok(), is_right });
        }
    }
    Ok(pieces)
}

fn squeue_title(letter: char) -> &'static str {
    match letter {
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
        _ => "",
    }
}

fn squeue_field(job: &ShimJob, letter: char) -> String {
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
        'R' if job.node.is_empty() => format!("({})", reason(job)),
        'R' => job.node.clone(),
        'r' => reason(job).into(),
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

fn reason(job: &ShimJob) -> &'static str {
    if job.state.names().1 == "PD" { "Resources" } else { "None" }
}

/// Seconds for which the job has run.
fn elapsed_s(job: &ShimJob) -> u64 {
    let until = job.record.end.as_ref().map_or(now_unix_ms() / 1000, |end| end.ended_unix_s);
    job.began_unix_s.map_or(0, |began| until.saturating_sub(began))
}

/// Runs `squeue`.
pub(crate) async fn squeue(words: &[String], shim: &ShimFolder, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let words = parse(words, &[SQUEUE], false).map_err(|e| format!("squeue: {e}"))?;
    let pieces = squeue_format(words.value("format").unwrap_or(SQUEUE_FORMAT))?;
    let jobs = shim.jobs(&mut connect(global).await?).await?;
    // Without states, and without jobs by their ids, only jobs that have not ended are shown.
    let shows_ended = words.has("states") || words.has("jobs");
    let jobs = selected(jobs, &words).into_iter().filter(|job| shows_ended || !job.state.has_ended());
    let mut text = String::new();
    let mut line = |field: &dyn Fn(char) -> String| {
        for piece in &pieces {
            match piece {
                Piece::Text(plain) => text += plain,
                Piece::Field { letter, width, is_right } => text += &column(&field(*letter), *width, *is_right),
            }
        }
        text.push('\n');
    };
    if !words.has("noheader") {
        line(&|letter| squeue_title(letter).into());
    }
    jobs.for_each(|job| line(&|letter| squeue_field(&job, letter)));
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
        "exitcode" | "derivedexitcode" => end.map_or("0:0".into(), |end| format!("{}:{}", end.code, end.signal)),
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
        "timelimit" => record.time_limit_us.map_or("UNLIMITED".into(), |us| elapsed(us / 1_000_000, false)),
        "elapsed" => elapsed(elapsed_s(job), false),
        "elapsedraw" => elapsed_s(job).to_string(),
        "submit" => time_of(record.submitted_unix_ms / 1000),
        "start" => job.began_unix_s.map_or("Unknown".into(), time_of),
        "end" => end.map_or("Unknown".into(), |end| time_of(end.ended_unix_s)),
        _ => return None,
    })
}

/// Runs `sacct`.
pub(crate) async fn sacct(words: &[String], shim: &ShimFolder, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let words = parse(words, &[SACCT], false).map_err(|e| format!("sacct: {e}"))?;
    if let Some(other) = words.others.first() {
        return Err(format!("sacct: `{other}` is not an option").into());
    }
    let format = words.value("format").unwrap_or(SACCT_FORMAT);
    let fields: Vec<(&str, Option<i64>)> = format
        .split(',')
        .map(|field| match field.split_once('%') {
            Some((name, width)) => (name, width.parse().ok()),
            None => (field, None),
        })
        .collect();
    let jobs = selected(shim.jobs(&mut connect(global).await?).await?, &words);
    let separator = if words.has("parsable") || words.has("parsable2") { "|" } else { " " };
    let mut lines = Vec::new();
    let line = |values: Vec<String>| {
        let in_columns = fields.iter().zip(values).map(|((_, width), value)| match (separator, width) {
            ("|", _) => value,
            (_, width) => {
                let width = width.unwrap_or(SACCT_WIDTH as i64);
                column(&value, Some(width.unsigned_abs() as usize), width > 0)
            }
        });
        let end = if words.has("parsable") { "|" } else { "" };
        in_columns.collect::<Vec<_>>().join(separator) + end
    };
    let names: Vec<String> = fields.iter().map(|(name, _)| name.to_lowercase()).collect();
    if !words.has("noheader") {
        lines.push(line(fields.iter().map(|(name, _)| (*name).to_owned()).collect()));
        if separator == " " {
            lines.push(line(
                fields
                    .iter()
                    .map(|(_, width)| "-".repeat(width.unwrap_or(SACCT_WIDTH as i64).unsigned_abs() as usize))
                    .collect(),
            ));
        }
    }
    for job in &jobs {
        let value = |name: &String| {
            sacct_field(job, name).ok_or_else(|| format!("sacct: eyas does not know the field `{name}`"))
        };
        lines.push(line(names.iter().map(value).collect::<Result<_, _>>()?));
    }
    lines.push(String::new());
    print::text(&lines.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_of_squeue_are_read() {
        assert_eq!(squeue_format("%.18i %t|%T%%").unwrap().len(), 6);
        assert!(squeue_format("%").is_err() && squeue_format("%y").is_err());
        assert_eq!((column("12", Some(4), true), column("12345", Some(4), false)), ("  12".into(), "1234".into()));
    }
}
