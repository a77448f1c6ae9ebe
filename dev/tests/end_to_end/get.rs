//! `eyas job get` and `eyas task get`: kept outputs become files on the machine where the command
//! runs.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;

use crate::dfs::joined;
use crate::support::{Cluster, SmallDisk, eyas, finish, is_root, signal, wait_until};

/// Two tasks that keep two files each, one of them in a folder; a third task keeps a file that only
/// tasks read.
const JOB: &str = r#"
    [[task]]
    array = "1-2"
    command = ["sh", "-c", """
        mkdir sub; echo a$0 > a; echo b$0 > sub/b; chmod +x a; echo $0 >> FOLDER/made""", "{}"]
    outputs = [{ file = "a", keep = true }, { file = "sub/*", keep = true }]
    [[task]]
    command = ["sh", "-c", "echo 3 > for-tasks; echo 3 > elsewhere"]
    outputs = [
        { file = "for-tasks", keep = "until-read" },
        { file = "elsewhere", to = "elsewhere", keep = true },
    ]
"#;

fn write_job(cluster: &Cluster) {
    cluster.write("job.toml", JOB.replace("FOLDER", cluster.work().to_str().unwrap()));
}

#[test]
fn kept_outputs_are_copied_to_the_given_folder() {
    let cluster = Cluster::start(&[&[], &[]]);
    write_job(&cluster);
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    let got = cluster.run(&["job", "get", "1", "--to", "out"]).exits(0).says(&["4 files in out"]);
    assert_eq!(got.stdout, "out/0/a\nout/0/sub/b\nout/1/a\nout/1/sub/b\n");
    assert_eq!(
        (cluster.names("out"), cluster.read("out/1/sub/b")),
        (vec!["0".into(), "1".into()], "b2\n".into())
    );
    assert_eq!(mode(&cluster, "out/0/sub/b"), mode(&cluster, "made"));
    assert_eq!(mode(&cluster, "out/0/a") & 0o100, 0o100);
    // The files of one task go into the working folder; then one file of a task.
    cluster.run(&["task", "get", "1.1", "sub/b"]).exits(0).says(&["1 file in"]);
    assert_eq!((cluster.read("sub/b"), cluster.work().join("a").exists()), ("b2\n".into(), false));
    let files = cluster.ask(&["task", "get", "1.0", "--to", "json"], "files");
    assert_eq!(files, serde_json::json!(["json/a", "json/sub/b"]));
    for (words, says) in [
        (&["job", "get", "7"][..], "no job 7"),
        (&["task", "get", "1.9"], "no task 1.9"),
        (&["task", "get", "1.4294967295"], "keeps no outputs in the cluster for download"),
        (&["task", "get", "1.2", "--to", "x"], "keeps no outputs in the cluster for download"),
        (&["task", "get", "1.0", "--to", "x", "c"], "keeps no file `c`"),
    ] {
        cluster.run(words).exits(1).says(&[says]);
    }
    cluster
        .run(&["job", "get", "1", "--to", "s3://bucket/x"])
        .exits(2)
        .says(&["a folder of this machine"]);
    assert_eq!(cluster.names("."), ["elsewhere", "job.toml", "json", "made", "out", "sub", "x"]);
    cluster.run(&["job", "release", "1"]).exits(0);
    cluster.run(&["job", "get", "1"]).exits(1).says(&["was released"]);
}

/// The permissions of a file.
fn mode(cluster: &Cluster, name: &str) -> u32 {
    fs::metadata(cluster.work().join(name)).unwrap().permissions().mode() & 0o7777
}

/// A task that keeps files with other permissions, and writes one to the file system; a task that
/// reads those that are kept.
const MODES: &str = r#"
    [[task]]
    id = "write"
    command = ["sh", "-c", """
        (umask 077; echo a > private; echo d > file); (umask 0; echo b > open)
        echo c > tool; chmod 755 tool; echo b > group; chmod 640 group"""]
    outputs = [
        { file = "private", keep = true }, { file = "open", keep = true },
        { file = "tool", keep = true }, { file = "group", keep = true },
        { file = "file", to = "eyas:///file" },
    ]
    [[task]]
    inputs = [
        { task = "write", output = "private" }, { task = "write", output = "open" },
        { task = "write", output = "tool" }, { task = "write", output = "group" },
    ]
    command = ["stat", "-Lc", "%a", "{input:1}", "{input:2}", "{input:3}", "{input:4}"]
"#;

#[test]
fn kept_outputs_have_the_permissions_that_the_task_set() {
    let cluster = Cluster::start(&[&["--dfs", "--cache", "1GB"], &["--dfs", "--cache", "1GB"]]);
    joined(&cluster, 2);
    cluster.write("modes.toml", MODES);
    cluster.run(&["submit", "--wait", "modes.toml"]).exits(0);
    // Nobody may write to an input.
    assert_eq!(cluster.run(&["task", "log", "1.1"]).exits(0).stdout, "400\n444\n555\n440\n");
    let run = |umask: &str, words: &[&str]| {
        let script = format!("umask {umask}; exec \"$0\" --cluster \"$@\"");
        let words = [&["-c", &script, eyas().to_str().unwrap(), "test"], words].concat();
        cluster.finish(cluster.command_of(Command::new("sh"), &words)).exits(0)
    };
    let got = |folder: &str| {
        ["private", "open", "tool", "group"].map(|name| mode(&cluster, &format!("{folder}/{name}")))
    };
    run("0", &["task", "get", "1.0", "--to", "all"]);
    assert_eq!(got("all"), [0o600, 0o666, 0o755, 0o640]);
    run("027", &["task", "get", "1.0", "--to", "some"]);
    assert_eq!(got("some"), [0o600, 0o640, 0o750, 0o640]);
    // What replaces a file is open to no user to whom that file was closed.
    cluster.write("some/open", "");
    fs::set_permissions(cluster.work().join("some/open"), Permissions::from_mode(0o600)).unwrap();
    run("0", &["task", "get", "1.0", "--to", "some", "--force"]);
    assert_eq!(got("some"), [0o600, 0o600, 0o750, 0o640]);
    for (name, umask, expected) in
        [("private", "0", "0600"), ("open", "022", "0644"), ("group", "0", "0640")]
    {
        run(umask, &["dfs", "cp", &format!("eyas://1/0/{name}"), &format!("/{name}")]);
        assert_eq!(
            cluster.ask(&["dfs", "show", &format!("/{name}")], "file")["mode"],
            expected,
            "{name}"
        );
    }
    assert_eq!(cluster.ask(&["dfs", "show", "/file"], "file")["mode"], "0600");
    // A file of the cluster that is replaced is one, too.
    cluster.run(&["dfs", "chmod", "600", "/file"]).exits(0);
    cluster
        .run(&["run", "-o", "n=eyas:///file", "--", "sh", "-c", "echo e > n; chmod 644 n"])
        .exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/file"]).exits(0).stdout, "e\n");
    assert_eq!(cluster.ask(&["dfs", "show", "/file"], "file")["mode"], "0600");
}

#[test]
fn existing_files_are_overwritten_only_with_force() {
    let cluster = Cluster::start(&[&[]]);
    write_job(&cluster);
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    cluster.write("out/1/a", "mine\n");
    cluster
        .run(&["job", "get", "1", "--to", "out"])
        .exits(1)
        .says(&["out/1/a exists already", "--force"]);
    assert_eq!(
        (cluster.read("out/1/a"), cluster.names("out")),
        ("mine\n".into(), vec!["1".into()])
    );
    cluster.run(&["job", "get", "1", "--to", "out", "--force"]).exits(0).says(&["4 files"]);
    assert_eq!(cluster.read("out/1/a"), "a2\n");
    // Content that is already there is not fetched again: an interrupted command can be repeated.
    fs::remove_file(cluster.work().join("out/0/a")).unwrap();
    let again = cluster.run(&["job", "get", "1", "--to", "out"]).exits(0).says(&["4 files"]);
    assert_eq!(again.stdout, "out/0/a\n");
    cluster.write("file", "");
    cluster.run(&["job", "get", "1", "--to", "file"]).exits(1).says(&["cannot write to file"]);
    if !is_root() {
        fs::create_dir(cluster.work().join("closed")).unwrap();
        fs::set_permissions(cluster.work().join("closed"), Permissions::from_mode(0o555)).unwrap();
        cluster
            .run(&["job", "get", "1", "--to", "closed"])
            .exits(1)
            .says(&["cannot write to closed", "denied"]);
    }
}

#[test]
fn a_folder_without_room_is_named_and_nothing_is_left_in_it() {
    let cluster = Cluster::start(&[&[]]);
    let job = "[[task]]\ncommand = [\"sh\", \"-c\", \"head -c 3000000 /dev/zero > big\"]\n\
               outputs = [{ file = \"big\", keep = true }]\n";
    cluster.write("job.toml", job);
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    let Some(disk) = SmallDisk::mount("size=1m") else { return };
    let small = disk.path().to_str().unwrap();
    let got = cluster.run(&["job", "get", "1", "--to", small]);
    got.exits(1).says(&[&format!("{small} has no room for `eyas://1/0/big`")]);
    let left: Vec<_> = fs::read_dir(small).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn getting_a_lost_output_waits_until_it_is_made_again() {
    let mut cluster = Cluster::start(&[&[]]);
    write_job(&cluster);
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    cluster.executor(1).kill();
    cluster.wait_for_executors(0);
    let getting = cluster.spawn_on(&["job", "get", "1", "--to", "out"]);
    wait_until("it waits", || cluster.work().join("out").exists());
    cluster.add_executor(&[]);
    finish(getting).exits(0).says(&["waiting for", "4 files"]);
    assert_eq!(cluster.read("out/1/a"), "a2\n");
    assert_eq!(cluster.read("made").lines().count(), 4, "each was made twice");
    assert_eq!(cluster.job("1")["recomputed"], 2);
}

#[test]
fn getting_an_unwritten_output_waits_also_through_a_dispatcher_crash() {
    let mut cluster = Cluster::start(&[&[]]);
    let job = r#"
        [[task]]
        array = "1-2"
        command = ["sh", "-c", "until [ -e FOLDER/go-$0 ]; do sleep 0.02; done; echo $0 > a", "{}"]
        outputs = [{ file = "a", keep = true }]
    "#;
    cluster.write("job.toml", job.replace("FOLDER", cluster.work().to_str().unwrap()));
    cluster.submit("job.toml");
    let getting = cluster.spawn_on(&["job", "get", "1", "--to", "out"]);
    cluster.write("go-1", "");
    wait_until("the first is brought", || cluster.work().join("out/0/a").exists());
    cluster.restart_dispatcher();
    cluster.write("go-2", "");
    finish(getting).exits(0).says(&["waiting for", "2 files"]);
    assert_eq!(cluster.read("out/1/a"), "2\n");
    // The command does not wait for an executor that fails.
    let job = "[[task]]\ncommand = [\"false\"]\noutputs = [{ file = \"a\", keep = true }]\n";
    cluster.write("job.toml", job);
    cluster.submit("job.toml");
    cluster.run(&["job", "get", "2"]).exits(1).says(&["1 task of job 2 did not succeed"]);
    // An interrupt leaves nothing behind.
    let job =
        "[[task]]\ncommand = [\"sleep\", \"1000\"]\noutputs = [{ file = \"a\", keep = true }]\n";
    cluster.write("job.toml", job);
    cluster.submit("job.toml");
    let getting = cluster.spawn_on(&["job", "get", "3", "--to", "interrupted"]);
    wait_until("it waits", || {
        cluster.work().join("interrupted").exists() && !cluster.names("interrupted").is_empty()
    });
    signal(getting.id(), rustix::process::Signal::INT);
    finish(getting).exits(130);
    assert_eq!(cluster.names("interrupted"), Vec::<String>::new());
    cluster.run(&["job", "cancel", "3"]).exits(0);
}

#[test]
fn a_transfer_goes_on_behind_an_executor_that_was_killed_in_the_middle() {
    let slow = ["--emulate", "link=8MB/s"];
    let mut cluster = Cluster::start(&[&slow[..]; 2]);
    let job = r#"
        [[task]]
        command = ["sh", "-c", "head -c 16000000 /dev/zero | tr '\\0' x > a"]
        outputs = [{ file = "a", keep = true, replicas = 2 }]
    "#;
    cluster.write("job.toml", job);
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    wait_until("both have it", || holders(&cluster) == 2);
    let getting = cluster.spawn_on(&["task", "get", "1.0", "--to", "out"]);
    let mut bytes = [0; 2];
    wait_until("a part has come", || {
        // The space of the whole file is reserved at the beginning.
        let parts = fs::read_dir(cluster.work().join("out")).into_iter().flatten();
        let parts = parts.flat_map(|folder| {
            fs::read_dir(folder.unwrap().path().join("partial")).into_iter().flatten()
        });
        parts.filter_map(|part| File::open(part.unwrap().path()).ok()).any(|part| {
            let read =
                |byte: &mut u8, at| part.read_exact_at(std::slice::from_mut(byte), at).is_ok();
            read(&mut bytes[0], 1_000_000) && read(&mut bytes[1], 15_999_999) && bytes[0] == b'x'
        })
    });
    // Among equal holders the first one is asked first.
    cluster.executor(1).kill();
    assert_eq!(bytes[1], 0, "it was in the middle");
    finish(getting).exits(0);
    assert!(cluster.read("out/a") == "x".repeat(16_000_000));
    assert_eq!(cluster.names("out"), ["a"]);
}

/// Number of executors that have the output of the first task.
fn holders(cluster: &Cluster) -> usize {
    let objects =
        cluster.run(&["--json", "catalog", "show", "eyas://1/0/a"]).exits(0).json("objects");
    objects[0]["holders"].as_array().unwrap().len()
}

/// Changes the first byte of an executor's object and keeps the file's times, as a bad disk would.
fn overwrite(cluster: &mut Cluster, executor: usize, byte: u8) {
    for folder in fs::read_dir(cluster.executor(executor).folder().join("store/objects")).unwrap() {
        for file in fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let before = fs::metadata(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.write_at(&[byte], 0).unwrap();
            file.set_modified(before.modified().unwrap()).unwrap();
            fs::set_permissions(&path, before.permissions()).unwrap();
        }
    }
}

#[test]
fn a_damaged_replica_leads_on_to_the_next_and_one_that_is_killed_too() {
    let mut cluster = Cluster::start(&[&[], &[]]);
    let job = r#"
        [[task]]
        command = ["sh", "-c", "echo good > a; echo made >> FOLDER/made"]
        outputs = [{ file = "a", keep = true, replicas = 2 }]
    "#;
    cluster.write("job.toml", job.replace("FOLDER", cluster.work().to_str().unwrap()));
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    wait_until("both have it", || holders(&cluster) == 2);
    // The result does not depend on which of the two is asked first.
    for executor in [1, 2] {
        overwrite(&mut cluster, executor, b'?');
        let to = format!("without-{executor}");
        cluster.run(&["job", "get", "1", "--to", &to]).exits(0);
        assert_eq!(cluster.read(&format!("{to}/0/a")), "good\n");
        overwrite(&mut cluster, executor, b'g');
    }
    cluster.executor(2).kill();
    cluster.run(&["job", "get", "1", "--to", "without-2-at-all"]).exits(0);
    assert_eq!(
        (cluster.read("without-2-at-all/0/a"), cluster.read("made")),
        ("good\n".into(), "made\n".into())
    );
    overwrite(&mut cluster, 1, b'?');
    cluster.run(&["job", "get", "1", "--to", "again"]).exits(0).says(&["waiting for"]);
    assert_eq!(
        (cluster.read("again/0/a"), cluster.read("made")),
        ("good\n".into(), "made\nmade\n".into())
    );
}
