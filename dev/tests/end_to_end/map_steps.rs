//! Map steps of job files: iterations give what one process computes, steps run in order, and what
//! cannot run is refused before anything does.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

use rustix::process::Signal;

use crate::dfs::joined;
use crate::support::{Cluster, eyas, finish, signal, wait_until};

const NODE: &[&str] = &["--dfs", "--cache", "1GB"];

fn cluster() -> Cluster {
    let cluster = Cluster::start(&[NODE; 2]);
    joined(&cluster, 2);
    cluster
}

/// Path of a program beside `eyas`.
fn beside(name: &str) -> String {
    eyas().with_file_name(name).to_str().expect("a plain name").to_owned()
}

/// Writes a local file, and the same as a file of the cluster in small chunks.
fn put(cluster: &Cluster, file: &str, content: &str) {
    cluster.write(file, content);
    let name = format!("/{file}");
    cluster.run(&["dfs", "put", file, &name, "--chunk-size", "8KiB", "--format", "lines"]).exits(0);
}

/// Runs the steps of a job file, and returns what it said.
fn steps(cluster: &Cluster, file: &str) -> String {
    cluster.run(&["submit", "--wait", file]).exits(0).stderr
}

/// The lines of all files that match a pattern, sorted.
fn lines(cluster: &Cluster, pattern: &str) -> Vec<String> {
    let read = cluster.run(&["dfs", "cat", pattern]).exits(0).stdout;
    let mut lines: Vec<_> = read.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// All names of the file system, folders too.
fn names(cluster: &Cluster) -> Vec<String> {
    let files = cluster.ask(&["dfs", "ls", "-r"], "files");
    let files = files.as_array().unwrap().iter();
    files.map(|file| file["name"].as_str().unwrap().to_owned()).collect()
}

/// The sorted lines that a script writes in the working folder, without eyas.
fn alone(cluster: &Cluster, script: &str) -> Vec<String> {
    let output = Command::new("bash")
        .args(["-c", &format!("set -euo pipefail; {script}")])
        .current_dir(cluster.work())
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<_> =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Numbers that look random, each below `below`.
fn numbers(below: u64) -> impl FnMut() -> u64 {
    let mut state = 7_u64;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// Coordinates of points or centroids, the first column of each line.
fn points(lines: &str) -> Vec<[f64; 2]> {
    let point = |line: &str| {
        let (x, y) = line.split('\t').next()?.split_once(',')?;
        Some([x.parse().ok()?, y.parse().ok()?])
    };
    lines.lines().map(|line| point(line).expect("a point")).collect()
}

/// The centroids after some passes of Lloyd's algorithm, without any of eyas.
fn plain_means(points: &[[f64; 2]], mut centroids: Vec<[f64; 2]>, passes: u32) -> Vec<[f64; 2]> {
    for _ in 0..passes {
        let mut sums = vec![(0.0, [0.0; 2]); centroids.len()];
        for [x, y] in points {
            let square = |place: &usize| {
                (centroids[*place][0] - x).powi(2) + (centroids[*place][1] - y).powi(2)
            };
            let all = 0..centroids.len();
            let nearest = all.min_by(|a, b| square(a).total_cmp(&square(b))).unwrap();
            let (count, [sum_x, sum_y]) = &mut sums[nearest];
            (*count, *sum_x, *sum_y) = (*count + 1.0, *sum_x + x, *sum_y + y);
        }
        centroids = sums.iter().map(|(count, [x, y])| [x / count, y / count]).collect();
    }
    centroids
}

/// The ranks after some passes of PageRank, without any of eyas.
fn plain_ranks(links: &str, passes: u32) -> BTreeMap<String, f64> {
    let graph: BTreeMap<_, Vec<_>> = links
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(page, links)| (page, links.split_whitespace().collect()))
        .collect();
    let mut ranks: BTreeMap<String, f64> =
        graph.keys().map(|page| ((*page).to_owned(), 1.0)).collect();
    for _ in 0..passes {
        let linked = graph.values().flatten().chain(graph.keys());
        let mut new: BTreeMap<String, f64> =
            linked.map(|page| ((*page).to_owned(), 0.15)).collect();
        new.extend(ranks.keys().map(|page| (page.clone(), 0.15)));
        for (page, links) in &graph {
            for link in links {
                *new.get_mut(*link).unwrap() += 0.85 * ranks[*page] / links.len() as f64;
            }
        }
        ranks = new;
    }
    ranks
}

/// Results are rounded to 9 decimals in each pass.
fn are_near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn k_means_gives_the_centroids_that_one_process_finds() {
    let cluster = cluster();
    let mut number = numbers(1000);
    let mut content = String::new();
    for place in 0..3000 {
        let (x, y) = [(0, 0), (5, 1), (2, 6)][place % 3];
        let _ = writeln!(content, "{x}.{:03},{y}.{:03}", number(), number());
    }
    put(&cluster, "points", &content);
    cluster.write("begin.tsv", "0,0\n1,1\n2,2\n");
    let (eyas, text) = (beside("eyas"), beside("eyas-text"));
    cluster.write(
        "means.toml",
        format!(
            "[[map]]\nid = \"means\"\nfiles = \"/points\"\n\
             command = [\"{text}\", \"k-means\", \"map\", \"{{previous}}\"]\n\
             inputs = [\"{{previous}}\"]\nfirst = \"begin.tsv\"\n\
             combine = \"{text} k-means combine\"\nreduce = \"{text} k-means reduce\"\n\
             reducers = 2\nto = \"/means\"\nrepeat = 30\n\
             until = \"{eyas} dfs cat '{{to}}/part-*' | {text} k-means settled\"\n"
        ),
    );
    let said = steps(&cluster, "means.toml");
    let script = format!(
        "cp begin.tsv c; for n in $(seq 30); do \
         {text} k-means map c <points | sort | {text} k-means reduce >new; cp new c; \
         if {text} k-means settled <c; then break; fi; done; echo $n >passes; cat c"
    );
    assert_eq!(lines(&cluster, "/means/part-*"), alone(&cluster, &script));
    let passes: u32 = cluster.read("passes").trim().parse().unwrap();
    assert!((3..30).contains(&passes), "{passes} passes");
    let read = lines(&cluster, "/means/part-*").join("\n");
    let mut found = points(&read);
    let mut expected =
        plain_means(&points(&content), vec![[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], passes);
    [&mut found, &mut expected]
        .into_iter()
        .for_each(|all| all.sort_by(|a, b| a[0].total_cmp(&b[0])));
    let pairs = found.iter().flatten().zip(expected.iter().flatten());
    assert!(
        pairs.clone().count() == 6 && pairs.clone().all(|(a, b)| are_near(*a, *b)),
        "{found:?} {expected:?}"
    );
    let last = format!("map step `means`, pass {passes} of 30: ");
    assert!(said.contains(&last) && !said.contains(&format!("pass {}", passes + 1)), "{said}");
    // The outputs of the other passes are gone.
    assert_eq!(names(&cluster), ["/means", "/means/part-00000", "/means/part-00001", "/points"]);

    cluster.run(&["submit", "--wait", "means.toml"]).exits(1).says(&["files in /means already"]);
}

#[test]
fn page_rank_gives_the_ranks_that_one_process_finds() {
    let cluster = cluster();
    let mut number = numbers(400);
    let mut links = String::new();
    for page in 0..380 {
        let linked: Vec<_> = (0..number() % 9).map(|_| format!("page{}", number())).collect();
        let _ = writeln!(links, "page{page}\t{}", linked.join(" "));
    }
    put(&cluster, "links", &links);
    let text = beside("eyas-text");
    cluster.write(
        "ranks.toml",
        format!(
            "[[map]]\nid = \"ranks\"\nfiles = \"{{previous}}\"\nfirst = \"/links\"\n\
             command = [\"{text}\", \"page-rank\", \"map\"]\n\
             reduce = \"{text} page-rank reduce\"\nreducers = 3\n\
             to = \"/ranks/{{pass}}\"\nrepeat = 5\nkeep = true\n\n\
             [[task]]\nafter = [\"ranks\"]\neach = \"eyas:///ranks/5/*\"\n\
             command = [\"sh\", \"-c\", 'cut -f1 \"$1\" >pages', \"sh\", \"{{}}\"]\n\
             outputs = [{{ file = \"pages\", to = \"pages/{{/}}\" }}]\n\n\
             [[map]]\nafter = \"ranks\"\nfiles = \"/ranks/1/part-*\"\nto = \"/first\"\n\
             command = [\"cut\", \"-f1,3\"]\n"
        ),
    );
    steps(&cluster, "ranks.toml");
    let pass = format!("{text} page-rank map <r | sort | {text} page-rank reduce >new; mv new r;");
    let expected =
        alone(&cluster, &format!("cp links r; for n in 1 2 3 4 5; do {pass} done; cat r"));
    assert_eq!(lines(&cluster, "/ranks/5/part-*"), expected);
    let plain = plain_ranks(&links, 5);
    assert_eq!(expected.len(), plain.len());
    for line in &expected {
        let columns: Vec<_> = line.split('\t').collect();
        let rank = columns[2].parse().unwrap();
        assert!(are_near(rank, plain[columns[0]]), "{line}: {}", plain[columns[0]]);
    }
    // All passes are kept, and what is after the step has run.
    let first = alone(&cluster, &format!("cp links r; {pass} cut -f1,3 r"));
    assert_eq!(lines(&cluster, "/first/part-*"), first);
    let pages = alone(&cluster, "cat pages/part-*");
    let names: Vec<_> = expected.iter().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(pages, names);
}

#[test]
fn steps_that_cannot_run_are_refused_before_anything_does() {
    let cluster = cluster();
    put(&cluster, "some", "a\nb\n");
    let base = "[[task]]\ncommand = [\"touch\", \"ran\"]\n[[map]]\nfiles = \"/some\"\n\
                command = [\"cat\"]\n";
    for (lines, says) in [
        ("policy = \"static\"\nalpha = 0.5", "line 3: alpha applies only to policy lean or io-a"),
        ("min_block = \"1MiB\"", "line 3: min_block applies only to policy multiwave"),
        ("policy = \"leen\"", "steps.toml, line 3: "),
        ("reducers = 2", "line 3: "),
        ("reducer = 2", "line 6: `reducer` is not a key of a map step"),
        ("until = \"true\"", "line 3: `until` is for a step of several passes"),
        ("after = \"none\"", "line 3: `after` names `none`, but no earlier table has this id"),
    ] {
        cluster.write("steps.toml", format!("{base}{lines}\n"));
        let done = cluster.run(&["submit", "--wait", "steps.toml"]);
        assert!(done.code != 0 && done.stderr.contains(says), "{lines}: {}", done.stderr);
    }
    cluster.write("steps.toml", base);
    cluster.run(&["submit", "steps.toml"]).exits(1).says(&["eyas submit --wait FILE"]);
    cluster
        .run(&["submit", "--wait", "--reuse", "steps.toml"])
        .exits(1)
        .says(&["leave `reuse` out"]);
    cluster.write("steps.toml", format!("{base}to = \"/out/{{pass}}\"\nrepeat = 3\n"));
    let printed = cluster.run(&["submit", "--dry-run", "steps.toml"]).exits(0).stdout;
    assert!(printed.contains("step 1: the job of the tasks at line 1"), "{printed}");
    assert!(printed.contains("eyas map --to=/out/1 /some -- cat"), "{printed}");
    assert!(!cluster.names(".").contains(&"ran".to_owned()), "nothing has run");
}

#[test]
fn a_step_that_ends_early_says_what_stays() {
    let cluster = cluster();
    put(&cluster, "some", "a\nb\n");
    let step = "[[map]]\nfiles = \"/some\"\ncommand = [\"cat\"]\nto = \"/out\"\nrepeat = 3\n";
    cluster.write("steps.toml", step.replace("/some", "/other"));
    cluster
        .run(&["submit", "--wait", "steps.toml"])
        .exits(1)
        .says(&["map step, pass 1 of 3: there is no file /other"]);
    cluster.write("steps.toml", format!("{step}until = \"exit 5\"\n"));
    cluster.run(&["submit", "--wait", "steps.toml"]).exits(1).says(&[
        "the output of the last complete pass is in /out-pass-1",
        "must end with the exit code 0 if no pass follows",
    ]);
    cluster.run(&["submit", "--wait", "steps.toml"]).exits(1).says(&["files in /out-pass-1"]);
    cluster.run(&["dfs", "rm", "-r", "/out-pass-1"]).exits(0);

    cluster.write("steps.toml", format!("{step}until = \"touch waits; sleep 600\"\n"));
    let running = cluster.spawn_on(&["submit", "--wait", "steps.toml"]);
    wait_until("the first pass is complete", || cluster.names(".").contains(&"waits".to_owned()));
    signal(running.id(), Signal::INT);
    finish(running).exits(130).says(&["the output of the last complete pass is in /out-pass-1"]);
}

/// Size of what the executors keep locked in memory.
fn locked_kib(cluster: &mut Cluster) -> u64 {
    let of = |process: u32| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmLck:")).expect("a line of VmLck");
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    (1..=2).map(|number| of(cluster.executor(number).process())).sum()
}

#[test]
fn chunks_stay_in_memory_until_the_step_ends() {
    let node = &["--dfs", "--cache", "1GB", "--dfs-memory", "1MiB"][..];
    let mut cluster = Cluster::start(&[node; 2]);
    joined(&cluster, 2);
    // Both nodes together may keep half of it.
    put(&cluster, "some", &"a line\n".repeat(7000));
    let step = "[[map]]\nfiles = \"/some\"\ncommand = [\"wc\", \"-l\"]\nto = \"/out\"\n\
                repeat = 2\nmemory = \"12KiB\"\n";
    let until = "touch waits; while test -e waits; do sleep 0.1; done; exit 1";
    cluster.write("steps.toml", format!("{step}until = \"{until}\"\n"));
    let running = cluster.spawn_on(&["submit", "--wait", "steps.toml"]);
    wait_until("the first pass is complete", || cluster.names(".").contains(&"waits".to_owned()));
    let locked = locked_kib(&mut cluster);
    assert!((8..=24).contains(&locked), "{locked} KiB are locked");
    let printed = cluster.run(&["submit", "--dry-run", "steps.toml"]).exits(0).stdout;
    assert!(printed.contains("# memory: 12.3 kB on each node"), "{printed}");
    std::fs::remove_file(cluster.work().join("waits")).unwrap();
    wait_until("the second pass is complete", || cluster.names(".").contains(&"waits".to_owned()));
    std::fs::remove_file(cluster.work().join("waits")).unwrap();
    let said = finish(running).exits(0).stderr;
    assert!(said.contains("map step, pass 2 of 2: ") && said.contains(" in memory, "), "{said}");
    assert!(!said.contains("not all chunks stay"), "{said}");
    wait_until("the memory is released", || locked_kib(&mut cluster) == 0);
    assert_eq!(lines(&cluster, "/out/part-*").iter().map(|line| count(line)).sum::<u64>(), 7000);
}

fn count(line: &str) -> u64 {
    line.trim().parse().expect("a number")
}

#[test]
fn a_step_says_why_chunks_do_not_stay_in_memory_and_an_interrupt_releases_it() {
    let node = &["--dfs", "--cache", "1GB", "--dfs-memory", "8KiB"][..];
    let mut cluster = Cluster::start(&[node; 2]);
    joined(&cluster, 2);
    put(&cluster, "some", &"a line\n".repeat(7000));
    let step = "[[map]]\nfiles = \"/some\"\ncommand = [\"wc\", \"-l\"]\nto = \"/out\"\n\
                repeat = 9\nmemory = \"1MiB\"\nuntil = \"touch waits; sleep 600\"\n";
    cluster.write("steps.toml", step);
    let running = cluster.spawn_on(&["submit", "--wait", "steps.toml"]);
    wait_until("the first pass is complete", || cluster.names(".").contains(&"waits".to_owned()));
    assert!((1..=16).contains(&locked_kib(&mut cluster)));
    signal(running.id(), Signal::INT);
    finish(running).exits(130).says(&["not all chunks stay in memory: ", "a larger --dfs-memory"]);
    // A thread unlocks it. A node would release it by itself only after a minute.
    let began = std::time::Instant::now();
    wait_until("the memory is released", || locked_kib(&mut cluster) == 0);
    assert!(began.elapsed().as_secs() < 30, "it was not released at once");
}
