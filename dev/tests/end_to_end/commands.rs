//! The commands that query and change a running cluster, and their `--json`.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Cluster, Home, wait_for, wait_until};

/// A job of five tasks: the first succeeds at once, and the others fail until there is a file
/// `repaired`.
fn fragile(cluster: &Cluster) -> String {
    cluster.write(
        "fragile.toml",
        "name = \"fragile\"\n[[task]]\narray = \"0-4\"\n\
         command = [\"sh\", \"-c\", \"echo out {}; echo err {} >&2; echo x >> ran-{}; \
         [ {} = 0 ] || [ -e repaired ]\"]\n",
    );
    cluster.submit("fragile.toml")
}

/// A job of tasks that run until there is a file `go`, two at most at a time.
fn endless(cluster: &Cluster, tasks: u32) -> String {
    let script = "echo > began-{}; until [ -e go ]; do sleep 0.02; done";
    cluster.write(
        "endless.jsonl",
        json!({"array": format!("1-{tasks}"), "command": ["sh", "-c", script]}).to_string(),
    );
    cluster.submit("endless.jsonl")
}

fn states(cluster: &Cluster, job: &str) -> Vec<String> {
    let tasks = cluster.ask(&["task", "list", job], "tasks");
    tasks
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["state"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn failed_tasks_are_listed_explained_and_run_again() {
    let cluster = Cluster::start(&[&[]]);
    let job = fragile(&cluster);
    cluster.run(&["job", "wait", &job]).exits(1).says(&["1 of 5 tasks succeeded, 4 failed"]);
    let listed = cluster
        .run(&["task", "list", &job, "--failed", "--from", "2", "--limit", "2"])
        .exits(0)
        .stdout;
    let rows: Vec<&str> =
        listed.lines().skip(1).filter_map(|row| row.split_whitespace().next()).collect();
    assert_eq!(rows, ["1.2", "1.3"]);
    assert!(listed.contains("exit code 1") && listed.contains("failed"), "{listed}");
    assert_eq!(cluster.run(&["task", "log", "1.3"]).exits(0).stdout, "out 3\n");
    assert_eq!(cluster.run(&["task", "log", "1.3", "--stderr"]).exits(0).stdout, "err 3\n");
    let explained = cluster.run(&["explain", "1.3"]).exits(0).stdout;
    assert!(
        explained.contains("Task 1.3 (3)") && explained.contains("ended on n1: exit code 1"),
        "{explained}"
    );
    cluster.write("repaired", "");
    cluster.run(&["job", "retry", &job]).exits(0).says(&["4 tasks"]);
    cluster.run(&["job", "wait", &job]).exits(0).says(&["5 of 5 tasks succeeded"]);
    let ran: Vec<usize> =
        (0..5).map(|task| cluster.read(&format!("ran-{task}")).lines().count()).collect();
    assert_eq!(ran, [1, 2, 2, 2, 2], "what had succeeded ran again");
    cluster.run(&["job", "retry", &job]).exits(0).says(&["nothing to retry"]);
}

#[test]
fn jobs_and_tasks_are_cancelled() {
    let cluster = Cluster::start(&[&["--slots", "2"]]);
    let job = endless(&cluster, 40);
    wait_until("two tasks run", || cluster.work().join("began-2").exists());
    cluster.run(&["task", "cancel", "1.0"]).exits(0).says(&["cancelled 1 task"]);
    cluster.run(&["task", "cancel", "1.39"]).exits(0).says(&["cancelled 1 task"]);
    wait_until("one is cancelled", || cluster.task("1.0")["state"] == "cancelled");
    assert_eq!(cluster.task("1.39")["state"], "cancelled");
    cluster.run(&["job", "retry", &job]).exits(1).says(&["still running"]);
    cluster.run(&["job", "cancel", &job]).exits(0).says(&["38 tasks"]);
    cluster.run(&["job", "wait", &job]).exits(1).says(&["0 of 40 tasks succeeded, 40 cancelled"]);
    assert_eq!(
        (&cluster.job(&job)["state"], states(&cluster, &job).len()),
        (&"cancelled".into(), 40)
    );
    assert!(states(&cluster, &job).iter().all(|state| state == "cancelled"));
    assert!(
        cluster.names(".").iter().filter(|name| name.starts_with("began")).count() < 10,
        "all of them ran"
    );
    cluster.write("go", "");
    cluster.run(&["job", "retry", &job]).exits(0).says(&["40 tasks"]);
    cluster.run(&["job", "wait", &job]).exits(0);
}

#[test]
fn unknown_jobs_executors_and_objects_are_named() {
    let cluster = Cluster::start(&[]);
    for (words, says) in [
        (&["job", "show", "7"][..], "there is no job 7"),
        (&["job", "wait", "7"], "there is no job 7"),
        (&["job", "cancel", "7"], "there is no job 7"),
        (&["job", "retry", "7"], "there is no job 7"),
        (&["task", "list", "7"], "there is no job 7"),
        (&["task", "show", "7.0"], "there is no job 7"),
        (&["report", "7"], "there is no job 7"),
        (&["executor", "stop", "n7"], "there is no executor `n7`"),
        (&["catalog", "show", "/no/such"], "the catalog has no object `/no/such`"),
    ] {
        cluster.run(words).exits(1).says(&[says]);
    }
    cluster.write("job.jsonl", "{\"noop\": true}");
    cluster.submit("job.jsonl");
    cluster.run(&["task", "show", "1.5"]).exits(1).says(&["there is no task 1.5"]);
    cluster.run(&["task", "log", "1.0"]).exits(1).says(&["has no log yet"]);
    for wrong in [&["job", "show", "x"][..], &["task", "show", "1"], &["explain"]] {
        cluster.run(wrong).exits(2);
    }
}

#[test]
fn why_a_task_waits_is_explained() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write("input", vec![0; 1000]);
    let job = endless(&cluster, 1);
    wait_until("it runs", || cluster.work().join("began-1").exists());
    let explain = |task: &str| cluster.run(&["explain", task]).exits(0).stdout;
    assert!(explain(&format!("{job}.0")).contains("It was given to n1."), "{}", explain("1.0"));
    cluster.write(
        "chain.toml",
        r#"
            [[task]]
            id = "a"
            command = ["sh", "-c", "cat input > out"]
            inputs = ["input"]
            outputs = [{ file = "out", to = "out-{}" }]
            array = "1-30"
            [[task]]
            command = ["cat"]
            inputs = [{ task = "a" }]
        "#,
    );
    let job = cluster.submit("chain.toml");
    let (last, blocked) = (format!("{job}.29"), format!("{job}.30"));
    let text = wait_for("its queueing", || {
        Some(explain(&last)).filter(|text| !text.contains("still being put"))
    });
    assert!(
        text.contains("every executor that could take it is busy") && text.contains("1.0 kB"),
        "{text}"
    );
    assert!(
        explain(&blocked).contains("waits for the outputs of 30 tasks"),
        "{}",
        explain(&blocked)
    );
    assert_eq!(cluster.task(&blocked)["state"], "blocked");
    cluster.run(&["job", "cancel", &job]).exits(0);
    cluster.write("go", "");
}

#[test]
fn why_a_task_was_placed_is_explained_also_when_it_has_ended() {
    let mut cluster = Cluster::start(&[&[]]);
    cluster.write("input", vec![0; 1000]);
    cluster.write("job.toml", "[[task]]\ncommand = [\"cat\", \"input\"]\ninputs = [\"input\"]\n");
    let job = cluster.submit("job.toml");
    cluster.run(&["job", "wait", &job]).exits(0);
    let explain =
        |cluster: &Cluster| cluster.run(&["explain", &format!("{job}.0")]).exits(0).stdout;
    let text = explain(&cluster);
    assert!(
        text.contains("It was estimated to be done there in ") && text.contains("to fetch inputs"),
        "{text}"
    );
    cluster.restart_dispatcher();
    assert_eq!(explain(&cluster), text, "it is in the journal");
}

#[test]
fn every_answer_has_a_form_for_programs() {
    let cluster = Cluster::start(&[&[], &[]]);
    cluster.write("input", "data");
    cluster.write("job.toml", "name = \"sky\"\n[[task]]\ncommand = [\"cat\"]\neach = \"input\"\n");
    assert_eq!(cluster.ask(&["submit", "job.toml"], "job"), 1);
    cluster.run(&["job", "wait", "1"]).exits(0);
    for words in [&["job", "list"][..], &["job", "list", "--mine"]] {
        assert_eq!(cluster.ask(words, "jobs").as_array().unwrap().len(), 1);
    }
    let job = cluster.job("1");
    assert_eq!(job["owner"]["user"], eyas_client::name_of_user());
    assert_eq!(
        (&job["name"], &job["state"], &job["executors"]),
        (&"sky".into(), &"succeeded".into(), &2.into())
    );
    let task = cluster.task("1.0");
    assert!(
        task["item"] == "input" && task["tries"] == 1 && task["reads"]["persistent"]["bytes"] == 4,
        "{task}"
    );
    let log = cluster.ask(&["task", "log", "1.0"], "log");
    let command = &task["command"];
    assert_eq!(
        log,
        json!({
            "command": command,
            "status": "succeeded",
            "stdout": "data",
            "stderr": "",
            "cut_bytes": 0,
        })
    );
    let explanation = cluster.ask(&["explain", "1.0"], "explanation");
    assert_eq!(explanation["task"], task);
    assert!(explanation["because"].as_array().is_some_and(|because| !because.is_empty()));
    let executors = cluster.ask(&["executor", "list"], "executors");
    let mut names: Vec<_> =
        executors.as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["n1", "n2"]);
    let ids: Vec<_> =
        executors.as_array().unwrap().iter().map(|e| e["executor"].as_str().unwrap()).collect();
    assert_eq!(ids, ["e0", "e1"]);
    let object = cluster.ask(&["catalog", "show", "input"], "objects")[0].clone();
    let id = object["object"].as_str().expect("an id is text");
    assert_eq!(cluster.ask(&["catalog", "show", id], "objects")[0], object);
    assert_eq!(cluster.ask(&["report", "1"], "report")["job"]["name"], "sky");
    assert_eq!(cluster.ask(&["job", "cancel", "1"], "tasks"), 0);
    assert_eq!(cluster.ask(&["job", "retry", "1"], "tasks"), 0);
    assert_eq!(cluster.ask(&["job", "wait", "1"], "jobs")[0]["state"], "succeeded");
    assert_eq!(cluster.ask(&["executor", "stop", ids[0]], "executors"), 1);
    cluster.wait_for_executors(1);
}

#[test]
fn reports_come_as_page_table_and_json_and_compare_jobs() {
    let cluster = Cluster::start(&[&[]]);
    for name in ["<script>alert(1)</script>", "second"] {
        cluster.run(&["run", "--name", name, "--array", "1-20", "--", "true"]).exits(0);
    }
    let table = cluster
        .run(&["report", "2", "-o", "two.html", "--baseline", "1"])
        .exits(0)
        .says(&["two.html"])
        .stdout;
    assert!(table.contains("second") && table.contains("20 succeeded"), "{table}");
    assert!(!cluster.read("two.html").contains("<script>alert"), "a name becomes code");
    cluster.run(&["report", "1", "-o", "one.csv"]).exits(0);
    assert!(cluster.read("one.csv").starts_with("at_us,interval_us,"));
    cluster.run(&["report", "1", "-o", "one.json"]).exits(0);
    let report: Value = serde_json::from_str(&cluster.read("one.json")).unwrap();
    assert_eq!(
        (&report["schema_version"], &report["report"]["metrics"]["persistent_share"]),
        (&1.into(), &json!(0.0))
    );
    cluster.run(&["report", "1", "-o", "/proc/none/r.html"]).exits(1).says(&["/proc/none"]);
    cluster.run(&["report", "1"]).exits(0);
    assert!(cluster.names(".").contains(&"eyas-report-1.html".to_owned()));
}

#[test]
fn a_stop_ends_all_processes_and_says_when() {
    let mut cluster = Cluster::start(&[&[], &[]]);
    endless(&cluster, 3);
    wait_until("a task runs", || cluster.work().join("began-1").exists());
    cluster.run(&["stop"]).exits(0).says(&["2 executors"]);
    cluster.executor(1).wait();
    cluster.executor(2).wait();
    wait_until("nothing runs", || cluster.processes().is_empty());
    cluster.restart_dispatcher();
    assert_eq!(cluster.job("1")["state"], "running", "a stop is not a cancel");
}

#[test]
fn shells_complete_and_manuals_are_written() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = home.eyas(&["completion", shell]).exits(0).stdout;
        // A short help has the first of these options, and not the second.
        assert!(script.contains("keep-order") && script.contains("eviction"), "{shell}");
        let file = home.write(shell, script);
        if let Ok(status) = Command::new(shell).arg("-n").arg(file).status() {
            assert!(status.success(), "{shell} cannot read it");
        }
    }
    home.eyas(&["man", "pages"]).exits(0);
    let pages = home.names("pages");
    for page in ["eyas.1", "eyas-run.1", "eyas-job-show.1", "eyas-start-executor.1"] {
        assert!(pages.iter().any(|name| name == page), "{page} is not in {pages:?}");
    }
    let page = home.read("pages/eyas-run.1");
    assert!(page.contains("keep") && page.contains("eviction"), "{page}");
    assert!(!pages.iter().any(|page| page.contains("guard")), "it is not for people");
}
