//! The generated pages of the book are current. With `EYAS_GENERATE=1` this writes them (`make
//! generate`).

use eyas_tree::index::index;
use eyas_tree::json_schema::json_schema;
use eyas_tree::reference::{Effects, json, limits};
use eyas_tree::{files, generated, root};

#[test]
fn the_page_of_limits_is_current() {
    let path = root().join("docs/reference/limits.toml");
    let effects: Effects =
        toml::from_str(&std::fs::read_to_string(path).expect("a list")).expect("TOML");
    let (page, wrong) = limits(&effects, &files(&["rs"]));
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    generated("docs/reference/limits.md", &page);
}

#[test]
fn the_index_of_dev_is_current() {
    let (page, silent) = index(&files(&["py", "sh", "rs"]));
    assert!(silent.is_empty(), "these files do not open with what they are: {silent:?}");
    generated("dev/README.md", &page);
}

#[test]
fn the_page_of_json_answers_is_current() {
    let read = |file: &str| {
        std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
    };
    let sources = [
        "base/wire/src/view.rs",
        "base/wire/src/view/files.rs",
        "base/wire/src/view/graph.rs",
        "base/wire/src/view/io.rs",
        "base/wire/src/view/pool.rs",
        "base/types/src/course.rs",
    ];
    let sources = sources.map(|file| (file, read(file)));
    let version = sources[0].1.split_once("SCHEMA_VERSION: u32 = ").expect("a version").1;
    let version = version.split(';').next().expect("a number").to_owned();
    let sources: Vec<_> = sources.iter().map(|(file, code)| (*file, code.as_str())).collect();
    generated("docs/reference/json.md", &json(&version, &sources));
    let parts =
        ["base/types/src/outcome.rs", "base/types/src/estimate.rs", "base/types/src/resource.rs"]
            .map(read);
    let all: Vec<_> =
        sources.iter().map(|(_, code)| *code).chain(parts.iter().map(|code| &**code)).collect();
    let schema = json_schema(&version, &all);
    generated("docs/reference/json-schema.json", &schema);
    // The web has a copy, because a crate is also built where the docs are missing.
    generated("doors/web/json-schema.json", &schema);
}
