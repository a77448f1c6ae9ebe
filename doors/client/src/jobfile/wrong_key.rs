//! Finds the key of a job file that cannot be read, and says what to write instead. This runs only
//! after the file was refused: it knows each key, what its value is, and an example.

use std::num::NonZeroU32;

use eyas_types::mistake::nearest;
use eyas_types::shown::{MAX_QUOTED_CHARS, shortened};
use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::error::TaskFieldsError;
use super::output::OutputFields;
use super::values::{Bytes, CommandWords, Duration, Number, OneOrMore, named_numbers, one_or_more};
use super::{ArrayIndex, InputFields, Name};

/// A key of a job file.
struct Key {
    name: &'static str,
    /// What its value is.
    is: &'static str,
    /// An example of its value, as JSON.
    example: &'static str,
    /// Why a value cannot be read.
    read: fn(&Value) -> Result<(), String>,
}

const fn key(
    name: &'static str,
    is: &'static str,
    example: &'static str,
    read: fn(&Value) -> Result<(), String>,
) -> Key {
    Key { name, is, example, read }
}

fn reads<T: DeserializeOwned>(value: &Value) -> Result<(), String> {
    T::deserialize(value).map(drop).map_err(|e| e.to_string())
}

fn reads_resources(value: &Value) -> Result<(), String> {
    named_numbers::<_, u64>(value).map(drop).map_err(|e| e.to_string())
}

fn reads_inputs(value: &Value) -> Result<(), String> {
    one_or_more::<_, InputFields>(value).map(drop).map_err(|e| e.to_string())
}

fn reads_texts(value: &Value) -> Result<(), String> {
    one_or_more::<_, String>(value).map(drop).map_err(|e| e.to_string())
}

fn reads_outputs(value: &Value) -> Result<(), String> {
    one_or_more::<_, OutputFields>(value).map(drop).map_err(|e| e.to_string())
}

fn reads_when(value: &Value) -> Result<(), String> {
    super::output::when(value).map(drop).map_err(|e| e.to_string())
}

// Keys of a task and of a whole job file.
const PRIORITY: Key = key("priority", "a whole number", "10", reads::<Number<i32>>);
const REQUIREMENTS: Key = key(
    "requirements",
    "an expression, in quotes",
    r#""node.labels.site == 'a'""#,
    reads::<String>,
);
const RANK: Key = key("rank", "an expression, in quotes", r#""local_bytes""#, reads::<String>);

const AFTER: Key = key("after", "a list of ids, each in quotes", r#"["ranks"]"#, reads_texts);

/// The keys of a task.
const TASK: &[Key] = &[
    key("id", "the name of the task, in quotes", r#""frames""#, reads::<String>),
    AFTER,
    key(
        "command",
        "a list of words, each in quotes",
        r#"["wc", "-l", "in.txt"]"#,
        reads::<CommandWords>,
    ),
    key("noop", "true or false", "true", reads::<bool>),
    key("each", "a pattern of files, or a list of them", r#""in/*.fits""#, reads::<OneOrMore>),
    key(
        "each_block",
        "a pattern of files of the cluster, or a list of them",
        r#""eyas:///in/*.csv""#,
        reads::<OneOrMore>,
    ),
    key("each_line", "the path of a file, in quotes", r#""list.txt""#, reads::<Name>),
    key("separator", "a text, in quotes", r#"",""#, reads::<String>),
    key("append", "true or false", "false", reads::<bool>),
    key(
        "array",
        "a range of numbers, in quotes, or a list of ranges",
        r#""1-100""#,
        reads::<OneOrMore>,
    ),
    key(
        "inputs",
        "a list of paths and of outputs of other tasks",
        r#"["in.txt", {"path": "b.txt"}, {"task": "frames"}]"#,
        reads_inputs,
    ),
    key("outputs", "a list of files", r#"["sum.fits"]"#, reads_outputs),
    key(
        "env",
        "a table of texts",
        r#"{"UNIT": "5"}"#,
        reads::<std::collections::BTreeMap<String, Name>>,
    ),
    key("folder", "a path, or `sandbox`, in quotes", r#""sandbox""#, reads::<Name>),
    key("in_place", "true or false", "true", reads::<bool>),
    key("copy_inputs", "true or false", "true", reads::<bool>),
    key("decompress", "true or false", "true", reads::<bool>),
    key("cpus", "a number of processors", "2", reads::<Number<f64>>),
    key("memory", "a size", r#""4GiB""#, reads::<Bytes>),
    key("disk", "a size", r#""10GB""#, reads::<Bytes>),
    key("resources", "a table of whole numbers", r#"{"gpu": 1}"#, reads_resources),
    PRIORITY,
    REQUIREMENTS,
    RANK,
    key("location_weight", "a number", "0.5", reads::<Number<f64>>),
    key("timeout", "a duration", r#""90s""#, reads::<Duration>),
    key("retries", "a whole number of at least 0", "2", reads::<Number<u32>>),
    key("capture", "a size", r#""1MiB""#, reads::<Bytes>),
];

/// The keys of a whole job file, in TOML.
const FILE: &[Key] = &[
    key("name", "the name of the job, in quotes", r#""stack""#, reads::<String>),
    PRIORITY,
    REQUIREMENTS,
    RANK,
    key("reuse", "true or false", "true", reads::<bool>),
    key("halt", "`never`, in quotes", r#""never""#, reads::<String>),
    key("distribution", "`chain` or `spanning-tree`, in quotes", r#""chain""#, reads::<String>),
    key(
        "task",
        "a list of tasks, each of which begins with [[task]]",
        r#"[{"command": ["true"]}]"#,
        reads::<Vec<serde_json::Map<String, Value>>>,
    ),
    key(
        "map",
        "a list of map steps, each of which begins with [[map]]",
        r#"[{"files": "/a.csv", "command": ["cat"]}]"#,
        reads::<Vec<serde_json::Map<String, Value>>>,
    ),
];

/// The keys of a map step.
const MAP: &[Key] = &[
    key("id", "the name of the step, in quotes", r#""ranks""#, reads::<String>),
    AFTER,
    key("files", "a file of the cluster, or a list", r#""/data/*.csv""#, reads_texts),
    key("command", "a list of words, each in quotes", r#"["grep", "M31"]"#, reads::<CommandWords>),
    key("reduce", "a shell command, in quotes", r#""uniq -c""#, reads::<String>),
    key("reducers", "a whole number", "2", reads::<Number<u32>>),
    key("combine", "a shell command, in quotes", r#""uniq""#, reads::<String>),
    key("to", "a folder of the cluster, in quotes", r#""/data/ranks""#, reads::<String>),
    key("inputs", "a list of files", r#"["centroids.tsv"]"#, reads_texts),
    key("policy", "the name of a policy, in quotes", r#""lean""#, reads::<String>),
    key("alpha", "a share, or \"auto\"", "0.5", reads::<Number<String>>),
    key("beta", "a weight", "0.5", reads::<Number<f64>>),
    key("min_block", "a size", r#""8MiB""#, reads::<Bytes>),
    key("waves", "a whole number", "3", reads::<Number<u32>>),
    key("tasks", "a whole number", "4", reads::<Number<u32>>),
    key("term", "a duration", r#""10s""#, reads::<Duration>),
    key("retries", "a whole number of at least 0", "2", reads::<Number<u32>>),
    key("by_file", "true or false", "true", reads::<bool>),
    key("header", "`repeat`, in quotes", r#""repeat""#, reads::<String>),
    key("repeat", "a maximum number of passes", "10", reads::<Number<u32>>),
    key("first", "what {previous} is in the first pass", r#""/data/links""#, reads_texts),
    key(
        "until",
        "a shell command, in quotes",
        r#""eyas dfs cat '{to}/*' | near""#,
        reads::<String>,
    ),
    key("memory", "a size", r#""2GiB""#, reads::<Bytes>),
    key("keep", "true or false", "true", reads::<bool>),
];

/// The keys of an input that is a table.
const INPUT: &[Key] = &[
    key("path", "a path or URL, in quotes", r#""in.txt""#, reads::<Name>),
    key("url", "a URL, in quotes", r#""s3://bucket/in.txt""#, reads::<Name>),
    key("name", "a file name, in quotes", r#""in.txt""#, reads::<Name>),
    key("range", "a range of bytes, in quotes", r#""0-1GiB""#, reads::<String>),
    key("records", "a range of records, in quotes", r#""0-1000""#, reads::<String>),
    key("decompress", "true or false", "true", reads::<bool>),
    key("with", "a command, in quotes", r#""tar xf {in} -C {out}""#, reads::<Name>),
    key("broadcast", "true or false", "true", reads::<bool>),
    key("task", "the `id` of an earlier task, in quotes", r#""frames""#, reads::<String>),
    key("output", "the `file` of an output, in quotes", r#""sum.fits""#, reads::<Name>),
    key(
        "index",
        "the place of one task in its array, from 0, or \"{}\" for the task at the same place as \
         the one that reads; all of them are read if it is left out",
        "3",
        reads::<Number<ArrayIndex>>,
    ),
    key(
        "group",
        "the number of tasks that each task reads, of at least 1, beside index = \"{}\"",
        "10",
        reads::<Number<NonZeroU32>>,
    ),
    key(
        "into",
        "a file name for each of several inputs, in quotes",
        r#""sums/{index}.fits""#,
        reads::<Name>,
    ),
];

/// The keys of an output that is a table.
const OUTPUT: &[Key] = &[
    key("file", "a file in the sandbox, in quotes", r#""sum.fits""#, reads::<Name>),
    key("to", "a destination, in quotes", r#""sums/{/.}.fits""#, reads::<Name>),
    key("keep", "true, false or \"until-read\"", "true", reads::<super::Keep>),
    key("replicas", "a whole number", "2", reads::<Number<u8>>),
    key("optional", "true or false", "true", reads::<bool>),
    key("when", "\"success\", \"failure\" or \"always\"", r#""always""#, reads_when),
];

/// Keys as other systems name them, and the key that has this meaning here.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("cmd", "command"),
    ("colsep", "separator"),
    ("cores", "cpus"),
    ("cwd", "folder"),
    ("dest", "to"),
    ("destination", "to"),
    ("dir", "folder"),
    ("environment", "env"),
    ("gpu", "resources"),
    ("gpus", "resources"),
    ("mem", "memory"),
    ("program", "command"),
    ("run", "command"),
    ("threads", "cpus"),
    ("time", "timeout"),
    ("time_limit", "timeout"),
    ("walltime", "timeout"),
    ("workdir", "folder"),
];

/// The two ways to write a job file.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Notation {
    Toml,
    Json,
}

impl Notation {
    /// A key with its value.
    fn line(self, key: &str, value: &Value) -> String {
        match self {
            Notation::Toml => format!("{} = {}", toml_key(key), self.value(value)),
            Notation::Json => format!("{}: {value}", Value::from(key)),
        }
    }

    fn value(self, value: &Value) -> String {
        match (self, value) {
            (Notation::Toml, Value::Array(list)) => {
                let elements: Vec<_> = list.iter().map(|element| self.value(element)).collect();
                format!("[{}]", elements.join(", "))
            }
            (Notation::Toml, Value::Object(table)) => {
                let lines: Vec<_> =
                    table.iter().map(|(key, value)| self.line(key, value)).collect();
                format!("{{ {} }}", lines.join(", "))
            }
            _ => value.to_string(),
        }
    }
}

fn toml_key(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    match !key.is_empty() && key.chars().all(is_bare) {
        true => key.to_owned(),
        false => Value::from(key).to_string(),
    }
}

/// A table, list or single value of a job file, and its offset in the text.
struct Node {
    at: usize,
    value: Value,
    inside: Inside,
}

enum Inside {
    Nothing,
    /// Elements of a list.
    List(Vec<Node>),
    /// Keys of a table and their offsets, in the order of the text.
    Table(Vec<(String, usize, Node)>),
}

impl Node {
    fn of_toml(at: usize, value: &DeValue) -> Node {
        let (value, inside) = match value {
            DeValue::String(text) => (Value::from(text.as_ref()), Inside::Nothing),
            DeValue::Integer(number) => {
                let digits = number.as_str().replace('_', "");
                let number = i64::from_str_radix(&digits, number.radix());
                (number.map_or(Value::from(digits), Value::from), Inside::Nothing)
            }
            DeValue::Float(number) => {
                let number: Result<f64, _> = number.as_str().replace('_', "").parse();
                (number.map_or(Value::Null, Value::from), Inside::Nothing)
            }
            DeValue::Boolean(is_so) => (Value::from(*is_so), Inside::Nothing),
            DeValue::Datetime(time) => (Value::from(time.to_string()), Inside::Nothing),
            DeValue::Array(list) => {
                let nodes: Vec<_> = list
                    .iter()
                    .map(|element| Node::of_toml(element.span().start, element.get_ref()))
                    .collect();
                (nodes.iter().map(|node| node.value.clone()).collect(), Inside::List(nodes))
            }
            DeValue::Table(table) => return Node::of_table(at, table),
        };
        Node { at, value, inside }
    }

    fn of_table(at: usize, table: &DeTable) -> Node {
        let mut keys: Vec<_> = table
            .iter()
            .map(|(key, value)| {
                let node = Node::of_toml(value.span().start, value.get_ref());
                (key.get_ref().to_string(), key.span().start, node)
            })
            .collect();
        keys.sort_by_key(|(_, at, _)| *at);
        let value = keys.iter().map(|(key, _, node)| (key.clone(), node.value.clone())).collect();
        Node { at, value: Value::Object(value), inside: Inside::Table(keys) }
    }

    fn of_json(value: &Value) -> Node {
        let inside = match value {
            Value::Array(list) => Inside::List(list.iter().map(Node::of_json).collect()),
            Value::Object(table) => Inside::Table(
                table.iter().map(|(key, value)| (key.clone(), 0, Node::of_json(value))).collect(),
            ),
            _ => Inside::Nothing,
        };
        Node { at: 0, value: value.clone(), inside }
    }
}

/// The first mistake that a job file in TOML has beside its syntax, and its offset.
pub(super) fn in_toml(text: &str) -> Option<(usize, TaskFieldsError)> {
    let table = DeTable::parse(text).ok()?;
    let check = Check(Notation::Toml);
    check.table(&Node::of_table(0, table.get_ref()), "a job file", FILE)
}

/// The first mistake of a task in a line of JSON, beside its syntax.
pub(super) fn in_json(line: &str) -> Option<TaskFieldsError> {
    let value: Value = serde_json::from_str(line).ok()?;
    if !value.is_object() {
        return Some(TaskFieldsError::NoTask);
    }
    let check = Check(Notation::Json);
    check.table(&Node::of_json(&value), "a task", TASK).map(|(_, why)| why)
}

/// Looks for mistakes in tables that are written like this.
struct Check(Notation);

impl Check {
    /// The first mistake in a table that has these keys.
    fn table(
        &self,
        node: &Node,
        of: &'static str,
        keys: &[Key],
    ) -> Option<(usize, TaskFieldsError)> {
        let Inside::Table(inside) = &node.inside else { return None };
        inside.iter().find_map(|(name, at, node)| {
            let Some(key) = keys.iter().find(|key| key.name == name) else {
                return Some((*at, self.unknown(name, &node.value, of, keys)));
            };
            // Where an element of the list is wrong, it says more than the list.
            let elements = match key.name {
                "task" if of == "a job file" => Some(("a task", TASK)),
                "map" if of == "a job file" => Some(("a map step", MAP)),
                "inputs" if of != "a map step" => Some(("an input", INPUT)),
                "outputs" => Some(("an output", OUTPUT)),
                _ => None,
            };
            let inner = elements.and_then(|(of, keys)| match &node.inside {
                Inside::List(list) => list.iter().find_map(|element| self.table(element, of, keys)),
                Inside::Table(_) if !["a task", "a map step"].contains(&of) => {
                    self.table(node, of, keys)
                }
                _ => None,
            });
            let wrong = || {
                let why = (key.read)(&node.value).err()?;
                Some(self.wrong(key, node, *at, why))
            };
            inner.or_else(wrong)
        })
    }

    fn unknown(
        &self,
        name: &str,
        value: &Value,
        of: &'static str,
        keys: &[Key],
    ) -> TaskFieldsError {
        let is = |known: &[Key]| known.iter().any(|key| key.name == name);
        if of == "a job file" && is(TASK) {
            return TaskFieldsError::KeyOfTask(name.to_owned());
        }
        if of == "a task" && is(FILE) {
            return TaskFieldsError::KeyOfJob(name.to_owned());
        }
        let other = OTHER_NAMES.iter().find(|(other, _)| *other == name).map(|(_, key)| *key);
        let known = || keys.iter().map(|key| key.name);
        let near = other.filter(|other| known().any(|key| key == *other));
        let near = near.or_else(|| nearest(name, known()));
        let near = keys.iter().find(|key| Some(key.name) == near);
        TaskFieldsError::UnknownKey {
            key: name.to_owned(),
            of,
            instead: match near {
                Some(key) if (key.read)(value).is_ok() => {
                    format!("the nearest key is `{}`: write {}", key.name, self.short(key, value))
                }
                Some(key) => {
                    format!("the nearest key is `{}`: write {}", key.name, self.example(key))
                }
                None => format!("write one of {}", known().collect::<Vec<_>>().join(", ")),
            },
        }
    }

    /// The mistake in the value of a key at this offset, which its reader has refused.
    fn wrong(&self, key: &Key, node: &Node, at: usize, why: String) -> (usize, TaskFieldsError) {
        // The readers of sizes, durations and commands say what is wrong in their own words.
        const OF_READER: [&str; 6] = [
            "invalid type",
            "invalid value",
            "data did not match",
            "missing field",
            "unknown field",
            "duplicate field",
        ];
        if !OF_READER.iter().any(|begin| why.starts_with(begin)) {
            let own = format!("`{}`", key.name);
            let why = if why.contains(&own) { why } else { format!("{own}: {why}") };
            return (at, TaskFieldsError::Syntax(why));
        }
        if let (Inside::List(list), Some(forms)) = (&node.inside, self.forms(key.name))
            && let Some(element) = list
                .iter()
                .find(|element| (key.read)(&Value::Array(vec![element.value.clone()])).is_err())
        {
            let value = self.0.value(&element.value);
            let value = shortened(&value, MAX_QUOTED_CHARS).into_owned();
            return (element.at, TaskFieldsError::WrongElement { key: key.name, value, forms });
        }
        let as_text = with_texts(&node.value);
        let line = match (key.read)(&as_text) {
            // Quotes alone are missing.
            Ok(()) => self.short(key, &as_text),
            Err(_) => self.example(key),
        };
        let value = shortened(&self.0.value(&node.value), MAX_QUOTED_CHARS).into_owned();
        (at, TaskFieldsError::WrongValue { key: key.name, value, is: key.is, line })
    }

    /// The ways to write an element of a list.
    fn forms(&self, key: &str) -> Option<String> {
        let examples: &[&str] = match key {
            "inputs" => &[
                r#""in.txt""#,
                r#"{"path": "in.txt", "name": "x.txt"}"#,
                r#"{"task": "ID", "output": "sum.fits"}"#,
            ],
            "outputs" => &[r#""sum.fits""#, r#"{"file": "sum.fits", "to": "sums/"}"#],
            _ => return None,
        };
        let forms: Vec<_> = examples.iter().map(|text| self.0.value(&parsed(text))).collect();
        Some(forms.join(" or "))
    }

    fn example(&self, key: &Key) -> String {
        self.0.line(key.name, &parsed(key.example))
    }

    /// The line with this value, unless it is long.
    fn short(&self, key: &Key, value: &Value) -> String {
        let line = self.0.line(key.name, value);
        if line.chars().count() <= MAX_QUOTED_CHARS { line } else { self.example(key) }
    }
}

fn parsed(example: &str) -> Value {
    serde_json::from_str(example).expect("an example of the table above")
}

/// A value with a text in place of each number and truth value.
fn with_texts(value: &Value) -> Value {
    match value {
        Value::Number(_) | Value::Bool(_) => Value::from(value.to_string()),
        Value::Array(list) => list.iter().map(with_texts).collect(),
        Value::Object(table) => Value::Object(
            table.iter().map(|(key, value)| (key.clone(), with_texts(value))).collect(),
        ),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::TaskFields;
    use super::super::read::JobFile;
    use super::*;

    #[test]
    fn the_tables_have_the_keys_that_readers_know() {
        let known = |error: String| -> Vec<String> {
            let (_, known) = error.split_once("expected one of ").expect("a list of keys");
            let known = known.split(" at line").next().expect("the keys");
            known.split(", ").map(|key| key.trim_matches('`').to_owned()).collect()
        };
        let names =
            |keys: &[Key]| -> Vec<String> { keys.iter().map(|key| key.name.to_owned()).collect() };
        let task = serde_json::from_str::<TaskFields>(r#"{"?": 1}"#).unwrap_err().to_string();
        assert_eq!(known(task), names(TASK));
        let output = serde_json::from_str::<OutputFields>(r#"{"?": 1}"#).unwrap_err().to_string();
        assert_eq!(known(output), names(OUTPUT));
        let Err(file) = toml::from_str::<JobFile>("x = 1") else { panic!("it has no key x") };
        assert_eq!(known(file.message().to_owned()), names(FILE));
        let map = serde_json::from_str::<super::super::MapStep>(r#"{"?": 1}"#);
        assert_eq!(known(map.unwrap_err().to_string()), names(MAP));
        for key in [TASK, FILE, MAP, INPUT, OUTPUT].into_iter().flatten() {
            assert_eq!((key.read)(&parsed(key.example)), Ok(()), "{}", key.name);
        }
    }

    /// Lines of a task, and what is said of them, from the number of the line where it matters.
    const MISTAKES: &[(&str, &str)] = &[
        (
            "output = [\"x\"]",
            "3: `output` is not a key of a task: the nearest key is `outputs`: write outputs = \
                 [\"x\"]",
        ),
        (
            "gpus = 2",
            "3: `gpus` is not a key of a task: the nearest key is `resources`: write resources \
                 = { gpu = 1 }",
        ),
        ("mem = \"4GB\"", "the nearest key is `memory`: write memory = \"4GB\""),
        ("zzz = 1", "`zzz` is not a key of a task: write one of id, after, command, noop, each, "),
        ("name = \"x\"", "3: `name` is a key of the whole job: write it before the first"),
        (
            "cpus = \"many\"",
            "3: `cpus` cannot be \"many\": it is a number of processors. Write cpus = 2",
        ),
        ("retries = -1", "`retries` cannot be -1: it is a whole number of at least 0. Write"),
        ("noop = \"yes\"", "3: `noop` cannot be \"yes\": it is true or false. Write noop = true"),
        (
            "command = [\"head\", \"-n\", 5]",
            "it is a list of words, each in quotes. Write command = [\"head\", \"-n\", \"5\"]",
        ),
        ("command = \"wc {}\"", "3: `command` is a list of words: write command = [\"wc\""),
        ("env = { N = 5 }", "Write env = { N = \"5\" }"),
        ("each = 5", "it is a pattern of files, or a list of them. Write each = \"5\""),
        ("array = [1, 2]", "`array` cannot be [1, 2]: it is a range of numbers, in quotes, or "),
        ("memory = \"4XiB\"", "3: `memory`: `4XiB` is not a size: write a number and B, "),
        ("memory = true", "3: `memory` cannot be true: it is a size. Write memory = \"4GiB\""),
        (
            "inputs = [\n\"a\",\n5]",
            "5: `inputs` cannot have 5: write \"in.txt\" or { name = \"x.txt\", path = \
                 \"in.txt\" } or { output = \"sum.fits\", task = \"ID\" }",
        ),
        (
            "inputs = [{ task = \"x\", index = \"{/}\" }]",
            "3: `index` cannot be \"{/}\": it is the place of one task in its array, from 0, or \
                 \"{}\" for the task at the same place as the one that reads; all of them are read \
                 if it is left out. Write index = 3",
        ),
        (
            "inputs = [{ task = \"x\", index = \"{}\", group = 0 }]",
            "3: `group` cannot be 0: it is the number of tasks that each task reads, of at least \
                 1, beside index = \"{}\". Write group = 10",
        ),
        (
            "inputs = [{ file = \"x\" }]",
            "3: `file` is not a key of an input: write one of path, url, name, ",
        ),
        (
            "inputs = { path = \"x\", index = 3 }",
            "3: `inputs` cannot be { index = 3, path = \"x\" }: it is a list of paths",
        ),
        ("inputs = [{ name = \"x\" }]", "3: `inputs` cannot have { name = \"x\" }: write \"in"),
        (
            "outputs = [{ to = \"x\" }]",
            "3: `outputs` cannot have { to = \"x\" }: write \"sum.fits\" or { file = ",
        ),
        (
            "outputs = [{ file = \"x\", keeps = true }]",
            "3: `keeps` is not a key of an output: the nearest key is `keep`: write keep = t",
        ),
        (
            "outputs = [{ file = \"x\", keep = \"long\" }]",
            "3: `keep` cannot be \"long\": write true, false or \"until-read\"",
        ),
    ];

    /// The line of the first mistake, and the message.
    fn toml(text: &str) -> String {
        let (at, why) = in_toml(text).expect("a mistake");
        format!("{}: {why}", text[..at].matches('\n').count() + 1)
    }

    #[test]
    fn a_wrong_key_or_value_is_said_with_the_line_to_write() {
        for (lines, says) in MISTAKES {
            let said = toml(&format!("# A job.\n[[task]]\n{lines}\n"));
            assert!(said.contains(says), "{lines}: {said}");
            assert!(!says.starts_with(char::is_numeric) || said.starts_with(says), "{said}");
        }
        for (text, says) in [
            ("command = [\"true\"]", "1: `command` is a key of a task: write [[task]] on a line "),
            ("names = \"x\"", "1: `names` is not a key of a job file: the nearest key is `name`"),
            ("reuse = 1", "1: `reuse` cannot be 1: it is true or false. Write reuse = true"),
            (
                "[[map]]\nfiles = \"/a\"\nreducrs = 2",
                "3: `reducrs` is not a key of a map step: the nearest key is `reducers`: write",
            ),
            (
                "[[map]]\nwaves = \"many\"",
                "2: `waves` cannot be \"many\": it is a whole number. Write waves = 3",
            ),
            ("task = 5", "1: `task` cannot be 5: it is a list of tasks, each of which begins with"),
        ] {
            let said = toml(text);
            assert!(said.starts_with(says), "{text}: {said}");
        }
        for (line, says) in [
            (
                r#"{"outptus": [{"file": "x"}]}"#,
                r#"the nearest key is `outputs`: write "outputs": [{"file":"x"}]"#,
            ),
            (
                r#"{"cpus": "many"}"#,
                r#"`cpus` cannot be "many": it is a number of processors. Write "cpus": 2"#,
            ),
            ("[1]", r#"each line is a task: write a line such as {"command": ["wc""#),
        ] {
            let said = in_json(line).expect("a mistake").to_string();
            assert!(said.contains(says), "{line}: {said}");
        }
        assert!(in_json("{").is_none() && in_toml("x = ").is_none(), "that is the parser's to say");
    }

    #[test]
    fn values_that_mean_the_same_are_read() {
        let task = |text: &str| toml::from_str::<TaskFields>(text).unwrap();
        let several = task("outputs = [\"x\", { file = \"y\" }]\ninputs = [\"a\"]\ncpus = 2");
        assert_eq!(several.outputs.iter().map(|o| &o.file).collect::<Vec<_>>(), ["x", "y"]);
        let one = task(
            "outputs = \"x\"\ninputs = \"a\"\ncpus = \"2\"\nretries = \"3\"\npriority = \"-1\"\n\
             resources = { gpu = \"1\" }",
        );
        assert_eq!((one.outputs[0].file.as_bytes(), one.inputs.len()), (&b"x"[..], 1));
        assert_eq!((one.cpus, one.retries, one.priority), (several.cpus, 3, Some(-1)));
        assert_eq!(one.resources["gpu"], 1);
        let from = task("inputs = { task = \"x\", index = \"3\" }");
        let of = |index| matches!(index, ArrayIndex::One(3));
        assert!(
            matches!(from.inputs[..], [InputFields::Output { index: Some(index), .. }] if of(index))
        );
        let from = task("inputs = { task = \"x\", index = \"{}\", group = \"3\" }");
        assert!(matches!(
            from.inputs[..],
            [InputFields::Output { index: Some(ArrayIndex::Element), group: Some(_), .. }]
        ));
        let null: TaskFields = serde_json::from_str(r#"{"cpus": null, "priority": null}"#).unwrap();
        assert_eq!((null.cpus, null.priority), (None, None));
    }
}
