//! Sources: which executor gives an object to which: one fetch from persistent storage, then a
//! chain (replica-coupled scheduling, the negotiator and Dolly+).
//!
//! Of executors that want an object at about the same time, the first fetches it from persistent
//! storage. Each further one gets it from the executor that would give it the soonest: one in its
//! rack that gives few objects to others; executors with a whole replica before those that are
//! still receiving it, and of those the last that joined. So simultaneous demand grows a chain, in
//! which each node sends what it receives once. Where holders outnumber receivers, single transfers
//! result. There is no other kind of broadcast, but for [spanning trees](super::spanning_tree) to
//! compare with.
//!
//! For example A, B, C and D want an object: A fetches it from persistent storage, B from A, C from
//! B, and D from C. The hints of D are C, B and A.
//!
//! Executors with different `site` labels do not give to each other, because the way between sites
//! may be longer than the way to persistent storage: one executor at each site fetches from there.
//! Objects that are in executors' stores alone cross sites.
//!
//! The plan is sent with tasks and pushes, and is a hint: after the giver it names the executors
//! that give to the giver, up the chain, and then other holders. So any receiver can repair a chain
//! that breaks, from where it was. What a node really does is seen here by what it reports as
//! stored.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::event::{Holder, MAX_HINTS};
use crate::state::{ExecutorKey, ExpectedFetch, ObjectKey, SITE_LOOKS, SchedulerState, TaskKey};

/// Holders, and receivers, that are compared.
const GIVER_LOOKS: usize = 16;

/// An object that an executor lacks.
#[derive(Clone, Copy)]
pub(super) struct SourceRequest {
    pub object: ObjectKey,
    pub executor: ExecutorKey,
    /// The task that needs the object; `None` if the object is pushed.
    pub task: Option<TaskKey>,
    /// The object is not in persistent storage, and is given from site to site.
    pub crosses_sites: bool,
    /// An executor that is still receiving the object may give it.
    pub from_relays: bool,
}

/// Plans the source of an object, if it is not planned yet. Returns the holders to ask, the first
/// first; if there are none, the source is persistent storage. `turn` spreads the load over
/// holders.
pub(super) fn plan(
    state: &mut SchedulerState,
    request: SourceRequest,
    turn: usize,
) -> Box<[Holder]> {
    let SourceRequest { object, executor, task, .. } = request;
    let receipts = state.transfers.incoming(object);
    if receipts.is_empty() && state.catalog[object].holders.is_empty() {
        // So it is with most inputs of a task that has very many.
        let bytes = state.catalog.size_bytes(object);
        state.transfers.expect(ExpectedFetch { object, executor, from: None, task, bytes });
        return Box::default();
    }
    let planned =
        receipts.iter().find(|receipt| receipt.executor == executor).map(|receipt| receipt.from);
    let whole = holders_by_preference(state, request, turn);
    let from = planned.unwrap_or_else(|| {
        let from = best_giver(state, request, &whole);
        let bytes = state.catalog.size_bytes(object);
        state.transfers.expect(ExpectedFetch { object, executor, from, task, bytes });
        from
    });
    let SchedulerState { executors, transfers, .. } = state;
    let receipts = transfers.incoming(object);
    let mut hints = Vec::with_capacity(MAX_HINTS);
    let mut above = from;
    while let Some(giver) = above.filter(|_| hints.len() < MAX_HINTS) {
        let receipt = receipts.iter().find(|receipt| receipt.executor == giver);
        hints.push(Holder {
            executor: executors[giver].id,
            is_relay: receipt.is_some(),
            others: transfers.gives(giver) - u32::from(from == Some(giver)),
        });
        above = receipt.and_then(|receipt| receipt.from);
    }
    for holder in whole {
        let id = executors[holder].id;
        if hints.len() < MAX_HINTS && !hints.iter().any(|hint| hint.executor == id) {
            hints.push(Holder { executor: id, is_relay: false, others: transfers.gives(holder) });
        }
    }
    hints.into()
}

fn may_give(state: &SchedulerState, request: SourceRequest, giver: ExecutorKey) -> bool {
    giver != request.executor
        && (request.crosses_sites || state.transfers.is_one_site(giver, request.executor))
}

/// The order of givers: the one that gives the object the soonest first; of equals, which all are
/// without racks, the one that gives the fewest objects. Times are not negative, so their bits are
/// in their order. For example 100 MB over links of 125 MB/s take 0.8 s from an executor that gives
/// nothing, and 2.4 s from one that gives two objects.
fn preference(
    state: &SchedulerState,
    request: SourceRequest,
    giver: ExecutorKey,
) -> impl Ord + use<> {
    let transfers = &state.transfers;
    let seconds =
        transfers.peer_seconds(giver, request.executor, state.catalog.size_bytes(request.object));
    (seconds.to_bits(), transfers.distance(giver, request.executor), transfers.gives(giver))
}

/// Holders that may give the object, the best first.
fn holders_by_preference(
    state: &SchedulerState,
    request: SourceRequest,
    turn: usize,
) -> Vec<ExecutorKey> {
    let holders = &state.catalog[request.object].holders;
    let checked =
        (0..holders.len().min(SITE_LOOKS)).map(|index| holders[(turn + index) % holders.len()]);
    let mut whole: Vec<_> =
        checked.filter(|giver| may_give(state, request, *giver)).take(GIVER_LOOKS).collect();
    whole.sort_by_cached_key(|giver| preference(state, request, *giver));
    whole
}

/// The best of the holders and of the executors that are receiving the object; the latest of those
/// first.
fn best_giver(
    state: &SchedulerState,
    request: SourceRequest,
    whole: &[ExecutorKey],
) -> Option<ExecutorKey> {
    let receipts = state.transfers.incoming(request.object).iter().rev();
    let latest = receipts.filter(|_| request.from_relays).map(|receipt| receipt.executor);
    let latest = latest.filter(|giver| may_give(state, request, *giver)).take(GIVER_LOOKS);
    whole
        .first()
        .copied()
        .into_iter()
        .chain(latest)
        .min_by_key(|giver| preference(state, request, *giver))
}
