//! What a task has written in place of an output that is missing: most often, the program has given
//! its file another name.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use eyas_store::{Glob, name_of, path_of};
use eyas_types::template::Expansion;
use eyas_types::{Name, OutputSpec, TaskTemplate};

use super::in_place::is_in_place;
use super::sandbox::{Sandbox, pattern_of};

/// Most names that the message has.
const MAX_NAMES: usize = 3;
/// Entries of the sandbox that are looked at.
const MAX_ENTRIES: usize = 1000;

/// The end of the message that a task did not write `missing`, one of its outputs. Empty if it has
/// written nothing else, or runs in place.
pub(super) fn written_instead(
    template: &TaskTemplate,
    missing: &OutputSpec,
    with: &Expansion<'_>,
    sandbox: &Sandbox,
) -> String {
    if is_in_place(template) {
        return String::new();
    }
    let inputs: HashSet<PathBuf> = with.staged.iter().map(plain).collect();
    let outputs: Vec<_> = template
        .outputs
        .iter()
        .filter(|output| !output.is_stream())
        .map(|output| pattern_of(&output.pattern, with))
        .collect();
    let is_output = |name: &Name| {
        outputs.iter().any(|(pattern, is_glob)| match is_glob {
            true => Glob::parse(pattern).is_ok_and(|glob| glob.names(name)),
            false => plain(pattern) == plain(name),
        })
    };
    let files = files_in(sandbox.folder()).into_iter().filter(|file| !inputs.contains(file));
    let names: Vec<_> = files.map(name_of).filter(|name| !is_output(name)).collect();
    let quoted = |name: &Name| format!("`{name}`");
    match &names[..] {
        [] => String::new(),
        [name] => format!("; it wrote `{name}`{}", how_to_take(name, missing, with)),
        [names @ .., last] if names.len() < MAX_NAMES => {
            let names: Vec<_> = names.iter().map(quoted).collect();
            format!("; it wrote {} and `{last}`", names.join(", "))
        }
        names => {
            let shown: Vec<_> = names.iter().take(MAX_NAMES).map(quoted).collect();
            format!("; it wrote {} and others", shown.join(", "))
        }
    }
}

/// What to write so that a file goes where the missing output was to go. Empty if that is not
/// known, or if the file is named after the item, so that other tasks write other files.
fn how_to_take(name: &Name, missing: &OutputSpec, with: &Expansion<'_>) -> String {
    let Some(destination) = missing.destination.as_ref().filter(|_| !missing.pattern.is_glob())
    else {
        return String::new();
    };
    let is_of_item = with.values.iter().any(|value| {
        let stem = path_of(&value.text).file_stem().unwrap_or_default().as_encoded_bytes();
        !stem.is_empty() && name.windows(stem.len()).any(|part| part == stem)
    });
    if is_of_item {
        return String::new();
    }
    // Without a destination of its own, the output was to have its name.
    let to = match destination.written() {
        folder if folder == "./" => missing.pattern.written(),
        to => to,
    };
    format!(": write -o '{name}={to}', in a job file {{ file = \"{name}\", to = \"{to}\" }}")
}

/// A name as a path without `.` in it.
fn plain(name: &Name) -> PathBuf {
    path_of(name).components().filter(|part| *part != Component::CurDir).collect()
}

/// Paths of files in a folder, and of files in its folders, in order.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders, mut left) = (Vec::new(), vec![PathBuf::new()], MAX_ENTRIES);
    while let Some(inner) = folders.pop() {
        let entries = fs::read_dir(folder.join(&inner)).into_iter().flatten().flatten();
        for entry in entries.take(left) {
            left -= 1;
            let path = inner.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                _ => files.push(path),
            }
        }
    }
    files.sort_unstable();
    files
}

#[cfg(test)]
mod tests {
    use eyas_types::{DeliverWhen, Program, Template, Value};

    use super::*;

    #[test]
    fn what_was_written_is_named_with_what_to_write() {
        let outer = tempfile::tempdir().unwrap();
        let values = ["sky/s0.fits", "m31"].map(|text| Value { text: text.into(), input: None });
        let staged = ["in/s0.fits".into(), "./-x".into()];
        let with = Expansion {
            values: &values,
            staged: &staged,
            template_inputs: 0,
            number: 1,
            slot: 1,
            input_list: b"",
        };
        let take = "; it wrote `cut.fits`: write -o 'cut.fits=cutouts/{2}.fits', in a job file \
                    { file = \"cut.fits\", to = \"cutouts/{2}.fits\" }";
        for (number, (written, pattern, to, expected)) in (0..).zip([
            (&["cut.fits"][..], "cutouts/{2}.fits", Some("./"), take),
            (&["cut.fits", "log"], "x.fits", Some("cutouts/{2}.fits"), take),
            (&["cut.fits"], "x.fits", None, "; it wrote `cut.fits`"),
            (&["cut.fits"], "*.txt", Some("./"), "; it wrote `cut.fits`"),
            (&["m31.fits"], "x.fits", Some("./"), "; it wrote `m31.fits`"),
            (&["a", "d/b"], "x", Some("./"), "; it wrote `a` and `d/b`"),
            (&["a", "b", "c", "d"], "x", Some("./"), "; it wrote `a`, `b`, `c` and others"),
            (&[], "x", Some("./"), ""),
        ]) {
            let sandbox = Sandbox::create(outer.path().join(format!("{number}"))).unwrap();
            for name in ["in/s0.fits", "-x"].iter().chain(written) {
                let path = sandbox.folder().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "").unwrap();
            }
            let output = |pattern: &str, to: Option<&str>| OutputSpec {
                pattern: Template::parse(pattern),
                destination: to.map(Template::parse),
                replicas: 0,
                until_read: false,
                optional: false,
                when: DeliverWhen::Success,
            };
            let mut template = TaskTemplate::new(Program::Noop);
            template.outputs = vec![output(pattern, to), output("log", None)];
            let said = written_instead(&template, &template.outputs[0], &with, &sandbox);
            assert_eq!(said, expected, "{written:?} {pattern}");
        }
    }
}
