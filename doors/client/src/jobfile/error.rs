//! What can be wrong with the fields of a task, and with a job file.

use std::fmt;

use eyas_types::task::MAX_REPLICAS;
use eyas_types::units::format_count;
use eyas_types::{Name, PolicyError, Template};
use thiserror::Error;

use crate::draft::{DraftError, NO_ITEM};
use crate::jobfile::map_step::MapStepError;
use crate::jobfile::steps::StepOrderError;
use crate::jobfile::values::{ByteRangeError, RecordRangeError};
use crate::sources::{MAX_LINE_BYTES, SourceError};

/// What is wrong in a job file, and where.
#[derive(Debug, Error)]
#[error(
    "{file}{}{}: {why}",
    line.map_or_else(String::new, |line| format!(", line {line}")),
    column.map_or_else(String::new, |column| format!(", column {column}"))
)]
pub struct JobFileError {
    /// Path of the file.
    pub file: String,
    /// Number of the line, from 1; none if the file cannot be read at all.
    pub line: Option<usize>,
    /// Number of the column, from 1, if it is known.
    pub column: Option<usize>,
    /// The mistake.
    pub why: Box<TaskFieldsError>,
}

/// What is wrong with the fields of a task, of a command line or of a job file.
#[derive(Debug, Error)]
pub enum TaskFieldsError {
    /// The job file cannot be read.
    #[error("{}", unreadable(.0))]
    Unreadable(std::io::Error),
    /// The text is not TOML or JSON, or the reader of a value says what is wrong.
    #[error("{0}")]
    Syntax(String),
    /// The text is not TOML.
    #[error(
        "{why}{}\n{line}",
        if *.has_tasks {
            ""
        } else {
            ". A job file has [[task]] on a line, and below it a line such as command = [\"wc\", \
             \"-l\", \"in.txt\"]"
        }
    )]
    Toml {
        /// What is wrong, and what to write.
        why: String,
        /// The line, and a mark below the place of the mistake.
        line: String,
        /// Whether the text has a task.
        has_tasks: bool,
    },
    /// The text is YAML.
    #[error(
        "this is YAML, but a job file is TOML, or JSON lines in a file whose name ends in .jsonl: \
         write [[task]] on a line, and below it a line such as command = [\"wc\", \"-l\", \
         \"in.txt\"]"
    )]
    Yaml,
    /// The text is a script.
    #[error(
        "this is a script, but a job file is TOML, or JSON lines in a file whose name ends in \
         .jsonl: run the script itself, with `eyas run -- PATH`"
    )]
    Script,
    /// A line of JSON is no object.
    #[error(
        "each line is a task: write a line such as {{\"command\": [\"wc\", \"-l\", \"in.txt\"]}}"
    )]
    NoTask,
    /// A key that is not known.
    #[error("`{key}` is not a key of {of}: {instead}")]
    UnknownKey {
        /// The key.
        key: String,
        /// What has the key, such as "a task".
        of: &'static str,
        /// What to write instead.
        instead: String,
    },
    /// A key of a task stands before the first task.
    #[error("`{0}` is a key of a task: write [[task]] on a line before it")]
    KeyOfTask(String),
    /// A key of the whole job stands in a task.
    #[error(
        "`{0}` is a key of the whole job: write it before the first [[task]] of a job file in TOML"
    )]
    KeyOfJob(String),
    /// A key has a value of the wrong kind.
    #[error("`{key}` cannot be {value}: it is {is}. Write {line}")]
    WrongValue {
        /// The key.
        key: &'static str,
        /// The value as it was written.
        value: String,
        /// What the value has to be.
        is: &'static str,
        /// A line to write instead.
        line: String,
    },
    /// An element of a list has none of the forms that there are.
    #[error("`{key}` cannot have {value}: write {forms}")]
    WrongElement {
        /// The key of the list.
        key: &'static str,
        /// The element as it was written.
        value: String,
        /// The forms that there are.
        forms: String,
    },
    /// A separator without lines.
    #[error(
        "`separator` splits the lines of `each_line` into columns, and the task has no lines: add \
         each_line = \"FILE\", or leave `separator` out"
    )]
    SeparatorWithoutLines,
    /// `append` without files or lines.
    #[error(
        "`append = true` adds the file or line of a task to its command, and the task has none: \
         write {{}} where the command needs a number of `array`, or leave `append` out"
    )]
    AppendWithoutItems,
    /// The job file has the ending of a JSON document.
    #[error(
        "a job file is TOML, or JSON lines with one task on each line: write each task on one \
         line, and give the file a name that ends in .jsonl"
    )]
    JsonDocument,
    /// The file has map steps, but is read as the tasks of one job.
    #[error(
        "a map step is driven by the command that waits for it: run the file with `eyas submit \
         --wait FILE`"
    )]
    MapSteps,
    /// A map step is wrong.
    #[error(transparent)]
    MapStep(#[from] MapStepError),
    /// The order of the steps is wrong.
    #[error(transparent)]
    StepOrder(#[from] StepOrderError),
    /// `after` in a job without map steps.
    #[error(
        "`after` names `{0}`, but the file has no map step: leave `after` out, or name the map \
         step in a [[map]] table of the same file, in TOML"
    )]
    AfterNoMap(String),
    /// `[task]` in place of `[[task]]`.
    #[error("write [[task]] with two brackets on each side: a job file has a list of tasks")]
    SingleBrackets,
    /// A line of JSON is too long for a message.
    #[error(
        "the line is longer than {MAX_LINE_BYTES} bytes: put the data in a file, and name that \
         file as an input"
    )]
    LongLine,
    /// Tasks or inputs cannot be added to the job.
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// The items cannot be listed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A match expression is wrong.
    #[error("{0}")]
    Expression(String),
    /// The name of a distribution is wrong.
    #[error(transparent)]
    Distribution(#[from] PolicyError),
    /// The rule about when the job stops is none.
    #[error(
        "`halt` cannot be `{0}`: a job stops when its first tasks fail in the same way, unless the \
         file has halt = \"never\""
    )]
    Halt(String),
    /// Reading in the background was broken off.
    #[error("reading the items was broken off: {0}")]
    Broken(String),
    /// Two tasks have the same id.
    #[error("two tasks have the id `{0}`: give each task an id of its own")]
    SameId(String),
    /// A task has a command and `noop`.
    #[error("a task has a `command` or `noop = true`, not both: leave one of them out")]
    CommandAndNoop,
    /// A task has no command.
    #[error("the task has no command: write one such as command = [\"wc\", \"-l\", \"in.txt\"]")]
    NoCommand,
    /// The command is a whole command line in one word.
    #[error(
        "the command `{line}` is one word, and no program has that name: write the words apart \
         ({}), or let a shell read the line (sh -c '{line}')",
        line.to_string().split_whitespace().collect::<Vec<_>>().join(", ")
    )]
    LineAsWord {
        /// The word.
        line: Name,
    },
    /// A task with outputs has a working folder of its own choice.
    #[error(
        "output `{0}` is taken from the task's sandbox, so the task cannot have another folder: \
         leave `folder` out, or run in the folder of submission with \
         --in-place (in_place = true in a job file)"
    )]
    FolderAndOutput(Name),
    /// A task that runs in the folder of submission has another folder.
    #[error("`in_place` is the folder of submission, and `folder` is another one: leave one out")]
    FolderAndInPlace,
    /// The name of an environment variable is empty, or has `=` or a zero byte in it.
    #[error("`{0}` cannot be the name of an environment variable: use letters, digits and `_`")]
    Variable(String),
    /// `replicas` beside an output that is not kept.
    #[error(
        "output `{0}` has `replicas` but is not kept in the cluster: add `keep = true`, or leave \
         `replicas` out"
    )]
    ReplicasWithoutKeep(Name),
    /// Too many replicas, or none.
    #[error(
        "output `{file}` cannot have {replicas} replicas: write a number from 1 to {MAX_REPLICAS}"
    )]
    Replicas {
        /// The output.
        file: Name,
        /// The number that was asked for.
        replicas: u8,
    },
    /// An output of failed tasks is to be kept.
    #[error(
        "output `{0}` is delivered when its task fails, and such an output cannot be kept in the \
         cluster: leave `keep` out, and write its destination with `to`"
    )]
    KeptAfterFailure(Name),
    /// The destination of an output has two slashes, as the names of kept outputs have.
    #[error(
        "output `{file}` cannot go to `{to}`: a file of the cluster has three slashes, \
         eyas:///PATH; an output that is kept gets its name, eyas://JOB/TASK/FILE, by itself"
    )]
    KeptDestination {
        /// The output.
        file: Name,
        /// The destination.
        to: Name,
    },
    /// The name of an output has what looks like a placeholder, and is none.
    #[error("output `{file}`: {why}")]
    NoPlaceholder {
        /// The output.
        file: Name,
        /// What is no placeholder, and what is one.
        why: String,
    },
    /// No such number of processors.
    #[error("a task cannot have {0} cpus: write a number from 0.001 to 1000000")]
    Cpus(f64),
    /// The weight of location is no weight.
    #[error("a task cannot have the location weight {0}: write a number of at least 0")]
    LocationWeight(f64),
    /// The weight of location has no rank beside it.
    #[error(
        "`location_weight` weighs location against a `rank`, and the task has none: add a rank, \
         or leave the weight out"
    )]
    WeightWithoutRank,
    /// More than one source of items.
    #[error(
        "a task has one of `each`, `each_block`, `each_line` and `array`: leave the others out, \
         or write several tasks"
    )]
    SeveralItems,
    /// An input names a task that no earlier table has.
    #[error(
        "no earlier task has the id `{0}`: write the task with that id before the tasks that read \
         its outputs"
    )]
    UnknownId(String),
    /// An input names an output that its task does not have.
    #[error("task `{task}` has no output{}", of_outputs(.output.as_ref(), .outputs))]
    UnknownOutput {
        /// The id of the task.
        task: String,
        /// The `file` of the output, if one is named.
        output: Option<Name>,
        /// The outputs that the task has and that are no patterns.
        outputs: Vec<Name>,
    },
    /// An input names an output that is a pattern.
    #[error(
        "`{task}` writes a pattern, `{pattern}`, and another task cannot read a pattern: name each \
         part in its outputs, such as {such_as}"
    )]
    ReadsPattern {
        /// The id of the task.
        task: String,
        /// The output.
        pattern: Name,
        /// Names that the pattern matches.
        such_as: String,
    },
    /// An input names an output that its task delivers only when it fails.
    #[error(
        "`{task}` delivers `{file}` only when it fails, and no other task can read it then: write \
         when = \"always\" in that output, or read another one"
    )]
    ReadsFailure {
        /// The id of the task.
        task: String,
        /// The output.
        file: Name,
    },
    /// `index = "{}"` of a task that is no array.
    #[error("`{task}` is one task, not an array: {instead}")]
    ElementOfOne {
        /// The id of the task.
        task: String,
        /// What to write.
        instead: String,
    },
    /// `group` without `index = "{}"`.
    #[error(
        "`group` is the number of tasks of `{0}` that each task reads: add index = \"{{}}\", or \
         leave `group` out"
    )]
    GroupWithoutIndex(String),
    /// An array that is read element by element has not as many tasks as this one has items.
    #[error(
        "`{key}` makes {}, but {read}, and index = \"{{}}\" needs one for each: leave `{key}` out, \
         or write {}",
        format_count(*.count as u64, "task"),
        format_count(u64::from(.read.groups), "item")
    )]
    LengthOfItems {
        /// The key that has the task's own items.
        key: &'static str,
        /// Number of the task's own items.
        count: usize,
        /// The array that it reads.
        read: ArrayLength,
    },
    /// Two arrays that a task reads element by element have different lengths.
    #[error(
        "index = \"{{}}\" of several inputs needs arrays of one length, but {}, and {}: write \
         `group` for the longer one, or leave `index` out for an array that each task reads as a \
         whole",
        .0[0], .0[1]
    )]
    LengthsOfArrays(Box<[ArrayLength; 2]>),
    /// A name has a placeholder for a column that the writing task does not have.
    #[error(
        "`into = \"{into}\"` has a placeholder for the item of task `{task}`, whose item has {}: \
         write `{{index}}` for the index of that task in its array",
        format_count(*.columns as u64, "column")
    )]
    IntoItem {
        /// The name as it was written.
        into: Name,
        /// The id of the writing task.
        task: String,
        /// Number of columns of its item.
        columns: usize,
    },
    /// A variable has the placeholder for words.
    #[error(
        "variable `{0}` has `{{input:*}}` in it, which stands for several words of the command: \
         write `{{inputs}}` for a file that lists the paths of all inputs"
    )]
    WordsInVariable(String),
    /// A script, or another word with blanks, has the placeholder for words.
    #[error(
        "the word `{0}` of the command has `{{input:*}}` and a blank in it, but the placeholder \
         makes a word of its own for each input. A script gets them as arguments: \
         [\"sh\", \"-c\", 'cat \"$@\" >all', \"sh\", \"{{input:*}}\"]"
    )]
    WordsInScript(Template),
    /// An output has the placeholder for words.
    #[error(
        "the output `{0}` has `{{input:*}}` in it, which stands for several words of the command: \
         write `{{input:1}}` for the first input"
    )]
    WordsInOutput(Template),
    /// An input names a task of an array beyond its end.
    #[error("task `{task}` has no index {index}: it is an array of {count}, which count from 0")]
    UnknownIndex {
        /// The id of the task.
        task: String,
        /// The index that was asked for.
        index: u32,
        /// Number of tasks in the array.
        count: u32,
    },
    /// An input asks for the item of a task that has none.
    #[error("input `{0}` asks for the item, but the task has none: {NO_ITEM}")]
    NoItem(Name),
    /// A pattern in the command means inputs of one name.
    #[error(
        "the task reads several files that are all named `{0}`. Each is in a folder of its own, \
         such as `input-1/{0}`, so a pattern in its command would find none of them: give them \
         different names, with `name`, or with `into = \"parts/{{index}}\"` for the outputs of an \
         array and the files of a pattern, or let the command read `{{inputs}}`, the list of all \
         inputs"
    )]
    SameName(Name),
    /// An input has both a name and a place.
    #[error("the input {0} has both `name` and `into`: write one of them")]
    NameAndInto(String),
    /// An input asks for a column that the item does not have.
    #[error(
        "input `{path}` asks for column {column}, but the item has {}",
        format_count(*.columns as u64, "column")
    )]
    Column {
        /// The input as it was written.
        path: Name,
        /// The column that was asked for.
        column: u16,
        /// Number of columns of the item.
        columns: usize,
    },
    /// A line of a list has fewer columns than the task asks for.
    #[error("{file}, line {line}: {why}{}", of_lines(.separator.as_deref()))]
    ShortLine {
        /// The list.
        file: Name,
        /// Number of the line, from 1.
        line: usize,
        /// The text between columns.
        separator: Option<String>,
        /// The column that is missing.
        why: Box<TaskFieldsError>,
    },
    /// The name of an input leads out of the folder of the task.
    #[error(
        "`{key}` puts an input at `{name}`, which is not in the folder of its task: write a \
         relative path without `..`, such as in/{}",
        last_part(.name)
    )]
    OutsideSandbox {
        /// The key of the input.
        key: &'static str,
        /// The path.
        name: Name,
    },
    /// The task of a line of a list cannot be made.
    #[error("{list}, line {line}: {why}")]
    InLine {
        /// The list.
        list: Name,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong.
        why: Box<TaskFieldsError>,
    },
    /// A word that is nothing but a text in braces, which is no placeholder.
    #[error("the word `{word}` of the command: {why}")]
    NoPlaceholderInCommand {
        /// The word.
        word: Name,
        /// What is no placeholder, and what is one.
        why: String,
    },
    /// The range of an input is malformed.
    #[error(transparent)]
    Range(#[from] ByteRangeError),
    /// The range of records of an input is malformed.
    #[error(transparent)]
    Records(#[from] RecordRangeError),
    /// An input is a range of bytes and a range of records.
    #[error("an input has `range` or `records`, not both: leave one of them out")]
    RangeAndRecords,
    /// A part of the content of a compressed file.
    #[error(
        "an input that is a part of a file (`range`, `records`, `each_block`) cannot have \
         `decompress` or `with`: the task reads all that is made of the file"
    )]
    PartOfCompressed,
    /// An input is decompressed, and a command makes a folder of it.
    #[error(
        "an input has `decompress` or `with`, not both: let the command of `with` decompress it, \
         as in with = \"zstd -dc {{in}} | tar x -C {{out}}\""
    )]
    DecompressAndWith,
    /// A command that makes a folder of an input lacks a placeholder.
    #[error(
        "`with = \"{0}\"` needs {{in}} and {{out}}: the command reads the file {{in}} and writes \
         into the folder {{out}}, as in with = \"tar xf {{in}} -C {{out}}\""
    )]
    Preparation(Name),
    /// A placeholder in such a command is in quotes.
    #[error(
        "`with = \"{0}\"` has {{in}} or {{out}} in quotes, which are added: write {{in}} and \
         {{out}} without them"
    )]
    QuotedPlaceholder(Name),
    /// A pattern of several files has one name in the sandbox.
    #[error(
        "input `{path}` stands for {files} files, but `name` is for one file: leave `name` out, or \
         write into = \"in/{{/}}\" in its place"
    )]
    NameOfSeveral {
        /// The pattern.
        path: Name,
        /// Number of files.
        files: usize,
    },
}

/// The length of an array that another one reads element by element.
#[derive(Debug)]
pub struct ArrayLength {
    /// The id of its task.
    pub task: String,
    /// Number of its tasks.
    pub tasks: u32,
    /// Number of tasks that are read together, if `group` says so.
    pub group: Option<u32>,
    /// Number of groups; of tasks without `group`.
    pub groups: u32,
}

impl fmt::Display for ArrayLength {
    /// Such as "task `cut` has 25 tasks in 3 groups of 10".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |number: u32, noun| format_count(u64::from(number), noun);
        write!(f, "task `{}` has {}", self.task, count(self.tasks, "task"))?;
        match self.group {
            Some(group) => write!(f, " in {} of {group}", count(self.groups, "group")),
            None => Ok(()),
        }
    }
}

/// The output that a task does not have, and those that it has.
fn of_outputs(output: Option<&Name>, outputs: &[Name]) -> String {
    /// Most outputs that are named.
    const SHOWN: usize = 10;
    let named: Vec<_> =
        outputs.iter().take(SHOWN).map(|output| format!("output = \"{output}\"")).collect();
    let more = if outputs.len() > SHOWN { " …" } else { "" };
    match (output, &named[..]) {
        (None, _) => ": add outputs = [\"FILE\"] to that task".into(),
        (Some(output), []) => format!(" `{output}`: add outputs = [\"{output}\"] to that task"),
        (Some(output), named) => format!(" `{output}`: write {}{more}", named.join(" or ")),
    }
}

/// The last part of a path that can be the name of a file.
fn last_part(path: &Name) -> Name {
    let mut parts = path.rsplit(|byte| *byte == b'/');
    let part = parts.find(|part| !part.is_empty() && *part != b"." && *part != b"..");
    part.unwrap_or(b"a.txt").into()
}

/// What to do about a line that lacks a column.
fn of_lines(separator: Option<&str>) -> String {
    match separator {
        Some(separator) => format!(
            "; columns are separated by `{separator}`: add what is missing, or remove the line"
        ),
        None => "; give the text between columns with --colsep (`separator` in a job file)".into(),
    }
}

/// Why a job file cannot be read, and what to do.
fn unreadable(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file: check the path".into(),
        std::io::ErrorKind::IsADirectory => "this is a folder: name the job file in it".into(),
        std::io::ErrorKind::InvalidData => {
            "the file is not text in UTF-8, but a job file is TOML or JSON lines: check the path, \
             or convert the file with `iconv`"
                .into()
        }
        _ => format!("the job file cannot be read: {error}"),
    }
}
