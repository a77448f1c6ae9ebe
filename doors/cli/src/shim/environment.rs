//! The environment of a job.

use eyas_client::types::Name;

use super::options::Words;

/// The environment of a job, as its template has it.
pub(super) struct JobEnvironment {
    pub variables: Vec<(String, Name)>,
    /// Variables that a shell would drop, each with the variable that has its value.
    pub dropped: Vec<(String, String)>,
}

impl JobEnvironment {
    /// The environment that the job gets from the submission, by `--export`.
    pub fn of(words: &Words) -> Self {
        let (mut variables, mut held, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
        for (name, value) in exported(words) {
            if is_shell_name(&name) {
                variables.push((name, value));
            } else {
                let holder = format!("EYAS_VARIABLE_{}", dropped.len() + 1);
                held.push((holder.clone(), value));
                dropped.push((name, holder));
            }
        }
        variables.append(&mut held);
        JobEnvironment { variables, dropped }
    }
}

fn exported(words: &Words) -> Vec<(String, Name)> {
    let list = words.value("export").map_or_else(|| vec!["ALL".to_owned()], split_list);
    let has_all = list.iter().any(|word| word == "ALL");
    let mut variables = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Ok(name) = name.into_string() else { continue };
        let is_own = ["EYAS_", "SLURM_"].iter().any(|prefix| name.starts_with(prefix))
            || ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str());
        if (has_all && !is_own) || list.contains(&name) {
            variables.push((name, Name::from(value.as_encoded_bytes())));
        }
    }
    for (name, value) in list.iter().filter_map(|word| word.split_once('=')) {
        variables.retain(|(known, _)| known != name);
        variables.push((name.to_owned(), Name::from(value)));
    }
    variables
}

/// The parts of a list that commas separate. As with Slurm, quotes keep commas, and are part of the
/// value.
fn split_list(list: &str) -> Vec<String> {
    let (mut parts, mut quote) = (vec![String::new()], None);
    for letter in list.chars() {
        match (quote, letter) {
            (None, ',') => parts.push(String::new()),
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), close) if open == close => quote = None,
            _ => {}
        }
        if letter != ',' || quote.is_some() {
            parts.last_mut().expect("there is one").push(letter);
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Whether a shell knows a variable of this name. `dash`, which is `/bin/sh` of Debian, drops other
/// variables, such as those in which `bash` exports functions (`BASH_FUNC_module%%`).
fn is_shell_name(name: &str) -> bool {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    !name.is_empty()
        && name.chars().all(is_of_name)
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_commas() {
        assert_eq!(
            split_list("A='x,y',B=2,ALL,C=\"p,q\"r,D='\","),
            ["A='x,y'", "B=2", "ALL", "C=\"p,q\"r", "D='\","]
        );
        assert_eq!(split_list(",A,,B,"), ["A", "B"]);
    }

    #[test]
    fn names_of_functions_are_no_shell_names() {
        assert!(is_shell_name("PATH") && is_shell_name("_a1"));
        for other in ["BASH_FUNC_module%%", "a.b", "1a", "", "é"] {
            assert!(!is_shell_name(other), "{other}");
        }
    }
}
