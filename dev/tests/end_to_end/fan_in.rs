//! Tasks that read very many files: outputs of other tasks, and files that a pattern finds.

use std::fs;

use crate::support::{Cluster, finish, wait_until};

/// Sums up the numbers in the task's inputs; the first argument is the list of their paths.
const SUM: &str = r#"command = [
    "sh", "-c", 'xargs -0 cat <"$1" | awk "{ sum += \$1 } END { print NR, sum }"', "sh",
    "{inputs0}",
]"#;

fn write_numbers(cluster: &Cluster, count: usize) {
    for number in 1..=count {
        cluster.write(&format!("in/{number}"), format!("{number}\n"));
    }
}

fn sum_of(count: usize) -> String {
    format!("{count} {}\n", count * (count + 1) / 2)
}

#[test]
fn a_task_reads_the_outputs_of_thousands_of_others() {
    const COUNT: usize = 5_000;
    let cluster = Cluster::start(&[&["--slots", "2"], &["--slots", "2"]]);
    let parts = format!(
        "[[task]]\nid = \"parts\"\narray = \"1-{COUNT}\"\n\
         command = [\"sh\", \"-c\", \"echo $1 >$1\", \"sh\", \"{{}}\"]\n\
         outputs = [{{ file = \"{{}}\", keep = \"until-read\" }}]\n"
    );
    let merge =
        format!("[[task]]\ninputs = [{{ task = \"parts\" }}]\n{SUM}\nfolder = \"sandbox\"\n");
    cluster.write("job.toml", format!("{parts}\n{merge}"));
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    assert_eq!(cluster.run(&["task", "log", &format!("1.{COUNT}")]).exits(0).stdout, sum_of(COUNT));
}

#[test]
fn a_pattern_names_more_inputs_than_a_command_line_holds() {
    const COUNT: usize = 20_000;
    let cluster = Cluster::start(&[&[]]);
    write_numbers(&cluster, COUNT);
    // In a sandbox, the list has relative paths.
    let task = format!(
        "inputs = [\"in/*\"]\n{SUM}\nfolder = \"sandbox\"\nenv = {{ LIST = \"{{inputs}}\" }}\n"
    );
    let task = task.replace("xargs", "head -n 1 \"$LIST\"; wc -l <\"$LIST\"; xargs");
    cluster.write("job.toml", format!("[[task]]\n{task}"));
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    assert_eq!(
        cluster.run(&["task", "log", "1.0"]).exits(0).stdout,
        format!("in/1\n{COUNT}\n{}", sum_of(COUNT))
    );
    // No list is left. Sandboxes are kept for later tasks.
    let folders =
        cluster.names("../n1/sandboxes").into_iter().map(|name| format!("../n1/sandboxes/{name}"));
    let left = folders.flat_map(|folder| {
        cluster.names(&folder).into_iter().map(move |name| format!("{folder}/{name}"))
    });
    let lists: Vec<_> = left.filter(|name| cluster.work().join(name).is_file()).collect();
    assert!(lists.is_empty(), "{lists:?}");
}

#[test]
fn a_command_line_that_is_too_long_is_explained() {
    let cluster = Cluster::start(&[&[]]);
    let word = "x".repeat(1 << 20);
    cluster.write("job.toml", format!("[[task]]\ncommand = [\"true\", \"{word}\"]\n"));
    cluster.run(&["submit", "--wait", "job.toml"]).exits(1);
    let status = cluster.task("1.0")["status"].to_string();
    assert!(status.contains("Argument list too long") && status.contains("`{inputs}`"), "{status}");
}

#[test]
fn a_line_break_in_an_inputs_name_is_no_end_of_a_line() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write("in/a\nb", "1\n");
    let task = |list: &str| {
        format!(
            "[[task]]\ninputs = [\"in/*\"]\ncommand = [\"cat\", \"{{{list}}}\"]\n\
             folder = \"sandbox\"\n"
        )
    };
    cluster.write("job.toml", task("inputs"));
    cluster.run(&["submit", "--wait", "job.toml"]).exits(1);
    let status = cluster.task("1.0")["status"].to_string();
    assert!(status.contains("`{inputs0}`"), "{status}");
    cluster.write("job.toml", task("inputs0"));
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    assert_eq!(cluster.run(&["task", "log", "2.0"]).exits(0).stdout, "in/a\nb\0");
}

#[test]
fn a_task_whose_executor_dies_while_it_stages_thousands_of_inputs_runs_elsewhere() {
    const COUNT: usize = 5_000;
    let mut cluster = Cluster::start(&[&[]]);
    write_numbers(&cluster, COUNT);
    cluster.write("job.toml", format!("[[task]]\ninputs = [\"in/*\"]\n{SUM}\n"));
    let submit = cluster.spawn_on(&["submit", "--wait", "job.toml"]);
    let objects = cluster.path("n1/store/objects");
    wait_until("some inputs are staged", || {
        fs::read_dir(&objects).is_ok_and(|objects| objects.count() > 100)
    });
    cluster.executor(1).kill();
    cluster.add_executor(&[]);
    finish(submit).exits(0);
    assert_eq!(cluster.run(&["task", "log", "1.0"]).exits(0).stdout, sum_of(COUNT));
}

#[test]
fn a_task_whose_inputs_exceed_the_store_is_refused_with_their_number() {
    let cluster = Cluster::start(&[&["--cache-objects", "100"]]);
    write_numbers(&cluster, 200);
    cluster.write("job.toml", format!("[[task]]\ninputs = [\"in/*\"]\n{SUM}\n"));
    cluster.run(&["submit", "--wait", "job.toml"]).exits(1);
    let status = cluster.task("1.0")["status"].to_string();
    for says in ["200 objects", "100", "--cache-objects", "at the same time"] {
        assert!(status.contains(says), "{status}");
    }
}
