//! `sbatch`: a script becomes a job of one task.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use eyas_client::types::{
    JobId, Name, Program, Resources, TaskItem, TaskTemplate, Template, WorkingFolder,
};

use eyas_client::messages::FromClient;
use eyas_client::view::JobState;
use eyas_client::{Client, Draft, name_of_user};

use super::amounts::time_limit_us;
use super::environment::JobEnvironment;
use super::options::Words;
use super::records::{JobRecord, ShimFolder};
use super::resources::resources;
use super::script::{Runner, StagedLink, Warning, file_word, quoted, staged_links, with_variables};
use super::submission::{IGNORED, JobRequest, SILENT, read_request};
use crate::clock::unix_ms;
use crate::connect::connect;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::print::out;

/// Larger scripts and programs of jobs are files, because the kernel bounds arguments (128 KiB).
const MAX_ARGUMENT_BYTES: usize = 120_000;
/// The message about a job without inputs.
const NO_INPUTS: &str = "this job names no inputs, so eyas cannot cache what it reads. Name \
                         shared files in the script, on lines `#EYAS --input PATH`; links that \
                         Nextflow makes to inputs are found (this is said once)";
/// With `--wait`, a lost dispatcher is dialled for this long.
const PATIENCE: Duration = Duration::from_secs(600);

/// A job that was prepared.
struct PreparedJob {
    draft: Draft,
    record: JobRecord,
    /// The files of a large script, to be written before the job is submitted, and their content.
    files: Vec<(PathBuf, Vec<u8>)>,
}

/// Runs `sbatch`.
pub(crate) async fn sbatch(
    words: &[String],
    shim: &ShimFolder,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    let request = read_request(words, std::env::vars_os())?;
    let waits = request.words.has("wait");
    let (is_short, is_quiet) = (request.words.has("parsable"), request.words.has("quiet"));
    let PreparedJob { draft, mut record, files } = prepare(request, shim, global).await?;
    let submission = async {
        shim.check()?;
        for (path, content) in &files {
            ShimFolder::write_script(path, content)?;
        }
        let mut client = connect(global).await?;
        let job = client.submit(draft).await?;
        Ok::<_, CliError>((client, job))
    };
    let (mut client, job) = submission.await.inspect_err(|_| shim.remove_script(&record.token))?;
    record.job = job;
    if let Err(why) = shim.save(&record) {
        // Without a record, no command would know the job.
        shim.remove_script(&record.token);
        client.ask(FromClient::Cancel { job: record.job, task: None }).await?;
        return Err(format!(
            "the job was cancelled, because it cannot be noted in the folder of the shim: {why}"
        )
        .into());
    }
    match (is_short, is_quiet) {
        (true, _) => out!("{}", record.job)?,
        (false, true) => {}
        (false, false) => out!("Submitted batch job {}", record.job)?,
    }
    if waits { wait(&mut client, &record, shim).await } else { Ok(ExitCode::SUCCESS) }
}

/// Waits for the job. The exit code is the job's.
async fn wait(
    client: &mut Client,
    record: &JobRecord,
    shim: &ShimFolder,
) -> Result<ExitCode, CliError> {
    if client.watch(record.job, false, PATIENCE, |_| {}).await?.state == JobState::Succeeded {
        return Ok(ExitCode::SUCCESS);
    }
    let jobs = shim.jobs(client).await?;
    let end =
        jobs.into_iter().find(|job| job.record.job == record.job).and_then(|job| job.record.end);
    let code = end.map_or(1, |end| if end.code == 0 { 1 } else { end.code });
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Makes the task, the record and the files of a job.
async fn prepare(
    request: JobRequest,
    shim: &ShimFolder,
    global: &GlobalArgs,
) -> Result<PreparedJob, CliError> {
    let JobRequest { words, script, script_path, arguments, inputs, unknown } = request;
    tell_of_ignored(&words, &unknown, shim);
    let (resources, tasks, cpus_per_task) = resources(&words)?;
    let record = record_of(&words, script_path.as_deref(), &resources)?;
    let warning = warning(&words, record.time_limit_us, shim)?;
    let source = |link: &StagedLink| PathBuf::from(OsString::from_vec(script.encode(&link.source)));
    let links = staged_links(&script.text).into_iter().filter(|link| is_file(&source(link)));
    let links: Vec<StagedLink> = links.collect();

    let mut draft = Draft::new(&record.name).on_cluster(&global.cluster()?);
    let mut staged = Vec::new();
    for source in inputs.iter().chain(links.iter().map(|link| &link.source)) {
        staged.push(draft.input(&Name::from(&script.encode(source)[..])).await?);
    }
    if staged.is_empty() {
        shim.say_once("uncached", NO_INPUTS);
    }
    let variables: Vec<String> =
        (1..=staged.len()).map(|number| format!("EYAS_INPUT_{number}")).collect();
    let of_links: Vec<_> =
        links.iter().zip(variables[inputs.len()..].iter().map(String::as_str)).collect();
    let text = with_variables(&script.text, of_links.iter().copied());
    let script_bytes = script.encode(&text);
    let environment = JobEnvironment::of(&words);

    let file = |pattern: &str| file_word(pattern, &record.name, &record.user);
    let end_path = shim.end_path(&record.token).to_string_lossy().into_owned();
    let runner = Runner {
        variables: slurm_variables(&record, &current_folder()?, tasks, cpus_per_task),
        folder: &record.folder,
        input: words.value("input").map_or(Ok("/dev/null".into()), file)?,
        output: file(output_pattern(&words))?,
        error: words.value("error").map(file).transpose()?,
        appends: words.value("open-mode").is_some_and(|mode| mode.starts_with('a')),
        inputs: &variables,
        links: of_links,
        end: &end_path,
        script: None,
        dropped: &environment.dropped,
        warning,
    };
    let paths = shim.script_paths(&record.token);
    let (mut command, files) = command_of(runner, script_bytes, paths);
    command.extend(arguments.iter().map(|word| Template::literal(word.as_str())));
    let template = draft.template(TaskTemplate {
        folder: WorkingFolder::Sandbox,
        env: variables_of(environment, &variables),
        resources,
        timeout_us: record.time_limit_us,
        ..TaskTemplate::new(Program::Command(command))
    })?;
    draft.task(TaskItem { template, values: Vec::new(), inputs: staged })?;
    Ok(PreparedJob { draft, record, files })
}

fn current_folder() -> Result<String, CliError> {
    let current = std::env::current_dir()?;
    Ok(current.to_str().ok_or("the name of the current folder is not valid UTF-8")?.to_owned())
}

fn output_pattern(words: &Words) -> &str {
    words.value("output").unwrap_or("slurm-%j.out")
}

/// The record of a job that is not submitted yet.
fn record_of(
    words: &Words,
    script_path: Option<&Path>,
    resources: &Resources,
) -> Result<JobRecord, CliError> {
    let current = PathBuf::from(current_folder()?);
    let folder = words.value("chdir").map_or_else(|| current.clone(), |to| current.join(to));
    let script_name = script_path.and_then(Path::file_name).map(|name| name.to_string_lossy());
    let own_name =
        if words.has("wrap") { "wrap" } else { script_name.as_deref().unwrap_or("sbatch") };
    Ok(JobRecord {
        job: JobId(0),
        token: format!("{:x}-{:x}", unix_ms(), std::process::id()),
        name: words.value("job-name").unwrap_or(own_name).to_owned(),
        user: name_of_user(),
        account: words.value("account").unwrap_or_default().to_owned(),
        partition: words.value("partition").unwrap_or("eyas").to_owned(),
        comment: words.value("comment").unwrap_or_default().to_owned(),
        command: script_path.map_or_else(String::new, |path| path.to_string_lossy().into_owned()),
        output: folder.join(output_pattern(words)).to_string_lossy().into_owned(),
        folder: folder.to_string_lossy().into_owned(),
        cpus: resources.cpus_milli / 1000,
        memory_bytes: resources.memory_bytes,
        time_limit_us: words.value("time").map_or(Ok(None), time_limit_us)?,
        submitted_unix_ms: unix_ms(),
        end: None,
    })
}

fn tell_of_ignored(words: &Words, unknown: &[String], shim: &ShimFolder) {
    for variable in unknown {
        let message = format!(
            "the variable {variable} is ignored: eyas does not know its option (this is said once)"
        );
        shim.say_once(variable, &message);
    }
    for (option, _) in &words.options {
        if IGNORED.iter().any(|known| known.name == *option) && !SILENT.contains(option) {
            let message = format!(
                "--{option} of sbatch is ignored: eyas has no such thing (this is said once)"
            );
            shim.say_once(option, &message);
        }
    }
}

/// The signal before the time limit, and the time limit, seconds.
fn warning(
    words: &Words,
    time_limit_us: Option<u64>,
    shim: &ShimFolder,
) -> Result<Option<(Warning, u64)>, CliError> {
    let warning = words.value("signal").map(Warning::read).transpose()?;
    if warning.is_some() && time_limit_us.is_none() {
        shim.say_once(
            "signal",
            "--signal of sbatch is ignored in jobs without --time (this is said once)",
        );
    }
    Ok(warning.zip(time_limit_us.map(|us| us / 1_000_000)))
}

/// A command that runs the shell.
fn words_of_shell(words: &[&str]) -> Vec<Template> {
    std::iter::once("/bin/sh").chain(words.iter().copied()).map(Template::literal).collect()
}

/// The command that runs a script; and the files that it needs, their paths and their content, if
/// the script is too large for an argument.
fn command_of(
    runner: Runner<'_>,
    script: Vec<u8>,
    [program_path, script_path]: [PathBuf; 2],
) -> (Vec<Template>, Vec<(PathBuf, Vec<u8>)>) {
    let program = runner.program();
    if program.len().max(script.len()) <= MAX_ARGUMENT_BYTES {
        let mut command = words_of_shell(&["-c", &program, "sbatch"]);
        command.push(Template::literal(&script[..]));
        return (command, Vec::new());
    }
    let script_file = script_path.to_string_lossy();
    let program = Runner { script: Some(&script_file), ..runner }.program();
    let command = words_of_shell(&[&program_path.to_string_lossy()]);
    (command, vec![(program_path, program.into_bytes()), (script_path, script)])
}

/// The environment of a task: that of the job, and the paths of the inputs.
fn variables_of(environment: JobEnvironment, inputs: &[String]) -> Vec<(String, Template)> {
    let of_job =
        environment.variables.into_iter().map(|(name, value)| (name, Template::literal(value)));
    let path = |number: usize| Template::parse(format!("{{input:{number}}}"));
    of_job.chain((1..).zip(inputs).map(|(number, name)| (name.clone(), path(number)))).collect()
}

/// The variables that Slurm sets in jobs, with their values as words of a shell.
fn slurm_variables(
    job: &JobRecord,
    submitted_in: &str,
    tasks: u32,
    cpus_per_task: u32,
) -> Vec<(&'static str, String)> {
    [
        ("SLURM_JOB_ID", "$EYAS_JOB_ID".to_owned()),
        ("SLURM_JOBID", "$EYAS_JOB_ID".to_owned()),
        ("SLURMD_NODENAME", "$(hostname)".to_owned()),
        ("SLURM_JOB_NODELIST", "$SLURMD_NODENAME".to_owned()),
        ("SLURM_NODELIST", "$SLURMD_NODENAME".to_owned()),
        ("SLURM_JOB_NAME", quoted(&job.name)),
        ("SLURM_JOB_USER", quoted(&job.user)),
        ("SLURM_JOB_PARTITION", quoted(&job.partition)),
        ("SLURM_SUBMIT_DIR", quoted(submitted_in)),
        ("SLURM_CPUS_PER_TASK", cpus_per_task.to_string()),
        ("SLURM_CPUS_ON_NODE", job.cpus.to_string()),
        ("SLURM_JOB_CPUS_PER_NODE", job.cpus.to_string()),
        ("SLURM_NTASKS", tasks.to_string()),
        ("SLURM_NPROCS", tasks.to_string()),
        ("SLURM_TASKS_PER_NODE", tasks.to_string()),
        ("SLURM_JOB_NUM_NODES", "1".to_owned()),
        ("SLURM_NNODES", "1".to_owned()),
        ("SLURM_NODEID", "0".to_owned()),
        ("SLURM_PROCID", "0".to_owned()),
        ("SLURM_LOCALID", "0".to_owned()),
        ("SLURM_MEM_PER_NODE", (job.memory_bytes >> 20).to_string()),
    ]
    .into_iter()
    .filter(|(name, word)| *name != "SLURM_MEM_PER_NODE" || word != "0")
    .collect()
}

/// Whether a path is of a file, and not of a folder.
fn is_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file())
}
