//! Kept outputs as inputs and items of other jobs: `eyas://JOB/TASK/FILE`.

use crate::support::{Cluster, wait_until};

/// Three tasks that keep two files each, and note each run in a file `made`.
const MAKE: &str = r#"
    [[task]]
    array = "1-3"
    command = ["sh", "-c", """
        mkdir sub; echo a$0 > a; echo b$0 > sub/b; echo $0 >> FOLDER/made""", "{}"]
    outputs = [{ file = "a", keep = true }, { file = "sub/*", keep = true }]
"#;

fn make(cluster: &Cluster) {
    cluster.write("make.toml", MAKE.replace("FOLDER", cluster.work().to_str().unwrap()));
    cluster.run(&["submit", "--wait", "make.toml"]).exits(0);
}

#[test]
fn kept_outputs_are_inputs_and_items_of_other_jobs() {
    let cluster = Cluster::start(&[&[], &[]]);
    make(&cluster);
    let read =
        cluster.run(&["run", "-i", "eyas://1/2/sub/b", "--", "cat", "eyas://1/2/sub/b"]).exits(0);
    assert_eq!(read.stdout, "b3\n");
    let each = [
        "run",
        "-k",
        "--each",
        "eyas://1/*/a",
        "-o",
        "n=out/{#}",
        "--",
        "sh",
        "-c",
        "cat $1 | tee n",
        "x",
        "{}",
    ];
    assert_eq!(cluster.run(&each).exits(0).says(&["0% from persistent"]).stdout, "a1\na2\na3\n");
    assert_eq!(cluster.read("out/2"), "a2\n");
    cluster.write(
        "job.toml",
        "[[task]]\ncommand = ['cat', 'eyas://1/*/sub/b', '{input:1}']\n\
         inputs = ['eyas://1/*/sub/b']\n\
         [[task]]\neach = ['eyas://1/0/a', 'eyas://1/?/sub/b']\n\
         inputs = ['job.toml']\ncommand = ['cat', '{}']\n",
    );
    let job = cluster.submit("job.toml");
    cluster.run(&["job", "wait", &job]).exits(0);
    assert_eq!(
        cluster.run(&["task", "log", &format!("{job}.0")]).exits(0).stdout,
        "b1\nb2\nb3\nb1\n"
    );
    assert_eq!(cluster.run(&["task", "log", &format!("{job}.4")]).exits(0).stdout, "b3\n");
    cluster
        .run(&["push", "eyas://1/*/a", "eyas://1/0/sub/b"])
        .exits(0)
        .says(&["4 objects", "2 of 2 executors"]);
    assert_eq!(cluster.ask(&["catalog", "show", "eyas://1/2/a"], "objects")[0]["size_bytes"], 3);
    // A line of a list is the name of an input as well.
    cluster.write("list", "eyas://1/0/a,1\neyas://1/1/a,2\n");
    cluster.write(
        "job.toml",
        "[[task]]\neach_line = 'list'\nseparator = ','\ninputs = ['{1}']\n\
         command = ['cat', '{1}']\n",
    );
    let job = cluster.submit("job.toml");
    cluster.run(&["job", "wait", &job]).exits(0);
    assert_eq!(cluster.run(&["task", "log", &format!("{job}.1")]).exits(0).stdout, "a2\n");
}

#[test]
fn unreadable_outputs_are_refused_at_submission() {
    let cluster = Cluster::start(&[&[]]);
    make(&cluster);
    let go = cluster.work().join("go");
    let wait = format!("until [ -e {} ]; do sleep 0.02; done; echo x > a", go.display());
    cluster.write(
        "later.toml",
        format!(
            "[[task]]\ncommand = ['sh', '-c', '{wait}']\n\
             outputs = [{{ file = 'a', keep = true }}]\n"
        ),
    );
    let later = cluster.submit("later.toml");
    let name = format!("eyas://{later}/0/a");
    for (input, says) in [
        (name.as_str(), "have not ended"),
        ("eyas://1/0/c", "no kept output is named `eyas://1/0/c`"),
        ("eyas://1/7/a", "no task 1.7"),
        ("eyas://9/0/a", "no job 9"),
        ("eyas://1/*/c", "no kept output is named"),
        ("eyas://data/a.csv", "three slashes"),
        ("eyas://1/0", "names no kept output"),
    ] {
        cluster.run(&["run", "-i", input, "--", "true"]).exits(1).says(&[says]);
    }
    cluster.write("go", "");
    cluster.run(&["job", "wait", &later]).exits(0);
    cluster.run(&["run", "-i", &name, "--", "cat", &name]).exits(0);
    cluster.run(&["job", "release", "1"]).exits(0);
    cluster.run(&["run", "-i", "eyas://1/0/a", "--", "true"]).exits(1).says(&["was released"]);
    // A destination with two slashes would be found out after the task has run.
    for to in ["n=eyas://data/a.csv", "n=eyas://1/0/a"] {
        let words = ["run", "--array", "1-1", "-o", to, "--", "touch", "n"];
        cluster.run(&words).exits(1).says(&["eyas:///PATH"]);
    }
}

/// Submits a job that reads a kept output when there is a file `go`.
fn reader(cluster: &Cluster) -> String {
    let text = r#"
        [[task]]
        inputs = ["eyas://1/0/a"]
        folder = "sandbox"
        command = ["sh", "-c", "until [ -e FOLDER/go ]; do sleep 0.02; done; cat a"]
        [[task]]
        inputs = ["eyas://1/0/a"]
        folder = "sandbox"
        requirements = "has(node.labels.late)"
        command = ["cat", "a"]
    "#;
    cluster.write("read.toml", text.replace("FOLDER", cluster.work().to_str().unwrap()));
    cluster.submit("read.toml")
}

#[test]
fn inputs_of_a_submitted_job_outlive_the_job_that_made_them() {
    let mut cluster = Cluster::start(&[&[]]);
    make(&cluster);
    let job = reader(&cluster);
    cluster.run(&["job", "forget", "1"]).exits(0);
    // Neither other inputs nor a new dispatcher take it away.
    cluster.restart_dispatcher();
    cluster.wait_for_executors(1);
    cluster.write("go", "");
    cluster.add_executor(&["--label", "late=1"]);
    cluster.run(&["job", "wait", &job]).exits(0);
    for task in 0..2 {
        assert_eq!(cluster.run(&["task", "log", &format!("{job}.{task}")]).exits(0).stdout, "a1\n");
    }
    cluster.run(&["run", "-i", "eyas://1/0/a", "--", "true"]).exits(1).says(&["no job 1"]);
}

#[test]
fn outputs_of_a_killed_executor_are_made_again_for_another_job() {
    let mut cluster = Cluster::start(&[&[]]);
    make(&cluster);
    let job = reader(&cluster);
    cluster.executor(1).kill();
    cluster.wait_for_executors(0);
    cluster.write("go", "");
    cluster.add_executor(&["--label", "late=1"]);
    cluster.run(&["job", "wait", &job]).exits(0);
    assert_eq!(cluster.run(&["task", "log", &format!("{job}.1")]).exits(0).stdout, "a1\n");
    assert!(cluster.job("1")["recomputed"].as_u64() >= Some(1));
}

#[test]
fn a_task_says_what_it_waits_for_and_why_it_fails() {
    let mut cluster = Cluster::start(&[&[]]);
    make(&cluster);
    let job = reader(&cluster);
    let late = format!("{job}.1");
    cluster.run(&["job", "forget", "1"]).exits(0);
    cluster.executor(1).kill();
    cluster.wait_for_executors(0);
    wait_until("the tasks have failed", || cluster.job(&job)["tasks"]["failed"] == 2);
    let why = cluster.run(&["task", "show", &late]).exits(0).stdout;
    assert!(why.contains("every copy of `eyas://1/0/a`"), "{why}");
}
