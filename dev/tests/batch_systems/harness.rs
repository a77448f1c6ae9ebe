//! What the tests of all batch systems have in common: a dispatcher that submits to the batch
//! system, and one pool.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{CommandOutput, Home};

/// Requests are submitted, granted and ended within this time, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(150);

/// Whether real batch systems are tested. Otherwise prints that this test tests nothing.
pub fn is_tested(system: &str) -> bool {
    let is_tested = std::env::var_os("EYAS_BATCH_SYSTEMS").is_some();
    if !is_tested {
        eprintln!("not tested: `make judges` runs this with {system}");
    }
    is_tested
}

/// A batch system that a script of `dev/testbed` has started in a folder. It ends when this is
/// dropped.
pub struct Testbed {
    script: &'static str,
    pub folder: PathBuf,
}

impl Testbed {
    /// The script as a program.
    pub fn program(script: &str) -> Command {
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed").join(script))
    }

    /// Starts the batch system with `up`, the script with its words for that but the folder.
    #[track_caller]
    pub fn start(script: &'static str, folder: PathBuf, up: &mut Command) -> Self {
        let up = up.arg(&folder).output().unwrap();
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        Testbed { script, folder }
    }

    /// The script with a word that says what to do in the folder.
    pub fn command(&self, word: &str) -> Command {
        let mut command = Testbed::program(self.script);
        command.arg(word).arg(&self.folder);
        command
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let down = self.command("down").status();
        assert!(std::thread::panicking() || down.is_ok_and(|status| status.success()));
    }
}

/// A batch system, and a dispatcher of the cluster `test` that submits to it.
pub trait BatchBed {
    /// Name of the pool in `eyas pool add`.
    const POOL: &'static str = "batch";
    /// The system's name in `eyas pool add`.
    const SYSTEM: &'static str;

    /// The home of the dispatcher and of the user.
    fn home(&self) -> &Home;

    /// The command `eyas`, where the dispatcher runs.
    fn command(&self, words: &[&str]) -> Command {
        self.home().command(words)
    }

    /// What the batch system says of its jobs, for the message of a test that fails.
    fn queue(&self) -> String {
        String::new()
    }

    /// Runs `eyas` as a user of the cluster.
    #[track_caller]
    fn run(&self, words: &[&str]) -> CommandOutput {
        self.home().finish(self.command(&[&["--cluster", "test"], words].concat()))
    }

    /// Starts the dispatcher with further options and variables.
    #[track_caller]
    fn start_dispatcher(&self, words: &[&str], variables: &[(&str, String)]) {
        let start = ["start", "dispatcher", "--cluster", "test", "--detach"];
        let mut dispatcher = self.command(&[&start, words].concat());
        dispatcher.envs(variables.iter().map(|(name, value)| (name, value)));
        self.home().finish(dispatcher).exits(0);
    }

    /// Ends the dispatcher, if it runs.
    fn stop(&self) {
        let _ = self.command(&["--cluster", "test", "stop"]).output();
    }

    /// Adds the pool with further options.
    #[track_caller]
    fn add_pool(&self, words: &[&str]) {
        let add = ["pool", "add", Self::SYSTEM, Self::POOL, "--executor-option=--keep-free=10MB"];
        let added = format!("added pool {}", Self::POOL);
        self.run(&[&add, words].concat()).exits(0).says(&[&added]);
    }

    /// The pool as `eyas pool show` has it.
    #[track_caller]
    fn pool(&self) -> Value {
        self.run(&["--json", "pool", "show", Self::POOL]).exits(0).json("pools")[0].take()
    }

    /// Waits until `fact` holds.
    #[track_caller]
    fn wait_until(&self, what: &str, mut fact: impl FnMut() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !fact() {
            let pool = || self.run(&["pool", "show", Self::POOL]).stdout;
            assert!(
                Instant::now() < deadline,
                "waited in vain for: {what}\n{}\n{}",
                self.queue(),
                pool()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the pool has no node and no request that is open.
    #[track_caller]
    fn wait_until_given_back(&self) {
        self.wait_until("the pool has given back its nodes", || {
            let pool = self.pool();
            let has_ended = |request: &Value| request["state"] == "ended";
            pool["nodes"] == 0 && pool["requests"].as_array().unwrap().iter().all(has_ended)
        });
    }

    /// Checks that all nodes were given back, and that nothing has failed. Returns the pool.
    #[track_caller]
    fn has_given_back_all(&self) -> Value {
        self.wait_until_given_back();
        let pool = self.pool();
        assert!(
            pool["failures"] == 0 && pool["nodes_granted"] == pool["nodes_given_back"],
            "{pool:#}"
        );
        pool
    }
}
