//! `eyas web`, over plain sockets: the API has the answers of the command line, streams of events
//! go on where they were, and no request of another site comes in.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Cluster, DEADLINE, finish, signal, wait_for, wait_until};

/// A task that ends when the file `go` is there.
const WAITS: &str =
    "[[task]]\ncommand = [\"sh\", \"-c\", \"until [ -e go ]; do sleep 0.02; done\"]\n";
pub(crate) const TOML: &str = "application/toml";

/// `eyas web` of a cluster, on a free port.
pub(crate) struct WebProcess {
    child: Option<Child>,
    pub address: String,
    pub token: String,
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Reply {
    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The code of an error, which also says what failed and what to do.
    #[track_caller]
    pub fn code(&self) -> String {
        let error = &self.json()["error"];
        let has_words = |name: &str| error[name].as_str().is_some_and(|words| !words.is_empty());
        assert!(has_words("message") && has_words("hint"), "{self:?}");
        error["code"].as_str().expect("a code").to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

/// Sends a request, and reads the answer to its end.
#[track_caller]
fn exchange(mut stream: impl Read + Write, request: &str) -> Reply {
    // The server may refuse a request, and close, before it has read all of it.
    let _ = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Reply { status: status.expect("a status"), head: head.to_owned(), body: body.to_owned() }
}

impl WebProcess {
    #[track_caller]
    pub fn start(cluster: &Cluster) -> Self {
        WebProcess::of(cluster.spawn_on(&["web"]))
    }

    /// A process that has just been started.
    #[track_caller]
    pub fn of(mut child: Child) -> Self {
        let mut web = WebProcess::line_of(&mut child);
        web.child = Some(child);
        web
    }

    /// The server of a process that has just been started, which the test ends itself.
    #[track_caller]
    pub fn line_of(child: &mut Child) -> Self {
        WebProcess::at(&first_line(child))
    }

    /// The server that a line tells of.
    #[track_caller]
    pub fn at(line: &str) -> Self {
        let url = line.trim_end().strip_prefix("eyas web: http://");
        let url = url.unwrap_or_else(|| panic!("{line}"));
        let (address, token) = url.split_once("/?token=").expect("a token");
        WebProcess { address: address.to_owned(), token: token.to_owned(), child: None }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("an open socket");
        stream
    }

    /// Sends a request with these headers alone.
    #[track_caller]
    pub fn raw(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
        let mut lines = headers.join("\r\n");
        if !lines.is_empty() {
            lines += "\r\n";
        }
        if !headers.iter().any(|header| header.starts_with("Host:")) {
            lines += &format!("Host: {}\r\n", self.address);
        }
        if !headers.iter().any(|header| header.starts_with("Content-Length:")) {
            lines += &format!("Content-Length: {}\r\n", body.len());
        }
        let request = format!("{method} {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n{body}");
        exchange(self.connect(), &request)
    }

    fn bearer(&self) -> String {
        format!("Authorization: Bearer {}", self.token)
    }

    /// Sends a request with the token.
    #[track_caller]
    pub fn send(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
        let bearer = self.bearer();
        self.raw(method, path, &[&[&*bearer], headers].concat(), body)
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    #[track_caller]
    pub fn api(&self, path: &str) -> Value {
        self.get(&format!("/api/v1{path}")).is(200).json()
    }

    /// Submits a job of this kind. Returns its id.
    #[track_caller]
    pub fn submit(&self, kind: &str, job: &str) -> u64 {
        let kind = format!("Content-Type: {kind}");
        let reply = self.send("POST", "/api/v1/jobs", &[&kind], job).is(201);
        let job = reply.json()["job"].as_u64().expect("an id");
        assert_eq!(reply.header("location"), Some(&*format!("/api/v1/jobs/{job}")));
        job
    }

    /// Opens a stream of events.
    pub fn stream(&self, path: &str, headers: &[&str]) -> EventLines {
        self.open_stream(path, &self.bearer(), headers)
    }

    /// The same with another token.
    pub fn stream_with(&self, path: &str, token: &str) -> EventLines {
        self.open_stream(path, &format!("Authorization: Bearer {token}"), &[])
    }

    fn open_stream(&self, path: &str, bearer: &str, headers: &[&str]) -> EventLines {
        let mut stream = self.connect();
        let headers = [&[bearer], headers].concat().join("\r\n");
        // Without chunks, as HTTP/1.0 has none.
        let head =
            format!("GET /api/v1{path} HTTP/1.0\r\nHost: {}\r\n{headers}\r\n\r\n", self.address);
        stream.write_all(head.as_bytes()).expect("it reads");
        EventLines { lines: BufReader::new(stream) }
    }
}

impl Drop for WebProcess {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        signal(child.id(), Signal::TERM);
        let ended = child.wait().expect("our own child");
        assert!(std::thread::panicking() || ended.code() == Some(0), "{ended:?}");
    }
}

#[track_caller]
fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let output = child.stdout.as_mut().expect("piped");
    let read = BufReader::new(output).read_line(&mut line).expect("a pipe can be read");
    if read > 0 && line.ends_with('\n') {
        return line.trim_end().to_owned();
    }
    panic!("it ended: {line:?}");
}

pub(crate) struct EventLines {
    lines: BufReader<TcpStream>,
}

/// An event of a stream.
#[derive(Debug)]
pub(crate) struct StreamEvent {
    name: String,
    id: Option<String>,
    pub data: Value,
}

impl EventLines {
    /// The next event; `None` at the end.
    #[track_caller]
    pub fn next(&mut self) -> Option<StreamEvent> {
        let (mut name, mut id, mut data) = (String::new(), None, None);
        let deadline = Instant::now() + DEADLINE;
        loop {
            // Comments come while there are no events.
            assert!(Instant::now() < deadline, "there is no event");
            let mut line = String::new();
            if self.lines.read_line(&mut line).expect("an event in time") == 0 {
                return None;
            }
            match (line.trim_end().split_once(": "), data.is_some()) {
                (Some(("event", value)), _) => name = value.to_owned(),
                (Some(("id", value)), _) => id = Some(value.to_owned()),
                (Some(("data", value)), _) => data = serde_json::from_str(value).ok(),
                (None, true) => return Some(StreamEvent { name, id, data: data.take()? }),
                _ => {}
            }
        }
    }

    /// Skips events until one has this name.
    #[track_caller]
    pub fn until(&mut self, name: &str) -> StreamEvent {
        loop {
            let event = self.next().unwrap_or_else(|| panic!("the stream ended before `{name}`"));
            if event.name == name {
                return event;
            }
        }
    }
}

/// The answer of a command with `--json`.
#[track_caller]
fn printed(cluster: &Cluster, words: &[&str]) -> Value {
    let done = cluster.run(&[&["--json"], words].concat()).exits(0);
    serde_json::from_str(&done.stdout).expect("JSON")
}

/// Leaves out what differs from one moment to the next.
fn without_moments(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        if let Some(fields) = value.as_object_mut() {
            fields.remove("silent_us");
        }
        let inner = value.as_object_mut().into_iter().flat_map(|fields| fields.values_mut());
        inner.for_each(walk);
        value.as_array_mut().into_iter().flatten().for_each(walk);
    }
    walk(&mut value);
    value
}

#[test]
fn a_job_is_submitted_watched_and_shown_as_the_command_line_shows_it() {
    let cluster = Cluster::start(&[&["--slots", "2"]]);
    let web = WebProcess::start(&cluster);
    cluster.write("in.txt", "one\ntwo\n");
    let script = "until [ -e go ]; do sleep 0.02; done; wc -l < $0; echo oops >&2";
    let job = json!({ "name": "lines", "task": [
        { "command": ["sh", "-c", script, "{}"], "each": ["in.txt"] },
        { "id": "bad", "command": ["sh", "-c", "exit 3"] },
    ] });
    assert_eq!(web.submit("application/json; charset=utf-8", &job.to_string()), 1);
    let mut events = web.stream("/jobs/1/events", &[]);
    assert_eq!(events.until("job").data["state"], "running");
    wait_until("a task has failed", || web.api("/jobs/1")["jobs"][0]["tasks"]["failed"] == 1);
    cluster.write("go", "");
    let over = events.until("over").data;
    assert!(over["state"] == "failed" && over["tasks"]["succeeded"] == 1, "{over}");
    assert!(events.next().is_none(), "the stream ends with the job");
    assert_eq!(web.submit(TOML, "[[task]]\ncommand = [\"echo\", \"2\"]\n"), 2);
    assert_eq!(web.submit("application/x-ndjson", "{\"command\": [\"true\"]}\n"), 3);
    cluster.run(&["job", "wait", "2", "3"]).exits(0);

    for (path, words) in [
        ("/jobs/1", &["job", "show", "1"][..]),
        ("/jobs/1/graph", &["job", "graph", "1"]),
        ("/jobs/1/report", &["report", "1"]),
        ("/jobs/1/tasks/0", &["task", "show", "1.0"]),
        ("/jobs/1/tasks/0/log", &["task", "log", "1.0"]),
        ("/jobs/1/tasks/1/explanation", &["explain", "1.1"]),
        ("/executors", &["executor", "list"]),
        ("/pools", &["pool", "list"]),
    ] {
        // What an executor reports may come a moment after the end of a job.
        wait_for((path, words), || {
            let [api, command] = [web.api(path), printed(&cluster, words)].map(without_moments);
            (api == command).then_some(())
        });
    }
    let jobs = web.api("/jobs");
    assert_eq!(jobs["jobs"], printed(&cluster, &["job", "list"])["jobs"]);
    let tasks = web.api("/jobs/1/tasks");
    assert_eq!(tasks["tasks"], printed(&cluster, &["task", "list", "1"])["tasks"]);
    let [stdout, stderr] = ["stdout", "stderr"].map(|stream| {
        let reply = web.get(&format!("/api/v1/jobs/1/tasks/0/{stream}")).is(200);
        assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        reply.body
    });
    assert_eq!((&*stdout, &*stderr), ("2\n", "oops\n"));
    assert_eq!(web.api("/status")["status"]["jobs"]["failed"], 1);

    let post = |path: &str| web.send("POST", &format!("/api/v1{path}"), &[], "");
    assert_eq!(post("/jobs/1/retry").is(200).json()["tasks"], 1);
    cluster.run(&["job", "wait", "1"]).exits(1);
    web.send("DELETE", "/api/v1/jobs/1", &[], "").is(200);
    assert_eq!(web.get("/api/v1/jobs/1").is(404).code(), "not-found");
    web.submit(TOML, &WAITS.replace("go", "gone"));
    assert_eq!(post("/jobs/4/cancel").is(200).json()["tasks"], 1);
    wait_until("it has ended", || web.api("/jobs/4")["jobs"][0]["state"] == "cancelled");
}

#[test]
fn tasks_are_filtered_sorted_and_paged() {
    let cluster = Cluster::start(&[&["--slots", "4"]]);
    let web = WebProcess::start(&cluster);
    let job = "[[task]]\narray = \"1-30\"\n\
               command = [\"sh\", \"-c\", \"until [ -e go ]; do sleep 0.02; done; \
               [ $0 != 7 ] && [ $0 != 17 ]\", \"{}\"]\n";
    web.submit(TOML, job);
    let matches = |query: &str| web.api(&format!("/jobs/1/tasks?{query}"))["matches"].as_u64();
    assert_eq!(matches("state=succeeded,failed"), Some(0));
    cluster.write("go", "");
    cluster.run(&["job", "wait", "1"]).exits(1);
    // The job itself may be that of a moment ago.
    let has_all = || matches("state=succeeded,failed") == Some(30);
    wait_until("the end of a job makes a new index", has_all);
    let list = |query: &str| {
        let page = web.api(&format!("/jobs/1/tasks?{query}"));
        let tasks = page["tasks"].as_array().expect("a list").iter();
        let indexes: Vec<u64> = tasks
            .map(|task| task["task"].as_str().and_then(|task| task.split('.').nth(1)))
            .map(|index| index.and_then(|index| index.parse().ok()).expect("an index"))
            .collect();
        (indexes, page["next"].as_u64(), page["matches"].as_u64())
    };
    assert_eq!(list("limit=3"), (vec![0, 1, 2], Some(3), None));
    assert_eq!(list("limit=3&cursor=27"), (vec![27, 28, 29], None, None));
    assert_eq!(list("state=failed"), (vec![6, 16], None, None));
    assert_eq!(list("state=failed,succeeded&limit=2"), (vec![0, 1], Some(2), Some(30)));
    assert_eq!(list("state=succeeded&limit=2&cursor=26"), (vec![28, 29], None, Some(28)));
    assert_eq!(list("sort=index&order=descending&limit=2"), (vec![29, 28], Some(2), Some(30)));
    let (slowest, next, _) = list("sort=ran_us&order=descending&limit=10");
    assert_eq!((slowest.len(), next), (10, Some(10)));
    assert_eq!(list("state=failed&text=17&sort=ran_us").0, [16]);
    for wrong in ["sort=x", "limit=x", "colour=red", "cursor=-1"] {
        let reply = web.get(&format!("/api/v1/jobs/1/tasks?{wrong}")).is(400);
        assert_eq!(reply.code(), "wrong-request");
    }
    for missing in ["/jobs/9", "/jobs/1/tasks/99", "/jobs/9/events", "/pools/none"] {
        web.get(&format!("/api/v1{missing}")).is(404).code();
    }
}

#[test]
fn a_stream_of_events_continues_after_the_last_id_or_tells_of_a_gap() {
    let mut cluster = Cluster::start(&[&[]]);
    let web = WebProcess::start(&cluster);
    let mut events = web.stream("/events", &[]);
    assert_eq!(events.until("event").data["kind"], "executor-joined");
    web.submit(TOML, "[[task]]\ncommand = [\"true\"]\n");
    let submitted = events.until("event");
    assert_eq!(submitted.data["kind"], "job-submitted");
    let ended = events.until("event");
    assert_eq!(ended.data["kind"], "job-ended");
    let id = submitted.id.expect("an id");
    let mut later = web.stream("/events", &[&format!("Last-Event-ID: {id}")]);
    assert_eq!(later.until("event").id, ended.id, "it continues behind the last one");
    web.submit(TOML, "[[task]]\ncommand = [\"true\"]\n");
    let [here, there] = [&mut events, &mut later].map(|stream| stream.until("event"));
    assert_eq!((&here.id, &here.data), (&there.id, &there.data), "all readers get the same");
    // Only what happens from now on, and the state.
    let mut live = web.stream("/events?after=now&include=state", &[]);
    assert_eq!(live.until("dispatcher").data["is_connected"], true);
    assert_eq!(live.until("jobs").data["jobs"].as_array().expect("jobs").len(), 2);
    assert_eq!(live.until("executors").data[0]["name"], "n1");
    // A dispatcher that starts again numbers its events anew.
    cluster.restart_dispatcher();
    assert_eq!(live.until("dispatcher").data["is_connected"], false);
    assert_eq!(live.until("gap").data["do"], "reload");
    assert_eq!(live.until("dispatcher").data["is_connected"], true);
    let mut late = web.stream("/events", &[&format!("Last-Event-ID: {id}")]);
    late.until("gap");
    web.raw("GET", "/api/v1/events?after=x", &[&web.bearer()], "").is(400);
    cluster.wait_for_executors(1);
}

#[test]
fn requests_of_other_sites_are_refused() {
    let cluster = Cluster::start(&[]);
    let web = WebProcess::start(&cluster);
    web.submit(TOML, WAITS);
    let port = web.address.rsplit(':').next().expect("a port");
    let (bearer, cookie) = (web.bearer(), format!("Cookie: eyas-web-{port}={}", web.token));
    // A name of another site that resolves to this machine.
    for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1", "localhost:1", ""] {
        for path in ["/api/v1/jobs", "/", "/healthz", &format!("/?token={}", web.token)] {
            let reply = web.raw("GET", path, &[&format!("Host: {host}"), &bearer], "").is(403);
            assert!(reply.header("set-cookie").is_none(), "{reply:?}");
        }
    }
    web.raw("GET", "/api/v1/jobs", &[&format!("Host: localhost:{port}"), &bearer], "").is(200);
    // Another server on this machine is of the same site, so that the browser sends the cookie.
    let own = format!("Origin: http://{}", web.address);
    for (method, path) in [("DELETE", "/api/v1/jobs/1"), ("POST", "/api/v1/jobs/1/cancel")] {
        for sent in [
            &["Origin: http://127.0.0.1:1"][..],
            &["Origin: http://evil.example"],
            &["Origin: null"],
            &[&own, "Sec-Fetch-Site: same-site"],
            &["Sec-Fetch-Site: cross-site"],
            &[],
        ] {
            let reply = web.raw(method, path, &[&[&*cookie], sent].concat(), "").is(403);
            assert_eq!(reply.code(), "foreign-origin");
        }
        let reply = web.raw(method, path, &[&bearer, "Origin: http://evil.example"], "");
        assert_eq!(reply.is(403).code(), "foreign-origin");
    }
    let read = |site: &str| web.raw("GET", "/api/v1/jobs", &[&cookie, site], "");
    read("Sec-Fetch-Site: same-site").is(403);
    let reply = read("Sec-Fetch-Site: same-origin").is(200);
    assert!(!reply.head.to_lowercase().contains("access-control-"), "there is no CORS: {reply:?}");
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.json()["jobs"][0]["state"], "running", "nothing was cancelled");
    web.raw("POST", "/api/v1/jobs/1/cancel", &[&cookie, &own], "").is(200);
}

#[test]
fn the_token_is_exchanged_for_a_cookie_and_wrong_ones_are_refused() {
    let cluster = Cluster::start(&[]);
    let (web, other) = (WebProcess::start(&cluster), WebProcess::start(&cluster));
    assert_ne!(web.token, other.token);
    let path = format!("/jobs/1?token={}&state=failed", web.token);
    let reply = web.raw("GET", &path, &[], "").is(303);
    assert_eq!(reply.header("location"), Some("/jobs/1?state=failed"));
    assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
    let cookie = reply.header("set-cookie").expect("a cookie").to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict; Path=/"), "{cookie}");
    let pair = cookie.split(';').next().expect("a pair");
    let port = web.address.rsplit(':').next().expect("a port");
    assert!(pair.starts_with(&format!("eyas-web-{port}=")), "{pair}");
    // The cookie of another port, which a browser sends too, changes nothing.
    let both = format!("Cookie: a=b; eyas-web-1=x; {pair}");
    let page = web.raw("GET", "/jobs/1?state=failed", &[&both], "").is(200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(!page.body.contains(&web.token));
    web.raw("GET", "/page/app.js", &[&both], "").is(200);

    let none = web.raw("GET", "/api/v1/jobs", &[], "").is(401);
    assert_eq!(none.code(), "no-token");
    assert!(web.raw("GET", "/", &[], "").is(401).body.contains("open the URL"));
    let wrong = |headers: &[&str]| web.raw("GET", "/api/v1/jobs", headers, "");
    let of_other = format!("Authorization: Bearer {}", other.token);
    assert_eq!(wrong(&[&of_other]).is(401).code(), "wrong-token");
    assert_eq!(wrong(&[&format!("Cookie: eyas-web-{port}=x")]).is(401).code(), "wrong-token");
    web.raw("GET", &format!("/?token={}", other.token), &[], "").is(401);
    web.raw("POST", &format!("/?token={}", web.token), &[], "").is(401);
    wait_until("wrong tokens are limited", || wrong(&[&of_other]).status == 429);
    web.get("/api/v1/jobs").is(200);
    for open in ["/healthz", "/readyz"] {
        wait_until(open, || web.raw("GET", open, &[], "").status == 200);
    }
    assert_eq!(web.raw("GET", "/metrics", &[], "").is(401).code(), "no-token");
    let metrics = web.get("/metrics").is(200);
    assert!(metrics.body.contains("\neyas_dispatcher_up 1\n"), "{metrics:?}");
    assert!(!metrics.body.contains("# EOF"), "the text format has no end");
    let accept = "Accept: application/openmetrics-text; version=1.0.0, text/plain;q=0.5";
    let token = format!("Authorization: Bearer {}", web.token);
    let metrics = web.raw("GET", "/metrics", &[&token, accept], "").is(200);
    assert!(metrics.body.ends_with("# EOF\n"), "{metrics:?}");
    assert!(web.get("/monitoring/alerts.yaml").is(200).body.contains("eyas_dispatcher_up == 0"));
    assert!(web.get("/monitoring/dashboard.json").is(200).body.contains("eyas_input_bytes_total"));

    cluster.run(&["web", "--listen", "0.0.0.0:0"]).exits(1).says(&["--allow-host"]);
    cluster.run(&["web", "--listen", "nowhere"]).exits(2).says(&["unix:PATH"]);
}

#[test]
fn a_unix_socket_needs_no_token_and_only_its_user_opens_it() {
    let cluster = Cluster::start(&[]);
    let mut child = cluster.spawn_on(&["web", "--listen", "unix:web.sock"]);
    assert_eq!(first_line(&mut child), "eyas web: unix:web.sock");
    let path = cluster.work().join("web.sock");
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let ask = |head: &str| {
        let stream = UnixStream::connect(&path).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("an open socket");
        let request = format!("{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        exchange(stream, &request)
    };
    assert_eq!(ask("GET /api/v1/jobs HTTP/1.1").is(200).json()["jobs"], json!([]));
    let foreign = "DELETE /api/v1/jobs/1 HTTP/1.1\r\nOrigin: http://evil.example";
    assert_eq!(ask(foreign).is(403).code(), "foreign-origin");
    cluster.run(&["web", "--listen", "unix:web.sock"]).exits(1).says(&["in use"]);
    signal(child.id(), Signal::TERM);
    finish(child).exits(0);
    assert_eq!(cluster.names("."), Vec::<String>::new());
}

#[test]
fn the_server_has_the_rights_of_its_access_file() {
    let cluster = Cluster::start(&[]);
    cluster.run(&["access", "show", "--role", "read", "-o", "read.toml"]).exits(0);
    let web = WebProcess::of(cluster.spawn(&["--access", "read.toml", "web"]));
    assert_eq!(web.api("/jobs")["jobs"], json!([]));
    let kind = format!("Content-Type: {TOML}");
    let reply = web.send("POST", "/api/v1/jobs", &[&kind], WAITS).is(403);
    assert_eq!(reply.code(), "not-permitted");
    assert_eq!(web.send("DELETE", "/api/v1/jobs/1", &[], "").is(403).code(), "not-permitted");
    assert_eq!(web.api("/jobs")["jobs"], json!([]), "the connection goes on");
}

#[test]
fn a_lost_dispatcher_is_told_and_found_again() {
    let mut cluster = Cluster::start(&[&[]]);
    let web = WebProcess::start(&cluster);
    wait_until("it is ready", || web.get("/readyz").status == 200);
    web.submit(TOML, "[[task]]\ncommand = [\"true\"]\n");
    let failed = cluster.restart_dispatcher_after(|_| {
        wait_until("the loss is seen", || web.get("/readyz").status == 503);
        let reply = web.get("/api/v1/jobs").is(503);
        assert_eq!(reply.code(), "dispatcher-away");
        assert_eq!(reply.header("retry-after"), Some("1"));
        let kind = format!("Content-Type: {TOML}");
        let job = "[[task]]\ncommand = [\"true\"]\n";
        web.send("POST", "/api/v1/jobs", &[&kind], job).is(503);
        web.get("/healthz").is(200);
        assert!(web.get("/metrics").is(200).body.contains("\neyas_dispatcher_up 0\n"));
        web.get("/").is(200);
    });
    assert!(failed.is_none(), "{failed:?}");
    wait_until("it is back", || web.get("/readyz").status == 200);
    let jobs = wait_for("jobs", || {
        let reply = web.get("/api/v1/jobs");
        (reply.status == 200).then(|| reply.json()["jobs"].clone())
    });
    assert_eq!(jobs[0]["job"], 1);
    cluster.wait_for_executors(1);
}

#[test]
fn bad_requests_are_refused_with_what_to_do() {
    let cluster = Cluster::start(&[]);
    let web = WebProcess::start(&cluster);
    let submit = |headers: &[&str], body: &str| web.send("POST", "/api/v1/jobs", headers, body);
    let (toml, json) = ("Content-Type: application/toml", "Content-Type: application/json");
    // Refused by its length, before a byte is read.
    let reply = submit(&[toml, "Content-Length: 1000000000"], "").is(413);
    assert_eq!(reply.code(), "too-large");
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "#".repeat(1 << 20));
    let head = ["Transfer-Encoding: chunked", &web.bearer(), toml].join("\r\n");
    let chunks = chunk.repeat(9);
    let request = format!(
        "POST /api/v1/jobs HTTP/1.1\r\nHost: {}\r\n{head}\r\n\r\n{chunks}0\r\n\r\n",
        web.address
    );
    let mut stream = web.connect();
    let sent = stream.write_all(request.as_bytes());
    let mut answer = [0; 12];
    match stream.read_exact(&mut answer) {
        Ok(()) => assert_eq!(&answer, b"HTTP/1.1 413"),
        // It was closed while it was still being sent.
        Err(_) => assert!(sent.is_err() || web.api("/jobs")["jobs"] == json!([])),
    }
    assert_eq!(submit(&[toml, "Content-Encoding: gzip"], "").is(415).code(), "wrong-encoding");
    assert_eq!(submit(&[], WAITS).is(415).code(), "wrong-content-type");
    for (kind, body) in [
        (toml, "[[task]]\ncolour = 1\n"),
        (toml, "name = \"empty\"\n"),
        (toml, "not toml"),
        (json, "{\"task\": [{}]}"),
        (json, "{\"task\": null}"),
        (json, "[]"),
    ] {
        assert_eq!(submit(&[kind], body).is(422).code(), "wrong-job", "{body}");
    }
    let deep = "[".repeat(100_000);
    submit(&[json], &deep).is(422);
    assert_eq!(web.get("/api/v1/none").is(404).code(), "no-such-path");
    assert_eq!(web.send("PUT", "/api/v1/jobs", &[], "").is(405).code(), "wrong-method");
    assert_eq!(web.get("/api/v1/jobs/%ff").is(400).code(), "wrong-request");
    assert_eq!(web.get("/api/v1/catalog?object=x").is(400).code(), "wrong-request");
    assert_eq!(web.api("/jobs")["jobs"], json!([]), "nothing was submitted");
    // A client that sends half of a head delays no other client.
    let mut slow = web.connect();
    slow.write_all(b"GET / HTTP/1.1\r\nHost:").expect("it reads");
    web.get("/api/v1/jobs").is(200);

    let name = "</script><script>alert(1)</script>\u{2028}\"'&\n";
    let job = json!({ "name": name, "task": [
        { "command": ["sh", "-c", "until [ -e go ]; do sleep 0.02; done", name] },
    ] });
    web.submit("application/json", &job.to_string());
    let reply = web.get("/api/v1/jobs").is(200);
    assert_eq!(reply.json()["jobs"][0]["name"], name);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    let mut live = web.stream("/events?include=state", &[]);
    assert_eq!(live.until("jobs").data["jobs"][0]["name"], name, "one event has the whole name");
    for path in ["/", "/jobs/1"] {
        assert!(!web.get(path).is(200).body.contains("alert"), "the page has no data in it");
    }
}

#[test]
fn the_document_of_the_api_has_the_paths_that_are_served() {
    let cluster = Cluster::start(&[&[]]);
    let web = WebProcess::start(&cluster);
    let document = web.api("/openapi.json");
    let mut count = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, route) in methods.as_object().expect("methods") {
            count += 1;
            let path = path
                .replace("{job}", "1")
                .replace("{index}", "0")
                .replace("{pool}", "p")
                .replace("{executor}", "n9");
            let required = route["parameters"].as_array().expect("a list").iter();
            let query: Vec<_> = required
                .filter(|named| named["in"] == "query" && named["required"] == true)
                .map(|named| format!("{}=x", named["name"].as_str().expect("a name")))
                .collect();
            let url = format!("{path}?{}", query.join("&"));
            if route["responses"]["200"]["content"].get("text/event-stream").is_some() {
                continue;
            }
            let reply = web.send(&method.to_uppercase(), &url, &[], "");
            let is_known =
                reply.status < 400 || !["no-such-path", "wrong-method"].contains(&&*reply.code());
            assert!(is_known && reply.status < 500, "{method} {url}: {reply:?}");
        }
    }
    assert!(count > 20, "{count} paths");
}

#[test]
fn many_readers_have_one_connection_to_the_dispatcher() {
    let cluster = Cluster::start(&[&[]]);
    let web = WebProcess::start(&cluster);
    let process = web.child.as_ref().expect("it runs").id();
    let sockets = || {
        let files = std::fs::read_dir(format!("/proc/{process}/fd")).expect("our own process");
        let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    };
    // A connection that is being opened or closed has more sockets than one that is open.
    let settled = || {
        let (mut count, mut looks) = (0, 0);
        wait_for("no connection begins or ends", || {
            let now = sockets();
            looks = if now == count { looks + 1 } else { 0 };
            count = now;
            (looks == 50).then_some(now)
        })
    };
    wait_until("the dispatcher is connected", || web.get("/readyz").status == 200);
    let mut first = web.stream("/events?include=state", &[]);
    first.until("executors");
    let before = settled();
    let mut others: Vec<_> = (0..40).map(|_| web.stream("/events?include=state", &[])).collect();
    others.iter_mut().for_each(|stream| drop(stream.until("executors")));
    assert_eq!(settled(), before + 40, "each reader has its own connection, and no other");
    web.submit(TOML, "[[task]]\ncommand = [\"true\"]\n");
    for stream in others.iter_mut().chain([&mut first]) {
        let ended = |stream: &mut EventLines| stream.until("jobs").data["jobs"][0]["state"].clone();
        while ended(stream) != "succeeded" {}
    }
    // Readers that are gone are forgotten.
    drop(others);
    wait_until("connections end", || sockets() <= before);
}
