//! Patterns of names wherever files are named: items, inputs, pushes, files of the cluster.

use crate::support::{Cluster, Home};

#[test]
fn a_pattern_of_inputs_is_all_the_files_that_it_names() {
    let home = Home::new();
    for name in
        ["ref/a.fa", "ref/b.fa", "ref/.hidden.fa", "ref/deep/c.fa", "odd [1].fa", "odd 1.fa"]
    {
        home.write(name, format!("{name}\n"));
    }
    let run = |words: &[&str]| {
        home.eyas(&[&["run", "-k", "--report", "none", "--sandbox"], words].concat())
            .exits(0)
            .stdout
    };
    // The argument that is the pattern becomes the paths of all files.
    let printed = run(&["-i", "ref/*.fa", "--array", "1-2", "--", "cat", "ref/*.fa", "{input:2}"]);
    assert_eq!(printed, "ref/a.fa\nref/b.fa\nref/b.fa\n".repeat(2));
    // The name of an existing file is not a pattern.
    assert_eq!(run(&["-i", "odd [1].fa", "--", "cat", "odd [1].fa"]), "odd [1].fa\n");
    // Special characters in the name of an item do not make a pattern; those that the user writes
    // do.
    home.write("frames/x[ab]", "");
    for name in ["dark/x[ab].1", "dark/x[ab].2", "dark/xa.1"] {
        home.write(name, format!("{name}\n"));
    }
    let printed =
        run(&["--each", "frames/*", "-i", "dark/{/}.*", "--", "sh", "-c", "cat dark/x*.*"]);
    assert_eq!(printed, "dark/x[ab].1\ndark/x[ab].2\n");
    let wrong = |words: &[&str]| home.eyas(&[&["run"], words, &["--", "true"]].concat()).exits(1);
    wrong(&["-i", "ref/*.fq"]).says(&["no file matches `ref/*.fq`"]);
    home.write(
        "job.toml",
        "[[task]]\nnoop = true\ninputs = [{ path = \"ref/*\", name = \"x\" }]\n",
    );
    let cluster = Cluster::start_in(home, &[]);
    cluster
        .run(&["submit", "job.toml"])
        .exits(1)
        .says(&["input `ref/*` stands for 2 files, but `name` is for one file"]);
}

#[test]
fn a_pattern_is_pushed() {
    let cluster = Cluster::start(&[&[]]);
    (1..=3).for_each(|number| _ = cluster.write(&format!("db/{number}.bin"), "data"));
    cluster.write("db/other", "data");
    cluster.run(&["push", "db/*.bin"]).exits(0).says(&["pushed 3 objects"]);
    cluster.run(&["push", "db/*.txt"]).exits(1).says(&["no file matches `db/*.txt`"]);
}

#[test]
fn files_of_the_cluster_are_named_by_patterns() {
    let cluster = Cluster::start(&[&["--dfs"]]);
    for (name, text) in
        [("in/a.csv", "a\n"), ("in/b.csv", "b\n"), ("in/c.txt", "c\n"), ("in/deep/d.csv", "d\n")]
    {
        cluster.write(name, text);
    }
    cluster.run(&["dfs", "put", "-r", "in", "/data"]).exits(0);
    cluster.run(&["dfs", "put", "in/c.txt", "/data/odd[x].csv"]).exits(0);
    let cat = |words: &[&str]| cluster.run(&[&["dfs", "cat"], words].concat()).exits(0).stdout;
    assert_eq!(cat(&["/data/[ab].csv"]), "a\nb\n");
    assert_eq!(cat(&["data/*.csv", "/data/c.txt"]), "a\nb\nc\nc\n");
    assert_eq!(cat(&["/data/odd[x].csv"]), "c\n");
    assert_eq!(cat(&["-r", "/data"]), "a\nb\nc\nd\nc\n");
    assert_eq!(cat(&["-r", "--length", "1", "/data/deep"]), "d");
    cluster.run(&["dfs", "cat", "-r", "/none"]).exits(1).says(&["there is no file in /none"]);
    cluster
        .run(&["dfs", "cat", "/data/*.fits"])
        .exits(1)
        .says(&["no file of the cluster matches `/data/*.fits`"]);
    cluster.run(&["dfs", "get", "/data/?.csv", "back"]).exits(0);
    assert_eq!(cluster.names("back"), ["a.csv", "b.csv"]);
    cluster.run(&["dfs", "get", "/data/**/?.csv", "-"]).exits(0);
    let mapped = cluster.run(&["map", "/data/?.*", "--", "cat"]).exits(0).stdout;
    let mut lines: Vec<_> = mapped.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a", "b", "c"]);
    cluster.run(&["dfs", "rm", "/data/?.csv"]).exits(0);
    assert_eq!(cat(&["-r", "/data"]), "c\nd\nc\n");
}
