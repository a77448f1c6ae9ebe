//! What a user can do about a program that has failed for a reason which eyas knows and the program
//! does not: a file that is not in the sandbox, or an input that is a hard link. It is a line after
//! what the program has written to its standard error, so every way to look at a task shows it.

use std::ffi::OsStr;
use std::path::Component;

use eyas_store::{name_of, path_of, unstaged_files};
use eyas_types::template::Expansion;
use eyas_types::{Name, Outcome, PartOfFile, Program, Status, TaskTemplate, WorkingFolder};
use eyas_wire::executor::AssignedInput;

use super::sandbox::{Sandbox, pattern_of};

/// Words with which gzip, bzip2 and xz refuse a file that has several links.
const REFUSALS_OF_LINKS: [&[u8]; 2] = [b" other link", b"more than one hard link"];

/// Most names of outputs that one line has.
const MAX_NAMES: usize = 3;

/// Adds advice to the standard error of a program that has failed.
pub(super) fn add_advice(
    outcome: &mut Outcome,
    (template, inputs): (&TaskTemplate, &[AssignedInput]),
    with: &Expansion<'_>,
    sandbox: Option<&Sandbox>,
) {
    let (Status::Exited(_), Some(sandbox)) = (&outcome.status, sandbox) else { return };
    let says = |words: &&[u8]| outcome.stderr.windows(words.len()).any(|part| part == *words);
    let outputs = outputs_of_tasks(template, inputs, with);
    let mut lines = unstaged(template, with, sandbox, &outputs);
    let is_link = inputs
        .iter()
        .any(|input| matches!(input.part, None | Some(PartOfFile::Decompressed { copied: false })));
    if is_link && REFUSALS_OF_LINKS.iter().any(says) {
        lines.push(
            "inputs are hard links, which this program refuses: add --copy-inputs, in a job file \
             copy_inputs = true; or let the program read its standard input and write to another \
             name"
                .into(),
        );
    }
    if says(&&b"File exists"[..]) {
        lines.extend(made_folder(template, with));
    }
    for line in lines {
        if !matches!(outcome.stderr.last(), None | Some(b'\n')) {
            outcome.stderr.push(b'\n');
        }
        outcome.stderr.extend(format!("eyas: {line}\n").into_bytes());
    }
}

/// Says which files of the folder of submission the command names, as far as this node sees them,
/// that were not in the sandbox.
fn unstaged(
    template: &TaskTemplate,
    with: &Expansion<'_>,
    sandbox: &Sandbox,
    outputs: &[&Name],
) -> Vec<String> {
    let (WorkingFolder::Sandbox, Program::Command(words)) = (&template.folder, &template.program)
    else {
        return Vec::new();
    };
    let mut has = with.staged.to_vec();
    for output in template.outputs.iter().filter(|output| !output.is_stream()) {
        has.push(pattern_of(&output.pattern, with).0);
        has.extend(output.destination.as_ref().map(|place| place.expand(with)));
    }
    let words: Vec<Name> = words.iter().skip(1).map(|word| word.expand(with)).collect();
    let files =
        unstaged_files(path_of(&template.base), words.iter().map(|word| word.as_bytes()), &has);
    let is_missing = |name: &Name| !sandbox.folder().join(path_of(name)).exists();
    let missing = files.iter().filter(|file| is_missing(&file.named));
    let mut lines: Vec<_> = missing
        .map(|file| match item_with(&file.named, with) {
            Some(instead) => instead,
            None => match read_from_tasks(&file.named, outputs) {
                // A folder of that name is there by chance: the outputs of tasks are what is read.
                Some(instead) if file.is_folder() => instead,
                Some(instead) => format!("{file}. Or: {instead}"),
                None => file.to_string(),
            },
        })
        .collect();
    lines.dedup();
    lines
}

/// What to write in place of the path of the item, which has another name in the sandbox.
fn item_with(named: &Name, with: &Expansion<'_>) -> Option<String> {
    let place = with.values.iter().position(|value| {
        let is_plain = |part: &Component<'_>| *part != Component::CurDir;
        let parts = |path| path_of(path).components().filter(is_plain);
        value.own_input().is_some() && parts(&value.text).eq(parts(named))
    })?;
    let column = if with.values.len() == 1 { String::new() } else { format!("{}", place + 1) };
    let staged = with.staged.get(with.template_inputs + with.values[place].own_input()?)?;
    Some(format!(
        "`{named}` is the item, which is in the task's folder as `{staged}`: write {{{column}}}"
    ))
}

/// What the sandbox has of other tasks, and how the command gets it; `named` is what the command
/// names in its place.
fn read_from_tasks(named: &Name, outputs: &[&Name]) -> Option<String> {
    let base = |name: &Name| path_of(name).file_name().map(OsStr::to_owned);
    let mut names = outputs.to_vec();
    names.sort_by_key(|name| base(name) != base(named));
    let quoted: Vec<_> = names.iter().take(MAX_NAMES).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > MAX_NAMES { " and others" } else { "" };
    let of = match names.len() {
        0 => return None,
        1 => "the output of another task: write that name",
        _ => "the outputs of other tasks: write these names",
    };
    Some(format!(
        "the task's folder has {}{more}, {of}, or name = \"{named}\" in the input",
        quoted.join(", ")
    ))
}

/// The names in the sandbox of inputs that other tasks have written, as far as it is known here.
fn outputs_of_tasks<'a>(
    template: &TaskTemplate,
    inputs: &[AssignedInput],
    with: &'a Expansion<'_>,
) -> Vec<&'a Name> {
    let is_output = |place: usize, input: &AssignedInput| {
        let declared = template.inputs.get(place);
        declared.is_some_and(|input| input.from.output().is_some()) || input.object.is_kept()
    };
    let all = with.staged.iter().zip(inputs).enumerate();
    all.filter(|(place, (_, input))| is_output(*place, input)).map(|(_, (name, _))| name).collect()
}

/// What to do if the program has tried to make a folder that was made for an output.
fn made_folder(template: &TaskTemplate, with: &Expansion<'_>) -> Option<String> {
    let folders =
        template.outputs.iter().filter(|output| !output.is_stream()).filter_map(|output| {
            let (file, is_glob) = pattern_of(&output.pattern, with);
            let folder = path_of(&file).parent().filter(|_| !is_glob)?;
            (!folder.as_os_str().is_empty()).then(|| (name_of(folder), file.clone()))
        });
    folders.into_iter().next().map(|(folder, file)| {
        format!(
            "the folder `{folder}` of the output `{file}` is made before the command starts: write \
             mkdir -p in place of mkdir"
        )
    })
}

#[cfg(test)]
mod tests {
    use eyas_types::object::{FileMode, Version};
    use eyas_types::{DeliverWhen, Input, InputFrom, ObjectSpec, OutputSpec, Template, Value};

    use super::*;

    /// The advice after `cat WORD` has failed. The folder of submission has the files `n/x`,
    /// `cut.py` and `txt/s0.fa`. The task has the item `txt/s0.fa`. Its sandbox has `outputs` of
    /// other tasks.
    fn advice(word: &str, outputs: &[&str], stderr: &str) -> String {
        let base = tempfile::tempdir().unwrap();
        for name in ["n/x", "cut.py", "txt/s0.fa"] {
            let path = base.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let words = ["cat", word].map(Template::parse);
        let mut template = TaskTemplate::new(Program::Command(words.into()));
        (template.folder, template.base) = (WorkingFolder::Sandbox, name_of(base.path()));
        let output = |task| Input { from: InputFrom::Output { task, output: 0 }, name: None };
        template.inputs = (0..).map(output).take(outputs.len()).collect();
        template.outputs = vec![OutputSpec {
            pattern: Template::parse("d/out"),
            destination: None,
            replicas: 1,
            until_read: false,
            optional: false,
            when: DeliverWhen::Success,
        }];
        let staged: Vec<Name> =
            outputs.iter().chain(&["s0.fa"]).map(|name| (*name).into()).collect();
        let input = |name: &Name| AssignedInput {
            object: ObjectSpec {
                source: Name::concat(&[b"file:///", name]),
                version: Version::Modified { mtime_ns: 0, size_bytes: 0 },
                mode: FileMode::READABLE,
            },
            part: None,
            name: None,
            holders: Vec::new(),
        };
        let inputs: Vec<_> = staged.iter().map(input).collect();
        let with = Expansion {
            values: &[Value { text: "txt/s0.fa".into(), input: Some(0) }],
            staged: &staged,
            template_inputs: outputs.len(),
            number: 1,
            slot: 1,
            input_list: b"",
        };
        let sandbox = Sandbox::create(base.path().join("sandbox")).unwrap();
        let mut outcome = Outcome::of(Status::Exited(1));
        outcome.stderr = stderr.into();
        add_advice(&mut outcome, (&template, &inputs), &with, Some(&sandbox));
        String::from_utf8(outcome.stderr).unwrap()
    }

    #[test]
    fn a_failed_command_is_told_what_its_folder_has() {
        let item =
            "eyas: `txt/s0.fa` is the item, which is in the task's folder as `s0.fa`: write {}\n";
        assert_eq!(advice("txt/s0.fa", &[], ""), item);
        assert_eq!(advice("./txt/s0.fa", &["s1.fa"], ""), item);
        assert_eq!(
            advice("n", &["s1.fa"], ""),
            "eyas: the task's folder has `s1.fa`, the output of another task: write that name, or \
             name = \"n\" in the input\n"
        );
        let several = advice("n", &["1", "2", "3", "x/n"], "");
        assert!(
            several.contains("has `x/n`, `1`, `2` and others, the outputs of other"),
            "{several}"
        );
        // A file is more likely an input that was forgotten.
        let file = advice("cut.py", &["s1.fa"], "");
        assert!(
            file.contains("add -i cut.py") && file.contains(" Or: the task's folder"),
            "{file}"
        );
        assert!(advice("n", &[], "").contains("add -i 'n/**'"));
    }

    #[test]
    fn a_folder_that_was_made_before_is_said() {
        let said = advice("x", &[], "mkdir: cannot create directory 'd': File exists\n");
        assert!(
            said.contains("\neyas: the folder `d` of the output `d/out` is made before"),
            "{said}"
        );
        assert_eq!(advice("x", &[], "other\n"), "other\n");
    }
}
