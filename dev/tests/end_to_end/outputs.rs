//! Every file that a task wrote and that its outputs name is delivered, or the task fails and says
//! why. No task replaces a file that another task of its job has written.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Cluster, Home, finish, signal, wait_until};

const ODD: &[u8] = b"odd\xff\x1b[31m.txt";

fn odd(folder: &Path) -> std::path::PathBuf {
    folder.join(OsStr::from_bytes(ODD))
}

#[test]
fn two_tasks_whose_patterns_find_one_name_are_named() {
    let home = Home::new();
    let words = ["run", "-o", "*=out/", "--report", "none", "--array"];
    let script = ["--", "sh", "-c", "echo {} > same; echo {} > own-{}"];
    let run = |range: &str| home.eyas(&[&words[..], &[range], &script[..]].concat());
    let done = run("1-4").exits(1).says(&[
        "of the job writes",
        "out/same`, which this task would replace",
        "put `{#}`",
        "1 of 4 tasks succeeded, 3 failed",
    ]);
    let first = home.read("out/same");
    assert!(
        done.stderr.contains(&format!(
            "task {} of the job writes",
            first.trim().parse::<u32>().unwrap() - 1
        ))
    );
    // Its other outputs did not appear either: all outputs of a task appear, or none.
    assert_eq!(home.names("out"), [format!("own-{}", first.trim()), "same".into()]);
    // A later job replaces the file.
    run("9").exits(0);
    assert_eq!(home.read("out/same"), "9\n");
}

#[test]
fn two_tasks_whose_destinations_are_one_through_a_link_are_named() {
    let home = Home::new();
    home.write("list", "real\nlink\n");
    home.write("real/x", "an earlier job's");
    symlink("real", home.work().join("link")).unwrap();
    let done = home.eyas(&[
        "run",
        "--each-line",
        "list",
        "-o",
        "x={}/",
        "--no-append",
        "--",
        "sh",
        "-c",
        "echo {} > x",
    ]);
    done.exits(1).says(&["of the job writes", "1 of 2 tasks succeeded, 1 failed"]);
    let written = home.read("real/x");
    assert!(["real\n", "link\n"].contains(&&*written), "{written}");
}

#[test]
fn items_that_name_an_input_of_all_tasks_are_its_copy_and_name_outputs_as_they_are_written() {
    let home = Home::new();
    home.write("data/db.fa", "ACGT");
    home.write("list", "data/db.fa,1\nother,2\n");
    let script = "echo \"$2 $1\" > out; [ $2 = 2 ] || cat \"$1\" >> out";
    let words = [
        "run",
        "--each-line",
        "list",
        "--colsep",
        ",",
        "-i",
        "./data/db.fa",
        "-o",
        "out=got/{1}.out",
    ];
    home.eyas(&[&words[..], &["--", "sh", "-c", script, "sh", "{1}", "{2}"]].concat()).exits(0);
    let (declared, other) = (home.read("got/data/db.fa.out"), home.read("got/other.out"));
    assert_eq!(declared, "1 data/db.fa\nACGT");
    assert_eq!(other, "2 other\n");
    let done = home.eyas(&["run", "-i", "data/db.fa", "--", "sh", "-c", "cat data/db.fa"]).exits(0);
    done.says(&["`cat data/db.fa`", "{input:1}"]);
}

#[test]
fn two_inputs_of_one_name_are_staged_by_it_and_do_not_make_one_place() {
    let home = Home::new();
    home.write("in/1/a", "1");
    home.write("in/2/a", "2");
    // In the sandboxes, both files have the name `a`.
    let done = home.eyas(&[
        "run",
        "--each",
        "in/*/a",
        "-o",
        "x=out/{}",
        "--no-append",
        "--",
        "sh",
        "-c",
        "echo {} > x",
    ]);
    done.exits(1).says(&["of the job writes", "out/a`", "1 of 2 tasks succeeded, 1 failed"]);
}

#[test]
fn a_place_that_the_job_gives_to_a_task_is_refused_to_others_before_it_has_run() {
    let cluster = Cluster::start(&[&[]]);
    let folder = cluster.work().canonicalize().unwrap();
    // The last task names the file in its output. The others reach the same file by a pattern and a
    // link.
    symlink("out", folder.join("link")).unwrap();
    let task = |file: &str, to: String, word: &str| {
        let words = ["sh", "-c", "echo \"$1\" > own", "sh", word];
        let priority = if word == "c" { 0 } else { 1 };
        json!({"command": words, "outputs": [{"file": file, "to": to}], "priority": priority})
            .to_string()
    };
    let at = |name: &str| format!("{}/{name}", folder.display());
    let tasks = [
        task("o*", at("out/"), "a"),
        task("own", at("link/own"), "b"),
        task("own", at("out/own"), "c"),
    ];
    cluster.write("job.jsonl", tasks.join("\n"));
    let done = cluster.run(&["submit", "--wait", "job.jsonl"]).exits(1);
    let status = |task: &str| cluster.task(task)["status"].to_string();
    for refused in ["1.0", "1.1"] {
        assert!(
            status(refused).contains("task 2 of the job writes"),
            "{}: {done:?}",
            status(refused)
        );
    }
    assert_eq!((status("1.2"), cluster.read("out/own")), ("\"succeeded\"".into(), "c\n".into()));
}

#[test]
fn places_outlive_the_dispatcher_and_are_their_tasks_own() {
    let mut cluster = Cluster::start(&[&[]]);
    // The second task fails until there is a file; then it succeeds, and writes to the place of the
    // first task.
    let go = cluster.work().join("go");
    let script = format!("[ {{}} = 1 ] || [ -e '{}' ] || exit 1; echo {{}} > same", go.display());
    let output = json!([{"file": "s*", "to": "out/"}, {"file": "same", "keep": true}]);
    let task = json!({"array": "1-2", "command": ["sh", "-c", script], "outputs": output});
    cluster.write("job.jsonl", task.to_string());
    let job = cluster.submit("job.jsonl");
    cluster.run(&["job", "wait", &job]).exits(1);
    cluster.restart_dispatcher();
    cluster.wait_for_executors(1);
    cluster.write("go", "");
    cluster.run(&["job", "retry", &job]).exits(0).says(&["1 task to run again"]);
    cluster.run(&["job", "wait", &job]).exits(1);
    let status = cluster.task(&format!("{job}.1"))["status"].to_string();
    assert!(status.contains("task 0 of the job writes"), "{status}");
    assert_eq!(cluster.read("out/same"), "1\n");
    // The kept output of the first task is lost. The task runs again, and writes to the same place.
    cluster.executor(1).kill();
    cluster.add_executor(&[]);
    cluster
        .run(&["job", "get", &job, "--to", "kept"])
        .exits(1)
        .says(&["1 task of job 1 did not succeed"]);
    assert_eq!(cluster.read("kept/0/same"), "1\n");
    assert_eq!(
        (cluster.read("out/same"), &cluster.job(&job)["recomputed"]),
        ("1\n".into(), &json!(1))
    );
}

#[test]
fn a_slot_is_free_during_delivery_and_an_executor_that_ends_then_has_delivered_nothing() {
    for how in [Signal::KILL, Signal::TERM] {
        let mut cluster = Cluster::start(&[&[]]);
        let work = cluster.work().canonicalize().unwrap();
        // The first task waits until there is a file `go`. Outputs of a pattern appear when the
        // dispatcher has agreed.
        let script = "cd \"$1\"; echo > ran-$2; until [ -e go ]; do sleep 0.02; done; cd \
                      \"$EYAS_SANDBOX\"; echo $2 > o-$2";
        let words = ["run", "--array", "1-2", "-o", "o-*=outs/", "--", "sh", "-c", script, "sh"];
        let run = cluster.spawn_on(&[&words[..], &[work.to_str().unwrap(), "{}"]].concat());
        wait_until("the first task runs", || cluster.names(".").contains(&"ran-1".into()));
        wait_until("the second task is assigned", || cluster.task("1.1")["executor"] == "n1");
        signal(cluster.dispatcher(), Signal::STOP);
        cluster.write("go", "");
        // Both have run in one slot, and their outputs are copied to hidden files.
        let outs = || if work.join("outs").exists() { cluster.names("outs") } else { Vec::new() };
        wait_until("both tasks wait for the dispatcher", || outs().len() == 2);
        assert!(outs().iter().all(|name| name.starts_with(".eyas-")), "{:?}", outs());
        signal(cluster.executor(1).process(), how);
        cluster.executor(1).wait();
        let left = cluster.names("outs");
        assert!(left.iter().all(|name| name.starts_with(".eyas-")), "{left:?}");
        assert!(how == Signal::KILL || left.is_empty(), "{left:?}");
        signal(cluster.dispatcher(), Signal::CONT);
        cluster.add_executor(&[]);
        finish(run).exits(0).says(&["2 of 2 tasks succeeded"]);
        assert_eq!(
            (cluster.read("outs/o-1"), cluster.read("outs/o-2")),
            ("1\n".into(), "2\n".into())
        );
    }
}

#[test]
fn two_files_of_a_task_do_not_replace_each_other() {
    let home = Home::new();
    let script = "mkdir d e; echo d > d/x; echo e > e/x; echo y > y";
    let done = home.eyas(&[
        "run",
        "--array",
        "1",
        "-o",
        "d/x=out/",
        "-o",
        "e/x=out/x",
        "--",
        "sh",
        "-c",
        script,
    ]);
    done.exits(1).says(&["would both write"]);
    // Two outputs of a task may name one file.
    home.eyas(&[
        "run",
        "--array",
        "1",
        "-o",
        "y=two/",
        "-o",
        "[y]=two/",
        "--",
        "sh",
        "-c",
        "echo y > y",
    ])
    .exits(0);
    assert_eq!(home.read("two/y"), "y\n");
    let script = "mkdir d; echo 1 > y; echo 2 > d/y";
    let done = home.eyas(&[
        "run", "--array", "1", "-o", "d/y=two/", "-o", "[y]=two/", "--", "sh", "-c", script,
    ]);
    done.exits(1).says(&["two files that the task wrote would both be", "two/y"]);
}

#[test]
fn names_that_are_not_text_come_and_go_as_they_are() {
    let home = Home::new();
    home.write("in/plain.txt", "plain\n");
    fs::write(odd(&home.work().join("in")), "odd\n").unwrap();
    let script = "cp \"$1\" \"$2.copy\"";
    let words = [
        "run",
        "--each",
        "in/*",
        "-o",
        "*.copy=out/{/.}/",
        "--report",
        "none",
        "--",
        "sh",
        "-c",
        script,
        "sh",
    ];
    home.eyas(&[&words[..], &["{}", "{/}"]].concat()).exits(0);
    let copy = home
        .work()
        .join("out")
        .join(OsStr::from_bytes(b"odd\xff\x1b[31m"))
        .join(OsStr::from_bytes(b"odd\xff\x1b[31m.txt.copy"));
    assert_eq!(fs::read_to_string(copy).unwrap(), "odd\n");
    assert_eq!(home.read("out/plain/plain.txt.copy"), "plain\n");
    // Lines of a list, arguments of the command and variables, too.
    let mut command = home.command(&["run", "-k", "--each-line", "list", "-e"]);
    fs::write(home.work().join("list"), [ODD, b"\n"].concat()).unwrap();
    command.arg(OsStr::from_bytes(b"V=\xfe{}")).args([
        "--",
        "sh",
        "-c",
        "printf '%s' \"$V$1$2\" | od -An -tx1",
        "sh",
    ]);
    command.arg(OsStr::from_bytes(b"\xfd")).arg("{}");
    let hex = home.finish(command).exits(0).stdout.split_whitespace().collect::<String>();
    let expected: String =
        [b"\xfe", ODD, b"\xfd", ODD].concat().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected);
}

#[test]
fn names_that_are_not_text_are_kept_shown_and_brought() {
    let cluster = Cluster::start(&[&[]]);
    fs::write(odd(&cluster.work()), "odd\n").unwrap();
    let script = "cp * \"$(printf 'new\\377')\"";
    let task = json!({
        "each": {"bytes_b64": "b2Rk/xtbMzFtLnR4dA=="}, "command": ["sh", "-c", script, "sh", "{}"],
        "outputs": [{"file": "new*", "keep": true}],
    });
    cluster.write("job.jsonl", task.to_string());
    cluster.run(&["submit", "--wait", "job.jsonl"]).exits(0);
    assert_eq!(cluster.task("1.0")["item"], json!({"bytes_b64": "b2Rk/xtbMzFtLnR4dA=="}));
    let listed = cluster.run(&["task", "list", "1"]).exits(0).stdout;
    assert!(listed.contains("odd\\xff\\x1b[31m.txt"), "{listed}");
    let explained = cluster.run(&["explain", "1.0"]).exits(0).stdout;
    assert!(
        explained.contains("odd\\xff\\x1b[31m.txt") && !explained.contains('\x1b'),
        "{explained}"
    );
    let brought = cluster.ask(&["job", "get", "1", "--to", "here"], "files");
    assert_eq!(brought, json!([{"bytes_b64": "aGVyZS8wL25ld/8="}]));
    let new = cluster.work().join("here/0").join(OsStr::from_bytes(b"new\xff"));
    assert_eq!(fs::read_to_string(new).unwrap(), "odd\n");
    // A dispatcher that starts again has it in its journal.
    let mut cluster = cluster;
    cluster.restart_dispatcher();
    cluster.wait_for_executors(1);
    assert_eq!(cluster.task("1.0")["item"], json!({"bytes_b64": "b2Rk/xtbMzFtLnR4dA=="}));
}

#[test]
fn a_folder_that_is_not_text_is_worked_in() {
    let home = Home::new();
    let folder = home.work().join(OsStr::from_bytes(b"folder\xff"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("in"), "x\n").unwrap();
    let mut command =
        home.command(&["run", "--array", "1", "-i", "in", "-o", "out", "--", "cp", "in", "out"]);
    command.current_dir(&folder);
    home.finish(command).exits(0);
    assert_eq!(fs::read_to_string(folder.join("out")).unwrap(), "x\n");
    let mut command = home.command(&["run", "--array", "1", "--", "cat", "in"]);
    command.current_dir(&folder);
    assert_eq!(home.finish(command).exits(0).stdout, "x\n");
}

#[test]
fn a_destination_to_which_nothing_can_be_written_is_refused_before_a_task_runs() {
    let cluster = Cluster::start(&[&[]]);
    let dots = "in its key";
    for (output, place, why) in [
        ("x=s3://b/a/./k", "`s3://b/a/./k`", dots),
        ("x=s3://b/{}/../k", "`s3://b/1/../k`", dots),
        ("*=s3://b/a/../", "`s3://b/a/../…`", dots),
        ("x=s3://b", "`s3://b`", "no bucket or no key"),
        ("x=http://host/x", "`http://host/x`", "to which eyas cannot write"),
        ("*=eyas:///../x", "`eyas:///../x/…`", "names no file"),
    ] {
        let words = ["--array", "1-2", "-o", output, "--report", "none", "--", "touch", "x"];
        cluster.eyas(&[&["run"], &words[..]].concat()).exits(1).says(&[place, why]);
        cluster.run(&[&["run"], &words[..]].concat()).exits(1).says(&[place, why]);
        let (file, to) = output.split_once('=').unwrap();
        let outputs = format!("[{{ file = \"{file}\", to = \"{to}\" }}]");
        let job = format!(
            "[[task]]\narray = \"1-2\"\ncommand = [\"touch\", \"x\"]\noutputs = {outputs}\n"
        );
        cluster.write("job.toml", job);
        cluster.run(&["submit", "job.toml"]).exits(1).says(&[place, why]);
    }
    assert_eq!(cluster.ask(&["job", "list"], "jobs"), json!([]), "no job was accepted");
}

#[test]
fn links_and_folders_are_delivered_or_said_to_be_wrong() {
    let home = Home::new();
    home.write("shared", "input\n");
    let run = |output: &str, script: &str| {
        home.eyas(&[
            "run", "--array", "1-2", "-i", "shared", "-o", output, "--report", "none", "--", "sh",
            "-c", script,
        ])
    };
    // Two tasks read one input; a pattern that matches the input does not make it an output.
    let script = "mkdir -p {}/deep {}/empty; echo {} > {}/deep/file; ln -s {}/deep/file link-{}; \
                  ln -s deep {}/also";
    run("*=out/", script).exits(0);
    assert_eq!(home.names("out"), ["1", "2", "link-1", "link-2"]);
    assert_eq!(
        (home.names("out/1"), home.read("out/2/deep/file")),
        (vec!["also".into(), "deep".into(), "empty".into()], "2\n".into())
    );
    assert_eq!(
        (home.read("out/link-1"), home.read("out/1/also/file")),
        ("1\n".into(), "1\n".into())
    );
    assert!(fs::symlink_metadata(home.work().join("out/link-1")).unwrap().is_file());
    for (output, script, why) in [
        (
            "*=no/{}/",
            "echo x > x; ln -s nowhere gone",
            "`gone` is a symbolic link to `nowhere`, which does not exist",
        ),
        (
            "gone=no/{}/",
            "ln -s nowhere gone",
            "`gone` is a symbolic link to `nowhere`, which does not exist",
        ),
        (
            "d=no/{}/",
            "mkdir d; echo x > d/x",
            "`d` is a folder: name the files in it, as in `d/**`",
        ),
        ("*=no/{}/", "mkfifo pipe", "`pipe` is neither a file nor a folder"),
        (
            "*=s3://bucket/{}/",
            "echo x > \"$(printf 'odd\\377')\"",
            // Which of the two tasks is named is chance: the other has failed for the same reason.
            "/odd\\xff` is not valid UTF-8",
        ),
    ] {
        run(output, script).exits(1).says(&[why]);
    }
    assert!(!home.work().join("no/1").exists(), "{:?}", home.names("no/1"));
}

#[test]
fn the_folder_of_an_output_is_there_before_the_command_starts() {
    let home = Home::new();
    let script = "echo $0 > out/$0.txt";
    home.eyas(&["run", "--array", "1-2", "-o", "out/{}.txt", "--", "sh", "-c", script, "{}"])
        .exits(0);
    assert_eq!(home.names("."), ["1.txt", "2.txt"]);
    // A sandbox that is used again has no folder of the task before.
    let script = "echo $(ls) > out-$0/x";
    home.eyas(&["run", "--array", "1-9", "-o", "out-{}/x=y{}", "--", "sh", "-c", script, "{}"])
        .exits(0);
    for number in 1..10 {
        assert_eq!(home.read(&format!("y{number}")), format!("out-{number}\n"));
    }
}

#[test]
fn a_missing_output_is_said_with_what_the_task_wrote() {
    let home = Home::new();
    home.eyas(&["run", "--array", "7", "-o", "cuts/{}.fits", "--", "sh", "-c", ": > cut.fits"])
        .exits(1)
        .says(&["did not write its output `cuts/7.fits`; it wrote `cut.fits`: write -o \
             'cut.fits=cuts/{}.fits'"]);
}

#[test]
fn a_name_with_a_placeholder_of_another_program_is_refused() {
    let home = Home::new();
    home.eyas(&["run", "--array", "1-2", "-o", "x={0}.fits", "--", "true"])
        .exits(1)
        .says(&["`{0}` is not a placeholder: columns count from {1}"]);
}

#[test]
fn a_path_that_is_read_in_place_of_the_copy_is_warned_of() {
    let home = Home::new();
    home.write("db/nr.phr", "x");
    home.write("db/nr.psq", "x");
    let warning = "`db/nr` is the beginning of the paths of inputs";
    let run = |options: &[&str]| {
        let words = [&["run", "-i", "db/nr.*", "--array", "1"], options, &["--", "ls", "db/nr"]];
        home.eyas(&words.concat()).stderr
    };
    assert!(run(&[]).contains(warning), "{}", run(&[]));
    assert!(!run(&["--sandbox"]).contains(warning), "{}", run(&["--sandbox"]));
    // In a sandbox, a relative path is that of the copy.
    let script = "wc -c <db/nr.phr >n";
    let done =
        home.eyas(&["run", "-i", "db/nr.phr", "-o", "n", "--array", "1", "--", "sh", "-c", script]);
    assert!(!done.exits(0).stderr.contains("has the path of the input"));
}
