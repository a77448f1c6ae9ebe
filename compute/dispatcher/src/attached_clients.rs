//! Jobs that are attached to clients: their results go to the clients, and not to the journal.
//!
//! Results wait in memory until the client has read them. A client that was stopped reads nothing.
//! Its job ends when too much waits for it, or for all clients together; what waits for it is
//! dropped then.

use std::collections::BTreeMap;

use eyas_types::{JobId, TaskResult, units};

use crate::service::deliveries::{DeliveryQueue, JobDelivery};

/// Maximum size of the results that a client has not read yet.
const MAX_UNREAD_BYTES: u64 = 256 << 20;
/// Maximum size of the results that all clients of attached jobs have not read yet.
const MAX_UNREAD_BY_ALL_BYTES: u64 = 512 << 20;

/// The attached jobs that have not ended, with the connections of those whose clients are there.
pub(crate) struct AttachedClients {
    clients: BTreeMap<JobId, Option<DeliveryQueue>>,
    max_unread_bytes: u64,
    max_unread_by_all_bytes: u64,
}

impl Default for AttachedClients {
    fn default() -> Self {
        let (max_unread_bytes, max_unread_by_all_bytes) =
            (MAX_UNREAD_BYTES, MAX_UNREAD_BY_ALL_BYTES);
        AttachedClients { clients: BTreeMap::new(), max_unread_bytes, max_unread_by_all_bytes }
    }
}

impl AttachedClients {
    pub fn are_there(&self) -> bool {
        !self.clients.is_empty()
    }

    /// A client has begun a job.
    pub fn begin(&mut self, job: JobId, client: DeliveryQueue) {
        self.clients.insert(job, Some(client));
    }

    /// The client of a job is gone. Returns whether the job has not ended.
    pub fn leave(&mut self, job: JobId) -> bool {
        self.clients.get_mut(&job).map(|client| *client = None).is_some()
    }

    /// A job has ended: its client, if it is there, is told so after all results.
    pub fn end(&mut self, job: JobId, last: JobDelivery) {
        self.end_with(job, last);
        self.clients.remove(&job);
    }

    /// The clients that are there.
    fn present(&self) -> impl Iterator<Item = (JobId, &DeliveryQueue)> {
        self.clients.iter().filter_map(|(job, client)| Some((*job, client.as_ref()?)))
    }

    fn client_of(&self, job: JobId) -> Option<&DeliveryQueue> {
        self.clients.get(&job)?.as_ref()
    }

    /// Sends results to the client of a job, if it is there. Drops the results of a client that has
    /// read too few, and tells it why. Returns its job, which has to end.
    pub fn send(&mut self, job: JobId, results: Vec<TaskResult>) -> Option<JobId> {
        let client = self.client_of(job)?;
        client.add(results);
        let (slow, bound, of) = if client.unread_bytes() > self.max_unread_bytes {
            (job, self.max_unread_bytes, "")
        } else if self.present().map(|(_, client)| client.unread_bytes()).sum::<u64>()
            > self.max_unread_by_all_bytes
        {
            let (slow, _) = self.present().max_by_key(|(_, client)| client.unread_bytes())?;
            (slow, self.max_unread_by_all_bytes, ", with those of other clients,")
        } else {
            return None;
        };
        let why = format!(
            "the client of job {slow} has not read its results, which{of} have more than {}: it \
             was stopped or is too slow; keep large results in files",
            units::format_bytes(bound)
        );
        tracing::warn!("{why}");
        let client = self.clients.get_mut(&slow)?.take()?;
        client.drop_results();
        client.end_with(JobDelivery::Refused(why));
        Some(slow)
    }

    /// Sends something after all results to the client of a job, if it is there.
    pub fn end_with(&self, job: JobId, last: JobDelivery) {
        if let Some(client) = self.client_of(job) {
            client.end_with(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::service::deliveries::tests::result;
    use crate::service::deliveries::{Deliveries, deliveries};

    /// Three clients, each with a bound of 100 kB, and all together with one of 200 kB.
    fn clients() -> (AttachedClients, [Deliveries; 3]) {
        let mut clients = AttachedClients {
            max_unread_bytes: 100_000,
            max_unread_by_all_bytes: 200_000,
            ..Default::default()
        };
        let ends = [1, 2, 3].map(|job| {
            let (queue, end) = deliveries();
            clients.clients.insert(JobId(job), Some(queue));
            end
        });
        (clients, ends)
    }

    /// What a client reads until there is no more: the number of results, and the last message.
    async fn read(deliveries: &mut Deliveries) -> (usize, Option<String>) {
        let mut count = 0;
        loop {
            match deliveries.next().await {
                Some(JobDelivery::Results(results)) => count += results.len(),
                Some(JobDelivery::Refused(why)) => return (count, Some(why)),
                Some(other) => panic!("{other:?}"),
                None => return (count, None),
            }
        }
    }

    #[tokio::test]
    async fn the_results_of_a_client_that_does_not_read_are_dropped_with_its_job() {
        let (mut clients, [mut stopped, mut reader, _other]) = clients();
        assert_eq!(clients.send(JobId(1), vec![result(60_000)]), None);
        for _ in 0..10 {
            assert_eq!(clients.send(JobId(2), vec![result(60_000)]), None);
            assert!(matches!(reader.next().await, Some(JobDelivery::Results(_))));
            let more = tokio::time::timeout(Duration::ZERO, reader.next()).await;
            assert!(more.is_err(), "it has read all");
        }
        assert_eq!(clients.send(JobId(1), vec![result(60_000)]), Some(JobId(1)));
        let (count, why) = read(&mut stopped).await;
        assert!(count == 0 && why.is_some_and(|why| why.contains("more than 100.0 kB")));
        assert_eq!(clients.send(JobId(1), vec![result(60_000)]), None, "it is gone");
    }

    #[tokio::test]
    async fn of_many_clients_that_do_not_read_the_one_with_the_most_makes_room() {
        let (mut clients, mut ends) = clients();
        let sent = |clients: &mut AttachedClients, job, bytes| {
            clients.send(JobId(job), vec![result(bytes)])
        };
        assert_eq!(sent(&mut clients, 1, 70_000), None);
        assert_eq!(sent(&mut clients, 2, 90_000), None);
        assert_eq!(sent(&mut clients, 3, 50_000), Some(JobId(2)));
        assert_eq!(sent(&mut clients, 3, 40_000), None);
        drop(clients);
        let mut read_by = Vec::new();
        for end in &mut ends {
            let (count, why) = read(end).await;
            read_by.push((count, why.is_some()));
        }
        assert_eq!(read_by, [(1, false), (0, true), (2, false)]);
    }
}
