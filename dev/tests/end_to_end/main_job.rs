//! `eyas run`: items, placeholders, inputs, exit codes.

use crate::support::{Cluster, Home};

/// Names that break programs which are careless with them.
const ODD_NAMES: [&str; 8] = [
    "a b.fits",
    "two\nlines.fits",
    "ä→日本.fits",
    "-rf.fits",
    "it's \"q\".fits",
    "$HOME;`id`.fits",
    "{}.fits",
    "[x]*.fits",
];

#[test]
fn files_of_any_name_reach_their_tasks() {
    let home = Home::new();
    for name in ODD_NAMES {
        home.write(&format!("survey/{name}"), format!("<{name}>"));
    }
    let done = home.eyas(&["run", "-k", "--each", "survey/*.fits", "--", "cat", "{}"]).exits(0);
    // The output of each task begins a line.
    let mut expected: Vec<_> = ODD_NAMES.map(|name| format!("<{name}>\n")).to_vec();
    expected.sort();
    assert_eq!(done.stdout, expected.concat());
    // In a sandbox the names have no folder before them, so a leading dash is visible to programs.
    let done = home
        .eyas(&["run", "-k", "--sandbox", "--each", "survey/*.fits", "--", "cat", "{}"])
        .exits(0);
    assert_eq!(done.stdout, expected.concat());
}

#[test]
fn placeholders_stand_for_parts_of_the_item() {
    let home = Home::new();
    home.write("sky/a b.fits.gz", "");
    let words = ["{/}", "{//}", "{.}", "{/.}", "{#}", "{1/.}", "{x}", "{{#}}", "{print $1}"];
    let done = home
        .eyas(&[&["run", "--each", "sky/*", "--", "printf", "%s\\n"], &words[..]].concat())
        .exits(0);
    let expected = [
        "a b.fits.gz",
        "sky",
        "sky/a b.fits",
        "a b.fits",
        "1",
        "a b.fits",
        "{x}",
        "{1}",
        "{print $1}",
    ];
    assert_eq!(done.stdout.lines().collect::<Vec<_>>(), expected);
    let done = home.eyas(&[
        "run",
        "-e",
        "WHO=<{}>",
        "--array",
        "7",
        "--",
        "sh",
        "-c",
        "echo $WHO {%} $EYAS_TASK_ID $0",
        "{}",
    ]);
    assert_eq!(done.exits(0).stdout, "<7> 1 1.0 7\n");
}

#[test]
fn lines_of_standard_input_are_cut_in_columns() {
    let home = Home::new();
    let lines = "a b:1\n\n-n:2\r\nc:";
    let done = home.eyas_with_input(
        &[
            "run",
            "-k",
            "--each-line",
            "-",
            "--colsep",
            ":",
            "--",
            "printf",
            "%s|%s\\n",
            "{2}",
            "{1}",
        ],
        lines,
    );
    assert_eq!(done.exits(0).stdout, "1|a b\n2|-n\n|c\n");
    let done = home
        .eyas_with_input(&["run", "--each-line", "-", "--colsep", ":", "--", "echo", "{3}"], lines);
    done.exits(1).says(&["{3}", "column 3"]);
}

#[test]
fn an_item_is_appended_where_it_is_a_file_or_a_line_and_nowhere_else() {
    let home = Home::new();
    home.write("a b", "");
    home.write("list", "x y\n");
    for (words, last) in [
        (&["--each", "a*"][..], "a b"),
        (&["--each-line", "list"], "x y"),
        (&["--array", "7"], "end"),
        (&["--no-append", "--each", "a*"], "end"),
        (&["--no-append", "--each-line", "list"], "end"),
    ] {
        let command = ["--", "sh", "-c", "for word; do :; done; echo \"$word\"", "sh", "end"];
        let done = home.eyas(&[&["run", "--report", "none"], words, &command].concat()).exits(0);
        assert_eq!(done.stdout.trim_end().rsplit('/').next(), Some(last), "{words:?}");
    }
    home.write(
        "job.toml",
        "[[task]]\narray = \"1-2\"\ncommand = [\"echo\"]\n\
         [[task]]\neach_line = \"list\"\ncommand = [\"echo\"]\n\
         [[task]]\neach = \"list\"\nappend = false\ncommand = [\"echo\"]\n",
    );
    let cluster = Cluster::start_in(home, &[]);
    let job = cluster.submit("job.toml");
    let mut cluster = cluster;
    cluster.add_executor(&[]);
    cluster.run(&["job", "wait", &job]).exits(0);
    let log = |index: u32| cluster.run(&["task", "log", &format!("{job}.{index}")]).exits(0).stdout;
    assert_eq!([0, 1, 2, 3].map(log), ["\n", "\n", "x y\n", "\n"]);
}

#[test]
fn ranges_and_several_patterns_make_tasks_in_order() {
    let home = Home::new();
    let done = home.eyas(&["run", "-k", "--array", "2-10:4,3", "--", "echo", "{}"]).exits(0);
    assert_eq!(done.stdout, "2\n3\n6\n10\n");
    home.write("b.txt", "");
    home.write("a.txt", "");
    home.write("c.dat", "");
    let done = home
        .eyas(&["run", "-k", "--each", "*.dat", "--each", "*.txt", "--", "echo", "{/}"])
        .exits(0);
    assert_eq!(done.stdout, "c.dat\na.txt\nb.txt\n");
}

#[test]
fn inputs_are_staged_and_named_to_the_command() {
    let home = Home::new();
    home.write("objects.csv", "objects ");
    home.write("frames/1", "one ");
    home.write("frames/2", "two ");
    home.write("dark-1", "dark1\n");
    home.write("dark-2", "dark2\n");
    // An argument that is the path of an input becomes the staged path, as does the item; other
    // inputs have numbers.
    let command = [
        "--",
        "sh",
        "-c",
        "cat \"$@\"; test ! $1 -ef ../work/objects.csv",
        "sh",
        "objects.csv",
        "{}",
        "{input:2}",
    ];
    let words =
        ["run", "-k", "--sandbox", "--each", "frames/*", "-i", "objects.csv", "-i", "dark-{/}"];
    let done = home.eyas(&[&words[..], &command].concat()).exits(0);
    // The template's inputs first, then the item's own.
    assert_eq!(done.stdout, "objects one one \nobjects two two \n");
    let command = [
        "--",
        "sh",
        "-c",
        "cat objects.csv {/} dark-{/}; ls | wc -l; touch ../../here 2>/dev/null; pwd",
    ];
    let done = home.eyas(&[&words[..], &command].concat()).exits(0);
    let lines: Vec<_> = done.stdout.lines().collect();
    assert_eq!(
        (lines[0], lines[1], lines[3], lines[4]),
        ("objects one dark1", "3", "objects two dark2", "3")
    );
    assert!(
        lines[2].starts_with(home.path("tmp").to_str().unwrap()) && lines[2] != lines[5],
        "{lines:?}"
    );
}

#[test]
fn a_program_can_be_brought_along() {
    let home = Home::new();
    let program = home.write("tool", "#!/bin/sh\ncat \"$1\"; echo \" by $0\"\n");
    std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    home.write("x.dat", "x");
    let done = home
        .eyas(&["run", "--sandbox", "-i", "tool", "--each", "*.dat", "--", "./tool", "{}"])
        .exits(0);
    assert!(
        done.stdout.starts_with("x by ") && done.stdout.contains("/sandboxes/"),
        "{}",
        done.stdout
    );
    // A program that is not an input is the one in the user's folder.
    let done = home.eyas(&["run", "--sandbox", "--each", "*.dat", "--", "./tool", "{}"]).exits(0);
    assert_eq!(done.stdout, format!("x by {}/./tool\n", home.work().display()).replace("/./", "/"));
}

#[test]
fn the_exit_code_tells_how_it_went() {
    let home = Home::new();
    home.eyas(&["run", "--array", "1-3", "--", "true"]).exits(0);
    let done = home
        .eyas(&["run", "--array", "1-3", "--", "sh", "-c", "test $0 != 2 || exit 7", "{}"])
        .exits(1);
    done.says(&["task 1 did not succeed: exit code 7", "2 of 3 tasks succeeded, 1 failed"]);
    home.eyas(&["run", "--array", "1", "--", "no-such-program"])
        .exits(1)
        .says(&["cannot start `no-such-program`"]);
    for wrong in [
        &["run"][..],
        &["run", "--nodes", "0", "--", "true"],
        &["run", "--cache", "1XB", "--", "true"],
        &["fly"],
    ] {
        home.eyas(wrong).exits(2);
    }
    for (wrong, says) in [
        (&["--array", "5-1"][..], "`5-1` is not a range"),
        (&["--array", "1-99999999999"], "submit it in parts"),
        (&["--resource", "gpu"], "`gpu` is not a resource"),
        (&["--resource", "gpu=1", "--resource", "gpu=2"], "resource `gpu` is given twice"),
        (&["--node-resource", "=1"], "`=1` is not a resource"),
        (&["--env", "=x"], "`=x` is not NAME=VALUE"),
    ] {
        home.eyas(&[&["run"], wrong, &["--", "true"]].concat()).exits(2).says(&[says]);
    }
}

#[test]
fn without_tasks_there_is_nothing_to_do() {
    let home = Home::new();
    home.write("empty", "\n\n");
    let done = home
        .eyas(&["run", "--each-line", "empty", "--", "false"])
        .exits(0)
        .says(&["no tasks: empty has no lines"]);
    assert_eq!(done.stdout, "");
    home.eyas(&["run", "--each", "*.fits", "--", "true"])
        .exits(1)
        .says(&["no file matches `*.fits`"]);
}

#[test]
fn a_hundred_thousand_tasks_are_not_many() {
    let home = Home::new();
    let report = home.work().join("report.json");
    let done = home
        .eyas(&["run", "--array", "1-100000", "--noop", "--report", report.to_str().unwrap()])
        .exits(0);
    done.says(&["100000 of 100000 tasks succeeded"]);
    assert!(home.read("report.json").contains("\"succeeded\":100000"));
}

#[test]
fn a_running_cluster_is_used_and_left_running() {
    let cluster = Cluster::start(&[&[], &[]]);
    assert_eq!(
        cluster.run(&["run", "-k", "--array", "1-3", "--", "echo", "{}"]).exits(0).stdout,
        "1\n2\n3\n"
    );
    assert_eq!(
        cluster.run(&["run", "--name", "again", "--array", "1-3", "--", "true"]).exits(0).stdout,
        ""
    );
    let jobs = cluster.ask(&["job", "list"], "jobs");
    let names: Vec<_> =
        jobs.as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["echo", "again"]);
}
