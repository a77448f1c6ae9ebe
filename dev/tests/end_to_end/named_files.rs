//! Files with names, `lfn://NAME`: registered, looked up by jobs, and read from mirrors of which
//! some are dead, lie about their content, or go away while tasks wait.

use std::net::TcpListener;

use serde_json::Value;

use crate::support::{Cluster, CommandOutput, Home, wait_until};
use crate::web_server::{Page, Web};

fn page(content: &str) -> Page {
    Page { content: content.into(), etag: Some("\"1\"".to_owned()), ..Page::default() }
}

/// Puts a page, and returns its URL.
fn put(server: &Web, name: &str, page: Page) -> String {
    let target = format!("/{name}");
    server.put(&target, page);
    server.url(&target)
}

/// A place at which no server listens.
fn refused() -> String {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/a", free.local_addr().unwrap())
}

/// The SHA-256 of a file of the home.
fn sha256(home: &Home, name: &str) -> String {
    let sum = std::process::Command::new("sha256sum").arg(home.work().join(name)).output();
    let sum = String::from_utf8(sum.expect("every system has sha256sum").stdout).unwrap();
    sum.split(' ').next().unwrap().to_owned()
}

/// The named files that match, as JSON.
fn query(cluster: &Cluster, pattern: &str) -> Value {
    cluster.ask(&["catalog", "query", pattern], "names")
}

/// Runs one task that prints a named file.
fn print(cluster: &Cluster, name: &str) -> CommandOutput {
    let source = format!("lfn://{name}");
    cluster.run(&["run", "--report", "none", "-i", &source, "--", "cat", "{input:1}"])
}

#[test]
fn names_are_registered_listed_and_removed_and_survive_the_dispatcher() {
    let mut cluster = Cluster::start(&[&[]]);
    cluster.write("a.txt", "a\n");
    cluster.write("copies/a.txt", "a\n");
    let sum = sha256(&cluster, "a.txt");
    let register = |words: &[&str]| cluster.run(&[&["catalog", "register"], words].concat());
    register(&["survey/a.txt", "a.txt", "--sha256", &sum]).exits(0);
    register(&["lfn://survey/a.txt", "copies/a.txt", "s3://b/k", "--size", "2"]).exits(0);
    register(&["survey/b.txt", "http://127.0.0.1:1/b"]).exits(0);
    let at = |name: &str| format!("file://{}/{name}", cluster.work().display());
    let places = |file: &Value| {
        let places = file["places"].as_array().unwrap().iter();
        places.map(|place| place["url"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let a = query(&cluster, "survey/a.txt")[0].take();
    assert_eq!(places(&a), [at("a.txt"), at("copies/a.txt"), "s3://b/k".into()]);
    assert_eq!((a["size_bytes"].as_u64(), a["sha256"].as_str()), (Some(2), Some(&sum[..])));
    assert_eq!(query(&cluster, "survey/*").as_array().unwrap().len(), 2);
    // What contradicts the registration changes nothing.
    for (words, says) in [
        (&["survey/a.txt", "c.txt", "--size", "3"][..], "is registered with 2 bytes, and not"),
        (&["survey/a.txt", "c.txt", "--sha256", &"0".repeat(64)], "is registered with SHA-256"),
        (&["survey/a.txt", "c.txt", "--sha256", "12"], "write its 64 hexadecimal digits"),
        (&["a b", "c.txt"], "cannot be the name of a file"),
        (&["/data/a.txt", "c.txt"], "a name comes before its places"),
        (&["c", "ftp://x/c"], "cannot be a place"),
        (&["c", "eyas:///c"], "cannot be a place"),
    ] {
        let refused = register(words);
        assert_ne!(refused.code, 0, "{words:?}");
        refused.says(&[says]);
    }
    let unregister = |words: &[&str]| cluster.run(&[&["catalog", "unregister"], words].concat());
    unregister(&["survey/a.txt", "s3://b/k"]).exits(0);
    unregister(&["survey/a.txt", "s3://b/k"]).exits(1).says(&["is not registered at `s3://b/k`"]);
    unregister(&["survey/b.txt"]).exits(0);
    unregister(&["survey/b.txt"]).exits(1).says(&["`survey/b.txt` is not registered"]);
    cluster.run(&["catalog", "query", "none"]).exits(1).says(&["no name is or matches `none`"]);
    let before = query(&cluster, "survey/*");
    cluster.restart_dispatcher();
    assert_eq!(query(&cluster, "survey/*"), before);
    cluster.wait_for_executors(1);
    assert_eq!(print(&cluster, "survey/a.txt").exits(0).stdout, "a\n");
    let each = ["run", "--report", "none", "--each", "lfn://survey/*", "--", "cat", "{}"];
    assert_eq!(cluster.run(&each).exits(0).stdout, "a\n");
    // A name that is not registered is an error at once.
    print(&cluster, "survey/b.txt").exits(1).says(&[
        "`lfn://survey/b.txt` is not registered in the cluster",
        "eyas catalog register survey/b.txt URL",
    ]);
    let each = ["run", "--report", "none", "--each", "lfn://none/*", "--", "cat", "{}"];
    cluster.run(&each).exits(1).says(&["no file matches `lfn://none/*`"]);
}

#[test]
fn an_import_registers_all_names_or_none() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write("a.txt", "a\n");
    let sum = sha256(&cluster, "a.txt");
    let import = |text: &str| {
        cluster.write("names", text);
        cluster.run(&["catalog", "import", "names"])
    };
    for (wrong, says) in [
        ("one", "names, line 3: there is no place"),
        ("one ftp://x/y", "names, line 3: `ftp://x/y` cannot be a place"),
        ("one http://h/a size=much", "names, line 3: "),
        ("one http://h/a sha256=1", "names, line 3: `1` is no SHA-256"),
        ("{\"name\": \"one\"}", "names, line 3: missing field `places`"),
        ("{\"name\": \"one\", \"urls\": []}", "names, line 3: unknown field `urls`"),
        ("zero http://h/z size=8", "names, line 3: `zero` is registered with 7 bytes"),
    ] {
        let text = format!("# name place\nzero http://h/z size=7\n{wrong}\n");
        import(&text).exits(1).says(&[says]);
        cluster.run(&["catalog", "query", "zero"]).exits(1);
    }
    let json = format!(
        "{{\"name\": \"two\", \"places\": [\"a.txt\", \"http://h/b\"], \"sha256\": \"{sum}\"}}"
    );
    let done = import(&format!("one  http://h/a\thttp://h/b size=2 sha256={sum}\n\n{json}\n"));
    assert_eq!(done.exits(0).stdout, "2 names registered.\n");
    let found = cluster.ask(&["catalog", "query"], "names");
    let sums: Vec<_> = found.as_array().unwrap().iter().map(|file| &file["sha256"]).collect();
    assert_eq!(sums, [sum.as_str(), &sum]);
    assert_eq!(print(&cluster, "two").exits(0).stdout, "a\n");
    // Many names are few messages.
    let many: String = (0..20_000).map(|n| format!("many/{n} http://h/{n} size=1\n")).collect();
    assert_eq!(import(&many).exits(0).stdout, "20000 names registered.\n");
    assert_eq!(query(&cluster, "many/1999?").as_array().unwrap().len(), 10);
}

#[test]
fn dead_mirrors_and_lies_are_passed_over_and_said() {
    let cluster = Cluster::start(&[&[], &[]]);
    let content = "line\n".repeat(40_000);
    let right = cluster.write("right.txt", &content);
    let sum = sha256(&cluster, "right.txt");
    let (bad, good) = (Web::start(), Web::start());
    let whole = put(&good, "right.txt", page(&content));
    let lie = content.replacen("line", "lies", 1);
    let cases = [
        ("refused", refused(), "refused"),
        ("gone", bad.url("/gone"), "check the URL"),
        (
            "truncated",
            put(&bad, "truncated", Page { cut_first: usize::MAX, ..page(&content) }),
            "truncated",
        ),
        ("stuck", put(&bad, "stuck", Page { is_stuck: true, ..page(&content) }), "stuck"),
        ("short", put(&bad, "short", page(&content[1..])), "bytes, and not"),
        ("lie", put(&bad, "lie", page(&lie)), "the content has SHA-256"),
    ];
    let size = content.len().to_string();
    for (name, place, _) in &cases {
        let known = ["--size", &size, "--sha256", &sum];
        let words = ["catalog", "register", name, place, &whole];
        cluster.run(&[&words[..], &known].concat()).exits(0);
        let done = print(&cluster, name).exits(0);
        assert!(done.stdout == content, "{name}: {} bytes", done.stdout.len());
    }
    // Without the good mirror, each task fails, and says why.
    for (name, place, says) in &cases {
        if *name == "stuck" {
            // Its only place is read with patience.
            continue;
        }
        let alone = format!("{name}-alone");
        let known = ["--size", &size, "--sha256", &sum];
        let gone = bad.url("/no-such-page");
        let words = ["catalog", "register", &alone, place, &gone];
        cluster.run(&[&words[..], &known].concat()).exits(0);
        print(&cluster, &alone).exits(1).says(&[
            &format!("cannot read `lfn://{alone}` from any of its places"),
            says,
            &gone,
        ]);
        let file = query(&cluster, &alone)[0].take();
        for passed in file["places"].as_array().unwrap() {
            assert!(passed["passed_over"]["why"].is_string(), "{alone}: {passed}");
        }
        let job = cluster.ask(&["job", "list"], "jobs");
        let job = job.as_array().unwrap().last().unwrap()["job"].to_string();
        let explained = cluster.run(&["explain", &format!("{job}.0")]).exits(0).stdout;
        let said = format!("passed over `{place}` of `lfn://{alone}`");
        assert!(explained.contains(&said), "{explained}");
    }
    // Without a size, it is looked up when the job is submitted.
    let (place, other) = (refused(), right.display().to_string());
    cluster.run(&["catalog", "register", "unsized", &place, &other]).exits(0);
    assert!(print(&cluster, "unsized").exits(0).stdout == content);
    cluster.run(&["catalog", "register", "unknown", &place]).exits(0);
    print(&cluster, "unknown").exits(1).says(&["is registered without a size", &place]);
}

#[test]
fn of_places_on_s3_one_that_lies_is_passed_over() {
    let storage = Web::start();
    let mut home = Home::new();
    for (name, value) in [
        ("AWS_ENDPOINT_URL", &*storage.url("")),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ] {
        home.set_variable(name, value);
    }
    let mut cluster = Cluster::start_in(home, &[]);
    cluster.add_executor(&[]);
    cluster.wait_for_executors(1);
    let content = "line\n".repeat(40_000);
    cluster.write("right.txt", &content);
    let sum = sha256(&cluster, "right.txt");
    storage.put("/bucket/lies/a%20b", page(&content.replacen("line", "lies", 1)));
    storage.put("/mirror/a%20b", page(&content));
    let places = ["s3://bucket/lies/a b", "s3://bucket/none", "s3://mirror/a b"];
    let register = |name: &str, places: &[&str]| {
        let known = ["--sha256", &*sum, "--size", "200000"];
        let words = [&["catalog", "register", name][..], places, &known].concat();
        cluster.run(&words).exits(0);
    };
    register("a", &places);
    assert!(print(&cluster, "a").exits(0).stdout == content);
    assert!(storage.count("GET /mirror/a%20b") > 0);
    // Where no other place is left, the task fails, and each place says why.
    register("b", &places[..2]);
    print(&cluster, "b").exits(1).says(&["the content has SHA-256", "s3://bucket/none"]);
    let whys = query(&cluster, "b")[0]["places"].take();
    let whys = whys.as_array().unwrap().iter().map(|place| &place["passed_over"]["why"]);
    let whys: Vec<_> = whys.map(|why| why.as_str().expect("it was passed over")).collect();
    assert!(whys[0].contains("the content has SHA-256"), "{whys:?}");
}

#[test]
fn tasks_that_wait_read_the_places_of_the_moment() {
    let mut cluster = Cluster::start(&[&[]]);
    let mirror = Web::start();
    let place = put(&mirror, "a", page("a\n"));
    for name in ["gone", "kept", "moved"] {
        let words = ["catalog", "register", name, &place, "--size", "2"];
        cluster.run(&words).exits(0);
    }
    // The node has one of them.
    assert_eq!(print(&cluster, "kept").exits(0).stdout, "a\n");
    let tasks = ["gone", "kept", "moved"].map(|name| {
        format!("[[task]]\ninputs = [\"lfn://{name}\"]\ncommand = [\"cat\", \"{{input:1}}\"]\n")
    });
    let job = format!("requirements = \"has(node.labels.go)\"\n{}", tasks.concat());
    cluster.write("wait.toml", job);
    let job = cluster.submit("wait.toml");
    cluster.restart_dispatcher();
    cluster.wait_for_executors(1);
    for name in ["gone", "kept"] {
        cluster.run(&["catalog", "unregister", name]).exits(0);
    }
    // The file has moved to another place.
    let other = cluster.write("other", "a\n").display().to_string();
    cluster.run(&["catalog", "register", "moved", &other]).exits(0);
    cluster.run(&["catalog", "unregister", "moved", &place]).exits(0);
    cluster.add_executor(&["--label", "go=1"]);
    cluster.run(&["job", "wait", &job]).exits(1);
    let log = |index: u32| cluster.run(&["task", "log", &format!("{job}.{index}")]).stdout;
    assert_eq!((log(1), log(2)), ("a\n".into(), "a\n".into()));
    let failed = cluster.task(&format!("{job}.0"));
    let status = failed["status"].as_str().unwrap();
    assert!(status.contains("`lfn://gone` has no place with the content"), "{status}");
    // It is registered again, and so has another content for all that is known.
    cluster.run(&["catalog", "register", "gone", &place, "--size", "2"]).exits(0);
    cluster.run(&["job", "retry", &job, "--current"]).exits(0);
    wait_until("the job succeeds", || cluster.job(&job)["state"] == "succeeded");
    assert_eq!(log(0), "a\n");
}

#[test]
fn a_key_that_reads_changes_no_name() {
    let cluster = Cluster::start(&[]);
    let access = cluster.path("read.toml").display().to_string();
    cluster.run(&["access", "show", "--role", "read", "-o", &access]).exits(0);
    cluster.run(&["catalog", "register", "a", "/a"]).exits(0);
    let reader = |words: &[&str]| cluster.eyas(&[&["--access", &access], words].concat());
    reader(&["catalog", "register", "b", "/b"]).exits(1).says(&["is not permitted to"]);
    assert!(reader(&["catalog", "query", "a"]).exits(0).stdout.contains("file:///a"));
    let names = cluster.ask(&["catalog", "query"], "names");
    assert_eq!(names.as_array().unwrap().len(), 1);
}

#[test]
fn a_file_on_the_disk_of_a_node_is_read_there_and_given_to_others() {
    let mut cluster = Cluster::start(&[&["--label", "on=1"], &["--label", "on=2"]]);
    let path = cluster.write("own", "own\n").display().to_string();
    cluster.run(&["catalog", "register", "own", &format!("n1:{path}"), "--size", "4"]).exits(0);
    let file = query(&cluster, "own")[0].take();
    assert_eq!(file["places"][0]["url"], format!("file://n1{path}"));
    let print_on = |cluster: &Cluster, node: u32, name: &str| {
        let (on, source) = (format!("node.labels.on == '{node}'"), format!("lfn://{name}"));
        let words = ["run", "--report", "none", "--requirements", &on, "-i", &source];
        cluster.run(&[&words[..], &["--", "cat", "{input:1}"]].concat())
    };
    let done = print_on(&cluster, 2, "own").exits(0);
    assert_eq!(done.stdout, "own\n");
    assert!(done.stderr.contains("100% from peers"), "{}", done.stderr);
    let local = print_on(&cluster, 1, "own").exits(0);
    assert!(local.stderr.contains("100% from local stores"), "{}", local.stderr);
    // It is held no longer than any other input.
    let shown = cluster.ask(&["catalog", "show", "lfn://own"], "objects");
    assert_eq!(shown[0]["holders"].as_array().unwrap().len(), 2, "{shown}");
    // Nothing is there, or no executor.
    let none = format!("n1:{path}-none");
    cluster.run(&["catalog", "register", "none", &none, "n9:/x", "--size", "4"]).exits(0);
    print_on(&cluster, 1, "none")
        .exits(1)
        .says(&["own-none", "`file://n9/x` is on the disk of n9"]);
    cluster.executor(1).kill();
    cluster.run(&["catalog", "register", "away", &format!("n1:{path}"), "--size", "4"]).exits(0);
    print_on(&cluster, 2, "away").exits(1).says(&["is on the disk of n1, and no executor there"]);
}

#[test]
fn broadcast_and_pushed_names_are_read_from_their_places() {
    let cluster = Cluster::start(&[&[], &[]]);
    let mirror = Web::start();
    let place = put(&mirror, "a", page("a\n"));
    cluster.run(&["catalog", "register", "a", &refused(), &place, "--size", "2"]).exits(0);
    cluster.run(&["push", "lfn://a"]).exits(0);
    let shown = cluster.ask(&["catalog", "show", "lfn://a"], "objects");
    assert_eq!(shown[0]["holders"].as_array().unwrap().len(), 2, "{shown}");
    cluster.run(&["catalog", "unregister", "a"]).exits(0);
}
