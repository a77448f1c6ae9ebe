//! What nodes make of inputs, once each, and tasks read: the content of compressed files, and
//! folders that commands make.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::{Cluster, Home};

/// Writes `text` to a file of the home, compressed by a program that writes to its output. `None`
/// if this machine does not have the program.
pub(super) fn pack(home: &Home, program: &str, name: &str, text: &str) -> Option<PathBuf> {
    let plain = home.write("plain", text);
    let packed = home.write(name, "");
    let into = std::fs::File::create(&packed).unwrap();
    let mut command = Command::new(program);
    let done =
        command.arg("-c").arg(&plain).stdout(Stdio::from(into)).stderr(Stdio::null()).status();
    std::fs::remove_file(plain).unwrap();
    done.ok().filter(std::process::ExitStatus::success).map(|_| packed)
}

fn gzip(home: &Home, name: &str, text: &str) -> PathBuf {
    pack(home, "gzip", name, text).expect("every system has gzip")
}

#[test]
fn tasks_read_the_content_under_its_name() {
    let home = Home::new();
    let mut names = vec!["in/plain.txt".to_owned()];
    home.write("in/plain.txt", "plain.txt\n");
    for (program, end) in [("gzip", "gz"), ("bzip2", "bz2"), ("xz", "xz"), ("zstd", "zst")] {
        let name = format!("in/{program}.txt.{end}");
        let text = format!("{program}.txt\n");
        match pack(&home, program, &name, &text) {
            Some(_) => names.push(name),
            None => {
                eprintln!("skipped: there is no {program}");
                std::fs::remove_file(home.work().join(&name)).unwrap();
            }
        }
    }
    gzip(&home, "db/index.gz", "index\n");
    let run = |options: &[&str], command: &[&str]| {
        let words = ["run", "--report", "none", "-k", "--decompress", "--each", "in/*"];
        home.eyas(&[&words[..], options, &["--"], command].concat()).exits(0).stdout
    };
    // The content has the name of the file without the end, in the sandbox and outside of it.
    names.sort();
    let content = |name: &String| name["in/".len()..].split(".txt").next().unwrap().to_owned();
    let expected: Vec<_> = names.iter().map(|name| format!("{}.txt\n", content(name))).collect();
    assert_eq!(run(&[], &["cat", "{}"]), expected.concat());
    let twice: Vec<_> = expected.iter().map(|line| format!("{line}{line}index\n")).collect();
    let script = ["sh", "-c", "ls *.txt; cat $1 db/index", "sh", "{}"];
    assert_eq!(run(&["--sandbox", "-i", "db/index.gz"], &script), twice.concat());
    // A program that is not compressed stays what it is.
    let tool = home.write("tool.sh", "#!/bin/sh\ncat $1\n");
    std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).unwrap();
    let tool = ["--sandbox", "-i", "tool.sh"];
    assert_eq!(run(&tool, &["./tool.sh", "{}"]), expected.concat());
    // Of one input alone.
    let words = ["run", "--report", "none", "-i", "db/index.gz,decompress", "-i", "in/gzip.txt.gz"];
    let command = ["--sandbox", "--", "sh", "-c", "cat db/index; gzip -dc in/gzip.txt.gz"];
    let done = home.eyas(&[&words[..], &command].concat()).exits(0);
    assert_eq!(done.stdout, "index\ngzip.txt\n");
    // A copy may be written.
    let words = ["run", "--report", "none", "--decompress", "--copy-inputs", "-i", "db/index.gz"];
    let command = ["--sandbox", "--", "sh", "-c", "echo more >>db/index; cat db/index"];
    let done = home.eyas(&[&words[..], &command].concat()).exits(0);
    assert_eq!(done.stdout, "index\nmore\n");
}

#[test]
fn a_node_decompresses_a_file_once_and_again_when_a_task_has_changed_it() {
    let cluster = Cluster::start(&[&["--slots", "4"]]);
    gzip(&cluster, "db.txt.gz", &"a line\n".repeat(100_000));
    let run = |array: &str, script: &str| {
        let words =
            ["run", "--report", "none", "--decompress", "-i", "db.txt.gz", "--array", array];
        cluster.run(&[&words[..], &["--sandbox", "--no-append", "--", "sh", "-c", script]].concat())
    };
    // All tasks have links to one file of the store.
    let inodes = |array: &str| {
        let done = run(array, "stat -c %i db.txt; wc -l <db.txt").exits(0).stdout;
        let mut lines: Vec<_> = done.lines().map(str::to_owned).collect();
        lines.sort();
        lines.dedup();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.contains(&"100000".to_owned()), "{lines:?}");
        lines
    };
    let first = inodes("1-40");
    assert_eq!(inodes("1-10"), first, "the store of the node keeps it");
    let changed = run("1-1", "chmod u+w db.txt; echo more >>db.txt");
    changed.exits(1).says(&["wrote to one of its inputs"]);
    assert_ne!(inodes("1-10"), first);
}

#[test]
fn a_file_that_cannot_be_decompressed_fails_its_tasks_and_says_why() {
    let home = Home::new();
    let packed = gzip(&home, "cut.gz", &"a line\n".repeat(1000));
    let bytes = std::fs::read(&packed).unwrap();
    std::fs::write(&packed, &bytes[..bytes.len() / 2]).unwrap();
    home.write("page.txt.gz", "<html>not found</html>\n");
    let run = |options: &[&str]| {
        let words = ["run", "--report", "none", "--nodes", "1", "--decompress"];
        home.eyas(&[&words[..], options, &["--", "cat", "{input:1}"]].concat())
    };
    let says = ["cannot decompress cut.gz", "compressed with gzip, is damaged: it ends early"];
    run(&["-i", "cut.gz"]).exits(1).says(&says);
    let says = ["cannot decompress page.txt.gz", "not compressed with gzip, bzip2, xz or zstd"];
    run(&["-i", "page.txt.gz"]).exits(1).says(&says);
    // A small file may have a very large content.
    gzip(&home, "large.gz", &"0".repeat(8 << 20));
    let says = ["cannot decompress large.gz", "has more than 4.0 MB", "--cache"];
    run(&["-i", "large.gz", "--cache", "4MB"]).exits(1).says(&says);
    // A part of the content cannot be named.
    home.write(
        "job.toml",
        "[[task]]\ncommand = ['cat', '{input:1}']\n\
         inputs = [{ path = 'cut.gz', decompress = true, range = '0-5' }]\n",
    );
    let says = ["a part of a file", "cannot have `decompress` or `with`"];
    home.eyas(&["submit", "--dry-run", "job.toml"]).exits(1).says(&says);
    let text = home.read("job.toml").replace(", decompress = true", "");
    home.write("job.toml", text.replace("command", "decompress = true\ncommand"));
    home.eyas(&["submit", "--dry-run", "job.toml"]).exits(1).says(&says);
}

/// Contents leave the store when it is full, and are made again.
#[test]
fn a_store_that_holds_few_contents_makes_them_again() {
    let home = Home::new();
    for number in 1..=6 {
        gzip(&home, &format!("in/{number}.gz"), &format!("{number}\n").repeat(1 << 20));
    }
    let words =
        ["run", "--report", "none", "--nodes", "1", "-k", "--cache", "5MiB", "--decompress"];
    let each = ["--each", "in/*.gz", "--", "sh", "-c", "cksum <$1", "sh", "{}"];
    let first = home.eyas(&[&words[..], &each].concat()).exits(0).stdout;
    assert_eq!(first.lines().count(), 6, "{first}");
    for (number, line) in (1..=6).zip(first.lines()) {
        let text = format!("{number}\n").repeat(1 << 20);
        let plain = home.write("plain", &text);
        let expected = Command::new("cksum").stdin(std::fs::File::open(plain).unwrap()).output();
        assert_eq!(line.as_bytes(), expected.unwrap().stdout.trim_ascii_end());
    }
}

#[test]
fn outputs_of_other_tasks_are_decompressed_too() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write(
        "job.toml",
        "[[task]]\nid = 'pack'\narray = '1-3'\n\
         command = ['sh', '-c', 'echo $0 | gzip >n$0.gz', '{}']\n\
         outputs = [{ file = 'n{}.gz', keep = true }]\n\
         [[task]]\ncommand = ['sh', '-c', 'cat n1 n2 n3']\nfolder = 'sandbox'\n\
         inputs = [{ task = 'pack', decompress = true }]\n\
         [[task]]\ncommand = ['cat', '{input:1}']\nfolder = 'sandbox'\ndecompress = true\n\
         inputs = [{ task = 'pack', index = 1, name = 'other' }]\n",
    );
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    assert_eq!(cluster.run(&["task", "log", "1.3"]).exits(0).stdout, "1\n2\n3\n");
    assert_eq!(cluster.run(&["task", "log", "1.4"]).exits(0).stdout, "2\n");
}

/// Writes an archive with a file `text` of these lines.
pub(super) fn archive(home: &Home, name: &str, text: &str) {
    home.write("packing/text", text);
    let packed = home.write(name, "");
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg(packed).arg("-C").arg(home.work().join("packing")).arg("text");
    assert!(tar.status().unwrap().success());
    std::fs::remove_dir_all(home.work().join("packing")).unwrap();
}

#[test]
fn a_node_prepares_an_input_once_for_all_tasks() {
    let cluster = Cluster::start(&[&["--slots", "4"], &["--slots", "4"]]);
    archive(&cluster, "db.tar", "one\ntwo\n");
    let log = cluster.work().join("log");
    let with = format!("db.tar,with=echo made >>{}; tar xf {{in}} -C {{out}}", log.display());
    let words = ["run", "--report", "none", "--array", "1-40", "--no-append", "-i", &with];
    let each = ["--sandbox", "--", "sh", "-c", "sleep 0.05; cat db/text; ls"];
    let done = cluster.run(&[&words[..], &each].concat()).exits(0);
    assert_eq!(done.stdout, "one\ntwo\ndb\n".repeat(40));
    let made = cluster.read("log").lines().count();
    assert!((1..=2).contains(&made), "{made} preparations on two nodes");
    // Another command makes another folder; outside of a sandbox, the path of the folder is named.
    let words = ["run", "--report", "none", "-i", "db.tar,with=wc -c <{in} >{out}/size"];
    let done = cluster.run(&[&words[..], &["--", "cat", "{input:1}/size"]].concat()).exits(0);
    assert_eq!(
        done.stdout.trim(),
        std::fs::metadata(cluster.work().join("db.tar")).unwrap().len().to_string()
    );
    // A folder is no output, and its files belong to all tasks.
    let outputs = ["-o", "**=out/", "--", "sh", "-c", "cp db/text copy"];
    cluster.run(&[&["run", "--report", "none", "-i", &with], &outputs[..]].concat()).exits(0);
    assert_eq!(cluster.names("out"), ["copy"]);
    // An output of another task.
    cluster.write(
        "job.toml",
        "[[task]]\nid = 'pack'\ncommand = ['sh', '-c', 'echo 7 >n; tar cf n.tar n']\n\
         outputs = [{ file = 'n.tar', keep = true }]\n\
         [[task]]\ncommand = ['cat', 'other/n']\nfolder = 'sandbox'\n\
         inputs = [{ task = 'pack', with = 'tar xf {in} -C {out}', name = 'other' }]\n",
    );
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    let log = cluster.run(&["task", "log", "last.1"]).exits(0);
    assert_eq!(log.stdout, "7\n");
}

#[test]
fn a_preparation_that_fails_fails_its_tasks_and_says_why() {
    let home = Home::new();
    home.write("db.tar", "no archive");
    let run = |options: &[&str]| {
        let words = ["run", "--report", "none", "--nodes", "1"];
        home.eyas(&[&words[..], options, &["--", "ls", "{input:1}"]].concat())
    };
    let says = ["cannot prepare db.tar", "`tar xf {in} -C {out}`: exit code 2: tar:"];
    run(&["-i", "db.tar,with=tar xf {in} -C {out}"]).exits(1).says(&says);
    let says = ["needs {in} and {out}"];
    run(&["-i", "db.tar,with=tar xf {in}"]).exits(1).says(&says);
    let says = ["has {in} or {out} in quotes"];
    run(&["-i", "db.tar,with=cp '{in}' {out}"]).exits(1).says(&says);
    // What is not in the folder stays as it is.
    home.write("shared/file", "");
    let shared = home.work().join("shared");
    let with = format!("db.tar,with=rmdir {{out}}; ln -s {} {{out}}; : {{in}}", shared.display());
    run(&["-i", &with]).exits(1).says(&["the command has replaced the folder {out}"]);
    let mode = std::fs::metadata(shared.join("file")).unwrap().permissions().mode();
    assert_ne!(mode & 0o200, 0, "{mode:o}");
    let timed = ["--timeout", "300ms", "-i", "db.tar,with=sleep 60; cp {in} {out}"];
    run(&timed).exits(1).says(&["timed out"]);
}

#[test]
fn folders_leave_a_store_that_is_full_and_are_made_again() {
    let home = Home::new();
    for number in 1..=5 {
        archive(&home, &format!("in/{number}.tar"), &format!("{number}\n").repeat(1 << 19));
    }
    let items: Vec<_> = (1..=20).map(|number| format!("in/{}.tar\n", number % 5 + 1)).collect();
    home.write("items", items.concat());
    let words = ["run", "--report", "none", "--nodes", "1", "-k", "--cache", "5MiB"];
    let with = ["-i", "{},with=tar xf {in} -C {out}", "--each-line", "items"];
    let command = ["--", "sh", "-c", "sort -u $1/text", "sh", "{}"];
    let done = home.eyas(&[&words[..], &with, &command].concat()).exits(0);
    let expected: Vec<_> = (1..=20).map(|number| format!("{}\n", number % 5 + 1)).collect();
    assert_eq!(done.stdout, expected.concat());
}

#[test]
fn a_command_is_run_as_it_is_written_and_folders_of_any_mode_are_usable() {
    let home = Home::new();
    archive(&home, "db.tar", "text\n");
    let with = "db.tar,with=tar xf {in} -C {out} && mkdir {out}/a && cp {out}/text {out}/a/x.y && \
                find {out} -name x.y -exec chmod 0 {} + && chmod 0311 {out}/a && chmod 0555 {out}";
    let words = ["run", "--report", "none", "--nodes", "1", "-i", with];
    let script = "cd $1 && stat -c %a a/x.y && ls a && cat text";
    let done = home.eyas(&[&words[..], &["--", "sh", "-c", script, "sh", "{input:1}"]].concat());
    assert_eq!(done.exits(0).stdout, "0\nx.y\ntext\n");
}

/// A task that prepares an input is not stopped for tasks that wait for the folder.
#[test]
fn urgent_tasks_wait_for_what_another_task_prepares() {
    let cluster = Cluster::start(&[&["--slots", "2"]]);
    archive(&cluster, "db.tar", "text\n");
    let job = |array: u32, priority: u32| {
        format!(
            "[[task]]\narray = '1-{array}'\npriority = {priority}\n\
             command = ['cat', '{{input:1}}/text']\ninputs = [{{ path = 'db.tar', \
             with = 'echo begun >>{}/log; sleep 1; tar xf {{in}} -C {{out}}' }}]\n",
            cluster.work().display()
        )
    };
    cluster.write("first.toml", job(1, 0));
    cluster.write("urgent.toml", job(2, 9));
    let first = cluster.submit("first.toml");
    cluster.wait_for_file("log");
    cluster.run(&["submit", "--wait", "urgent.toml"]).exits(0);
    cluster.run(&["job", "wait", &first]).exits(0);
    assert_eq!(cluster.read("log"), "begun\n");
}
