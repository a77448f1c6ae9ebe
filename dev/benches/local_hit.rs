//! How long a task whose inputs are local takes beyond its process: the cost of a hit.
//!
//! This benchmark is the dispatcher of one real executor. It lets it fetch some objects, then gives
//! it one task at a time that reads them. The task is `date +%s%N`, which tells the moment at which
//! it runs. Between tasks the benchmark starts the same program itself, with `posix_spawn`, as bare
//! as can be, and before each it lets the executor do a no-op task, whose round trip is two ways of
//! a message.
//!
//! - *to start*: from sending the assignment to the moment told, less one way, less the same of a
//!   bare spawn: reading the assignment, waking the slot's thread, the sandbox, a hard link an
//!   input, pipes, and a spawn that has more to do. The limit is 100 µs.
//! - *whole life*: what the executor reports from receipt to end, less a bare spawn and wait: with
//!   capturing the output, the kill of what is left of the group, a look whether inputs were
//!   touched, and the removal of the sandbox.
//!
//! Expected before measuring: a wake-up at 5 to 20 µs; a folder 10 to 20 µs; 5 µs an input; pipes,
//! the descriptors and the environment 20 µs. To start about 60 µs with one input, and as much
//! again afterwards.
//!
//! The folder is in `$TMPDIR`. What a new folder costs is up to its file system: ext4 without a
//! journal looks at every inode freed in the last minutes and takes milliseconds when there were
//! many; tmpfs, xfs and ext4 with one do not.
//!
//! `cargo bench -p eyas-dev --bench local_hit`; `-- --tiny` only shows that it runs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use eyas_dev::bench::{OwnedProcess, eyas, home, is_tiny, median};
use eyas_session::{Access, Session, SessionAcceptor};
use eyas_types::{
    ExecutorId, FileMode, JobId, ObjectSpec, Outcome, Program, TaskId, TaskTemplate, Template,
    Version, WorkingFolder,
};
use eyas_wire::Role;
use eyas_wire::executor::{AssignedInput, Assignment, FromExecutor, ToExecutor};
use tokio::net::TcpListener;

const TARGET_US: f64 = 100.0;
const WORDS: [&str; 2] = ["/bin/date", "+%s%N"];

/// Size of the measurement.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Number of tasks of each kind.
    pub tasks: usize,
}

const FULL: Scale = Scale { tasks: 1_000 };
/// Only shows that it runs.
pub const TINY: Scale = Scale { tasks: 3 };

fn main() {
    run(if is_tiny() { TINY } else { FULL });
}

/// Measures and prints.
pub fn run(scale: Scale) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure(scale));
}

async fn measure(scale: Scale) {
    let home = home();
    let mut executor = Executor::start(home.path()).await;
    println!("{} tasks of each kind, medians in us", scale.tasks);
    println!(
        "                            one way   bare start   to start   of the limit   bare life   \
         whole life"
    );
    for (kind, inputs, folder) in [
        ("no sandbox", 0, WorkingFolder::Path("/".into())),
        ("sandbox, 1 local input", 1, WorkingFolder::Sandbox),
        ("sandbox, 10 local inputs", 10, WorkingFolder::Sandbox),
    ] {
        let inputs: Vec<_> = (0..inputs).map(|number| input(home.path(), number)).collect();
        executor.prepare(folder).await;
        // The first fetches.
        executor.run(DATE, &inputs).await;
        let mut columns: [Vec<f64>; 5] = Default::default();
        for _ in 0..scale.tasks {
            let way_us = executor.run(NOOP, &[]).await.whole_us / 2.0;
            let bare = bare();
            let hit = executor.run(DATE, &inputs).await;
            assert_eq!(hit.outcome.reads.local.count, inputs.len() as u64, "not a local hit");
            let life_us = (hit.outcome.waited_us + hit.outcome.ran_us) as f64;
            let to_start_us = hit.start_us() - way_us - bare.start_us;
            let row = [way_us, bare.start_us, to_start_us, bare.whole_us, life_us - bare.whole_us];
            columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        }
        let [way, bare_start, to_start, bare_life, life] = columns.map(|column| median(&column));
        let of_limit = to_start / TARGET_US;
        println!(
            "{kind:<24}{way:>11.0}{bare_start:>13.0}{to_start:>11.0}{of_limit:>15.2}{bare_life:\
             >12.0}{life:>13.0}"
        );
    }
    println!("\nlimit: {TARGET_US} us to start");
}

/// The templates of each kind.
const DATE: u16 = 0;
const NOOP: u16 = 1;

/// A task that has ended.
struct Hit {
    outcome: Outcome,
    sent_ns: u128,
    /// From sending the assignment to receiving the end.
    whole_us: f64,
}

impl Hit {
    /// From sending the assignment to the moment that the task told.
    fn start_us(&self) -> f64 {
        moment_us(&self.outcome.stdout, self.sent_ns)
    }
}

struct Bare {
    start_us: f64,
    whole_us: f64,
}

fn bare() -> Bare {
    let (started, began_ns) = (Instant::now(), unix_ns());
    let ran =
        Command::new(WORDS[0]).arg(WORDS[1]).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let whole_us = started.elapsed().as_secs_f64() * 1e6;
    Bare { start_us: moment_us(&ran.expect("it can be started").stdout, began_ns), whole_us }
}

/// Microseconds from `since_ns` to the moment that was written.
fn moment_us(written: &[u8], since_ns: u128) -> f64 {
    let moment_ns: u128 =
        String::from_utf8_lossy(written).trim().parse().expect("date writes a number");
    moment_ns.saturating_sub(since_ns) as f64 / 1e3
}

fn unix_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos()
}

/// A real executor, and this end of its session.
struct Executor {
    session: Session,
    /// The job and the task that come next: every kind of task is a job.
    next: TaskId,
    _process: OwnedProcess,
}

impl Executor {
    async fn start(home: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let access = Access::create("bench", &listener.local_addr().expect("bound").to_string());
        let access_path = home.join("access.toml");
        access.save(&access_path).expect("our own folder");
        // The end of the benchmark is the end of its executor, and not worth a warning.
        let mut command = eyas(
            home,
            &["start", "executor", "--owned", "--reconnect", "0s", "--slots", "1", "--access"],
        );
        command.arg(&access_path).arg("--folder").arg(home.join("executor"));
        let process =
            OwnedProcess(command.stdin(Stdio::piped()).spawn().expect("eyas can be started"));
        let (stream, _) = listener.accept().await.expect("the executor connects");
        let (mut session, _) = SessionAcceptor::new(&access, Role::Dispatcher)
            .accept(stream)
            .await
            .expect("it has the access file");
        let first = session.reader.next::<FromExecutor>().await.expect("it registers");
        assert!(matches!(first[..], [FromExecutor::Register(_)]), "{first:?}");
        let welcome = ToExecutor::Welcome {
            executor: ExecutorId(0),
            caching: true,
            heartbeat_us: 60_000_000,
            lease_us: 180_000_000,
            files: None,
        };
        session.writer.send(&[welcome]).await.expect("it reads");
        Executor { session, next: TaskId { job: JobId(0), index: 0 }, _process: process }
    }

    /// Tells the executor of a kind of task.
    async fn prepare(&mut self, folder: WorkingFolder) {
        self.next = TaskId { job: JobId(self.next.job.0 + 1), index: 0 };
        let job = self.next.job;
        let date = Program::Command(WORDS.map(Template::literal).to_vec());
        for (template, program) in [(DATE, date), (NOOP, Program::Noop)] {
            let spec =
                Box::new(TaskTemplate { folder: folder.clone(), ..TaskTemplate::new(program) });
            self.session
                .writer
                .send(&[ToExecutor::Template { job, template, spec }])
                .await
                .expect("it reads");
        }
    }

    async fn run(&mut self, template: u16, inputs: &[AssignedInput]) -> Hit {
        let task = self.next;
        self.next.index += 1;
        let assignment =
            Assignment { task, attempt: 0, template, values: Vec::new(), inputs: inputs.to_vec() };
        let (started, sent_ns) = (Instant::now(), unix_ns());
        self.session.writer.send(&[ToExecutor::Assign(assignment)]).await.expect("it reads");
        loop {
            for fact in self.session.reader.next::<FromExecutor>().await.expect("it answers") {
                if let FromExecutor::Ended { outcome, .. } = fact {
                    assert!(outcome.status.is_success(), "{outcome:?}");
                    return Hit {
                        outcome: *outcome,
                        sent_ns,
                        whole_us: started.elapsed().as_secs_f64() * 1e6,
                    };
                }
            }
        }
    }
}

fn input(home: &Path, number: usize) -> AssignedInput {
    let path = home.join(format!("input-{number}"));
    fs::write(&path, vec![b'x'; 10_000]).expect("our own folder");
    let metadata = fs::metadata(&path).expect("just written");
    let modified =
        metadata.modified().expect("Linux tells it").duration_since(std::time::UNIX_EPOCH);
    let mtime_ns = modified.expect("after 1970").as_nanos() as i64;
    let version = Version::Modified { mtime_ns, size_bytes: metadata.len() };
    let object = ObjectSpec {
        source: format!("file://{}", path.display()).into(),
        version,
        mode: FileMode::READABLE,
    };
    AssignedInput { object, part: None, name: None, holders: Vec::new() }
}
