//! The connection behind `eyas top`: looks at a cluster again and again, and comes back when it was away. A dispatcher
//! that does not answer is lost as much as one that closed the connection; neither may hold the screen up.

use std::time::{Duration, Instant};

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::JobId;
use eyas_client::types::units::format_count;
use eyas_client::{Client, ClientError, Cluster};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use super::overview::Snapshot;
use crate::error::CliError;

/// A dispatcher that took longer to answer is taken for lost.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// What is told of the cluster.
#[derive(Debug)]
pub(crate) enum News {
    /// How it stands.
    Seen(Snapshot),
    /// It cannot be reached, why, and when that was tried, on the clock of [`Snapshot::at_us`].
    Lost { why: String, at_us: u64 },
    /// What came of a request.
    Said(String),
}

/// Looks at a cluster.
pub(crate) struct Watch {
    cluster: Cluster,
    client: Option<Client>,
    began: Instant,
}

impl Watch {
    pub fn new(cluster: Cluster) -> Self {
        Watch { cluster, client: None, began: Instant::now() }
    }

    /// Looks once.
    ///
    /// # Errors
    /// If there is no connection; the next look tries to make one.
    pub async fn look(&mut self) -> Result<Snapshot, CliError> {
        let ToClient::Jobs(jobs) = self.ask(FromClient::Jobs { job: None }).await? else {
            return Err(ClientError::Unexpected.into());
        };
        let at_us = self.now_us();
        let ToClient::Executors(executors) = self.ask(FromClient::Executors).await? else {
            return Err(ClientError::Unexpected.into());
        };
        Ok(Snapshot { at_us, jobs, executors })
    }

    /// Looks every `pause`, and cancels jobs as it is told to, until nobody listens to the news.
    pub async fn follow(mut self, pause: Duration, mut to_cancel: mpsc::Receiver<JobId>, news: mpsc::Sender<News>) {
        let mut ticks = interval_at(tokio::time::Instant::now() + pause, pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let told = tokio::select! {
                job = to_cancel.recv() => match job {
                    Some(job) => News::Said(self.cancel(job).await),
                    None => return,
                },
                _ = ticks.tick() => match self.look().await {
                    Ok(snapshot) => News::Seen(snapshot),
                    Err(e) => News::Lost { why: e.to_string(), at_us: self.now_us() },
                },
            };
            if news.send(told).await.is_err() {
                return;
            }
        }
    }

    async fn cancel(&mut self, job: JobId) -> String {
        match self.ask(FromClient::Cancel { job, task: None }).await {
            Ok(ToClient::Done(tasks)) => format!("job {job}: {} cancelled", format_count(tasks, "task")),
            Ok(_) => format!("job {job} was not cancelled: {}", ClientError::Unexpected),
            Err(e) => format!("job {job} was not cancelled: {e}"),
        }
    }

    /// Asks, on a new connection if there is none. A dispatcher that has started again has a new access file.
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
        let (client, answer) =
            timeout(ANSWER_DEADLINE, asked).await.map_err(|_| "the dispatcher does not answer")??;
        // After anything but an answer or a refusal, what comes next on that connection may belong to this request.
        if matches!(answer, Ok(_) | Err(ClientError::Refused(_))) {
            self.client = Some(client);
        }
        Ok(answer?)
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}
