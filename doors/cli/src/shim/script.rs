//! The script of a job: its `#SBATCH` and `#EYAS` lines, the links of Nextflow's `nxf_stage`, and
//! the shell program that runs it on a node.

use std::fmt::Write as _;

use super::options::split_line;

/// Folder with a file for each process that `srun` starts in a job, by its number, as a word of a
/// shell.
const STEPS: &str = "\"$EYAS_SANDBOX\"/.slurm_steps";

/// Programs of container engines: a container of Nextflow has the folders of the sources only, not
/// the node's store.
const CONTAINERS: [&str; 9] = [
    "docker ",
    "podman ",
    "singularity ",
    "apptainer ",
    "ch-run ",
    "shifter ",
    "sarus ",
    "udocker ",
    "srun --container",
];

/// The text of a script. A script need not be UTF-8: each byte of another one stands here as a
/// letter of Latin-1, and is written as that byte again.
pub(crate) struct ScriptText {
    pub text: String,
    is_utf8: bool,
}

impl ScriptText {
    pub fn decode(content: Vec<u8>) -> Self {
        match String::from_utf8(content) {
            Ok(text) => ScriptText { text, is_utf8: true },
            Err(other) => {
                let text = other.as_bytes().iter().map(|byte| char::from(*byte)).collect();
                ScriptText { text, is_utf8: false }
            }
        }
    }

    /// The bytes of the script, of a part of it, or of what was made of it.
    pub fn encode(&self, text: &str) -> Vec<u8> {
        let byte = |letter: char| u8::try_from(letter).unwrap_or(b'?');
        if self.is_utf8 { text.into() } else { text.chars().map(byte).collect() }
    }
}

/// A link that a script of Nextflow makes to an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StagedLink {
    /// The file that the link points at, an absolute path.
    pub source: String,
    /// Name of the link in the folder of the task.
    pub name: String,
    /// Number of the line in the script, from 0.
    line: usize,
}

/// The words of the lines that begin with `mark`, before the first command of the script.
pub(crate) fn option_lines(script: &str, mark: &str) -> Vec<String> {
    // A comment may be indented, but not a line of options.
    let head = script
        .lines()
        .take_while(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    head.filter_map(|line| line.strip_prefix(mark)?.strip_prefix([' ', '\t']))
        .flat_map(split_line)
        .collect()
}

/// The links in `nxf_stage` of a script of Nextflow. None if its command runs in a container, which
/// does not have the folders of the node's store.
pub(crate) fn staged_links(script: &str) -> Vec<StagedLink> {
    let launch = body(script, "nxf_launch() {").map(|(_, line)| line);
    if launch.into_iter().any(|line| CONTAINERS.iter().any(|engine| line.contains(engine))) {
        return Vec::new();
    }
    let link = |(number, line): (usize, &str)| {
        let [command, option, source, name] = <[String; 4]>::try_from(split_line(line)).ok()?;
        let is_link = command == "ln"
            && option == "-s"
            && source.starts_with('/')
            && !line.contains(['$', '`']);
        is_link.then_some(StagedLink { source, name, line: number })
    };
    body(script, "nxf_stage() {").filter_map(link).collect()
}

/// The lines of a function, with their numbers.
fn body<'a>(script: &'a str, head: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    script
        .lines()
        .enumerate()
        .skip_while(move |(_, line)| *line != head)
        .skip(1)
        .take_while(|(_, line)| *line != "}")
}

/// The script with links to the node's copies: the source of each link is a variable, by its name.
pub(crate) fn with_variables<'a>(
    script: &str,
    links: impl Iterator<Item = (&'a StagedLink, &'a str)>,
) -> String {
    let mut lines: Vec<_> = script.lines().map(str::to_owned).collect();
    for (link, variable) in links {
        lines[link.line] = format!("    ln -s \"${variable}\" {}", quoted(&link.name));
    }
    lines.join("\n") + "\n"
}

/// A word that a shell reads as this text.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A part of the pattern of a file name.
#[derive(Debug, PartialEq)]
pub(crate) enum NamePart {
    Text(String),
    /// `%4j`: what the letter stands for, a number with at least so many digits.
    Mark {
        letter: char,
        digits: usize,
    },
}

/// The parts of the pattern of a file name.
///
/// # Errors
/// If it has a mark that eyas does not know.
pub(crate) fn name_parts(pattern: &str) -> Result<Vec<NamePart>, String> {
    let mut parts = Vec::new();
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        let mut number = String::new();
        while letter == '%'
            && let Some(digit) = letters.next_if(char::is_ascii_digit)
        {
            number.push(digit);
        }
        let mark = if letter == '%' { letters.next() } else { None };
        match mark {
            Some(letter @ ('j' | 'A' | 'J' | 'N' | 'n' | 's' | 't' | 'x' | 'u')) => {
                // As with Slurm, there are at most ten digits.
                let digits =
                    if number.is_empty() { 0 } else { number.parse().unwrap_or(10).min(10) };
                parts.push(NamePart::Mark { letter, digits });
            }
            None | Some('%') if letter != '%' || mark.is_some() => match parts.last_mut() {
                Some(NamePart::Text(text)) => text.push(letter),
                _ => parts.push(NamePart::Text(letter.into())),
            },
            mark => {
                let mark = mark.map(String::from).unwrap_or_default();
                return Err(format!("eyas does not know %{mark} in the file name `{pattern}`"));
            }
        }
    }
    Ok(parts)
}

/// The place of a job's output or input as a word of a shell: `%j` is known only when the job runs.
///
/// # Errors
/// If the pattern has a mark that eyas does not know.
pub(crate) fn file_word(pattern: &str, name: &str, user: &str) -> Result<String, String> {
    let word = |part| match part {
        NamePart::Text(text) => quoted(&text),
        NamePart::Mark { letter: 'j' | 'A' | 'J', digits: 0 } => "\"$SLURM_JOB_ID\"".into(),
        NamePart::Mark { letter: 'j' | 'A' | 'J', digits } => {
            format!("\"$(printf %0{digits}d \"$SLURM_JOB_ID\")\"")
        }
        NamePart::Mark { letter: 'N', .. } => "\"$SLURMD_NODENAME\"".into(),
        NamePart::Mark { letter: 'x', .. } => quoted(name),
        NamePart::Mark { letter: 'u', .. } => quoted(user),
        NamePart::Mark { digits, .. } => format!("{:0digits$}", 0),
    };
    Ok(name_parts(pattern)?.into_iter().map(word).collect())
}

/// The signal that a job gets before its time limit, by `--signal`.
#[derive(Debug, PartialEq)]
pub(crate) struct Warning {
    /// The signal, as `kill -s` or `kill -` has it.
    pub signal: String,
    /// Whether the script gets it, and not the processes that `srun` has started.
    pub is_for_script: bool,
    /// Time before the limit.
    pub before_s: u64,
}

/// Time before the limit at which a job is warned unless `--signal` says it, seconds.
const WARNED_BEFORE_S: u64 = 60;

impl Warning {
    /// Reads `[B:]SIGNAL[@SECONDS]`.
    ///
    /// # Errors
    /// If the text is something else.
    pub fn read(text: &str) -> Result<Self, String> {
        let wrong = || format!("--signal: `{text}` is not [B:]SIGNAL[@SECONDS], such as B:USR1@60");
        let (signal, before) =
            text.split_once('@').map_or((text, None), |(signal, before)| (signal, Some(before)));
        let (is_for_script, signal) = match signal.split_once(':') {
            Some((of, signal)) if of.eq_ignore_ascii_case("B") => (true, signal),
            Some(_) => return Err(wrong()),
            None => (false, signal),
        };
        let signal = signal.to_ascii_uppercase();
        let signal = signal.strip_prefix("SIG").unwrap_or(&signal);
        let is_signal =
            !signal.is_empty() && signal.chars().all(|letter| letter.is_ascii_alphanumeric());
        let before_s =
            before.map_or(Ok(WARNED_BEFORE_S), |before| before.parse().map_err(|_| wrong()))?;
        is_signal
            .then(|| Warning { signal: signal.into(), is_for_script, before_s })
            .ok_or_else(wrong)
    }
}

/// What the shell program of a job needs to know.
pub(crate) struct Runner<'a> {
    /// Variables to set, with their values as words of a shell.
    pub variables: Vec<(&'a str, String)>,
    /// Working folder.
    pub folder: &'a str,
    /// Standard input, output and error, as words of a shell; error goes to the output if it is
    /// missing.
    pub input: String,
    pub output: String,
    pub error: Option<String>,
    /// Whether the files of output are continued.
    pub appends: bool,
    /// Variables with paths of inputs.
    pub inputs: &'a [String],
    /// Links to restore, with the variables of the node's copies.
    pub links: Vec<(&'a StagedLink, &'a str)>,
    /// The file for the end of the job, in a folder that all nodes see.
    pub end: &'a str,
    /// The file of the script, in such a folder; without it, the script is the first argument of
    /// the program.
    pub script: Option<&'a str>,
    /// Variables that a shell would drop, with the variables that have their values.
    pub dropped: &'a [(String, String)],
    /// The signal before the time limit, and the time limit, seconds.
    pub warning: Option<(Warning, u64)>,
}

impl Runner<'_> {
    /// The program for a shell. Its arguments are the script, unless it is in a file, and the
    /// arguments of the script.
    pub fn program(&self) -> String {
        let mut program = String::new();
        for (name, word) in &self.variables {
            let _ = writeln!(program, "export {name}={word}");
        }
        // The paths of inputs begin in the sandbox, which is the present folder.
        for name in self.inputs {
            let _ =
                writeln!(program, "case ${name} in /*) ;; *) {name}=$EYAS_SANDBOX/${name} ;; esac");
        }
        let to = if self.appends { ">>" } else { ">" };
        // Two openings of one file would overwrite each other.
        let error = self.error.as_ref().filter(|error| **error != self.output);
        let error = error.map_or("2>&1".into(), |error| format!("2{to}{error}"));
        let (folder, input, output, end) =
            (quoted(self.folder), &self.input, &self.output, quoted(self.end));
        let (write_script, shift) = match self.script {
            Some(file) => (format!("cat {}", quoted(file)), ":"),
            None => ("printf %s \"$1\"".to_owned(), "shift"),
        };
        // Programs make the folder of a job by its number, which they know when the job may already
        // run.
        let files = [Some(output), self.error.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .collect::<Vec<_>>()
            .join(" ");
        // A signal goes to the script, too; this shell then waits for the end of the script.
        let _ = write!(
            program,
            "cd {folder} || exit 1\n\
             for file in {files}; do\n\
             case $file in */*) [ -d \"${{file%/*}}\" ] || mkdir -p \"${{file%/*}}\" ;; esac\n\
             done\n\
             exec <{input} {to}{output} {error}\n\
             script=$EYAS_SANDBOX/.slurm_script\n\
             {write_script} >\"$script\" && chmod 700 \"$script\" || exit 1\n\
             {shift}\n\
             trap 'was_signalled=1' TERM INT\n\
             began=$(date +%s)\n"
        );
        program += &self.run();
        for (link, variable) in &self.links {
            let (name, source) = (quoted(&link.name), quoted(&link.source));
            let _ = writeln!(
                program,
                "[ \"$(readlink {name})\" != \"${variable}\" ] || ln -sfn {source} {name}"
            );
        }
        let _ = write!(
            program,
            "end={end}\n\
             {{ echo \"$code $began $(date +%s) $SLURMD_NODENAME\" >\"$end.new\" && \
             mv \"$end.new\" \"$end\"; }} 2>/dev/null\n\
             exit $code\n"
        );
        program
    }

    /// Runs the script. Its exit code is in `$code`.
    fn run(&self) -> String {
        let mut command = String::new();
        if !self.dropped.is_empty() {
            command += "env ";
            self.dropped.iter().for_each(|(name, held)| {
                _ = write!(command, "{}\"${held}\" ", quoted(&format!("{name}=")))
            });
        }
        command += "\"$script\" \"$@\"";
        let Some((warning, limit_s)) = &self.warning else {
            return format!("{command}\ncode=$?\n");
        };
        let Warning { signal, is_for_script, before_s } = warning;
        let send = match is_for_script {
            true => format!("kill -{signal} $job"),
            false => format!("for step in {STEPS}/*; do kill -{signal} \"${{step##*/}}\"; done"),
        };
        // `wait` returns at a signal that is trapped, too.
        format!(
            "{command} <&0 &\n\
             job=$!\n\
             ( sleep {}; {send} ) 2>/dev/null &\n\
             timer=$!\n\
             while :; do was_signalled=; wait $job; code=$?; \
             [ -n \"$was_signalled\" ] || break; done\n\
             kill $timer 2>/dev/null\n",
            limit_s.saturating_sub(*before_s)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXTFLOW: &str = "#!/bin/bash\n#SBATCH -J nf-count_(3)\n\
        #EYAS --input '/a b' --input /c\nset -e\n#SBATCH -t 1\n\
        nxf_launch() {\n    /bin/bash -ue /w/.command.sh\n}\n\n\
        nxf_stage() {\n    true\n    rm -f my\\ file.txt\n    \
        ln -s /shared/my\\ file.txt my\\ file.txt\n    ln -s $HOME/x x\n    ln -s relative y\n}\n\
        ln -s /z z\n";

    #[test]
    fn lines_and_links_are_found() {
        assert_eq!(option_lines(NEXTFLOW, "#SBATCH"), ["-J", "nf-count_(3)"]);
        let indented =
            "#!/bin/sh\n  # a comment\n\t#SBATCH -n 9\n#SBATCH -J a\n true\n#SBATCH -J b\n";
        assert_eq!(option_lines(indented, "#SBATCH"), ["-J", "a"]);
        assert_eq!(option_lines(NEXTFLOW, "#EYAS"), ["--input", "/a b", "--input", "/c"]);
        let links = staged_links(NEXTFLOW);
        let [link] = &links[..] else { panic!("{links:?}") };
        assert_eq!(
            (link.source.as_str(), link.name.as_str()),
            ("/shared/my file.txt", "my file.txt")
        );
        let changed = with_variables(NEXTFLOW, [(link, "EYAS_INPUT_1")].into_iter());
        assert!(
            changed.contains("\n    ln -s \"$EYAS_INPUT_1\" 'my file.txt'\n    ln -s $HOME/x x\n"),
            "{changed}"
        );
        assert_eq!(changed.lines().count(), NEXTFLOW.lines().count());
    }

    #[test]
    fn links_for_containers_stay() {
        assert!(
            staged_links(&NEXTFLOW.replace("/bin/bash -ue", "docker run -i image /bin/bash -ue"))
                .is_empty()
        );
    }

    #[test]
    fn warnings_are_read() {
        let read = |text| {
            Warning::read(text)
                .map(|warning| (warning.signal, warning.is_for_script, warning.before_s))
        };
        assert_eq!(read("USR1"), Ok(("USR1".into(), false, 60)));
        assert_eq!(
            (read("b:sigusr2@90"), read("10@5")),
            (Ok(("USR2".into(), true, 90)), Ok(("10".into(), false, 5)))
        );
        for wrong in ["", "B:", "R:USR1", "USR1@", "USR1@x", "USR1; rm x", "@5"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_of_files_are_words() {
        let word = |pattern| file_word(pattern, "it's", "ann").unwrap();
        assert_eq!(word("a-%j.out"), "'a-'\"$SLURM_JOB_ID\"'.out'");
        assert_eq!(word("%x"), r"'it'\''s'");
        assert_eq!(word("100%%"), "'100%'");
        assert_eq!(word("%4j-%3t"), "\"$(printf %04d \"$SLURM_JOB_ID\")\"'-'000");
        assert!(file_word("%a", "", "").is_err() && file_word("x%", "", "").is_err());
    }
}
