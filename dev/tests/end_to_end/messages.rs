//! Messages about mistakes of users: each says what is wrong, where, and what to type instead.

use std::fs;

use rustix::process::Signal;

use crate::support::{Cluster, Home, SmallDisk, signal};

/// A wrong command, and parts of its error message.
struct Mistake {
    words: &'static [&'static str],
    code: i32,
    says: &'static [&'static str],
}

const fn mistake(
    words: &'static [&'static str],
    code: i32,
    says: &'static [&'static str],
) -> Mistake {
    Mistake { words, code, says }
}

/// Mistakes in a folder with files `a.txt` and `b.txt`, and the job files of [`JOB_FILES`]; no
/// cluster runs.
const MISTAKES: &[Mistake] = &[
    mistake(
        &["run", "--cpus", "-1", "--array", "1-2", "--", "true"],
        2,
        &["'--cpus <N>'", "`-1` is not a number of processors", "from 0.001 to 1000000"],
    ),
    mistake(
        &["run", "--retries", "-1", "--array", "1-2", "--", "true"],
        2,
        &["'--retries <N>'", "-1"],
    ),
    mistake(
        &["run", "--each", "a.txt", "b.txt", "--", "wc", "-l"],
        2,
        &["'b.txt'", "the shell has replaced a pattern", "--each '*.txt'"],
    ),
    mistake(
        &["run", "--each", "*.txt", "wc", "-l", "{}"],
        2,
        &["'wc'", "write `--` before the command", "eyas run --each '*.txt' -- wc -l {}"],
    ),
    mistake(&["map", "/data", "grep", "x"], 2, &["eyas map <FILE>... -- <PROGRAM>..."]),
    mistake(
        &["run", "--each", "*.txt", "--", "wc -l {}"],
        1,
        &["`wc -l {}` is one word", "wc, -l, {}", "sh -c 'wc -l {}'"],
    ),
    mistake(
        &["run", "--each", "*.fits", "--", "wc"],
        1,
        &["no file matches `*.fits`", "in quotes"],
    ),
    mistake(
        &["submit", "command.toml"],
        1,
        &["command.toml, line 2: ", "`command` is a list of words", r#"command = ["wc", "{}"]"#],
    ),
    mistake(
        &["submit", "single.toml"],
        1,
        &["single.toml, line 1: ", "[[task]] with two brackets"],
    ),
    mistake(
        &["submit", "key.toml"],
        1,
        &[
            "key.toml, line 3: `output` is not a key of a task",
            "the nearest key is `outputs`",
            "write outputs = [\"x\"]",
        ],
    ),
    mistake(&["submit", "no.toml"], 1, &["no.toml: there is no such file"]),
    mistake(
        &["run", "--each-line", "short.csv", "--colsep", ",", "--", "echo", "{2}"],
        1,
        &["short.csv, line 2: `{2}` asks for column 2"],
    ),
    mistake(&["run", "--each", "~/x/*", "--", "cat"], 1, &["`~` is for the shell"]),
    mistake(
        &["run", "--cluster", "sky", "--slots", "2", "--nodes", "1", "--", "true"],
        2,
        &["--nodes is for a cluster that `eyas run` starts", "(--cluster sky)", "leave --nodes"],
    ),
    mistake(
        &["run", "--pool", "local", "--nodes", "2", "--", "true"],
        2,
        &["--nodes cannot be used with --pool", "--max-nodes"],
    ),
    mistake(&["submit", "--reconnect", "5s", "key.toml"], 2, &["--wait"]),
    mistake(&["submit", "job.json"], 1, &["job.json, line 1: ", "each task on one line", ".jsonl"]),
    mistake(&["submit", "bad.jsonl"], 1, &["bad.jsonl, line 2, column 21: "]),
    mistake(&["submit", "empty.toml"], 1, &["empty.toml has no tasks", "[[task]]"]),
    mistake(&["submit", "empty.jsonl"], 1, &["empty.jsonl has no tasks", "{\"command\""]),
    mistake(
        &["run", "--", "echo", "a{}"],
        1,
        &["`a{}` asks for the item", "the task has none", r"`\{}`"],
    ),
    mistake(
        &["cluster", "remove", "none"],
        1,
        &["there is no cluster `none`", "eyas cluster list"],
    ),
];

const JOB_FILES: &[(&str, &str)] = &[
    ("command.toml", "[[task]]\ncommand = \"wc {}\"\neach = \"*.txt\"\n"),
    ("single.toml", "[task]\ncommand = [\"true\"]\n"),
    ("job.json", "[{\"command\": [\"true\"]}]\n"),
    ("bad.jsonl", "{\"command\": [\"true\"]}\n{\"command\": [\"true\" }\n"),
    ("key.toml", "[[task]]\ncommand = [\"true\"]\noutput = [\"x\"]\n"),
    ("short.csv", "a,1\nb\n"),
    ("empty.toml", "name = \"empty\"\n"),
    ("empty.jsonl", "\n\n"),
];

#[test]
fn a_mistake_is_named_with_what_to_type_instead() {
    let home = Home::new();
    for (name, text) in [("a.txt", "a\n"), ("b.txt", "b\n")].iter().chain(JOB_FILES) {
        home.write(name, text);
    }
    for Mistake { words, code, says } in MISTAKES {
        let done = home.eyas(words).exits(*code).says(says);
        for unclear in ["at line 1 column", "expected a sequence", "TOML parse", "'-- "] {
            assert!(!done.stderr.contains(unclear), "{words:?}: {}", done.stderr);
        }
    }
}

#[test]
fn a_stopped_cluster_is_named_and_can_be_removed() {
    let home = Home::new();
    let start = ["start", "local", "--nodes", "1", "--slots", "1", "--detach", "--cluster", "sky"];
    home.eyas(&start).exits(0).says(&["1 executor ready"]);
    home.eyas(&start)
        .exits(1)
        .says(&["the cluster `sky` is already running", "eyas stop --cluster sky"]);
    home.eyas(&["cluster", "remove", "sky"])
        .exits(1)
        .says(&["`sky` is running", "eyas stop --cluster sky"]);
    home.eyas(&["stop", "--cluster", "sky"]).exits(0).says(&["stopped 1 executor"]);
    let done = home.eyas(&["job", "list", "--cluster", "sky"]).exits(1);
    done.says(&[
        "the cluster `sky` does not answer",
        "eyas start local --cluster sky",
        "eyas cluster remove sky",
    ]);
    let clusters = home.eyas(&["cluster", "list", "--json"]).exits(0).json("clusters");
    assert_eq!(
        (&clusters[0]["name"], &clusters[0]["state"]),
        (&"sky".into(), &"stopped".into()),
        "{clusters}"
    );
    assert!(clusters[0]["bytes"].as_u64() > Some(0), "{clusters}");
    home.eyas(&["cluster", "remove", "sky"]).exits(0).says(&["removed the cluster `sky`"]);
    assert_eq!(
        home.eyas(&["cluster", "list", "--json"]).exits(0).json("clusters"),
        serde_json::json!([])
    );
    assert!(
        !home.path("home/clusters/sky").exists() && !home.path("home/cache/clusters/sky").exists()
    );
}

#[test]
fn a_port_that_is_taken_is_explained() {
    let home = Home::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    home.eyas(&["start", "dispatcher", "--listen", &address]).exits(1).says(&[
        "cannot listen on",
        &address,
        "--listen",
    ]);
    // Another program listens on the port that the cluster used before.
    drop(port);
    home.eyas(&["start", "dispatcher", "--detach", "--listen", &address]).exits(0);
    home.eyas(&["stop"]).exits(0);
    let _port = std::net::TcpListener::bind(&address).unwrap();
    let done = home.eyas(&["start", "dispatcher", "--listen", "127.0.0.1:0"]).exits(1);
    done.says(&[
        "cannot listen on",
        "this cluster used port",
        "another dispatcher of this cluster",
        "--cluster NAME",
    ]);
}

#[test]
fn a_store_that_can_never_grow_to_its_size_is_refused_or_said() {
    let cluster = Cluster::start(&[]);
    let folder = cluster.path("n1");
    let start =
        ["start", "executor", "--owned", "--cluster", "test", "--folder", folder.to_str().unwrap()];
    let with = |more: &[&str]| cluster.eyas(&[&start[..], more].concat());
    with(&["--keep-free", "900TB"]).says(&[
        "--keep-free 900.0 TB leaves no room",
        "--keep-free 1GB",
        "--folder",
    ]);
    let cache = ["--cache", "900TB", "--keep-free", "1MB"];
    with(&cache).says(&["--cache 900.0 TB is more than the disk of", "The store grows to"]);
}

#[test]
fn a_long_item_is_shortened_wherever_a_message_quotes_it() {
    let cluster = Cluster::start(&[&[]]);
    let item = "ä".repeat(60_000) + &"x".repeat(280_000);
    cluster.write("items", item.clone() + "\n");
    cluster.write("job.toml", "[[task]]\neach_line = \"items\"\ncommand = [\"{}\", \"{}\"]\n");
    let is_short = |text: &str| {
        assert!(
            text.len() < 2500,
            "{} bytes: {}",
            text.len(),
            text.chars().take(2000).collect::<String>()
        );
        assert!(text.contains("ää… ") && text.contains(" more …xx"), "{text}");
    };
    is_short(
        &cluster
            .run(&["run", "--each-line", "items", "--", "sh", "-c", "exit 3", "{}"])
            .exits(1)
            .stderr,
    );
    is_short(&cluster.run(&["run", "--each-line", "items", "--", "{}"]).exits(1).stderr);
    is_short(&cluster.run(&["submit", "--wait", "job.toml"]).exits(1).stderr);
    is_short(
        &cluster.run(&["run", "--each-line", "items", "-i", "{}", "--", "true"]).exits(1).stderr,
    );
    is_short(&cluster.run(&["task", "list", "1"]).exits(0).stdout);
    is_short(&cluster.run(&["explain", "1.0"]).exits(0).stdout);
    let clap = cluster.eyas(&["run", "--array", "1", &item[..100_000], "--", "true"]);
    assert!(clap.stderr.len() < 2500, "{} bytes", clap.stderr.len());
    // Answers for programs have the whole.
    assert_eq!(
        cluster.run(&["task", "list", "1", "--json"]).exits(0).json("tasks")[0]["item"],
        *item
    );
}

#[test]
fn a_failure_comes_with_item_command_and_the_end_of_its_standard_error() {
    let cluster = Cluster::start(&[&[]]);
    let job = r#"
        [[task]]
        id = "count"
        command = ["sh", "-c", "echo to stdout; echo cannot count >&2; exit 3", "x", "{}"]
        each = "*.txt"
    "#;
    cluster.write("job.toml", job);
    cluster.write("a b.txt", "a\n");
    let done = cluster.run(&["submit", "--wait", "job.toml"]).exits(1);
    let line = "sh -c 'echo to stdout; echo cannot count >&2; exit 3' x 'a b.txt'";
    done.says(&[
        "task 1.0 did not succeed: exit code 3",
        "id: count",
        "item: a b.txt",
        line,
        "  cannot count",
    ]);
    let done = cluster
        .run(&["run", "--report", "none", "--each", "*.txt", "--", "sh", "-c", "exit 4"])
        .exits(1);
    done.says(&[
        "task 2.0 did not succeed: exit code 4",
        "item: a b.txt",
        "command: sh -c 'exit 4'",
        "`eyas job retry 2 --cluster test` runs the 1 unsuccessful task again",
    ]);
    let shown = cluster.run(&["task", "show", "1.0"]).exits(0).stdout;
    assert!(shown.contains(line) && shown.contains("count"), "{shown}");
    let done = cluster.run(&["task", "log", "1.0"]).exits(0).says(&["cannot count", "exit code 3"]);
    assert_eq!(done.stdout, "to stdout\n");
    let report = cluster.run(&["report", "1", "-o", "r.html"]).exits(0);
    assert!(report.stderr.contains("r.html"));
    assert!(
        cluster.read("r.html").contains("cannot count")
            && cluster.read("r.html").contains("a b.txt")
    );
    let failure = &cluster.run(&["report", "1", "--json"]).exits(0).json("report")["failures"][0];
    assert_eq!(
        (&failure["id"], &failure["item"]),
        (&"count".into(), &"a b.txt".into()),
        "{failure}"
    );
    assert_eq!(
        (&failure["status"], &failure["stderr"]),
        (&"exit code 3".into(), &"cannot count".into()),
        "{failure}"
    );
}

#[test]
fn a_list_says_where_it_stops() {
    let cluster = Cluster::start(&[&[]]);
    cluster.run(&["run", "--report", "none", "--array", "1-5", "--noop"]).exits(0);
    let list = |words: &[&str]| cluster.run(&[&["task", "list", "1"], words].concat()).exits(0);
    list(&["--limit", "2"]).says(&["the list stops after 2 tasks", "eyas task list 1 --from 2"]);
    assert!(!list(&["--limit", "5"]).stderr.contains("stops"));
    let json: serde_json::Value =
        serde_json::from_str(&list(&["--limit", "2", "--json"]).stdout).unwrap();
    assert_eq!((json["tasks"].as_array().unwrap().len(), &json["next"]), (2, &2.into()));
    let json: serde_json::Value = serde_json::from_str(&list(&["--json"]).stdout).unwrap();
    assert!(json["next"].is_null());
    // Counts of one are singular, and a small rate is not printed as 0.
    cluster.run(&["job", "cancel", "1"]).exits(0).says(&["cancelled 0 tasks of job 1"]);
    let done =
        cluster.run(&["run", "--report", "none", "--array", "1", "--", "sleep", "1.2"]).exits(0);
    let rate = done.stderr.rsplit('(').next().unwrap();
    assert!(rate.starts_with("0."), "{}", done.stderr);
}

#[test]
fn missing_credentials_of_object_storage_are_named() {
    let cluster = Cluster::start(&[]);
    let mut command = cluster.command(&[
        "run",
        "--cluster",
        "test",
        "--each",
        "s3://no-such-bucket/*",
        "--",
        "true",
    ]);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    // An endpoint that refuses clients without credentials.
    let server = refusing_server();
    command
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_ENDPOINT_URL", server)
        .env("AWS_REGION", "none");
    command.env("HOME", cluster.path("tmp"));
    let done = cluster.finish(command).exits(1);
    done.says(&[
        "s3://no-such-bucket",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "eyas start executor",
    ]);
}

/// A web server that answers every request with 403.
fn refusing_server() -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        }
    });
    format!("http://{address}")
}

#[test]
fn the_command_alone_orders_requests_of_programs() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    fs::create_dir(home.path("alone")).unwrap();
    let alone = home.path("alone").join("eyas");
    fs::copy(crate::support::eyas(), &alone).unwrap();
    let path = home.work();
    let words =
        ["io", "run", "--here", "--always", "--path", path.to_str().unwrap(), "--", "cat", "input"];
    home.write("input", "content\n");
    let mut command = home.command_of(std::process::Command::new(&alone), &words);
    command.env("XDG_RUNTIME_DIR", home.path("run"));
    let done = home.finish(command).exits(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("content\n", ""));
    let mut status = home.command(&["--json", "io", "status"]);
    status.env("XDG_RUNTIME_DIR", home.path("run"));
    let storages = home.finish(status).exits(0).json("io")["storages"].clone();
    // Without this, the agent would end by itself later.
    home.processes().iter().for_each(|(process, _)| signal(*process, Signal::TERM));
    assert!(!storages.as_array().unwrap().is_empty(), "no request was ordered: {storages}");
}

#[test]
fn a_program_where_no_program_can_run_is_said_to_be_there() {
    let Some(disk) = SmallDisk::mount("size=1m,noexec,mode=755") else { return };
    let tool = disk.path().join("tool");
    fs::write(&tool, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let done = Home::new()
        .eyas(&["run", "--array", "1", "--", tool.to_str().unwrap()])
        .exits(1)
        .says(&["`noexec`"]);
    assert!(!done.stderr.contains("chmod"), "{}", done.stderr);
}

#[test]
fn an_empty_name_of_the_temporary_folder_and_long_names_are_no_trouble() {
    let home = Home::new();
    let name = "x".repeat(2000);
    let mut command =
        home.command(&["run", "--array", "1", "--report", "none", "--name", &name, "--", "true"]);
    command.env("TMPDIR", "");
    home.finish(command).exits(0);
    assert_eq!(home.names("."), Vec::<String>::new());
    let mut cluster = Cluster::start_in(home, &[]);
    cluster.add_executor(&[]);
    cluster
        .run(&["run", "--array", "1", "--report", "none", "--name", &name, "--", "true"])
        .exits(0);
    let list = cluster.run(&["job", "list"]).exits(0).stdout;
    assert!(list.lines().all(|line| line.chars().count() < 200) && list.contains("xxx"), "{list}");
    assert_eq!(cluster.job("1")["name"], name.as_str());
}
