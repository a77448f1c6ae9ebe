//! Warnings of words of a command that read the user's own files, from each task, and not the
//! copies of them on the node.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Component;

use eyas_store::path_of;
use eyas_types::{Name, Template, TemplatePart};

use super::paths::mentions;

/// Words of one command that are looked at; the rest of a longer command is not.
const MAX_WORDS: usize = 64;

/// Warnings of words that have the path of an input in them, such as `--db=PATH`. In a sandbox, a
/// relative path is that of the copy. `named` are paths and the places of their inputs.
pub(super) fn not_read(
    words: &[Template],
    named: &[(&Name, Range<u32>)],
    is_sandbox: bool,
) -> Vec<String> {
    let warning = |(path, inputs): &(&Name, Range<u32>)| {
        let is_copy = is_sandbox && is_inside(path);
        if is_copy || path.is_empty() || inputs.len() != 1 {
            return None;
        }
        let is_path = |part: &TemplatePart| match part {
            TemplatePart::Literal(text) => mentions(text, path),
            _ => false,
        };
        let word = words.iter().find(|word| word.0.iter().any(is_path))?;
        Some(format!(
            "`{word}` has the path of the input `{path}` in it, so each task reads that file where \
             it is and not its copy on the node: write {{input:{}}} in place of the path",
            inputs.start + 1
        ))
    };
    named.iter().filter_map(warning).collect()
}

/// Whether a path leads to a file below the folder of submission.
fn is_inside(path: &Name) -> bool {
    let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    !path.is_url() && path_of(path).components().all(is_plain)
}

/// A warning of the first word, or value of an option, that is the beginning of the paths of
/// inputs, such as `db/nr` of `db/nr.phr`, in a task that runs in the folder of submission.
/// `declared` are the URLs of the inputs, and `url` makes one of a path.
pub(super) fn begins_inputs(
    words: &[Name],
    url: impl Fn(&Name) -> Option<Name>,
    declared: &HashMap<Name, u32>,
) -> Option<String> {
    let begins = |word: &Name| {
        let is_path = !word.is_empty() && !word.starts_with(b"-") && is_inside(word);
        // A prefix of files of the folder of submission itself may be any word.
        let after = if word.contains(&b'/') { &b"./"[..] } else { b"/" };
        let start = url(word).filter(|_| is_path)?;
        let is_begun = |input: &Name| {
            let rest = input.strip_prefix(start.as_bytes());
            rest.and_then(|rest| rest.first()).is_some_and(|next| after.contains(next))
        };
        (!declared.contains_key(&start) && declared.keys().any(is_begun)).then(|| {
            format!(
                "`{word}` is the beginning of the paths of inputs, and the task has no folder of \
                 its own: it reads the files where they are, and not the copies on its node. Add \
                 --sandbox (folder = \"sandbox\" in a job file)"
            )
        })
    };
    words.iter().skip(1).take(MAX_WORDS).find_map(|word| {
        let value =
            word.iter().position(|byte| *byte == b'=').map(|at| Name::from(&word[at + 1..]));
        begins(word).or_else(|| value.as_ref().and_then(begins))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_sandbox_is_that_of_the_copy_unless_it_leads_out() {
        for (path, is_sandbox, is_warned) in [
            ("texts/whale.txt", true, false),
            ("./texts/whale.txt", true, false),
            ("whale.txt", true, false),
            ("/data/whale.txt", true, true),
            ("../whale.txt", true, true),
            ("texts/whale.txt", false, true),
            ("whale.txt", false, true),
        ] {
            let script = format!("wc <{path} >n");
            let (words, path) = (["sh", "-c", &script].map(Template::parse), Name::from(path));
            let warnings = not_read(&words, &[(&path, 2..3)], is_sandbox);
            assert_eq!(!warnings.is_empty(), is_warned, "{path}");
            assert!(warnings.iter().all(|why| why.contains("write {input:3}")), "{warnings:?}");
        }
    }

    #[test]
    fn a_word_that_begins_the_paths_of_inputs_is_found() {
        let url = |word: &Name| Some(Name::concat(&[b"file:///base/", word]));
        let declared = |paths: &[&str]| -> HashMap<Name, u32> {
            (0..).zip(paths).map(|(place, path)| (url(&(*path).into()).unwrap(), place)).collect()
        };
        let nr = declared(&["db/nr.phr", "db/nr.psq", "old.txt"]);
        for (words, says) in [
            (&["blastp", "-db", "db/nr"][..], Some("`db/nr` is the beginning")),
            (&["blastp", "--db=db/nr"], Some("`db/nr` is the beginning")),
            (&["ls", "db"], Some("`db` is the beginning")),
            (&["cut", "old", "-db", "db/n", "/db/nr", "../db/nr", "db/nr.phr"], None),
            (&["db/nr"], None),
        ] {
            let words: Vec<_> = words.iter().map(|word| Name::from(*word)).collect();
            let said = begins_inputs(&words, url, &nr);
            let is_right = match says {
                Some(says) => said.as_ref().is_some_and(|said| said.starts_with(says)),
                None => said.is_none(),
            };
            assert!(is_right, "{words:?}: {said:?}");
        }
    }
}
