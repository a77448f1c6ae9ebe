//! What `sbatch` is asked: the script, and the options of the command line, the environment and the
//! script.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::PathBuf;

use super::options::{KnownOption, OptionValue, Words, flag, optional, parse, value};
use super::script::{ScriptText, option_lines};
use crate::error::CliError;

/// Maximum size of a script, as Slurm's by default.
const MAX_SCRIPT_BYTES: usize = 4 << 20;

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
    value(' ', "tasks-per-node"),
    value('N', "nodes"),
    value('G', "gpus"),
    value(' ', "gpus-per-node"),
    value(' ', "gpus-per-task"),
    value(' ', "cpus-per-gpu"),
    value(' ', "mem-per-gpu"),
    value(' ', "gres"),
    value(' ', "tmp"),
    value(' ', "export"),
    value(' ', "open-mode"),
    value(' ', "wrap"),
    value('A', "account"),
    value('p', "partition"),
    value(' ', "comment"),
    value(' ', "signal"),
    flag(' ', "parsable"),
    flag('W', "wait"),
    flag('Q', "quiet"),
    flag('v', "verbose"),
];
/// Options without which the job does the same. What eyas does instead is said once.
pub(super) const IGNORED: &[KnownOption] = &[
    value('q', "qos"),
    value('M', "clusters"),
    value('x', "exclude"),
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
pub(super) const SILENT: [&str; 3] = ["no-requeue", "requeue", "clusters"];
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

/// Variables that stand for options, and the options. Others are named `SBATCH_` and the option in
/// capitals.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("SBATCH_ARRAY_INX", "array"),
    ("SBATCH_MEM_PER_NODE", "mem"),
    ("SBATCH_TIMELIMIT", "time"),
    ("SLURM_CLUSTERS", "clusters"),
    ("SLURM_HINT", "hint"),
];
/// Variables of which the job would notice nothing.
const WITHOUT_EFFECT: &[&str] =
    &["SBATCH_DEBUG", "SBATCH_IGNORE_PBS", "SBATCH_DELAY_BOOT", "SBATCH_WAIT_ALL_NODES"];

/// The options that variables such as `SBATCH_PARTITION` stand for, and variables that stand for
/// none.
fn of_environment(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> (Vec<(&'static str, String)>, Vec<String>) {
    let refused = REFUSED.iter().map(|(known, _)| known);
    let known: Vec<&KnownOption> = HONOURED.iter().chain(IGNORED).chain(refused).collect();
    let (mut options, mut unknown) = (Vec::new(), Vec::new());
    for (variable, value) in variables {
        let (Some(variable), Some(value)) = (variable.to_str(), value.to_str()) else { continue };
        let other = OTHER_NAMES
            .iter()
            .find(|(name, _)| *name == variable)
            .map(|(_, option)| (*option).to_owned());
        let usual = || Some(variable.strip_prefix("SBATCH_")?.to_lowercase().replace('_', "-"));
        let Some(name) = other.or_else(usual).filter(|_| !WITHOUT_EFFECT.contains(&variable))
        else {
            continue;
        };
        let Some(option) = known.iter().find(|option| option.name == name) else {
            unknown.push(variable.to_owned());
            continue;
        };
        let is_said = option.value != OptionValue::None || value != "no" && value != "0";
        options.extend(is_said.then(|| (option.name, value.to_owned())));
    }
    options.sort();
    (options, unknown)
}

/// A script with everything that its options say.
pub(super) struct JobRequest {
    pub words: Words,
    pub script: ScriptText,
    /// The path of the script, unless it came from standard input or from `--wrap`.
    pub script_path: Option<PathBuf>,
    pub arguments: Vec<String>,
    /// Sources of `#EYAS --input` lines.
    pub inputs: Vec<String>,
    /// Variables whose options are not known.
    pub unknown: Vec<String>,
}

/// Reads the script and its options. `variables` are those of this process.
///
/// # Errors
/// If the script cannot be read, or an option is not known or is refused.
pub(super) fn read_request(
    words: &[String],
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<JobRequest, CliError> {
    let refused: Vec<KnownOption> = REFUSED.iter().map(|(known, _)| *known).collect();
    let tables = [HONOURED, IGNORED, &refused[..]];
    let mut given = parse(words, &tables, true)?;
    let mut arguments = std::mem::take(&mut given.others);
    let mut script_path = None;
    let content = match (given.value("wrap"), arguments.is_empty()) {
        (Some(_), false) => {
            return Err("--wrap takes no script: write the command or the name of a script".into());
        }
        (Some(command), true) => format!("#!/bin/sh\n{command}\n").into_bytes(),
        (None, true) => {
            let mut content = Vec::new();
            std::io::stdin().read_to_end(&mut content)?;
            content
        }
        (None, false) => {
            let path = arguments.remove(0);
            let content =
                fs::read(&path).map_err(|e| format!("cannot read the script {path}: {e}"))?;
            script_path = Some(std::path::absolute(&path)?);
            content
        }
    };
    check_script(&content)?;
    let script = ScriptText::decode(content);
    // Of options that say the same, the last one counts: the command line's, else the
    // environment's.
    let of_script = option_lines(&script.text, "#SBATCH");
    let mut options =
        parse(&of_script, &tables, false).map_err(|e| format!("#SBATCH: {e}"))?.options;
    let (mut of_variables, unknown) = of_environment(variables);
    options.append(&mut of_variables);
    options.append(&mut given.options);
    let of_eyas = parse(&option_lines(&script.text, "#EYAS"), &[&[value('i', "input")]], false);
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
    Ok(JobRequest {
        words: Words { options, others: Vec::new() },
        script,
        script_path,
        arguments,
        inputs,
        unknown,
    })
}

/// Refuses what Slurm refuses as a script, and scripts that are too large.
fn check_script(content: &[u8]) -> Result<(), CliError> {
    if !content.starts_with(b"#!") {
        let why = "this is not a batch script: its first line must be #! and the path of a \
                   program, such as #!/bin/sh";
        return Err(why.into());
    }
    if content.len() > MAX_SCRIPT_BYTES {
        let why = format!(
            "the script has {} bytes, and at most {MAX_SCRIPT_BYTES} are allowed: let a short \
             script call it",
            content.len()
        );
        return Err(why.into());
    }
    if content.contains(&0) {
        return Err("this is not a batch script: it has bytes of value 0".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stand_for_options() {
        let read = |list: &[(&str, &str)]| {
            of_environment(list.iter().map(|(name, value)| ((*name).into(), (*value).into())))
        };
        let given = [
            ("SBATCH_PARTITION", "long"),
            ("SBATCH_TIMELIMIT", "10"),
            ("SBATCH_MEM_PER_NODE", "1G"),
            ("SBATCH_CPUS_PER_GPU", "2"),
            ("SBATCH_NO_REQUEUE", "1"),
            ("SBATCH_REQUEUE", "0"),
            ("SBATCH_DEBUG", "2"),
            ("SBATCH_FLY", "1"),
            ("HOME", "/"),
        ];
        let expected = [
            ("cpus-per-gpu", "2"),
            ("mem", "1G"),
            ("no-requeue", "1"),
            ("partition", "long"),
            ("time", "10"),
        ];
        let expected = expected.map(|(name, value)| (name, value.to_owned())).to_vec();
        assert_eq!(read(&given), (expected, vec!["SBATCH_FLY".to_owned()]));
    }

    #[test]
    fn the_command_line_counts_before_the_environment_and_that_before_the_script() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.sh");
        // An indented comment, and a name in Latin-1.
        fs::write(&path, b"#!/bin/sh\n  # about\n#SBATCH -J caf\xe9 -p script -A script -c 3\n")
            .unwrap();
        let words = ["-p", "words", path.to_str().unwrap(), "-c", "1"].map(String::from);
        let variables = [("SBATCH_PARTITION", "variables"), ("SBATCH_ACCOUNT", "variables")];
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        let request = read_request(&words, variables).unwrap();
        let value = |option| request.words.value(option).unwrap();
        assert_eq!(
            (value("partition"), value("account"), value("cpus-per-task")),
            ("words", "variables", "3")
        );
        assert_eq!(
            (value("job-name"), &request.arguments[..]),
            ("café", &["-c".to_owned(), "1".into()][..])
        );
        assert_eq!(request.script.encode(&request.script.text), fs::read(&path).unwrap());
    }
}
