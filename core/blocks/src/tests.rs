//! Worked examples, and complete histories.

extern crate std;

use alloc::vec;
use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use crate::{
    Alpha, BlockPolicy, Blocks, Config, Effect, Event, Lean, LeaseId, LeaseProgress, POLICIES,
    Record, Sizes, WorkerId,
};

mod examples;

const MB: u64 = 1_000_000;
const SECOND: u64 = 1_000_000;

impl Blocks {
    fn tell(&mut self, now_us: u64, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.handle(now_us, event, &mut effects);
        self.validate();
        effects
    }

    /// The same, without the records to save.
    fn ask(&mut self, now_us: u64, event: Event) -> Vec<Effect> {
        let mut effects = self.tell(now_us, event);
        effects.retain(|effect| !matches!(effect, Effect::Save(_)));
        effects
    }
}

fn lean(sizes: Sizes) -> BlockPolicy {
    BlockPolicy::Lean(Lean { alpha: Alpha::Fixed(0.0), sizes })
}

/// A job over chunks of 1 MB, all of them on nodes 1 and 2.
fn job(config: &Config, chunks: usize, epoch: u32, records: Vec<Record>) -> Blocks {
    let all = vec![(MB, &[NodeId(1), NodeId(2)][..]); chunks];
    Blocks::new(config.clone(), all, epoch, records, 0)
}

fn config(sizes: Sizes) -> Config {
    Config { window_us: 0, ..Config::new(lean(sizes), vec![(NodeId(1), None), (NodeId(2), None)]) }
}

fn claim(worker: u64, lease: Option<LeaseId>, chunks: u32, done: u32) -> Event {
    let progress = LeaseProgress { chunks, done, bytes: 0 };
    Event::RequestLease { worker: WorkerId(worker), node: NodeId(worker), lease, progress }
}

fn renew(worker: u64, lease: LeaseId, chunks: u32, done: u32) -> Event {
    Event::Renew {
        worker: WorkerId(worker),
        lease,
        progress: LeaseProgress { chunks, done, bytes: 0 },
    }
}

fn commit(worker: u64, lease: LeaseId, done: u32) -> Event {
    Event::Commit { worker: WorkerId(worker), lease, done }
}

#[track_caller]
fn granted(effects: &[Effect]) -> (LeaseId, Vec<u32>, u32) {
    match effects {
        [Effect::Granted { lease, chunks, confirmed, .. }] => (*lease, chunks.clone(), *confirmed),
        other => panic!("nothing was granted: {other:?}"),
    }
}

fn saved(effects: Vec<Effect>) -> impl Iterator<Item = Record> {
    effects
        .into_iter()
        .filter_map(|effect| if let Effect::Save(record) = effect { Some(record) } else { None })
}

#[test]
fn questions_asked_again_are_answered_the_same() {
    let mut blocks = job(&config(Sizes::Fixed(2)), 3, 1, Vec::new());
    let first = blocks.ask(0, claim(1, None, 0, 0));
    assert_eq!(blocks.ask(1, claim(1, None, 0, 0)), first);
    let (lease, chunks, confirmed) = granted(&first);
    assert_eq!((chunks, confirmed), (vec![0, 1], 1), "it may begin one, and ask before the other");
    let second = blocks.ask(2, claim(1, Some(lease), 2, 1));
    assert_eq!(blocks.ask(3, claim(1, Some(lease), 2, 1)), second);
    let (later, chunks, confirmed) = granted(&second);
    assert_eq!((chunks, confirmed), (vec![2], 2));
    assert!(lease < later);
    assert_eq!(blocks.ask(4, renew(1, lease, 2, 1)), [], "it is older than what was granted since");
    let no_more = Effect::NoMore { worker: WorkerId(1), chunks: 3 };
    assert_eq!(blocks.ask(5, claim(1, Some(later), 3, 2)), [no_more]);
    let committed = Effect::Committed { worker: WorkerId(1), lease: later };
    assert_eq!(blocks.ask(6, commit(1, later, 3)), [committed.clone(), Effect::Complete]);
    for event in [commit(1, later, 3), claim(1, None, 0, 0)] {
        assert_eq!(blocks.ask(7, event), core::slice::from_ref(&committed));
    }
    assert_eq!(
        blocks.ask(8, claim(2, None, 0, 0)),
        [Effect::NoMore { worker: WorkerId(2), chunks: 0 }]
    );
}

#[test]
fn a_worker_whose_lease_has_expired_cannot_commit() {
    let config = config(Sizes::Fixed(2));
    let mut blocks = job(&config, 2, 1, Vec::new());
    let (lease, ..) = granted(&blocks.ask(0, claim(1, None, 0, 0)));
    assert_eq!(blocks.next_timeout(), Some(config.term_us));
    let discard = Effect::Discard { worker: WorkerId(1) };
    assert_eq!(blocks.ask(config.term_us, Event::Tick), core::slice::from_ref(&discard));
    let (other, ..) = granted(&blocks.ask(config.term_us, claim(2, None, 0, 0)));
    for event in [commit(1, lease, 2), renew(1, lease, 2, 1), claim(1, Some(lease), 2, 1)] {
        assert_eq!(blocks.ask(config.term_us, event), core::slice::from_ref(&discard));
    }
    assert_eq!(
        blocks.ask(config.term_us, commit(2, LeaseId(other.0 + 1), 2)),
        [Effect::Discard { worker: WorkerId(2) }]
    );
    let (again, chunks, _) = granted(&blocks.ask(config.term_us, claim(3, None, 0, 0)));
    assert_eq!(chunks, [0, 1], "what a wrong commit had goes to others");
    assert_eq!(
        blocks.ask(config.term_us, commit(3, again, 1))[0],
        Effect::Committed { worker: WorkerId(3), lease: again }
    );
    assert_eq!(blocks.committed_chunks(), 1, "a commit is of what was read");
}

#[test]
fn chunks_of_a_failed_worker_are_granted_again() {
    let mut blocks = job(&config(Sizes::Fixed(4)), 4, 1, Vec::new());
    blocks.ask(0, claim(1, None, 0, 0));
    assert_eq!(blocks.ask(0, Event::Gone { worker: WorkerId(1) }), []);
    assert_eq!(granted(&blocks.ask(0, claim(2, None, 0, 0))).1, [0, 1, 2, 3]);
}

#[test]
fn an_idle_worker_takes_the_tail_and_never_what_is_confirmed() {
    let mut blocks = job(&config(Sizes::Fixed(8)), 8, 1, Vec::new());
    let (lease, chunks, _) = granted(&blocks.ask(0, claim(1, None, 0, 0)));
    assert_eq!(chunks.len(), 8);
    assert_eq!(
        blocks.ask(SECOND, renew(1, lease, 8, 1)),
        [Effect::Renewed { worker: WorkerId(1), lease, chunks: 8, confirmed: 2 }]
    );
    // The first worker keeps seven chunks, one of them in progress; both are assumed to be equally
    // fast.
    let (_, taken, confirmed) = granted(&blocks.ask(SECOND, claim(2, None, 0, 0)));
    assert_eq!((taken, confirmed), (vec![5, 6, 7], 1));
    assert_eq!(
        blocks.ask(2 * SECOND, renew(1, lease, 8, 2)),
        [Effect::Renewed { worker: WorkerId(1), lease, chunks: 5, confirmed: 3 }]
    );
    assert_eq!(
        blocks.ask(3 * SECOND, renew(1, lease, 8, 4)),
        [Effect::Discard { worker: WorkerId(1) }],
        "it cheats"
    );
}

#[test]
fn a_fast_worker_asks_seldom() {
    let config = Config { window_us: 10 * SECOND, ..config(Sizes::Fixed(100)) };
    let mut blocks = job(&config, 100, 1, Vec::new());
    let (lease, ..) = granted(&blocks.ask(0, claim(1, None, 0, 0)));
    // One chunk a second: ten more while the second is being read.
    assert_eq!(
        blocks.ask(SECOND, renew(1, lease, 100, 1)),
        [Effect::Renewed { worker: WorkerId(1), lease, chunks: 100, confirmed: 12 }]
    );
}

#[test]
fn at_the_end_the_first_to_commit_counts() {
    for first_wins in [true, false] {
        let mut blocks = job(&config(Sizes::Fixed(1)), 2, 1, Vec::new());
        let (slow, ..) = granted(&blocks.ask(0, claim(1, None, 0, 0)));
        let (fast, ..) = granted(&blocks.ask(0, claim(2, None, 0, 0)));
        assert_eq!(
            blocks.ask(SECOND, claim(2, Some(fast), 1, 1)),
            [Effect::NoMore { worker: WorkerId(2), chunks: 1 }]
        );
        blocks.ask(SECOND, commit(2, fast, 1));
        // The node of worker 2 reads 1 MB/s. Worker 1 has made no progress for as long as one chunk
        // takes there, and not longer.
        let next = Event::RequestLease {
            worker: WorkerId(3),
            node: NodeId(2),
            lease: None,
            progress: LeaseProgress::default(),
        };
        assert_eq!(blocks.ask(SECOND, next), []);
        let (copy, chunks, confirmed) =
            granted(&blocks.ask(blocks.next_timeout().unwrap(), Event::Tick));
        assert_eq!((chunks, confirmed), (vec![0], 1));
        let [(winner, by), (loser, late)] =
            if first_wins { [(1, slow), (3, copy)] } else { [(3, copy), (1, slow)] };
        let [worker, other] = [winner, loser].map(WorkerId);
        assert_eq!(
            blocks.ask(2 * SECOND, commit(winner, by, 1)),
            [
                Effect::Committed { worker, lease: by },
                Effect::Discard { worker: other },
                Effect::Complete
            ]
        );
        assert_eq!(
            blocks.ask(2 * SECOND, commit(loser, late, 1)),
            [Effect::Discard { worker: other }]
        );
    }
}

#[test]
fn a_lost_end_of_what_was_saved_makes_no_chunk_count_twice() {
    let config = config(Sizes::Fixed(4));
    let mut blocks = job(&config, 4, 1, Vec::new());
    let mut records: Vec<_> = saved(blocks.tell(0, claim(1, None, 0, 0))).collect();
    let lease = LeaseId(1 << 40);
    assert_eq!(records.len(), 1);
    // Other workers take chunks from the tail, and the first worker is told. Then both records are
    // lost.
    records.extend(saved(blocks.tell(0, claim(2, None, 0, 0))));
    let [
        Record::Granted { .. },
        Record::Shortened { chunks: left, .. },
        Record::Granted { lease: taken, .. },
    ] = records[..]
    else {
        panic!("{records:?}");
    };
    let mut restarted = job(&config, 4, 2, records[..1].to_vec());
    restarted.validate();
    assert_eq!(
        restarted.ask(0, renew(1, lease, left, 1)),
        [Effect::Renewed { worker: WorkerId(1), lease, chunks: left, confirmed: left }]
    );
    assert_eq!(
        restarted.ask(0, commit(2, taken, 4 - left)),
        [Effect::Discard { worker: WorkerId(2) }]
    );
    restarted.ask(0, commit(1, lease, left));
    assert_eq!(restarted.committed_chunks(), left);
    let (later, chunks, _) = granted(&restarted.ask(0, claim(3, None, 0, 0)));
    assert!(later > taken && chunks.len() as u32 == 4 - left);
    // If no record is lost, both count.
    let mut restarted = job(&config, 4, 2, records);
    restarted.ask(0, commit(2, taken, 4 - left));
    restarted.ask(0, commit(1, lease, left));
    assert!(restarted.is_complete());
}

#[test]
fn a_job_without_chunks_is_complete() {
    let mut blocks = job(&config(Sizes::Factoring), 0, 1, Vec::new());
    assert_eq!(blocks.ask(0, Event::Tick), [Effect::Complete]);
    assert_eq!(blocks.ask(0, Event::Tick), []);
}

#[test]
fn every_scheduler_has_a_name() {
    assert!(POLICIES.iter().all(|(name, policy)| BlockPolicy::named(name) == Some(*policy)));
    assert_eq!(BlockPolicy::named("guided"), None);
}
