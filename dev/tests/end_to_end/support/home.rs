//! An eyas home for one test: a folder with everything that its commands and clusters write.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{Network, binary, process, wait_until};

/// A folder with eyas's home, a temporary folder, and a working folder in it. Dropped, it checks
/// that no process and no temporary file of the test is left.
pub struct Home {
    folder: TempDir,
    network: Option<Network>,
    /// Environment variables of its commands.
    variables: Vec<(String, String)>,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub struct CommandOutput {
    /// Exit code as in a shell: 128 plus the number of the signal that ended the command.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Home {
    pub fn new() -> Self {
        let folder = TempDir::with_prefix("eyas-test-").expect("a temporary folder");
        // Some tests access the folder as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))
            .expect("our own folder");
        let home = Home { folder, network: None, variables: Vec::new() };
        for folder in [home.path("home"), home.path("tmp"), home.work()] {
            fs::create_dir(folder).expect("a new folder");
        }
        home
    }

    /// A home whose commands run on the first host of a network, unless a test names another host.
    pub fn on(network: Network) -> Self {
        let mut home = Home::new();
        home.network = Some(network);
        home
    }

    /// Sets an environment variable of its commands, and of the processes that they start.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// The network of this home.
    #[track_caller]
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("it was made on one")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder in which commands run.
    pub fn work(&self) -> PathBuf {
        self.path("work")
    }

    /// Writes a file in the working folder, and creates its parents. Returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
        fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// Reads a file of the working folder.
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.work().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Names in a folder below the working folder, including hidden ones.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let files =
            fs::read_dir(self.work().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
        let mut names: Vec<_> =
            files.map(|file| file.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The `eyas` command in this home.
    pub fn command(&self, words: &[&str]) -> Command {
        self.command_on(0, words)
    }

    /// The same on a host of the network, if the home has one.
    pub fn command_on(&self, host: usize, words: &[&str]) -> Command {
        let program = match &self.network {
            Some(network) => network.command(host, binary::eyas()),
            None => process::command(),
        };
        self.command_of(program, words)
    }

    /// `program`, which is `eyas` or starts it, with these arguments in this home.
    pub fn command_of(&self, mut program: Command, words: &[&str]) -> Command {
        program.args(words).current_dir(self.work()).stdin(Stdio::null());
        program.env("EYAS_HOME", self.path("home")).env("TMPDIR", self.path("tmp"));
        program.env("EYAS_CHECK_JOURNAL", self.path("journal-differs"));
        program.envs(self.variables.iter().map(|(name, value)| (name, value)));
        program.env_remove("EYAS_CLUSTER").env_remove("EYAS_ACCESS").env_remove("EYAS_LOG");
        program
    }

    /// Runs `eyas` with these arguments, and waits for its end.
    #[track_caller]
    pub fn eyas(&self, words: &[&str]) -> CommandOutput {
        finish(spawn(&mut self.command(words)))
    }

    /// Runs a command, and waits for its end.
    #[track_caller]
    pub fn finish(&self, mut command: Command) -> CommandOutput {
        finish(spawn(&mut command))
    }

    /// The same with these bytes on standard input.
    #[track_caller]
    pub fn eyas_with_input(&self, words: &[&str], input: &str) -> CommandOutput {
        let mut child = spawn(self.command(words).stdin(Stdio::piped()));
        let mut pipe = child.stdin.take().expect("piped");
        let input = input.to_owned();
        let writer = thread::spawn(move || pipe.write_all(input.as_bytes()));
        let done = finish(child);
        writer.join().expect("no panic").expect("eyas reads its input");
        done
    }

    /// Starts `eyas` with these arguments; see [`finish`].
    pub fn spawn(&self, words: &[&str]) -> Child {
        spawn(&mut self.command(words))
    }

    /// The same on a host of the network.
    pub fn spawn_on_host(&self, host: usize, words: &[&str]) -> Child {
        spawn(&mut self.command_on(host, words))
    }

    /// Folder of the logs of a cluster's processes.
    pub fn log(&self) -> fs::File {
        fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .expect("our own folder")
    }

    /// Every process of this home, with its command line.
    pub fn processes(&self) -> Vec<(u32, String)> {
        process::with_environment(&format!("EYAS_HOME={}", self.path("home").display()))
    }

    /// Names in the temporary folder.
    pub fn temporary(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.path("tmp")).expect("it was made");
        files.map(|file| file.expect("readable").path()).collect()
    }

    /// Checks every journal that dispatchers have left: each reading gives the same state, and
    /// every acknowledged result. Dispatchers themselves compare their state in memory with the
    /// journal when they end, and whenever a snapshot replaces entries.
    fn check_journals(&self) {
        if let Ok(differences) = fs::read_to_string(self.path("journal-differs")) {
            panic!("a journal is not what its dispatcher had in memory:\n{differences}");
        }
        let mut folders = vec![self.path("home")];
        while let Some(folder) = folders.pop() {
            let Ok(files) = fs::read_dir(&folder) else { continue };
            for file in files.flatten() {
                match file.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(file.path()),
                    Ok(_) if file.file_name() == "journal.redb" => check_journal_in(&folder),
                    _ => {}
                }
            }
        }
    }

    /// Waits until no process of this home is left.
    #[track_caller]
    pub fn wait_until_empty(&self) {
        wait_until("every process of the test has ended", || self.processes().is_empty());
        let left = self.temporary();
        assert!(left.is_empty(), "temporary files are left: {:?}", all_below(&left));
    }

    /// Detaches what is mounted below, which a test may drop after its home, so that the folder can
    /// be removed.
    fn detach_mounts(&self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let place = |mount: &str| Some(PathBuf::from(mount.split(' ').nth(4)?));
        let below = self.path("");
        for place in mounts.lines().filter_map(place).filter(|place| place.starts_with(&below)) {
            let _ = rustix::mount::unmount(&place, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if thread::panicking() {
            // The test has already failed; its processes must not stay.
            while let processes @ [_, ..] = &self.processes()[..] {
                processes.iter().for_each(|(process, _)| process::signal(*process, Signal::KILL));
            }
            eprintln!("{}", fs::read_to_string(self.path("log")).unwrap_or_default());
            return self.detach_mounts();
        }
        self.wait_until_empty();
        self.check_journals();
        self.detach_mounts();
    }
}

/// These files and folders, and all that is in them.
fn all_below(paths: &[PathBuf]) -> Vec<PathBuf> {
    let below = |path: &PathBuf| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        all_below(&entries.map(|entry| entry.path()).collect::<Vec<_>>())
    };
    paths.iter().flat_map(|path| [vec![path.clone()], below(path)].concat()).collect()
}

/// Checks a copy of the journal in a folder, as opening a journal changes it.
fn check_journal_in(folder: &Path) {
    let copies = TempDir::with_prefix("eyas-journal-").expect("a temporary folder");
    let mut names: Vec<PathBuf> = ["journal.redb", "journal.mark"].map(PathBuf::from).into();
    if let Ok(outputs) = fs::read_dir(folder.join("journal.output")) {
        fs::create_dir(copies.path().join("journal.output")).expect("our own folder");
        names.extend(
            outputs.flatten().map(|file| Path::new("journal.output").join(file.file_name())),
        );
    }
    for name in names.iter().filter(|name| folder.join(name).exists()) {
        fs::copy(folder.join(name), copies.path().join(name)).expect("our own folder");
    }
    let checked = eyas_dispatcher::check_journal(&copies.path().join("journal.redb"));
    checked.unwrap_or_else(|e| panic!("the journal in {} is not sound: {e}", folder.display()));
}

fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("eyas can be started")
}

/// Waits for the end of a command.
#[track_caller]
pub fn finish(mut child: Child) -> CommandOutput {
    fn read(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
        let mut pipe = pipe.expect("piped");
        thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).expect("a pipe can be read");
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    let mut status = None;
    let deadline = std::time::Instant::now() + super::DEADLINE;
    while status.is_none() && std::time::Instant::now() < deadline {
        status = child.try_wait().expect("our own child");
        thread::sleep(std::time::Duration::from_millis(2));
    }
    if status.is_none() {
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        panic!(
            "eyas did not end in time; it said:\n{}{}",
            stdout.join().unwrap(),
            stderr.join().unwrap()
        );
    }
    let status = status.expect("just looked at");
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    CommandOutput {
        code,
        stdout: stdout.join().expect("no panic"),
        stderr: stderr.join().expect("no panic"),
    }
}

impl CommandOutput {
    /// Checks the exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Checks that standard error contains all of these texts.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in stderr:\n{}", self.stderr);
        }
        self
    }

    /// Reads standard output as JSON, checks its schema version, and returns the value under
    /// `name`.
    #[track_caller]
    pub fn json(&self, name: &str) -> Value {
        let mut value: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|e| {
            panic!("not JSON ({e}):\n{}\nstderr:\n{}", self.stdout, self.stderr)
        });
        assert_eq!(value["schema_version"], 1, "{value}");
        assert!(value.get(name).is_some(), "no `{name}` in {value}");
        value[name].take()
    }
}
