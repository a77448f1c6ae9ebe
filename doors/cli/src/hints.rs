//! Hints for command lines that clap refuses: the most likely mistake, and what to type instead.

use std::error::Error;
use std::ffi::OsString;
use std::path::Path;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use eyas_client::types::shown;
use eyas_client::types::shown::{MAX_QUOTED_CHARS, shortened};

use crate::other_names::right_command;
use crate::words::shell_word;

/// Commands that run a command of the user, which follows after `--`.
const WITH_COMMAND: [&[&str]; 3] = [&["run"], &["map"], &["io", "run"]];

/// Lets every option take a negative number, so that the error for such a number names the option.
pub(crate) fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|arg| {
            let is_option = arg.get_long().is_some() && arg.get_action().takes_values();
            if is_option { arg.allow_negative_numbers(true) } else { arg }
        })
        .mut_subcommands(with_negative_numbers)
}

/// Adds a hint to an error about an unexpected word, and says in plain words what is wrong with a
/// number.
pub(crate) fn with_hint(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    if error.kind() == ErrorKind::ValueValidation
        && let Some(number) = error.source().and_then(|why| number_to_write(&why.to_string()))
        && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
    {
        let why = format!(
            "invalid value '{value}' for '{option}': write {number}\n\nFor more information, try \
             '--help'.\n"
        );
        return clap::Error::raw(ErrorKind::ValueValidation, why);
    }
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && is_behind(word, words, &[&[], &["job"], &["task"]])
        && let Some(instead) = right_command(word)
    {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![instead.into()]));
    }
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(unexpected)) = error.get(ContextKind::InvalidArg)
        && let Some(hint) = hint(unexpected, words)
    {
        error.remove(ContextKind::Suggested);
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    }
    error
}

/// Whether a word stands behind one of these commands, each with its words but `eyas`.
fn is_behind(word: &str, words: &[OsString], commands: &[&[&str]]) -> bool {
    let is_before = |before: &&OsString| **before != *word;
    let before: Vec<_> = words.iter().skip(1).take_while(is_before).collect();
    commands.iter().any(|names| match names.last() {
        Some(last) => before.last().is_some_and(|before| **before == **last),
        None => !before.iter().any(|word| !word.as_encoded_bytes().starts_with(b"-")),
    })
}

/// The number to write in place of one that cannot be read, by what its reader says.
fn number_to_write(said: &str) -> Option<String> {
    if let Some((_, range)) = said.split_once(" is not in ") {
        return Some(match range.split_once("..")? {
            (first, "") => format!("a whole number of at least {first}"),
            (first, last) => {
                format!("a whole number from {first} to {}", last.trim_start_matches('='))
            }
        });
    }
    match said {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            Some("a whole number".into())
        }
        "invalid float literal" | "cannot parse float from empty string" => Some("a number".into()),
        _ if said.starts_with("number too") => Some("a whole number that is not as large".into()),
        _ => None,
    }
}

/// The hint for an unexpected word, if the command is one that runs a command of the user.
fn hint(unexpected: &str, words: &[OsString]) -> Option<String> {
    if unexpected == "--help-all" {
        return Some("`--help` shows all options of this command; only `eyas run` has more".into());
    }
    let begins = |names: &&&[&str]| {
        names.iter().zip(words.iter().skip(1)).all(|(name, word)| *word == **name)
    };
    let names = WITH_COMMAND.iter().find(begins)?;
    if unexpected.starts_with('-')
        || words.iter().any(|word| word == "--") && !follows_file(unexpected, words)
    {
        return None;
    }
    let index = words.iter().position(|word| word == unexpected)?;
    if follows_file(unexpected, words) {
        let option =
            words[..index].iter().rev().find(|word| word.as_encoded_bytes().starts_with(b"-"))?;
        let option = shown(option.as_encoded_bytes()).to_string();
        return Some(format!(
            "the shell has replaced a pattern by names of files: write the pattern in quotes, \
             such as {option} '{}'",
            pattern_of(unexpected)
        ));
    }
    let line = |words: &[OsString]| words.iter().map(quoted).collect::<Vec<_>>().join(" ");
    Some(format!(
        "write `--` before the command that {} runs: eyas {} -- {}",
        names.join(" "),
        line(&words[1..index]),
        line(&words[index..])
    ))
}

/// Whether a word names a file and follows a word that names a file: most likely a shell has
/// expanded a pattern.
fn follows_file(unexpected: &str, words: &[OsString]) -> bool {
    let Some(index) = words.iter().position(|word| word == unexpected).filter(|index| *index > 1)
    else {
        return false;
    };
    Path::new(unexpected).exists() && Path::new(&words[index - 1]).exists()
}

/// A pattern that matches the name of a file.
fn pattern_of(name: &str) -> String {
    let path = Path::new(name);
    let file = path
        .extension()
        .map_or("*".to_owned(), |ending| format!("*.{}", shown(ending.as_encoded_bytes())));
    path.parent().map_or(file.clone(), |folder| {
        shown(folder.join(file).as_os_str().as_encoded_bytes()).to_string()
    })
}

fn quoted(word: &OsString) -> String {
    let text = shown(word.as_encoded_bytes()).to_string();
    let text = shortened(&text, MAX_QUOTED_CHARS);
    String::from_utf8_lossy(&shell_word(text.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_is_shown_after_two_dashes() {
        let words = ["eyas", "run", "--each", "*.no", "wc", "-l"].map(OsString::from);
        let hint = hint("wc", &words).unwrap();
        assert!(hint.ends_with("eyas run --each '*.no' -- wc -l"), "{hint}");
        assert_eq!(super::hint("wc", &["eyas", "job", "wc"].map(OsString::from)), None);
    }

    #[test]
    fn wrong_numbers_are_said_in_plain_words() {
        let said = |words: &[&str]| {
            let words: Vec<_> = ["eyas"].iter().chain(words).map(OsString::from).collect();
            let command = crate::commands::Eyas::command();
            with_hint(command.try_get_matches_from(&words).unwrap_err(), &words).to_string()
        };
        for (words, says) in [
            (
                &["run", "--retries", "x", "--", "true"][..],
                "invalid value 'x' for '--retries <N>': write a whole number\n",
            ),
            (
                &["run", "--nodes", "5000", "--", "true"],
                "'5000' for '--nodes <N>': write a whole number from 1 to 1024\n",
            ),
            (
                &["map", "/x", "--tasks", "0", "--", "wc"],
                "'0' for '--tasks <N>': write a whole number from 1 to 4294967295\n",
            ),
            (
                &["run", "--cpus", "x", "--", "true"],
                "'x' for '--cpus <N>': `x` is not a number of processors",
            ),
        ] {
            let said = said(words);
            assert!(said.contains(says), "{words:?}: {said}");
        }
    }

    #[test]
    fn a_pattern_is_guessed_from_a_name() {
        for (name, pattern) in [("a.txt", "*.txt"), ("in/a.fits", "in/*.fits"), ("in/a", "in/*")] {
            assert_eq!(pattern_of(name), pattern);
        }
    }

    #[test]
    fn commands_of_other_systems_are_answered_with_ours() {
        let said = |words: &[&str]| {
            let words: Vec<_> = ["eyas"].iter().chain(words).map(OsString::from).collect();
            let command = crate::help::arranged(crate::commands::Eyas::command(), &words);
            with_hint(command.try_get_matches_from(&words).unwrap_err(), &words).to_string()
        };
        for (words, says) in [
            (&["status"][..], "tip: `eyas job list` lists jobs"),
            (&["logs", "3"], "tip: `eyas task log JOB.INDEX`"),
            (&["ps"], "tip: `eyas job list`"),
            (&["--json", "kill", "3"], "tip: `eyas job cancel JOB`"),
            (&["job", "kill", "3"], "tip: `eyas job cancel JOB`"),
            (&["task", "logs", "3.1"], "tip: `eyas task log JOB.INDEX`"),
            (&["model"], "tip: `eyas simulate model`"),
            (&["submitt", "x"], "'submit'"),
            (&["submit", "--help-all"], "tip: `--help` shows all options of this command"),
        ] {
            let said = said(words);
            assert!(said.contains(says), "{words:?}: {said}");
        }
        let whole = said(&["--help-all"]);
        assert!(whole.contains("Options of every command"), "{whole}");
    }
}
