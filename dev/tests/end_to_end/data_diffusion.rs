//! Where inputs are read from (local stores, peers, persistent storage), and the limits of stores.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Child;

use serde_json::Value;

use crate::support::{Cluster, Home, wait_until};

const KIB: usize = 1024;

fn write_survey(home: &Home, files: usize, bytes: usize) {
    for number in 0..files {
        home.write(&format!("survey/{number:02}"), vec![b'a' + number as u8; bytes]);
    }
}

/// Bytes read from local stores, from peers and from persistent storage.
fn reads(view: &Value) -> [u64; 3] {
    ["local", "peer", "persistent"]
        .map(|place| view["reads"][place]["bytes"].as_u64().expect("a number"))
}

/// Files under a folder, and their bytes.
fn held(folder: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // Files come and go while we look.
        let Ok(metadata) = entry.metadata() else { continue };
        let inside = if metadata.is_dir() { held(&entry.path()) } else { (1, metadata.size()) };
        (files, bytes) = (files + inside.0, bytes + inside.1);
    }
    (files, bytes)
}

/// What is printed of tasks each of which prints one of these letters.
fn lines(letters: &str) -> String {
    letters.chars().map(|letter| format!("{letter}\n")).collect()
}

#[test]
fn inputs_are_read_again_from_local_stores() {
    let cluster = Cluster::start(&[&[], &[]]);
    write_survey(&cluster, 8, 64 * KIB);
    let words = ["run", "-k", "--each", "survey/*", "--", "head", "-c", "1", "{}"];
    let all = 8 * 64 * KIB as u64;
    assert_eq!(cluster.run(&words).exits(0).stdout, lines("abcdefgh"));
    // A task that was moved to an idle node after its input was fetched takes the input from its
    // peer. When the task is moved back, its input is already there.
    let [local, peer, persistent] = reads(&cluster.job("1"));
    assert_eq!(local + peer + persistent, all);
    assert!(local + peer <= all / 4, "{local} and {peer} of {all}");
    let first = persistent;
    for job in ["2", "3"] {
        assert_eq!(cluster.run(&words).exits(0).stdout, lines("abcdefgh"));
        let [local, peer, persistent] = reads(&cluster.job(job));
        assert_eq!((local + peer, persistent), (all, 0));
        assert!(local >= all / 2, "work does not go to its data: {local} of {all}");
    }
    let executors = cluster.ask(&["executor", "list"], "executors");
    let sum = |place: &str| -> u64 {
        executors
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["reads"][place]["bytes"].as_u64().unwrap())
            .sum()
    };
    assert_eq!((sum("persistent"), sum("local") + sum("peer")), (first, 3 * all - first));
}

#[test]
fn two_mark_keeps_what_was_used_in_this_phase() {
    let cluster = Cluster::start(&[&["--cache", "350KiB", "--eviction", "2mark"]]);
    write_survey(&cluster, 5, 100 * KIB);
    let name = |number: usize| format!("survey/{number:02}");
    let read = |number: usize| {
        cluster.run(&["run", "--each", &name(number), "--", "head", "-c", "1", "{}"]).exits(0);
    };
    let held = || -> Vec<usize> {
        let is_held = |number: &usize| {
            let shown = cluster.run(&["--json", "catalog", "show", &name(*number)]);
            shown.code == 0 && shown.json("objects")[0]["holders"] != serde_json::json!([])
        };
        (0..5).filter(is_held).collect()
    };
    // The first three fill the store, and are marked. The fourth begins a phase: one of them
    // leaves, and the two others have no mark.
    (0..4).for_each(read);
    wait_until("one has left", || held().len() == 3);
    let [older, _, last] = held()[..] else { unreachable!("three are held") };
    assert_eq!(last, 3);
    read(older);
    read(4);
    wait_until("the one without a mark has left", || held() == [older, 3, 4]);
}

#[test]
fn an_input_of_all_tasks_is_fetched_once_a_node_and_moves_no_byte_when_it_is_there() {
    let mut cluster = Cluster::start(&[&["--slots", "4"]]);
    cluster.write("objects.csv", vec![b'x'; 100 * KIB]);
    let words = [
        "--sandbox",
        "--array",
        "1-50",
        "-i",
        "objects.csv",
        "--",
        "sh",
        "-c",
        "stat -c %h objects.csv",
    ];
    let done = cluster.run(&[&["run"], &words[..]].concat()).exits(0);
    assert_eq!(reads(&cluster.job("1")), [49 * 100 * KIB as u64, 0, 100 * KIB as u64]);
    assert!(
        done.stdout.lines().all(|links| links.parse::<u32>().unwrap() >= 2),
        "inputs are copied, not linked"
    );
    assert_eq!(held(&cluster.executor(1).folder().join("store/objects")), (1, 100 * KIB as u64));
}

#[test]
fn first_available_reads_everything_from_persistent_storage_each_time() {
    let mut cluster = Cluster::start_with(&["--policy", "fa"], &[&[], &[]]);
    write_survey(&cluster, 4, KIB);
    for job in ["1", "2"] {
        cluster.run(&["run", "--each", "survey/*", "-i", "survey/00", "--", "cat", "{}"]).exits(0);
        // The task on 00 names the input twice and reads it once.
        assert_eq!(reads(&cluster.job(job)), [0, 0, 7 * KIB as u64]);
    }
    for number in [1, 2] {
        let store = cluster.executor(number).folder().join("store/objects");
        wait_until("nothing is cached", || held(&store) == (0, 0));
    }
}

#[test]
fn a_node_takes_from_its_peer_what_the_peer_has() {
    let mut cluster = Cluster::start_with(&["--policy", "mcu"], &[&[]]);
    write_survey(&cluster, 6, 64 * KIB);
    let words = ["run", "-k", "--each", "survey/*", "--", "head", "-c", "1", "{}"];
    cluster.run(&words).exits(0);
    // The files are gone: from now on their content can only come from the peer.
    let objects = cluster.ask(&["catalog", "show", "survey/03"], "objects");
    assert_eq!(
        (&objects[0]["holders"][0], &objects[0]["size_bytes"]),
        (&"n1".into(), &(64 * KIB).into())
    );
    cluster.add_executor(&[]);
    cluster.wait_for_executors(2);
    let blocker = block_first(&cluster);
    assert_eq!(cluster.run(&words).exits(0).stdout, lines("abcdef"));
    assert_eq!(reads(&cluster.job("3")), [0, 6 * 64 * KIB as u64, 0]);
    let_go(&cluster, blocker);
    let objects = cluster.ask(&["catalog", "show", "survey/03"], "objects");
    assert_eq!(objects[0]["holders"].as_array().unwrap().len(), 2, "{objects}");
}

#[test]
fn an_executor_that_was_killed_still_has_what_it_held_when_it_is_started_again() {
    let mut cluster = Cluster::start(&[&[]]);
    write_survey(&cluster, 8, 64 * KIB);
    let words = ["run", "-k", "--each", "survey/*", "--", "head", "-c", "1", "{}"];
    let all = 8 * 64 * KIB as u64;
    cluster.run(&words).exits(0);
    let folder = cluster.executor(1).folder().to_str().unwrap().to_owned();
    cluster.executor(1).kill();
    cluster.wait_for_executors(0);
    cluster.add_executor(&["--folder", &folder]);
    // Executors report their objects in several messages.
    wait_until("all it holds is in the catalog", || {
        cluster.ask(&["executor", "list"], "executors")[0]["objects"] == 8
    });
    assert_eq!(cluster.run(&words).exits(0).stdout, lines("abcdefgh"));
    assert_eq!(reads(&cluster.job("2")), [all, 0, 0]);
}

/// Keeps n1 busy, so that other nodes must run the tasks whose inputs n1 holds.
fn block_first(cluster: &Cluster) -> Child {
    let script = "echo $EYAS_TASK_ID > blocked; until [ -e go ]; do sleep 0.02; done";
    let child =
        cluster.spawn_on(&["run", "-i", "survey/00", "--array", "1", "--", "sh", "-c", script]);
    let task = cluster.wait_for_file("blocked");
    assert_eq!(cluster.task(task.trim())["executor"], "n1", "the blocker goes to its data");
    child
}

fn let_go(cluster: &Cluster, mut blocker: Child) {
    cluster.write("go", "");
    assert!(blocker.wait().unwrap().success());
}

#[test]
fn replicas_that_are_gone_are_done_without() {
    let mut cluster = Cluster::start_with(&["--policy", "mcu"], &[&[]]);
    write_survey(&cluster, 6, 64 * KIB);
    let words = ["run", "-k", "--each", "survey/*", "--", "head", "-c", "1", "{}"];
    cluster.run(&words).exits(0);
    // Programs that clean temporary folders delete files like this.
    let remove_all = |folder: &Path| {
        all_files(&folder.join("store/objects"))
            .iter()
            .for_each(|file| fs::remove_file(file).unwrap())
    };
    remove_all(cluster.executor(1).folder());
    assert_eq!(cluster.run(&words).exits(0).stdout, lines("abcdef"), "the node itself misses them");
    assert_eq!(reads(&cluster.job("2")), [0, 0, 6 * 64 * KIB as u64]);
    remove_all(cluster.executor(1).folder());
    cluster.add_executor(&[]);
    cluster.wait_for_executors(2);
    let blocker = block_first(&cluster);
    assert_eq!(cluster.run(&words).exits(0).stdout, lines("abcdef"), "a peer misses them");
    // All of them are gone, except the one that the blocker has fetched again.
    assert_eq!(reads(&cluster.job("4")), [0, 64 * KIB as u64, 5 * 64 * KIB as u64]);
    let_go(&cluster, blocker);
}

#[test]
fn a_full_store_evicts_and_keeps_within_its_bytes() {
    let limit = 256 * KIB;
    let mut cluster = Cluster::start(&[&["--cache", "256KiB", "--slots", "2"]]);
    write_survey(&cluster, 26, 60 * KIB);
    let store = cluster.executor(1).folder().join("store");
    let mut child =
        cluster.spawn_on(&["run", "-k", "--each", "survey/*", "--", "head", "-c", "1", "{}"]);
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        // The executor is stopped, so that no file moves and is counted twice.
        cluster.executor(1).suspend();
        most = most.max(held(&store).1);
        cluster.executor(1).resume();
    }
    let held_bytes = held(&store.join("objects")).1;
    assert!(held_bytes > limit as u64 / 2, "it caches next to nothing: {held_bytes}");
    // The lock file contains a process id.
    assert!(most <= limit as u64 + 100, "{most} bytes are in a store of {limit}");
    assert_eq!(
        child.wait_with_output().unwrap().stdout,
        lines("abcdefghijklmnopqrstuvwxyz").as_bytes()
    );
    let executor = &cluster.ask(&["executor", "list"], "executors")[0];
    assert!(executor["held_bytes"].as_u64().unwrap() <= limit as u64);
}

#[test]
fn a_full_store_keeps_within_its_inodes() {
    let mut cluster = Cluster::start(&[&["--cache-objects", "5"]]);
    write_survey(&cluster, 20, 10);
    cluster.run(&["run", "--each", "survey/*", "--", "cat", "{}"]).exits(0);
    let objects = held(&cluster.executor(1).folder().join("store/objects")).0;
    assert!((1..=5).contains(&objects), "{objects} objects");
    // More inputs than the store may hold.
    let many: Vec<_> =
        (0..6).flat_map(|number| ["-i".to_owned(), format!("survey/{number:02}")]).collect();
    let words: Vec<&str> = many.iter().map(String::as_str).collect();
    let done = cluster.run(&[&["run", "--array", "1"], &words[..], &["--", "true"]].concat());
    done.exits(1).says(&["6", "--cache-objects"]);
}

#[test]
fn a_store_outlives_its_executor() {
    let mut cluster = Cluster::start(&[&[]]);
    write_survey(&cluster, 4, 64 * KIB);
    let words = ["run", "-k", "--each", "survey/*", "--", "head", "-c", "1", "{}"];
    cluster.run(&words).exits(0);
    cluster.executor(1).kill();
    let folder = cluster.executor(1).folder().to_owned();
    // Files that were half written at the crash, and files that were changed since, are not
    // trusted.
    let objects = all_files(&folder.join("store/objects"));
    assert_eq!(objects.len(), 4);
    fs::set_permissions(&objects[0], std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    fs::write(&objects[0], vec![b'?'; 64 * KIB]).unwrap();
    cluster.wait_for_executors(0);
    cluster.add_executor(&["--folder", folder.to_str().unwrap()]);
    cluster.wait_for_executors(1);
    assert_eq!(cluster.run(&words).exits(0).stdout, lines("abcd"));
    assert_eq!(reads(&cluster.job("2")), [3 * 64 * KIB as u64, 0, 64 * KIB as u64]);
}

fn all_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { files.extend(all_files(&entry)) } else { files.push(entry) }
    }
    files
}

#[test]
fn a_task_that_writes_to_its_input_fails_and_changes_no_other_input() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write("input", "good");
    let words = ["run", "--sandbox", "-i", "input", "--array", "1", "--", "sh", "-c"];
    let spoil = "chmod u+w input; echo bad > input";
    cluster.run(&[&words[..], &[spoil]].concat()).exits(1).says(&["wrote to one of its inputs"]);
    assert_eq!(cluster.run(&[&words[..], &["cat input"]].concat()).exits(0).stdout, "good");
    assert_eq!(cluster.read("input"), "good", "nor the user's own");
}

#[test]
fn a_task_that_changes_its_sandbox_does_not_harm_the_next() {
    let cluster = Cluster::start(&[&["--slots", "2"]]);
    for name in ["a", "b", "c"] {
        cluster.write(name, name);
    }
    // Each task finds its three inputs and nothing else, and leaves something else behind.
    let script = r#"
        test "$(cat a b c)" = abc && test "$(ls -A | tr -d '\n')" = abc || exit 1
        case $(($1 % 8)) in
            0) rm a ;;
            1) mv a x ;;
            2) rm b; echo bad > b ;;
            3) mv a x; mv b a; mv x b ;;
            4) echo own > own; mkdir -p deep/er; echo own > deep/er/a; chmod 000 deep ;;
            5) chmod 777 . ;;
            6) rm -r "$EYAS_SANDBOX" ;;
        esac"#;
    let inputs = ["-i", "a", "-i", "b", "-i", "c"];
    let words = ["run", "--sandbox", "--array", "1-48", "--", "sh", "-c", script, "sh", "{}"];
    cluster.run(&[&words[..2], &inputs, &words[2..]].concat()).exits(0);
    // One that writes to an input fails, and the next one has the input as it was.
    let spoil = "chmod u+w a; echo bad > a";
    let words = ["run", "--sandbox", "--array", "1", "--", "sh", "-c", spoil];
    cluster
        .run(&[&words[..2], &inputs, &words[2..]].concat())
        .exits(1)
        .says(&["wrote to one of its inputs"]);
    let words = ["run", "--sandbox", "--array", "1-4", "--", "sh", "-c", script, "sh", "7"];
    cluster.run(&[&words[..2], &inputs, &words[2..]].concat()).exits(0);
}
