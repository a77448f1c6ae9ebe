//! Outputs that are kept in the cluster: other tasks read them, executors hold them, lost ones are
//! made again.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;

use crate::dfs::joined;
use crate::support::{Cluster, wait_for, wait_until};

/// Three levels: four numbers, each squared, all added up. The numbers and squares are kept in the
/// cluster.
const LEVELS: &str = r#"
    [[task]]
    id = "number"
    array = "1-4"
    command = ["sh", "-c", "echo $0 > number; echo $0 >> FOLDER/made-$0", "{}"]
    outputs = [{ file = "number", keep = true }]
    [[task]]
    id = "square-1"
    inputs = [
        { task = "number", index = 0, name = "n" }, { task = "number", index = 1, name = "m" },
    ]
    command = ["sh", "-c", "echo $(($(cat n) * $(cat n) + $(cat m) * $(cat m))) > square"]
    outputs = [{ file = "square", keep = true }]
    [[task]]
    id = "square-2"
    inputs = [
        { task = "number", index = 2, name = "n" }, { task = "number", index = 3, name = "m" },
    ]
    command = ["sh", "-c", "echo $(($(cat n) * $(cat n) + $(cat m) * $(cat m))) > square"]
    outputs = [{ file = "square", keep = true }]
    [[task]]
    inputs = [{ task = "square-1", name = "a" }, { task = "square-2", name = "b" }]
    command = ["sh", "-c", """
        until [ -e FOLDER/go ]; do sleep 0.02; done; echo $(($(cat a) + $(cat b))) > sum"""]
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
    cluster
        .run(&["submit", "--wait", "levels.toml"])
        .exits(0)
        .says(&["7 of 7 tasks succeeded", "0% from persistent"]);
    assert_eq!(cluster.read("sum"), "30\n");
    let left: Vec<_> =
        cluster.names(".").into_iter().filter(|name| !name.starts_with("made-")).collect();
    assert_eq!(left, ["go", "levels.toml", "sum"], "nothing but the sum is in persistent storage");
    assert_eq!(cluster.job("1")["reads"]["persistent"]["count"], 0);
    // The object stays, and has a name.
    assert!(!holders(&cluster, "eyas://1/0/number").is_empty());
}

#[test]
fn outputs_of_a_killed_executor_are_made_again_with_their_inputs() {
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
    assert!(why.contains("It ran 1 time more"), "{why}");
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
    assert_eq!(
        (cluster.read("sum").as_str(), &cluster.job(&job)["recomputed"]),
        ("30\n", &0.into())
    );
    assert_eq!(wait_for("it is held", || holders(&cluster, "eyas://1/0/number").pop()).len(), 2);
}

/// A task that keeps a text, with `words` for its output, and a task that reads the text when there
/// is a file `go`.
fn write_pair(cluster: &Cluster, words: &str) {
    let text = r#"
        [[task]]
        id = "made"
        command = ["sh", "-c", "echo made > text; echo made >> FOLDER/made"]
        outputs = [{ file = "text", WORDS }]
        [[task]]
        inputs = [{ task = "made" }]
        folder = "sandbox"
        command = ["sh", "-c", "until [ -e FOLDER/go ]; do sleep 0.02; done; cat text"]
    "#;
    cluster.write(
        "pair.toml",
        text.replace("FOLDER", cluster.work().to_str().unwrap()).replace("WORDS", words),
    );
}

const TEXT: &str = "eyas://1/0/text";

/// Files with objects in an executor's store.
fn objects_of(cluster: &mut Cluster, executor: usize) -> Vec<PathBuf> {
    let folders = fs::read_dir(cluster.executor(executor).folder().join("store/objects")).unwrap();
    folders
        .flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect()
}

#[test]
fn an_output_with_two_replicas_survives_a_killed_executor() {
    let mut cluster = Cluster::start(&[&[], &[]]);
    write_pair(&cluster, "keep = true, replicas = 2");
    cluster.submit("pair.toml");
    wait_until("both have it", || holders(&cluster, TEXT).len() == 2);
    cluster.executor(1).kill();
    cluster.wait_for_executors(1);
    cluster.write("go", "");
    cluster.run(&["job", "wait", "1"]).exits(0);
    assert_eq!(
        (cluster.read("made").as_str(), cluster.job("1")["recomputed"].as_u64()),
        ("made\n", Some(0))
    );
    // An executor that joins gets a replica.
    cluster.add_executor(&[]);
    wait_until("two have it again", || holders(&cluster, TEXT) == ["n2", "n3"]);
}

#[test]
fn the_only_replica_is_moved_before_its_executor_leaves() {
    let mut cluster = Cluster::start(&[&[]]);
    write_pair(&cluster, "keep = true");
    cluster.submit("pair.toml");
    wait_until("it is kept", || holders(&cluster, TEXT) == ["n1"]);
    cluster.add_executor(&[]);
    cluster.wait_for_executors(2);
    cluster.run(&["executor", "stop", "n1"]).exits(0);
    cluster.executor(1).wait();
    assert_eq!(holders(&cluster, TEXT), ["n2"]);
    // The same when the machine of the executor tells it to stop.
    cluster.add_executor(&[]);
    cluster.wait_for_executors(2);
    crate::support::signal(cluster.executor(2).process(), rustix::process::Signal::TERM);
    cluster.executor(2).wait();
    assert_eq!(holders(&cluster, TEXT), ["n3"]);
    cluster.write("go", "");
    cluster.run(&["job", "wait", "1"]).exits(0);
    assert_eq!(
        (cluster.read("made").as_str(), cluster.job("1")["recomputed"].as_u64()),
        ("made\n", Some(0))
    );
}

/// A cluster in which only the first executor can make an object, and only the second one can read
/// it.
fn start_apart() -> Cluster {
    let cluster = Cluster::start(&[&["--node-resource", "here=1"]]);
    write_pair(&cluster, "keep = true");
    let text = cluster.read("pair.toml");
    let (first, second) = text.rsplit_once("[[task]]").unwrap();
    let first = first.replace("[[task]]", "[[task]]\nresources = { here = 1 }");
    cluster.write("pair.toml", format!("{first}[[task]]\nresources = {{ there = 1 }}\n{second}"));
    cluster.write("go", "");
    cluster.submit("pair.toml");
    wait_until("it is kept", || holders(&cluster, TEXT) == ["n1"]);
    cluster
}

#[test]
fn an_output_that_is_gone_from_its_store_is_made_again() {
    let mut cluster = start_apart();
    objects_of(&mut cluster, 1).iter().for_each(|path| fs::remove_file(path).unwrap());
    cluster.add_executor(&["--node-resource", "there=1"]);
    cluster.run(&["job", "wait", "1"]).exits(0);
    assert_eq!(cluster.run(&["task", "log", "1.1"]).exits(0).stdout, "made\n");
    assert_eq!(
        (cluster.read("made").as_str(), cluster.job("1")["recomputed"].as_u64()),
        ("made\nmade\n", Some(1))
    );
}

#[test]
fn a_damaged_output_is_never_read_and_is_made_again() {
    let mut cluster = start_apart();
    for path in objects_of(&mut cluster, 1) {
        // The file's times stay the same, as with a bad disk.
        let before = fs::metadata(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.write_at(b"fade", 0).unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
        fs::set_permissions(&path, before.permissions()).unwrap();
    }
    cluster.add_executor(&["--node-resource", "there=1"]);
    wait_until("it is made again", || cluster.read("made") == "made\nmade\n");
    assert_eq!(
        (cluster.job("1")["recomputed"].as_u64(), cluster.job("1")["tasks"]["failed"].as_u64()),
        (Some(1), Some(0))
    );
}

#[test]
fn kept_outputs_are_not_evicted_for_inputs() {
    let cluster = Cluster::start(&[&["--cache", "1MB"]]);
    write_pair(&cluster, "keep = true");
    for number in 0..6 {
        cluster.write(&format!("large-{number}"), vec![b'x'; 400_000]);
    }
    cluster.submit("pair.toml");
    wait_until("it is kept", || holders(&cluster, TEXT) == ["n1"]);
    cluster.write("go", "");
    cluster.run(&["run", "--each", "large-*", "--", "wc", "-c", "{}"]).exits(0);
    assert_eq!(holders(&cluster, TEXT), ["n1"]);
    // A task whose output cannot be kept fails for now and says why.
    cluster.write(
        "big.toml",
        "[[task]]\ncommand = [\"sh\", \"-c\", \"head -c 2000000 /dev/zero > big\"]\n\
         outputs = [{ file = \"big\", keep = true }]\n",
    );
    let job = cluster.submit("big.toml");
    let why = wait_for("it is refused", || {
        let why = cluster.run(&["explain", &format!("{job}.0")]).exits(0).stdout;
        why.contains("no room to keep").then_some(why)
    });
    assert!(why.contains("--cache"), "{why}");
    cluster.run(&["job", "cancel", &job]).exits(0);
}

#[test]
fn released_outputs_make_room_and_stay_released() {
    let mut cluster = Cluster::start(&[&["--cache", "1MB"]]);
    write_pair(&cluster, "keep = true");
    cluster.submit("pair.toml");
    wait_until("it is kept", || holders(&cluster, TEXT) == ["n1"]);
    cluster.run(&["job", "release", "1"]).exits(1).says(&["still running"]);
    cluster.write("go", "");
    cluster.run(&["job", "wait", "1"]).exits(0);
    cluster.run(&["job", "release", "1"]).exits(0).says(&["released 1 object of job 1"]);
    cluster.run(&["job", "release", "1"]).exits(0).says(&["released 0 objects of job 1"]);
    cluster.run(&["job", "retry", "1"]).exits(1).says(&["submit the job again"]);
    cluster.restart_dispatcher();
    cluster.wait_for_executors(1);
    cluster.write("large", vec![b'x'; 999_999]);
    cluster.run(&["run", "--each", "large", "--", "wc", "-c", "{}"]).exits(0);
    assert_eq!(holders(&cluster, TEXT), Vec::<String>::new());
}

#[test]
fn a_lost_output_is_made_again_even_if_no_task_reads_it() {
    let mut cluster = Cluster::start(&[&[]]);
    cluster.write(
        "job.toml",
        "[[task]]\ncommand = [\"sh\", \"-c\", \"echo x > text\"]\n\
         outputs = [{ file = \"text\", keep = true }]\n",
    );
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    cluster.add_executor(&[]);
    cluster.wait_for_executors(2);
    cluster.executor(1).kill();
    wait_until("it is missed", || {
        cluster
            .run(&["explain", "1.0"])
            .exits(0)
            .stdout
            .contains("No executor that is here has what it keeps")
    });
    wait_until("another has it", || holders(&cluster, TEXT) == ["n2"]);
    cluster.run(&["job", "wait", "1"]).exits(0).says(&["1 ran again"]);
    // When the cluster stops, all executors leave with the objects that they hold.
    cluster.run(&["stop"]).exits(0);
    cluster.executor(2).wait();
    cluster.restart_dispatcher();
    assert_eq!(
        (&cluster.job("1")["state"], &cluster.job("1")["recomputed"]),
        (&"succeeded".into(), &1.into())
    );
    let folder = cluster.executor(2).folder().to_owned();
    cluster.add_executor(&["--folder", folder.to_str().unwrap()]);
    wait_until("it is back", || holders(&cluster, TEXT) == ["n3"]);
    cluster.run(&["job", "get", "1"]).exits(0);
    assert_eq!(
        (cluster.read("0/text").as_str(), &cluster.job("1")["recomputed"]),
        ("x\n", &1.into())
    );
}

#[test]
fn a_lost_output_is_read_from_its_destination() {
    let mut cluster = Cluster::start(&[&[]]);
    write_pair(&cluster, "keep = true, to = \"out/text\"");
    cluster.submit("pair.toml");
    let source = format!("file://{}", cluster.work().join("out/text").display());
    wait_until("it is kept", || holders(&cluster, &source) == ["n1"]);
    assert_eq!(cluster.read("out/text"), "made\n");
    cluster.executor(1).kill();
    cluster.add_executor(&[]);
    cluster.write("go", "");
    cluster.run(&["job", "wait", "1"]).exits(0).says(&["100% from persistent"]);
    assert_eq!(
        (cluster.read("made").as_str(), cluster.job("1")["recomputed"].as_u64()),
        ("made\n", Some(0))
    );
}

/// A chain of five tasks: each reads the output of the previous one. The output of the last is kept
/// for the user.
fn write_row(cluster: &Cluster, keep: &str) {
    let mut job = String::new();
    for number in 0..5 {
        let reads = if number > 0 {
            format!("inputs = [{{ task = \"{}\", name = \"before\" }}]", number - 1)
        } else {
            String::new()
        };
        let keep = if number == 4 { "true" } else { keep };
        job += &format!(
            "[[task]]\nid = \"{number}\"\n{reads}\n\
             outputs = [{{ file = \"part\", keep = {keep} }}]\n\
             command = [\"sh\", \"-c\", \
             \"head -c 400000 /dev/zero > part; echo {number} >> {}/ran\"]\n",
            cluster.work().display()
        );
    }
    cluster.write("row.toml", job);
}

#[test]
fn outputs_kept_until_read_make_room_for_later_ones() {
    let mut cluster = Cluster::start(&[&["--cache", "1MB"]]);
    write_row(&cluster, "true");
    let job = cluster.submit("row.toml");
    wait_until("there is no room for a third", || {
        cluster.run(&["explain", &format!("{job}.2")]).exits(0).stdout.contains("no room to keep")
    });
    cluster.run(&["job", "cancel", &job]).exits(0);
    cluster.run(&["job", "release", &job]).exits(0);
    fs::remove_file(cluster.work().join("ran")).unwrap();
    write_row(&cluster, "\"until-read\"");
    let job = cluster.submit("row.toml");
    cluster.run(&["job", "wait", &job]).exits(0).says(&["5 of 5 tasks succeeded"]);
    assert_eq!(
        (cluster.read("ran").as_str(), holders(&cluster, "eyas://2/0/part").len()),
        ("0\n1\n2\n3\n4\n", 0)
    );
    // Only the last output is for the user. If it is lost, the chain runs again, and the others are
    // released again.
    cluster.executor(1).kill();
    cluster.add_executor(&["--cache", "1MB"]);
    cluster.run(&["job", "get", &job]).exits(0).says(&["1 file in"]);
    assert_eq!(cluster.read("ran"), "0\n1\n2\n3\n4\n0\n1\n2\n3\n4\n");
    assert_eq!(
        (holders(&cluster, "eyas://2/0/part").len(), holders(&cluster, "eyas://2/4/part")),
        (0, vec!["n2".into()])
    );
}

#[test]
fn mistakes_about_kept_outputs_are_named() {
    let cluster = Cluster::start(&[&[]]);
    for (output, says) in [
        ("file = \"x\", replicas = 2", "add `keep = true`"),
        (
            "file = \"x\", keep = true, replicas = 0",
            "cannot have 0 replicas: write a number from 1 to 16",
        ),
        (
            "file = \"x\", keep = true, replicas = 17",
            "cannot have 17 replicas: write a number from 1 to 16",
        ),
    ] {
        let text = format!("[[task]]\ncommand = [\"true\"]\noutputs = [{{ {output} }}]\n");
        let file = cluster.write("job.toml", text);
        cluster.run(&["submit", file.to_str().unwrap()]).exits(1).says(&["line 1", "`x`", says]);
    }
    cluster.write(
        "job.toml",
        "[[task]]\ncommand = [\"true\"]\noutputs = [{ file = \"x\", keep = \"forever\" }]\n",
    );
    cluster.run(&["submit", "job.toml"]).exits(1).says(&[
        "line 3",
        "`keep` cannot be \"forever\"",
        "until-read",
    ]);
    cluster.write(
        "job.toml",
        "[[task]]\ncommand = [\"true\"]\noutputs = [{ file = \"x\", keep = true }]\n",
    );
    cluster.run(&["submit", "-w", "job.toml"]).exits(1);
    let status = cluster.task("1.0")["status"].take();
    assert!(status.as_str().unwrap().contains("did not write its output `x`"), "{status}");
    let cluster = Cluster::start_with(&["--policy", "fa"], &[]);
    cluster.write(
        "job.toml",
        "[[task]]\ncommand = [\"true\"]\noutputs = [{ file = \"x\", keep = true }]\n",
    );
    cluster.run(&["submit", "job.toml"]).exits(1).says(&["policy fa", "persistent storage"]);
}

#[test]
fn last_is_a_job_in_the_name_of_a_kept_output() {
    let cluster = Cluster::start(&[&["--dfs", "--cache", "1GB"]]);
    joined(&cluster, 1);
    cluster.run(&["catalog", "show", "eyas://last/0/text"]).exits(1).says(&["has no job"]);
    let keep = "[[task]]\narray = \"1-2\"\ncommand = [\"sh\", \"-c\", \"echo {} > text\"]\n\
                outputs = [{ file = \"text\", keep = true }]\n";
    cluster.write("keep.toml", keep);
    cluster.run(&["submit", "--wait", "keep.toml"]).exits(0);
    cluster.run(&["submit", "--wait", "keep.toml"]).exits(0);
    assert_eq!(
        cluster.ask(&["catalog", "show", "eyas://last/0/text"], "objects")[0]["source"],
        "eyas://2/0/text"
    );
    cluster.run(&["push", "eyas://last/*/text"]).exits(0).says(&["2 objects"]);
    cluster.run(&["dfs", "cp", "--replicas", "1", "eyas://last/1/text", "/text"]).exits(0);
    let run = |words: &[&str]| {
        cluster.run(&[&["run", "-k", "--report", "none"], words].concat()).exits(0).stdout
    };
    assert_eq!(run(&["--each", "eyas://last/*/text", "--", "cat"]), "1\n2\n");
    let keep = || cluster.run(&["submit", "--wait", "keep.toml"]).exits(0);
    keep();
    let of_item = ["--array", "0-1", "-i", "eyas://last/{}/text", "--", "cat", "{input:1}"];
    assert_eq!(run(&of_item), "1\n2\n");
    keep();
    // A word of the command that is an input becomes its path.
    let word = "eyas://last/1/text";
    assert_eq!(run(&["--array", "1", "-i", word, "--", "cat", word]), "2\n");
    // That job is now the last one, and keeps nothing.
    cluster
        .run(&["run", "-i", "eyas://last/0/text", "--array", "1", "--", "true"])
        .exits(1)
        .says(&["no kept output is named `eyas://7/0/text`"]);
}
