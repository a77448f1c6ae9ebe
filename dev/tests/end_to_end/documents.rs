//! What `docs/guides/job-files.md` shows works as it stands there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::Cluster;

/// The job files of the page, each with the name in its first line.
fn job_files() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/job-files.md");
    let page = fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
    let mut files = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (_, block) = block.split_once('\n').expect("a block has lines");
        let (name, content) = block.split_once('\n').expect("a file's name is its first line");
        let name = name.strip_prefix("# ").unwrap_or_else(|| panic!("`{name}` is not a file's name"));
        files.push((name.to_owned(), content.to_owned()));
    }
    files
}

#[test]
fn every_job_file_of_the_page_runs() {
    // What a machine with two processors has.
    let cluster = Cluster::start(&[&[], &[]]);
    cluster.write("texts/whale.txt", "call me ishmael\n");
    cluster.write("texts/two cities.txt", "it was the best of times\nit was the worst of times\n");
    cluster.write("searches.csv", "texts/whale.txt,ishmael\ntexts/two cities.txt,times\n");
    let program = cluster.write("count.sh", "#!/bin/sh\nexec wc \"$UNIT\" \"$1\"\n");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();

    let files = job_files();
    assert_eq!(files.len(), 10, "the page's examples");
    for (name, content) in &files {
        cluster.write(name, content);
        cluster.run(&["submit", "--wait", name]).exits(0);
    }

    let log = |task: &str| cluster.run(&["task", "log", task]).exits(0).stdout;
    let job_of = |name: &str| files.iter().position(|(other, _)| other == name).expect("an example") + 1;
    assert!(log(&format!("{}.0", job_of("count.toml"))).starts_with("12 "));
    assert_eq!(log(&format!("{}.1", job_of("search.toml"))), "2\n");
    assert_eq!(log(&format!("{}.3", job_of("words.toml"))), "12 first.words\n");
    assert_eq!(log(&format!("{}.1", job_of("bring.toml"))), "3 whale.txt\n");
    assert!(log(&format!("{}.1", job_of("jobs.jsonl"))).starts_with("16 "));
    assert_eq!(cluster.names("packed"), ["two cities.txt.gz", "whale.txt.gz"]);
    assert_eq!(cluster.read("sweep/90.txt").split(" on ").next(), Some("angle 90"));
    cluster.run(&["job", "get", &job_of("lines.toml").to_string(), "--to", "lines"]).exits(0);
    assert_eq!(cluster.read("lines/2/lines.txt").lines().count(), 3);
    assert!(cluster.read("words.txt").lines().any(|line| line.trim() == "2 times"));
}
