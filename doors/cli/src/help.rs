//! How the help of the command line is arranged: `eyas --help` shows the commands in groups, and
//! commands with many options have a short help. `--help-all` prints the whole help of such a
//! command; manual pages, completion and the reference have the whole help, too.

use std::ffi::OsString;
use std::fmt::Write;

use clap::{Arg, ArgAction, Command};

/// The commands in the groups of `eyas --help`.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Tasks", &["run", "submit", "map", "job", "task", "explain", "report", "top", "events"]),
    ("Files", &["dfs", "mount", "push", "catalog", "io"]),
    ("Clusters", &["start", "stop", "cluster", "executor", "pool", "access", "proxy", "web"]),
    ("Tools", &["simulate", "shim", "completion", "man"]),
];

/// The end of `eyas --help`. The tests run the examples.
const EXAMPLES: &str = "
  eyas run --each 'texts/*.txt' -- wc -w {}
  eyas run --array 1-10 -- sh -c 'echo {} squared is $(({} * {}))'
  eyas run --each 'texts/*.txt' -o 'n={/.}.n' -- sh -c 'wc -w \"$1\" >n' sh {}

`eyas COMMAND --help` explains a command. Go on with docs/quick-start.md of the
repository, then with the guides in docs/guides. docs/concepts.md explains words.
";

/// Commands with a short help, and the options that it shows. The other options are hidden unless
/// the whole help is asked for.
const SHORT: [(&str, &str); 1] = [(
    "run",
    "help-all each each-line array input output in-place env cpus memory timeout retries \
     keep-order resume resume-failed name report pool jobs nodes",
)];

/// The option that asks for the whole help.
const HELP_ALL: &str = "help-all";
/// Width of the list of options that a short help leaves out.
const LIST_CHARS: usize = 80;

/// The option `--help-all` of a command with a short help.
pub(crate) fn option_for_all() -> Arg {
    Arg::new(HELP_ALL)
        .long(HELP_ALL)
        .action(ArgAction::HelpShort)
        .help("Print help with all options")
        // Beside `--help` and `--version`, which clap adds at the end.
        .help_heading(None::<&str>)
        .display_order(1000)
}

/// The command line with its help arranged for the command line `words`.
pub(crate) fn arranged(eyas: Command, words: &[OsString]) -> Command {
    let template = template(&eyas);
    // The help of `eyas` itself leaves nothing out.
    let eyas = eyas.help_template(template).arg(option_for_all().hide(true));
    let is_option = |word: &&OsString| *word != "--";
    if words.iter().take_while(is_option).any(|word| *word == *format!("--{HELP_ALL}")) {
        return eyas;
    }
    SHORT.iter().fold(eyas, |eyas, (name, shown)| {
        eyas.mut_subcommand(name, |command| shortened(command, shown))
    })
}

/// The help of `eyas`, with the commands in groups. clap itself has one list of all commands.
fn template(eyas: &Command) -> String {
    let (header, literal) = (eyas.get_styles().get_header(), eyas.get_styles().get_literal());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "\n{header}{group}:{header:#}");
        for command in names.iter().filter_map(|name| eyas.find_subcommand(name)) {
            let (name, about) = (command.get_name(), command.get_about().unwrap_or_default());
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {about}");
        }
    }
    let _ = write!(text, "\n{header}Options of every command:{header:#}\n{{options}}\n");
    let _ = write!(text, "\n{header}Examples:{header:#}{}", EXAMPLES.trim_end());
    text
}

/// The command with only these of its options in the help, and the names of the others behind it.
fn shortened(command: Command, shown: &str) -> Command {
    let shown: Vec<_> = shown.split(' ').collect();
    let is_left_out =
        |arg: &Arg| !arg.is_hide_set() && arg.get_long().is_some_and(|long| !shown.contains(&long));
    let header = command.get_styles().get_header();
    let mut text = format!(
        "{header}More options{header:#} (`eyas {} --{HELP_ALL}` explains them):",
        command.get_name()
    );
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for arg in command.get_arguments().filter(|arg| is_left_out(arg)) {
        let (Some(long), heading) = (arg.get_long(), arg.get_help_heading().unwrap_or("Others"))
        else {
            continue;
        };
        match groups.iter_mut().find(|(group, _)| *group == heading) {
            Some((_, options)) => options.push(long),
            None => groups.push((heading, vec![long])),
        }
    }
    for (heading, options) in groups {
        let _ = write!(text, "\n  {heading}:");
        let mut chars = heading.len() + 3;
        for option in options {
            if chars + option.len() + 3 > LIST_CHARS {
                text.push_str("\n   ");
                chars = 3;
            }
            let _ = write!(text, " --{option}");
            chars += option.len() + 3;
        }
    }
    if let Some(end) = command.get_after_help() {
        let _ = write!(text, "\n\n{}", end.ansi());
    }
    command.mut_args(|arg| if is_left_out(&arg) { arg.hide(true) } else { arg }).after_help(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::Eyas;

    /// Lines of the two screens that the help of a command fills at most, at this width.
    const MAX_LINES: usize = 90;
    const WIDTH: usize = 100;

    fn built(words: &[&str]) -> Command {
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        let mut eyas = arranged(Eyas::command(), &words).term_width(WIDTH);
        eyas.build();
        eyas
    }

    fn help_of(command: &Command) -> String {
        command.clone().render_help().to_string()
    }

    #[test]
    fn every_command_stands_in_one_group_and_on_one_line() {
        let eyas = Eyas::command();
        let mut shown: Vec<_> = eyas
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(Command::get_name)
            .collect();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, shown, "the commands in GROUPS, and those that there are");
        let help = help_of(&built(&[]));
        for command in eyas.get_subcommands().filter(|command| !command.is_hide_set()) {
            let about = command.get_about().expect("a summary").to_string();
            let line = help.lines().find(|line| {
                line.split_once("  ")
                    .is_some_and(|_| line.trim_start().starts_with(command.get_name()))
                    && line.ends_with(&about)
            });
            let line = line.unwrap_or_else(|| panic!("`{about}` is not in:\n{help}"));
            assert!(line.len() <= LIST_CHARS, "{} characters: {line}", line.len());
        }
    }

    #[test]
    fn the_help_of_each_command_fits_two_screens() {
        fn check(command: &Command, at: &str) {
            let help = help_of(command);
            let lines = help.lines().count();
            assert!(lines <= MAX_LINES, "{at} --help has {lines} lines:\n{help}");
            for below in command.get_subcommands() {
                check(below, &format!("{at} {}", below.get_name()));
            }
        }
        check(&built(&[]), "eyas");
    }

    #[test]
    fn a_short_help_names_what_it_leaves_out_and_the_whole_has_it() {
        for (name, shown) in SHORT {
            let words = ["eyas", name, "--help-all"];
            let short = help_of(built(&words[..2]).find_subcommand(name).expect("a command"));
            let whole = help_of(built(&words).find_subcommand(name).expect("a command"));
            let eyas = Eyas::command();
            let command = eyas.find_subcommand(name).expect("a command");
            let options: Vec<_> = command.get_arguments().filter_map(Arg::get_long).collect();
            let shown: Vec<_> = shown.split(' ').collect();
            for option in &shown {
                assert!(options.contains(option), "`eyas {name}` has no --{option}");
            }
            let described = |help: &str, option: &str| {
                help.lines().any(|line| {
                    let words = line.trim_start();
                    words.starts_with('-')
                        && words.split([' ', ',']).any(|word| word == format!("--{option}"))
                })
            };
            let (described_part, _) = short.split_once("More options").expect("a list of names");
            let is_shown = |arg: &&Arg| !arg.is_hide_set();
            for option in command.get_arguments().filter(is_shown).filter_map(Arg::get_long) {
                assert!(described(&whole, option), "--{option} is not in:\n{whole}");
                assert_eq!(described(described_part, option), shown.contains(&option), "{option}");
                assert!(short.contains(&format!("--{option}")), "--{option} is not in:\n{short}");
            }
        }
    }

    #[test]
    fn a_word_of_the_user_s_command_asks_for_nothing() {
        let run = built(&["eyas", "run", "--", "tool", "--help-all"]);
        let run = run.find_subcommand("run").expect("a command");
        assert!(help_of(run).contains("More options"));
    }
}
