//! Commands of batch systems: each has a deadline, a bounded output and messages in English.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::batch_error::{BatchError, COMMAND_DEADLINE, shortened};

/// Most bytes of output that are read.
const MAX_OUTPUT_BYTES: u64 = 16 << 20;

/// The output of a command that has ended.
#[derive(Debug)]
pub(crate) struct BatchOutput {
    pub is_success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl BatchOutput {
    /// What the command says of a failure: standard error, or else standard output.
    pub fn message(&self) -> String {
        let text = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        shortened(text)
    }
}

/// Runs a program of a batch system to its end.
///
/// # Errors
/// If it cannot be started or does not end in time. A failure that it reports itself is not an
/// error here.
pub(crate) async fn run(program: &str, words: &[String]) -> Result<BatchOutput, BatchError> {
    run_within(program, words, COMMAND_DEADLINE).await
}

async fn run_within(
    program: &str,
    words: &[String],
    deadline: Duration,
) -> Result<BatchOutput, BatchError> {
    let mut command = Command::new(program);
    command.args(words).env("LC_ALL", "C").env_remove("EYAS_ACCESS").env_remove("EYAS_CLUSTER");
    if std::env::var_os("SLURM_JOB_ID").is_some() {
        // A dispatcher in a job: the sizes of its own job are not those of the nodes that it
        // requests.
        let of_job = std::env::vars_os().map(|(name, _)| name).filter(|name| {
            let name = name.to_string_lossy();
            name.starts_with("SLURM_") && !matches!(&*name, "SLURM_CONF" | "SLURM_CLUSTERS")
        });
        of_job.for_each(|name| _ = command.env_remove(name));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => BatchError::Missing { program: program.into() },
        _ => BatchError::NotStarted { program: program.into(), why: why.to_string() },
    })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ended = async { tokio::join!(child.wait(), text_of(stdout), text_of(stderr)) };
    let (status, stdout, stderr) = tokio::time::timeout(deadline, ended)
        .await
        .map_err(|_| BatchError::Slow { program: program.into() })?;
    let is_success = status.is_ok_and(|status| status.success());
    Ok(BatchOutput { is_success, stdout, stderr })
}

/// Runs a program of a batch system, which must succeed. Returns its standard output.
pub(crate) async fn run_ok(program: &str, words: &[String]) -> Result<String, BatchError> {
    let output = run(program, words).await?;
    if output.is_success {
        return Ok(output.stdout);
    }
    Err(BatchError::Failed { program: program.into(), says: output.message() })
}

async fn text_of(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        let _ = (&mut stream).take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes).await;
        // A program that prints more must not be blocked by a full pipe.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_and_exit_code_of_a_command_are_kept() {
        let words = ["-c", "echo a; echo b >&2; exit 3"].map(String::from);
        let output = run("sh", &words).await.unwrap();
        assert!(!output.is_success && output.stdout == "a\n" && output.message() == "b");
        let error = run_ok("sh", &words).await.unwrap_err();
        assert_eq!(error.to_string(), "`sh` failed: b");
        assert!(matches!(run("no-such-program", &[]).await, Err(BatchError::Missing { .. })));
    }

    #[test]
    fn only_a_refusal_says_that_nothing_was_done() {
        let failed = |says: &str| {
            BatchError::Failed { program: "sbatch".into(), says: says.into() }.leaves_open()
        };
        let slow = BatchError::Slow { program: "sbatch".into() };
        assert!(slow.leaves_open() && BatchError::unknown("sbatch", "welcome").leaves_open());
        for lost in [
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller \
             (connect failure)",
            "error: commlib error: got select error (Connection reset by peer)",
            "qsub: End of File",
            "qsub: Batch protocol error",
            "ERROR: Failed to commit job submission into the queue.",
            "Timeout, server node7 not responding.",
        ] {
            assert!(failed(lost), "{lost}");
        }
        for refused in [
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
            "Unable to run job: unknown queue \"x\". Exiting.",
            "qsub: Unknown queue MSG=cannot locate queue",
            "ERROR: on Line 3 of submit file",
        ] {
            assert!(!failed(refused), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_given_up() {
        let error =
            run_within("sleep", &["1000".to_owned()], Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(error.to_string(), "`sleep` did not answer within 60 s");
    }
}
