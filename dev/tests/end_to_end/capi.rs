//! The C library: programs in C and C++ that submit jobs, use files of the cluster, and work on
//! elastic blocks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use eyas_tree::root;
use rustix::io::ioctl_fionread;
use rustix::pipe::fcntl_setpipe_size;

use crate::dfs::cluster;
use crate::support::{Cluster, c_library, can_use, exported, eyas, wait_until};

#[test]
fn the_library_exports_versioned_functions_and_nothing_else() {
    let symbols = exported(&c_library().prefix().join("lib/libeyas.so.0"));
    for line in symbols.lines() {
        let name = line.rsplit(' ').next().unwrap();
        assert!(
            name.starts_with("eyas_") && name.ends_with("@@EYAS_0.1") || name == "EYAS_0.1",
            "{line}"
        );
    }
    assert!(symbols.contains(" eyas_connect@@EYAS_0.1"), "{symbols}");
}

#[test]
fn a_program_in_c_submits_a_job_and_reads_its_results() {
    let cluster = cluster(1);
    let program = c_library().example(&cluster, "c/submit.c");
    let done = cluster.finish(cluster.program(&program, &[])).exits(0);
    let mut lines: Vec<_> = done.stdout.lines().collect();
    assert_eq!(lines.pop(), Some("job 1: 3 of 3 tasks succeeded"));
    lines.sort();
    let expected = ["0 on n1 succeeded: Call me, Ishmael", "1 on n1 succeeded: Call me, Queequeg"];
    assert_eq!(lines[..2], expected.map(|line| format!("task {line}")));
}

#[test]
fn a_program_in_c_writes_and_reads_files() {
    let cluster = cluster(1);
    let program = c_library().example(&cluster, "c/files.c");
    let done = cluster.finish(cluster.program(&program, &[])).exits(0);
    assert_eq!(done.stdout, "Ishmael.\nSome years ago\n/books/whale.txt: 32 bytes\n");
    assert_eq!(cluster.ask(&["dfs", "ls"], "files").as_array().unwrap().len(), 0);
}

#[test]
fn a_program_in_c_sets_quotas_and_owners() {
    let cluster = cluster(1);
    let program = c_library().example(&cluster, "c/folders.c");
    let done = cluster.finish(cluster.program(&program, &[])).exits(0);
    assert_eq!(
        done.stdout,
        "/team/latest -> run-1\nmode 750, owner me\n8 of 1000000 bytes, 2 of 3 entries\n"
    );
}

#[test]
fn links_owners_and_quotas_answer_with_statuses() {
    let cluster = cluster(1);
    for (name, expected) in [
        ("attributes.c", "fine\n"),
        ("attributes.cpp", "target 700 7 8 9 1000 1 1\ncolour=red red 0\nEYAS_STATUS_NOT_FOUND\n"),
    ] {
        let program = own_program(&cluster, name);
        assert_eq!(
            cluster.finish(cluster.program(&program, &[])).exits(0).stdout,
            expected,
            "{name}"
        );
    }
}

#[test]
fn files_are_changed_at_an_offset_and_their_places_are_known() {
    let cluster = cluster(1);
    let chunks = "0+1024 in block 0 on a node\n1024+1024 in block 1 on a node\n2048+952 in block \
                  2 on a node\n";
    let in_c = format!("hello world!\nJello\nCello\n{chunks}3 replicas\n");
    for (name, expected) in [("changes.c", &*in_c), ("changes.cpp", "aBCdef00\n0 8 0 11\n")] {
        let program = own_program(&cluster, name);
        assert_eq!(
            cluster.finish(cluster.program(&program, &[])).exits(0).stdout,
            expected,
            "{name}"
        );
    }
}

#[test]
fn make_installs_what_pkg_config_finds() {
    if !can_use(&["make", "pkg-config", "cc", "c++"]) {
        return;
    }
    let cluster = cluster(2);
    let prefix = cluster.path("prefix");
    let mut make = Command::new("make");
    make.current_dir(root()).arg("install-capi").arg(format!("PREFIX={}", prefix.display()));
    make.arg(format!("ARCHIVE={}", eyas().with_file_name("libeyas_capi.a").display()));
    let made = make.output().expect("make can be started");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for name in [
        "include/eyas.h",
        "include/eyas.hpp",
        "lib/libeyas.a",
        "lib/libeyas.so",
        "lib/pkgconfig/eyas.pc",
    ] {
        assert!(prefix.join(name).is_file(), "{name}");
    }
    // As a user compiles: nothing but what pkg-config says.
    let examples = root().join("examples");
    for (source, compiler, expected) in [
        ("c/folders.c", "cc", "/team/latest -> run-1\n"),
        ("c/files.c", "cc", "Ishmael.\n"),
        ("c/submit.c", "cc", "job "),
        ("c/word_count.c", "cc", ""),
        ("cpp/longest_line.cpp", "c++ -std=c++17", "97 97\n"),
    ] {
        let program = cluster.path("compiled");
        let line = format!(
            "{compiler} \"$1\" -o \"$2\" $(pkg-config --cflags --libs eyas) -lpthread && \
             pkg-config --modversion eyas"
        );
        let mut compile = Command::new("sh");
        compile.args(["-c", &line, "sh"]).arg(examples.join(source)).arg(&program);
        let compiled =
            compile.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).output().expect("a shell");
        assert!(
            compiled.status.success(),
            "{source}: {}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        assert_eq!(String::from_utf8_lossy(&compiled.stdout).trim(), env!("CARGO_PKG_VERSION"));
        if expected.is_empty() {
            continue;
        }
        let mut run = cluster.program(&program, &[]);
        run.env("LD_LIBRARY_PATH", prefix.join("lib"));
        let done = cluster.finish(run).exits(0);
        assert!(done.stdout.contains(expected), "{source}: {}", done.stdout);
    }
}

#[test]
fn a_program_in_cpp_runs_tasks_and_workers() {
    let cluster = cluster(2);
    let program = c_library().example(&cluster, "cpp/longest_line.cpp");
    let done = cluster.finish(cluster.program(&program, &[])).exits(0);
    assert_eq!(done.stdout, "97 97\n");
}

/// Compiles a program of this folder.
fn own_program(cluster: &Cluster, name: &str) -> PathBuf {
    c_library().compile(cluster, &root().join("dev/tests/end_to_end/capi_programs").join(name))
}

#[test]
fn bad_input_is_answered_with_statuses() {
    let cluster = cluster(1);
    let program = own_program(&cluster, "bad_input.c");
    let done = cluster.finish(cluster.program(&program, &[])).exits(0);
    assert_eq!(done.stdout, "fine\n");
}

#[test]
fn without_a_quorum_calls_fail_in_time_and_say_why() {
    let mut cluster = cluster(3);
    let program = own_program(&cluster, "lost_quorum.c");
    let mut command = cluster.program(&program, &[]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(output.next().as_deref(), Some("ready"));
    cluster.executor(1).kill();
    cluster.executor(2).kill();
    drop(child.stdin.take());
    let lines: Vec<_> = output.collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in &lines {
        assert!(line.starts_with("EYAS_STATUS_UNREACHABLE: "), "{line}");
    }
    assert!(lines[0].contains("2 of the 3 nodes of the file system are missing"), "{lines:?}");
    assert!(child.wait().unwrap().success());
}

/// Lines of words, and how often each word is in them.
fn text(lines: usize) -> (String, BTreeMap<String, usize>) {
    let (mut text, mut counts) = (String::new(), BTreeMap::new());
    for line in 0..lines {
        for word in ["all".to_owned(), format!("w{}", line % 100), format!("x{}", line % 7)] {
            let _ = write!(text, "{word} ");
            *counts.entry(word).or_default() += 1;
        }
        text.push('\n');
    }
    (text, counts)
}

#[test]
fn a_worker_in_c_that_is_killed_counts_nothing_twice() {
    let cluster = cluster(3);
    let (text, counts) = text(200_000);
    cluster.write("a.txt", &text);
    cluster.run(&["dfs", "put", "a.txt", "/a.txt", "--chunk-size", "64KiB"]).exits(0);
    let program = c_library().example(&cluster, "c/word_count.c");
    let start = |words: &[&str], stderr: Stdio| {
        let mut command = cluster.program(&program, words);
        command.stdout(Stdio::piped()).stderr(stderr).spawn().expect("it can be started")
    };
    let mut leader = start(&["open", "/a.txt"], Stdio::piped());
    let mut output = BufReader::new(leader.stdout.take().unwrap());
    let mut address = String::new();
    output.read_line(&mut address).unwrap();
    // Each worker says which piece it has. One cannot go on after a few pieces, because its pipe
    // has one page, which is almost full from the start, and is not read: so it is killed in the
    // middle.
    let (mut stderr, mut writer) = std::io::pipe().unwrap();
    fcntl_setpipe_size(&writer, 4096).unwrap();
    let filler = "x".repeat(4000);
    writer.write_all(filler.as_bytes()).unwrap();
    let mut killed = start(&["work", address.trim()], writer.into());
    wait_until("it has a piece", || ioctl_fionread(&stderr).unwrap() > filler.len() as u64);
    let mut other = start(&["work", address.trim()], Stdio::piped());
    let mut said = BufReader::new(other.stderr.take().unwrap());
    let mut first = String::new();
    said.read_line(&mut first).unwrap();
    assert!(first.starts_with("/a.txt: "), "{first}");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut its = String::new();
    stderr.read_to_string(&mut its).unwrap();
    assert!(its[filler.len()..].starts_with("/a.txt: "), "{its}");
    let mut pieces = String::new();
    said.read_to_string(&mut pieces).unwrap();
    assert!(other.wait().unwrap().success(), "{pieces}");
    let mut counted = BTreeMap::new();
    for line in output.lines() {
        let line = line.unwrap();
        let (word, count) = line.split_once(' ').unwrap();
        assert!(
            counted.insert(word.to_owned(), count.parse::<usize>().unwrap()).is_none(),
            "{line}"
        );
    }
    assert!(leader.wait().unwrap().success());
    assert_eq!(counted, counts);
    // No hidden output is left.
    cluster.run(&["dfs", "ls", "/.eyas"]).exits(1).says(&["there is no file"]);
}
