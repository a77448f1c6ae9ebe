//! Simulated clusters: `eyas simulate`, `eyas simulate model` of a scenario, and recorded jobs.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Cluster, Home, finish, signal, wait_until};

/// An example of `docs/guides/simulation.md`.
fn example(name: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/simulation.md");
    let page = fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
    let (_, rest) = page.split_once(&format!("```\n# {name}\n")).expect("the page has the example");
    rest.split_once("\n```").expect("it ends").0.to_owned()
}

const SMALL: &str = "[cluster]\nnodes = 4\ncache = \"100 MB\"\n\
    [workload.uniform]\nobjects = 50\nsize = \"10 MB\"\ntasks = 200\ncompute = \"10 ms\"\n";

#[test]
fn the_example_of_the_page_runs() {
    let home = Home::new();
    home.write("survey.toml", example("survey.toml"));
    let files = ["--report", "survey.html", "--report", "course.csv", "--csv", "figures.csv"];
    let ran = home.eyas(&[&["simulate", "run", "survey.toml"], &files[..]].concat()).exits(0);
    assert!(
        ran.stdout.contains("simulated job") && ran.stdout.contains("5,000 succeeded"),
        "{}",
        ran.stdout
    );
    let page = home.read("survey.html");
    assert!(
        page.contains("<h1>survey</h1>")
            && page.contains("Simulated job")
            && !page.contains("1970")
    );
    let course = home.read("course.csv");
    let ended: u64 = course
        .lines()
        .skip(1)
        .map(|row| row.split(',').nth(4).unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(ended, 5_000, "the course has every task");
    assert_eq!(home.read("figures.csv").lines().count(), 2);
    let again = || home.eyas(&["--json", "simulate", "run", "survey.toml"]).exits(0).json("run");
    let run = again();
    assert_eq!((&run["ended_tasks"], &run["nodes"]), (&5_000.into(), &16.into()));
    assert!(run["time_s"].as_f64() >= run["bound_s"].as_f64(), "{run}");
    assert_eq!(run, again(), "the same scenario gives the same figures");
    let model = home.eyas(&["--json", "simulate", "model", "survey.toml"]).exits(0).json("model");
    assert!(model["time_s"].as_f64().unwrap() >= 20.0, "tasks come for 20 s: {model}");
    let few = home
        .eyas(&["--json", "simulate", "model", "survey.toml", "--nodes", "1"])
        .exits(0)
        .json("model");
    assert!(few["time_s"].as_f64() > model["time_s"].as_f64(), "{few}");
}

#[test]
fn a_workflow_on_nodes_that_break_ends() {
    let home = Home::new();
    home.write("workflow.toml", example("workflow.toml"));
    let run = home.eyas(&["--json", "simulate", "run", "workflow.toml"]).exits(0).json("run");
    assert_eq!((&run["ended_tasks"], &run["failed_tasks"]), (&1_000.into(), &0.into()), "{run}");
    assert!(run["retried"].as_u64() > Some(0), "{run}");
}

#[test]
fn contents_of_compressed_objects_are_made_once_a_node_or_by_each_task() {
    let home = Home::new();
    let stacking = example("stacking.toml");
    home.write("stacking.toml", &stacking);
    home.write("each.toml", format!("{stacking}\nkeep_content = false\n"));
    let run = |file: &str| -> Vec<f64> {
        let row = home.eyas(&["--json", "simulate", "run", file]).exits(0).json("run");
        ["ended_tasks", "contents_made", "time_s"].map(|key| row[key].as_f64().unwrap()).to_vec()
    };
    let (once, each) = (run("stacking.toml"), run("each.toml"));
    assert_eq!((once[0], each[0], each[1]), (23_695.0, 23_695.0, 0.0));
    // 790 images, of which some are decompressed on several nodes.
    assert!((790.0..3_000.0).contains(&once[1]), "{once:?}");
    assert!(once[2] < 0.5 * each[2], "{once:?} and {each:?}");
    home.eyas(&["simulate", "model", "stacking.toml"]).exits(1).says(&[
        "no compressed objects",
        "content_size",
        "eyas simulate run",
    ]);
}

#[test]
fn the_model_answers_with_what_can_be() {
    let home = Home::new();
    let words = "--nodes 10 --storage 100GB/s --tasks 1000 --compute 1ms --objects 1000 \
                 --object-size 10MB --misses 1";
    let model = |more: &str| {
        let words: Vec<&str> = ["--json", "simulate", "model"]
            .into_iter()
            .chain(words.split(' '))
            .chain(more.split(' '))
            .collect();
        home.eyas(&words)
    };
    let clients = model("--storage-client 1MB/s").exits(0).json("model");
    assert_eq!(clients["limited_by"], "storage_clients", "{clients}");
    assert!(
        (999.0..1_001.0).contains(&clients["time_s"].as_f64().unwrap()),
        "10 GB through 10 MB/s: {clients}"
    );
    assert!(clients["efficiency"].as_f64().unwrap() <= 1.0, "{clients}");
    model("--arrivals 1e-308")
        .exits(1)
        .says(&["the arrival of all tasks would take more than a hundred years"]);
    model("--storage-latency 100000d").exits(1).says(&["would take more than a hundred years"]);
    // The store of one node holds a part of the files.
    let words = "--nodes 10 --cache 1GB --storage 100MB/s --tasks 100000 --compute 1ms \
                 --objects 1000 --object-size 10MB";
    let words: Vec<&str> = ["simulate", "model"].into_iter().chain(words.split(' ')).collect();
    let stdout = home.eyas(&words).exits(0).stdout;
    assert!(stdout.contains("More than 100% because of the stores"), "{stdout}");
    assert!(stdout.contains("This estimate may be off by more than 15%"), "{stdout}");
}

#[test]
fn nodes_are_asked_for_and_fail_as_a_scenario_says() {
    let home = Home::new();
    let failing = "[failures]\nnode_lost_after = \"20 s\"\nnode_back_after = \"10 s\"\n\
                   disconnected_after = \"10 s\"\n";
    let long = SMALL.replace("compute = \"10 ms\"", "compute = \"1 s\"");
    home.write("batch.toml", format!("{long}[provisioning]\npolicy = \"additive\"\n{failing}"));
    let run = home.eyas(&["--json", "simulate", "run", "batch.toml"]).exits(0).json("run");
    assert_eq!((&run["ended_tasks"], &run["provisioning"]), (&200.into(), &"additive".into()));
    let number = |name: &str| run[name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"));
    assert!(number("lost_nodes") > 0.0 && number("broken_connections") > 0.0, "{run}");
    assert!(
        number("time_s") > 30.0 + 25.0,
        "nodes come after 30 s, and 200 s of work are for eight slots: {run}"
    );
}

#[test]
fn a_sweep_runs_all_combinations_in_order() {
    let home = Home::new();
    home.write("small.toml", SMALL);
    let swept = [
        "simulate",
        "sweep",
        "small.toml",
        "--policy",
        "gcc,cost",
        "--cache",
        "50MB,1GB",
        "--nodes",
        "2,4,8",
    ];
    let files = ["--csv", "sweep.csv", "--plots", "sweep.html"];
    let rows = home.eyas(&[&["--json"], &swept[..], &files[..]].concat()).exits(0).json("sweep");
    let of = |row: &Value| {
        format!("{} {} {}", row["placement"].as_str().unwrap(), row["nodes"], row["cache_bytes"])
    };
    let combinations: Vec<String> = rows.as_array().unwrap().iter().map(of).collect();
    let mut expected = Vec::new();
    for placement in ["gcc", "cost"] {
        for nodes in [2, 4, 8] {
            expected.extend(
                [50_000_000, 1_000_000_000].map(|cache| format!("{placement} {nodes} {cache}")),
            );
        }
    }
    assert_eq!(combinations, expected);
    assert_eq!(home.read("sweep.csv").lines().count(), 13);
    let page = home.read("sweep.html");
    assert!(page.contains("\"gcc, 2 nodes\"") && page.contains("Store of each node (GB)"));
    home.eyas(&[&swept[..], &["--cache", "9MB"]].concat())
        .exits(1)
        .says(&["no room for the inputs of a task"]);
    let parts = |dispatchers| {
        ["simulate", "sweep", "small.toml", "--dispatchers", dispatchers, "--plots", "parts.html"]
    };
    let rows = home.eyas(&[&["--json"], &parts("1,4")[..]].concat()).exits(0).json("sweep");
    assert_eq!([&rows[0]["dispatchers"], &rows[1]["dispatchers"]], [1, 4]);
    assert!(
        rows[0]["peer_bytes"].as_u64() > rows[1]["peer_bytes"].as_u64(),
        "a part of one node has no peers: {rows}"
    );
    assert!(home.read("parts.html").contains("\"cost, 4 dispatchers\""));
    home.eyas(&parts("5")).exits(1).says(&["5 dispatchers for 4 nodes"]);
    home.write(
        "pushed.toml",
        SMALL.replace("100 MB", "1 GB") + "[policies]\ndistribution = \"chain\"\n",
    );
    let pushed = |policies| ["simulate", "sweep", "pushed.toml", "--policy", policies];
    home.eyas(&pushed("gcc,cost")).exits(0);
    home.eyas(&pushed("gcc,fa"))
        .exits(1)
        .says(&["fa on 4 nodes: `distribution` pushes into stores"]);
}

#[test]
fn the_central_index_is_measured_beside_a_distributed_one() {
    let home = Home::new();
    let index = home
        .eyas(&["--json", "simulate", "index", "--entries", "5000", "--csv", "index.csv"])
        .exits(0)
        .json("index");
    let per_s = |value: &Value| value.as_f64().unwrap();
    assert!(
        per_s(&index["central_lookups_per_s"]) > 1e4
            && per_s(&index["central_inserts_per_s"]) > 1e4,
        "{index}"
    );
    let rows = index["distributed"].as_array().unwrap();
    assert_eq!((&rows[0]["nodes"], &rows[0]["lookups_per_s"]), (&1.into(), &2000.0.into()));
    let nodes = index["crossover_nodes"]
        .as_u64()
        .expect("a million nodes answer 67 million times a second");
    for row in rows {
        let wins = row["lookups_per_s"].as_f64() >= index["central_lookups_per_s"].as_f64();
        assert_eq!(wins, row["nodes"].as_u64() >= Some(nodes), "{row}");
    }
    assert_eq!(home.read("index.csv").lines().count(), rows.len() + 1);
    let table = home.eyas(&["simulate", "index", "--entries", "10"]).exits(0).stdout;
    let words = ["as fast as eyas's from", "as the paper's central index from 49"];
    assert!(words.iter().all(|words| table.contains(words)), "{table}");
}

#[test]
fn an_interrupted_sweep_prints_what_is_done() {
    let home = Home::new();
    home.write("long.toml", SMALL.replace("tasks = 200", "tasks = 2_000_000"));
    let sweep = home.spawn(&[
        "simulate",
        "sweep",
        "long.toml",
        "--policy",
        "cost,gcc,mcu",
        "--csv",
        "sweep.csv",
    ]);
    wait_until("it listens to interrupts", || catches_interrupts(sweep.id()));
    signal(sweep.id(), Signal::INT);
    finish(sweep).exits(130).says(&["interrupted; the table has", "of 3 combinations"]);
    assert!(home.read("sweep.csv").lines().count() <= 3);
}

#[test]
fn an_interrupted_experiment_of_the_paper_is_broken_off() {
    let home = Home::new();
    let paper = home.spawn(&["simulate", "paper", "--only", "mi-fa", "--csv", "paper.csv"]);
    wait_until("it listens to interrupts", || catches_interrupts(paper.id()));
    signal(paper.id(), Signal::INT);
    finish(paper).exits(130).says(&["interrupted; the table has 0 of 1 experiments"]);
    assert_eq!(home.read("paper.csv"), "", "what was broken off is no figure");
}

fn catches_interrupts(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 << (Signal::INT.as_raw() - 1) != 0)
}

#[test]
fn errors_of_a_scenario_are_shown_with_the_line() {
    let home = Home::new();
    for (from, to, says) in [
        ("nodes = 4", "nodes = 0", "bad.toml, line 2: this number is too small"),
        ("\"100 MB\"", "100", "bad.toml, line 3: `100` has no unit"),
        ("\"100 MB\"", "\"5 MB\"", "bad.toml, line 3: a store of 5.0 MB has no room"),
        ("[workload.uniform]", "[workload.uniform", "bad.toml, line 4"),
        (
            "tasks = 200",
            "tasks = 200\nlimit = \"1 s\"",
            "bad.toml, line 8: `limit` is not a key here",
        ),
        ("[cluster]", "limit = \"1 ms\"\n[cluster]", "takes at least"),
        (
            "[cluster]",
            "[failures]\nfailed_requests = 0.5\n[cluster]",
            "bad.toml, line 1: `failed_requests`",
        ),
    ] {
        assert!(SMALL.contains(from));
        home.write("bad.toml", SMALL.replacen(from, to, 1));
        for command in ["run", "sweep", "model"] {
            home.eyas(&["simulate", command, "bad.toml"]).exits(1).says(&[says]);
        }
    }
    // `sim` is the former name of the command.
    for name in ["simulate", "sim"] {
        home.eyas(&[name, "run", "nowhere.toml"]).exits(1).says(&["nowhere.toml cannot be read: "]);
    }
    // Reading the same files repeatedly from slow storage takes longer than reading each of them
    // once.
    let slow = SMALL.replace("[cluster]", "limit = \"20 s\"\n[cluster]\nstorage = \"40 MB/s\"")
        + "[policies]\nplacement = \"fa\"\n";
    home.write("slow.toml", slow);
    home.eyas(&["simulate", "run", "slow.toml"])
        .exits(1)
        .says(&["of 200 tasks succeeded within the limit of 20.00 s"]);
}

#[test]
fn a_real_job_is_recorded_and_run_again() {
    let cluster = Cluster::start(&[&["--slots", "2"]]);
    for file in 0..5 {
        cluster.write(&format!("in/{file}"), "x".repeat(1000 * (file + 1)));
    }
    cluster.write("common", "all read this");
    let run = [
        "run",
        "--report",
        "none",
        "--each",
        "in/*",
        "--input",
        "common",
        "--",
        "sh",
        "-c",
        "cat {} > /dev/null; [ {/} != 3 ]",
    ];
    cluster.run(&run).exits(1);
    cluster
        .run(&["report", "1", "--trace", "job.jsonl"])
        .exits(0)
        .says(&["the trace is in job.jsonl", "not in the trace: 1 task that"]);
    let trace = cluster.read("job.jsonl");
    assert_eq!(trace.lines().count(), 1 + 4);
    for line in trace.lines().skip(1) {
        let task: Value = serde_json::from_str(line).unwrap();
        let at = |name: &str| task[name].as_u64().unwrap();
        assert!(
            at("at_us") <= at("started_us") && at("started_us") + at("ran_us") <= at("ended_us"),
            "{line}"
        );
        assert_eq!(task["inputs"].as_array().unwrap().len(), 2, "{line}");
    }
    cluster.write("again.toml", "[cluster]\nnodes = 1\n[workload.trace]\nfile = \"job.jsonl\"\n");
    let again = cluster.ask(&["simulate", "run", "again.toml"], "run");
    assert_eq!(
        (&again["ended_tasks"], &again["storage_bytes"]),
        (&4.into(), &(1000 + 2000 + 3000 + 5000 + 13).into())
    );
    cluster.write("job.jsonl", trace.replacen("\"eyas_trace\":1", "\"eyas_trace\":9", 1));
    cluster
        .run(&["simulate", "run", "again.toml"])
        .exits(1)
        .says(&["again.toml, line 4", "the trace has version 9"]);
}
