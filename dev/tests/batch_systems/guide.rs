//! The commands of `docs/guides/clusters.md` that need Slurm, on a real one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::is_tested;
use crate::support::{Home, eyas};

/// A block ends within these seconds, also on a busy machine.
const DEADLINE: &str = "240";
/// Nodes are given back within this time after the last task.
const BACK_DEADLINE: Duration = Duration::from_secs(180);

/// The indented blocks in the sections with these titles.
fn blocks(page: &str, titles: &[&str]) -> Vec<String> {
    let (mut found, mut is_in, mut is_open) = (Vec::<String>::new(), false, false);
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            is_in = titles.contains(&title);
        }
        let command = line.strip_prefix("    ").filter(|_| is_in);
        match (command, found.last_mut()) {
            (Some(command), Some(block)) if is_open => block.push_str(&format!("{command}\n")),
            (Some(command), _) => found.push(format!("{command}\n")),
            (None, _) => {}
        }
        is_open = command.is_some();
    }
    found
}

/// A Slurm with four nodes, and a home of eyas. Both end with this.
struct OnTestbed {
    script: PathBuf,
    slurm: PathBuf,
    // The last field, because it is dropped last: all processes must have ended by then.
    home: Home,
}

impl OnTestbed {
    fn start() -> Self {
        let (home, script) =
            (Home::new(), Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed/slurm.sh"));
        let slurm = home.path("slurm");
        let up =
            Command::new(&script).args(["up", "-n", "4", "-c", "2"]).arg(&slurm).output().unwrap();
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        OnTestbed { script, slurm, home }
    }

    /// Runs a script as a user would, with `eyas` in the PATH. Returns what it prints.
    #[track_caller]
    fn run(&self, script: &str) -> String {
        let folder = eyas().parent().expect("eyas is in a folder");
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
        let words = [DEADLINE, "bash", "-euo", "pipefail", "-c", script];
        let mut command = self.home.command_of(Command::new("timeout"), &words);
        let done = command
            .env("PATH", path)
            .env("SLURM_CONF", self.slurm.join("slurm.conf"))
            .output()
            .unwrap();
        let [stdout, stderr] =
            [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(done.status.success(), "{script}\n{stdout}\n{stderr}");
        stdout
    }
}

impl Drop for OnTestbed {
    fn drop(&mut self) {
        let _ = self.home.command(&["stop"]).output();
        let down = Command::new(&self.script).arg("down").arg(&self.slurm).status();
        assert!(std::thread::panicking() || down.is_ok_and(|status| status.success()));
    }
}

#[test]
fn the_commands_of_the_guide_work_on_slurm() {
    if !is_tested("a real Slurm") {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/clusters.md");
    let blocks = blocks(&fs::read_to_string(page).unwrap(), &["Slurm", "One job"]);
    let [first, after, others, one_job, in_job] = &blocks[..] else {
        panic!("the guide has other blocks: {blocks:#?}")
    };
    let testbed = OnTestbed::start();
    let printed = testbed.run(first);
    assert!(printed.contains("node n"), "the job has scaled out: {printed}");
    let deadline = Instant::now() + BACK_DEADLINE;
    while !testbed.run("squeue --noheader").is_empty() {
        assert!(Instant::now() < deadline, "nodes are not given back: {}", testbed.run("squeue"));
        std::thread::sleep(Duration::from_millis(100));
    }
    let printed = testbed.run(after);
    assert!(printed.contains("was given back"), "the pool has scaled back: {printed}");
    testbed.run(others);
    testbed.run(one_job);
    testbed.run(in_job);
}
