//! The index of `dev/`, which is made from the first sentences of its files.

use std::fmt::Write;

/// The parts of `dev/` in the index: a folder, and what is in it.
const PARTS: &[(&str, &str)] = &[
    (
        "experiments",
        "Each prints figures of [RESULTS.md](../benchmarks/RESULTS.md). `--help` lists the \
         options of a program in Python; `--tiny` runs it in miniature, as the tests do.",
    ),
    ("benches", "Benchmarks of single rooms: `cargo bench -p eyas-dev --bench NAME`."),
    ("judges", "Suites that nobody here wrote: `make judges`."),
    (
        "testbed",
        "Clusters, slow storage and batch systems on one machine, for experiments and tests.",
    ),
    ("tools", "What the Makefile runs."),
];

/// The index, and the files that do not say what they are.
pub fn index(files: &[(String, String)]) -> (String, Vec<String>) {
    let mut page = String::from(
        "# What is in `dev/`\n\n<!-- made by `make generate` from the files of dev/ -->\n",
    );
    let mut silent = Vec::new();
    for (folder, about) in PARTS {
        let _ = write!(page, "\n## {folder}\n\n{about}\n\n| file | what it is |\n| --- | --- |\n");
        for (file, code) in files {
            let Some(name) =
                file.strip_prefix(&format!("dev/{folder}/")).filter(|name| !name.contains('/'))
            else {
                continue;
            };
            let sentence = first_sentence(code);
            if sentence.is_empty() {
                silent.push(file.clone());
            }
            let _ =
                writeln!(page, "| [{name}]({folder}/{name}) | {} |", sentence.replace('|', "\\|"));
        }
    }
    (page, silent)
}

/// The first sentence of the comment or text that a file opens with.
fn first_sentence(code: &str) -> String {
    let lines = code.lines().filter(|line| !line.starts_with("#!"));
    let opening = lines.map(|line| {
        let text = line.trim_start_matches(['"', '#', '/', '!']).trim();
        (text.strip_suffix("\"\"\"").unwrap_or(text), line.starts_with(['#', '/', '"']))
    });
    let is_python = code
        .lines()
        .find(|line| !line.starts_with("#!"))
        .is_some_and(|line| line.starts_with("\"\"\""));
    let paragraph: Vec<_> = opening
        .take_while(|(text, is_comment)| !text.is_empty() && (is_python || *is_comment))
        .map(|(text, _)| text)
        .collect();
    let text = paragraph.join(" ");
    let end = text.find(". ").map_or(text.len(), |end| end + 1);
    text[..end].trim_end_matches(':').to_owned()
}

#[cfg(test)]
mod tests {
    use super::first_sentence;

    #[test]
    fn a_file_says_first_what_it_is() {
        assert_eq!(first_sentence("\"\"\"Does\nthis. And that.\n\"\"\"\nimport a\n"), "Does this.");
        assert_eq!(first_sentence("#!/bin/sh\n# Does this:\n#\n# more\nset -e\n"), "Does this");
        assert_eq!(first_sentence("//! Does this\n\nuse a;\n"), "Does this");
        assert_eq!(first_sentence("import a\n"), "");
    }
}
