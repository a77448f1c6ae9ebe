//! Every command ends with an exit code when its output cannot be written, and with any bytes as
//! arguments. The commands come from the command line's own tree: a new command needs a line in
//! [`words_of`].

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::support::{Cluster, CommandOutput, Home};

/// A name that is not UTF-8, and has bytes that would change the colour of a terminal.
const ODD: &[u8] = b"odd\xff\x1b[31m";
/// The exit code of a Rust program that has panicked, and of one that was aborted.
const PANICKED: [i32; 2] = [101, 134];
/// Exit code that a shell reports for a program that SIGPIPE has ended.
const BROKEN_PIPE: i32 = 141;

/// How a command is called.
struct Call {
    /// Arguments of the command.
    words: &'static [&'static str],
    /// Whether the command, once it has printed its first line, runs until it is stopped.
    serves: bool,
    /// Whether the command prints content of files or tasks, which is not escaped.
    passes_on: bool,
}

const fn call(words: &'static [&'static str]) -> Call {
    Call { words, serves: false, passes_on: false }
}

fn words_of(command: &str) -> Call {
    const fn serving(words: &'static [&'static str]) -> Call {
        Call { serves: true, ..call(words) }
    }
    const fn passing_on(words: &'static [&'static str]) -> Call {
        Call { passes_on: true, ..call(words) }
    }
    match command {
        "run" => passing_on(&["--report", "none", "--array", "1-3", "--", "echo", "{}"]),
        "submit" => call(&["job.jsonl"]),
        "job list" | "executor list" | "dfs ls" | "dfs du" | "dfs verify" | "dfs rebalance"
        | "io status" => call(&[]),
        "job graph" => call(&["1"]),
        "job show" | "job wait" | "job retry" | "task list" => call(&["1"]),
        "job get" => call(&["1", "--to", "got", "--force"]),
        "job cancel" | "job release" => call(&["2"]),
        // The job is still running, so that other commands find it.
        "job forget" => call(&["2"]),
        "task show" | "explain" => call(&["1.0"]),
        "task log" => passing_on(&["1.0"]),
        "task get" => call(&["1.0", "--to", "got", "--force"]),
        "task cancel" => call(&["2.0"]),
        "executor stop" => call(&["nobody"]),
        "pool add" => call(&["local", "third", "--max-nodes", "1"]),
        "pool list" => call(&[]),
        "pool show" | "pool pause" | "pool resume" | "pool remove" | "pool try" => call(&["third"]),
        "pool log" => passing_on(&["third"]),
        "catalog show" | "push" | "catalog import" => call(&["input"]),
        "catalog register" => call(&["name", "input"]),
        "catalog unregister" => call(&["none"]),
        "catalog query" => call(&[]),
        "dfs put" => call(&["input", "/put"]),
        "dfs append" => call(&["input", "/file"]),
        "dfs set" => call(&["--records", "lines", "/file"]),
        "dfs cp" => call(&["/file", "/copy"]),
        "dfs cat" => passing_on(&["/file"]),
        "dfs get" => call(&["/file", "brought", "--force"]),
        "dfs rm" => call(&["/none"]),
        "dfs show" | "dfs stat" => call(&["/file"]),
        "dfs mkdir" | "dfs rmdir" => call(&["/folder"]),
        "dfs audit" => call(&[]),
        "dfs quota set" => call(&["/none", "--files", "9"]),
        "dfs quota show" => call(&[]),
        "dfs quota remove" => call(&["/none"]),
        "dfs ln" => call(&["-s", "/file", "/link"]),
        "dfs chmod" => call(&["600", "/file"]),
        "dfs chown" => call(&["0:0", "/file"]),
        "dfs rename" => call(&["/none", "/other"]),
        "dfs restore" => call(&["input", "/file"]),
        "dfs recover" => call(&["--without", "0000000000000001"]),
        // Without `--yes`, so that other commands still find something.
        "dfs format" => call(&[]),
        "mount" | "io mount" => call(&["nowhere"]),
        "map" => passing_on(&["/file", "--", "cat"]),
        "io run" => passing_on(&["--", "echo", "out"]),
        "io serve" => serving(&["--listen", "127.0.0.1:0", "--access", "io.toml"]),
        "proxy" => serving(&["-o", "proxy.toml", "--inside", "127.0.0.1"]),
        "report" => call(&["1", "-o", "report.html"]),
        "top" => call(&["--once", "--interval", "10ms"]),
        "events" => call(&[]),
        "web" => serving(&["--listen", "127.0.0.1:0"]),
        "web token create" | "web token list" => call(&[]),
        "web token revoke" => call(&["00000000"]),
        "start dispatcher" => serving(&["--owned", "--cluster", "other"]),
        "start executor" => call(&["--owned", "--cluster", "nowhere"]),
        "start local" => serving(&["--nodes", "1", "--slots", "1", "--cluster", "third"]),
        "cluster list" => call(&[]),
        "cluster remove" => call(&["nowhere"]),
        "stop" => call(&["--cluster", "nowhere"]),
        "shim" => call(&["slurm-commands"]),
        "simulate run" | "simulate sweep" | "simulate model" => call(&["small.toml"]),
        "simulate paper" => call(&["--only", "none"]),
        "simulate index" => call(&["--entries", "10"]),
        "completion" => call(&["bash"]),
        "man" => call(&["pages"]),
        "access rotate" | "access show" | "access revoke" | "access create" => {
            call(&["--cluster", "nowhere"])
        }
        // The command would wait for a node that does not exist.
        "worker map" => call(&["0000000000000000:0", "--cluster", "nowhere", "--", "cat"]),
        "worker reduce" => {
            call(&["0000000000000000:0", "1", "--of", "1", "--cluster", "nowhere", "--", "cat"])
        }
        _ => panic!("there is a new command: say in `words_of` how `eyas {command}` is called"),
    }
}

/// All commands without subcommands, hidden ones included.
fn commands(home: &Home) -> Vec<String> {
    home.eyas(&["man", "pages"]).exits(0);
    let pages: Vec<_> =
        home.names("pages").iter().map(|page| page.trim_end_matches(".1").to_owned()).collect();
    let is_whole =
        |page: &&String| !pages.iter().any(|other| other.starts_with(&format!("{page}-")));
    let shown = pages
        .iter()
        .filter(is_whole)
        .map(|page| page.trim_start_matches("eyas-").replace('-', " "));
    // `web` is a command of its own, and has others below it.
    shown.chain(["web", "worker map", "worker reduce"].map(str::to_owned)).collect()
}

/// `eyas` with these arguments, on the test's cluster unless they name another one.
fn eyas(cluster: &Cluster, command: &str, words: &[&str]) -> Command {
    let mut all: Vec<&str> = command.split(' ').collect();
    all.extend(words);
    let place = all.iter().position(|word| *word == "--").unwrap_or(all.len());
    if !words.iter().any(|word| matches!(*word, "--cluster" | "--access")) {
        all.splice(place..place, ["--cluster", "test"]);
    }
    let mut command = cluster.command(&all);
    command.env("XDG_RUNTIME_DIR", cluster.path("run"));
    command
}

/// Runs a command whose standard output is `out`. Its standard error is read, or is `out`, too.
#[track_caller]
fn with_output(mut command: Command, out: impl Fn() -> Stdio, is_both: bool) -> CommandOutput {
    let child = command.stdin(Stdio::null()).stdout(out()).stderr(if is_both {
        out()
    } else {
        Stdio::piped()
    });
    let done =
        child.spawn().and_then(std::process::Child::wait_with_output).expect("eyas can be started");
    let code = std::os::unix::process::ExitStatusExt::signal(&done.status)
        .map_or(done.status.code(), |s| Some(128 + s));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    CommandOutput {
        code: code.unwrap_or(-1),
        stdout: text(&done.stdout),
        stderr: text(&done.stderr),
    }
}

#[track_caller]
fn has_not_panicked(done: &CommandOutput, how: &str) {
    assert!(!PANICKED.contains(&done.code) && !done.stderr.contains("panicked"), "{how}: {done:?}");
}

fn prepared() -> Cluster {
    let cluster = Cluster::start(&[&["--dfs", "--cache", "1GB", "--slots", "2"]]);
    fs::create_dir(cluster.path("run")).unwrap();
    cluster.write("input", "one line\n");
    cluster.write(
        "small.toml",
        "[cluster]\nnodes = 2\n[workload.uniform]\nobjects = 5\nsize = \"1 MB\"\ntasks = 20\n",
    );
    let task = "{\"command\": [\"sh\", \"-c\", \"echo out; echo > f\"], \"inputs\": [\"input\"], \
                \"outputs\": [{\"file\": \"f\", \"keep\": true}]}";
    cluster.write("job.jsonl", task);
    cluster.run(&["submit", "--wait", "job.jsonl"]).exits(0);
    cluster.run(&["submit", "--wait", "job.jsonl"]).exits(0);
    crate::support::wait_until("the file system takes files", || {
        cluster.run(&["dfs", "put", "input", "/file", "--replicas", "1"]).code == 0
    });
    cluster
}

#[test]
fn no_command_panics_where_its_output_cannot_be_written() {
    let cluster = prepared();
    let full =
        || Stdio::from(File::options().write(true).open("/dev/full").expect("the system has one"));
    // The reader of the output closes it at once.
    let broken = || Stdio::from(std::io::pipe().expect("a pipe").1);
    for command in commands(&cluster) {
        let Call { words, serves, .. } = words_of(&command);
        let plain =
            (!serves).then(|| with_output(eyas(&cluster, &command, words), Stdio::piped, false));
        let prints =
            serves || plain.as_ref().is_some_and(|done| done.code == 0 && !done.stdout.is_empty());
        for json in [&[][..], &["--json"]] {
            let run = |out: &dyn Fn() -> Stdio, is_both| {
                let done =
                    with_output(eyas(&cluster, &command, &[json, words].concat()), out, is_both);
                has_not_panicked(&done, &command);
                done
            };
            let done = run(&full, false);
            // These commands pass on the exit code of another program, or end with the process that
            // started them.
            let tells =
                prints && json.is_empty() && !matches!(&*command, "io run" | "start dispatcher");
            if tells {
                assert_eq!(done.code, 1, "{command}: {done:?}");
                assert!(
                    done.stderr.contains("cannot write to standard output: No space left"),
                    "{command}: {done:?}"
                );
            }
            let done = run(&broken, false);
            // The exit code of `run` says how its job has ended.
            if tells && command != "run" {
                assert_eq!(done.code, BROKEN_PIPE, "{command}: {done:?}");
            }
            // Programs that `io run` becomes print messages of their own.
            if command != "io run" {
                assert!(!done.stderr.contains("Broken pipe"), "{command} {json:?}: {done:?}");
            }
            run(&full, true);
        }
        if !serves {
            let mut closed =
                cluster.command_of(Command::new("sh"), &["-c", "exec \"$0\" \"$@\" >&- 2>&-"]);
            let eyas = eyas(&cluster, &command, words);
            closed
                .arg(eyas.get_program())
                .args(eyas.get_args())
                .env("XDG_RUNTIME_DIR", cluster.path("run"));
            has_not_panicked(&with_output(closed, Stdio::piped, false), &command);
        }
    }
    // Help and versions are results, too.
    for words in [&["--help"][..], &["--version"], &["run", "--help"], &["help"], &["help", "run"]]
    {
        let done = with_output(cluster.command(words), full, false);
        assert_eq!(done.code, 1, "{done:?}");
        let done = with_output(cluster.command(words), broken, false);
        assert!(done.code == BROKEN_PIPE && done.stderr.is_empty(), "{words:?}: {done:?}");
    }
}

#[test]
fn no_arguments_make_a_command_panic_or_colour_a_terminal() {
    let cluster = prepared();
    fs::write(cluster.work().join(OsStr::from_bytes(ODD)), "x\n").unwrap();
    fs::write(
        cluster.work().join(OsStr::from_bytes(&[ODD, b".jsonl"].concat())),
        "{\"command\": [\"true\"]}\n",
    )
    .unwrap();
    for command in commands(&cluster) {
        let Call { words, serves, passes_on } = words_of(&command);
        let odd = [
            ODD,
            &[ODD, b".jsonl"].concat(),
            b"--odd\xff\x1b=x",
            b"\xff=\x1b",
            b"*\xff*",
            b"\x1b]0;title\x07",
        ]
        .map(<[u8]>::to_vec);
        for word in odd.iter().map(|word| OsStr::from_bytes(word)) {
            for mut called in [eyas(&cluster, &command, &[]), eyas(&cluster, &command, words)] {
                // A command that starts a server must not start it. Other commands have made
                // folders to mount on.
                let may_serve = serves || command.ends_with("mount");
                called.arg(word).args(may_serve.then_some("--no-such-option"));
                let done = with_output(called, Stdio::piped, false);
                has_not_panicked(&done, &command);
                assert!(!done.stderr.contains('\x1b'), "eyas {command} {word:?}: {done:?}");
                assert!(
                    passes_on || !done.stdout.contains('\x1b'),
                    "eyas {command} {word:?}: {done:?}"
                );
            }
        }
    }
}
