//! Job files: what they can express, and the messages about mistakes in them.

use crate::support::{Cluster, Home};

/// A dispatcher without executors: mistakes must be found before anything could run.
fn dispatcher() -> Cluster {
    Cluster::start_in(Home::new(), &[])
}

#[test]
fn outputs_of_one_name_do_not_hide_each_other_from_their_reader() {
    let cluster = Cluster::start(&[&[]]);
    let array = |id: &str| {
        format!(
            r#"
            [[task]]
            id = "{id}"
            array = "1-3"
            command = ["sh", "-c", "echo $1 >cut.txt", "sh", "{{}}"]
            outputs = [{{ file = "cut.txt", keep = "until-read" }}]
            "#
        )
    };
    let submit = |inputs: &str, script: &str, word: &str| {
        let command = format!(r#"["sh", "-c", '{script}', "sh", "{word}"]"#);
        let reader =
            format!("[[task]]\ninputs = [{inputs}]\nfolder = \"sandbox\"\ncommand = {command}\n");
        let file = cluster.write("merge.toml", array("a") + &array("b") + &reader);
        cluster.run(&["submit", "--wait", file.to_str().unwrap()])
    };
    let (all, two) = (
        r#"{ task = "a" }, { task = "b" }"#,
        r#"{ task = "a", index = 0 }, { task = "b", index = 2 }"#,
    );
    for (inputs, word) in [(all, ""), (two, ""), (two, "{input:1}")] {
        submit(inputs, "cat *.txt", word).exits(1).says(&[
            "all named `cut.txt`",
            "into",
            "{inputs}",
        ]);
    }
    let into = r#"{ task = "a", into = "a/{index}.txt" }, { task = "b", into = "b/{index}.txt" }"#;
    let cases = [
        (into, "cat */*.txt", ""),
        (all, "xargs cat <$1", "{inputs}"),
        (two, "cat $1", "{input:1} {input:2}"),
    ];
    for (number, (inputs, script, word)) in cases.into_iter().enumerate() {
        submit(inputs, script, word).exits(0);
        let printed = cluster.run(&["task", "log", &format!("{}.6", number + 1)]).exits(0).stdout;
        let expected = if inputs == two { "1\n3\n" } else { "1\n2\n3\n1\n2\n3\n" };
        assert_eq!(printed, expected, "{inputs}");
    }
}

#[test]
fn mistakes_are_found_with_their_line() {
    let cluster = dispatcher();
    let tasks = "name = \"survey\"\n\n[[task]]\ncommand = [\"true\"]\n\n[[task]]\n";
    for (line_seven, says) in [
        ("command = [\"true\"", "line 7"),
        ("comand = [\"true\"]", "`comand`"),
        ("command = \"true\"", "`command` is a list of words"),
        ("command = [\"true\"]\ntimeout = \"5 parsecs\"", "line 8"),
        ("command = [\"true\"]\nmemory = \"4XiB\"", "4XiB"),
        ("command = [\"true\"]\nretries = -1", "line 8"),
    ] {
        let file = cluster.write("job.toml", format!("{tasks}{line_seven}\n"));
        let line = if line_seven.contains('\n') { "line 8" } else { "line 7" };
        cluster.run(&["submit", file.to_str().unwrap()]).exits(1).says(&["job.toml", line, says]);
    }
    // Mistakes that concern the whole task are reported at the task's first line.
    for (task, says) in [
        ("command = []", "no command"),
        ("command = [\"true\"]\nnoop = true", "not both"),
        ("command = [\"cat\", \"{2}\"]\narray = \"1-3\"", "column 2"),
        ("command = [\"cat\"]\narray = \"3-1\"", "`3-1` is not a range"),
        (
            "command = [\"cat\"]\narray = \"1-3\"\neach = \"*\"",
            "one of `each`, `each_block`, `each_line` and `array`",
        ),
        ("command = [\"cat\"]\neach = \"*.none\"", "no file matches `*.none`"),
        ("command = [\"cat\"]\ninputs = [\"no/such file\"]", "no/such file"),
        ("command = [\"cat\"]\ninputs = [\"/\"]", "folder"),
        (
            "command = [\"cat\"]\ninputs = [{ task = \"frames\" }]",
            "no earlier task has the id `frames`",
        ),
        ("command = [\"cat\"]\nfolder = \"x\"\noutputs = [{ file = \"y\" }]", "leave `folder` out"),
        ("command = [\"cat\"]\ncpus = -1.5", "-1.5 cpus"),
        ("command = [\"cat\"]\nenv = { \"A=B\" = \"c\" }", "`A=B` cannot be the name"),
    ] {
        let file = cluster.write("job.toml", format!("{tasks}{task}\n"));
        cluster
            .run(&["submit", file.to_str().unwrap()])
            .exits(1)
            .says(&["job.toml, line 6: ", says]);
    }
    assert_eq!(cluster.ask(&["job", "list"], "jobs"), serde_json::json!([]));
}

#[test]
fn mistakes_in_json_lines_are_found_with_their_line() {
    let cluster = dispatcher();
    for (line, says) in [
        ("{\"command\": [\"true\"", "the line ends before its task does"),
        ("{\"comand\": [\"true\"]}", "`comand`"),
        ("[1]", "line 3"),
        ("{\"command\": [\"cat\"], \"inputs\": [\"missing\"]}", "missing"),
        ("{\"id\": \"a\", \"command\": [\"true\"]}", "two tasks have the id `a`"),
    ] {
        let text = format!("{{\"id\": \"a\", \"command\": [\"true\"]}}\n\n{line}\n");
        let file = cluster.write("job.jsonl", text);
        cluster
            .run(&["submit", file.to_str().unwrap()])
            .exits(1)
            .says(&["job.jsonl, line 3", says]);
    }
}

#[test]
fn ids_are_given_once_and_outputs_do_not_go_in_circles() {
    let cluster = dispatcher();
    let task = |id: &str, needs: &str| {
        format!(
            "[[task]]\nid = \"{id}\"\ncommand = [\"true\"]\n\
             outputs = [{{ file = \"o\", to = \"{id}\" }}]\ninputs = [{needs}]\n"
        )
    };
    let submit = |text: String| {
        cluster.write("job.toml", text);
        cluster.run(&["submit", "job.toml"])
    };
    submit(task("a", "") + &task("a", "")).exits(1).says(&["line 6", "two tasks have the id `a`"]);
    // A task can only name tasks before it, so a cycle contains an unknown name.
    submit(task("a", "{ task = \"b\" }") + &task("b", "{ task = \"a\" }"))
        .exits(1)
        .says(&["line 1", "`b`"]);
    submit(task("a", "{ task = \"a\" }")).exits(1).says(&["line 1", "`a`"]);
    submit(task("a", "") + &task("b", "{ task = \"a\", output = \"x\" }"))
        .exits(1)
        .says(&["no output `x`"]);
    submit(task("a", "") + &task("b", "{ task = \"a\", index = 1 }"))
        .exits(1)
        .says(&["no index 1"]);
    submit(task("a", "") + &task("b", "{ task = \"a\" }")).exits(0);
}

#[test]
fn two_tasks_that_would_write_one_file_are_refused() {
    let cluster = dispatcher();
    let submit = |first: &str, second: &str| {
        let task = |to: &str| {
            format!("[[task]]\ncommand = [\"true\"]\noutputs = [{{ file = \"o\"{to} }}]\n")
        };
        cluster.write("job.toml", task(first) + &task(second));
        cluster.run(&["submit", "job.toml"])
    };
    submit("", ", to = \"./o\"").exits(1).says(&["tasks 0 and 1 would both write `", "/work/o`"]);
    cluster
        .run(&["run", "--array", "1-3", "-o", "o=x/", "--", "true"])
        .exits(1)
        .says(&["/work/x/o`", "`{#}`"]);
    assert_eq!(cluster.ask(&["job", "list"], "jobs"), serde_json::json!([]));
    // Each task keeps its own output.
    submit(", keep = true", ", keep = true").exits(0);
    submit("", ", to = \"p\"").exits(0);
}

#[test]
fn a_file_that_is_missing_or_no_text_is_said_to_be() {
    let cluster = dispatcher();
    cluster.run(&["submit", "none.toml"]).exits(1).says(&["none.toml: there is no such file"]);
    cluster.write("job.toml", [0xff, 0xfe, 0]);
    cluster.run(&["submit", "job.toml"]).exits(1).says(&["job.toml", "UTF-8"]);
    cluster.write("job.toml", "name = \"nothing\"\n");
    cluster.run(&["submit", "job.toml"]).exits(1).says(&["job.toml has no tasks", "[[task]]"]);
}

#[test]
fn a_chain_of_tasks_hands_files_on() {
    let cluster = Cluster::start(&[&[], &[]]);
    for (name, text) in [("in/a", "alpha\n"), ("in/b", "beta\n"), ("suffix", "!\n")] {
        cluster.write(name, text);
    }
    cluster.write(
        "job.toml",
        r#"
            name = "chain"
            [[task]]
            id = "upper"
            command = ["sh", "-c", "tr a-z A-Z < $0 > out", "{}"]
            each = "in/*"
            outputs = [{ file = "out", to = "upper/{/}" }]
            cpus = 0.5
            env = { WHO = "{#}" }
            [[task]]
            id = "joined"
            command = ["sh", "-c", "cat $0 $1 suffix > all", "{input:1}", "{input:2}"]
            inputs = [{ task = "upper" }, "suffix"]
            outputs = [{ file = "all", to = "joined" }, { file = "log", optional = true }]
            [[task]]
            command = ["sh", "-c", "wc -l < lines | tr -d ' ' > $0", "count"]
            inputs = [{ task = "joined", output = "all", name = "lines" }]
            outputs = [{ file = "count" }]
        "#,
    );
    assert_eq!(cluster.submit("job.toml"), "1");
    cluster.run(&["job", "wait", "1"]).exits(0).says(&["4 of 4 tasks succeeded"]);
    assert_eq!(
        (cluster.read("joined"), cluster.read("count")),
        ("ALPHA\nBETA\n!\n".into(), "3\n".into())
    );
    assert_eq!(cluster.names("upper"), ["a", "b"]);
    let job = cluster.job("1");
    assert_eq!((&job["name"], &job["state"]), (&"chain".into(), &"succeeded".into()));
}

#[test]
fn json_lines_are_a_task_each() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write("list", "x:1\ny:2\n");
    cluster.write(
        "job.jsonl",
        concat!(
            "{\"command\": [\"echo\", \"{1}\"], \"array\": \"1-3\"}\n",
            "{\"command\": [\"echo\", \"{2}{1}\"], \"each_line\": \"list\", ",
            "\"separator\": \":\"}\n",
            "{\"noop\": true}\n",
        ),
    );
    cluster.run(&["submit", "--wait", "job.jsonl"]).exits(0).says(&["6 of 6 tasks succeeded"]);
    let log = |task: &str| cluster.run(&["task", "log", task]).exits(0).stdout;
    assert_eq!([log("1.0"), log("1.2"), log("1.3"), log("1.4")], ["1\n", "3\n", "1x\n", "2y\n"]);
}

#[test]
fn tasks_that_need_a_failed_task_fail() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write(
        "job.toml",
        r#"
            [[task]]
            id = "first"
            command = ["false"]
            outputs = [{ file = "x" }]
            [[task]]
            id = "second"
            command = ["cp", "x", "y"]
            inputs = [{ task = "first" }]
            outputs = [{ file = "y" }]
            [[task]]
            command = ["cat", "y"]
            inputs = [{ task = "second" }]
            [[task]]
            command = ["true"]
        "#,
    );
    cluster.run(&["submit", "-w", "job.toml"]).exits(1).says(&["1 of 4 tasks succeeded, 3 failed"]);
    let status = |task: &str| cluster.task(task)["status"].as_str().unwrap().to_owned();
    assert_eq!(status("1.0"), "exit code 1");
    assert!(
        status("1.1").contains("output of task 1.0, which did not succeed"),
        "{}",
        status("1.1")
    );
    assert!(
        status("1.2").contains("output of task 1.1, which did not succeed"),
        "{}",
        status("1.2")
    );
}
