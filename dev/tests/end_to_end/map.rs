//! Jobs over the blocks of files: each record counts once, whatever dies, stops or fails, and
//! outputs appear whole or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::dfs::joined;
use crate::support::{Cluster, eyas, finish, signal, wait_for, wait_until};

const NODE: &[&str] = &["--dfs", "--cache", "1GB"];

/// Makes a file named after its parent and itself. Waits until all have begun, so that each gets
/// some input. Passes the input on, and ends when a file allows it: one for all, or one for itself.
const WAITER: &str = "touch ran-$PPID-$$; until [ -e begin ]; do sleep 0.02; done; cat
                      until [ -e go ] || [ -e go-$$ ]; do sleep 0.02; done";

/// A cluster of `nodes` with a file `/text` of many chunks; the working folder has the same file as
/// `text`.
fn cluster(nodes: usize) -> Cluster {
    let cluster = Cluster::start(&vec![NODE; nodes]);
    // A run is divided among the nodes that are members when it begins.
    joined(&cluster, nodes);
    cluster.write("text", text());
    put(&cluster, "text", "/text");
    cluster
}

fn put(cluster: &Cluster, file: &str, name: &str) {
    cluster.run(&["dfs", "put", file, name, "--chunk-size", "8KiB", "--format", "lines"]).exits(0);
}

/// Lines of a few hundred words. All lines differ, so that tests detect a repeated line.
fn text() -> String {
    let mut state = 1_u64;
    let mut word = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!(" word{}", (state >> 40) % 300)
    };
    (0..12000)
        .map(|number| format!("{number}{}\n", (0..number % 9).map(|_| word()).collect::<String>()))
        .collect()
}

/// Its lines in the order of their bytes.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Every program that has begun so far: process ids of its worker and of itself.
fn programs(cluster: &Cluster) -> Vec<(u32, u32)> {
    let names = cluster.names(".").into_iter().filter_map(|name| {
        let (worker, program) = name.strip_prefix("ran-")?.split_once('-')?;
        Some((worker.parse().unwrap(), program.parse().unwrap()))
    });
    names.collect()
}

/// Waits for the first programs of a job that runs, and allows them to read.
#[track_caller]
fn wait_for_programs(cluster: &Cluster, map: &mut Child, count: usize) -> Vec<(u32, u32)> {
    let programs = wait_for((count, "programs have begun"), || {
        if let Some(status) = map.try_wait().unwrap() {
            panic!(
                "the job has ended, {status}: {}",
                io::read_to_string(map.stderr.take().unwrap()).unwrap()
            );
        }
        Some(programs(cluster)).filter(|programs| programs.len() >= count)
    });
    cluster.write("begin", "");
    programs
}

fn waiters(cluster: &Cluster, words: &[&str]) -> Child {
    cluster.spawn_on(&[&["map", "/text"], words, &["--", "sh", "-c", WAITER]].concat())
}

/// Checks that the output of a job that copies its input equals the input, and that no other file
/// is left.
fn is_all(cluster: &Cluster, map: Child) {
    let done = finish(map).exits(0);
    assert!(sorted(&done.stdout) == sorted(&text()), "{}", done.stderr);
    assert_eq!(names(cluster), ["/text"]);
}

/// All files of the file system.
fn names(cluster: &Cluster) -> Vec<String> {
    let files = cluster.ask(&["dfs", "ls", "-r"], "files");
    let files = files.as_array().unwrap().iter().filter(|file| file["kind"] == "file");
    files.map(|file| file["name"].as_str().unwrap().to_owned()).collect()
}

/// Path of `eyas-text`, beside `eyas`.
fn text_program() -> String {
    eyas().with_file_name("eyas-text").to_str().expect("a plain name").to_owned()
}

/// Output of a shell command in the working folder.
fn shell(cluster: &Cluster, script: &str) -> String {
    let output = Command::new("bash")
        .args(["-c", script])
        .current_dir(cluster.work())
        .env("LC_ALL", "C")
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn blocks_are_read_by_programs_and_what_they_write_is_gathered() {
    let cluster = cluster(3);
    for policy in ["lean", "static", "multiwave", "io-aware"] {
        let map = cluster.spawn_on(&["map", "/text", "--policy", policy, "--", "cat"]);
        is_all(&cluster, map);
    }
    for words in [
        ["--policy", "multiwave", "--min-block", "16KiB", "--waves", "3"],
        ["--policy", "io-aware", "--alpha", "0.5", "--beta", "0.25"],
    ] {
        let map = cluster.spawn_on(&[&["map", "/text"], &words[..], &["--", "cat"]].concat());
        is_all(&cluster, map);
    }
    let counts = cluster.run(&["map", "/text", "--to", "/counts", "--", "wc", "-l"]).exits(0);
    assert_eq!(counts.stdout, "");
    let published = names(&cluster);
    let parts: Vec<_> = published.iter().filter(|name| name.starts_with("/counts/part-")).collect();
    assert_eq!((parts.len(), parts[0].as_str()), (published.len() - 1, "/counts/part-00000"));
    let count = |part: &&String| {
        cluster.run(&["dfs", "cat", part]).exits(0).stdout.trim().parse::<u32>().unwrap()
    };
    assert_eq!(parts.iter().map(count).sum::<u32>(), 12000);
    // Two files are one input; an empty file adds nothing.
    cluster.write("empty", "");
    put(&cluster, "empty", "/empty");
    let both = cluster.run(&["map", "/text", "/empty", "/text", "--", "cat"]).exits(0).stdout;
    assert_eq!(sorted(&both), sorted(&[text(), text()].concat()));
    assert_eq!(cluster.run(&["map", "/empty", "--", "cat"]).exits(0).stdout, "");
    let view = cluster.ask(&["map", "/text", "--to", "/again", "--", "cat"], "map");
    assert!(view["files"][0] == "/again/part-00000" && view["bytes"] == text().len(), "{view}");
}

/// Files of the chunks on a node.
fn chunk_files(cluster: &mut Cluster, node: usize) -> Vec<PathBuf> {
    let folders = fs::read_dir(cluster.executor(node).folder().join("store/objects")).unwrap();
    let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn damaged_chunks_are_not_read() {
    let mut cluster = cluster(2);
    let damaged = chunk_files(&mut cluster, 1);
    assert!(damaged.len() > 10, "{damaged:?}");
    for (number, path) in damaged.iter().enumerate() {
        let mut content = fs::read(path).unwrap();
        let last = content.len() - 1;
        match number % 4 {
            0 => content[last] ^= 1,
            1 => content[0] ^= 1,
            2 => content.truncate(last),
            _ => content.push(b'\n'),
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(path, content).unwrap();
    }
    let map = cluster.spawn_on(&["map", "/text", "--", "cat"]);
    is_all(&cluster, map);
}

#[test]
fn a_chunk_is_divided_between_its_records() {
    let cluster = Cluster::start(&[NODE; 2]);
    let text: String =
        (0..60_000).map(|number| format!("{number} a line of one chunk\n")).collect();
    cluster.write("text", &text);
    cluster
        .run(&["dfs", "put", "text", "/text", "--chunk-size", "64MiB", "--format", "lines"])
        .exits(0);
    let mut map = waiters(&cluster, &["--tasks", "2"]);
    wait_for_programs(&cluster, &mut map, 2);
    cluster.write("go", "");
    let done = finish(map).exits(0).says(&["1 chunk in "]);
    assert!(sorted(&done.stdout) == sorted(&text), "{}", done.stderr);
    // A program for each file reads all of it.
    let names =
        cluster.run(&["map", "/text", "--tasks", "2", "--by-file", "--", "wc", "-l"]).exits(0);
    assert_eq!(names.stdout.trim(), "60000");
}

#[test]
fn words_are_counted_by_key_and_in_order() {
    let cluster = cluster(3);
    let mut counts = BTreeMap::<_, u32>::new();
    text().split_whitespace().for_each(|word| *counts.entry(word.to_owned()).or_default() += 1);
    let expected: String =
        counts.iter().map(|(word, count)| format!("{word}\t{count}\n")).collect();
    let map = r#"tr -s ' ' '\n' | sed 's/$/\t1/'"#;
    // Adds the values of equal keys that follow each other.
    let add = r#"awk -F'\t' 'NR > 1 && $1 != k { print k "\t" n; n = 0 } { k = $1; n += $2 }
        END { if (NR) print k "\t" n }'"#;
    let words = ["map", "/text", "--reduce", add, "--", "sh", "-c", map];
    assert_eq!(cluster.run(&words).exits(0).stdout, expected);
    let words = ["map", "/text", "--reduce", add, "--combine", add, "--", "sh", "-c", map];
    assert_eq!(cluster.run(&words).exits(0).stdout, expected);
    // With several reducers, each has all values of its keys, in the order of the keys.
    let words = [
        "map",
        "/text",
        "--reduce",
        add,
        "--reducers",
        "5",
        "--to",
        "/counts",
        "--",
        "sh",
        "-c",
        map,
    ];
    cluster.run(&words).exits(0);
    let parts = (0..5).map(|part| {
        cluster.run(&["dfs", "cat", &format!("/counts/part-{part:05}")]).exits(0).stdout
    });
    let parts: Vec<_> = parts.collect();
    assert!(
        parts.iter().all(|part| !part.is_empty() && part.lines().eq(sorted(part))),
        "{parts:?}"
    );
    assert_eq!(sorted(&parts.concat()), sorted(&expected));
    let first = ["map", "/text", "--reduce", "head -n 1", "--", "sh", "-c", map];
    assert_eq!(cluster.run(&first).exits(0).stdout.trim_end(), "0\t1");
    cluster
        .run(&["map", "/text", "--reduce", "cat; exit 4", "--", "cat"])
        .exits(1)
        .says(&["reduce", "exit code 4"]);
    assert_eq!(names(&cluster).len(), 6, "nothing hidden is left");
}

#[test]
fn the_programs_of_the_paper_say_what_coreutils_say() {
    let cluster = cluster(3);
    cluster.write(
        "left",
        (0..3000).map(|n| format!("1\tkey{}\tleft{n}\n", n % 1100)).collect::<String>(),
    );
    cluster.write(
        "right",
        (0..2000).map(|n| format!("2\tkey{}\tright{n}\n", n % 1300)).collect::<String>(),
    );
    for name in ["left", "right"] {
        put(&cluster, name, &format!("/{name}"));
    }
    let text = text_program();
    let map = |files: &[&str], program: &[&str], reduce: &str| {
        let reduce = format!("{text} {reduce}");
        let words = [&["map"], files, &["--reduce", &reduce, "--", &text], program].concat();
        cluster.run(&words).exits(0).stdout
    };
    let grep = cluster.run(&["map", "/text", "--", &text, "grep", "word1[0-9]$"]).exits(0).stdout;
    assert_eq!(sorted(&grep), sorted(&shell(&cluster, "grep 'word1[0-9]$' text")));
    let count = "tr -s ' ' '\\n' < text | sort | uniq -c | awk '{ print $2 \"\\t\" $1 }'";
    let counted = shell(&cluster, count);
    assert_eq!(map(&["/text"], &["word-count", "map"], "word-count reduce"), counted);
    assert_eq!(
        map(&["/text"], &["aggregate-word-count", "map"], "aggregate-word-count reduce"),
        counted
    );
    assert_eq!(map(&["/left"], &["sort", "map"], "sort reduce"), shell(&cluster, "sort left"));
    let joined = map(&["/left", "/right"], &["join", "map"], "join reduce");
    let expected = shell(
        &cluster,
        "join -t '\t' <(cut -f 2- left | sort -k 1,1) <(cut -f 2- right | sort -k 1,1)",
    );
    assert!(!expected.is_empty());
    assert_eq!(sorted(&joined), sorted(&expected));
}

#[test]
fn a_killed_worker_runs_again_and_nothing_counts_twice() {
    let cluster = cluster(3);
    let mut map = waiters(&cluster, &["--retries", "1"]);
    let begun = wait_for_programs(&cluster, &mut map, 3);
    begun[..2].iter().for_each(|(worker, _)| signal(*worker, Signal::KILL));
    cluster.write("go", "");
    is_all(&cluster, map);
}

#[test]
fn a_worker_that_stands_still_loses_its_block_and_is_refused_when_it_goes_on() {
    let cluster = cluster(3);
    // Only this work is done twice.
    let mut map = waiters(&cluster, &["--term", "3s", "--policy", "static"]);
    let (still, _) = wait_for_programs(&cluster, &mut map, 3)[0];
    signal(still, Signal::STOP);
    // The other workers commit, and the next program of one of them reads the chunks that the first
    // has lost.
    let begun = programs(&cluster);
    for (_, program) in &begun {
        cluster.write(&format!("go-{program}"), "");
    }
    wait_until("its block is another's", || {
        programs(&cluster).iter().any(|program| program.0 != still && !begun.contains(program))
    });
    signal(still, Signal::CONT);
    cluster.write("go", "");
    is_all(&cluster, map);
}

#[test]
fn a_map_does_not_wait_for_a_worker_whose_block_others_have_done() {
    let cluster = cluster(3);
    let mut map = waiters(&cluster, &["--term", "1s"]);
    let begun = wait_for_programs(&cluster, &mut map, 3);
    signal(begun[0].0, Signal::STOP);
    cluster.write("go", "");
    is_all(&cluster, map);
}

#[test]
fn a_run_goes_on_when_executors_are_killed() {
    let mut cluster = cluster(4);
    let mut map = waiters(&cluster, &["--retries", "1", "--to", "/out"]);
    wait_for_programs(&cluster, &mut map, 4);
    let leads = leader(&cluster);
    // An executor that leads no run is gone for good. The executor that leads the run starts again.
    let other = (1..=4).find(|number| *number != leads).unwrap();
    cluster.executor(other).kill();
    cluster.executor(leads).kill();
    let folder = cluster.executor(leads).folder().to_str().unwrap().to_owned();
    cluster.add_executor(&[NODE, &["--folder", &folder]].concat());
    cluster.write("go", "");
    finish(map).exits(0);
    let parts = names(&cluster).into_iter().filter(|name| name != "/text");
    let parts: Vec<_> =
        parts.inspect(|name| assert!(name.starts_with("/out/part-"), "{name}")).collect();
    let content: String =
        parts.iter().map(|part| cluster.run(&["dfs", "cat", part]).exits(0).stdout).collect();
    assert_eq!(sorted(&content), sorted(&text()));
}

#[test]
fn a_run_whose_leader_is_gone_for_good_fails_and_leaves_nothing() {
    let mut cluster = cluster(3);
    let mut map = waiters(&cluster, &["--to", "/out"]);
    wait_for_programs(&cluster, &mut map, 3);
    let leads = leader(&cluster);
    cluster.executor(leads).kill();
    finish(map).exits(1).says(&["which led the job, has failed"]);
    assert_eq!(names(&cluster), ["/text"]);
}

/// The number of the executor that leads the run.
fn leader(cluster: &Cluster) -> usize {
    let processes = cluster.processes();
    let words = processes
        .iter()
        .find_map(|(_, words)| words.split_once("worker map "))
        .expect("a worker runs")
        .1;
    let node = words.split(':').next().unwrap();
    let nodes = cluster.ask(&["dfs", "du"], "usage");
    let leads =
        nodes["nodes"].as_array().unwrap().iter().find(|it| it["node"] == node).expect("it lives");
    let executors = cluster.ask(&["executor", "list"], "executors");
    let executor =
        executors.as_array().unwrap().iter().find(|executor| executor["files"] == leads["address"]);
    executor.expect("it is one")["name"].as_str().unwrap().trim_start_matches('n').parse().unwrap()
}

#[test]
fn a_filter_need_not_match_in_each_block_and_local_files_are_told_from_the_clusters() {
    let cluster = cluster(2);
    let line = text().lines().nth(7777).expect("there are more").to_owned();
    let number = line.split(' ').next().unwrap_or_default();
    let pattern = format!("^{number}\\b");
    let done = cluster.run(&["map", "/text", "--tasks", "4", "--", "grep", &pattern]).exits(0);
    assert_eq!(done.stdout, line + "\n");
    let none = cluster.run(&["map", "/text", "--", "grep", "no such word"]).exits(0);
    assert_eq!(none.stdout, "");
    cluster
        .run(&["map", "/text", "--", "sh", "-c", "grep 'no such word'"])
        .exits(1)
        .says(&["exit code 1; if a filter in it found no match, write `|| test $? -eq 1`"]);
    cluster.write("big.log", "a\n");
    for name in ["big.log", "./big.log", "*.log"] {
        cluster.run(&["map", name, "--", "wc"]).exits(1).says(&[
            &format!("the cluster has no file `{name}`, but this machine has: "),
            "big.log /big.log`",
        ]);
    }
}

#[test]
fn a_program_that_fails_gives_back_what_it_had() {
    let cluster = cluster(3);
    // The program fails once, half-way through a chunk.
    let once = "if mkdir failed 2> /dev/null; then head -c 1000 > /dev/null; echo half; echo \
                sorry >&2; exit 3; fi; cat";
    let map = cluster.spawn_on(&["map", "/text", "--retries", "1", "--", "sh", "-c", once]);
    is_all(&cluster, map);
    fs::remove_dir(cluster.work().join("failed")).unwrap();
    // Without retries, other tasks read the chunks.
    let done = cluster
        .run(&["map", "/text", "--", "sh", "-c", once])
        .exits(0)
        .says(&["sorry", "exit code 3"]);
    assert_eq!(sorted(&done.stdout), sorted(&text()));
    // The program always fails.
    let fails = ["map", "/text", "--to", "/out", "--", "sh", "-c", "cat; echo never >&2; exit 5"];
    cluster.run(&fails).exits(1).says(&["chunks were not read", "exit code 5", "never"]);
    let killed = ["map", "/text", "--to", "/out", "--", "sh", "-c", "kill -9 $$"];
    cluster.run(&killed).exits(1).says(&["killed by signal 9"]);
    cluster
        .run(&["map", "/text", "--", "no-such-program"])
        .exits(1)
        .says(&["cannot start `no-such-program`"]);
    assert_eq!(names(&cluster), ["/text"]);
}

#[test]
fn a_program_need_not_read_all() {
    let cluster = cluster(2);
    let lines = |program: &[&str]| {
        let done = cluster.run(&[&["map", "/text", "--"], program].concat()).exits(0);
        done.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&["true"]), Vec::<String>::new());
    let first = lines(&["head", "-n", "1"]);
    assert!(
        first.contains(&"0".to_owned())
            && first.iter().all(|line| text().lines().any(|other| other == line))
    );
    // A program that closes its input may continue.
    assert!(
        lines(&["sh", "-c", "exec <&-; sleep 0.1; echo late"]).iter().all(|line| line == "late")
    );
}

#[test]
fn impossible_map_commands_say_why() {
    let cluster = cluster(1);
    cluster.run(&["map", "/nothing", "--", "cat"]).exits(1).says(&["no file /nothing"]);
    cluster.run(&["map", "/text", "--to", "/text", "--", "cat"]).exits(1).says(&["/text already"]);
    cluster.run(&["map", "/text", "--to", "/a/../b", "--", "cat"]).exits(1).says(&["not a name"]);
    cluster.run(&["map", "/text", "--policy", "best", "--", "cat"]).exits(2).says(&["io-aware"]);
    cluster
        .run(&["map", "/text", "--policy", "static", "--alpha", "0.5", "--", "cat"])
        .exits(1)
        .says(&["lean"]);
    cluster.run(&["map", "/text", "--alpha", "2", "--", "cat"]).exits(2).says(&["auto"]);
    cluster
        .run(&["map", "/text", "--waves", "2", "--", "cat"])
        .exits(1)
        .says(&["--waves", "multiwave"]);
    cluster.run(&["map", "/text", "--reducers", "2", "--", "cat"]).exits(2).says(&["--reduce"]);
    let many = ["map", "/text", "--reduce", "cat", "--reducers", "999", "--", "cat"];
    cluster.run(&many).exits(1).says(&["256"]);
    // The program is an input, and the command is interrupted.
    cluster.write("mine.sh", "#!/bin/sh\nexec sed 's/^/mine /'\n");
    let mut executable = Command::new("chmod");
    assert!(
        executable
            .args(["+x", "mine.sh"])
            .current_dir(cluster.work())
            .stdin(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let mine = cluster.run(&["map", "/text", "-i", "mine.sh", "--", "mine.sh"]).exits(0).stdout;
    assert!(mine.lines().count() == 12000 && mine.lines().all(|line| line.starts_with("mine ")));
    let mut map = waiters(&cluster, &[]);
    wait_for_programs(&cluster, &mut map, 1);
    signal(map.id(), Signal::INT);
    finish(map).exits(130);
    assert_eq!(names(&cluster), ["/text"]);
}

#[test]
fn a_program_knows_the_file_that_it_reads() {
    let cluster = Cluster::start(&[NODE]);
    let text = text();
    // Each file has several chunks, except one that has a single chunk.
    let logs = [
        ("/logs/a.log", &text[..100_000]),
        ("/logs/b.log", &text[100_000..180_000]),
        ("/logs/c.log", "only\n"),
    ];
    let mut expected = String::new();
    for (name, content) in logs {
        let content = content.trim_start_matches(|c| c != '\n').trim_start().to_owned() + "last\n";
        cluster.write("log", &content);
        put(&cluster, "log", name);
        expected.extend(content.lines().map(|line| format!("{name}:{line}\n")));
    }
    let map = |words: &[&str]| {
        cluster.run(&[&["map", "/logs/*.log", "--tasks", "1"], words].concat()).exits(0).stdout
    };
    let named =
        map(&["--", "sh", "-c", "test $EYAS_FILE = $1 && sed \"s|^|$1:|\"", "sh", "{file}"]);
    assert_eq!(sorted(&named), sorted(&expected));
    let by_variable = map(&["--by-file", "--", "sh", "-c", "sed \"s|^|$EYAS_FILE:|\""]);
    assert_eq!(sorted(&by_variable), sorted(&expected));
    // Without this option, one program reads a block of several files, and gets no file name.
    assert_eq!(map(&["--", "sh", "-c", "cat >/dev/null; echo \"<$EYAS_FILE>\""]), "<>\n");
    let one =
        ["map", "/logs/a.log", "--tasks", "1", "--", "sh", "-c", "cat >/dev/null; echo $EYAS_FILE"];
    assert_eq!(cluster.run(&one).exits(0).stdout, "/logs/a.log\n");
    let count = "awk -F'\\t' '{ n[$1] += $2 } END { for (k in n) print k \"\\t\" n[k] }'";
    let words = ["--combine", count, "--reduce", count, "--", "sed", "s|.*|{file}\t1|"];
    let counted = map(&words);
    let lines = |name: &str| expected.lines().filter(|line| line.starts_with(name)).count();
    let counts: String =
        logs.iter().map(|(name, _)| format!("{name}\t{}\n", lines(name))).collect();
    assert_eq!(sorted(&counted), sorted(&counts));
    let failed =
        ["map", "/logs/*.log", "--", "sh", "-c", "cat; test $1 != /logs/b.log", "sh", "{file}"];
    cluster.run(&failed).exits(1).says(&["exit code 1"]);
}

#[test]
fn a_last_line_without_a_line_feed_is_a_line() {
    let cluster = cluster(1);
    for (name, line) in [("one", "b"), ("two", "a"), ("three", "b")] {
        cluster.write(name, line);
        put(&cluster, name, &format!("/lines/{name}"));
    }
    let words = |program: &'static [&'static str]| {
        let one: &[_] = if program.contains(&"--tasks") { &[] } else { &["--tasks", "1"] };
        [&["map", "/lines/*"], one, program].concat()
    };
    for program in [
        &["--", "cat"][..],
        &["--reduce", "cat", "--", "cat"],
        &["--by-file", "--reduce", "cat", "--", "cat"],
        &["--by-file", "--", "cat"],
        &["--tasks", "3", "--policy", "static", "--", "cat"],
    ] {
        let done = cluster.run(&words(program)).exits(0);
        assert_eq!(sorted(&done.stdout), ["a", "b", "b"], "{program:?}");
        assert!(done.stdout.ends_with('\n'), "{program:?}: which chunk comes last is chance");
    }
    let done =
        cluster.run(&words(&["--combine", "uniq -c", "--reduce", "cat", "--", "cat"])).exits(0);
    assert_eq!(done.stdout.split_whitespace().collect::<Vec<_>>(), ["1", "a", "2", "b"]);
    // Also where `cat` joins the parts.
    let text = ["--tasks", "3", "--policy", "static", "--to"];
    for (folder, program) in [
        ("/map", &["--by-file", "--", "sh", "-c", "printf é; tr -d '\\n'"][..]),
        ("/reduce", &["--reducers", "3", "--reduce", "printf éa; cat > /dev/null", "--", "cat"]),
    ] {
        cluster.run(&[&["map", "/lines/*"], &text[..], &[folder], program].concat()).exits(0);
        let all = cluster.run(&["dfs", "cat", &format!("{folder}/*")]).exits(0).stdout;
        assert!(
            all.lines().count() == 3 && all.lines().all(|line| line.chars().count() == 2),
            "{folder}: {all:?}"
        );
    }
    // A line feed would be a part of other content.
    let streams = [
        "map",
        "/lines/*",
        "--tasks",
        "1",
        "--to",
        "/bytes",
        "--",
        "sh",
        "-c",
        "printf '\\377'; cat > /dev/null",
    ];
    cluster.run(&streams).exits(0);
    let stat = cluster.ask(&["dfs", "stat", "/bytes/part-00000"], "file");
    assert_eq!(stat["size_bytes"], 1, "{stat}");
}
