//! The report of a job as a page: commands, run times, tasks, failures by their reason, inputs.

use crate::support::{Cluster, Home};

/// A name of a file that would be a script in a page.
const SCRIPT: &str = "<script>alert('x')<script>.txt";

#[test]
fn a_page_tells_what_ran_and_no_name_acts() {
    let home = Home::new();
    for (name, content) in [(SCRIPT, "bad"), ("a.txt", "bad"), ("b.txt", "good")] {
        home.write(&format!("texts/{name}"), content);
    }
    let script = "echo \"<img src=x> $1\" >&2; grep -q good \"$1\"";
    let words = ["--each", "texts/*.txt", "--", "sh", "-c", script, "sh", "{}"];
    let done = home.eyas(&[&["run", "--report", "r.html"], &words[..]].concat());
    done.exits(1);
    let page = home.read("r.html");
    for part in [
        "<h2>Commands</h2>",
        "sh {}</dd>",
        "exit code 1 <small>2 tasks</small>",
        "&lt;script&gt;alert(&#39;x&#39;)&lt;script&gt;.txt",
        "&lt;img src=x&gt;",
        "<h3>Slowest tasks</h3>",
        "<details id=\"tasks\">",
        "The job read 3 inputs with 10 bytes together; the digest of their versions is ",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script>alert") && !page.contains("<img"));
}

#[test]
fn the_digest_of_inputs_tells_their_versions() {
    let cluster = Cluster::start(&[&["--cache", "1GB"]]);
    cluster.write("a.txt", "one\n");
    cluster.write("job.toml", "[[task]]\ninputs = [\"a.txt\"]\ncommand = [\"true\"]\n");
    let digest = || {
        cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
        let graph = cluster.ask(&["job", "graph", "last"], "graph");
        assert_eq!(graph["inputs"], 1);
        graph["input_digest"].as_str().expect("a digest").to_owned()
    };
    let first = digest();
    assert_eq!((first.len(), digest()), (64, first.clone()));
    cluster.write("a.txt", "other\n");
    assert_ne!(digest(), first);
    let table = cluster.run(&["report", "last", "-o", "r.html"]).exits(0).stdout;
    for begin in ["run times", "  slowest", "command", "named inputs"] {
        assert!(table.lines().any(|line| line.starts_with(begin)), "{begin}: {table}");
    }
}
