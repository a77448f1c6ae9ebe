//! Rules for the text of the repository: names of types, widths of lines, clocks, declared
//! dependencies, citations.
//!
//! Each rule has a table of exceptions with their reasons. `layers.rs` has the rules about imports
//! and unsafe code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use eyas_tree::{files, folder_of, metadata, root};

/// Type names that several crates or modules may define, and why.
const SHARED_NAMES: &[(&str, &str)] = &[
    ("Config", "what a decider or a shell is configured with"),
    ("Effect", "what a decider asks its shell to do"),
    ("Event", "what a shell tells its decider"),
];

/// Most characters of a line that is not code, as `.editorconfig` has it.
const MAX_WIDTH: usize = 120;

/// Most characters of a line of code, as rustfmt, ruff and `.editorconfig` have it.
const MAX_CODE_WIDTH: usize = 100;

/// Endings of the names of files with code.
const CODE: &[&str] = &["rs", "py", "pyi", "c", "h", "cpp", "java"];

/// Ways to read a clock.
const CLOCKS: &[&str] =
    &["Instant::now", "SystemTime::now", "SystemTime::UNIX_EPOCH", ".elapsed()"];

/// Files of the dispatcher that read a clock, and why.
const DISPATCHER_CLOCKS: &[(&str, &str)] = &[(
    "compute/dispatcher/src/clock.rs",
    "the time of the deciders' events, and the time of day by which keys expire",
)];

/// Dependencies that no source file of their crate names, and why the crate has them.
const UNNAMED: &[(&str, &str, &str)] = &[
    ("base/session", "rustls-webpki", "its library is called webpki"),
    ("doors/cli", "eyas-preload", "its build script builds it by the name of the package"),
    ("data/store", "idna_adapter", "selects the tables of names of hosts that other packages use"),
    (
        "dev",
        "proptest",
        "builds with and without tests then have the same features of its dependencies",
    ),
];

#[track_caller]
fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// Code before the module `tests` at its end.
fn without_tests(code: &str) -> &str {
    code.find("#[cfg(test)]\nmod tests {").map_or(code, |end| &code[..end])
}

/// Whether the whole file is tests.
fn is_test(file: &str) -> bool {
    file.split('/').any(|part| part == "tests" || part == "tests.rs" || part == "benches")
        || file.starts_with("dev/")
}

/// The types that are visible outside of their module.
fn visible_types(code: &str) -> impl Iterator<Item = &str> {
    without_tests(code).lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix("pub")?;
        let rest = rest
            .strip_prefix('(')
            .map_or(Some(rest), |scope| scope.split_once(')').map(|(_, rest)| rest))?;
        let mut words =
            rest.strip_prefix(' ')?.split_whitespace().skip_while(|word| *word == "unsafe");
        let is_type = ["struct", "enum", "trait", "type", "union"].contains(&words.next()?);
        let name = words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        is_type.then_some(name)
    })
}

#[test]
fn a_name_of_a_type_has_one_meaning() {
    let files = files(&["rs"]);
    let mut definitions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, code) in files.iter().filter(|(file, _)| !is_test(file)) {
        for name in visible_types(code) {
            definitions.entry(name).or_default().push(file);
        }
    }
    definitions.retain(|_, files| files.len() > 1);
    let is_shared = |name: &str| SHARED_NAMES.iter().any(|(shared, _)| *shared == name);
    let repeated = definitions.into_iter().filter(|(name, _)| !is_shared(name));
    let wrong: Vec<_> = repeated
        .map(|(name, files)| format!("{name} is defined in {}", files.join(", ")))
        .collect();
    assert_none(&wrong);
}

/// Whether a wide line cannot be broken, or would be harder to read: rows of tables, links,
/// addresses.
fn may_be_wide(file: &str, line: &str) -> bool {
    let line = line.trim_start();
    let is_page = file.ends_with(".md");
    let has_long_word = || line.split_whitespace().any(|word| word.chars().count() > MAX_WIDTH / 2);
    is_page && (line.starts_with('|') || line.starts_with("!["))
        || line.contains("://")
        || has_long_word()
}

/// Most characters of a line of a file.
fn max_width(file: &str) -> usize {
    let ending = file.rsplit('.').next().unwrap_or_default();
    if CODE.contains(&ending) { MAX_CODE_WIDTH } else { MAX_WIDTH }
}

#[test]
fn lines_are_at_most_100_characters_wide_in_code_and_120_elsewhere() {
    let mut wide = Vec::new();
    for (file, text) in files(&[CODE, &["sh", "toml", "md", "yml", "Makefile"]].concat()) {
        let mut end_of_exempt = None;
        for (index, line) in text.lines().enumerate() {
            // What programs have printed or made.
            if let Some(end) = end_of_exempt {
                end_of_exempt = (!line.starts_with(end)).then_some(end);
            } else if file.ends_with(".md") && line.starts_with("```text") {
                end_of_exempt = Some("```");
            } else if file.ends_with(".md") && line.starts_with("<!-- made by ") {
                end_of_exempt = Some("<!-- end");
            } else if line.chars().count() > max_width(&file) && !may_be_wide(&file, line) {
                wide.push(format!("{file}:{}: {} wide", index + 1, line.chars().count()));
            }
        }
    }
    assert_none(&wide);
}

#[test]
fn deciders_read_no_clock_and_the_dispatcher_reads_it_in_few_places() {
    let mut wrong = Vec::new();
    for (file, code) in files(&["rs"]).iter().filter(|(file, _)| !is_test(file)) {
        let is_decider = file.starts_with("core/");
        let may = DISPATCHER_CLOCKS.iter().any(|(allowed, _)| allowed == file);
        if !is_decider && (may || !file.starts_with("compute/dispatcher/src/")) {
            continue;
        }
        let code: Vec<_> = without_tests(code)
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default())
            .collect();
        let found = CLOCKS.iter().filter(|clock| code.iter().any(|line| line.contains(**clock)));
        wrong.extend(found.map(|clock| format!("{file} reads a clock: {clock}")));
        if is_decider && code.iter().any(|line| line.contains("std::time")) {
            wrong.push(format!("{file} imports std::time"));
        }
    }
    assert_none(&wrong);
}

#[test]
fn dependencies_are_declared_once_and_used() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let table = manifest["workspace"]["dependencies"].as_table().expect("a table of dependencies");
    let mut unused: BTreeSet<&str> = table.keys().map(String::as_str).collect();
    let sources = files(&["rs"]);
    let mut wrong = Vec::new();
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let folders: Vec<_> = packages
        .map(|package| folder_of(package["manifest_path"].as_str().expect("a path")))
        .collect();
    for folder in &folders {
        let is_of_it = |file: &str| {
            let of = folders.iter().filter(|folder| Path::new(file).starts_with(folder));
            of.max_by_key(|folder| folder.components().count()) == Some(folder)
        };
        let text =
            std::fs::read_to_string(root().join(folder).join("Cargo.toml")).expect("a manifest");
        let member: toml::Table = text.parse().expect("TOML");
        let nested = member
            .get("target")
            .and_then(toml::Value::as_table)
            .into_iter()
            .flat_map(toml::Table::values);
        let sections = nested.filter_map(toml::Value::as_table).chain([&member]);
        let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
        let tables = sections
            .flat_map(|section| kinds.iter().filter_map(|kind| section.get(*kind)?.as_table()));
        for (name, declared) in tables.flatten() {
            let (at, word) = (folder.display(), name.replace('-', "_"));
            let is_shared = declared.get("workspace").and_then(toml::Value::as_bool) == Some(true);
            // A crate names itself by its path, for features in its own tests.
            let is_itself = declared.get("path").is_some_and(|path| path.as_str() == Some("."));
            if !is_shared && !is_itself {
                wrong.push(format!(
                    "{at}/Cargo.toml: {name} is not taken from the workspace's table"
                ));
            }
            unused.remove(name.as_str());
            let mut code = sources.iter().filter(|(file, _)| is_of_it(file));
            let is_named = code.any(|(_, code)| names(code, &word));
            let may = UNNAMED
                .iter()
                .any(|(member, unnamed, _)| *member == folder.to_string_lossy() && unnamed == name);
            if is_named == may && !is_itself {
                let which = if may {
                    "is listed as unnamed, but is named"
                } else {
                    "is named by no source file"
                };
                wrong.push(format!("{at}/Cargo.toml: {name} {which}"));
            }
        }
    }
    wrong.extend(unused.iter().map(|name| format!("Cargo.toml: {name} is used by no member")));
    assert_none(&wrong);
}

/// Each package with its features, as cargo builds the workspace with these kinds of dependencies.
fn features(kinds: &str) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "tree",
        "--workspace",
        "--locked",
        "--prefix",
        "none",
        "--format",
        "{p}: {f}",
        "--edges",
        kinds,
    ]);
    let output = command.current_dir(root()).output().expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn builds_with_and_without_tests_share_what_they_compile() {
    let with_tests = features("normal,build,dev");
    let other =
        features("normal,build").into_iter().filter(|package| !with_tests.contains(package));
    let wrong = other.map(|package| {
        format!("without tests, cargo builds it again, with these features: {package}")
    });
    assert_none(&wrong.collect::<Vec<_>>());
}

/// The nicknames of papers before a "§".
fn nicknames(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(" §").filter_map(|(at, _)| {
        let start = text[..at]
            .rfind(|c: char| !c.is_ascii_alphabetic() && c != '-')
            .map_or(0, |before| before + 1);
        let word = &text[start..at];
        word.contains('-').then_some(word)
    })
}

#[test]
fn papers_are_cited_by_the_nicknames_that_are_defined() {
    let page =
        std::fs::read_to_string(root().join("docs/reference/papers.md")).expect("a list of papers");
    let mut wrong = Vec::new();
    for (file, text) in files(&["rs", "py", "md", "toml", "c", "h", "sh"]) {
        let unknown = nicknames(&text).filter(|name| !page.contains(&format!("### {name}\n")));
        wrong.extend(unknown.map(|name| {
            format!("{file} cites {name}, which docs/reference/papers.md does not define")
        }));
    }
    assert_none(&wrong);
}

/// The addresses in brackets after a text in square brackets, outside of blocks.
fn links(page: &str) -> Vec<&str> {
    let prose = page.split("```").step_by(2);
    prose
        .flat_map(|part| part.split("](").skip(1).filter_map(|rest| rest.split(')').next()))
        .collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut wrong = Vec::new();
    for (file, page) in files(&["md"]) {
        let folder = root().join(&file).parent().expect("a file is in a folder").to_owned();
        for link in links(&page).into_iter().filter(|link| !link.contains([':', ' ', '`'])) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { root().join(&file) } else { folder.join(path) };
            if target.is_dir() {
                continue;
            }
            let Ok(target) = std::fs::read(target) else {
                wrong.push(format!("{file}: the link {link} leads nowhere"));
                continue;
            };
            let target = String::from_utf8_lossy(&target).to_lowercase();
            let headings = target.lines().filter(|line| line.starts_with('#'));
            let is_kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
            let mut anchors = headings.map(|line| {
                let text: String =
                    line.trim_start_matches('#').trim().chars().filter(is_kept).collect();
                text.replace(' ', "-")
            });
            if !anchor.is_empty() && !anchors.any(|found| found == anchor) {
                wrong.push(format!("{file}: the link {link} names no heading"));
            }
        }
    }
    assert_none(&wrong);
}

/// Programs beside the experiments that `benchmarks/RESULTS.md` names.
const NO_EXPERIMENTS: &[(&str, &str)] = &[
    ("dev/tools/peers.sh", "installs what experiments compare with"),
    ("dev/testbed/slurm.sh", "the batch system of an experiment"),
];

#[test]
fn every_experiment_runs_in_miniature_and_every_command_of_the_results_is_one() {
    let programs: BTreeSet<_> = files(&["py", "sh"]).into_iter().map(|(file, _)| file).collect();
    let tests: Vec<_> = files(&["rs", "py"])
        .into_iter()
        .filter(|(file, _)| file.contains("/tests/") && !file.contains("tree"))
        .collect();
    let is_run = |name: &str| tests.iter().any(|(_, code)| code.contains(&format!("{name}\"")));
    let mut wrong = Vec::new();
    for file in &programs {
        if let Some(name) = file.strip_prefix("dev/experiments/")
            && !is_run(name)
        {
            wrong.push(format!("{file}: no test runs it with --tiny"));
        }
    }
    let results =
        std::fs::read_to_string(root().join("benchmarks/RESULTS.md")).expect("the results");
    let words = results.split(|c: char| c.is_whitespace() || "`(),;".contains(c));
    let makefile = std::fs::read_to_string(root().join("Makefile")).expect("a makefile");
    for word in words.filter(|word| word.starts_with("dev/") && word.ends_with(['y', 'h'])) {
        let is_listed = NO_EXPERIMENTS.iter().any(|(file, _)| file == &word);
        if !programs.contains(word)
            || !is_listed && !is_run(word.trim_start_matches("dev/experiments/"))
        {
            wrong.push(format!(
                "benchmarks/RESULTS.md names {word}, which no test runs with --tiny"
            ));
        }
    }
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let benches =
        results.split("--bench ").skip(1).filter_map(|rest| rest.split(|c| !is_part(c)).next());
    let benches_run =
        std::fs::read_to_string(root().join("dev/tests/benches_run.rs")).expect("a test");
    for bench in benches {
        if !makefile.contains(&format!("--bench {bench}"))
            && !benches_run.contains(&format!("/{bench}.rs"))
        {
            wrong.push(format!(
                "benchmarks/RESULTS.md names the benchmark {bench}, which `make test` does not run"
            ));
        }
    }
    assert_none(&wrong);
}

#[test]
fn slow_tests_have_a_reason_and_exist() {
    let list = std::fs::read_to_string(root().join("dev/tests/slow.toml")).expect("a list");
    let list: toml::Table = list.parse().expect("TOML");
    let sources = files(&["rs"]);
    let mut wrong = Vec::new();
    let mut before = f64::INFINITY;
    for row in list["test"].as_array().expect("rows") {
        let text = |key: &str| row.get(key).and_then(toml::Value::as_str).unwrap_or_default();
        let name = text("name").rsplit("::").next().unwrap_or_default();
        let is_test = |code: &str| {
            code.contains(&format!("fn {name}(")) || code.contains(&format!("    {name}: \""))
        };
        if !sources.iter().any(|(_, code)| is_test(code)) {
            wrong.push(format!("dev/tests/slow.toml: there is no test {}", text("name")));
        }
        if text("why").len() < 10 {
            wrong.push(format!("dev/tests/slow.toml: {} has no reason", text("name")));
        }
        let seconds =
            row.get("seconds").and_then(toml::Value::as_integer).unwrap_or_default() as f64;
        if !(10.0..=before).contains(&seconds) {
            wrong.push(format!(
                "dev/tests/slow.toml: {} is not in order, or takes less than 10 s",
                text("name")
            ));
        }
        before = seconds;
    }
    assert_none(&wrong);
}

/// Whether `word` stands in `code` as a whole word.
fn names(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        !code[..at].ends_with(is_part) && !code[at + word.len()..].starts_with(is_part)
    })
}

// ---- the checks themselves

#[test]
fn types_are_found_whatever_their_visibility() {
    let code = "pub struct A;\npub(crate) enum B {\n    pub(super) unsafe trait C<T> {}\n\
                struct D;\npub fn e() {}\npub type F = u8;\n\
                #[cfg(test)]\nmod tests {\npub struct G;\n}\n";
    assert_eq!(visible_types(code).collect::<Vec<_>>(), ["A", "B", "C", "F"]);
}

#[test]
fn code_is_narrower_than_other_files() {
    assert_eq!(["a/b.rs", "c.pyi", "d.h"].map(max_width), [MAX_CODE_WIDTH; 3]);
    assert_eq!(["a.md", "Makefile", "b.rs/c.sh"].map(max_width), [MAX_WIDTH; 3]);
}

#[test]
fn rows_of_tables_and_addresses_may_be_wide() {
    let long = "a ".repeat(80);
    assert!(!may_be_wide("x.md", &long));
    assert!(may_be_wide("x.md", &format!("| {long}")));
    assert!(!may_be_wide("x.rs", &format!("| {long}")));
    assert!(may_be_wide("x.rs", &format!("// {long} https://example.org")));
}

#[test]
fn nicknames_of_papers_are_found() {
    let text = "(data-diffusion §2.3), of elastic-blocks §1; and §3 §4; RFC 8259 §7";
    assert_eq!(nicknames(text).collect::<Vec<_>>(), ["data-diffusion", "elastic-blocks"]);
}

#[test]
fn a_word_is_found_as_a_whole() {
    assert!(names("use tokio::x;", "tokio"));
    assert!(!names("use tokio_util::x;", "tokio"));
}
