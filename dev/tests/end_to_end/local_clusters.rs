//! Clusters that are started and stopped repeatedly: none leaves anything that hinders the next.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::{Home, SmallDisk, can_use, eyas, finish, signal, wait_for, wait_until};

const START: [&str; 7] = ["--cluster", "test", "start", "local", "--detach", "--nodes", "2"];

fn log(home: &Home) -> String {
    fs::read_to_string(home.path("home/clusters/test/log")).unwrap()
}

#[test]
fn a_stopped_cluster_is_gone_and_can_be_started_at_once() {
    let home = Home::new();
    for _ in 0..4 {
        home.eyas(&START).exits(0).says(&["2 executors ready"]);
        home.eyas(&["--cluster", "test", "stop"]).exits(0).says(&["stopped 2 executors"]);
        assert_eq!(home.processes(), []);
    }
}

#[test]
fn a_running_cluster_is_said_to_run_and_a_log_tells_when() {
    let home = Home::new();
    home.eyas(&START).exits(0);
    home.eyas(&["--cluster", "test", "run", "--array", "1", "--", "true"]).exits(0);
    for words in [&START[..], &START[..4], &["--cluster", "test", "start", "dispatcher"]] {
        let done = home.eyas(words).exits(1);
        let said = done
            .says(&["`test` is already running", "--cluster test", "eyas stop --cluster test"])
            .stderr;
        assert!(!said.contains("up"), "old lines of its log: {said}");
    }
    // The running cluster is not harmed.
    home.eyas(&["--cluster", "test", "run", "--array", "1", "--", "true"]).exits(0);
    home.eyas(&["--cluster", "test", "stop"]).exits(0);
    let text = log(&home);
    assert!(
        text.contains("2 executors ready") && text.lines().all(|line| line.starts_with("20")),
        "{text}"
    );
    // A cluster that cannot start says why, and does not repeat messages of an earlier one.
    let journal = home.path("home/clusters/test/journal.redb");
    let sound = fs::read(&journal).unwrap();
    fs::write(&journal, "no journal").unwrap();
    let done = home.eyas(&START).exits(1).says(&["did not start", "journal"]);
    assert!(!done.stderr.contains("executors ready"), "{}", done.stderr);
    fs::write(&journal, sound).unwrap();
}

#[test]
fn a_job_for_which_no_disk_has_room_ends_its_command() {
    let home = Home::new();
    home.write("in", "x");
    let words =
        ["run", "--report", "none", "--keep-free", "900TB", "-i", "in", "--", "touch", "ran"];
    home.eyas(&words).exits(1).says(&[
        "no executor has room on its disk",
        "--keep-free",
        "1 cancelled",
    ]);
}

#[test]
fn a_cluster_keeps_no_lock_of_its_caller() {
    if !can_use(&["flock"]) {
        return;
    }
    let home = Home::new();
    let lock = home.write("lock", "");
    let under_lock = |options: &[&str], words: &[&str]| {
        let mut command = Command::new("flock");
        command.args(options).arg(&lock).args(words);
        home.finish(home.command_of(command, &[]))
    };
    let start: Vec<_> = [eyas().to_str().unwrap()].into_iter().chain(START).collect();
    under_lock(&[], &start).exits(0);
    under_lock(&["--nonblock"], &["true"]).exits(0);
    home.eyas(&["--cluster", "test", "stop"]).exits(0);
}

#[test]
fn a_cluster_finds_what_it_keeps_with_and_without_a_file_system() {
    let home = Home::new();
    let cluster = |words: &[&str]| home.eyas(&[&["--cluster", "test"][..], words].concat());
    let ran = home.work().join("ran");
    let command =
        format!(r#"["sh", "-c", 'echo ran >>"$1"; echo kept >out', "sh", "{}"]"#, ran.display());
    home.write(
        "job.toml",
        format!("[[task]]\ncommand = {command}\noutputs = [{{ file = \"out\", keep = true }}]\n"),
    );
    for (number, has_files) in [false, true, false, true].into_iter().enumerate() {
        let start = ["start", "local", "--detach", "--nodes", "1", "--dfs"];
        cluster(if has_files { &start } else { &start[..5] }).exits(0);
        if number == 0 {
            cluster(&["submit", "--wait", "job.toml"]).exits(0);
        }
        cluster(&["job", "get", "1", "--to", "got", "--force"]).exits(0);
        assert_eq!(home.read("got/0/out"), "kept\n");
        cluster(&["stop"]).exits(0);
    }
    assert_eq!(fs::read_to_string(ran).unwrap(), "ran\n", "the task ran once");
}

#[test]
fn a_start_with_fewer_nodes_that_would_lose_what_is_kept_is_refused() {
    let home = Home::new();
    let cluster = |words: &[&str]| home.eyas(&[&["--cluster", "test"][..], words].concat());
    let start = |nodes: &str| cluster(&["start", "local", "--detach", "--nodes", nodes]);
    // Each task waits for the other, so that each node has one output.
    let script =
        "echo $0 >out; : >here-$0; until [ -e here-1 ] && [ -e here-2 ]; do sleep 0.02; done";
    let script = script.replace("here", home.work().join("here").to_str().unwrap());
    let task = format!("array = \"1-2\"\ncommand = [\"sh\", \"-c\", '{script}', \"{{}}\"]\n");
    home.write(
        "job.toml",
        format!("[[task]]\n{task}outputs = [{{ file = \"out\", keep = true }}]\n"),
    );
    cluster(&["start", "local", "--detach", "--nodes", "2", "--slots", "1"]).exits(0);
    cluster(&["submit", "--wait", "job.toml"]).exits(0);
    cluster(&["stop"]).exits(0);
    start("1").exits(1).says(&["only executor n2", "--nodes 2", "eyas job release"]);
    start("2").exits(0);
    cluster(&["job", "get", "1", "--to", "got"]).exits(0);
    cluster(&["job", "release", "1"]).exits(0);
    cluster(&["stop"]).exits(0);
    start("1").exits(0);
    cluster(&["stop"]).exits(0);
}

#[test]
fn a_dispatcher_can_be_detached() {
    let home = Home::new();
    let start = ["--cluster", "test", "start", "dispatcher", "--listen", "127.0.0.1:0", "--detach"];
    home.eyas(&start).exits(0).says(&[
        "listens on 127.0.0.1:",
        "eyas start executor --access",
        "its log is",
    ]);
    let jobs = home.eyas(&["--cluster", "test", "--json", "job", "list"]).exits(0).json("jobs");
    assert_eq!(jobs.as_array().map(Vec::len), Some(0));
    home.eyas(&["--cluster", "test", "stop"]).exits(0);
    assert_eq!(home.processes(), []);
    assert!(log(&home).contains("listens on"));
}

#[test]
fn a_dispatcher_whose_name_is_unknown_is_reached_on_its_own_host() {
    let home = Home::new();
    // No name service asks for a part of a name that has over 63 letters.
    let name = "x".repeat(64);
    let start = [
        "--cluster",
        "test",
        "start",
        "dispatcher",
        "--listen",
        "0.0.0.0:0",
        "--advertise",
        &name,
        "--detach",
    ];
    home.eyas(&start).exits(0).says(&["does not resolve on this host", "--advertise ADDRESS"]);
    home.eyas(&["--cluster", "test", "stop"]).exits(0);
    assert_eq!(home.processes(), []);
}

#[test]
fn a_run_that_is_killed_as_soon_as_it_has_begun_leaves_no_folder() {
    for how in [Signal::KILL, Signal::TERM] {
        for number in 0..4 {
            let home = Home::new();
            let child = home.spawn(&["run", "--array", "1", "--", "true"]);
            // The command is killed when its cluster first appears, and a little later each time.
            wait_until("its cluster begins", || match number {
                0 => home.processes().len() > 1,
                1 => !home.temporary().is_empty(),
                2 => home
                    .temporary()
                    .first()
                    .is_some_and(|folder| folder.join("access.toml").exists()),
                _ => home.temporary().first().is_some_and(|folder| folder.join("n1").exists()),
            });
            signal(child.id(), how);
            finish(child);
            wait_until("its processes have ended", || home.processes().is_empty());
            assert_eq!(home.temporary(), [] as [std::path::PathBuf; 0]);
        }
    }
}

#[test]
fn a_run_in_a_full_temporary_folder_fails_and_leaves_nothing_there() {
    let Some(disk) = SmallDisk::mount("size=64k") else { return };
    let home = Home::new();
    let _ = fs::write(disk.path().join("others"), [1; 128 << 10]);
    let mut command = home.command(&["run", "--array", "1", "--", "true"]);
    command.env("TMPDIR", disk.path());
    home.finish(command).exits(1).says(&["No space left on device"]);
    wait_until("its processes have ended", || home.processes().is_empty());
    let left: Vec<_> =
        fs::read_dir(disk.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["others"]);
}

#[test]
fn an_executor_in_an_allocation_waits_for_its_dispatcher_and_has_what_it_was_given() {
    let home = Home::new();
    let folder = home.path("nodes");
    let mut command = home.command(&["--cluster", "test", "start", "executor", "--folder"]);
    command.arg(&folder).args(["--keep-free", "10MB"]).stdout(Stdio::null()).stderr(Stdio::piped());
    for (name, value) in [
        ("SLURM_JOB_ID", "7"),
        ("SLURMD_NODENAME", "c1"),
        ("SLURM_CPUS_ON_NODE", "1"),
        ("SLURM_MEM_PER_NODE", "64"),
    ] {
        command.env(name, value);
    }
    let mut executor = command.spawn().unwrap();
    let mut said = std::io::BufReader::new(executor.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert!(line.contains("waiting for the access file"), "{line}");
    let start = ["--cluster", "test", "start", "dispatcher", "--listen", "127.0.0.1:0", "--detach"];
    home.eyas(&start).exits(0);
    let found = wait_for("it joins", || {
        let found = home
            .eyas(&["--cluster", "test", "--json", "executor", "list"])
            .exits(0)
            .json("executors");
        found.get(0).cloned()
    });
    assert_eq!(
        (&found["name"], &found["capacity"]["cpus_milli"]),
        (&"c1".into(), &1000.into()),
        "{found}"
    );
    assert_eq!(found["capacity"]["memory_bytes"], 64 << 20);
    assert!(folder.join("c1/store").is_dir(), "a folder of its own");
    home.eyas(&["--cluster", "test", "stop"]).exits(0);
    assert_eq!(home.processes(), []);
    executor.wait().unwrap();
}

#[test]
fn a_folder_with_other_files_is_not_taken_for_one_that_is_removed_at_the_end() {
    let home = Home::new();
    fs::create_dir_all(home.path("mine")).unwrap();
    fs::write(home.path("mine/notes"), "kept").unwrap();
    let (access, folder) = (home.path("mine/access.toml"), home.path("mine"));
    let (access, folder) = (access.to_str().unwrap(), folder.to_str().unwrap());
    for start in
        [&["local"][..], &["dispatcher"], &["executor", "--folder", folder, "--wait-for-input"]]
    {
        let words =
            [&["--access", access, "start"][..], start, &["--owned", "--ephemeral"]].concat();
        home.eyas(&words).exits(1).says(&["mine is not empty", "name a new folder"]);
        assert_eq!(fs::read_to_string(home.path("mine/notes")).unwrap(), "kept");
    }
}

#[test]
fn run_and_submit_use_the_same_cluster() {
    let home = Home::new();
    home.write("job.toml", "[[task]]\ncommand = [\"true\"]\n");
    let run = ["run", "--array", "1", "--", "echo", "{}"];
    // There is no cluster: `run` starts one for the job.
    assert_eq!(home.eyas(&run).exits(0).stdout, "1\n");
    let start = ["start", "local", "--nodes", "1", "--slots", "1", "--detach"];
    home.eyas(&start).exits(0);
    home.eyas(&[&start[..], &["--cluster", "sky"]].concat()).exits(0);
    assert_eq!(home.eyas(&["submit", "job.toml"]).exits(0).stdout, "1\n");
    assert_eq!(home.eyas(&run).exits(0).stdout, "1\n");
    let jobs = || home.eyas(&["--json", "job", "list"]).exits(0).json("jobs");
    assert_eq!(jobs().as_array().unwrap().len(), 2, "both are jobs of `default`");
    home.eyas(&["explain", "last"]).exits(0);
    home.eyas(&["task", "log", "last.0"]).exits(0);
    home.eyas(&["job", "show", "7"]).exits(1).says(&[
        "there is no job 7",
        "This is the cluster `default`",
        "another cluster is named with `--cluster sky`",
    ]);
    // An option that shapes a cluster asks for one of the job's own.
    home.eyas(&["run", "--nodes", "1", "--array", "1", "--", "true"]).exits(0);
    assert_eq!(jobs().as_array().unwrap().len(), 2);
    home.eyas(&["run", "--cluster", "default", "--nodes", "1", "--", "true"])
        .exits(2)
        .says(&["--nodes is for a cluster that `eyas run` starts", "--cluster default"]);
    home.eyas(&["stop"]).exits(0);
    let done = home.eyas(&run).exits(0);
    done.says(&["the cluster `default` does not run, so the job gets a temporary cluster"]);
    home.eyas(&["--cluster", "sky", "stop"]).exits(0);
}
