//! Results of tasks: standard output, files, reports.

use std::time::{Duration, SystemTime};

use crate::support::{Cluster, Home};

#[test]
fn each_tasks_output_comes_whole() {
    // All tasks write many small parts at the same time.
    const SCRIPT: &str =
        "i=0; while [ $i -lt 50 ]; do echo \"$0 $i\"; echo \"error $0 $i\" >&2; i=$((i+1)); done";
    let home = Home::new();
    let done = home
        .eyas(&["run", "--slots", "4", "--array", "1-60", "--", "sh", "-c", SCRIPT, "{}"])
        .exits(0);
    for (stream, before) in [(&done.stdout, ""), (&done.stderr, "error ")] {
        let lines: Vec<&str> = stream.lines().filter(|line| !line.starts_with("eyas: ")).collect();
        assert_eq!(lines.len(), 60 * 50);
        let mut tasks = std::collections::BTreeSet::new();
        for part in lines.chunks(50) {
            let task = part[0].strip_suffix(" 0").unwrap_or_else(|| panic!("mixed: {part:?}"));
            assert!(task.starts_with(before) && tasks.insert(task), "{task} comes twice");
            part.iter()
                .enumerate()
                .for_each(|(place, line)| assert_eq!(*line, format!("{task} {place}")));
        }
    }
}

#[test]
fn large_and_small_output_come_whole_and_stay() {
    // Output of 64 KiB and more is in a file of the dispatcher, and the client reads it there.
    const SCRIPT: &str =
        "if [ $(($0 % 2)) = 0 ]; then echo $0; else yes $0 | head -c $((100000 + $0)); fi";
    let cluster = Cluster::start(&[&["--slots", "4"]]);
    let output = |number: usize| match number % 2 {
        0 => format!("{number}\n"),
        _ => format!("{number}\n").repeat(100_000)[..100_000 + number].to_owned(),
    };
    let words = ["run", "--keep-order", "--array", "1-13", "--", "sh", "-c", SCRIPT, "{}"];
    let done = cluster.run(&words).exits(0);
    // The output of a task begins a line, also if the task before it has ended without a line feed.
    let joined =
        (1..=13).map(|number| output(number).trim_end().to_owned() + "\n").collect::<String>();
    assert!(done.stdout == joined, "{} bytes", done.stdout.len());
    for number in [1, 2, 13] {
        let log = cluster.run(&["task", "log", &format!("1.{}", number - 1)]).exits(0);
        assert!(log.stdout == output(number), "{} bytes of task {number}", log.stdout.len());
    }
}

#[test]
fn results_come_in_order_if_that_is_asked() {
    let home = Home::new();
    // The first task ends last: it waits for a file that the last task writes.
    let script = "if [ $0 = 1 ]; then until [ -e last ]; do sleep 0.01; done; fi; [ $0 != 12 ] || \
                  : > last; echo $0";
    let words = ["--slots", "2", "--nodes", "1", "--array", "1-12", "--", "sh", "-c", script, "{}"];
    let done = home.eyas(&[&["run", "--keep-order"], &words[..]].concat()).exits(0);
    let expected: Vec<_> = (1..=12).map(|number| number.to_string()).collect();
    assert_eq!(done.stdout.lines().collect::<Vec<_>>(), expected);
    std::fs::remove_file(home.work().join("last")).unwrap();
    let done = home.eyas(&[&["run"], &words[..]].concat()).exits(0);
    assert_ne!(
        done.stdout.lines().next(),
        Some("1"),
        "it was waited for, though nobody asked for that"
    );
}

#[test]
fn bytes_come_through_as_they_are() {
    let home = Home::new();
    home.write("bytes", [b'a', 0, 0xff, b'\r', b'\n', 0x80]);
    let mut command = home.command(&["run", "--each", "bytes", "--", "cat", "{}"]);
    assert_eq!(command.output().unwrap().stdout, [b'a', 0, 0xff, b'\r', b'\n', 0x80]);
}

#[test]
fn outputs_appear_once_and_whole_where_they_were_asked() {
    let home = Home::new();
    home.write("in/a.txt", "a");
    home.write("in/b.txt", "b");
    let script = "mkdir parts; cat $0 > sum; for i in 1 2 3; do cat $0 $0 > parts/$1.$i; done";
    let words = [
        "-o",
        "sum=deep/er/{/.}.sum",
        "-o",
        "parts/*=all/",
        "--",
        "sh",
        "-c",
        script,
        "{}",
        "{/.}",
    ];
    home.eyas(&[&["run", "--each", "in/*"], &words[..]].concat()).exits(0);
    assert_eq!(home.names("deep/er"), ["a.sum", "b.sum"]);
    assert_eq!((home.read("deep/er/a.sum"), home.read("deep/er/b.sum")), ("a".into(), "b".into()));
    assert_eq!(home.names("all/parts"), ["a.1", "a.2", "a.3", "b.1", "b.2", "b.3"]);
    assert_eq!(home.read("all/parts/b.2"), "bb");
    assert_eq!(home.names("."), ["all", "deep", "in"], "nothing else is left in the user's folder");
}

#[test]
fn an_output_without_destination_goes_to_the_users_folder() {
    let home = Home::new();
    home.eyas(&["run", "--array", "1-2", "-o", "out-{}", "--", "sh", "-c", "echo {} > out-{}"])
        .exits(0);
    assert_eq!(home.names("."), ["out-1", "out-2"]);
    let elsewhere = home.path("tmp-free").join("sub");
    let to = format!("x={}/x", elsewhere.display());
    home.eyas(&["run", "--array", "1", "-o", &to, "--", "touch", "x"]).exits(0);
    assert!(elsewhere.join("x").exists());
}

#[test]
fn a_missing_output_fails_the_task_and_a_failed_task_delivers_nothing() {
    let home = Home::new();
    let done = home
        .eyas(&[
            "run",
            "--array",
            "1-2",
            "-o",
            "x=x-{}",
            "--",
            "sh",
            "-c",
            "[ $0 = 1 ] && : > x",
            "{}",
        ])
        .exits(1);
    done.says(&["1 of 2 tasks succeeded"]);
    assert_eq!(home.names("."), ["x-1"]);
    home.eyas(&["run", "--array", "1", "-o", "x", "--", "true"])
        .exits(1)
        .says(&["did not write its output `x`"]);
    home.eyas(&["run", "--array", "1", "-o", "y", "--", "sh", "-c", ": > y; exit 3"])
        .exits(1)
        .says(&["exit code 3"]);
    assert_eq!(home.names("."), ["x-1"]);
}

#[test]
fn more_output_than_the_bound_is_cut_and_that_is_said() {
    let cluster = Cluster::start(&[&[]]);
    let words = [
        "run",
        "--capture",
        "1000",
        "--array",
        "1",
        "--",
        "sh",
        "-c",
        "yes | head -c 100000; echo end >&2",
    ];
    let done =
        cluster.run(&words).exits(0).says(&["end", "99000 bytes", "does not change the exit code"]);
    assert_eq!(done.stdout.len(), 1000);
    let log = cluster.run(&["task", "log", "1.0"]).exits(0).says(&["99000 bytes", "--capture"]);
    assert_eq!(log.stdout, done.stdout);
}

#[test]
fn large_output_is_printed_whole_and_beyond_the_bound_the_run_fails() {
    let cluster = Cluster::start(&[&[]]);
    // Task 1 prints 3 MB, and the others a line; the whole is in order.
    let script = "[ $0 = 1 ] && yes $0 | head -c 3000000 && seq 1 300000 >&2; echo end $0";
    let run = |options: &[&str]| {
        let words =
            [&["run", "--array", "0-3"], options, &["--", "sh", "-c", script, "{}"]].concat();
        cluster.run(&words)
    };
    let whole = "1\n".repeat(1_500_000);
    let done = run(&["--keep-order"]).exits(0);
    assert!(
        done.stdout == format!("end 0\n{whole}end 1\nend 2\nend 3\n"),
        "{} bytes",
        done.stdout.len()
    );
    assert!(done.stderr.contains("\n299999\n300000\n"), "{} bytes", done.stderr.len());
    // In the order of the ends, large output comes last.
    assert!(run(&[]).exits(0).stdout.ends_with(&format!("{whole}end 1\n")));
    let cut = run(&["--max-output", "2MB"]).exits(1).says(&[
        "of task 3.1",
        "1000006 bytes",
        "--max-output",
    ]);
    assert!(cut.stdout.contains("end 3\n") && !cut.stdout.contains("end 1\n"));
    cluster.run(&["job", "get", "1"]).exits(1).says(&["released"]);
}

#[test]
fn large_output_is_printed_whole_where_executors_keep_nothing_else() {
    let home = Home::new();
    let run = |bytes: &str| {
        home.eyas(&["run", "--policy", "fa", "--", "sh", "-c", "yes | head -c $0", bytes])
    };
    assert_eq!(run("1000").exits(0).stdout.len(), 1000);
    assert_eq!(run("3000000").exits(0).stdout, "y\n".repeat(1_500_000));
}

#[test]
fn a_report_is_written_where_it_was_asked() {
    let home = Home::new();
    let run =
        |report: &str| home.eyas(&["run", "--array", "1-5", "--report", report, "--", "true"]);
    run("reports/r.html").exits(0);
    let page = home.read("reports/r.html");
    let (head, tail) = (&page[..15].to_lowercase(), page.trim_end());
    assert!(
        head == "<!doctype html>" && tail.ends_with("</html>"),
        "{head} … {}",
        &tail[tail.len() - 20..]
    );
    assert!(!page.contains("src=\"http") && !page.contains("href=\"http"), "it needs a network");
    run("r.csv").exits(0);
    let csv = home.read("r.csv");
    let ended =
        csv.lines().next().unwrap().split(',').position(|name| name == "ended_tasks").unwrap();
    let count: u64 = csv
        .lines()
        .skip(1)
        .map(|row| row.split(',').nth(ended).unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(count, 5);
    run("r.json").exits(0);
    let json: serde_json::Value = serde_json::from_str(&home.read("r.json")).unwrap();
    assert_eq!(
        (&json["schema_version"], &json["report"]["job"]["tasks"]["succeeded"]),
        (&1.into(), &5.into())
    );
    // The mistake is found before a task runs.
    let refused = |words: &[&str]| {
        home.eyas(words)
            .exits(2)
            .says(&["`r.pdf` does not name the format of a report", ".html, .csv or .json"])
    };
    refused(&["run", "--array", "1", "--report", "r.pdf", "--", "touch", "ran"]);
    refused(&["report", "1", "-o", "r.pdf"]);
    refused(&["simulate", "run", "scenario.toml", "--report", "r.pdf"]);
    assert!(!home.work().join("ran").exists());
    run("none").exits(0);
    // Without `--report`, the report is written to eyas's home.
    let done = home.eyas(&["run", "--array", "1", "--", "true"]).exits(0);
    let place = done.stderr.lines().find_map(|line| line.strip_prefix("eyas: report: ")).unwrap();
    assert!(
        place.starts_with(home.path("home").to_str().unwrap())
            && std::path::Path::new(place).exists()
    );
}

#[test]
fn reports_in_the_home_are_bounded_in_number_and_age() {
    let home = Home::new();
    let folder = home.path("home").join("reports");
    std::fs::create_dir_all(&folder).unwrap();
    let day = Duration::from_secs(24 * 3600);
    let write = |name: &str, age: Duration| {
        let file = std::fs::File::create(folder.join(name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    };
    let run = || home.eyas(&["run", "--array", "1", "--", "true"]).exits(0);
    let has = |name: &str| folder.join(name).exists();
    write("31-days.html", 31 * day);
    write("29-days.html", 29 * day);
    run();
    assert!(!has("31-days.html") && has("29-days.html"));
    // With the two reports so far, these are 105, and the next run adds one.
    for hour in 1..=103 {
        write(&format!("{hour}-hours.html"), Duration::from_secs(hour * 3600));
    }
    run();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 100);
    assert!(has("98-hours.html"), "the newest stay");
    assert!(
        !["99-hours.html", "103-hours.html", "29-days.html"].into_iter().any(has),
        "the oldest are removed"
    );
}

#[test]
fn a_report_that_cannot_be_written_does_not_fail_the_job() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write("file", "");
    let words = [
        "run",
        "--array",
        "1-3",
        "-o",
        "x=out/{}",
        "--report",
        "file/r.html",
        "--",
        "sh",
        "-c",
        "echo {} | tee x",
    ];
    let complete = "Results are not affected: the output of tasks is on standard output, their \
                    files are `x` in out/{}.";
    let warned = [
        "3 of 3 tasks succeeded",
        "the job's report could not be written: cannot create the folder file",
        complete,
    ];
    let done = cluster
        .run(&words)
        .exits(0)
        .says(&warned)
        .says(&["`eyas report 1 --cluster test -o FILE` writes the report to another file"]);
    assert_eq!(
        (done.stdout.lines().count(), cluster.names("out")),
        (3, vec!["1".into(), "2".into(), "3".into()])
    );
    // The job's own cluster has ended.
    let done = cluster.eyas(&words).exits(0).says(&warned);
    assert!(!done.stderr.contains("eyas report"), "{}", done.stderr);
    // The same if a folder cannot be made; if a task failed, the exit code still says so.
    std::fs::write(cluster.path("home").join("reports"), "in the way").unwrap();
    cluster
        .run(&["run", "--array", "1", "--", "true"])
        .exits(0)
        .says(&["report could not be written"]);
    cluster
        .run(&["run", "--array", "1", "--", "false"])
        .exits(1)
        .says(&["report could not be written"]);
}

#[test]
fn a_reader_that_has_enough_does_no_harm() {
    let home = Home::new();
    let mut command = home.command(&["run", "--array", "1-200", "--", "echo"]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn results_of_jobs_that_ended_long_ago_can_be_read_and_forgotten() {
    let mut cluster = Cluster::start(&[&["--slots", "2"]]);
    let script = "head -c 200000 /dev/zero | tr '\\0' x; echo $0; [ $0 != 2 ] || [ -e good ]";
    cluster.run(&["run", "--array", "1-3", "--", "sh", "-c", script, "{}"]).exits(1);
    let about = |cluster: &Cluster| {
        let log = cluster.run(&["task", "log", "1.0"]).exits(0).stdout;
        assert!(log.len() == 200_002 && log.ends_with("x1\n"), "{} bytes", log.len());
        (cluster.job("1"), cluster.ask(&["task", "list", "1"], "tasks"))
    };
    let before = about(&cluster);
    // More ended jobs than the dispatcher keeps in memory.
    cluster.write("job.jsonl", r#"{"noop": true}"#);
    for _ in 0..25 {
        cluster.submit("job.jsonl");
    }
    cluster.run(&["job", "wait", "26"]).exits(0);
    assert_eq!(about(&cluster), before);
    cluster.restart_dispatcher();
    cluster.wait_for_executors(1);
    assert_eq!(about(&cluster), before);
    cluster.run(&["report", "1", "-o", "report.html"]).exits(0);
    cluster.run(&["job", "wait", "1"]).exits(1).says(&["2 of 3 tasks succeeded"]);
    cluster.write("good", "");
    cluster.run(&["job", "retry", "1"]).exits(0);
    cluster.run(&["job", "wait", "1"]).exits(0);
    // The forgotten job is gone; the others stay.
    cluster
        .write("job.jsonl", r#"{"command": ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"]}"#);
    cluster.submit("job.jsonl");
    cluster.run(&["job", "forget", "27"]).exits(1).says(&["job 27 is still running", "cancel"]);
    cluster.run(&["job", "forget", "99"]).exits(1).says(&["there is no job 99"]);
    cluster.run(&["job", "forget", "1", "2"]).exits(0).says(&["2 jobs"]);
    cluster.run(&["task", "log", "1.0"]).exits(1).says(&["there is no job 1"]);
    let folder = cluster.path("home/clusters/test");
    assert!(!folder.join("journal.output/1").exists(), "its output is gone");
    cluster.restart_dispatcher();
    cluster.wait_for_executors(1);
    assert_eq!(cluster.ask(&["job", "list"], "jobs").as_array().unwrap().len(), 25);
    cluster.write("go", "");
    cluster.run(&["job", "wait", "27", "26"]).exits(0);
}

#[test]
fn a_list_has_as_many_tasks_as_are_asked_for() {
    let cluster = Cluster::start(&[&["--slots", "4"]]);
    cluster.run(&["run", "--array", "1-12000", "--noop"]).exits(0);
    let count = |words: &[&str]| {
        cluster.ask(&[&["task", "list", "1"], words].concat(), "tasks").as_array().unwrap().len()
    };
    assert_eq!(
        (count(&["--limit", "1000000"]), count(&["--limit", "10001"]), count(&["--failed"])),
        (12_000, 10_001, 0)
    );
    assert_eq!(count(&["--from", "11999", "--limit", "10"]), 1);
}
