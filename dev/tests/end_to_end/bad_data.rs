//! Inputs that change or are missing, outputs that cannot be written, damaged stores.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use crate::support::{Cluster, Home, SmallDisk, eyas, is_root, wait_for, wait_until};

#[test]
fn a_missing_input_is_named_before_anything_runs() {
    let home = Home::new();
    home.write("there", "");
    for words in [
        &["--each", "there", "-i", "not there"][..],
        &["--each", "not there"],
        &["-i", "gone-{}", "--array", "1"],
    ] {
        let done = home.eyas(&[&["run"], words, &["--", "touch", "ran"]].concat()).exits(1);
        assert!(
            done.stderr.contains("not there") || done.stderr.contains("gone-1"),
            "{}",
            done.stderr
        );
    }
    home.eyas(&["run", "--each", "/", "--", "true"]).exits(1).says(&["folder"]);
    assert_eq!(home.names("."), ["there"]);
}

#[test]
fn an_input_that_vanishes_while_the_job_waits_fails_its_task_alone() {
    let mut cluster = Cluster::start(&[]);
    for name in ["in/a", "in/b", "in/c"] {
        cluster.write(name, name);
    }
    cluster.write("job.toml", "[[task]]\ncommand = [\"cat\"]\neach = \"in/*\"\n");
    cluster.submit("job.toml");
    fs::remove_file(cluster.work().join("in/b")).unwrap();
    cluster.add_executor(&[]);
    cluster.run(&["job", "wait", "1"]).exits(1).says(&["2 of 3 tasks succeeded, 1 failed"]);
    let status = cluster.task("1.1")["status"].to_string();
    assert!(status.contains("in/b") && status.contains("No such file"), "{status}");
}

#[test]
fn an_input_that_changes_while_the_job_waits_is_an_error_and_never_a_mix() {
    let mut cluster = Cluster::start(&[]);
    for name in ["in/longer", "in/same", "in/touched", "in/untouched"] {
        cluster.write(name, "old");
    }
    cluster.write("job.toml", "[[task]]\ncommand = [\"cat\"]\neach = \"in/*\"\nretries = 3\n");
    cluster.submit("job.toml");
    cluster.write("in/longer", "new and longer");
    let later = fs::metadata(cluster.work().join("in/same")).unwrap().modified().unwrap()
        + std::time::Duration::from_nanos(1);
    cluster.write("in/same", "new");
    for name in ["in/same", "in/touched"] {
        fs::File::options()
            .append(true)
            .open(cluster.work().join(name))
            .unwrap()
            .set_modified(later)
            .unwrap();
    }
    cluster.add_executor(&[]);
    cluster.run(&["job", "wait", "1"]).exits(1).says(&["1 of 4 tasks succeeded, 3 failed"]);
    for task in ["1.0", "1.1", "1.2"] {
        let view = cluster.task(task);
        let status = view["status"].as_str().unwrap();
        assert!(status.contains("changed") && status.contains("/in/"), "{status}");
        assert_eq!(view["tries"], 1, "trying again cannot help");
        assert_eq!(cluster.run(&["task", "log", task]).exits(0).stdout, "");
    }
    assert_eq!(cluster.run(&["task", "log", "1.3"]).exits(0).stdout, "old");
}

#[test]
fn a_changed_file_is_another_object() {
    let cluster = Cluster::start(&[&[]]);
    let run = || cluster.run(&["run", "--each", "input", "--", "cat", "{}"]).exits(0).stdout;
    cluster.write("input", "old");
    assert_eq!(run(), "old");
    cluster.write("input", "new and longer");
    assert_eq!(run(), "new and longer");
    let objects = cluster.ask(&["catalog", "show", "input"], "objects");
    assert_eq!(objects.as_array().unwrap().len(), 2, "{objects}");
}

#[test]
fn a_retry_names_inputs_that_have_changed_and_reads_them_as_they_are_if_told() {
    let mut cluster = Cluster::start(&[&[]]);
    cluster.write("program", "cat $1 >&2; exit 1");
    cluster.write("data", "data ");
    let words =
        ["run", "--sandbox", "-i", "program", "--each", "data", "--", "sh", "program", "{}"];
    cluster.run(&words).exits(1);
    cluster.write("program", "cat $1; echo mended");
    let refused = cluster.run(&["job", "retry", "1"]).exits(1);
    refused.says(&["1 input of job 1 changed", "/program`", "--current"]);
    assert_eq!(cluster.job("1")["state"], "failed", "nothing runs again");
    cluster.run(&["job", "retry", "1", "--current"]).exits(0);
    cluster.run(&["job", "wait", "1"]).exits(0);
    assert_eq!(cluster.run(&["task", "log", "1.0"]).exits(0).stdout, "data mended\n");
    // The journal has the new version, too.
    cluster.write("program", "exit 1");
    cluster.run(&words).exits(1);
    cluster.write("program", "exit 2");
    cluster.run(&["job", "retry", "2", "--current"]).exits(0);
    cluster.run(&["job", "wait", "2"]).exits(1);
    cluster.restart_dispatcher();
    cluster.wait_for_executors(1);
    cluster.run(&["job", "retry", "2"]).exits(0);
    cluster.run(&["job", "wait", "2"]).exits(1).says(&["exit code 2"]);
}

#[test]
fn a_retry_looks_at_files_of_the_cluster() {
    let cluster = crate::dfs::cluster(1);
    cluster.write("small", "old");
    cluster.write("large", "old\n".repeat(40_000));
    let put = |file: &str, to: &str| {
        _ = cluster.run(&["dfs", "put", "--chunk-size", "64KiB", file, to]).exits(0)
    };
    let script = "head -n 1 $1 | grep -q new";
    let run =
        |file: &str| cluster.run(&["run", "--each", file, "--", "sh", "-c", script, "sh", "{}"]);
    for (job, name) in [("1", "large"), ("2", "small")] {
        put(name, &format!("/{name}"));
        run(&format!("eyas:///{name}")).exits(1);
        cluster.run(&["job", "retry", job]).exits(0);
        cluster.run(&["job", "wait", job]).exits(1);
        cluster.write("new", "new\n".repeat(40_000));
        cluster.run(&["dfs", "rm", &format!("/{name}")]).exits(0);
        put("new", &format!("/{name}"));
        let refused = cluster.run(&["job", "retry", job]).exits(1);
        refused.says(&["1 input of job", &format!("`eyas:///{name}`"), "--current"]);
    }
    cluster.run(&["job", "retry", "1", "--current"]).exits(0);
    cluster.run(&["job", "wait", "1"]).exits(0);
    // Whether the task reads all of the file, or its first block, is not known of a file with one
    // chunk.
    cluster
        .run(&["job", "retry", "2", "--current"])
        .exits(1)
        .says(&["eyas:///small", "submit the job again"]);
    cluster.run(&["dfs", "rm", "/small"]).exits(0);
    cluster.run(&["job", "retry", "2"]).exits(1).says(&["`eyas:///small`"]);
}

#[test]
fn an_unreadable_input_is_an_error_that_says_so() {
    let home = Home::new();
    let secret = home.write("secret", "secret");
    home.write("open", "open");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let words = ["run", "--each", "secret", "--each", "open", "--", "cat", "{}"];
    let command = if is_root() {
        // Root may read everything, so the test runs as another user.
        const NOBODY: u32 = 65534;
        for folder in [home.path("home"), home.path("tmp")] {
            chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let own = home.path("eyas");
        // Another process writes the program: children of this process would inherit its open file
        // and keep it busy.
        assert!(Command::new("cp").args([eyas(), &own]).status().unwrap().success());
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(own);
        home.command_of(other, &words)
    } else {
        home.command(&words)
    };
    let done = home.finish(command).exits(1);
    assert_eq!(done.stdout, "open\n");
    done.says(&["secret", "ermission denied", "1 of 2 tasks succeeded"]);
}

#[test]
fn names_never_lead_out_of_a_sandbox() {
    let home = Home::new();
    home.write("a/x", "x");
    home.write("b/y", "y");
    // A path may have `..` if the user writes it.
    let done = home.eyas(&["run", "--sandbox", "--each", "a/../b/*", "--", "cat", "{}"]).exits(0);
    assert_eq!(done.stdout, "y");
    for output in ["../evil", "a/../../evil", "/etc/passwd", "..", ""] {
        let to = format!("{output}=stolen");
        let done = home
            .eyas(&["run", "--array", "1", "-o", &to, "--", "sh", "-c", "echo evil > ../evil"])
            .exits(1);
        assert!(
            done.stderr.contains("leads out of the sandbox") || done.stderr.contains("cannot be"),
            "{}",
            done.stderr
        );
    }
    for name in ["../evil", "/tmp/evil", "x/../../evil"] {
        let inputs = format!("inputs = [{{ path = \"a/x\", name = \"{name}\" }}]");
        home.write(
            "job.toml",
            format!("[[task]]\nfolder = \"sandbox\"\ncommand = [\"true\"]\n{inputs}\n"),
        );
        let cluster = Cluster::start(&[&[]]);
        let file = home.work().join("job.toml");
        fs::create_dir(cluster.work().join("a")).unwrap();
        cluster.write("a/x", "x");
        let done = cluster.run(&["submit", "-w", file.to_str().unwrap()]).exits(1);
        done.says(&[name, "not in the folder of its task"]);
    }
    assert_eq!(home.names("."), ["a", "b", "job.toml"]);
}

#[test]
fn a_store_smaller_than_a_tasks_inputs_says_what_to_do() {
    let home = Home::new();
    home.write("large", vec![0; 30_000]);
    home.write("small", "small");
    let done = home
        .eyas(&["run", "--cache", "20kB", "--each", "*", "--", "head", "-c", "5", "{}"])
        .exits(1);
    assert_eq!(done.stdout, "small\n");
    done.says(&["30.0 kB", "20.0 kB", "--cache", "1 of 2 tasks succeeded"]);
}

#[test]
fn a_task_larger_than_each_of_several_nodes_is_told_how_to_have_one() {
    let cluster = Cluster::start(&[&[], &[]]);
    cluster.write("job.toml", "[[task]]\ncommand = [\"true\"]\ncpus = 100000\n");
    cluster.submit("job.toml");
    let warnings = cluster.job("1")["warnings"].to_string();
    assert!(
        warnings.contains("Ask for less, start a larger executor, or give one node all processors")
            && warnings.contains("`eyas start local --nodes 1`"),
        "{warnings}"
    );
    cluster.write("gpu.toml", "[[task]]\ncommand = [\"true\"]\nresources = { gpu = 1 }\n");
    cluster.submit("gpu.toml");
    let warnings = cluster.job("2")["warnings"].to_string();
    assert!(warnings.contains("Ask for less, or start a larger executor"), "{warnings}");
}

#[test]
fn a_task_waits_for_a_missing_resource_and_says_so() {
    let mut cluster = Cluster::start(&[&[]]);
    cluster.write("job.toml", "[[task]]\ncommand = [\"true\"]\nresources = { gpu = 1 }\n");
    cluster.submit("job.toml");
    let warnings = cluster.job("1")["warnings"].to_string();
    assert!(
        warnings.contains("no executor is large enough for its tasks: a task needs 1 processor")
            && warnings.contains("and 1 gpu; the largest node, n1, has ")
            && warnings.contains("and no gpu. Ask for less, or start a larger executor"),
        "{warnings}"
    );
    let explained = cluster.run(&["explain", "1.0"]).exits(0).stdout;
    assert!(
        explained.contains("no executor has as much as it needs: a task needs 1 processor and 1")
            && explained.contains("the largest node, n1, has "),
        "{explained}"
    );
    cluster.add_executor(&["--node-resource", "gpu=1"]);
    cluster.run(&["job", "wait", "1"]).exits(0);
    assert_eq!(cluster.task("1.0")["executor"], "n2");
    // The job's own cluster will not get more executors.
    cluster
        .eyas(&["run", "--cpus", "1000", "--array", "1", "--", "true"])
        .exits(1)
        .says(&["a task needs 1000 processors; the largest node, n", "Ask for less"]);
}

#[test]
fn a_job_without_executors_says_so() {
    let cluster = Cluster::start(&[]);
    cluster.write("job.toml", "[[task]]\nnoop = true\n");
    cluster.submit("job.toml");
    assert!(cluster.job("1")["warnings"].to_string().contains("no executor has joined"));
    assert!(cluster.run(&["explain", "1.0"]).exits(0).stdout.contains("no executor has joined"));
}

#[test]
fn a_full_disk_sends_the_task_elsewhere() {
    for (options, keep_free) in [("size=4m", "0"), ("size=64m", "1GB")] {
        // Mounted before the cluster starts, so that it is unmounted after the cluster's end.
        let Some(disk) = SmallDisk::mount(options) else { return };
        let home = Home::new();
        let folder = disk.path().join("n1");
        for number in 1..=4 {
            home.write(&format!("in/{number}"), vec![b'0' + number; 5_000_000]);
        }
        let mut cluster = Cluster::start_in(home, &["--policy", "mcu"]);
        cluster.add_executor(&["--folder", folder.to_str().unwrap(), "--keep-free", keep_free]);
        cluster.add_executor(&[]);
        cluster.wait_for_executors(2);
        let executors = || cluster.ask(&["executor", "list"], "executors");
        wait_until("both have said what their disks have", || {
            executors()
                .as_array()
                .unwrap()
                .iter()
                .all(|executor| executor["free_disk_bytes"].is_u64())
        });
        let done =
            cluster.run(&["run", "-k", "--each", "in/*", "--", "head", "-c", "1", "{}"]).exits(0);
        assert_eq!(done.stdout, "1\n2\n3\n4\n");
        let tasks = cluster.ask(&["task", "list", "1"], "tasks");
        let tasks = tasks.as_array().unwrap();
        assert!(tasks.iter().all(|task| task["executor"] == "n2"), "{tasks:?}");
        assert!(tasks.iter().all(|task| task["tries"] == 1), "the full one was tried: {tasks:?}");
        // Tasks that need no disk space still run there.
        cluster.run(&["executor", "stop", "n2"]).exits(0);
        cluster.executor(2).wait();
        cluster.run(&["run", "--array", "1-3", "--", "true"]).exits(0);
        // A task that no other executor can run waits until one can.
        cluster.write("job.toml", "[[task]]\ncommand = [\"cat\"]\neach = \"in/1\"\n");
        let task = format!("{}.0", cluster.submit("job.toml"));
        let explained = || cluster.run(&["explain", &task]).exits(0).stdout;
        wait_for("it waits", || {
            Some(explained()).filter(|why| why.contains("of 1, 1 have no room on their disk"))
        });
        if keep_free == "0" {
            cluster.add_executor(&[]);
            cluster.run(&["job", "wait", "3"]).exits(0);
        }
    }
}
