//! A step of a job file that runs a program over the blocks of files: what `eyas map` does once,
//! or the passes of an iteration (elastic-blocks §2.3, iterative jobs).
//!
//! In a pass, `{pass}` is its number from 1, and `{previous}` the output of the pass before; in
//! the first pass, `{previous}` is what `first` says. Whether another pass follows is decided by
//! the client that runs the step.

use eyas_types::dfs::FileName;
use serde::Deserialize;
use thiserror::Error;

use super::values::{Bytes, CommandWords, Duration, one_or_more, some_number};

/// Stands for the number of the pass.
const PASS: &str = "{pass}";
/// Stands for the output of the pass before.
const PREVIOUS: &str = "{previous}";
/// Stands, in `until`, for the folder with the output of the pass.
const TO: &str = "{to}";

/// A step of a job file that runs a program over the blocks of files.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MapStep {
    /// Name by which tables of the file refer to this step.
    pub id: Option<String>,
    /// Ids of tables that end before this step begins.
    #[serde(deserialize_with = "one_or_more")]
    pub after: Vec<String>,
    /// Files of the cluster that are read, or patterns.
    #[serde(deserialize_with = "one_or_more")]
    pub files: Vec<String>,
    /// The program that reads the blocks, and its arguments.
    pub command: CommandWords,
    /// Shell command of a reducer.
    pub reduce: Option<String>,
    /// Number of reducers.
    #[serde(deserialize_with = "some_number")]
    pub reducers: Option<u32>,
    /// Shell command that combines the lines of each program.
    pub combine: Option<String>,
    /// Folder of the cluster for the output.
    pub to: Option<String>,
    /// Local files, and files of the cluster, `eyas:///PATH`, that the programs need.
    #[serde(deserialize_with = "one_or_more")]
    pub inputs: Vec<String>,
    /// Policy that assigns chunks to tasks.
    pub policy: Option<String>,
    /// Parameter of the policy: a share, or `auto`.
    #[serde(deserialize_with = "some_number")]
    pub alpha: Option<String>,
    /// Parameter of the policy.
    #[serde(deserialize_with = "some_number")]
    pub beta: Option<f64>,
    /// Parameter of the policy.
    pub min_block: Option<Bytes>,
    /// Parameter of the policy.
    #[serde(deserialize_with = "some_number")]
    pub waves: Option<u32>,
    /// Number of tasks.
    #[serde(deserialize_with = "some_number")]
    pub tasks: Option<u32>,
    /// Time after which a silent task loses its block.
    pub term: Option<Duration>,
    /// Number of retries after a failure.
    #[serde(deserialize_with = "some_number")]
    pub retries: Option<u32>,
    /// Whether the program is started once for each file.
    pub by_file: bool,
    /// `repeat` if each program reads the header of its file first.
    pub header: Option<String>,
    /// Maximum number of passes; one if missing.
    #[serde(deserialize_with = "some_number")]
    pub repeat: Option<u32>,
    /// What `{previous}` stands for in the first pass.
    #[serde(deserialize_with = "one_or_more")]
    pub first: Vec<String>,
    /// Shell command on this machine after each pass: with the exit code 0, no pass follows.
    pub until: Option<String>,
    /// Memory of each node in which the chunks stay from pass to pass.
    pub memory: Option<Bytes>,
    /// Whether the outputs of all passes stay.
    pub keep: bool,
}

/// What is wrong with a step.
#[derive(Debug, Error)]
pub enum MapStepError {
    /// No files.
    #[error("the map step reads no files: write a line such as files = \"/data/*.csv\"")]
    NoFiles,
    /// A repetition of no passes.
    #[error("`repeat` is the maximum number of passes, of at least 1: write repeat = 10")]
    NoPasses,
    /// A repeated step without a folder.
    #[error(
        "a step with `repeat` has one output for each pass: name their folder with a line such as \
         to = \"/data/ranks\""
    )]
    NoFolder,
    /// A key of iterations in a step of one pass.
    #[error("`{0}` is for a step of several passes: add repeat = N, or leave `{0}` out")]
    NotRepeated(&'static str),
    /// `{previous}` without `first`.
    #[error(
        "{{previous}} in `{0}` is the output of the pass before, and the first pass has none: say \
         what {{previous}} is in the first pass, with a line such as first = \"/data/links.tsv\""
    )]
    NoFirst(&'static str),
    /// `first` without `{previous}`.
    #[error(
        "`first` is what {{previous}} stands for in the first pass, and no line has {{previous}}: \
         write files = \"{{previous}}\" or inputs = [\"{{previous}}\"], or leave `first` out"
    )]
    UnusedFirst,
    /// `{previous}` in both `files` and `inputs`.
    #[error(
        "{{previous}} is in `files` and in `inputs`, but `first` can stand for one of them: name \
         the files or inputs of the other one"
    )]
    TwoPrevious,
    /// `{previous}` as a part of a word.
    #[error(
        "`{word}` in `{key}` has {{previous}} as a part of it, but {{previous}} may stand for \
         several files: write \"{{previous}}\" as a word of its own"
    )]
    PartOfWord {
        /// The key.
        key: &'static str,
        /// The word.
        word: String,
    },
    /// `{previous}` where it has no meaning.
    #[error(
        "`{0}` cannot have {{previous}} in it: {{previous}} is for `files`, `inputs`, `command` \
         and `until`"
    )]
    NoPrevious(&'static str),
    /// `{previous}` in the command, but not in the inputs.
    #[error(
        "the command has the word {{previous}}, but the output of the pass before is no input: \
         add inputs = [\"{{previous}}\"]"
    )]
    NotAnInput,
}

/// The output of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassOutput {
    /// Its folder.
    pub folder: String,
    /// Its files, in order.
    pub files: Vec<FileName>,
}

impl MapStep {
    /// Checks what a step of one pass, or an iteration, must have.
    ///
    /// # Errors
    /// The first mistake.
    pub fn check(&self) -> Result<(), MapStepError> {
        if self.files.is_empty() {
            return Err(MapStepError::NoFiles);
        }
        if self.repeat == Some(0) {
            return Err(MapStepError::NoPasses);
        }
        if self.repeat.is_some() && self.to.is_none() {
            return Err(MapStepError::NoFolder);
        }
        for (key, is_given) in [
            ("first", !self.first.is_empty()),
            ("until", self.until.is_some()),
            ("keep", self.keep),
            ("memory", self.memory.is_some()),
        ] {
            if is_given && self.repeat.is_none() {
                return Err(MapStepError::NotRepeated(key));
            }
        }
        self.check_previous()
    }

    fn check_previous(&self) -> Result<(), MapStepError> {
        let command = self.command();
        let lists = [("files", &self.files), ("inputs", &self.inputs), ("command", &command)];
        for (key, words) in lists {
            let part = words.iter().find(|word| word.contains(PREVIOUS) && *word != PREVIOUS);
            if let Some(word) = part {
                return Err(MapStepError::PartOfWord { key, word: word.clone() });
            }
        }
        for (key, text) in [("to", &self.to), ("reduce", &self.reduce), ("combine", &self.combine)]
        {
            if text.as_ref().is_some_and(|text| text.contains(PREVIOUS)) {
                return Err(MapStepError::NoPrevious(key));
            }
        }
        let has = |words: &[String]| words.iter().any(|word| word == PREVIOUS);
        let until = self.until.as_ref().is_some_and(|until| until.contains(PREVIOUS));
        let used = [
            ("files", has(&self.files)),
            ("inputs", has(&self.inputs)),
            ("command", has(&command)),
            ("until", until),
        ];
        match used.iter().find(|(_, is_used)| *is_used) {
            Some((key, _)) if self.first.is_empty() => Err(MapStepError::NoFirst(key)),
            None if !self.first.is_empty() => Err(MapStepError::UnusedFirst),
            _ if used[0].1 && used[1].1 => Err(MapStepError::TwoPrevious),
            _ if used[2].1 && !used[1].1 => Err(MapStepError::NotAnInput),
            _ => Ok(()),
        }
    }

    /// Maximum number of passes.
    pub fn passes(&self) -> u32 {
        self.repeat.unwrap_or(1)
    }

    /// The words of the command.
    pub fn command(&self) -> Vec<String> {
        self.command.0.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// The folder for the output of a pass. Passes of a step whose folder has no `{pass}` have
    /// folders beside it, such as `/ranks-pass-3` beside `/ranks`, in which the last output
    /// appears.
    pub fn folder_of(&self, pass: u32) -> Option<String> {
        let to = self.to.as_ref()?;
        Some(match self.repeat {
            Some(_) if !to.contains(PASS) => format!("{}-pass-{pass}", to.trim_end_matches('/')),
            _ => to.replace(PASS, &pass.to_string()),
        })
    }

    /// The folder to which the output of the last pass is moved; `None` if it stays where it is.
    pub fn last_folder(&self) -> Option<&str> {
        self.to.as_deref().filter(|to| self.repeat.is_some() && !to.contains(PASS))
    }

    /// The step as it is in a pass, with texts in place of placeholders. `previous` is the output
    /// of the pass before.
    pub fn pass(&self, pass: u32, previous: Option<&PassOutput>) -> MapStep {
        let number = |text: &str| text.replace(PASS, &pass.to_string());
        let put = |words: &[String], previous: &[String]| -> Vec<String> {
            let words = words.iter().flat_map(|word| match word == PREVIOUS {
                true => previous.to_vec(),
                false => vec![number(word)],
            });
            words.collect()
        };
        let pattern = previous.map(|output| vec![format!("{}/part-*", output.folder)]);
        let urls = |output: &PassOutput| {
            output.files.iter().map(|file| format!("eyas://{file}")).collect::<Vec<_>>()
        };
        let first: Vec<_> = self.first.iter().map(|word| number(word)).collect();
        let (pattern, files) = (pattern.unwrap_or(first.clone()), previous.map_or(first, urls));
        let to = self.folder_of(pass);
        let until = |text: &String| {
            let to = to.as_deref().unwrap_or_default();
            number(text).replace(TO, to).replace(PREVIOUS, &pattern.join(" "))
        };
        MapStep {
            files: put(&self.files, &pattern),
            inputs: put(&self.inputs, &files),
            command: CommandWords(
                put(&self.command(), &files).into_iter().map(Into::into).collect(),
            ),
            reduce: self.reduce.as_deref().map(number),
            combine: self.combine.as_deref().map(number),
            until: self.until.as_ref().map(until),
            to,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(text: &str) -> MapStep {
        toml::from_str(text).unwrap()
    }

    fn words(step: &MapStep) -> [String; 4] {
        [step.files.join(" "), step.inputs.join(" "), step.command().join(" "), {
            step.until.clone().unwrap_or_default()
        }]
    }

    #[test]
    fn a_pass_reads_the_output_of_the_pass_before() {
        let before = PassOutput {
            folder: "/out-pass-1".into(),
            files: ["/out-pass-1/part-00000", "/out-pass-1/part-00001"]
                .map(|name| name.parse().unwrap())
                .to_vec(),
        };
        let ranks = step(
            "files = \"{previous}\"\nfirst = \"/links\"\nto = \"/out\"\nrepeat = 3\n\
             command = [\"rank\", \"{pass}\"]\nuntil = \"near {previous} {to}\"",
        );
        ranks.check().unwrap();
        let first = ["/links", "", "rank 1", "near /links /out-pass-1"];
        assert_eq!(words(&ranks.pass(1, None)), first);
        let second = ["/out-pass-1/part-*", "", "rank 2", "near /out-pass-1/part-* /out-pass-2"];
        assert_eq!(words(&ranks.pass(2, Some(&before))), second);
        assert_eq!(ranks.last_folder(), Some("/out"));

        let means = step(
            "files = \"/points\"\ninputs = [\"lib.so\", \"{previous}\"]\nfirst = \"c.tsv\"\n\
             to = \"/out-pass-{pass}\"\nrepeat = 3\ncommand = [\"means\", \"{previous}\"]",
        );
        means.check().unwrap();
        assert_eq!(words(&means.pass(1, None)), ["/points", "lib.so c.tsv", "means c.tsv", ""]);
        let parts = "eyas:///out-pass-1/part-00000 eyas:///out-pass-1/part-00001";
        let second = means.pass(2, Some(&before));
        let expected = ["/points", &format!("lib.so {parts}"), &format!("means {parts}"), ""];
        assert_eq!(words(&second), expected);
        assert_eq!((second.to.as_deref(), means.last_folder()), (Some("/out-pass-2"), None));
    }

    #[test]
    fn mistakes_are_said_with_what_to_write() {
        let base = "files = \"/a\"\ncommand = [\"cat\"]\n";
        for (lines, says) in [
            ("repeat = 0\nto = \"/o\"", "`repeat` is the maximum number of passes, of at least 1"),
            ("repeat = 2", "name their folder"),
            ("until = \"true\"", "`until` is for a step of several passes: add repeat"),
            ("keep = true", "`keep` is for a step"),
            ("memory = \"1GB\"", "`memory` is for a step of several passes"),
            ("repeat = 2\nto = \"/o\"\nfirst = \"/a\"", "no line has {previous}"),
            ("repeat = 2\nto = \"/o\"\ninputs = \"{previous}\"", "say what {previous} is"),
            ("repeat = 2\nto = \"/{previous}\"\nfirst = \"/a\"", "`to` cannot have {previous}"),
            ("inputs = \"x/{previous}\"", "as a word of its own"),
        ] {
            let said = step(&format!("{base}{lines}")).check().unwrap_err().to_string();
            assert!(said.contains(says), "{lines}: {said}");
        }
        for (text, says) in [
            ("command = [\"cat\"]", "files = \"/data/*.csv\""),
            (
                "files = \"{previous}\"\ninputs = \"{previous}\"\nfirst = \"/a\"\nto = \"/o\"\n\
                 repeat = 2",
                "`first` can stand for one of them",
            ),
            (
                "files = \"{previous}\"\ncommand = [\"{previous}\"]\nfirst = \"/a\"\nto = \"/o\"\n\
                 repeat = 2",
                "add inputs = [\"{previous}\"]",
            ),
        ] {
            let said = step(text).check().unwrap_err().to_string();
            assert!(said.contains(says), "{text}: {said}");
        }
    }
}
