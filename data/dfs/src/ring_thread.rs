//! The thread of the ring's decider: takes inputs, decides, saves, and carries out the effects.
//!
//! Inputs that arrive while the thread saves are decided together and saved together, so that they
//! share one slow write to disk. No message and no answer is sent before the changes that it
//! depends on are durable.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use eyas_ring::{
    Config, Effect, Event, FileAnswer, FileChunks, FileOperation, PersistentState, Refusal,
    RingMessage, RingNode, View,
};
use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, NodeId};
use tokio::sync::{oneshot, watch};

use crate::database::{Database, DatabaseError};

/// Maximum number of events that are decided together.
const MAX_TOGETHER: usize = 4096;

/// An input of the thread.
pub(crate) enum RingInput {
    /// Events, in order.
    Events(Vec<Event>),
    /// A client requests operations and waits for all answers.
    Asked(Vec<FileOperation>, oneshot::Sender<Vec<Result<FileAnswer, Refusal>>>),
    /// The thread has to end.
    End,
}

/// Carries out effects of the decider.
pub(crate) trait RingEffects: Send + 'static {
    /// Sends messages to a node, in order.
    fn send(&self, to: NodeId, messages: Vec<RingMessage>);
    /// Fetches a chunk from one of these nodes, and reports the outcome as an event.
    fn fetch(&self, object: ObjectId, size_bytes: u64, checksum: u64, from: Vec<NodeId>);
    /// Asks all members for good replicas of a file's chunks.
    fn search(&self, name: FileName, objects: Vec<ObjectId>);
    /// Has a node force chunks of files to its disk, and report bad ones as an event.
    fn sync(&self, node: NodeId, files: Vec<FileChunks>);
    /// Deletes chunks.
    fn drop(&self, objects: &[ObjectId]);
}

/// The state of the file system, as this node sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RingState {
    /// `None` before the node has joined.
    pub view: Option<View>,
    /// Whether all partitions that this node leads are served.
    pub is_settled: bool,
}

pub(crate) struct RingThread<H> {
    node: RingNode,
    database: Arc<Database>,
    shell: H,
    inputs: mpsc::Receiver<RingInput>,
    state: watch::Sender<RingState>,
    /// The start of the clock of `now_us`.
    began_us: u64,
    effects: Vec<Effect>,
    /// Clients that wait, by the number of their first request. The requests of a client have
    /// consecutive numbers.
    waiting: BTreeMap<u64, WaitingClient>,
    next_request: u64,
}

/// A client that waits until all its requests are answered.
struct WaitingClient {
    answers: Vec<Option<Result<FileAnswer, Refusal>>>,
    /// Number of requests without an answer.
    open: usize,
    all: oneshot::Sender<Vec<Result<FileAnswer, Refusal>>>,
}

impl<H: RingEffects> RingThread<H> {
    /// A thread that continues from the `saved` state.
    pub fn new(
        config: Config,
        saved: PersistentState,
        database: Arc<Database>,
        shell: H,
        inputs: mpsc::Receiver<RingInput>,
        state: watch::Sender<RingState>,
    ) -> Self {
        let (began_us, mut effects) = (running_us(), Vec::new());
        let node = RingNode::new(config, saved, 0, &mut effects);
        let waiting = BTreeMap::new();
        RingThread {
            node,
            database,
            shell,
            inputs,
            state,
            began_us,
            effects,
            waiting,
            next_request: 0,
        }
    }

    /// Runs until it has to end, or all senders of inputs are gone.
    pub fn run(mut self) -> Result<(), DatabaseError> {
        self.process(VecDeque::new())?;
        loop {
            let due =
                Duration::from_micros(self.node.next_timeout_us().saturating_sub(self.now_us()));
            let first = match self.inputs.recv_timeout(due) {
                Ok(input) => input,
                Err(RecvTimeoutError::Timeout) => RingInput::Events(vec![Event::Tick]),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let (mut events, mut next) = (VecDeque::new(), Some(first));
            while let Some(input) = next {
                match input {
                    RingInput::Events(more) => events.extend(more),
                    RingInput::Asked(operations, all) => events.extend(self.begin(operations, all)),
                    RingInput::End => return Ok(()),
                }
                next = if events.len() < MAX_TOGETHER { self.inputs.try_recv().ok() } else { None };
            }
            self.process(events)?;
        }
    }

    /// Numbers the requests of a client.
    fn begin(
        &mut self,
        operations: Vec<FileOperation>,
        all: oneshot::Sender<Vec<Result<FileAnswer, Refusal>>>,
    ) -> impl Iterator<Item = Event> + use<H> {
        let (first, open) = (self.next_request, operations.len());
        self.next_request += open as u64;
        self.waiting.insert(first, WaitingClient { answers: vec![None; open], open, all });
        (first..)
            .zip(operations)
            .map(|(request, operation)| Event::Requested { request, operation })
    }

    /// Decides these events, and carries out the effects.
    fn process(&mut self, mut events: VecDeque<Event>) -> Result<(), DatabaseError> {
        let (database, now_us) = (self.database.clone(), self.now_us());
        database.read(|records| {
            while !saves_any(&self.effects)
                && let Some(event) = events.pop_front()
            {
                self.node.handle(now_us, event, records, &mut self.effects);
            }
        })?;
        if saves_any(&self.effects) {
            database.save(|tables| {
                let mut saved = 0;
                loop {
                    for effect in &self.effects[saved..] {
                        if let Effect::Save(save) = effect {
                            tables.apply(save);
                        }
                    }
                    saved = self.effects.len();
                    let Some(event) = events.pop_front() else { break };
                    self.node.handle(now_us, event, &tables.records, &mut self.effects);
                }
            })?;
        }
        let (mut dropped, mut messages) = (Vec::new(), BTreeMap::<NodeId, Vec<RingMessage>>::new());
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Drop { object } => dropped.push(object),
                Effect::Send { to, message } => messages.entry(to).or_default().push(message),
                effect => {
                    // Chunks are deleted before they are fetched or searched anew. Nothing else
                    // depends on it, so that the chunks of many removed files are deleted together.
                    if matches!(effect, Effect::Fetch { .. } | Effect::Search { .. }) {
                        self.shell.drop(&std::mem::take(&mut dropped));
                    }
                    self.apply(effect);
                }
            }
        }
        self.shell.drop(&dropped);
        messages.into_iter().for_each(|(to, messages)| self.shell.send(to, messages));
        self.state.send_if_modified(|state| {
            let is_settled = self.node.is_settled();
            let number = |view: Option<&View>| view.map(|view| view.number);
            let is_new = number(state.view.as_ref()) != number(self.node.view());
            if is_new {
                state.view = self.node.view().cloned();
            }
            is_new | (std::mem::replace(&mut state.is_settled, is_settled) != is_settled)
        });
        Ok(())
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            // Done before, or afterwards.
            Effect::Save(_) | Effect::Drop { .. } | Effect::Send { .. } => {}
            Effect::Answer { request, answer } => self.answered(request, answer),
            Effect::Fetch { object, size_bytes, checksum, from } => {
                self.shell.fetch(object, size_bytes, checksum, from);
            }
            Effect::Search { name, objects } => self.shell.search(name, objects),
            Effect::Sync { node, files } => self.shell.sync(node, files),
        }
    }

    /// Answers the client if this is the last one of its requests.
    fn answered(&mut self, request: u64, answer: Result<FileAnswer, Refusal>) {
        let Some((&first, client)) = self.waiting.range_mut(..=request).next_back() else { return };
        let Some(open) =
            client.answers.get_mut((request - first) as usize).filter(|open| open.is_none())
        else {
            return;
        };
        *open = Some(answer);
        client.open -= 1;
        if client.open == 0
            && let Some(client) = self.waiting.remove(&first)
        {
            // The client may no longer be waiting.
            let _ = client.all.send(client.answers.into_iter().flatten().collect());
        }
    }

    fn now_us(&self) -> u64 {
        running_us() - self.began_us
    }
}

/// Time since the machine was booted, including time in which it was suspended, since leases expire
/// in that time too.
fn running_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

fn saves_any(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Save(_)))
}
