//! Pipelines in job files: each task of an array reads the output of the task at its place in
//! another array, or of a group of them.

use crate::support::{Cluster, Home};

#[test]
fn a_pipeline_goes_on_element_by_element() {
    let cluster = Cluster::start(&[&[], &[]]);
    for (frame, text) in [("a", "7\n"), ("b c", "5\n"), ("d", "6\n")] {
        cluster.write(&format!("frames/{frame}.fits"), text);
    }
    cluster.write(
        "survey.toml",
        r#"
            [[task]]
            id = "calibrate"
            each = "frames/*.fits"
            command = ["sh", "-c", 'tr 5 9 <"$1" >cal.fits', "sh", "{}"]
            outputs = [{ file = "cal.fits", keep = "until-read" }]

            [[task]]
            id = "detect"
            inputs = [{ task = "calibrate", index = "{}" }]
            command = ["sh", "-c", 'sed "s|^|$1 |" cal.fits >stars', "sh", "{}"]
            outputs = [{ file = "stars", to = "stars/{/.}.txt" }]

            [[task]]
            id = "pairs"
            inputs = [{ task = "detect", index = "{}", group = 2, into = "{/.}-{index}.stars" }]
            command = ["sh", "-c", 'cat "$@" >pair; ls *.stars >names', "sh", "{input:*}"]
            outputs = [{ file = "pair", to = "pairs/{}" }, { file = "names", to = "names/{}" }]

            [[task]]
            inputs = [{ task = "pairs", into = "pairs/{}" }]
            command = ["sh", "-c", "cat pairs/* | wc -l >count.txt"]
            outputs = ["count.txt"]
        "#,
    );
    cluster.run(&["submit", "--wait", "survey.toml"]).exits(0).says(&["9 of 9 tasks succeeded"]);
    assert_eq!(cluster.names("stars"), ["a.txt", "b c.txt", "d.txt"]);
    assert_eq!(cluster.read("stars/b c.txt"), "frames/b c.fits 9\n");
    assert_eq!(cluster.read("pairs/0"), "frames/a.fits 7\nframes/b c.fits 9\n");
    assert_eq!(cluster.read("pairs/1"), "frames/d.fits 6\n");
    assert_eq!(cluster.read("names/0"), "a-0.stars\nb c-1.stars\n");
    assert_eq!(cluster.read("count.txt").trim(), "3");
    // The command has a word for each input, and the last group has fewer inputs.
    let words = |task: &str| cluster.task(task)["command"].as_array().unwrap().len();
    assert_eq!((words("1.6"), words("1.7")), (6, 5));
}

#[test]
fn an_element_waits_for_its_own_element_alone() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write(
        "job.toml",
        r#"
            [[task]]
            id = "first"
            array = "1-3"
            command = ["sh", "-c", "test $1 != 2 && echo $1 >x", "sh", "{}"]
            outputs = [{ file = "x", keep = true }]
            [[task]]
            inputs = [{ task = "first", index = "{}" }]
            command = ["cp", "x", "y"]
            outputs = [{ file = "y", to = "y/{}" }]
        "#,
    );
    cluster.run(&["submit", "-w", "job.toml"]).exits(1).says(&["4 of 6 tasks succeeded, 2 failed"]);
    assert_eq!(cluster.names("y"), ["1", "3"]);
    let status = cluster.task("1.4")["status"].as_str().unwrap().to_owned();
    assert!(status.contains("output of task 1.1, which did not succeed"), "{status}");
}

#[test]
fn a_task_that_splits_a_file_has_a_reader_of_each_part() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write("in/one.txt", "1\n");
    cluster.write("in/two.txt", "2\n");
    cluster.write(
        "job.toml",
        r#"
            [[task]]
            id = "split"
            inputs = [{ path = "in/*.txt", into = "all/{/.}-{index}" }]
            command = ["sh", "-c", "cat all/one-0 >part1.fa; cat all/two-1 >part2.fa"]
            outputs = [{ file = "part1.fa", keep = true }, { file = "part2.fa", keep = true }]
            [[task]]
            id = "search"
            array = "1-2"
            inputs = [{ task = "split", output = "part{}.fa" }]
            command = ["cp", "part{}.fa", "{}.hits"]
            outputs = [{ file = "{}.hits", keep = true }, { file = "{}.none", optional = true }]
            [[task]]
            inputs = [{ task = "search", output = "{}.hits" }]
            command = ["sh", "-c", 'sort -r "$@" >hits', "sh", "{input:*}"]
            outputs = ["hits"]
        "#,
    );
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0).says(&["4 of 4 tasks succeeded"]);
    assert_eq!(cluster.read("hits"), "2\n1\n");
}

#[test]
fn all_inputs_are_words_or_a_list() {
    let home = Home::new();
    for (name, text) in [("a", "1\n"), ("b c", "2\n")] {
        home.write(name, text);
    }
    let run = |command: &[&str]| {
        let words = ["run", "--report", "none", "-i", "a", "-i", "b c", "--"];
        home.eyas(&[&words[..], command].concat())
    };
    assert_eq!(run(&["cat", "{input:*}"]).exits(0).stdout, "1\n2\n");
    assert_eq!(run(&["sh", "-c", "wc -l <$1", "sh", "{inputs}"]).exits(0).stdout.trim(), "2");
    assert_eq!(run(&["echo", r"\{input:*}"]).exits(0).stdout, "{input:*}\n");
    home.eyas(&["run", "--report", "none", "--", "cat", "{input:*}"])
        .exits(1)
        .says(&["`{input:*}` asks for input 1, but the task has 0 inputs"]);
}

#[test]
fn arrays_of_different_lengths_are_refused() {
    let cluster = Cluster::start_in(Home::new(), &[]);
    let array = "[[task]]\nid = \"a\"\narray = \"1-3\"\ncommand = [\"true\"]\noutputs = [\"{}\"]\n";
    let reader = "[[task]]\ninputs = [{ task = \"a\", index = \"{}\" }]\ncommand = [\"true\"]\n";
    cluster.write("job.toml", format!("{array}{reader}array = \"1-4\"\n"));
    cluster.run(&["submit", "job.toml"]).exits(1).says(&[
        "job.toml, line 6: `array` makes 4 tasks, but task `a` has 3 tasks",
        "leave `array` out",
    ]);
    cluster.write("job.toml", format!("{array}{reader}"));
    cluster.run(&["submit", "job.toml"]).exits(0);
}
