//! Words of a command line as Slurm's commands read them: `-J NAME`, `-JNAME`, `--job-name NAME`,
//! `--job-name=NAME`, unique beginnings of long names, and groups of letters.

use eyas_client::name_of_user;

/// An option of a command.
#[derive(Clone, Copy)]
pub(crate) struct KnownOption {
    /// The letter, or a space if the option has none.
    pub letter: char,
    /// The long name.
    pub name: &'static str,
    pub value: OptionValue,
}

/// What belongs to an option.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum OptionValue {
    /// No value.
    None,
    /// The next word, or what is attached to the option.
    Needed,
    /// What is attached to the option with `=`, if anything is.
    Attached,
}

/// An option without a value.
pub(crate) const fn flag(letter: char, name: &'static str) -> KnownOption {
    KnownOption { letter, name, value: OptionValue::None }
}

/// An option with a value.
pub(crate) const fn value(letter: char, name: &'static str) -> KnownOption {
    KnownOption { letter, name, value: OptionValue::Needed }
}

/// An option whose value may be left out.
pub(crate) const fn optional(letter: char, name: &'static str) -> KnownOption {
    KnownOption { letter, name, value: OptionValue::Attached }
}

/// What a command line says.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Words {
    /// Options by their long names, in their order. A flag has an empty value.
    pub options: Vec<(&'static str, String)>,
    /// The other words.
    pub others: Vec<String>,
}

impl Words {
    /// Whether an option was given.
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(given, _)| *given == name)
    }

    /// The last value of an option.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    /// The option of a group, and its value, that was given last.
    pub fn last(&self, group: &[&str]) -> Option<(&'static str, &str)> {
        let last = self.options.iter().rev().find(|(given, _)| group.contains(given));
        last.map(|(option, value)| (*option, value.as_str()))
    }

    /// The users that `--me` or `--user` names; `None` if neither is given.
    pub fn users(&self) -> Option<Vec<String>> {
        if self.has("me") { Some(vec![name_of_user()]) } else { self.list("user") }
    }

    /// The parts of a value that commas separate; none if the option was not given.
    pub fn list(&self, name: &str) -> Option<Vec<String>> {
        let value = self.value(name)?;
        Some(
            value
                .split(',')
                .map(|part| part.trim().to_owned())
                .filter(|part| !part.is_empty())
                .collect(),
        )
    }
}

/// Reads a command line. With `stops`, all words from the first one that is no option are not
/// options.
///
/// # Errors
/// If an option is not in a table, or has no value.
pub(crate) fn parse(
    words: &[String],
    tables: &[&[KnownOption]],
    stops: bool,
) -> Result<Words, String> {
    let known = || tables.iter().flat_map(|table| table.iter());
    let mut read = Words::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if word == "--" {
            read.others.extend(rest.cloned());
            break;
        }
        if let Some(long) = word.strip_prefix("--") {
            let (name, given) = match long.split_once('=') {
                Some((name, given)) => (name, Some(given.to_owned())),
                None => (long, None),
            };
            let exact = known().find(|option| option.name == name);
            let mut like = known().filter(|option| option.name.starts_with(name));
            let option = exact.or_else(|| like.next().filter(|_| like.next().is_none()));
            let option = option.ok_or_else(|| format!("eyas does not know the option --{name}"))?;
            let given = match (option.value, given) {
                (OptionValue::Needed | OptionValue::Attached, Some(given)) => given,
                (OptionValue::Needed, None) => {
                    rest.next().cloned().ok_or_else(|| format!("--{name} needs a value"))?
                }
                (OptionValue::None | OptionValue::Attached, None) => String::new(),
                (OptionValue::None, Some(_)) => return Err(format!("--{name} takes no value")),
            };
            read.options.push((option.name, given));
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            for (at, letter) in letters.char_indices() {
                let option = known().find(|option| option.letter == letter && letter != ' ');
                let option =
                    option.ok_or_else(|| format!("eyas does not know the option -{letter}"))?;
                if option.value != OptionValue::Needed {
                    read.options.push((option.name, String::new()));
                    continue;
                }
                // The rest of the word behind `-` and this letter.
                let attached = &word[1 + at + letter.len_utf8()..];
                let given = match attached {
                    "" => rest.next().cloned().ok_or_else(|| format!("-{letter} needs a value"))?,
                    attached => attached.strip_prefix('=').unwrap_or(attached).to_owned(),
                };
                read.options.push((option.name, given));
                break;
            }
        } else {
            read.others.push(word.clone());
            if stops {
                read.others.extend(rest.cloned());
                break;
            }
        }
    }
    Ok(read)
}

/// Words of a line, separated as a shell separates them: quotes and backslashes keep blanks.
pub(crate) fn split_line(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), close) if open == close => quote = None,
            (Some('\''), other) => word.get_or_insert_default().push(other),
            (_, '\\') => word.get_or_insert_default().extend(letters.next()),
            (Some(_), other) => word.get_or_insert_default().push(other),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, blank) if blank.is_whitespace() => words.extend(word.take()),
            (None, '#') if word.is_none() => break,
            (None, other) => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[KnownOption] = &[
        value('J', "job-name"),
        value('t', "time"),
        flag('h', "noheader"),
        flag('H', "hold"),
        optional(' ', "nice"),
    ];

    fn read(line: &str) -> Result<Words, String> {
        parse(&split_line(line), &[TABLE], true)
    }

    #[test]
    fn options_are_read_in_every_form() {
        for line in
            ["-J 'a b' run -x", "-hJ 'a b' run -x", "--job-name='a b' run -x", "--job 'a b' run -x"]
        {
            let words = read(line).unwrap();
            assert_eq!(words.value("job-name"), Some("a b"), "{line}");
            assert_eq!(words.others, ["run", "-x"], "{line}");
        }
        let nice = read("--nice run -x").unwrap();
        assert_eq!(
            (nice.value("nice"), &nice.others[..]),
            (Some(""), &["run".to_owned(), "-x".into()][..])
        );
        assert_eq!(read("--nice=5 run").unwrap().value("nice"), Some("5"));
        assert_eq!(read("-t 1 -t2").unwrap().value("time"), Some("2"), "the last one counts");
        for line in ["--fly", "-x", "-t", "--time", "--hold=1"] {
            assert!(read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        assert_eq!(
            split_line(r#"-J nf-a_(3)  -o "a \"b" 'c d'e \ f # no"#),
            ["-J", "nf-a_(3)", "-o", "a \"b", "c de", " f"]
        );
        assert_eq!(split_line("''"), [""]);
    }
}
