//! Match expressions: what tasks require of executors and executors of tasks, and the messages
//! about them.

use serde_json::json;

use crate::support::{Cluster, Home, wait_for};

/// Executors of a job's tasks, each once.
fn executors_of(cluster: &Cluster, job: &str) -> Vec<String> {
    let tasks = cluster.ask(&["task", "list", job], "tasks");
    let tasks = tasks.as_array().unwrap().iter();
    let mut executors: Vec<_> =
        tasks.map(|task| task["executor"].as_str().unwrap_or("nobody").to_owned()).collect();
    executors.sort();
    executors.dedup();
    executors
}

fn explain(cluster: &Cluster, task: &str) -> String {
    cluster.run(&["explain", task]).exits(0).stdout
}

#[test]
fn labels_and_what_is_accepted_are_shown() {
    let words = ["--label", "site=a", "--label", "gpu-kind=a100", "--accept", "task.cpus <= 2"];
    let cluster = Cluster::start(&[&words, &[]]);
    // In the order in which they joined.
    let executor = |name: &str| {
        let mut executors = cluster.ask(&["executor", "list"], "executors");
        let executor =
            executors.as_array_mut().unwrap().iter_mut().find(|executor| executor["name"] == name);
        executor.expect("it has joined").take()
    };
    let (first, second) = (executor("n1"), executor("n2"));
    assert_eq!(first["labels"], json!({"site": "a", "gpu-kind": "a100"}));
    assert_eq!((&first["accept"], &second["accept"]), (&json!("task.cpus <= 2"), &json!(null)));
    assert_eq!(second["labels"], json!({}));
    assert!(first["host"].as_str().is_some_and(|host| !host.is_empty()));
    let listed = cluster.run(&["executor", "list"]).exits(0).stdout;
    let row = listed.lines().find(|row| row.contains("n1")).expect("it is listed");
    assert!(row.ends_with("gpu-kind=a100 site=a"), "{listed}");
    wait_for("it says what its disk has", || executor("n2")["free_disk_bytes"].as_u64());
}

#[test]
fn tasks_run_only_where_their_requirements_hold() {
    let cluster = Cluster::start(&[
        &["--label", "site=a"],
        &["--label", "site=b"],
        &[],
        &["--node-memory", "7GB"],
    ]);
    for (job, (requirements, executors)) in [
        ("node.labels.site == 'b'", &["n2"][..]),
        ("has(node.labels.site) && node.labels.site in ['a', 'c']", &["n1"]),
        ("node.memory == 7000000000 && task.job == 'sh'", &["n4"]),
        ("node.name == 'n3' && node.load <= 1.0", &["n3"]),
    ]
    .iter()
    .enumerate()
    {
        cluster
            .run(&["run", "--array", "1-6", "--requirements", requirements, "--", "sh", "-c", ":"])
            .exits(0);
        assert_eq!(executors_of(&cluster, &(job + 1).to_string()), *executors, "{requirements}");
    }
}

#[test]
fn a_job_file_has_requirements_for_all_and_for_each() {
    let cluster = Cluster::start(&[&["--label", "site=a"], &["--label", "site=b"]]);
    cluster.write(
        "job.toml",
        "requirements = \"has(node.labels.site) || false\"\nrank = \"node.cpus\"\n\
         [[task]]\nnoop = true\nrequirements = \"node.labels.site == 'b'\"\n\
         [[task]]\nnoop = true\nrequirements = \"node.labels.site == 'a'\"\n",
    );
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    assert_eq!(
        (&cluster.task("1.0")["executor"], &cluster.task("1.1")["executor"]),
        (&json!("n2"), &json!("n1"))
    );
}

#[test]
fn a_requirement_of_all_tasks_that_never_holds_is_named_and_warned_of() {
    let cluster = Cluster::start(&[&[], &[]]);
    cluster.write(
        "job.toml",
        "requirements = \"!has(node.labels.retired) // old ones\"\n\
         [[task]]\nnoop = true\n\
         requirements = \"(node.cpus >= 1 && node.cpus >= 64) && task.attempt < 3\"\n",
    );
    let job = cluster.submit("job.toml");
    let why = explain(&cluster, &format!("{job}.0"));
    assert!(why.contains("of 2, 2 do not meet `node.cpus >= 64`."), "{why}");
    let warnings = cluster.job(&job)["warnings"].to_string();
    assert!(warnings.contains("no executor matches the requirements of its tasks"), "{warnings}");
}

#[test]
fn the_best_of_those_that_are_free_is_taken() {
    let cluster = Cluster::start(&[&["--slots", "1"], &["--slots", "3"], &["--slots", "2"]]);
    for (job, (rank, executor)) in
        [("node.cpus", "n2"), ("-node.cpus", "n1"), ("node.name == 'n3' ? 1 : 0", "n3")]
            .iter()
            .enumerate()
    {
        cluster.run(&["run", "--array", "1", "--rank", rank, "--", "true"]).exits(0);
        assert_eq!(executors_of(&cluster, &(job + 1).to_string()), [*executor], "{rank}");
    }
}

#[test]
fn requirements_can_name_the_data_of_a_node() {
    let cluster = Cluster::start_with(&["--policy", "mcu"], &[&["--label", "warm=yes"], &[]]);
    (1..=3).for_each(|number| _ = cluster.write(&format!("in/{number}"), vec![b'x'; 1000]));
    let run = |requirements: &str| {
        cluster
            .run(&["run", "--each", "in/*", "--requirements", requirements, "--", "cat", "{}"])
            .exits(0);
    };
    run("'warm' in node.labels");
    run("local_bytes == task.input_bytes && transfer_seconds == 0.0");
    assert_eq!(
        (executors_of(&cluster, "1"), executors_of(&cluster, "2")),
        (vec!["n1".into()], vec!["n1".into()])
    );
    assert_eq!(cluster.job("2")["reads"]["local"]["count"], 3);
}

#[test]
fn an_executor_takes_only_the_tasks_that_it_accepts() {
    let mut cluster =
        Cluster::start(&[&["--accept", "task.job.startsWith('night') && task.cpus <= 1"]]);
    cluster.write("day.toml", "[[task]]\nnoop = true\n");
    cluster.write("night.toml", "[[task]]\nnoop = true\n");
    let day = cluster.submit("day.toml");
    cluster.run(&["submit", "--wait", "night.toml"]).exits(0);
    let why = explain(&cluster, &format!("{day}.0"));
    assert!(
        why.contains("of 1, 1 accept only tasks with `task.job.startsWith('night')`."),
        "{why}"
    );
    cluster.add_executor(&[]);
    cluster.run(&["job", "wait", &day]).exits(0);
    assert_eq!(executors_of(&cluster, &day), ["n2"]);
}

#[test]
fn a_task_that_no_node_matches_waits_and_explains_why() {
    let mut cluster = Cluster::start(&[&["--label", "site=a"], &[]]);
    cluster.write(
        "job.toml",
        "[[task]]\nnoop = true\n\
         requirements = \"node.labels.site == 'b' && node.cpus >= 1 && task.attempt < 1\"\n",
    );
    let job = cluster.submit("job.toml");
    // The task does not delay other tasks.
    cluster.run(&["run", "--array", "1-20", "--", "true"]).exits(0);
    let why = explain(&cluster, "1.0");
    for part in [
        "of 2,",
        "1 do not meet `node.labels.site == 'b'`",
        "on 1 `node.labels.site == 'b'` cannot be told",
        "site",
    ] {
        assert!(why.contains(part), "{why}");
    }
    assert!(!why.contains("`node.cpus >= 1`"), "what holds is not why it waits: {why}");
    assert!(
        cluster.job(&job)["warnings"].to_string().contains("no executor matches the requirements"),
        "no warning"
    );
    cluster.restart_dispatcher();
    cluster.add_executor(&["--label", "site=b"]);
    cluster.run(&["job", "wait", &job]).exits(0);
    assert_eq!(executors_of(&cluster, &job), ["n3"]);
}

#[test]
fn mistakes_in_expressions_are_told_where_they_are_made() {
    let cluster = Cluster::start_in(Home::new(), &[]);
    for (option, expression, says) in [
        (
            "--requirements",
            "node.cpu > 4",
            &["requirements `node.cpu > 4`, column 5", "no attribute `node.cpu`", "node.cpus"][..],
        ),
        ("--requirements", "node.cpus > ", &["column 13", "yntax"]),
        (
            "--requirements",
            "node.name > 4",
            &["column 11: `>` needs two numbers or two texts, not a text and a whole number"],
        ),
        ("--requirements", "local_bytes", &["it has to be true or false, and is a whole number"]),
        (
            "--rank",
            "node.labels.site",
            &["rank `node.labels.site`", "it has to be a number, and is a text"],
        ),
    ] {
        cluster.run(&["run", "--array", "1", option, expression, "--", "true"]).exits(1).says(says);
    }
    for (file, says) in [
        (
            "[[task]]\nnoop = true\n\n[[task]]\nnoop = true\nrank = \"x\"\n",
            "job.toml, line 4: rank `x`, column 1",
        ),
        (
            "name = \"a\"\nrequirements = \"1\"\n[[task]]\nnoop = true\n",
            "job.toml, line 2: requirements `1`, column 1",
        ),
    ] {
        cluster.write("job.toml", file);
        cluster.run(&["submit", "job.toml"]).exits(1).says(&[says]);
    }
    assert_eq!(cluster.ask(&["job", "list"], "jobs"), json!([]));
    let start = |words: &[&str]| cluster.run(&[&["start", "executor"], words].concat());
    start(&["--accept", "task.cpu < 1"])
        .exits(2)
        .says(&["accept `task.cpu < 1`, column 5", "task.cpus"]);
    start(&["--label", "site"]).exits(2).says(&["write NAME=VALUE"]);
    start(&["--label", "a=1", "--label", "a=2"]).exits(2).says(&["label `a` is given twice"]);
}

#[test]
fn a_job_in_its_own_cluster_that_no_node_matches_says_so() {
    let home = Home::new();
    let run = |requirements| {
        home.eyas(&[
            "run",
            "--label",
            "site=a",
            "--requirements",
            requirements,
            "--array",
            "1-2",
            "--",
            "true",
        ])
    };
    run("node.labels.site == 'b'").exits(1).says(&["no executor matches the requirements"]);
    run("node.labels.site == 'a'").exits(0);
}

#[test]
fn the_estimate_of_location_counts_beside_a_rank() {
    let slow = ["--emulate", "storage=2MB/s,link=2MB/s"];
    let node = |label: &'static str| [&["--label", label][..], &slow].concat();
    let cluster = Cluster::start(&[&node("on=1"), &node("on=2")]);
    for (name, bytes) in [("first", 500_000), ("one", 4_000_000), ("other", 4_000_000)] {
        cluster.write(name, vec![b'x'; bytes]);
    }
    let read_on = |node: u32, name: &str| {
        let on = format!("node.labels.on == '{node}'");
        let words = ["run", "--report", "none", "--requirements", &on, "-i", name, "--", "true"];
        cluster.run(&words).exits(0);
    };
    // Both nodes have measured what a fetch takes, and the first has the large files.
    read_on(1, "first");
    read_on(2, "first");
    read_on(1, "one");
    read_on(1, "other");
    // The other node has a rank that is higher by 1, and would fetch a file for about 2 s.
    let job = |file: &str, weight: &str| {
        format!(
            "[[task]]\nrank = \"node.labels.on == '2' ? 1 : 0\"\n{weight}\ninputs = [\"{file}\"]\n\
             command = [\"true\"]\n"
        )
    };
    for (file, weight, on) in [("one", "", "n1"), ("other", "location_weight = 0", "n2")] {
        cluster.write("job.toml", job(file, weight));
        cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
        let jobs = cluster.ask(&["job", "list"], "jobs");
        let job = jobs.as_array().unwrap().last().unwrap()["job"].to_string();
        assert_eq!(cluster.task(&format!("{job}.0"))["executor"], on, "{file}");
    }
}
