//! `srun` in a job: its command runs once for each task of the step, all of them on the node of the
//! job. There is no process manager for MPI: `mpiexec` starts programs of MPI.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::{self, JoinHandle};

use eyas_client::name_of_user;
use rustix::process::{Pid, Signal, WaitOptions, kill_process};

use super::amounts::count;
use super::options::{KnownOption, Words, flag, optional, parse, value};
use super::records::ShimFolder;
use super::resources::TASKS;
use super::script::{NamePart, name_parts};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::print::{self, say};

const SRUN: &[KnownOption] = &[
    value('n', "ntasks"),
    value(' ', "ntasks-per-node"),
    value(' ', "tasks-per-node"),
    value('N', "nodes"),
    value('c', "cpus-per-task"),
    flag('O', "overcommit"),
    value('o', "output"),
    value('e', "error"),
    value('i', "input"),
    value(' ', "open-mode"),
    value('D', "chdir"),
    value('J', "job-name"),
    value(' ', "jobid"),
    value(' ', "export"),
    value('t', "time"),
    value('W', "wait"),
    value(' ', "mpi"),
    optional('K', "kill-on-bad-exit"),
    flag('l', "label"),
    flag('u', "unbuffered"),
    flag('Q', "quiet"),
    flag('v', "verbose"),
    optional(' ', "exclusive"),
    flag(' ', "exact"),
    flag(' ', "overlap"),
    value(' ', "mem"),
    value(' ', "mem-per-cpu"),
    value(' ', "cpu-bind"),
    value(' ', "mem-bind"),
    value('G', "gpus"),
    value(' ', "gres"),
    value('m', "distribution"),
    value(' ', "hint"),
];
/// Options of which a step has no use: it has all processors, memory and GPUs of its job. This is
/// said once.
const IGNORED: [&str; 8] =
    ["mem", "mem-per-cpu", "cpu-bind", "mem-bind", "gpus", "gres", "distribution", "hint"];
/// Values of these options with which Slurm does nothing either.
const NOTHING: [&str; 5] = ["none", "no", "q", "quiet", "nomultithread"];

/// Runs `srun` in a job. A single process replaces this one.
pub(crate) fn srun(words: &[String], shim: &ShimFolder) -> Result<ExitCode, CliError> {
    let words = parse(words, &[SRUN], true).map_err(|e| format!("srun: {e}"))?;
    let variable = |name: &str| std::env::var(name).ok();
    let Some(job) = variable("SLURM_JOB_ID") else {
        return Err("srun: outside of a job, use `sbatch --wait`, or `eyas run`".into());
    };
    check(&words, &job).map_err(|why| format!("srun: {why}"))?;
    let tasks = tasks(&words, variable).map_err(|why| format!("srun: {why}"))?;
    for (option, value) in words.options.iter().filter(|(option, _)| IGNORED.contains(option)) {
        if !NOTHING.contains(&value.as_str()) {
            let message = format!(
                "--{option} of srun is ignored: a step has all that its job has (this is said \
                 once)"
            );
            shim.say_once(&format!("srun-{option}"), &message);
        }
    }
    let Some((program, arguments)) = words.others.split_first() else {
        return Err("srun: name the program to run".into());
    };
    let mut step = Step { words: &words, job, tasks, program, arguments, files: BTreeMap::new() };
    if tasks == 1 && !words.has("label") {
        let mut command = step.command(0)?;
        note_step(std::process::id());
        let why = command.exec();
        return Err(format!("srun: cannot start {program}: {why}").into());
    }
    step.run()
}

/// Refuses options with which the step would do something else.
fn check(words: &Words, job: &str) -> Result<(), String> {
    if words.has("time") {
        return Err("eyas has no time limits of parts of a job: use `timeout`, or --time of \
                    sbatch"
            .into());
    }
    if let Some(other) = words.value("export").filter(|list| *list != "ALL") {
        return Err(format!(
            "--export={other}: the program has all variables of the job; use `env -i`"
        ));
    }
    if let Some(other) = words.value("mpi").filter(|kind| *kind != "none") {
        return Err(format!(
            "--mpi={other}: eyas manages no processes of MPI; start the program with `mpiexec -n`"
        ));
    }
    if words.value("jobid").is_some_and(|other| other != job) {
        return Err("--jobid of another job: a step runs in the job that calls srun".into());
    }
    if words.value("wait").is_some_and(|wait| wait != "0") {
        return Err("--wait: a step ends when all its processes have ended; see \
                    --kill-on-bad-exit"
            .into());
    }
    Ok(())
}

/// Number of processes: as the options say, or as many as the job has tasks.
fn tasks(words: &Words, variable: impl Fn(&str) -> Option<String>) -> Result<u32, String> {
    let nodes = words.value("nodes").map_or("1", |nodes| nodes.split('-').next().unwrap_or(nodes));
    if count("nodes", nodes)? > 1 {
        return Err(format!("--nodes={nodes}: a job of eyas has one node; leave it out"));
    }
    let of_job = variable("SLURM_NTASKS").unwrap_or_else(|| "1".into());
    let (option, tasks) = words.last(&TASKS).unwrap_or(("ntasks", &of_job));
    let tasks = count(option, tasks)?;
    let each = words.value("cpus-per-task").map_or(Ok(1), |each| count("cpus-per-task", each))?;
    let cpus =
        variable("SLURM_CPUS_ON_NODE").and_then(|cpus| cpus.parse().ok()).unwrap_or(u64::MAX);
    let needed = u64::from(tasks) * u64::from(each);
    if needed > cpus && !words.has("overcommit") {
        return Err(format!(
            "{tasks} processes need {needed} processors, and the job has {cpus} on its one node: \
             ask sbatch for more with -n or -c, or use --overcommit"
        ));
    }
    Ok(tasks)
}

struct Step<'a> {
    words: &'a Words,
    job: String,
    tasks: u32,
    program: &'a str,
    arguments: &'a [String],
    /// Files of output that are open, because several processes may write to one file.
    files: BTreeMap<String, File>,
}

/// Where a stream of a process goes.
enum Sink {
    /// To that of this process.
    Own,
    Nowhere,
    File(File),
}

impl Step<'_> {
    /// The name of a file of a process.
    fn name_of(&self, pattern: &str, rank: u32) -> Result<String, String> {
        let text = |part| match part {
            NamePart::Text(text) => text,
            NamePart::Mark { letter: 'j' | 'A', digits } => format!("{:0>digits$}", self.job),
            NamePart::Mark { letter: 'J', .. } => format!("{}.0", self.job),
            NamePart::Mark { letter: 't', digits } => format!("{rank:0digits$}"),
            NamePart::Mark { letter: 'N', .. } => {
                std::env::var("SLURMD_NODENAME").unwrap_or_default()
            }
            NamePart::Mark { letter: 'x', .. } => {
                std::env::var("SLURM_JOB_NAME").unwrap_or_default()
            }
            NamePart::Mark { letter: 'u', .. } => name_of_user(),
            NamePart::Mark { digits, .. } => format!("{:0digits$}", 0),
        };
        Ok(name_parts(pattern)?.into_iter().map(text).collect())
    }

    /// Where a process writes by an option: `all`, `none`, the number of the only process that
    /// writes, or a file.
    fn sink(&mut self, option: &str, rank: u32) -> Result<Sink, CliError> {
        match self.words.value(option) {
            None | Some("all") => Ok(Sink::Own),
            Some("none") => Ok(Sink::Nowhere),
            Some(only) if only.parse::<u32>().is_ok() => {
                Ok(if only == rank.to_string() { Sink::Own } else { Sink::Nowhere })
            }
            Some(pattern) => {
                let name = self.name_of(pattern, rank).map_err(|why| format!("srun: {why}"))?;
                if !self.files.contains_key(&name) {
                    let appends =
                        self.words.value("open-mode").is_some_and(|mode| mode.starts_with('a'));
                    let mut how = OpenOptions::new();
                    let how =
                        if appends { how.append(true) } else { how.write(true).truncate(true) };
                    let opened = how.create(true).open(&name);
                    let file =
                        opened.map_err(|why| format!("srun: cannot write to {name}: {why}"))?;
                    self.files.insert(name.clone(), file);
                }
                Ok(Sink::File(self.files[&name].try_clone()?))
            }
        }
    }

    /// The command of a process, with its files and variables.
    fn command(&mut self, rank: u32) -> Result<Command, CliError> {
        let mut command = Command::new(self.program);
        command.args(self.arguments);
        if let Some(folder) = self.words.value("chdir") {
            command.current_dir(folder);
        }
        let (output, error) = (self.sink("output", rank)?, self.sink("error", rank)?);
        // Without a file of their own, errors go where the output goes.
        if let (Sink::File(file), Sink::Own, false) = (&output, &error, self.words.has("error")) {
            command.stderr(file.try_clone()?);
        }
        if let Some(to) = stdio(output) {
            command.stdout(to);
        }
        if let Some(to) = stdio(error) {
            command.stderr(to);
        }
        match self.words.value("input") {
            None | Some("all") => {}
            Some("none") => _ = command.stdin(Stdio::null()),
            Some(only) if only.parse::<u32>().is_ok() => {
                if only != rank.to_string() {
                    command.stdin(Stdio::null());
                }
            }
            Some(pattern) => {
                let name = self.name_of(pattern, rank).map_err(|why| format!("srun: {why}"))?;
                let file =
                    File::open(&name).map_err(|why| format!("srun: cannot read {name}: {why}"))?;
                command.stdin(file);
            }
        }
        let (tasks, rank) = (self.tasks.to_string(), rank.to_string());
        let of_step = [
            ("SLURM_PROCID", rank.as_str()),
            ("SLURM_LOCALID", &rank),
            ("SLURM_NTASKS", &tasks),
            ("SLURM_NPROCS", &tasks),
            ("SLURM_TASKS_PER_NODE", &tasks),
            ("SLURM_STEP_NUM_TASKS", &tasks),
            ("SLURM_STEP_TASKS_PER_NODE", &tasks),
            ("SLURM_STEP_NUM_NODES", "1"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEPID", "0"),
        ];
        command.envs(of_step);
        if let Some(each) = self.words.value("cpus-per-task") {
            command.env("SLURM_CPUS_PER_TASK", each);
        }
        Ok(command)
    }

    /// Starts all processes, and waits for their ends. The exit code is the largest.
    fn run(&mut self) -> Result<ExitCode, CliError> {
        let (mut processes, mut inputs, mut copies) = (BTreeMap::new(), Vec::new(), Vec::new());
        let reads_all = self.words.value("input").is_none_or(|input| input == "all");
        for rank in 0..self.tasks {
            let mut command = self.command(rank)?;
            if reads_all {
                command.stdin(Stdio::piped());
            }
            let labelled =
                if self.words.has("label") { Some(self.label(&mut command, rank)?) } else { None };
            let spawned = command.spawn();
            let mut child =
                spawned.map_err(|why| format!("srun: cannot start {}: {why}", self.program))?;
            note_step(child.id());
            inputs.extend(child.stdin.take());
            copies.extend(labelled.into_iter().flat_map(|labels| labels.copy(&mut child)));
            processes.insert(child.id(), rank);
        }
        self.files.clear();
        if reads_all {
            // It ends with this process, or with the input.
            thread::spawn(move || share_input(inputs));
        }
        let kills = self.words.value("kill-on-bad-exit").is_some_and(|given| given != "0");
        let mut largest = 0;
        while !processes.is_empty() {
            let Some((ended, status)) = rustix::process::wait(WaitOptions::empty())? else {
                continue;
            };
            let Some(rank) = processes.remove(&(ended.as_raw_nonzero().get() as u32)) else {
                continue;
            };
            let code = status
                .exit_status()
                .or(status.terminating_signal().map(|signal| 128 + signal))
                .unwrap_or(1);
            if code != 0 {
                say!("srun: error: task {rank}: exit code {code}");
            }
            if code != 0 && kills {
                // Processes that were not waited for keep their numbers.
                let others = processes.keys().filter_map(|other| Pid::from_raw(*other as i32));
                others.for_each(|other| _ = kill_process(other, Signal::TERM));
            }
            largest = largest.max(code);
        }
        for copy in copies {
            // The copy has said what went wrong.
            let _ = copy.join();
        }
        Ok(ExitCode::from(u8::try_from(largest).unwrap_or(1)))
    }

    /// Has the lines of a process go through this one, which writes the number of the process
    /// before each.
    fn label(&mut self, command: &mut Command, rank: u32) -> Result<Labels, CliError> {
        let (output, error) = (self.sink("output", rank)?, self.sink("error", rank)?);
        let error = match (&output, error) {
            (Sink::File(file), Sink::Own) if !self.words.has("error") => {
                Sink::File(file.try_clone()?)
            }
            (_, error) => error,
        };
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let digits = (self.tasks - 1).to_string().len();
        Ok(Labels { label: format!("{rank:digits$}: "), output, error })
    }
}

/// Where the lines of a process go, and what stands before each.
struct Labels {
    label: String,
    output: Sink,
    error: Sink,
}

impl Labels {
    fn copy(self, child: &mut Child) -> Vec<JoinHandle<()>> {
        let Labels { label, output, error } = self;
        let (stdout, stderr, second) = (child.stdout.take(), child.stderr.take(), label.clone());
        let mut copies = Vec::new();
        copies.extend(
            stdout.map(|from| thread::spawn(move || copy_lines(from, &label, output, false))),
        );
        copies.extend(
            stderr.map(|from| thread::spawn(move || copy_lines(from, &second, error, true))),
        );
        copies
    }
}

fn copy_lines(from: impl Read, label: &str, mut to: Sink, is_error: bool) {
    let mut from = BufReader::new(from);
    let mut line = label.as_bytes().to_vec();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let written = match &mut to {
            Sink::File(file) => file.write_all(&line),
            Sink::Nowhere => Ok(()),
            Sink::Own if is_error => {
                print::bytes_to_stderr(&line);
                Ok(())
            }
            Sink::Own => {
                // If the reader has gone away, the process goes on without one.
                let _ = print::bytes(&line);
                Ok(())
            }
        };
        if let Err(why) = written {
            say!("srun: the output of task {} is cut off: {why}", label.trim_end_matches(": "));
            to = Sink::Nowhere;
        }
        line.truncate(label.len());
    }
}

/// What a process gets as a stream; `None` if it is that of this process.
fn stdio(sink: Sink) -> Option<Stdio> {
    match sink {
        Sink::Own => None,
        Sink::Nowhere => Some(Stdio::null()),
        Sink::File(file) => Some(file.into()),
    }
}

/// Passes what this process reads on to all processes that still read.
fn share_input(mut inputs: Vec<ChildStdin>) {
    let mut part = vec![0; 1 << 16];
    let mut own = std::io::stdin().lock();
    while !inputs.is_empty() {
        let Ok(read @ 1..) = own.read(&mut part) else { return };
        inputs.retain_mut(|input| input.write_all(&part[..read]).is_ok());
    }
}

/// Notes a process of the job: `--signal` of sbatch sends its signal to those that are noted.
fn note_step(process: u32) {
    let Ok(sandbox) = std::env::var("EYAS_SANDBOX") else { return };
    let steps = std::path::Path::new(&sandbox).join(".slurm_steps");
    let noted =
        fs::create_dir_all(&steps).and_then(|()| fs::write(steps.join(process.to_string()), ""));
    if let Err(why) = noted {
        say!("srun: --signal will not reach process {process}: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::split_line;
    use super::*;

    fn read(line: &str) -> Words {
        parse(&split_line(line), &[SRUN], true).unwrap()
    }

    #[test]
    fn a_step_has_as_many_processes_as_its_job_has_tasks() {
        let of_job = |name: &str| match name {
            "SLURM_NTASKS" => Some("3".to_owned()),
            "SLURM_CPUS_ON_NODE" => Some("6".to_owned()),
            _ => None,
        };
        let number = |line| tasks(&read(line), of_job);
        assert_eq!(
            (number("true"), number("-n 2 true"), number("--ntasks-per-node=6 true")),
            (Ok(3), Ok(2), Ok(6))
        );
        assert_eq!(
            (number("-c 2 true"), number("-n9 -O true"), number("-N 1-4 true")),
            (Ok(3), Ok(9), Ok(3))
        );
        assert!(
            number("-n 7 true")
                .unwrap_err()
                .contains("7 processes need 7 processors, and the job has 6")
        );
        assert!(
            number("-c 3 true").is_err()
                && number("-N 2 true").is_err()
                && number("-n 0 true").is_err()
        );
        assert_eq!(tasks(&read("true"), |_| None), Ok(1));
    }

    #[test]
    fn unsupported_options_of_a_step_are_refused() {
        for line in ["-t 1 a", "--export=NONE a", "--mpi=pmix a", "--jobid=8 a", "--wait=5 a"] {
            assert!(check(&read(line), "7").is_err(), "{line}");
        }
        assert_eq!(check(&read("--export=ALL --mpi=none --jobid=7 -W0 a"), "7"), Ok(()));
    }
}
