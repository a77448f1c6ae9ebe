//! `eyas run --pool … --dispatcher-in-job`: the whole command runs in a batch job of its own. This
//! process submits the job, waits for it, and prints what it prints, so that a login node has
//! nothing to do. Another process with the same arguments, in the job, starts the dispatcher and
//! the pool.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use eyas_client::{Client, Cluster, home};
use eyas_pools::{LoneCommand, LoneJob, LoneState};
use eyas_session::private::PrivateFolder;
use eyas_wire::pool::PoolOptions;
use tokio::time::sleep;

use super::own_cluster::RunPool;
use super::run_args::RunArgs;
use crate::clock::unix_s;
use crate::error::{CliError, INTERRUPTED};
use crate::exit_code::ExitCode;
use crate::interrupt::Interrupt;
use crate::local::cancel_all;
use crate::own_process::{own_path, own_words};
use crate::print::{self, PrintError, say};

/// Time between two looks at the output of the job.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// After an interrupt, the command in the job has this time to end its cluster.
const END_DEADLINE: Duration = Duration::from_secs(20);
/// Most bytes of the output that are read at a time.
const MAX_READ_BYTES: u64 = 1 << 20;
/// Memory that is requested for the dispatcher.
const MEMORY_BYTES: u64 = 1 << 30;
/// Variables that the command in the job needs, and that batch systems do not pass on everywhere.
const VARIABLES: &[&str] =
    &["EYAS_HOME", "EYAS_POOLS", "HOME", "PATH", "SLURM_CONF", "XDG_CACHE_HOME", "XDG_STATE_HOME"];

/// Submits the job, and waits for its end.
pub(super) async fn run(args: &RunArgs) -> Result<ExitCode, CliError> {
    if args.resume.has_earlier_words() {
        let why = "the run to go on with has its dispatcher in a batch job (--dispatcher-in-job): \
                   write its whole command line again, with --resume";
        return Err(why.into());
    }
    let mut interrupt = Interrupt::listen();
    let pool = pool_of(args)?;
    let name = format!("run-{}-{}", unix_s(), std::process::id());
    let (runs, cluster) = (home()?.join("runs"), Cluster::named(&name)?);
    let clusters = cluster.folder().parent().ok_or("eyas's home has no folder for clusters")?;
    for folder in [&runs, clusters] {
        PrivateFolder::make(folder)?;
    }
    let folder = runs.join(&name);
    let command = LoneCommand {
        words: words_in_job(cluster.folder())?,
        working_folder: std::env::current_dir()?,
        variables: VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
            .collect(),
        name: name.clone(),
    };
    let mut job = LoneJob::write(&folder, &command, options(pool.options, args))?;
    let submitted = tokio::select! {
        submitted = job.submit() => submitted.map(|()| true),
        () = interrupt.received() => job.withdraw().await.map(|()| false),
    };
    if !matches!(submitted, Ok(true)) {
        // A job that the batch system has all the same ends at once when it starts.
        remove(&folder);
        return Ok(submitted.map(|_| ExitCode::from(INTERRUPTED))?);
    }
    say!(
        "the dispatcher's job is {}. If this command is killed, the job goes on: `eyas --cluster \
         {name} job wait last` waits for its tasks while it runs; its output and exit code stay \
         in {}",
        job.id(),
        folder.display()
    );
    interrupt.set_final_message(Some(format!("job {} goes on", job.id())));
    let mut follower = Follower {
        job,
        cluster,
        stdout: Tail::default(),
        stderr: Tail::default(),
        said: String::new(),
    };
    let code = tokio::select! {
        code = follower.follow() => code?,
        () = interrupt.received() => {
            follower.end().await?;
            INTERRUPTED
        }
    };
    remove(&folder);
    Ok(ExitCode::from(code))
}

/// The pool whose batch system runs the dispatcher's job.
///
/// # Errors
/// If the dispatcher cannot be in a job with these arguments.
fn pool_of(args: &RunArgs) -> Result<RunPool, CliError> {
    let word = args.pool.as_deref().ok_or("--dispatcher-in-job needs --pool")?;
    if args.each_line.as_ref().is_some_and(|file| *file == "-") {
        let why = "--dispatcher-in-job cannot read lines of standard input: write them to a file";
        return Err(why.into());
    }
    let pool = RunPool::new(word, args)?;
    if !pool.is_elsewhere {
        let why = "--dispatcher-in-job needs a batch system: nodes of `local` are processes of \
                   this host";
        return Err(why.into());
    }
    if pool.options.system == "kubernetes" {
        let why = "--dispatcher-in-job needs a folder that all nodes share. In Kubernetes, keep a \
                   dispatcher in the cluster as examples/kubernetes/dispatcher.yaml does, and \
                   submit jobs to it";
        return Err(why.into());
    }
    Ok(pool)
}

fn remove(folder: &Path) {
    if let Err(why) = std::fs::remove_dir_all(folder) {
        tracing::debug!("cannot remove {}: {why}", folder.display());
    }
}

/// The options of the dispatcher's job: one processor, and the verbatim options of the pool.
fn options(pool: PoolOptions, args: &RunArgs) -> PoolOptions {
    const DAY_US: u64 = 86_400_000_000;
    PoolOptions {
        time_limit_us: args.in_job.dispatcher_time_limit.unwrap_or(DAY_US),
        cpus: Some(1),
        memory_bytes: Some(MEMORY_BYTES),
        resources: Vec::new(),
        ..pool
    }
}

/// The words of this command, without those about the job, and with the folder of the cluster.
fn words_in_job(folder: &Path) -> Result<Vec<String>, CliError> {
    let text = |word: std::ffi::OsString| {
        word.into_string().map_err(|word| {
            format!("{} is not UTF-8, which a script needs", word.to_string_lossy())
        })
    };
    let mut words = vec![text(own_path()?.into())?];
    let mut own = own_words();
    while let Some(word) = own.next() {
        let word = text(word)?;
        match word.as_str() {
            "--dispatcher-in-job" => {
                words.extend(["--run-folder".to_owned(), text(folder.into())?])
            }
            "--dispatcher-time-limit" => _ = own.next(),
            long if long.starts_with("--dispatcher-time-limit=") => {}
            // The rest is the command of the tasks.
            "--" => {
                words.push(word);
                words.extend(own.by_ref().map(text).collect::<Result<Vec<_>, _>>()?);
            }
            _ => words.push(word),
        }
    }
    Ok(words)
}

/// Follows a job to its end.
struct Follower {
    job: LoneJob,
    cluster: Cluster,
    stdout: Tail,
    stderr: Tail,
    /// What was said last about its state.
    said: String,
}

impl Follower {
    /// Prints what the command in the job prints. Returns its exit code.
    async fn follow(&mut self) -> Result<u8, CliError> {
        let mut asked: Option<Instant> = None;
        let mut lost = 0;
        loop {
            // The exit code is written after all output.
            let code = self.job.exit_code();
            self.print()?;
            if let Some(code) = code {
                return Ok(code);
            }
            if asked.is_none_or(|asked| asked.elapsed() >= self.job.ask_every()) {
                asked = Some(Instant::now());
                match self.job.state().await {
                    Ok(LoneState::Waits(says)) => self.say(&format!(
                        "the dispatcher's job waits: {}",
                        says.as_deref().unwrap_or("the batch system gives no reason")
                    )),
                    Ok(LoneState::Runs) => lost = 0,
                    // The exit code may be written a moment later, and a shared file system may
                    // show it late.
                    Ok(LoneState::Ended(_)) if lost < 2 => lost += 1,
                    Ok(LoneState::Ended(says)) => {
                        return Err(format!(
                            "the dispatcher's job {} has ended: {says}",
                            self.job.id()
                        )
                        .into());
                    }
                    Err(why) => {
                        tracing::warn!("the state of job {} is not known: {why}", self.job.id())
                    }
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn say(&mut self, text: &str) {
        if self.said != text {
            text.clone_into(&mut self.said);
            say!("{text}");
        }
    }

    fn print(&mut self) -> Result<(), PrintError> {
        let (stdout, stderr) = (self.job.stdout(), self.job.stderr());
        while let Some(bytes) = self.stderr.read(&stderr) {
            print::bytes_to_stderr(&bytes);
        }
        while let Some(bytes) = self.stdout.read(&stdout) {
            print::bytes(&bytes)?;
        }
        Ok(())
    }

    /// Cancels the tasks, which ends the command in the job and its cluster; then ends the job if
    /// it is still there.
    async fn end(&mut self) -> Result<(), CliError> {
        let cancelled = tokio::time::timeout(END_DEADLINE, async {
            self.cancel().await?;
            self.follow().await
        });
        if let Ok(Ok(_)) = cancelled.await {
            return Ok(());
        }
        self.job.withdraw().await?;
        say!("the dispatcher's job {} is withdrawn", self.job.id());
        Ok(self.print()?)
    }

    async fn cancel(&self) -> Result<(), CliError> {
        cancel_all(&mut Client::connect(&self.cluster.access()?).await?).await
    }
}

/// The part of a growing file that was not read yet.
#[derive(Default)]
struct Tail(u64);

impl Tail {
    /// The next bytes of the file. `None` if there are none now.
    fn read(&mut self, path: &Path) -> Option<Vec<u8>> {
        let mut file = std::fs::File::open(path).ok()?;
        file.seek(SeekFrom::Start(self.0)).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_READ_BYTES).read_to_end(&mut bytes).ok()?;
        self.0 += bytes.len() as u64;
        (!bytes.is_empty()).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_file_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout");
        let mut tail = Tail::default();
        assert_eq!(tail.read(&path), None);
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(tail.read(&path).as_deref(), Some(&b"one\n"[..]));
        assert_eq!(tail.read(&path), None);
        std::fs::write(&path, "one\ntwo\n").unwrap();
        assert_eq!(tail.read(&path).as_deref(), Some(&b"two\n"[..]));
    }
}
