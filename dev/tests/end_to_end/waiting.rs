//! Commands that wait for a job: their progress, their messages when the user interrupts them, and
//! jobs that are too large.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use eyas_client::types::{Program, TaskItem, TaskTemplate};
use eyas_client::view::JobState;
use eyas_client::{Client, Draft};
use eyas_session::Access;
use rustix::process::Signal;

use crate::support::{Cluster, Home, can_use, eyas, signal, wait_for, wait_until};

const IMPOSSIBLE: &str = "[[task]]\nnoop = true\nrequirements = \"node.cpus >= 64\"\n";

/// A command whose standard error is read until a given text appears.
struct WatchedCommand {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl WatchedCommand {
    #[track_caller]
    fn until(mut child: Child, words: &str) -> Self {
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert_ne!(
                said.read_line(&mut line).expect("a pipe can be read"),
                0,
                "it never said `{words}`"
            );
        }
        WatchedCommand { child, said }
    }

    /// Its exit code, and the rest of its standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("a pipe can be read");
        (self.child.wait().expect("our own child").code(), rest)
    }
}

/// `eyas` on a terminal, whose output is read from the pipe.
fn on_a_terminal(home: &Home, words: &str) -> (Child, ChildStdout) {
    let mut command = Command::new("script");
    let program = eyas().display();
    command.args(["-qefc", &format!("stty columns 150; exec {program} {words}"), "/dev/null"]);
    let command = &mut home.command_of(command, &[]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("script can be started");
    let shown = child.stdout.take().expect("piped");
    (child, shown)
}

/// The words of a shell on a terminal of 100 by 30 cells, whose keys and output are pipes.
fn shell_on_a_terminal(home: &Home, words: &str) -> (Child, ChildStdin, ChildStdout) {
    let mut command = Command::new("script");
    command.args(["-qefc", &format!("stty columns 100 rows 30; {words}"), "/dev/null"]);
    let command = &mut home.command_of(command, &[]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("script can be started");
    let (keys, shown) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    (child, keys, shown)
}

/// Reads until this text appears, or the command ends. Returns all output so far.
#[track_caller]
fn read_until(shown: &mut ChildStdout, words: &str) -> String {
    let (mut text, mut bytes) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&text).contains(words) {
        let count = shown.read(&mut bytes).expect("a pipe can be read");
        assert_ne!(count, 0, "`{words}` was not shown:\n{}", String::from_utf8_lossy(&text));
        text.extend(&bytes[..count]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn waiting_commands_warn_of_tasks_that_can_never_run_and_leave_the_job_running() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write("job.toml", IMPOSSIBLE);
    for (words, job) in [
        (&["submit", "--wait", "job.toml"][..], 1),
        (&["job", "wait", "1"], 1),
        (&["job", "wait", "last"], 1),
        (&["run", "--requirements", "node.cpus >= 64", "--noop"], 2),
    ] {
        let waiting = WatchedCommand::until(
            cluster.spawn_on(words),
            "no executor matches the requirements of its tasks",
        );
        signal(waiting.child.id(), Signal::INT);
        let (code, said) = waiting.end();
        assert_eq!(code, Some(130), "{words:?}: {said}");
        let is_said = said.contains(
            "job 1 continues: wait for it again with `eyas job wait 1 --cluster test`, or cancel \
             it with `eyas job cancel 1 --cluster test`",
        );
        assert_eq!(
            (is_said, &*cluster.job("1")["state"].to_string()),
            (job == 1, "\"running\""),
            "{words:?}: {said}"
        );
    }
    assert_eq!(cluster.job("2")["state"], "cancelled", "a run ends with its command");
}

#[test]
fn several_jobs_are_waited_for_and_the_last_has_a_name() {
    let cluster = Cluster::start(&[&[]]);
    cluster.run(&["job", "wait", "last"]).exits(1).says(&["the cluster has no job"]);
    cluster.run(&["job", "wait"]).exits(2);
    cluster
        .run(&["job", "wait", "first"])
        .exits(2)
        .says(&["`last` is the job that was submitted last"]);
    cluster.write("good.toml", "[[task]]\ncommand = [\"true\"]\n");
    cluster.write("bad.toml", "[[task]]\ncommand = [\"false\"]\n");
    let jobs = ["good.toml", "bad.toml", "good.toml"].map(|file| cluster.submit(file));
    cluster
        .run(&["job", "wait", &jobs[0], "last"])
        .exits(0)
        .says(&["job 1: 1 of 1 task succeeded", "job 3: 1 of 1"]);
    cluster
        .run(&["job", "wait", &jobs[2], &jobs[1]])
        .exits(1)
        .says(&["job 2: 0 of 1 task succeeded, 1 failed"]);
    let ended = cluster.run(&["--json", "job", "wait", &jobs[1], &jobs[0]]).exits(1).json("jobs");
    assert_eq!((&ended[0]["job"], &ended[1]["job"]), (&2.into(), &1.into()));
    assert_eq!(cluster.ask(&["job", "show", "last"], "jobs")[0]["job"], 3);
    cluster.run(&["report", "last", "--baseline", "1", "-o", "r.json"]).exits(0);
    assert!(cluster.read("r.json").contains("\"job\":3"));
}

#[test]
fn a_terminal_shows_how_far_a_job_is() {
    if !can_use(&["script", "stty"]) {
        return;
    }
    let cluster = Cluster::start(&[&[]]);
    let wait = "until [ -e go-{} ]; do sleep 0.02; done";
    cluster.write(
        "job.toml",
        format!("[[task]]\narray = \"1-2\"\ncommand = [\"sh\", \"-c\", \"{wait}\"]\n"),
    );
    let commands = ["--cluster test submit --wait job.toml", "--cluster test job wait last"];
    let mut waiting = commands.map(|words| {
        let (child, mut shown) = on_a_terminal(&cluster, words);
        read_until(&mut shown, "0/2");
        (child, shown)
    });
    cluster.write("go-1", "");
    waiting.iter_mut().for_each(|(_, shown)| drop(read_until(shown, "1/2")));
    cluster.write("go-2", "");
    for (mut child, mut shown) in waiting {
        read_until(&mut shown, "2 of 2 tasks succeeded");
        assert!(child.wait().expect("our own child").success());
    }
}

#[test]
fn a_large_array_is_shown_on_its_way_and_can_be_withdrawn() {
    if !can_use(&["script", "stty"]) {
        return;
    }
    let cluster = Cluster::start(&[&[]]);
    let (mut child, mut shown) =
        on_a_terminal(&cluster, "--cluster test run --array 1-10000000 --noop");
    read_until(&mut shown, "the dispatcher checks and stores 10000000 tasks");
    let is_run = |words: &str| words.contains(" run ") && !words.contains("stty");
    let run = wait_for("the command", || {
        cluster.processes().into_iter().find(|(_, words)| is_run(words))
    });
    signal(run.0, Signal::INT);
    read_until(&mut shown, "interrupted; no job was submitted");
    assert_eq!(child.wait().expect("our own child").code(), Some(130));
    assert_eq!(cluster.ask(&["job", "list"], "jobs").as_array().map(Vec::len), Some(0));
    // The cluster still works.
    cluster.run(&["run", "--array", "1-3", "--noop"]).exits(0).says(&["3 of 3 tasks succeeded"]);
}

#[test]
fn a_job_beyond_its_limits_is_refused_with_the_limit() {
    let cluster = Cluster::start(&[&[]]);
    cluster.run(&["run", "--array", "1-10000001", "--noop"]).exits(2).says(&["submit it in parts"]);
    cluster.write("job.toml", "[[task]]\nnoop = true\narray = \"1-9999999\"\n".repeat(2));
    cluster
        .run(&["submit", "job.toml"])
        .exits(1)
        .says(&["job.toml, line 4", "at most 10000000 tasks"]);
    cluster.write("long", ["short\n", &"x".repeat(64_000_001), "\n"].concat());
    cluster
        .run(&["run", "--each-line", "long", "--noop"])
        .exits(1)
        .says(&["long, line 2: the line is longer than"]);
    let long = "y".repeat(68_000_000);
    cluster.write("job.toml", format!("[[task]]\nnoop = true\nenv = {{ LONG = \"{long}\" }}\n"));
    cluster
        .run(&["submit", "job.toml"])
        .exits(1)
        .says(&["the commands and options of the job cannot be submitted"]);
    // Lines that exceed one message together are sent in several messages.
    cluster.write("list", format!("{}\n", "z".repeat(20_000)).repeat(3400));
    cluster
        .run(&["run", "--each-line", "list", "--noop"])
        .exits(0)
        .says(&["3400 of 3400 tasks succeeded"]);
    assert_eq!(
        cluster.ask(&["job", "list"], "jobs").as_array().map(Vec::len),
        Some(1),
        "nothing else was accepted"
    );
}

#[test]
fn jobs_that_go_on_are_told_of_when_the_cluster_starts() {
    let home = Home::new();
    let job = "name = \"long\"\n[[task]]\narray = \"1-3\"\ncommand = [\"sh\", \"-c\", \"[ {} = 1 \
               ] || sleep 1000\"]\n";
    home.write("job.toml", job);
    let eyas = |words: &[&str]| home.eyas(&[&["--cluster", "test"], words].concat());
    let start = ["start", "local", "--nodes", "1", "--slots", "1", "--detach"];
    let first = eyas(&start).exits(0);
    assert!(!first.stderr.contains("continues"), "{}", first.stderr);
    eyas(&["submit", "job.toml"]).exits(0);
    let has_ended =
        || eyas(&["--json", "job", "list"]).exits(0).json("jobs")[0]["tasks"]["succeeded"] == 1;
    wait_until("its first task has ended", has_ended);
    let stop = || {
        eyas(&["stop"]).exits(0);
        wait_until("the cluster has ended", || home.processes().is_empty());
    };
    stop();
    let told = "job 1 (`long`) continues: 2 of 3 tasks are left; `eyas job cancel 1` cancels it";
    eyas(&start).exits(0).says(&[told, "1 executor ready"]);
    stop();
    let mut dispatcher =
        home.command(&["--cluster", "test", "start", "dispatcher", "--listen", "127.0.0.1:0"]);
    let mut dispatcher =
        dispatcher.stdout(Stdio::piped()).stderr(home.log()).spawn().expect("eyas can be started");
    let mut lines =
        BufReader::new(dispatcher.stdout.take().expect("piped")).lines().map(Result::unwrap);
    assert!(lines.by_ref().take_while(|line| line != "ready").any(|line| line.contains(told)));
    eyas(&["job", "cancel", "last"]).exits(0);
    eyas(&["stop"]).exits(0);
    assert!(dispatcher.wait().expect("our own child").success());
    assert!(!eyas(&start).exits(0).stderr.contains("continues"));
    stop();
}

#[test]
fn the_live_view_takes_keys_and_leaves_the_terminal_as_it_was() {
    if !can_use(&["script", "stty"]) {
        return;
    }
    let cluster = Cluster::start(&[&[]]);
    let program = eyas().display();
    let top = format!("{program} --cluster test top --interval 100ms");
    let restored = r#"[ "$(stty -g)" = "$before" ] && echo restored $code"#;
    let words = format!("before=$(stty -g); {top}; code=$?; {restored}");
    let (mut child, mut keys, mut shown) = shell_on_a_terminal(&cluster, &words);
    let first = read_until(&mut shown, "q quit   tab switch pane");
    assert!(first.contains("\x1b[?1049h") && first.contains("Executors: 1"), "{first}");
    for (pressed, answer) in [("c", "there is no job to cancel"), ("\tc", "select a job to cancel")]
    {
        keys.write_all(pressed.as_bytes()).expect("the view reads keys");
        read_until(&mut shown, answer);
    }
    keys.write_all(b"\x1b[5~q").expect("the view reads keys");
    let last = read_until(&mut shown, "restored 0");
    assert!(last.contains("\x1b[?25h\x1b[?1049l"), "{last}");
    assert_eq!(child.wait().expect("our own child").code(), Some(0));

    // A signal ends the view, too.
    let (mut child, _keys, mut shown) = shell_on_a_terminal(&cluster, &format!("{words}; true"));
    read_until(&mut shown, "q quit");
    let view = wait_for("the view", || {
        let processes = cluster.processes();
        processes.into_iter().find(|(_, words)| words.contains(" top ") && !words.contains("stty"))
    });
    signal(view.0, Signal::TERM);
    read_until(&mut shown, "restored 130");
    child.wait().expect("our own child");
}

#[test]
fn one_connection_submits_and_watches_one_job_after_the_other() {
    let cluster = Cluster::start(&[&[]]);
    let access = Access::load(&cluster.path("home/clusters/test/access.toml")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = Client::connect(&access).await.unwrap();
        for number in 1..=50 {
            let mut draft = Draft::new("one");
            let template = draft.template(TaskTemplate::new(Program::Noop)).unwrap();
            draft.task(TaskItem { template, values: Vec::new(), inputs: Vec::new() }).unwrap();
            // The first request after the end of a watch is no part of the watch.
            let job = client.submit(draft).await.unwrap();
            let view = client.watch(job, true, Duration::ZERO, |_| {}).await.unwrap();
            assert_eq!((job.0, view.state), (number, JobState::Succeeded));
        }
    });
}
