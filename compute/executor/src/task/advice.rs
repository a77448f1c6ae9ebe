//! What a user can do about a program that has failed for a reason which eyas knows and the program
//! does not: a file that is not in the sandbox, or an input that is a hard link. It is a line after
//! what the program has written to its standard error, so every way to look at a task shows it.

use eyas_store::{path_of, unstaged_files};
use eyas_types::template::Expansion;
use eyas_types::{Name, Outcome, Program, Status, TaskTemplate, WorkingFolder};
use eyas_wire::executor::AssignedInput;

use super::sandbox::{Sandbox, pattern_of};

/// Words with which gzip, bzip2 and xz refuse a file that has several links.
const REFUSALS_OF_LINKS: [&[u8]; 2] = [b" other link", b"more than one hard link"];

/// Adds advice to the standard error of a program that has failed.
pub(super) fn add_advice(
    outcome: &mut Outcome,
    (template, inputs): (&TaskTemplate, &[AssignedInput]),
    with: &Expansion<'_>,
    sandbox: Option<&Sandbox>,
) {
    let (Status::Exited(_), Some(sandbox)) = (&outcome.status, sandbox) else { return };
    let says = |words: &&[u8]| outcome.stderr.windows(words.len()).any(|part| part == *words);
    let mut lines = unstaged(template, with, sandbox);
    let is_link = inputs.iter().any(|input| input.part.is_none());
    if is_link && REFUSALS_OF_LINKS.iter().any(says) {
        lines.push(
            "inputs are hard links, which this program refuses: add --copy-inputs, in a job file \
             copy_inputs = true; or let the program read its standard input and write to another \
             name"
                .into(),
        );
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
fn unstaged(template: &TaskTemplate, with: &Expansion<'_>, sandbox: &Sandbox) -> Vec<String> {
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
    missing.map(|file| file.to_string()).collect()
}
