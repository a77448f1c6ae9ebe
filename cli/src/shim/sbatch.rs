//! `sbatch`: a script becomes a job of one task.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use eyas_client::types::{GPU, JobId, Name, Program, Resources, TaskItem, TaskTemplate, Template, WorkingFolder};

use eyas_client::messages::FromClient;
use eyas_client::view::JobState;
use eyas_client::{Client, Draft, name_of_user};

use super::amounts::{count, memory_bytes, time_limit_us};
use super::options::{KnownOption, Words, flag, optional, parse, value};
use super::records::{JobRecord, ShimFolder, now_unix_ms};
use super::script::{Runner, StagedLink, file_word, option_lines, quoted, staged_links, with_variables};
use crate::connect::connect;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::print::out;

/// Maximum size of a script, as Slurm's by default.
const MAX_SCRIPT_BYTES: usize = 4 << 20;
/// Larger scripts and programs of jobs are files, because the kernel bounds arguments (128 KiB).
const MAX_ARGUMENT_BYTES: usize = 120_000;
/// With `--wait`, a lost dispatcher is dialled for this long.
const PATIENCE: Duration = Duration::from_secs(600);

/// Options that decide how the job runs.
const HONOURED: &[KnownOption] = &[
    value('J', "job-name"),
    value('o', "output"),
    value('e', "error"),
    value('i', "input"),
    value('D', "chdir"),
    value('t', "time"),
    value('c', "cpus-per-task"),
    value(' ', "mem"),
    value(' ', "mem-per-cpu"),
    value('n', "ntasks"),
    value(' ', "ntasks-per-node"),
    value('N', "nodes"),
    value('G', "gpus"),
    value(' ', "gpus-per-node"),
    value(' ', "gres"),
    value(' ', "tmp"),
    value(' ', "export"),
    value(' ', "open-mode"),
    value(' ', "wrap"),
    value('A', "account"),
    value('p', "partition"),
    value(' ', "comment"),
    flag(' ', "parsable"),
    flag('W', "wait"),
    flag('Q', "quiet"),
    flag('v', "verbose"),
];
/// Options without which the job does the same. What eyas does instead is said once.
const IGNORED: &[KnownOption] = &[
    value('q', "qos"),
    value('M', "clusters"),
    value('x', "exclude"),
    value(' ', "signal"),
    value(' ', "mail-type"),
    value(' ', "mail-user"),
    optional(' ', "nice"),
    value(' ', "priority"),
    value(' ', "reservation"),
    value(' ', "cpu-bind"),
    value(' ', "mem-bind"),
    value('m', "distribution"),
    value(' ', "hint"),
    value(' ', "threads-per-core"),
    value(' ', "wckey"),
    value(' ', "switches"),
    optional(' ', "propagate"),
    flag(' ', "requeue"),
    flag(' ', "no-requeue"),
    optional(' ', "exclusive"),
    flag('s', "oversubscribe"),
    optional(' ', "get-user-env"),
    flag(' ', "kill-on-invalid-dep"),
];
/// Ignored options for which Slurm and eyas do the same in all usual cases: nothing is said.
const SILENT: [&str; 4] = ["signal", "no-requeue", "requeue", "clusters"];
/// Options without which the job would do something else: they are refused, with what to do.
const REFUSED: &[(KnownOption, &str)] = &[
    (value('a', "array"), "submit one job for each index, or use `eyas run --array`"),
    (value('d', "dependency"), "let the workflow system order the jobs, or use a job file of eyas"),
    (value('C', "constraint"), "use the labels of executors and `requirements` of a job file"),
    (value('w', "nodelist"), "use the labels of executors and `requirements` of a job file"),
    (value('L', "licenses"), "use `--node-resource` of executors and `--gres`"),
    (value('b', "begin"), "submit the job later"),
    (flag('H', "hold"), "submit the job later"),
    (flag(' ', "test-only"), "leave it out"),
];

/// A script with everything that its options say.
struct Request {
    words: Words,
    script: String,
    /// The file name of the script, unless it came from standard input.
    script_name: Option<String>,
    arguments: Vec<String>,
    /// Sources of `#EYAS --input` lines.
    inputs: Vec<String>,
}

fn read_request(words: &[String]) -> Result<Request, CliError> {
    let refused: Vec<KnownOption> = REFUSED.iter().map(|(known, _)| *known).collect();
    let tables = [HONOURED, IGNORED, &refused[..]];
    let mut given = parse(words, &tables, true)?;
    let mut arguments = std::mem::take(&mut given.others);
    let mut script_name = None;
    let script = match (given.value("wrap"), arguments.is_empty()) {
        (Some(_), false) => return Err("--wrap takes no script: write the command or the name of a script".into()),
        (Some(command), true) => format!("#!/bin/sh\n{command}\n"),
        (None, true) => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
        (None, false) => {
            let path = arguments.remove(0);
            script_name = Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned());
            fs::read_to_string(&path).map_err(|e| format!("cannot read the script {path}: {e}"))?
        }
    };
    if !script.starts_with("#!") {
        return Err("this is not a batch script: its first line must be #! and the path of a program, such as \
                    #!/bin/sh"
            .into());
    }
    if script.len() > MAX_SCRIPT_BYTES {
        return Err(format!(
            "the script has {} bytes, and at most {MAX_SCRIPT_BYTES} are allowed: let a short script call it",
            script.len()
        )
        .into());
    }
    // Options of the command line come last, and count.
    let of_script = parse(&option_lines(&script, "#SBATCH"), &tables, false).map_err(|e| format!("#SBATCH: {e}"))?;
    let mut options = of_script.options;
    options.append(&mut given.options);
    let of_eyas = parse(&option_lines(&script, "#EYAS"), &[&[value('i', "input")]], false);
    let of_eyas = of_eyas.map_err(|e| format!("#EYAS: {e}; write #EYAS --input PATH"))?;
    if let Some(other) = of_eyas.others.first() {
        return Err(format!("#EYAS: `{other}` is not an option: write #EYAS --input PATH").into());
    }
    let inputs = of_eyas.options.into_iter().map(|(_, path)| path).collect();
    for (option, _) in &options {
        if let Some((_, advice)) = REFUSED.iter().find(|(known, _)| known.name == *option) {
            return Err(format!("eyas has no --{option}: {advice}").into());
        }
    }
    Ok(Request { words: Words { options, others: Vec::new() }, script, script_name, arguments, inputs })
}

/// Processors, memory, disk and GPUs, and the number of processors of a task.
fn resources(words: &Words) -> Result<(Resources, u32, u32), String> {
    let number = |option| words.value(option).map_or(Ok(1), |text| count(option, text));
    let nodes = words.value("nodes").map_or("1", |nodes| nodes.split('-').next().unwrap_or(nodes));
    if count("nodes", nodes)? > 1 {
        return Err("eyas runs a job on one node: leave out --nodes, or write --nodes=1".into());
    }
    // Of options that say the same, the last one counts: those of the command line come after those of the script.
    let tasks = words.last(&["ntasks", "ntasks-per-node"]).map_or(Ok(1), |(option, text)| count(option, text))?;
    let cpus_per_task = number("cpus-per-task")?;
    let cpus = tasks.saturating_mul(cpus_per_task);
    let memory = match words.last(&["mem", "mem-per-cpu"]) {
        Some(("mem", memory)) => memory_bytes(memory)?,
        Some((_, memory)) => memory_bytes(memory)?.saturating_mul(cpus.into()),
        None => 0,
    };
    let mut named: Vec<(String, u64)> = Vec::new();
    for (option, list) in &words.options {
        if !["gres", "gpus", "gpus-per-node"].contains(option) {
            continue;
        }
        if *option == "gres" {
            named.retain(|(name, _)| name == GPU);
        }
        for part in list.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "none") {
            let (name, amount) = generic_resource(option, part)?;
            named.retain(|(known, _)| *known != name);
            named.push((name, amount));
        }
    }
    named.sort();
    let disk_bytes = words.value("tmp").map_or(Ok(0), memory_bytes)?;
    let milli = cpus.checked_mul(1000).ok_or("the job asks for too many processors")?;
    Ok((Resources { cpus_milli: milli, memory_bytes: memory, disk_bytes, named }, tasks, cpus_per_task))
}

/// The name and the amount of a generic resource: `gpu`, `gpu:2`, `gpu:a100:2` or `gres/gpu:2(S:0-1)` of `--gres`; `2`
/// or `a100:2` of `--gpus`. eyas does not tell types of GPUs apart.
fn generic_resource(option: &str, part: &str) -> Result<(String, u64), String> {
    let wrong = || format!("--{option}: `{part}` is not a resource and its number, such as gpu:2");
    let plain = part.split('(').next().unwrap_or(part);
    let mut words: Vec<&str> = plain.strip_prefix("gres/").unwrap_or(plain).split(':').collect();
    let name = if option == "gres" { words.remove(0) } else { GPU };
    let amount = match &words[..] {
        [] => Ok(1),
        [amount] | [_, amount] => amount.parse(),
        _ => return Err(wrong()),
    };
    match (amount, &words[..]) {
        (Ok(amount), _) => Ok((name.to_owned(), amount)),
        // A type without a number.
        (Err(_), [kind]) if option == "gres" && kind.starts_with(|first: char| first.is_ascii_alphabetic()) => {
            Ok((name.to_owned(), 1))
        }
        (Err(_), _) => Err(wrong()),
    }
}

/// The variables that the job gets from the submission, by `--export`.
fn exported(words: &Words) -> Vec<(String, Name)> {
    let list = words.list("export").unwrap_or_else(|| vec!["ALL".into()]);
    let has_all = list.iter().any(|word| word == "ALL");
    let mut variables = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Ok(name) = name.into_string() else { continue };
        let is_own = ["EYAS_", "SLURM_"].iter().any(|prefix| name.starts_with(prefix))
            || ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str());
        if (has_all && !is_own) || list.contains(&name) {
            variables.push((name, Name::from(value.as_encoded_bytes())));
        }
    }
    for (name, value) in list.iter().filter_map(|word| word.split_once('=')) {
        variables.retain(|(known, _)| known != name);
        variables.push((name.to_owned(), Name::from(value)));
    }
    variables
}

/// A job that was prepared.
struct Prepared {
    draft: Draft,
    record: JobRecord,
    /// The files of a large script, to be written before the job is submitted, and their content.
    files: Vec<(PathBuf, String)>,
}

/// Runs `sbatch`.
pub(crate) async fn sbatch(words: &[String], shim: &ShimFolder, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let request = read_request(words)?;
    let waits = request.words.has("wait");
    let (is_short, is_quiet) = (request.words.has("parsable"), request.words.has("quiet"));
    let Prepared { draft, mut record, files } = prepare(request, shim, global).await?;
    let submission = async {
        shim.check()?;
        for (path, text) in &files {
            ShimFolder::write_script(path, text)?;
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
        return Err(
            format!("the job was cancelled, because it cannot be noted in the folder of the shim: {why}").into()
        );
    }
    match (is_short, is_quiet) {
        (true, _) => out!("{}", record.job)?,
        (false, true) => {}
        (false, false) => out!("Submitted batch job {}", record.job)?,
    }
    if waits { wait(&mut client, &record, shim).await } else { Ok(ExitCode::SUCCESS) }
}

/// Waits for the job. The exit code is the job's.
async fn wait(client: &mut Client, record: &JobRecord, shim: &ShimFolder) -> Result<ExitCode, CliError> {
    if client.watch(record.job, false, PATIENCE, |_| {}).await?.state == JobState::Succeeded {
        return Ok(ExitCode::SUCCESS);
    }
    let jobs = shim.jobs(client).await?;
    let end = jobs.into_iter().find(|job| job.record.job == record.job).and_then(|job| job.record.end);
    let code = end.map_or(1, |end| if end.code == 0 { 1 } else { end.code });
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

async fn prepare(request: Request, shim: &ShimFolder, global: &GlobalArgs) -> Result<Prepared, CliError> {
    let Request { words, script, script_name, arguments, inputs } = request;
    for (option, _) in &words.options {
        if IGNORED.iter().any(|known| known.name == *option) && !SILENT.contains(option) {
            let message = format!("--{option} of sbatch is ignored: eyas has no such thing (this is said once)");
            shim.say_once(option, &message);
        }
    }
    let current = std::env::current_dir()?;
    let current = current.to_str().ok_or("the name of the current folder is not valid UTF-8")?.to_owned();
    let folder = words.value("chdir").map_or_else(|| PathBuf::from(&current), |to| Path::new(&current).join(to));
    let folder = folder.to_string_lossy().into_owned();
    let own_name = if words.has("wrap") { "wrap" } else { script_name.as_deref().unwrap_or("sbatch") };
    let name = words.value("job-name").unwrap_or(own_name).to_owned();
    let (resources, tasks, cpus_per_task) = resources(&words)?;
    let time_limit_us = words.value("time").map_or(Ok(None), time_limit_us)?;
    let links: Vec<StagedLink> = staged_links(&script).into_iter().filter(|link| is_file(&link.source)).collect();

    let mut draft = Draft::new(&name).on_cluster(&global.cluster()?);
    let mut staged = Vec::new();
    for source in inputs.iter().chain(links.iter().map(|link| &link.source)) {
        staged.push(draft.input(&Name::from(source.as_str())).await?);
    }
    if staged.is_empty() {
        shim.say_once(
            "uncached",
            "this job names no inputs, so eyas cannot cache what it reads. Name shared files in the script, on lines \
             `#EYAS --input PATH`; links that Nextflow makes to inputs are found (this is said once)",
        );
    }
    let variables: Vec<String> = (1..=staged.len()).map(|number| format!("EYAS_INPUT_{number}")).collect();
    let of_links: Vec<_> = links.iter().zip(variables[inputs.len()..].iter().map(String::as_str)).collect();
    let script = with_variables(&script, of_links.iter().copied());

    let user = name_of_user();
    let file = |option: &str| words.value(option).map(|pattern| file_word(pattern, &name, &user)).transpose();
    let output = words.value("output").unwrap_or("slurm-%j.out");
    let token = format!("{:x}-{:x}", now_unix_ms(), std::process::id());
    let partition = words.value("partition").unwrap_or("eyas").to_owned();
    let end_path = shim.end_path(&token).to_string_lossy().into_owned();
    let mut runner = Runner {
        variables: [
            ("SLURM_JOB_ID", "$EYAS_JOB_ID".to_owned()),
            ("SLURM_JOBID", "$EYAS_JOB_ID".to_owned()),
            ("SLURMD_NODENAME", "$(hostname)".to_owned()),
            ("SLURM_JOB_NODELIST", "$SLURMD_NODENAME".to_owned()),
            ("SLURM_NODELIST", "$SLURMD_NODENAME".to_owned()),
            ("SLURM_JOB_NAME", quoted(&name)),
            ("SLURM_JOB_USER", quoted(&user)),
            ("SLURM_JOB_PARTITION", quoted(&partition)),
            ("SLURM_SUBMIT_DIR", quoted(&current)),
            ("SLURM_CPUS_PER_TASK", cpus_per_task.to_string()),
            ("SLURM_CPUS_ON_NODE", (resources.cpus_milli / 1000).to_string()),
            ("SLURM_JOB_CPUS_PER_NODE", (resources.cpus_milli / 1000).to_string()),
            ("SLURM_NTASKS", tasks.to_string()),
            ("SLURM_NPROCS", tasks.to_string()),
            ("SLURM_JOB_NUM_NODES", "1".to_owned()),
            ("SLURM_NNODES", "1".to_owned()),
            ("SLURM_NODEID", "0".to_owned()),
            ("SLURM_PROCID", "0".to_owned()),
            ("SLURM_LOCALID", "0".to_owned()),
            ("SLURM_MEM_PER_NODE", (resources.memory_bytes >> 20).to_string()),
        ]
        .into_iter()
        .filter(|(name, word)| *name != "SLURM_MEM_PER_NODE" || word != "0")
        .collect(),
        folder: &folder,
        input: file("input")?.unwrap_or("/dev/null".into()),
        output: file_word(output, &name, &user)?,
        error: file("error")?,
        appends: words.value("open-mode").is_some_and(|mode| mode.starts_with('a')),
        inputs: &variables,
        links: of_links,
        end: &end_path,
        script: None,
    };
    let program = runner.program();
    let (mut command, mut files) = (Vec::new(), Vec::new());
    if program.len().max(script.len()) <= MAX_ARGUMENT_BYTES {
        command.extend(["/bin/sh", "-c", &program, "sbatch", &script].map(Template::literal));
    } else {
        let [program_path, script_path] = shim.script_paths(&token);
        let script_file = script_path.to_string_lossy().into_owned();
        runner.script = Some(&script_file);
        command.extend(["/bin/sh", &program_path.to_string_lossy()].map(Template::literal));
        files = vec![(program_path, runner.program()), (script_path, script)];
    }
    command.extend(arguments.iter().map(|word| Template::literal(word.as_str())));
    let mut template = TaskTemplate::new(Program::Command(command));
    template.folder = WorkingFolder::Sandbox;
    template.env = exported(&words).into_iter().map(|(name, value)| (name, Template::literal(value))).collect();
    let of_inputs = variables.iter().enumerate();
    template
        .env
        .extend(of_inputs.map(|(index, name)| (name.clone(), Template::parse(format!("{{input:{}}}", index + 1)))));
    template.resources = resources.clone();
    template.timeout_us = time_limit_us;
    let template = draft.template(template)?;
    draft.task(TaskItem { template, values: Vec::new(), inputs: staged })?;
    let record = JobRecord {
        job: JobId(0),
        token,
        name,
        user,
        account: words.value("account").unwrap_or_default().to_owned(),
        partition,
        comment: words.value("comment").unwrap_or_default().to_owned(),
        output: Path::new(&folder).join(output).to_string_lossy().into_owned(),
        folder,
        cpus: resources.cpus_milli / 1000,
        memory_bytes: resources.memory_bytes,
        time_limit_us,
        submitted_unix_ms: now_unix_ms(),
        end: None,
    };
    Ok(Prepared { draft, record, files })
}

/// Whether a path is of a file, and not of a folder.
fn is_file(path: &str) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file())
}
