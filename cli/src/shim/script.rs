//! The script of a job: its `#SBATCH` and `#EYAS` lines, the links of Nextflow's `nxf_stage`, and the shell program
//! that runs it on a node.

use std::fmt::Write as _;

use super::options::split_line;

/// Programs of container engines: a container of Nextflow has the folders of the sources only, not the node's store.
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
    let head = script.lines().take_while(|line| line.trim().is_empty() || line.starts_with('#'));
    head.filter_map(|line| line.strip_prefix(mark)?.strip_prefix([' ', '\t'])).flat_map(split_line).collect()
}

/// The links in `nxf_stage` of a script of Nextflow. None if its command runs in a container, which does not have the
/// folders of the node's store.
pub(crate) fn staged_links(script: &str) -> Vec<StagedLink> {
    let launch = body(script, "nxf_launch() {").map(|(_, line)| line);
    if launch.into_iter().any(|line| CONTAINERS.iter().any(|engine| line.contains(engine))) {
        return Vec::new();
    }
    let link = |(number, line): (usize, &str)| {
        let [command, option, source, name] = <[String; 4]>::try_from(split_line(line)).ok()?;
        let is_link = command == "ln" && option == "-s" && source.starts_with('/') && !line.contains(['$', '`']);
        is_link.then_some(StagedLink { source, name, line: number })
    };
    body(script, "nxf_stage() {").filter_map(link).collect()
}

/// The lines of a function, with their numbers.
fn body<'a>(script: &'a str, head: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    script.lines().enumerate().skip_while(move |(_, line)| *line != head).skip(1).take_while(|(_, line)| *line != "}")
}

/// The script with links to the node's copies: the source of each link is a variable, by its name.
pub(crate) fn with_variables<'a>(script: &str, links: impl Iterator<Item = (&'a StagedLink, &'a str)>) -> String {
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

/// The place of a job's output or input as a word of a shell: `%j` is known only when the job runs.
///
/// # Errors
/// If the pattern has a mark that eyas does not know.
pub(crate) fn file_word(pattern: &str, name: &str, user: &str) -> Result<String, String> {
    let (mut word, mut plain) = (String::new(), String::new());
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            plain.push(letter);
            continue;
        }
        let variable = match letters.next() {
            Some('j' | 'A' | 'J') => "\"$SLURM_JOB_ID\"",
            Some('N') => "\"$SLURMD_NODENAME\"",
            Some('n' | 's' | 't') => "0",
            Some(mark @ ('x' | 'u' | '%')) => {
                plain.push_str(match mark {
                    'x' => name,
                    'u' => user,
                    _ => "%",
                });
                continue;
            }
            other => {
                let mark = other.map(String::from).unwrap_or_default();
                return Err(format!("eyas does not know %{mark} in the file name `{pattern}`"));
            }
        };
        if !plain.is_empty() {
            word += &quoted(&std::mem::take(&mut plain));
        }
        word += variable;
    }
    if !plain.is_empty() {
        word += &quoted(&plain);
    }
    Ok(word)
}

/// What the shell program of a job needs to know.
pub(crate) struct Runner<'a> {
    /// Variables to set, with their values as words of a shell.
    pub variables: Vec<(&'a str, String)>,
    /// Working folder.
    pub folder: &'a str,
    /// Standard input, output and error, as words of a shell; error goes to the output if it is missing.
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
    /// The file of the script, in such a folder; without it, the script is the first argument of the program.
    pub script: Option<&'a str>,
}

impl Runner<'_> {
    /// The program for a shell. Its arguments are the script, unless it is in a file, and the arguments of the script.
    pub fn program(&self) -> String {
        let mut program = String::new();
        for (name, word) in &self.variables {
            let _ = writeln!(program, "export {name}={word}");
        }
        // The paths of inputs begin in the sandbox, which is the present folder.
        for name in self.inputs {
            let _ = writeln!(program, "case ${name} in /*) ;; *) {name}=$EYAS_SANDBOX/${name} ;; esac");
        }
        let to = if self.appends { ">>" } else { ">" };
        // Two openings of one file would overwrite each other.
        let error = self.error.as_ref().filter(|error| **error != self.output);
        let error = error.map_or("2>&1".into(), |error| format!("2{to}{error}"));
        let (folder, input, output, end) = (quoted(self.folder), &self.input, &self.output, quoted(self.end));
        let (write_script, shift) = match self.script {
            Some(file) => (format!("cat {}", quoted(file)), ":"),
            None => ("printf %s \"$1\"".to_owned(), "shift"),
        };
        // A signal goes to the script, too; this shell then waits for the end of the script.
        let _ = write!(
            program,
            "cd {folder} || exit 1\n\
             exec <{input} {to}{output} {error}\n\
             script=$EYAS_SANDBOX/.slurm_script\n\
             {write_script} >\"$script\" && chmod 700 \"$script\" || exit 1\n\
             {shift}\n\
             trap : TERM INT\n\
             began=$(date +%s)\n\
             \"$script\" \"$@\"\n\
             code=$?\n"
        );
        for (link, variable) in &self.links {
            let (name, source) = (quoted(&link.name), quoted(&link.source));
            let _ = writeln!(program, "[ \"$(readlink {name})\" != \"${variable}\" ] || ln -sfn {source} {name}");
        }
        let _ = write!(
            program,
            "end={end}\n\
             {{ echo \"$code $began $(date +%s) $SLURMD_NODENAME\" >\"$end.new\" && mv \"$end.new\" \"$end\"; }} \
             2>/dev/null\n\
             exit $code\n"
        );
        program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXTFLOW: &str = "#!/bin/bash\n#SBATCH -J nf-count_(3)\n#EYAS --input '/a b' --input /c\nset -e\n\
        #SBATCH -t 1\nnxf_launch() {\n    /bin/bash -ue /w/.command.sh\n}\n\nnxf_stage() {\n    true\n    \
        rm -f my\\ file.txt\n    \
        ln -s /shared/my\\ file.txt my\\ file.txt\n    ln -s $HOME/x x\n    ln -s relative y\n}\nln -s /z z\n";

    #[test]
    fn lines_and_links_are_found() {
        assert_eq!(option_lines(NEXTFLOW, "#SBATCH"), ["-J", "nf-count_(3)"]);
        assert_eq!(option_lines(NEXTFLOW, "#EYAS"), ["--input", "/a b", "--input", "/c"]);
        let links = staged_links(NEXTFLOW);
        let [link] = &links[..] else { panic!("{links:?}") };
        assert_eq!((link.source.as_str(), link.name.as_str()), ("/shared/my file.txt", "my file.txt"));
        let changed = with_variables(NEXTFLOW, [(link, "EYAS_INPUT_1")].into_iter());
        assert!(changed.contains("\n    ln -s \"$EYAS_INPUT_1\" 'my file.txt'\n    ln -s $HOME/x x\n"), "{changed}");
        assert_eq!(changed.lines().count(), NEXTFLOW.lines().count());
    }

    #[test]
    fn links_for_containers_stay() {
        assert!(staged_links(&NEXTFLOW.replace("/bin/bash -ue", "docker run -i image /bin/bash -ue")).is_empty());
    }

    #[test]
    fn names_of_files_are_words() {
        let word = |pattern| file_word(pattern, "it's", "ann").unwrap();
        assert_eq!(word("a-%j.out"), "'a-'\"$SLURM_JOB_ID\"'.out'");
        assert_eq!(word("%x"), r"'it'\''s'");
        assert_eq!(word("100%%"), "'100%'");
        assert!(file_word("%a", "", "").is_err() && file_word("x%", "", "").is_err());
    }
}
