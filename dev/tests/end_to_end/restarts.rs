//! A dispatcher that is killed and started again in its folder: everything that it acknowledged is
//! still there, and clients that wait for a job continue to wait.

use std::io::{BufRead, BufReader};

use crate::support::{Cluster, finish, wait_until};

#[test]
fn a_cancel_that_was_acknowledged_holds_after_a_kill() {
    let mut cluster = Cluster::start(&[&["--slots", "2"]]);
    cluster.write(
        "job.jsonl",
        "{\"array\": \"1-20\", \"command\": [\"sh\", \"-c\", \
         \"echo > began-{}; until [ -e go ]; do sleep 0.02; done\"]}",
    );
    for job in ["1", "2"] {
        cluster.submit("job.jsonl");
        if job == "1" {
            wait_until("two tasks run", || cluster.work().join("began-2").exists());
        }
    }
    // A running task must not be reported as ended.
    cluster.executor(1).suspend();
    cluster.run(&["task", "cancel", "1.1"]).exits(0).says(&["cancelled 1 task"]);
    cluster.restart_dispatcher();
    assert_eq!(cluster.task("1.1")["state"], "cancelled");
    cluster.run(&["job", "cancel", "1"]).exits(0).says(&["19 tasks"]);
    cluster.restart_dispatcher();
    let job = cluster.job("1");
    assert!(job["state"] == "cancelled" && job["tasks"]["cancelled"] == 20, "{job}");
    cluster.run(&["job", "cancel", "2"]).exits(0).says(&["20 tasks"]);
    cluster.write("go", "");
    cluster.run(&["job", "retry", "2"]).exits(0).says(&["20 tasks"]);
    cluster.restart_dispatcher();
    assert_eq!(cluster.job("2")["state"], "running");
    cluster.executor(1).resume();
    cluster.run(&["job", "wait", "2"]).exits(0).says(&["20 of 20 tasks succeeded"]);
}

#[test]
fn waiting_clients_continue_when_the_dispatcher_is_back() {
    let mut cluster = Cluster::start(&[&["--slots", "2"]]);
    let script = "[ $0 -le 200 ] || until [ -e go ]; do sleep 0.02; done; echo $0";
    let mut run = cluster.spawn_on(&["run", "--array", "1-210", "--", "sh", "-c", script, "{}"]);
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let mut shown: Vec<String> = lines.by_ref().take(150).map(Result::unwrap).collect();
    wait_until("200 tasks have ended", || cluster.job("1")["tasks"]["succeeded"] == 200);
    // Clients that have printed the id of their job are connected.
    cluster
        .write("job.jsonl", r#"{"command": ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"]}"#);
    let waiting = |job: &str, words: &[&str]| {
        let mut child = cluster.spawn_on(&[&["submit", "job.jsonl", "--wait"], words].concat());
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), job);
        child.stdout = Some(output.into_inner());
        child
    };
    let (patient, impatient) = (waiting("2", &[]), waiting("3", &["--reconnect", "0s"]));
    for _ in 0..2 {
        cluster.restart_dispatcher();
        cluster.wait_for_executors(1);
    }
    finish(impatient).exits(1).says(&["has ended"]);
    cluster.write("go", "");
    shown.extend(lines.map(Result::unwrap));
    assert_eq!(run.wait().unwrap().code(), Some(0));
    let mut numbers: Vec<u32> = shown.iter().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=210).collect::<Vec<_>>(), "each is shown once");
    finish(patient).exits(0).says(&[
        "has ended",
        "trying to reconnect",
        "is back",
        "1 of 1 task succeeded",
    ]);
}

#[test]
fn a_report_is_the_same_after_a_restart() {
    let mut cluster = Cluster::start(&[&["--slots", "2"]]);
    cluster.run(&["run", "--array", "1-6", "--", "sleep", "0.15"]).exits(0);
    let report = |cluster: &Cluster| {
        cluster.run(&["report", "1", "-o", "report.json"]).exits(0);
        let report: serde_json::Value = serde_json::from_str(&cluster.read("report.json")).unwrap();
        let report = if report["report"].is_object() { report["report"].clone() } else { report };
        (report["metrics"].clone(), report["samples"].clone(), report["job"]["elapsed_us"].clone())
    };
    let before = report(&cluster);
    assert!(before.0["efficiency"].as_f64().unwrap() > 0.1, "{before:?}");
    cluster.restart_dispatcher();
    assert_eq!(report(&cluster), before);
}

#[test]
fn figures_of_lost_samples_are_left_out_of_a_report() {
    let mut cluster = Cluster::start(&[&["--slots", "2"]]);
    cluster
        .write("job.jsonl", r#"{"command": ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"]}"#);
    cluster.submit("job.jsonl");
    wait_until("it runs", || cluster.job("1")["tasks"]["assigned"] == 1);
    cluster.restart_dispatcher();
    cluster.wait_for_executors(1);
    cluster.write("go", "");
    cluster.run(&["job", "wait", "1"]).exits(0);
    for file in ["report.json", "report.html"] {
        cluster.run(&["report", "1", "-o", file]).exits(0);
    }
    let json = cluster.read("report.json");
    assert!(
        json.contains("\"efficiency\": null") || json.contains("\"efficiency\":null"),
        "{json}"
    );
    assert!(cluster.read("report.html").contains("samples were lost"));
}

#[test]
fn the_pause_before_a_retry_is_not_the_jobs_time() {
    let cluster = Cluster::start(&[&[]]);
    cluster.run(&["run", "--array", "1", "--", "sh", "-c", "[ -e good ]"]).exits(1);
    let ended_us = cluster.job("1")["elapsed_us"].as_u64().unwrap();
    let began = std::time::Instant::now();
    // This time does not count as time of the job.
    wait_until("a while has passed", || began.elapsed().as_micros() as u64 > 4 * ended_us);
    cluster.write("good", "");
    let paused = began.elapsed();
    cluster.run(&["job", "retry", "1"]).exits(0);
    cluster.run(&["job", "wait", "1"]).exits(0);
    let job = cluster.job("1");
    let elapsed_us = job["elapsed_us"].as_u64().unwrap();
    let all_us = began.elapsed().as_micros() as u64;
    assert!(elapsed_us < ended_us + all_us - paused.as_micros() as u64, "{job}");
}

#[test]
fn a_journal_that_has_lost_what_was_acknowledged_is_noticed() {
    let mut cluster = Cluster::start(&[&[]]);
    cluster.run(&["run", "--array", "1-3", "--", "true"]).exits(0);
    let mut whole = Vec::new();
    let refused = cluster.restart_dispatcher_after(|folder| {
        whole = std::fs::read(folder.join("journal.redb")).unwrap();
        std::fs::write(folder.join("journal.redb"), "").unwrap();
    });
    refused
        .expect("it does not start as an empty cluster")
        .exits(1)
        .says(&["were acknowledged", "journal.mark"]);
    let refused = cluster.restart_dispatcher_after(|folder| {
        std::fs::remove_file(folder.join("journal.redb")).unwrap()
    });
    refused.expect("nor where the journal is gone").exits(1).says(&["journal.mark"]);
    let back = cluster.restart_dispatcher_after(|folder| {
        std::fs::write(folder.join("journal.redb"), &whole).unwrap()
    });
    assert!(back.is_none());
    assert_eq!(cluster.job("1")["tasks"]["succeeded"], 3);
}

#[test]
fn events_are_followed_across_a_restart() {
    let mut cluster = Cluster::start(&[&["--slots", "1"]]);
    let mut following = cluster.spawn_on(&["events", "--follow"]);
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut line_with = |words: &str| lines.find(|line| line.contains(words)).expect(words);
    cluster.run(&["run", "--name", "first", "--", "true"]).exits(0);
    let line = line_with("was submitted");
    assert!(
        line.ends_with("  job 1 (first) was submitted with 1 task") && line.starts_with("20"),
        "{line}"
    );
    line_with("job 1 (first) has ended: 1 succeeded");
    let listed = cluster.ask(&["events"], "events");
    let kinds: Vec<_> =
        listed.as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["executor-joined", "job-submitted", "job-ended"]);
    assert_eq!((&listed[1]["number"], &listed[1]["job"]), (&2.into(), &1.into()));
    cluster.restart_dispatcher();
    cluster.wait_for_executors(1);
    cluster.run(&["run", "--name", "second", "--", "false"]).exits(1);
    line_with("job 2 (second) has ended: 0 succeeded, 1 failed");
    cluster.run(&["job", "retry", "2"]).exits(0);
    line_with("job 2 (second) runs 1 task again");
    cluster.run(&["stop"]).exits(0);
    line_with("the cluster is stopping");
    assert_eq!(following.wait().unwrap().code(), Some(0));
}
