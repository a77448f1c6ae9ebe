//! Files that a task in a sandbox has, and files that it lacks: files of the folder of submission
//! that its command names, paths of inputs, copies of inputs; and tasks that run in the folder of
//! submission.

use crate::support::{Cluster, Home};

const SUBMITTED: &str = "in the folder of submission, but the tasks run in folders of their own";

/// How often a text says that a file is missing in sandboxes.
fn said(text: &str) -> usize {
    text.matches(SUBMITTED).count()
}

#[test]
fn a_file_that_tasks_will_not_have_is_named_before_they_run_and_where_they_fail() {
    let home = Home::new();
    home.write("cut.sh", "echo cut >out.txt\n");
    let run = |options: &[&str]| {
        let words = ["run", "--report", "none", "-k", "--array", "1-3", "--no-append"];
        let output = ["-o", "out.txt=cuts/{}", "--", "sh", "cut.sh"];
        home.eyas(&[&words[..], options, &output].concat())
    };
    let words = ["`cut.sh` is in the folder of submission", "add -i cut.sh", "--in-place"];
    let done = run(&[]).exits(1).says(&words);
    // Once before the job runs, and in each of its failures.
    let (before, after) = done.stderr.split_once("eyas: `cut.sh`").expect("a failure");
    assert_eq!((said(before), said(after)), (1, 3), "{}", done.stderr);
    let done = run(&["-i", "cut.sh"]).exits(0);
    assert_eq!((said(&done.stderr), home.names("cuts").len()), (0, 3), "{}", done.stderr);
    // Nothing is said where tasks have the folder.
    home.eyas(&["run", "--report", "none", "--", "sh", "cut.sh"]).exits(0);
    assert_eq!(home.read("out.txt"), "cut\n");
    // The file is an output now: that an older one is in the folder means nothing.
    let words = ["run", "--report", "none", "-o", "out.txt", "--", "touch", "out.txt"];
    assert_eq!(said(&home.eyas(&words).exits(0).stderr), 0);
}

#[test]
fn words_that_name_items_scripts_folders_and_parts_of_databases_are_seen() {
    let home = Home::new();
    home.write("db/nr.phr", "phr");
    home.write("db/nr.psq", "psq");
    home.write("data/a", "a");
    home.write("list", "data/a\n");
    let done = |options: &[&str], command: &[&str]| {
        let words = ["run", "--report", "none", "-o", "out=got"];
        home.eyas(&[&words[..], options, &["--"], command].concat()).stderr
    };
    for (options, command, hint) in [
        (&[][..], &["ls", "db/nr"][..], "add -i 'db/nr.*'"),
        (&[], &["ls", "db"], "add -i 'db/**'"),
        (&["--each-line", "list"], &["cat"], "add -i '{}'"),
        (&[], &["sh", "-c", "cat data/a >out"], "add -i data/a;"),
        (&["-i", "db/nr.*"], &["sh", "-c", "cat db/nr.phr data/none > list"], ""),
        (&["-i", "db/nr.*"], &["cat", "db/nr"], ""),
    ] {
        let stderr = done(options, command);
        assert_eq!(stderr.contains(hint) && said(&stderr) > 0, !hint.is_empty(), "{stderr}");
    }
}

#[test]
fn a_job_file_has_the_same_hints() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write("cut.sh", "echo cut >out.txt\n");
    let task = "[[task]]\ncommand = ['sh', 'cut.sh']\noutputs = [{ file = 'out.txt' }]\n";
    cluster.write("job.toml", task);
    let done = cluster.run(&["submit", "--wait", "job.toml"]).exits(1);
    assert!(done.stderr.contains("inputs = [\"cut.sh\"]"), "{}", done.stderr);
    let log = cluster.run(&["task", "log", "1.0"]);
    assert!(format!("{}{}", log.stdout, log.stderr).contains("add -i cut.sh"), "{log:?}");
    cluster.write("job.toml", format!("{task}in_place = true\n"));
    cluster.run(&["submit", "--wait", "job.toml"]).exits(1).says(&["$EYAS_SANDBOX/out.txt"]);
    cluster.write("cut.sh", "echo cut >$EYAS_SANDBOX/out.txt\n");
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    assert_eq!(cluster.read("out.txt"), "cut\n");
    cluster.write("job.toml", format!("{task}in_place = true\nfolder = 'sandbox'\n"));
    cluster.run(&["submit", "job.toml"]).exits(1).says(&["`in_place`", "leave one out"]);
}

#[test]
fn inputs_keep_their_relative_paths() {
    let home = Home::new();
    home.write("db/nr.phr", "phr");
    home.write("db/deep/nr.psq", "psq");
    home.write("in/item", "item");
    let absolute = home.write("other/x", "x");
    let script = "cat db/nr.phr db/deep/nr.psq \"$1\" x; echo \" $1 $2\"";
    let words = ["run", "--sandbox", "-i", "./db/**", "-i", absolute.to_str().unwrap()];
    let each = ["--each", "in/*", "--", "sh", "-c", script, "sh", "{}", "db/nr.phr"];
    let done = home.eyas(&[&words[..], &each].concat()).exits(0);
    // The file of an item has its name alone.
    assert_eq!(done.stdout, "phrpsqitemx item db/nr.phr\n");
    // A pattern that would find nothing is named.
    let words = ["run", "--sandbox", "-i", "db/*.phr", "--", "sh", "-c"];
    home.eyas(&[&words[..], &["cat *.phr"]].concat()).exits(1).says(&["`db/nr.phr`", "{inputs}"]);
    home.write("dark-item/1", "");
    let of_item = ["run", "--sandbox", "--each", "in/*", "-i", "dark-{/}/*", "--", "sh", "-c"];
    let done = home.eyas(&[&of_item[..], &["cat [0-9]"]].concat());
    done.exits(1).says(&["`dark-item/1`", "{inputs}"]);
    let done = home.eyas(&[&words[..], &["cat db/*.phr"]].concat()).exits(0);
    assert!(!done.stderr.contains("{inputs}"), "{}", done.stderr);
}

#[test]
fn a_task_in_place_delivers_its_outputs_whole() {
    let home = Home::new();
    home.write("cut.sh", "[ -e db/nr ] && echo $1 >$2; [ $1 != 3 ]\n");
    home.write("db/nr", "");
    home.write("out.txt", "mine");
    let words = ["run", "--report", "none", "--in-place", "--array", "1-3"];
    let to_cuts = ["-o", "out.txt=cuts/{}", "--", "sh", "cut.sh", "{}", "out.txt"];
    home.eyas(&[&words[..], &to_cuts].concat()).exits(1);
    // Tasks that write one name do not meet, and what a failed task has written does not appear.
    assert_eq!(
        (home.names("cuts"), home.read("cuts/2")),
        (vec!["1".into(), "2".into()], "2\n".into())
    );
    assert_eq!(home.read("out.txt"), "mine");
    // Without a destination the file goes where its name says.
    let same = ["-o", "cuts/{}.x", "--", "dd", "if=cut.sh", "of=cuts/{}.x"];
    home.eyas(&[&words[..], &same].concat()).exits(0);
    assert_eq!(home.read("cuts/3.x"), home.read("cut.sh"));
    let lost = ["-o", "lost", "--", "sh", "-c", "pwd >there"];
    home.eyas(&[&words[..4], &lost].concat()).exits(1).says(&["$EYAS_SANDBOX/lost"]);
    assert_eq!(home.read("there").trim(), home.work().canonicalize().unwrap().to_str().unwrap());
}

#[test]
fn copies_of_inputs_are_for_programs_that_refuse_links() {
    let home = Home::new();
    home.write("a.txt", "text");
    let run = |options: &[&str], command: &[&str]| {
        let words = ["run", "--report", "none", "--each", "a.txt", "-o", "a.txt*=out/"];
        home.eyas(&[&words[..], options, &["--"], command].concat())
    };
    run(&[], &["gzip", "-k", "{}"]).exits(1).says(&["other link", "add --copy-inputs"]);
    run(&["--copy-inputs"], &["gzip", "-k", "{}"]).exits(0);
    assert_eq!(home.names("out"), ["a.txt.gz"]);
    // A copy may be written, and the file of the user stays.
    run(&["--copy-inputs"], &["sh", "-c", "echo more >>$1", "sh", "{}"]).exits(0);
    assert_eq!((home.read("out/a.txt"), home.read("a.txt")), ("textmore\n".into(), "text".into()));
    // Programs stay programs, empty files stay files, and outputs of tasks are copied too.
    let tool = home.write("tool", "#!/bin/sh\ncat empty; echo made >part; stat -c %h tool empty\n");
    std::fs::set_permissions(tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    home.write("empty", "");
    let words = ["run", "--copy-inputs", "--sandbox", "-i", "tool", "-i", "empty", "--", "./tool"];
    assert_eq!(home.eyas(&words).exits(0).stdout, "1\n1\n");
    let cluster = Cluster::start(&[&[]]);
    cluster.write(
        "job.toml",
        "[[task]]\nid = 'a'\ncommand = ['sh', '-c', 'echo x >part']\n\
         outputs = [{ file = 'part', keep = true }]\n\
         [[task]]\ncommand = ['sh', '-c', 'echo y >>part; stat -c %h part; cat part']\n\
         folder = 'sandbox'\ncopy_inputs = true\ninputs = [{ task = 'a' }]\n",
    );
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    assert_eq!(cluster.run(&["task", "log", "1.1"]).exits(0).stdout, "1\nx\ny\n");
}
