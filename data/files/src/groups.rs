//! Requests of many callers that go to a node together. A request is sent at once if few groups are
//! on their way to its node; otherwise it waits and shares the next group. So a single request is
//! not delayed, and a thousand requests cost a node a few frames, a few syncs and a few rounds of
//! its ring.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_ring::{FileAnswer, FileOperation, Refusal};
use eyas_types::ObjectId;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::calls::{ANSWER_DEADLINE, Calls};
use crate::error::{FilesError, unexpected};
use crate::outgoing::STORE_DEADLINE;
use crate::protocol::{RequestBody, ResponseBody, SmallChunk, SmallContent, StoreFailure};

/// Maximum number of requests in a group.
const MAX_TOGETHER: usize = 512;

/// A group is sent when its content has this size, bytes.
const FULL_BYTES: usize = 1 << 20;

/// Maximum number of groups of one kind that are on their way to a node.
const GROUPS_UNDER_WAY: usize = 2;

/// A kind of requests that can be sent together.
pub(crate) trait Groupable: Send + Sized + 'static {
    /// The answer to one request.
    type Answer: Send + 'static;

    /// Time for a node to answer a group.
    const DEADLINE: Duration;

    /// Bytes that the request adds to its group.
    fn size_bytes(&self) -> usize;

    /// Whether the request may be in a group with another one.
    fn goes_with(&self, other: &Self) -> bool;

    fn request(group: Vec<Self>) -> RequestBody;

    /// The answers, in the order of the requests.
    fn answers(response: ResponseBody) -> Option<Vec<Self::Answer>>;
}

impl Groupable for FileOperation {
    type Answer = Result<FileAnswer, Refusal>;

    const DEADLINE: Duration = ANSWER_DEADLINE;

    fn size_bytes(&self) -> usize {
        match self {
            FileOperation::Create { record, .. } | FileOperation::Replace { record, .. } => {
                record.chunks.len() * 64 + record.named.size_bytes()
            }
            FileOperation::SetAttributes { named: Some(named), .. } => named.size_bytes(),
            _ => 0,
        }
    }

    fn goes_with(&self, _: &Self) -> bool {
        true
    }

    fn request(group: Vec<Self>) -> RequestBody {
        RequestBody::OperateAll(group)
    }

    fn answers(response: ResponseBody) -> Option<Vec<Self::Answer>> {
        match response {
            ResponseBody::OperatedAll(answers) => Some(answers),
            _ => None,
        }
    }
}

/// A small chunk, and whether it has to be on the disk before the answer.
pub(crate) struct OutgoingSmallChunk {
    pub chunk: SmallChunk,
    pub is_durable: bool,
}

impl Groupable for OutgoingSmallChunk {
    type Answer = Result<(), StoreFailure>;

    const DEADLINE: Duration = STORE_DEADLINE;

    fn size_bytes(&self) -> usize {
        self.chunk.content.len()
    }

    fn goes_with(&self, other: &Self) -> bool {
        self.is_durable == other.is_durable
    }

    fn request(group: Vec<Self>) -> RequestBody {
        let is_durable = group.iter().any(|outgoing| outgoing.is_durable);
        RequestBody::StoreAll {
            chunks: group.into_iter().map(|outgoing| outgoing.chunk).collect(),
            is_durable,
        }
    }

    fn answers(response: ResponseBody) -> Option<Vec<Self::Answer>> {
        match response {
            ResponseBody::StoredAll(failures) => {
                Some(failures.into_iter().map(|failure| failure.map_or(Ok(()), Err)).collect())
            }
            _ => None,
        }
    }
}

/// A small chunk that is to be read.
pub(crate) struct WantedSmallChunk {
    pub object: ObjectId,
    pub size_bytes: u64,
}

impl Groupable for WantedSmallChunk {
    type Answer = SmallContent;

    const DEADLINE: Duration = ANSWER_DEADLINE;

    fn size_bytes(&self) -> usize {
        self.size_bytes as usize
    }

    fn goes_with(&self, _: &Self) -> bool {
        true
    }

    fn request(group: Vec<Self>) -> RequestBody {
        RequestBody::Contents { objects: group.into_iter().map(|wanted| wanted.object).collect() }
    }

    fn answers(response: ResponseBody) -> Option<Vec<Self::Answer>> {
        match response {
            ResponseBody::Contents(contents) => Some(contents),
            _ => None,
        }
    }
}

/// A request that waits for its group, and its caller.
type GroupedRequest<T> = (T, oneshot::Sender<Result<<T as Groupable>::Answer, FilesError>>);

/// The requests of one kind, by node.
pub(crate) struct Groups<T: Groupable> {
    calls: Arc<Calls>,
    queues: Mutex<Queues<T>>,
}

/// The queues of the nodes. Each is as long as there are callers that wait.
struct Queues<T: Groupable> {
    by_node: HashMap<SocketAddr, mpsc::UnboundedSender<GroupedRequest<T>>>,
    /// How often connections had been closed when the queues of other nodes were forgotten.
    kept: u64,
}

impl<T: Groupable> Groups<T> {
    pub fn new(calls: Arc<Calls>) -> Self {
        let queues = Mutex::new(Queues { by_node: HashMap::new(), kept: calls.kept() });
        Groups { calls, queues }
    }

    /// Sends a request to the node at `address`. It is in the queue when this returns the future
    /// answer.
    pub fn ask(
        &self,
        address: SocketAddr,
        request: T,
    ) -> impl Future<Output = Result<T::Answer, FilesError>> + Send + use<T> {
        let (answer, answered) = oneshot::channel();
        {
            let mut queues = self.queues();
            let kept = self.calls.kept();
            if queues.kept != kept {
                queues.by_node.retain(|address, _| self.calls.knows(*address));
                queues.kept = kept;
            }
            let queue = queues.by_node.entry(address).or_insert_with(|| {
                let (queue, requests) = mpsc::unbounded_channel();
                tokio::spawn(send_groups(self.calls.clone(), address, requests));
                queue
            });
            // The task ends only when the queue is dropped.
            let _ = queue.send((request, answer));
        }
        async {
            answered.await.unwrap_or_else(|_| Err(FilesError::unreachable("the program is ending")))
        }
    }

    fn queues(&self) -> MutexGuard<'_, Queues<T>> {
        // No update of the map can panic half-way.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the requests to one node, in groups.
async fn send_groups<T: Groupable>(
    calls: Arc<Calls>,
    address: SocketAddr,
    mut requests: mpsc::UnboundedReceiver<GroupedRequest<T>>,
) {
    let mut under_way = JoinSet::new();
    let mut next = None;
    loop {
        let first = match next.take() {
            Some(first) => first,
            None => match requests.recv().await {
                Some(first) => first,
                None => return,
            },
        };
        while under_way.try_join_next().is_some() {}
        if under_way.len() >= GROUPS_UNDER_WAY {
            under_way.join_next().await;
        }
        let group;
        (group, next) = gather(first, || requests.try_recv().ok());
        under_way.spawn(send(calls.clone(), address, group));
    }
}

/// A group that begins with `first`; and the request after it, if one was taken that belongs to the
/// next group.
fn gather<T: Groupable>(
    first: GroupedRequest<T>,
    mut next: impl FnMut() -> Option<GroupedRequest<T>>,
) -> (Vec<GroupedRequest<T>>, Option<GroupedRequest<T>>) {
    let mut bytes = first.0.size_bytes();
    let mut group = vec![first];
    while group.len() < MAX_TOGETHER && bytes < FULL_BYTES {
        let Some(more) = next() else { break };
        if !more.0.goes_with(&group[0].0) {
            return (group, Some(more));
        }
        bytes += more.0.size_bytes();
        group.push(more);
    }
    (group, None)
}

async fn send<T: Groupable>(calls: Arc<Calls>, address: SocketAddr, group: Vec<GroupedRequest<T>>) {
    let (requests, callers): (Vec<T>, Vec<_>) = group.into_iter().unzip();
    let asked = async { calls.ask(address, T::request(requests)).await?.next().await };
    let silent =
        || FilesError::unreachable(format!("the file system's node at {address} does not answer"));
    let response = timeout(T::DEADLINE, asked).await.unwrap_or_else(|_| Err(silent()));
    let answers = response.and_then(|response| {
        T::answers(response).filter(|answers| answers.len() == callers.len()).ok_or_else(unexpected)
    });
    // A caller may no longer be waiting.
    match answers {
        Ok(answers) => callers
            .into_iter()
            .zip(answers)
            .for_each(|(caller, answer)| drop(caller.send(Ok(answer)))),
        Err(error) => callers.into_iter().for_each(|caller| drop(caller.send(Err(error.clone())))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use eyas_session::Access;

    use super::*;

    fn chunk(
        number: u8,
        size_bytes: usize,
        is_durable: bool,
    ) -> GroupedRequest<OutgoingSmallChunk> {
        let chunk = SmallChunk {
            object: ObjectId([number; 16]),
            checksum: 0,
            content: vec![number; size_bytes],
        };
        (OutgoingSmallChunk { chunk, is_durable }, oneshot::channel().0)
    }

    /// The sizes of the groups that these requests form.
    fn groups<T: Groupable>(requests: impl IntoIterator<Item = GroupedRequest<T>>) -> Vec<usize> {
        let mut requests: VecDeque<_> = requests.into_iter().collect();
        let mut sizes = Vec::new();
        while let Some(first) = requests.pop_front() {
            let (group, next) = gather(first, || requests.pop_front());
            sizes.push(group.len());
            next.into_iter().for_each(|next| requests.push_front(next));
        }
        sizes
    }

    #[test]
    fn groups_are_bounded_in_number_and_bytes() {
        assert_eq!(groups([chunk(1, 10, true)]), [1]);
        let many = 2 * MAX_TOGETHER + 100;
        assert_eq!(
            groups((0..many).map(|_| chunk(1, 10, true))),
            [MAX_TOGETHER, MAX_TOGETHER, 100]
        );
        // A group is closed by the chunk that fills it.
        assert_eq!(groups((0..5).map(|_| chunk(1, FULL_BYTES / 2, true))), [2, 2, 1]);
        assert_eq!(groups([chunk(1, 3 * FULL_BYTES, true), chunk(2, 1, true)]), [1, 1]);
    }

    #[test]
    fn durable_and_other_chunks_are_not_grouped() {
        let mixed = [true, true, false, true].map(|is_durable| chunk(1, 1, is_durable));
        assert_eq!(groups(mixed), [2, 1, 1]);
    }

    #[tokio::test]
    async fn queues_of_nodes_that_are_gone_are_forgotten() {
        let calls = Arc::new(Calls::new(Access::create("test", "127.0.0.1:1")));
        let groups = Groups::<WantedSmallChunk>::new(calls.clone());
        let [kept, gone] = ["127.0.0.1:1", "127.0.0.1:2"].map(|address| address.parse().unwrap());
        let ask = async |address| {
            let wanted = WantedSmallChunk { object: ObjectId([7; 16]), size_bytes: 1 };
            assert!(groups.ask(address, wanted).await.is_err());
        };
        ask(kept).await;
        ask(gone).await;
        calls.keep(&[kept].into());
        ask(kept).await;
        assert_eq!(groups.queues().by_node.keys().collect::<Vec<_>>(), [&kept]);
    }
}
