//! A running cluster: a dispatcher and executors as children of the test, which end with the test
//! in every case.

use std::io::{BufRead, BufReader};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::home::{CommandOutput, Home, finish};
use super::{DEADLINE, process, wait_for, wait_until};

/// Name of the cluster in its home.
const NAME: &str = "test";

/// A process of the cluster. Its standard input keeps it running.
struct ClusterProcess {
    child: Child,
    input: Option<ChildStdin>,
}

/// An executor of the cluster.
pub struct Executor {
    folder: PathBuf,
    process: ClusterProcess,
}

/// A dispatcher and executors in a [`Home`] of their own. Dereferences to the home.
pub struct Cluster {
    dispatcher: ClusterProcess,
    dispatcher_words: Vec<String>,
    executors: Vec<Executor>,
    // The last field, because it is dropped last: all processes must have ended by then.
    home: Home,
}

impl Deref for Cluster {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.home
    }
}

impl ClusterProcess {
    fn start(home: &Home, mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(home.log());
        let mut child = command.spawn().expect("eyas can be started");
        let input = child.stdin.take();
        ClusterProcess { child, input }
    }

    /// Closes its standard input, so that it ends by itself, and waits for the end.
    fn end(&mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + DEADLINE;
        while self.child.try_wait().expect("our own child").is_none() {
            if std::thread::panicking() || Instant::now() > deadline {
                self.kill();
                assert!(std::thread::panicking(), "a process of the cluster does not end");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn kill(&mut self) {
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
    }
}

impl Cluster {
    /// A cluster with one-slot executors `n1`, `n2` …, each with its own words.
    #[track_caller]
    pub fn start(executors: &[&[&str]]) -> Self {
        Cluster::start_with(&[], executors)
    }

    /// The same with arguments for the dispatcher.
    #[track_caller]
    pub fn start_with(dispatcher: &[&str], executors: &[&[&str]]) -> Self {
        let mut cluster = Cluster::start_in(Home::new(), dispatcher);
        for words in executors {
            cluster.add_executor(words);
        }
        cluster.wait_for_executors(executors.len());
        cluster
    }

    /// A dispatcher without executors, in a given home.
    #[track_caller]
    pub fn start_in(home: Home, dispatcher: &[&str]) -> Self {
        let dispatcher_words: Vec<String> =
            dispatcher.iter().map(|word| (*word).to_owned()).collect();
        let dispatcher = start_dispatcher(&home, &dispatcher_words);
        Cluster { dispatcher, dispatcher_words, executors: Vec::new(), home }
    }

    /// Starts one more executor, with a folder of its own unless its arguments name one.
    pub fn add_executor(&mut self, words: &[&str]) -> &mut Executor {
        self.add_executor_on(0, words)
    }

    /// The same on a host of the home's network.
    pub fn add_executor_on(&mut self, host: usize, words: &[&str]) -> &mut Executor {
        let name = format!("n{}", self.executors.len() + 1);
        let mut folder = self.home.path(&name);
        if let Some(place) = words.iter().position(|word| *word == "--folder") {
            folder = PathBuf::from(words[place + 1]);
        }
        let start = ["start", "executor", "--owned", "--name", &name];
        let mut command = self.home.command_on(host, &start);
        if !words.contains(&"--access") {
            command.args(["--cluster", NAME]);
        }
        command.args(words);
        // By default, executors keep disk space free, and tests must run on a nearly full disk.
        let folder_word = folder.to_str().expect("a plain name");
        for (word, value) in [("--slots", "1"), ("--keep-free", "10MB"), ("--folder", folder_word)]
        {
            if !words.contains(&word) {
                command.args([word, value]);
            }
        }
        self.executors
            .push(Executor { folder, process: ClusterProcess::start(&self.home, command) });
        self.executors.last_mut().expect("just added")
    }

    #[track_caller]
    pub fn wait_for_executors(&self, count: usize) {
        wait_until((count, "executors have joined"), || {
            self.ask(&["executor", "list"], "executors")
                .as_array()
                .is_some_and(|executors| executors.len() == count)
        });
    }

    pub fn executor(&mut self, number: usize) -> &mut Executor {
        &mut self.executors[number - 1]
    }

    /// The dispatcher's process.
    pub fn dispatcher(&self) -> u32 {
        self.dispatcher.child.id()
    }

    /// Kills the dispatcher as a crash would, and starts it again in the same folder.
    #[track_caller]
    pub fn restart_dispatcher(&mut self) {
        self.dispatcher.kill();
        self.dispatcher = start_dispatcher(&self.home, &self.dispatcher_words);
    }

    /// Kills the dispatcher as a crash would, changes its folder, and tries to start it again
    /// there. Returns the error message if the start fails; otherwise the dispatcher runs again.
    #[track_caller]
    pub fn restart_dispatcher_after(
        &mut self,
        change: impl FnOnce(&std::path::Path),
    ) -> Option<CommandOutput> {
        self.dispatcher.kill();
        change(&self.home.path("home/clusters").join(NAME));
        let words = ["start", "dispatcher", "--cluster", NAME, "--listen", "127.0.0.1:0"];
        let mut probe = self.home.command(&words);
        probe.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = probe.spawn().expect("eyas can be started");
        let mut line = String::new();
        let output = BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line);
        output.expect("a pipe can be read");
        if line.is_empty() {
            return Some(finish(child));
        }
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        self.dispatcher = start_dispatcher(&self.home, &self.dispatcher_words);
        None
    }

    /// Runs `eyas` with these words on this cluster.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> CommandOutput {
        finish(self.spawn_on(words))
    }

    /// Starts `eyas` with these words on this cluster.
    pub fn spawn_on(&self, words: &[&str]) -> Child {
        self.home.spawn(&[&["--cluster", NAME], words].concat())
    }

    /// Starts `eyas` with these words on this cluster, on a host of the home's network.
    pub fn spawn_from(&self, host: usize, words: &[&str]) -> Child {
        self.home.spawn_on_host(host, &[&["--cluster", NAME], words].concat())
    }

    /// Runs `eyas --json` with these arguments. Returns the value under `name`.
    #[track_caller]
    pub fn ask(&self, words: &[&str], name: &str) -> Value {
        self.run(&[&["--json"], words].concat()).exits(0).json(name)
    }

    /// Submits a job file. Returns the job's id.
    #[track_caller]
    pub fn submit(&self, file: &str) -> String {
        self.run(&["submit", file]).exits(0).stdout.trim().to_owned()
    }

    #[track_caller]
    pub fn job(&self, job: &str) -> Value {
        self.ask(&["job", "show", job], "jobs")[0].take()
    }

    #[track_caller]
    pub fn task(&self, task: &str) -> Value {
        self.ask(&["task", "show", task], "task")
    }

    /// Waits until a task of job 1 has written this file in the working folder. Returns its
    /// content.
    #[track_caller]
    pub fn wait_for_file(&self, name: &str) -> String {
        let path = self.home.work().join(name);
        wait_for(name, || std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n')))
    }
}

impl Executor {
    /// The executor's folder, with its store and sandboxes.
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    pub fn process(&self) -> u32 {
        self.process.child.id()
    }

    /// Kills the executor as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits until the executor has ended by itself.
    #[track_caller]
    pub fn wait(&mut self) {
        wait_until("the executor ends", || {
            self.process.child.try_wait().expect("our own child").is_some()
        });
    }

    /// Stops the executor's process, whatever it is doing.
    #[track_caller]
    pub fn suspend(&self) {
        process::signal(self.process(), Signal::STOP);
        wait_until("it stands still", || process::state(self.process()) == Some('T'));
    }

    pub fn resume(&self) {
        process::signal(self.process(), Signal::CONT);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for executor in &mut self.executors {
            executor.process.end();
        }
        self.dispatcher.end();
    }
}

#[track_caller]
fn start_dispatcher(home: &Home, words: &[String]) -> ClusterProcess {
    let mut command = home.command(&["start", "dispatcher", "--cluster", NAME, "--owned"]);
    command.args(words);
    if !words.iter().any(|word| word == "--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    let mut dispatcher = ClusterProcess::start(home, command);
    let output = BufReader::new(dispatcher.child.stdout.take().expect("piped"));
    // Lines before this one are about jobs that continue.
    let is_ready = output.lines().any(|line| line.expect("a pipe can be read") == "ready");
    assert!(is_ready, "the dispatcher did not start");
    dispatcher
}
