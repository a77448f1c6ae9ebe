//! Tasks with outputs that run in a folder of the user, `--in-place`. Their outputs are written in
//! the sandbox all the same, so that they appear whole, and that tasks which write files of one
//! name do not meet.

use eyas_store::name_of;
use eyas_types::template::Expansion;
use eyas_types::{Name, Program, TaskTemplate, WorkingFolder};

use super::sandbox::{Sandbox, inside, pattern_of};

/// Whether the tasks of a template run in a folder of the user, and not in their sandboxes.
pub(super) fn is_in_place(template: &TaskTemplate) -> bool {
    matches!((&template.folder, &template.program), (WorkingFolder::Path(_), Program::Command(_)))
}

/// The outputs of a task that runs in place, each with its path in the sandbox.
#[derive(Default)]
pub(super) struct OutputPaths(Vec<(Name, Name)>);

impl OutputPaths {
    pub fn of(template: &TaskTemplate, with: &Expansion<'_>, sandbox: Option<&Sandbox>) -> Self {
        let Some(sandbox) = sandbox.filter(|_| is_in_place(template)) else {
            return OutputPaths::default();
        };
        let mut paths = Vec::new();
        for output in template.outputs.iter().filter(|output| !output.is_stream()) {
            let (file, _) = pattern_of(&output.pattern, with);
            let Ok(relative) = inside(&file) else { continue };
            let path = sandbox.folder().join(relative);
            paths.push((file, name_of(path)));
        }
        OutputPaths(paths)
    }

    /// A word of the command: the path in the sandbox for the name of an output, also after the `=`
    /// of an option.
    pub fn replace(&self, word: Name) -> Name {
        let start = word.iter().position(|byte| *byte == b'=').map_or(0, |at| at + 1);
        let path_of = |name: &[u8]| self.0.iter().find(|(file, _)| **file == *name);
        if let Some((_, path)) = path_of(&word) {
            return path.clone();
        }
        match path_of(&word[start..]) {
            Some((_, path)) => Name::concat(&[&word[..start], path]),
            None => word,
        }
    }
}

/// What to do if a task in place has not written an output, after the message that says so.
pub(super) fn how_to_write(template: &TaskTemplate, output: &Name) -> String {
    match is_in_place(template) {
        true => format!(
            " in its sandbox: a task in place writes its outputs to \"$EYAS_SANDBOX/{output}\"; a \
             word of the command that is `{output}` becomes this path"
        ),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_outputs_become_their_paths() {
        let paths = OutputPaths(vec![("a.tsv".into(), "/s/1/a.tsv".into())]);
        for (word, expected) in [
            ("a.tsv", "/s/1/a.tsv"),
            ("--out=a.tsv", "--out=/s/1/a.tsv"),
            ("xa.tsv", "xa.tsv"),
            ("cat >a.tsv", "cat >a.tsv"),
            ("--out=", "--out="),
            ("", ""),
        ] {
            assert_eq!(paths.replace(word.into()), expected, "{word}");
        }
    }
}
