//! Parts of kept outputs and of plain files as inputs of tasks. Parts of files of the cluster are
//! in `name_space`.

use std::path::Path;
use std::process::Command;

use crate::dfs::joined;
use crate::support::{Cluster, Home, can_use, eyas};

/// A task that prints a part of a file.
fn task(path: &str, part: &str) -> String {
    let input = format!("{{ path = '{path}', name = 'part', {part} }}");
    format!("[[task]]\ncommand = ['cat', 'part']\nfolder = 'sandbox'\ninputs = [{input}]\n")
}

#[test]
fn tasks_read_parts_of_kept_outputs_and_plain_files() {
    let cluster = Cluster::start(&[&[], &[]]);
    let content: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    cluster.write("plain.txt", &content);
    cluster.write("table.csv", "n,text\n1,\"a\nb\"\n2,c\n");
    cluster.write(
        "keep.toml",
        "[[task]]\ncommand = ['sh', '-c', \
         'cp plain.txt kept.txt; cp table.csv kept.csv; chmod +x kept.csv']\n\
         inputs = ['plain.txt', 'table.csv']\nfolder = 'sandbox'\n\
         outputs = [{ file = 'kept.txt', keep = true }, { file = 'kept.csv', keep = true }]\n",
    );
    cluster.run(&["submit", "--wait", "keep.toml"]).exits(0);
    for (text, table) in
        [("eyas://1/0/kept.txt", "eyas://1/0/kept.csv"), ("plain.txt", "table.csv")]
    {
        let part_of_text = |part| task(text, part);
        let ranges = ["range = '0-10'", "range = '10-1MB'", "range = '1MB-'"];
        let records = ["records = '0-1'", "records = '1-150000'", "records = '150000-'"];
        let parts = ranges.map(part_of_text).concat()
            + &records.map(part_of_text).concat()
            + &task(table, "records = '1-2'")
            // The range is cut at the end of the file.
            + &task(table, "range = '16-1GB'");
        cluster.write("job.toml", parts);
        let job = cluster.submit("job.toml");
        cluster.run(&["job", "wait", &job]).exits(0);
        let read = |index| cluster.run(&["task", "log", &format!("{job}.{index}")]).exits(0).stdout;
        assert!([0, 1, 2].map(read).concat() == content, "bytes of {text}");
        assert!([3, 4, 5].map(read).concat() == content, "records of {text}");
        assert_eq!([6, 7].map(read), ["1,\"a\nb\"\n", ",c\n"], "{table}");
        // A task that writes to its copy of a part harms no other task.
        cluster.write(
            "job.toml",
            task(text, "range = '0-2'")
                .replace("'cat', ", "'sh', '-c', 'chmod u+w part; echo x >> part; cat part', "),
        );
        let job = cluster.submit("job.toml");
        cluster.run(&["job", "wait", &job]).exits(0);
        assert_eq!(cluster.run(&["task", "log", &format!("{job}.0")]).exits(0).stdout, "1\nx\n");
    }
    // Two parts of one file, in the template's inputs of several tasks; an output pattern does not
    // find them.
    cluster.write(
        "job.toml",
        "[[task]]\narray = '1-3'\ncommand = ['sh', '-c', 'cat a b > \"$1.out\"', 'sh', '{}']\n\
         inputs = [{ path = 'eyas://1/0/kept.txt', range = '0-2', name = 'a' },\n\
         { path = 'eyas://1/0/kept.txt', records = '9-10', name = 'b' }]\n\
         outputs = [{ file = '*', to = 'results/' }]\n",
    );
    let job = cluster.submit("job.toml");
    cluster.run(&["job", "wait", &job]).exits(0);
    for number in 1..=3 {
        assert_eq!(cluster.read(&format!("results/{number}.out")), "1\n10\n");
    }
    assert!(!cluster.work().join("results/a").exists());
}

#[test]
fn parts_that_a_file_does_not_have_are_refused() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write("plain.txt", "1\n2\n");
    cluster.write("open.csv", "a,\"b");
    for (part, says) in [("range = '4-5'", "beyond its end"), ("range = '3-2'", "0-1GiB")] {
        cluster.write("job.toml", task("plain.txt", part));
        cluster.run(&["submit", "job.toml"]).exits(1).says(&["job.toml", says]);
    }
    // The node counts the records.
    for (file, says) in [("plain.txt", "has 2 records"), ("open.csv", "not csv")] {
        cluster.write("job.toml", task(file, "records = '2-3'"));
        let job = cluster.submit("job.toml");
        cluster.run(&["job", "wait", &job]).exits(1);
        let shown = cluster.run(&["task", "show", &format!("{job}.0")]).exits(0).stdout;
        assert!(shown.contains(says), "{shown}");
    }
    // An output of another task, which turns out to be empty.
    cluster.write(
        "job.toml",
        format!("{}{}", writer("'touch', 'n'", "keep = true"), reader("range = '0-1'")),
    );
    let job = cluster.submit("job.toml");
    cluster.run(&["job", "wait", &job]).exits(1);
    let shown = cluster.run(&["task", "show", &format!("{job}.1")]).exits(0).stdout;
    assert!(shown.contains("beyond its end"), "{shown}");
    cluster.write(
        "job.toml",
        format!("{}{}", writer("'touch', 'n'", "keep = true"), reader("range = '9-1'")),
    );
    cluster.run(&["submit", "job.toml"]).exits(1).says(&["job.toml", "0-1GiB"]);
}

/// A task that writes `n`.
fn writer(command: &str, place: &str) -> String {
    format!(
        "[[task]]\nid = 'a'\ncommand = [{command}]\nfolder = 'sandbox'\n\
         outputs = [{{ file = 'n', {place} }}]\n"
    )
}

/// A task that prints a part of it.
fn reader(part: &str) -> String {
    format!(
        "[[task]]\ncommand = ['cat', 'n']\nfolder = 'sandbox'\n\
         inputs = [{{ task = 'a', name = 'n', {part} }}]\n"
    )
}

#[test]
fn tasks_read_parts_of_outputs_of_other_tasks() {
    let cluster = Cluster::start(&[&["--dfs", "--cache", "1GB"], &["--dfs", "--cache", "1GB"]]);
    joined(&cluster, 2);
    let places = ["keep = true", "keep = 'until-read'", "to = 'eyas:///made/n'", "to = 'n'"];
    for place in places {
        let job = writer("'sh', '-c', 'seq 9 > n'", place)
            + &reader("range = '2-5'")
            + &reader("records = '7-'");
        cluster.write(
            "job.toml",
            job + "[[task]]\ncommand = ['cat', 'n']\nfolder = 'sandbox'\n\
                   inputs = [{ task = 'a' }]\n",
        );
        let job = cluster.submit("job.toml");
        cluster.run(&["job", "wait", &job]).exits(0);
        let read = |index| cluster.run(&["task", "log", &format!("{job}.{index}")]).exits(0).stdout;
        assert_eq!([1, 2].map(read), ["2\n3", "8\n9\n"], "{place}");
        assert_eq!(read(3).len(), 18, "{place}");
    }
}

#[test]
fn the_experiments_on_blocks_and_names_run() {
    if !can_use(&["python3", "split", "xargs"]) {
        return;
    }
    let home = Home::new();
    for (name, expected) in [
        (
            "blocks_of_a_file.py",
            &["20 MB in 5", "read from the task's own node: ", "goal: 95 %"][..],
        ),
        ("tasks_over_chunks.py", &["a file of 20 chunks", "ratio"]),
        (
            "file_names.py",
            &["with the audit log", "eyas dfs ls /many --json", "largest memory of the node"],
        ),
    ] {
        let mut experiment = Command::new("python3");
        experiment
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments").join(name))
            .env("EYAS_BIN", eyas());
        let done = home.finish(home.command_of(experiment, &["--tiny"])).exits(0);
        for words in expected {
            assert!(done.stdout.contains(words), "{}", done.stdout);
        }
    }
}

#[test]
fn another_part_is_another_task_for_reuse() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write("plain.txt", "1\n2\n");
    for (part, printed, reused) in [("0-2", "1\n", 0), ("2-4", "2\n", 0), ("0-2", "1\n", 1)] {
        cluster.write(
            "job.toml",
            format!("reuse = true\n{}", task("plain.txt", &format!("range = '{part}'"))),
        );
        let job = cluster.submit("job.toml");
        cluster.run(&["job", "wait", &job]).exits(0);
        assert_eq!(cluster.run(&["task", "log", &format!("{job}.0")]).exits(0).stdout, printed);
        assert_eq!(cluster.job(&job)["reused"], reused, "{part}");
    }
}
