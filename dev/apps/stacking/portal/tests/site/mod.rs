//! A site for tests: a cluster of two nodes, `eyas web`, surveys and the portal, in a folder of its
//! own. All processes end with it.

// Each file of tests uses a part of it.
#![allow(dead_code)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::{Client, Method, RequestBuilder, StatusCode};
use tempfile::TempDir;

/// Everything that is waited for comes within this time.
const DEADLINE: Duration = Duration::from_secs(90);
const CLUSTER: &str = "site";

/// A program of the build: beside the portal.
fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_astroportal")).with_file_name(name)
}

/// The programs that tests need.
pub struct Programs {
    /// Of the build, or of `EYAS_BIN`.
    pub eyas: PathBuf,
}

impl Programs {
    /// The programs, if they were built; else that is said, and in CI it is a failure.
    pub fn found() -> Option<Self> {
        let eyas = std::env::var_os("EYAS_BIN").map_or_else(|| program("eyas"), PathBuf::from);
        let programs = Programs { eyas };
        match programs.all().into_iter().find(|(_, path)| !path.exists()) {
            None => Some(programs),
            Some((_, missing)) => {
                let missing = missing.display();
                assert!(std::env::var_os("CI").is_none(), "{missing} is missing");
                eprintln!("SKIPPED: {missing} is missing: build the workspace, or set EYAS_BIN");
                None
            }
        }
    }

    /// Their names and paths.
    pub fn all(&self) -> [(&'static str, PathBuf); 4] {
        let built = |name| (name, program(name));
        [("eyas", self.eyas.clone()), built("stack"), built("survey"), built("astroportal")]
    }
}

/// The value of an element of UWS.
pub fn value_of<'a>(document: &'a str, name: &str) -> &'a str {
    let begin = format!("<uws:{name}>");
    let rest = document.split_once(&*begin).map_or("", |(_, rest)| rest);
    rest.split_once('<').map_or("", |(value, _)| value)
}

/// A process that ends with its owner.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An answer over HTTP.
pub struct Answer {
    pub status: StatusCode,
    pub bytes: Vec<u8>,
    headers: reqwest::header::HeaderMap,
}

impl Answer {
    /// Sends a request; `None` if the connection ends before the answer.
    pub async fn of(request: RequestBuilder) -> Option<Self> {
        let response = request.send().await.ok()?;
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.ok()?.to_vec();
        Some(Answer { status, bytes, headers })
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Where the answer leads to.
    #[track_caller]
    pub fn location(&self, status: u16) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        self.header("location").to_owned()
    }
}

/// A site.
pub struct Site {
    folder: TempDir,
    programs: Programs,
    client: Client,
    surveys: String,
    stack: PathBuf,
    url: String,
    web_port: String,
    web_url: String,
    portal: Option<Process>,
    web: Option<Process>,
    executors: Vec<Process>,
    dispatcher: Option<Process>,
}

impl Site {
    /// Starts a cluster and its web; `None`, which is said, if `eyas` was not built.
    #[track_caller]
    pub fn new() -> Option<Self> {
        let programs = Programs::found()?;
        let folder = tempfile::tempdir().unwrap();
        let client = Client::builder().redirect(reqwest::redirect::Policy::none());
        // A connection that is kept would end with a portal that is killed.
        let client = client.pool_max_idle_per_host(0);
        // The client reads nothing with TLS, but wants a provider of ciphers.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut site = Site {
            folder,
            programs,
            client: client.no_proxy().build().unwrap(),
            surveys: String::new(),
            stack: program("stack"),
            url: String::new(),
            web_port: "0".into(),
            web_url: String::new(),
            portal: None,
            web: None,
            executors: Vec::new(),
            dispatcher: None,
        };
        site.start_dispatcher();
        for name in ["n1", "n2"] {
            let own = site.path(name);
            let mut command = site.eyas(&["start", "executor", "--name", name, "--slots", "1"]);
            command.args(["--keep-free", "10MB", "--folder"]).arg(own);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            site.executors.push(Process(command.spawn().unwrap()));
        }
        site.start_web();
        let words = ["web", "token", "create", "--scope", "submit", "--expires", "1d", "portal"];
        let made = site.eyas(&words).output().unwrap();
        assert!(made.status.success());
        fs::write(site.path("cluster.token"), made.stdout).unwrap();
        Some(site)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    fn eyas(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.programs.eyas);
        command.args(["--cluster", CLUSTER]).args(words).stdin(Stdio::null());
        command.env("EYAS_HOME", self.path("home")).env("TMPDIR", self.folder.path());
        command
            .env_remove("EYAS_CLUSTER")
            .env_remove("EYAS_ACCESS")
            .current_dir(self.folder.path());
        command
    }

    fn start_dispatcher(&mut self) {
        let mut command = self.eyas(&["start", "dispatcher", "--listen", "127.0.0.1:0"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let is_ready = output.lines().any(|line| line.unwrap() == "ready");
        self.dispatcher = Some(Process(child));
        assert!(is_ready, "the dispatcher did not start");
    }

    /// Kills the dispatcher as a crash would, and starts it again in its folder.
    pub fn restart_dispatcher(&mut self) {
        self.dispatcher.take();
        self.start_dispatcher();
    }

    /// Starts `eyas web`; again, at the same address.
    pub fn start_web(&mut self) {
        let address = format!("127.0.0.1:{}", self.web_port);
        let (child, line) = self.started(self.eyas(&["web", "--listen", &address]));
        let url = line.strip_prefix("eyas web: ").and_then(|url| url.split_once("/?")).unwrap().0;
        self.web_port = url.rsplit(':').next().unwrap().to_owned();
        self.web_url = url.to_owned();
        self.web = Some(child);
    }

    pub fn kill_web(&mut self) {
        self.web.take();
    }

    /// Starts a program, and reads the line that it prints when it is ready.
    fn started(&self, mut command: Command) -> (Process, String) {
        let log = fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        command.stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let log = fs::read_to_string(self.path("log")).unwrap();
        assert!(!line.is_empty(), "{command:?} did not start: {log}");
        (Process(child), line.trim().to_owned())
    }

    /// Makes a survey with small frames, and its index.
    pub fn survey(&mut self, name: &str, words: &[&str]) {
        self.survey_in_band(name, words, None);
    }

    /// The same, of which all frames have a band.
    pub fn survey_in_band(&mut self, name: &str, words: &[&str], band: Option<&str>) {
        let folder = self.path(name);
        let mut command = Command::new(program("survey"));
        command.arg("--out").arg(&folder).args(["--size", "400x300"]).args(words);
        assert!(command.stdout(Stdio::null()).status().unwrap().success());
        let mut command = Command::new(program("stack"));
        command.current_dir(&folder).args(["index", "frames", "--out", "index"]);
        let key = band.map(|band| format!("band = \"{band}\"\nbands = [\"{band}\"]\n"));
        command.args(band.map(|band| format!("--band={band}")));
        assert!(command.stdout(Stdio::null()).status().unwrap().success());
        self.surveys += &format!(
            "[[survey]]\nname = \"{name}\"\nindex = \"{name}/index\"\npixel_scale = 0.396\n\
             quota = 100000\n{}",
            key.unwrap_or_default()
        );
    }

    /// From now on, tasks of `stack` wait for `release_tasks`; `find` does not.
    pub fn hold_tasks(&mut self) {
        let (script, place) = (self.path("stack.sh"), self.folder.path().display().to_string());
        let stack = self.stack.display().to_string();
        let text = format!(
            "#!/bin/sh\ncase $1 in --size) touch {place}/held-$$\n\
             until [ -e {place}/go ]; do sleep 0.02; done;; esac\nexec {stack} \"$@\"\n"
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        self.stack = script;
    }

    /// Tasks that have begun to wait.
    pub fn held(&self) -> usize {
        let names =
            fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("held-")).count()
    }

    pub fn release_tasks(&self) {
        fs::write(self.path("go"), "").unwrap();
    }

    /// Starts the portal; again, at the same address.
    pub fn start_portal(&mut self) {
        fs::write(self.path("surveys.toml"), &self.surveys).unwrap();
        let address = self.url.strip_prefix("http://").unwrap_or("127.0.0.1:0").to_owned();
        let mut command = Command::new(env!("CARGO_BIN_EXE_astroportal"));
        command.arg("serve").args(["--eyas", &self.web_url, "--listen", &address]);
        for (word, name) in
            [("--token-file", "cluster.token"), ("--surveys", "surveys.toml"), ("--state", "state")]
        {
            command.arg(word).arg(self.path(name));
        }
        command.arg("--work").arg(self.path("work")).arg("--stack").arg(&self.stack);
        let (child, line) = self.started(command);
        let url = line.strip_prefix("astroportal: ").unwrap().trim_end_matches('/');
        self.url = url.to_owned();
        self.portal = Some(child);
    }

    pub fn kill_portal(&mut self) {
        self.portal.take();
    }

    /// Runs `astroportal` with these words; `input` is its standard input.
    #[track_caller]
    pub fn portal_command(&self, words: &[&str], input: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_astroportal"));
        command.args(words).arg("--state").arg(self.path("state"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{words:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Runs `astroportal` with words that it refuses. Returns why.
    #[track_caller]
    pub fn refused_command(&self, words: &[&str], input: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_astroportal"));
        command.args(words).arg("--state").arg(self.path("state"));
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A command that is refused may end before it has read.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Adds an account, and returns a token of it.
    pub fn account(&self, name: &str, words: &[&str]) -> String {
        self.portal_command(&[&["account", "add", name], words].concat(), "password 1\n");
        self.portal_command(&["account", "token", name, "--role", "admin"], "")
    }

    /// A request to the portal; the path may be a whole URL.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let path = path.strip_prefix(&*self.url).unwrap_or(path);
        self.client.request(method, format!("{}{path}", self.url)).timeout(DEADLINE)
    }

    pub async fn send(&self, method: Method, token: &str, path: &str) -> Answer {
        Answer::of(self.request(method, path).bearer_auth(token)).await.expect("an answer")
    }

    pub async fn get(&self, token: &str, path: &str) -> Answer {
        self.send(Method::GET, token, path).await
    }

    pub async fn post(&self, token: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut form = form_urlencoded::Serializer::new(String::new());
        for (name, value) in fields {
            form.append_pair(name, value);
        }
        let request = self.request(Method::POST, path).bearer_auth(token);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        Answer::of(request.body(form.finish())).await.expect("an answer")
    }

    /// Waits for the end of a job, by `WAIT`. Returns its document.
    pub async fn wait(&self, token: &str, job: &str) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            let document = self.get(token, &format!("{job}?WAIT=20")).await.text();
            if ["COMPLETED", "ERROR", "ABORTED"].contains(&value_of(&document, "phase")) {
                return document;
            }
            assert!(Instant::now() < end, "the job does not end: {document}\n{}", self.log());
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits for a fact.
    pub async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let end = Instant::now() + DEADLINE;
        while !is_so().await {
            assert!(Instant::now() < end, "in {DEADLINE:?}, not so: {what}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A time that has not come, as ISO 8601.
    pub fn in_a_day(&self) -> String {
        let time = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24);
        format!("{time:.0}")
    }

    /// Has the cluster forget a job.
    pub fn forget(&self, job: &str) {
        for words in [["job", "cancel", job], ["job", "forget", job]] {
            let done = self.eyas(&words).stdout(Stdio::null()).status().unwrap();
            assert!(done.success(), "{words:?}");
        }
    }

    /// Names and states of the jobs of the cluster.
    pub fn cluster_jobs(&self) -> Vec<(String, String)> {
        let output = self.eyas(&["--json", "job", "list"]).output().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let jobs = answer["jobs"].as_array().unwrap().iter();
        jobs.map(|job| (text(&job["name"]), text(&job["state"]))).collect()
    }

    /// The image that `stack` makes of the same tasks without a cluster and a portal.
    pub fn stack_alone(&self, survey: &str, list: &str, size: &str) -> Vec<u8> {
        let (folder, base) = (self.path(&format!("alone-{survey}")), self.path(survey));
        fs::create_dir_all(folder.join("partials")).unwrap();
        fs::write(folder.join("list.csv"), list).unwrap();
        let stack = || {
            let mut command = Command::new(program("stack"));
            command.current_dir(&base).stdout(Stdio::null());
            command
        };
        let run = |command: &mut Command| assert!(command.status().unwrap().success());
        let mut find = stack();
        find.args(["find", "--index", "index", "--size", size, "--keep-going", "--list"]);
        find.arg(folder.join("list.csv")).arg("--out-tasks").arg(folder.join("tasks.csv"));
        run(find.arg("--out-lists").arg(folder.join("lists")));
        let tasks = fs::read_to_string(folder.join("tasks.csv")).unwrap();
        for (number, task) in tasks.lines().enumerate() {
            let fields: Vec<&str> = task.split(',').collect();
            let partial = folder.join(format!("partials/{number:07}.fits"));
            let words = ["--size", size, "--hdu", fields[2], "--list", fields[1], fields[0]];
            run(stack().args(words).arg("--out").arg(partial));
        }
        let image = folder.join("image.fits");
        run(stack().arg("--sum").arg(folder.join("partials")).arg("--out").arg(&image));
        fs::read(image).unwrap()
    }
}
