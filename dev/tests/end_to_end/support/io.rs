//! A coordinator of shared storage, and programs under `eyas io run` on emulated nodes.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::{CommandOutput, Home, finish, signal, wait_until, wait_until_ready};

/// A coordinator, and the agents that programs start. They end with it.
pub struct Order {
    coordinator: Option<Child>,
    pub home: Home,
}

impl Order {
    pub fn new(home: Home, words: &[&str]) -> Order {
        let mut order = Order { coordinator: None, home };
        order.serve(words);
        order
    }

    /// Starts the coordinator; at its old address if it has run before.
    pub fn serve(&mut self, words: &[&str]) {
        let mut command =
            self.home.command(&[&["io", "serve", "--listen", "127.0.0.1:0"], words].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(self.home.log()).spawn().unwrap();
        wait_until_ready(&mut child);
        self.coordinator = Some(child);
    }

    pub fn coordinator(&self) -> u32 {
        self.coordinator.as_ref().expect("it runs").id()
    }

    pub fn kill_coordinator(&mut self) {
        let mut coordinator = self.coordinator.take().expect("it runs");
        coordinator.kill().unwrap();
        coordinator.wait().unwrap();
    }

    /// `eyas io run` with these words on a node.
    pub fn command(&self, node: &str, words: &[&str]) -> Command {
        let folder = self.home.path(node);
        fs::create_dir_all(&folder).unwrap();
        let mut command = self.home.command(&[&["io", "run"], words].concat());
        command.env("XDG_RUNTIME_DIR", folder);
        command
    }

    #[track_caller]
    pub fn run(&self, node: &str, words: &[&str]) -> CommandOutput {
        self.home.finish(self.command(node, words))
    }

    /// A program on a node that reads this number of megabytes of a file, piece by piece.
    pub fn reader(&self, node: &str, words: &[&str], file: &Path, megabytes: u32) -> Child {
        let (from, count) = (format!("if={}", file.display()), format!("count={}", megabytes * 16));
        let program = ["--", "dd", &from, "of=/dev/null", "bs=64k", &count, "status=none"];
        let mut command = self.command(node, &[words, &program].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn status(&self) -> Value {
        self.home.eyas(&["--json", "io", "status"]).exits(0).json("io")
    }

    /// Requests that the coordinator has received so far.
    pub fn requests(&self) -> u64 {
        let storages = self.status()["storages"].take();
        storages
            .as_array()
            .unwrap()
            .iter()
            .map(|storage| storage["requests"].as_u64().unwrap())
            .sum()
    }

    /// Waits until programs ask the coordinator.
    #[track_caller]
    pub fn wait_for_requests(&self) {
        let before = self.requests();
        wait_until("programs ask", || self.requests() > before + 2);
    }

    /// Waits until the agent of a node has reached the coordinator, and programs that read this
    /// file wait for their turns. Before, they go ahead.
    #[track_caller]
    pub fn wait_until_ordered(&self, node: &str, file: &Path) {
        wait_until("programs are ordered", || {
            finish(self.reader(node, &["--always"], file, 1)).exits(0);
            self.requests() > 0
        });
    }

    pub fn agents(&self) -> Vec<u32> {
        let is_agent = |(_, words): &(u32, String)| words.contains(" io agent ");
        self.home.processes().into_iter().filter(is_agent).map(|(process, _)| process).collect()
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        if self.coordinator.is_some() {
            self.kill_coordinator();
        }
        // An unused agent runs for another half a minute.
        self.agents().into_iter().for_each(|agent| signal(agent, Signal::KILL));
    }
}
