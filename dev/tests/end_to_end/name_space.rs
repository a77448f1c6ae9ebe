//! Files of the cluster as inputs, items and outputs of tasks.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use crate::dfs::{joined, lines};
use crate::support::{Cluster, Home, finish};

const NODE: &[&str] = &["--dfs", "--cache", "1GB"];

/// Three nodes of the file system, and an executor without a node.
fn cluster() -> Cluster {
    let cluster = Cluster::start(&[NODE, NODE, NODE, &["--label", "files=no"]]);
    joined(&cluster, 3);
    cluster
}

#[test]
fn files_of_the_cluster_are_inputs_items_and_outputs() {
    let cluster = cluster();
    let (large, small) = (lines(20_000), "1\n2\n");
    cluster.write("large.csv", &large);
    cluster.write("small.csv", small);
    cluster.write("odd", "x");
    cluster.run(&["dfs", "put", "large.csv", "/data/large.csv", "--chunk-size", "64KiB"]).exits(0);
    cluster.run(&["dfs", "put", "small.csv", "/data/small [1].csv"]).exits(0);
    cluster.run(&["dfs", "put", "odd", "/data/deep/other.csv"]).exits(0);
    for place in ["has(node.labels.files)", "!has(node.labels.files)"] {
        let input = "eyas:///data/large.csv";
        let words =
            ["run", "--requirements", place, "--sandbox", "-i", input, "--", "cat", "large.csv"];
        assert_eq!(cluster.run(&words).exits(0).stdout, large, "{place}");
    }
    // The name of a file is not a pattern, even if it has brackets; `*` does not match in
    // subfolders.
    let count = [
        "-k",
        "-o",
        "n=eyas:///counts/{/.}",
        "--",
        "sh",
        "-c",
        "wc -l < \"$1\" | tee n",
        "x",
        "{}",
    ];
    let each =
        |pattern| cluster.run(&[&["run", "--each", pattern], &count[..]].concat()).exits(0).stdout;
    assert_eq!(each("eyas:///data/small [1].csv"), "2\n");
    assert_eq!(each("eyas:///data/*.csv"), "20000\n2\n");
    assert_eq!(cluster.run(&["dfs", "cat", "/counts/large"]).exits(0).stdout, "20000\n");
    // A later job replaces an output.
    let words =
        ["run", "--array", "1-1", "-o", "n=eyas:///counts/large", "--", "sh", "-c", "echo new > n"];
    cluster.run(&words).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/counts/large"]).exits(0).stdout, "new\n");
    // Content that does not have the format of its extension is stored as it is.
    let words = [
        "run",
        "--array",
        "1-1",
        "-o",
        "n=eyas:///counts/open.csv",
        "--",
        "sh",
        "-c",
        "printf 'a,\"b' > n",
    ];
    cluster.run(&words).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/counts/open.csv"]).exits(0).stdout, "a,\"b");
    // Of two tasks with one output, one fails.
    let words = [
        "run",
        "--array",
        "1-2",
        "-o",
        "n=eyas:///counts/both",
        "--",
        "sh",
        "-c",
        "echo $1 > n",
        "x",
        "{}",
    ];
    cluster.run(&words).exits(1).says(&["eyas:///counts/both"]);
    cluster.run(&["push", "eyas:///data/*.csv"]).exits(0).says(&["2 objects"]);
    let objects = cluster.ask(&["catalog", "show", "eyas:///data/large.csv"], "objects");
    assert_eq!(objects[0]["size_bytes"], large.len(), "{objects}");
}

#[test]
fn tasks_go_to_the_chunks_of_their_files() {
    // Other policies use an idle node rather than wait for one that has the chunk.
    let cluster = Cluster::start_with(&["--policy", "mch"], &[NODE; 3]);
    joined(&cluster, 3);
    for number in 0..20 {
        cluster.write(&format!("many/{number}.txt"), lines(number));
    }
    cluster.run(&["dfs", "put", "-r", "many", "/many", "--replicas", "1"]).exits(0);
    let each = ["run", "-k", "--each", "eyas:///many/*.txt", "--", "wc", "-l"];
    let counted = cluster.run(&each).exits(0).says(&["100% from local stores"]).stdout;
    let counts =
        counted.lines().map(|line| line.split_once(' ').unwrap().0.parse::<usize>().unwrap());
    assert_eq!(counts.sum::<usize>(), (0..20).sum::<usize>());
    let large = lines(20_000);
    cluster.write("large.txt", &large);
    cluster
        .run(&["dfs", "put", "large.txt", "/large.txt", "--chunk-size", "64KiB", "--replicas", "1"])
        .exits(0);
    let blocks = ["run", "-k", "--each-block", "eyas:///large.txt", "--", "cat"];
    let read = cluster.run(&blocks).exits(0).says(&["100% from local stores"]);
    assert_eq!(read.stdout, large);
    cluster.write(
        "job.toml",
        "[[task]]\ncommand = ['sh', '-c', 'wc -l < \"$1\" > n', 'x']\n\
         each_block = 'eyas:///large.txt'\n\
         outputs = [{ file = 'n', to = 'eyas:///counts/{#}' }]\n",
    );
    let job = cluster.submit("job.toml");
    cluster.run(&["job", "wait", &job]).exits(0);
    let counted = cluster.run(&["dfs", "cat", "/counts/*"]).exits(0).stdout;
    assert!(counted.lines().count() > 10, "{counted}");
    assert_eq!(counted.lines().map(|line| line.parse::<usize>().unwrap()).sum::<usize>(), 20_000);
    cluster
        .run(&["run", "--each-block", "large.txt", "--", "cat"])
        .exits(1)
        .says(&["eyas dfs put large.txt /large.txt", "name eyas:///large.txt"]);
}

#[test]
fn tasks_go_to_the_node_with_most_chunks_of_their_file() {
    let mut cluster = Cluster::start_with(&["--policy", "mch"], &[&["--dfs", "--cache", "1GB"]]);
    joined(&cluster, 1);
    let content = lines(20_000);
    cluster.write("a", &content);
    // All chunks are on the only node.
    cluster.run(&["dfs", "put", "a", "/a", "--chunk-size", "16KiB", "--replicas", "1"]).exits(0);
    for _ in 0..3 {
        cluster.add_executor(NODE);
    }
    cluster.wait_for_executors(4);
    let task = |range: &str| {
        let input = format!("{{ path = 'eyas:///a', name = 'part'{range} }}");
        format!("[[task]]\ncommand = ['cat', 'part']\nfolder = 'sandbox'\ninputs = [{input}]\n")
    };
    cluster.write(
        "job.toml",
        task("") + &task(", range = '1-500kB'") + &task(", records = '7-19000'"),
    );
    let job = cluster.submit("job.toml");
    let done = cluster.run(&["job", "wait", &job]).exits(0);
    done.says(&[
        "0% from persistent",
        "100% from files of the cluster (100% on the task's own node)",
    ]);
    let reads = &cluster.job(&job)["reads"];
    let size = content.len() as u64;
    assert!(reads["files"]["own_bytes"].as_u64() > Some(size), "{reads}");
    assert_eq!(
        (&reads["files"]["count"], &reads["files"]["other_bytes"]),
        (&3.into(), &0.into()),
        "{reads}"
    );
    assert_eq!(
        (&reads["peer"]["bytes"], &reads["persistent"]["bytes"]),
        (&0.into(), &0.into()),
        "{reads}"
    );
    let table = cluster.run(&["report", &job, "-o", "job.csv"]).exits(0).stdout;
    assert!(table.contains("cluster files, own node"), "{table}");
    assert!(
        cluster
            .read("job.csv")
            .lines()
            .next()
            .unwrap()
            .ends_with("files_own_bytes,files_other_bytes")
    );
    assert_eq!(cluster.run(&["task", "log", &format!("{job}.0")]).exits(0).stdout, content);
    for task in 0..3 {
        assert_eq!(cluster.task(&format!("{job}.{task}"))["executor"], "n1");
    }
    cluster.write("job.toml", task("") + "requirements = 'has(node.labels.none)'\n");
    let waits = cluster.submit("job.toml");
    let explains = |cluster: &Cluster| {
        let why = cluster.run(&["explain", &format!("{waits}.0")]).exits(0).stdout;
        assert!(why.contains("in chunks of `eyas:///a`, n1 has"), "{why}");
    };
    explains(&cluster);
    // Three tasks that may be placed only after the dispatcher was started again.
    let later = "[[task]]\narray = '1-3'\ncommand = ['cat', 'part']\nfolder = 'sandbox'\n\
                 inputs = [{ path = 'eyas:///a', name = 'part' }, { task = 'first' }]\n";
    cluster.write(
        "job.toml",
        "[[task]]\nid = 'first'\n\
         command = ['sh', '-c', 'until [ -e GO ]; do sleep 0.02; done; touch n']\n\
         outputs = [{ file = 'n', keep = true }]\n"
            .replace("GO", cluster.work().join("go").to_str().unwrap())
            + later,
    );
    let job = cluster.submit("job.toml");
    cluster.restart_dispatcher();
    cluster.wait_for_executors(4);
    explains(&cluster);
    cluster.write("go", "");
    cluster.run(&["job", "wait", &job]).exits(0);
    for task in 1..4 {
        assert_eq!(cluster.task(&format!("{job}.{task}"))["executor"], "n1");
    }
    cluster.run(&["job", "cancel", &waits]).exits(0);
}

#[test]
fn a_push_leaves_chunks_with_the_file_system() {
    let cluster = Cluster::start(&[&["--dfs", "--cache", "4MB"]]);
    joined(&cluster, 1);
    let content = lines(20_000);
    cluster.write("a", &content);
    cluster.run(&["dfs", "put", "a", "/a"]).exits(0);
    cluster.run(&["push", "eyas:///a"]).exits(0).says(&["1 object"]);
    // Inputs that are larger than the store together replace each other, and not the chunk.
    for number in 0..8 {
        cluster.write(&format!("input-{number}"), vec![number; 1_000_000]);
    }
    cluster.run(&["run", "--each", "input-*", "--noop"]).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/a"]).exits(0).stdout, content);
}

#[test]
fn tasks_read_parts_of_files() {
    let cluster = cluster();
    let content = lines(5000);
    cluster.write("a", &content);
    cluster.run(&["dfs", "put", "a", "/a", "--chunk-size", "16KiB"]).exits(0);
    let task = |range: &str| {
        let input = format!("{{ path = 'eyas:///a', name = 'part', range = '{range}' }}");
        format!("[[task]]\ncommand = ['cat', 'part']\nfolder = 'sandbox'\ninputs = [{input}]\n")
    };
    cluster.write("job.toml", ["0-10", "10-50kB", "50kB-"].map(task).concat());
    let job = cluster.submit("job.toml");
    cluster.run(&["job", "wait", &job]).exits(0);
    let read = |index| cluster.run(&["task", "log", &format!("{job}.{index}")]).exits(0).stdout;
    assert_eq!([0, 1, 2].map(read).concat(), content);
    for (range, says) in [("9MB-10MB", "beyond its end"), ("10-5", "0-1GiB"), ("x", "0-1GiB")] {
        cluster.write("job.toml", task(range));
        cluster.run(&["submit", "job.toml"]).exits(1).says(&["job.toml", says]);
    }
}

#[test]
fn tasks_read_records_of_files() {
    let cluster = cluster();
    let content = lines(5000);
    cluster.write("a", &content);
    // A row may have a line feed in quotes.
    cluster.write("b.csv", "n,text\n1,\"a\nb\"\n2,c\n");
    cluster.write("c", "aabbccd");
    cluster.run(&["dfs", "put", "a", "/a", "--chunk-size", "16KiB"]).exits(0);
    cluster.run(&["dfs", "put", "b.csv", "/b.csv"]).exits(0);
    cluster.run(&["dfs", "put", "c", "/c", "--format", "fixed:2"]).exits(1);
    cluster.write("c", "aabbccdd");
    cluster.run(&["dfs", "put", "c", "/c", "--format", "fixed:2"]).exits(0);
    let task = |file: &str, records: &str| {
        let input = format!("{{ path = 'eyas:///{file}', name = 'part', records = '{records}' }}");
        format!("[[task]]\ncommand = ['cat', 'part']\nfolder = 'sandbox'\ninputs = [{input}]\n")
    };
    let parts = [
        ("a", "0-1"),
        ("a", "1-2500"),
        ("a", "2500-4999"),
        ("a", "4999-"),
        ("b.csv", "1-2"),
        ("c", "1-3"),
    ];
    cluster.write("job.toml", parts.map(|(file, records)| task(file, records)).concat());
    let job = cluster.submit("job.toml");
    cluster.run(&["job", "wait", &job]).exits(0);
    let read = |index| cluster.run(&["task", "log", &format!("{job}.{index}")]).exits(0).stdout;
    assert_eq!(read(0), content.split_inclusive('\n').next().unwrap());
    assert_eq!([0, 1, 2, 3].map(read).concat(), content);
    assert_eq!([4, 5].map(read), ["1,\"a\nb\"\n", "bbcc"]);
    for (records, says) in
        [("5000-5001", "has 5000 records"), ("2-1", "1000-2000"), ("0-1GiB", "1000-2000")]
    {
        cluster.write("job.toml", task("a", records));
        cluster.run(&["submit", "job.toml"]).exits(1).says(&["job.toml", says]);
    }
    cluster.write("job.toml", task("a", "0-1").replace("records", "range = '0-1', records"));
    cluster.run(&["submit", "job.toml"]).exits(1).says(&["not both"]);
}

#[test]
fn a_job_reads_the_version_that_it_was_promised() {
    let mut cluster = cluster();
    cluster.write("a", lines(3000));
    cluster.write("b", lines(4000));
    let put = |cluster: &Cluster, file| {
        cluster.run(&["dfs", "put", file, "/a", "--chunk-size", "16KiB"]).exits(0);
    };
    put(&cluster, "a");
    let replace = |cluster: &Cluster, file| {
        cluster.run(&["dfs", "rm", "/a"]).exits(0);
        put(cluster, file);
    };
    let task = |late| {
        format!(
            "[[task]]\ncommand = ['cat', 'a']\nfolder = 'sandbox'\ninputs = ['eyas:///a']\n\
             requirements = \"has(node.labels.late) && node.labels.late == '{late}'\"\n"
        )
    };
    cluster.write("job.toml", task("1"));
    let overwritten = cluster.submit("job.toml");
    replace(&cluster, "b");
    cluster.add_executor(&["--label", "late=1"]);
    cluster.run(&["job", "wait", &overwritten]).exits(1);
    let failed = cluster.run(&["task", "show", &format!("{overwritten}.0")]).exits(0).stdout;
    assert!(failed.contains("`eyas:///a` changed while the job was running"), "{failed}");
    // The same content is the same version.
    cluster.write("job.toml", task("2"));
    let same = cluster.submit("job.toml");
    replace(&cluster, "b");
    cluster.add_executor(&["--label", "late=2"]);
    cluster.run(&["job", "wait", &same]).exits(0);
    assert_eq!(cluster.run(&["task", "log", &format!("{same}.0")]).exits(0).stdout, lines(4000));
}

#[test]
fn a_file_that_is_replaced_during_a_submission_is_read_at_one_version() {
    let cluster = cluster();
    cluster.write("a", lines(3000));
    cluster.write("b", lines(4000));
    cluster.run(&["dfs", "put", "a", "/a", "--chunk-size", "16KiB"]).exits(0);
    let pipe = cluster.work().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let task = |range: &str| {
        let input = format!("{{ path = 'eyas:///a', name = 'part', range = '{range}' }}");
        format!("[[task]]\ncommand = ['cat', 'part']\nfolder = 'sandbox'\ninputs = [{input}]\n")
    };
    cluster.write("job.toml", task("0-10") + &task("10-") + "each_line = 'pipe'\nappend = false\n");
    let submitting = cluster.spawn_on(&["submit", "job.toml"]);
    // It opens when the command has come to the second task, whose items it waits for.
    let mut items = File::options().write(true).open(&pipe).unwrap();
    cluster.run(&["dfs", "rm", "/a"]).exits(0);
    cluster.run(&["dfs", "put", "b", "/a", "--chunk-size", "16KiB"]).exits(0);
    items.write_all(b"item\n").unwrap();
    drop(items);
    let job = finish(submitting).exits(0).stdout.trim().to_owned();
    // Neither task reads the file that was there later.
    cluster.run(&["job", "wait", &job]).exits(1);
    assert_eq!(cluster.job(&job)["tasks"]["failed"], 2);
}

#[test]
fn unreadable_names_are_refused_with_a_reason() {
    let cluster = cluster();
    cluster.run(&["run", "-i", "eyas:///none", "--", "true"]).exits(1).says(&["no file /none"]);
    cluster
        .run(&["run", "--each", "eyas:///none/*", "--", "cat"])
        .exits(1)
        .says(&["no file matches"]);
    cluster.run(&["run", "-i", "eyas:///a/../b", "--", "true"]).exits(1).says(&["not resolved"]);
    // The root is a folder.
    cluster.run(&["run", "--array", "1-1", "-o", "n=eyas:///", "--", "touch", "n"]).exits(0);
    assert_eq!(cluster.ask(&["dfs", "ls"], "files")[0]["name"], "/n");
    let without = Cluster::start(&[&[]]);
    without.run(&["run", "-i", "eyas:///a", "--", "true"]).exits(1).says(&["--dfs"]);
    let words = ["run", "--array", "1-1", "-o", "n=eyas:///a", "--", "touch", "n"];
    without.run(&words).exits(1).says(&["--dfs"]);
    Home::new().eyas(&["run", "-i", "eyas:///a", "--", "true"]).exits(1).says(&["--cluster"]);
}
