//! Waits for the end of a job, and cancels it when it is to stop before that.

use std::pin::pin;
use std::time::Duration;

use eyas_client::Client;
use eyas_client::messages::FromClient;
use eyas_client::types::JobId;
use eyas_client::view::JobView;
use eyas_session::Access;
use tokio::sync::mpsc::UnboundedReceiver;

use super::halt::{Halt, Urgency};
use super::result_printer::{ResultPrinter, Stop};
use crate::error::{CliError, FAILED, INTERRUPTED};
use crate::interrupt::Interrupt;
use crate::print::say;
use crate::waiting;

/// After an interrupt, the cancelled job must end within this time.
const CANCEL_DEADLINE: Duration = Duration::from_secs(10);

/// A job whose end is waited for.
pub(super) struct RunningJob<'a> {
    pub access: &'a Access,
    pub job: JobId,
    /// The option that names its cluster; `None` for a cluster that this command has started.
    pub stays: Option<&'a str>,
    /// How long a lost dispatcher is waited for.
    pub patience: Duration,
}

impl RunningJob<'_> {
    /// Prints results until the job has ended, or cancels the job when it is to stop. Returns the
    /// exit code and the ended job.
    pub async fn until_end(
        &self,
        client: &mut Client,
        output: &mut ResultPrinter,
        interrupt: &mut Interrupt,
        mut stopped: UnboundedReceiver<Stop>,
    ) -> Result<(u8, JobView), CliError> {
        let mut halted = None;
        let watched = {
            let seen = |event| output.see(event);
            let mut watched = pin!(client.watch(self.job, true, self.patience, seen));
            loop {
                tokio::select! {
                    ended = &mut watched => break Ok(ended?),
                    () = interrupt.received() => break Err(INTERRUPTED),
                    Some(stop) = stopped.recv() => match stop {
                        // A cluster that stays may grow.
                        Stop::Stuck if self.stays.is_some() => {}
                        Stop::Stuck => break Err(FAILED),
                        Stop::Halt(halt) => {
                            say!("{}", halt.why);
                            let halt = halted.insert(halt);
                            if halt.urgency == Urgency::Now {
                                break Err(code_of(halt));
                            }
                            let mut other = Client::connect(self.access).await?;
                            other.cancel_waiting(self.job).await?;
                        }
                    },
                }
            }
        };
        match watched {
            Ok(ended) => {
                let code = waiting::exit_code(&ended).number();
                Ok((halted.as_ref().map_or(code, code_of), ended))
            }
            Err(code) => Ok((code, self.cancel(output).await?)),
        }
    }

    /// Cancels the job and waits for its end, for up to [`CANCEL_DEADLINE`]. Results that `output`
    /// has already seen are not printed again.
    async fn cancel(&self, output: &mut ResultPrinter) -> Result<JobView, CliError> {
        output.progress.message("cancelling the job");
        let job = self.job;
        let ended = async {
            let mut client = Client::connect(self.access).await?;
            client.ask(FromClient::Cancel { job, task: None }).await?;
            Ok::<_, CliError>(
                client.watch(job, true, Duration::ZERO, |seen| output.see(seen)).await?,
            )
        };
        let error = match tokio::time::timeout(CANCEL_DEADLINE, ended).await {
            Ok(Ok(ended)) => return Ok(ended),
            Ok(Err(error)) => error,
            Err(_) => {
                let deadline_s = CANCEL_DEADLINE.as_secs();
                format!("the job was cancelled but did not end within {deadline_s} s").into()
            }
        };
        let Some(on) = self.stays else { return Err(error) };
        let continues = waiting::continues(job, on);
        Err(format!("{error}. If the job was not cancelled, {continues}").into())
    }
}

/// The exit code of a job that has stopped.
fn code_of(halt: &Halt) -> u8 {
    if halt.is_success { 0 } else { FAILED }
}
