//! Outputs that are kept in the cluster: read by other tasks, held, made again when they are lost.

use crate::support::{Cluster, wait_for, wait_until};

/// Three levels: four numbers, each squared, all added up. The numbers and squares are kept in the cluster.
const LEVELS: &str = r#"
    [[task]]
    id = "number"
    array = "1-4"
    command = ["sh", "-c", "echo $0 > number; echo $0 >> FOLDER/made-$0", "{}"]
    outputs = [{ file = "number", keep = true }]
    [[task]]
    id = "square-1"
    inputs = [{ task = "number", index = 0, name = "n" }, { task = "number", index = 1, name = "m" }]
    command = ["sh", "-c", "echo $(($(cat n) * $(cat n) + $(cat m) * $(cat m))) > square"]
    outputs = [{ file = "square", keep = true }]
    [[task]]
    id = "square-2"
    inputs = [{ task = "number", index = 2, name = "n" }, { task = "number", index = 3, name = "m" }]
    command = ["sh", "-c", "echo $(($(cat n) * $(cat n) + $(cat m) * $(cat m))) > square"]
    outputs = [{ file = "square", keep = true }]
    [[task]]
    inputs = [{ task = "square-1", name = "a" }, { task = "square-2", name = "b" }]
    command = ["sh", "-c", "until [ -e FOLDER/go ]; do sleep 0.02; done; echo $(($(cat a) + $(cat b))) > sum"]
    outputs = [{ file = "sum", to = "sum" }]
"#;

fn write_levels(cluster: &Cluster) {
    cluster.write("levels.toml", LEVELS.replace("FOLDER", cluster.work().to_str().unwrap()));
}

/// The holders of a kept object, by their names.
fn holders(cluster: &Cluster, source: &str) -> Vec<String> {
    let objects = cluster.run(&["--json", "catalog", "show", source]);
    if objects.code != 0 {
        return Vec::new();
    }
    let holders = objects.json("objects")[0]["holders"].take();
    holders.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn levels_of_tasks_hand_on_what_is_only_in_the_cluster() {
    let cluster = Cluster::start(&[&[], &[]]);
    write_levels(&cluster);
    cluster.write("go", "");
    cluster.run(&["submit", "--wait", "levels.toml"]).exits(0).says(&["7 of 7 tasks succeeded", "0% from persistent"]);
    assert_eq!(cluster.read("sum"), "30\n");
    let left: Vec<_> = cluster.names(".").into_iter().filter(|name| !name.starts_with("made-")).collect();
    assert_eq!(left, ["go", "levels.toml", "sum"], "nothing but the sum is in persistent storage");
    assert_eq!(cluster.job("1")["reads"]["persistent"]["count"], 0);
    // It stays, and has a name.
    assert_eq!(holders(&cluster, "eyas://1/0/number").len(), 1);
}

#[test]
fn what_a_killed_executor_kept_is_made_again_with_what_it_is_made_from() {
    let mut cluster = Cluster::start(&[&[]]);
    write_levels(&cluster);
    let job = cluster.submit("levels.toml");
    wait_until("all but the last have ended", || cluster.job(&job)["tasks"]["succeeded"] == 6);
    cluster.add_executor(&[]);
    cluster.wait_for_executors(2);
    cluster.executor(1).kill();
    cluster.wait_for_executors(1);
    wait_until("all was made again", || cluster.job(&job)["recomputed"] == 6);
    let made = |number: u32| cluster.read(&format!("made-{number}")).lines().count();
    wait_until("each number was made twice", || (1..=4).all(|number| made(number) == 2));
    cluster.write("go", "");
    cluster.run(&["job", "wait", &job]).exits(0).says(&["7 of 7 tasks succeeded", "6 ran again"]);
    assert_eq!(cluster.read("sum"), "30\n");
    let why = cluster.run(&["explain", "1.0"]).exits(0).stdout;
    assert!(why.contains("It ran 1 times more"), "{why}");
    assert_eq!(holders(&cluster, "eyas://1/4/square"), ["n2"]);
}

#[test]
fn a_killed_dispatcher_finds_again_what_executors_keep() {
    let mut cluster = Cluster::start(&[&[], &[]]);
    write_levels(&cluster);
    let job = cluster.submit("levels.toml");
    wait_until("all but the last have ended", || cluster.job(&job)["tasks"]["succeeded"] == 6);
    cluster.restart_dispatcher();
    cluster.wait_for_executors(2);
    cluster.write("go", "");
    cluster.run(&["job", "wait", &job]).exits(0).says(&["7 of 7 tasks succeeded"]);
    assert_eq!((cluster.read("sum").as_str(), &cluster.job(&job)["recomputed"]), ("30\n", &0.into()));
    assert_eq!(wait_for("it is held", || holders(&cluster, "eyas://1/0/number").pop()).len(), 2);
}
