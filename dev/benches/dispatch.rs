//! How many tasks a second go through one dispatcher and two executors on this machine, over real
//! sockets and TLS; and how long the shortest job takes from its command to its end.
//!
//! **No-op tasks** run inside the executor, so that what is measured is eyas alone: queue,
//! placement, two frames, books, journal, and the client that sees every result. Expected before
//! measuring: 2 to 4 µs a task on each side, most of it allocation and encoding; the journal and
//! the client share the same two processors. At least 150,000/s.
//!
//! **`/bin/true`** is measured beside the least that can be done: two threads that each start it
//! with `posix_spawn` and wait for it, in a loop. What a process costs is fork, exec, dynamic
//! linking and exit, about 1 ms on a virtual machine; eyas adds pipes for its output, a group, a
//! wait that can be interrupted, and its messages. At least 85% of the loop. `xargs -P2` does the
//! same from one thread. All see the same words and the same environment, and run in turns; ratios
//! are of the same turn. On a machine that others use too, rates favour who has more processes; the
//! processor time of a task does not, so that is shown as well: on an idle machine its ratio is
//! that of the rates.
//!
//! **Light executors** show what a dispatcher's work grows with. Each is a session that ends a task
//! as soon as it is assigned; all are in the process of the benchmark. The figure is the
//! dispatcher's own processor time a task, beside the rate, because executors and dispatcher share
//! the processors: it should be the same with 2 and 1,000 executors, as each executor is given up
//! to 1,025 tasks of no length, some dozens in a message. Not below 0.7 of the rate with two.
//!
//! **Heartbeats** of executors without a task: the dispatcher's processor time in a second.
//! Expected before measuring: two system calls to receive a heartbeat and answer it, and two TLS
//! records, 10 us in all. At most 5 % of a core with 10,000 executors.
//!
//! **Joining**: 1,000 light executors join within a second, while no-op tasks go one after the
//! other to two real executors, each as a job of its own. Then the same with nodes of a pool, for
//! each of which a task waits. Expected before measuring: a handshake takes each side 0.5 ms, so
//! the machine has no time left in that second, and a task waits for a few handshakes. The longest
//! time of a task may grow by at most 100 ms. The dispatcher's folder is in `$TMPDIR`, whose disk
//! counts as well.
//!
//! **Many**: 9,000 light executors, or as many as `--executors` says, and 2,000,000 no-op tasks;
//! the dispatcher is killed when half of the tasks are assigned, and started again. Expected before
//! measuring: a session takes some 25 KB of the dispatcher's memory; coming back, a millisecond of
//! both processors together. With 54,000 executors: at most 1.5 GB, 0.5 of the rate with two, and
//! 30 s until the second dispatcher assigns a task. A session needs two descriptors on each side if
//! both processes see the same files, and otherwise one.
//!
//! `cargo bench -p eyas-dev --bench dispatch`; `-- --tiny` only shows that it runs; `-- --only
//! PART` takes one part: `noop`, `processes`, `light`, `heartbeats`, `joining`
//! or `many`. Other systems'
//! rates: `dev/experiments/noop_tasks.py`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use eyas_dev::bench::{eyas, home, is_tiny, median, used_cpu_s};
use light::{Dispatcher, LightExecutors};

#[path = "dispatch/joining.rs"]
mod joining;
#[path = "dispatch/light.rs"]
mod light;
#[path = "dispatch/many.rs"]
mod many;
#[allow(dead_code, reason = "other benchmarks use more of it")]
#[path = "dispatch/submission.rs"]
mod submission;

const TARGET_NOOP_PER_S: f64 = 150_000.0;
const TARGET_OF_BARE: f64 = 0.85;
const TARGET_OF_TWO_EXECUTORS: f64 = 0.7;
const TARGET_HEARTBEATS_PERCENT: f64 = 5.0;
const TARGET_DELAY_MS: f64 = 100.0;
/// Time within which executors join.
const JOIN_WITHIN: Duration = Duration::from_secs(1);
/// What each process is: `true` with a word, as a task with an item has it. (GNU `true` reads its
/// locale if it has one word, so one without would be another program.)
const PROGRAM: &str = "/bin/true";

/// Sizes of the measurement.
#[derive(Clone, Copy)]
pub struct Scale {
    /// In a run.
    pub noop_tasks: u32,
    /// In a run.
    pub processes: u32,
    /// Runs of each.
    pub rounds: usize,
    /// Light executors that run tasks.
    pub light: [usize; 3],
    /// Tasks of light executors, in a run.
    pub light_tasks: u32,
    /// Light executors that only send heartbeats.
    pub beating: usize,
    /// Time for which heartbeats are measured.
    pub beating_s: f64,
    /// Light executors that join while tasks run.
    pub joining: usize,
    /// Time for which tasks run before.
    pub before_joining_s: f64,
    /// Light executors that come back to a dispatcher that was killed.
    pub many: usize,
    /// Their tasks.
    pub many_tasks: u32,
}

const FULL: Scale = Scale {
    noop_tasks: 1_000_000,
    processes: 4_000,
    rounds: 5,
    light: [2, 100, 1_000],
    light_tasks: 300_000,
    beating: 9_000,
    beating_s: 20.0,
    joining: 1_000,
    before_joining_s: 3.0,
    many: 9_000,
    many_tasks: 2_000_000,
};
/// Only shows that it runs.
pub const TINY: Scale = Scale {
    noop_tasks: 200,
    processes: 8,
    rounds: 1,
    light: [2, 3, 4],
    light_tasks: 200,
    beating: 4,
    beating_s: 0.0,
    joining: 4,
    before_joining_s: 0.0,
    many: 4,
    many_tasks: 100_000,
};

/// One way to run processes, and what it showed in each round.
struct Way {
    name: &'static str,
    run: fn(&Path, u32) -> f64,
    per_s: Vec<f64>,
    cpu_us: Vec<f64>,
}

/// A measurement and its name.
type Part = (&'static str, fn(Scale));

const PARTS: &[Part] = &[
    ("noop", noop),
    ("processes", processes),
    ("light", light_executors),
    ("heartbeats", heartbeats),
    ("joining", joining),
    ("many", many_executors),
];

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let word_after = |option: &str| {
        words.iter().position(|word| word == option).map(|place| words[place + 1].as_str())
    };
    let scale = if is_tiny() { TINY } else { FULL };
    let many = word_after("--executors").map_or(scale.many, |many| many.parse().expect("a number"));
    run_parts(Scale { many, ..scale }, word_after("--only"));
}

/// Measures and prints.
pub fn run(scale: Scale) {
    run_parts(scale, None);
}

fn run_parts(scale: Scale, only: Option<&str>) {
    for (_, part) in PARTS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        part(scale);
        println!();
    }
}

fn noop(scale: Scale) {
    let home = home();
    let home = home.path();
    let first: Vec<f64> = (0..3 * scale.rounds).map(|_| started_to_ended_s(home) * 1e3).collect();
    println!("one no-op task, command to end  {:>9.0} ms\n", median(&first));

    let noop: Vec<f64> =
        (0..scale.rounds).map(|_| run_eyas(home, scale.noop_tasks, &["--noop"])).collect();
    let per_s = median(&noop);
    println!(
        "no-op tasks                     {per_s:>9.0} /s   {:.2} x target",
        per_s / TARGET_NOOP_PER_S
    );
    println!("                                of {} each: {}", scale.noop_tasks, rounded(&noop));
    println!("target: {TARGET_NOOP_PER_S} no-op tasks/s");
}

fn processes(scale: Scale) {
    let home = home();
    let home = home.path();
    let way = |name, run| Way { name, run, per_s: Vec::new(), cpu_us: Vec::new() };
    let mut ways = [
        way("posix_spawn and wait, 2 threads", |_, count| bare(count)),
        way("eyas, 2 executors", |home, count| run_eyas(home, count, &["--", PROGRAM])),
        way("xargs -P2", |_, count| xargs(count)),
    ];
    for _ in 0..scale.rounds {
        for way in &mut ways {
            let before_s = used_cpu_s();
            way.per_s.push((way.run)(home, scale.processes));
            way.cpu_us.push((used_cpu_s() - before_s) * 1e6 / f64::from(scale.processes));
        }
    }
    println!(
        "{PROGRAM}, {} each in {} turns        /s   of bare   cpu us/task   bare's of it",
        scale.processes, scale.rounds
    );
    for way in &ways {
        let of_bare = |ours: &[f64], bare: &[f64]| {
            median(&ours.iter().zip(bare).map(|(a, b)| a / b).collect::<Vec<_>>())
        };
        println!(
            "{:<32}{:>9.0}{:>10.2}{:>14.0}{:>15.2}",
            way.name,
            median(&way.per_s),
            of_bare(&way.per_s, &ways[0].per_s),
            median(&way.cpu_us),
            of_bare(&ways[0].cpu_us, &way.cpu_us),
        );
    }
    println!("target: {TARGET_OF_BARE} of bare");
}

/// No-op tasks on few and on many executors.
fn light_executors(scale: Scale) {
    let mut with_two = None;
    println!("light executors   no-op/s   of two   dispatcher's cpu us a task    all runs");
    for count in scale.light {
        let home = home();
        let dispatcher = Dispatcher::start(home.path(), "3s");
        LightExecutors::join(&dispatcher.access, count);
        let access = dispatcher.access.display().to_string();
        let before_s = dispatcher.cpu_s();
        let words = ["--access", &access, "--noop"];
        let rates: Vec<f64> =
            (0..scale.rounds).map(|_| run_eyas(home.path(), scale.light_tasks, &words)).collect();
        let tasks = f64::from(scale.light_tasks) * scale.rounds as f64;
        let cpu_us = (dispatcher.cpu_s() - before_s) * 1e6 / tasks;
        let per_s = median(&rates);
        let of_two = per_s / *with_two.get_or_insert(per_s);
        println!("{count:>15} {per_s:>9.0} {of_two:>8.2} {cpu_us:>30.2}    {}", rounded(&rates));
    }
    println!("target: {TARGET_OF_TWO_EXECUTORS} of two");
}

/// Executors that only send heartbeats.
fn heartbeats(scale: Scale) {
    let home = home();
    let dispatcher = Dispatcher::start(home.path(), "3s");
    LightExecutors::join(&dispatcher.access, scale.beating);
    let (began, before_s) = (Instant::now(), dispatcher.cpu_s());
    std::thread::sleep(Duration::from_secs_f64(scale.beating_s));
    let (took_s, used_s) = (began.elapsed().as_secs_f64(), dispatcher.cpu_s() - before_s);
    println!(
        "heartbeats of {} executors: {:.1} % of a core; target: {TARGET_HEARTBEATS_PERCENT} % \
         with 10,000",
        scale.beating,
        100.0 * used_s / took_s
    );
}

/// Executors that join while tasks run.
fn joining(scale: Scale) {
    for (kind, is_pool) in [("executors", false), ("nodes of a pool", true)] {
        println!("{} {kind} join; time of a task, ms", scale.joining);
        println!("before: median    p99   longest   during: p99   longest   joined");
        let mut delays = Vec::new();
        for _ in 0..scale.rounds {
            let before = Duration::from_secs_f64(scale.before_joining_s);
            let trips = joining::run(scale.joining, JOIN_WITHIN, before, is_pool);
            let (middle, longest) = (median(&trips.before), quantile(&trips.during, 1.0));
            println!(
                "{middle:>14.1} {:>6.1} {:>9.1} {:>13.1} {longest:>9.1} {:>6.2} s",
                quantile(&trips.before, 0.99),
                quantile(&trips.before, 1.0),
                quantile(&trips.during, 0.99),
                trips.joined_s,
            );
            delays.push(longest - middle);
        }
        println!(
            "longest delay, median of the runs: {:.1} ms; target: {TARGET_DELAY_MS} ms",
            median(&delays)
        );
    }
}

/// Very many executors, and their return to a dispatcher that was killed.
fn many_executors(scale: Scale) {
    println!(
        "executors   joined   MB   with tasks   heartbeats   no-op/s   of two   dispatches again   \
         all back"
    );
    let mut with_two = None;
    for executors in [2, scale.many] {
        let beating = Duration::from_secs_f64(scale.beating_s);
        let it = many::run(executors, scale.many_tasks, beating);
        println!(
            "{executors:>9} {:>6.1} s {:>4} {:>12} {:>10.1} % {:>9.0} {:>8.2} {:>16.1} s {:>8.1} s",
            it.joined_s,
            it.idle_bytes >> 20,
            it.queued_bytes >> 20,
            100.0 * it.beating,
            it.per_s,
            it.per_s / *with_two.get_or_insert(it.per_s),
            it.dispatches_s,
            it.back_s,
        );
    }
}

/// The value below which this share of the values is.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values[((values.len() as f64 * share) as usize).min(values.len() - 1)]
}

fn rounded(values: &[f64]) -> String {
    values.iter().map(|value| format!("{value:.0}")).collect::<Vec<_>>().join(" ")
}

/// Runs a job on a cluster of its own; its tasks a second, from its submission to its end, as eyas
/// says.
fn run_eyas(home: &Path, tasks: u32, words: &[&str]) -> f64 {
    let array = format!("1-{tasks}");
    let ran = eyas(home, &["run", "--array", &array, "--report", "none"])
        .args(words)
        .output()
        .expect("eyas can be started");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    let per_s = said.rsplit_once('(').and_then(|(_, rest)| rest.split_once("/s)")?.0.parse().ok());
    per_s.unwrap_or_else(|| panic!("no rate in: {said}"))
}

fn started_to_ended_s(home: &Path) -> f64 {
    let started = Instant::now();
    run_eyas(home, 1, &["--noop"]);
    started.elapsed().as_secs_f64()
}

fn bare(count: u32) -> f64 {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for first in 0..2 {
            scope.spawn(move || {
                for number in (first..count).step_by(2) {
                    let mut command = Command::new(PROGRAM);
                    let ran = command.arg(number.to_string()).stdin(Stdio::null()).status();
                    assert!(ran.expect("it can be started").success());
                }
            });
        }
    });
    f64::from(count) / started.elapsed().as_secs_f64()
}

fn xargs(count: u32) -> f64 {
    let started = Instant::now();
    let mut xargs = Command::new("xargs");
    let Ok(mut child) = xargs.args(["-P2", "-n1", PROGRAM]).stdin(Stdio::piped()).spawn() else {
        return f64::NAN;
    };
    let words: String = (0..count).map(|number| format!("{number}\n")).collect();
    child.stdin.take().expect("piped").write_all(words.as_bytes()).expect("xargs reads");
    assert!(child.wait().expect("our own child").success());
    f64::from(count) / started.elapsed().as_secs_f64()
}
