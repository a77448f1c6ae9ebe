//! The connection behind `eyas top`: asks the dispatcher for its jobs and executors at regular
//! intervals, and reconnects after a loss. A dispatcher that does not answer in time counts as
//! lost, so that the screen never waits for it.

use std::time::{Duration, Instant};

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::JobId;
use eyas_client::types::units::format_count;
use eyas_client::{Client, ClientError, Cluster};
use eyas_wire::pool::PoolsRequest;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use super::overview::Snapshot;
use crate::error::CliError;

/// A dispatcher that takes longer to answer counts as lost.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// What the watch reports to the screen.
#[derive(Debug)]
pub(crate) enum TopEvent {
    /// The state of the cluster.
    Snapshot(Snapshot),
    /// The dispatcher could not be reached, at this time on the clock of [`Snapshot::at_us`].
    Disconnected { why: String, at_us: u64 },
    /// The outcome of a request, as a sentence.
    Answer(String),
}

/// Asks a cluster for its state.
pub(crate) struct Watch {
    cluster: Cluster,
    client: Option<Client>,
    began: Instant,
}

impl Watch {
    pub fn new(cluster: Cluster) -> Self {
        Watch { cluster, client: None, began: Instant::now() }
    }

    /// Asks for the jobs, executors and pools once.
    ///
    /// # Errors
    /// If the dispatcher cannot be reached. The next call tries to connect again.
    pub async fn snapshot(&mut self) -> Result<Snapshot, CliError> {
        let ToClient::Jobs(jobs) = self.ask(FromClient::Jobs { job: None }).await? else {
            return Err(ClientError::Unexpected.into());
        };
        let at_us = self.now_us();
        let ToClient::Executors(executors) = self.ask(FromClient::Executors).await? else {
            return Err(ClientError::Unexpected.into());
        };
        let ToClient::Pools(pools) =
            self.ask(FromClient::Pools(PoolsRequest::Show { name: None })).await?
        else {
            return Err(ClientError::Unexpected.into());
        };
        Ok(Snapshot { at_us, jobs, executors, pools })
    }

    /// Reports a snapshot every `pause`, and cancels the jobs of `to_cancel`, until one of the
    /// channels is closed.
    pub async fn follow(
        mut self,
        pause: Duration,
        mut to_cancel: mpsc::Receiver<JobId>,
        events: mpsc::Sender<TopEvent>,
    ) {
        let mut ticks = interval_at(tokio::time::Instant::now() + pause, pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let event = tokio::select! {
                job = to_cancel.recv() => match job {
                    Some(job) => TopEvent::Answer(self.cancel(job).await),
                    None => return,
                },
                _ = ticks.tick() => match self.snapshot().await {
                    Ok(snapshot) => TopEvent::Snapshot(snapshot),
                    Err(e) => TopEvent::Disconnected { why: e.to_string(), at_us: self.now_us() },
                },
            };
            if events.send(event).await.is_err() {
                return;
            }
        }
    }

    async fn cancel(&mut self, job: JobId) -> String {
        match self.ask(FromClient::Cancel { job, task: None }).await {
            Ok(ToClient::Done(tasks)) => {
                format!("job {job}: {} cancelled", format_count(tasks, "task"))
            }
            Ok(_) => format!("job {job} was not cancelled: {}", ClientError::Unexpected),
            Err(e) => format!("job {job} was not cancelled: {e}"),
        }
    }

    /// Sends a request, on a new connection if there is none. The access file is read again for
    /// each connection, because a restarted dispatcher writes a new one.
    async fn ask(&mut self, request: FromClient) -> Result<ToClient, CliError> {
        let kept = self.client.take();
        let asked = async {
            let mut client = match kept {
                Some(client) => client,
                None => Client::connect(&self.cluster.access()?).await?,
            };
            let answer = client.ask(request).await;
            Ok::<_, CliError>((client, answer))
        };
        let (client, answer) = timeout(ANSWER_DEADLINE, asked)
            .await
            .map_err(|_| "the dispatcher does not answer")??;
        // After any other error, a late answer to this request could still arrive on the
        // connection, so it is closed.
        if matches!(answer, Ok(_) | Err(ClientError::Refused(_))) {
            self.client = Some(client);
        }
        Ok(answer?)
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}
