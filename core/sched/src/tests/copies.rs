//! Derived copies: which executors make them, and which fetch them.

use super::*;
use crate::ExecutorProfile;

/// What executors were told about the copy of object 1: who makes it, and who fetches it from whom.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    makes: Vec<u32>,
    fetches: Vec<(u32, Vec<u32>)>,
}

fn told(effects: &[Effect]) -> Told {
    let mut told = Told::default();
    for effect in effects {
        let Effect::Command(command) = effect else { panic!("{effect:?}") };
        let PlacementCommand::Derive { executor, object: id, size_bytes, holders } = command else {
            panic!("{effect:?}")
        };
        assert_eq!(*id, object(1));
        assert_eq!(holders.is_empty(), *size_bytes == 0);
        match &holders[..] {
            [] => told.makes.push(executor.0),
            all => {
                let all = all.iter().map(|holder| holder.executor.0).collect();
                told.fetches.push((executor.0, all));
            }
        }
    }
    told
}

impl Scheduler {
    fn report_copy(&mut self, id: u32, n: u8, news: CopyNews) -> Vec<Effect> {
        self.run(Event::Copy { executor: ExecutorId(id), object: object(n), news })
    }

    fn want_copy(&mut self, id: u32) -> Told {
        told(&self.report_copy(id, 1, CopyNews::Wanted))
    }

    /// An executor has made the copy, of 125 MB, which are fetched in a second.
    fn make_copy(&mut self, id: u32, took_us: u64) -> Told {
        told(&self.report_copy(id, 1, CopyNews::Made { size_bytes: 125_000_000, took_us }))
    }

    fn no_copy(&mut self, id: u32, is_private: bool) -> Told {
        let news = if is_private { CopyNews::Private } else { CopyNews::Missing };
        told(&self.report_copy(id, 1, news))
    }
}

fn makes(ids: &[u32]) -> Told {
    Told { makes: ids.to_vec(), ..Told::default() }
}

fn with_executors(count: u32) -> Scheduler {
    let mut scheduler = scheduler(PlacementPolicy::Cost);
    (1..=count).for_each(|id| _ = scheduler.join(id, 1));
    scheduler
}

/// The first of these executors makes the copy, and the others wait.
fn waiting(count: u32) -> Scheduler {
    let mut scheduler = with_executors(count);
    assert_eq!(scheduler.want_copy(1), makes(&[1]));
    assert!((2..=count).all(|id| scheduler.want_copy(id) == Told::default()));
    scheduler
}

#[test]
fn one_executor_makes_a_copy_and_the_others_wait_and_fetch_it_in_a_chain() {
    let mut scheduler = waiting(4);
    let Told { makes, fetches } = scheduler.make_copy(1, 5_000_000);
    assert!(makes.is_empty());
    let first: Vec<_> = fetches.iter().map(|(id, holders)| (*id, holders[0])).collect();
    assert_eq!(first, [(2, 1), (3, 2), (4, 3)], "each gives it once");
    assert!(fetches.iter().all(|(_, holders)| holders.contains(&1)), "in case a giver dies");
    (2..=4).for_each(|id| {
        _ = scheduler.run(Event::Stored {
            executor: ExecutorId(id),
            object: object(1),
            size_bytes: 125_000_000,
        })
    });
    scheduler.join(5, 1);
    assert_eq!(scheduler.want_copy(5).fetches.len(), 1);
}

#[test]
fn a_copy_that_is_made_sooner_than_fetched_is_made() {
    let mut scheduler = waiting(3);
    assert_eq!(scheduler.make_copy(1, 100_000), makes(&[2, 3]), "and nobody waits for another");
    scheduler.join(4, 1);
    scheduler.join(5, 1);
    assert_eq!((scheduler.want_copy(4), scheduler.want_copy(5)), (makes(&[4]), makes(&[5])));
}

#[test]
fn those_that_wait_for_an_executor_that_leaves_wait_for_the_next() {
    let mut scheduler = waiting(4);
    // One that drains makes what it waits for: its tasks still run.
    let drains = |id| Event::ExecutorDraining { executor: ExecutorId(id) };
    assert_eq!(told(&scheduler.run(drains(3))), makes(&[3]));
    let leaves = Event::ExecutorLeft { executor: ExecutorId(1) };
    assert_eq!(told(&scheduler.run(leaves)), makes(&[2]));
    // No executor is given what a draining executor makes, and none waits for it.
    assert_eq!(scheduler.make_copy(3, 5_000_000), Told::default());
    assert_eq!(scheduler.make_copy(2, 5_000_000).fetches, [(4, vec![2])]);
    // The giver dies while it gives.
    scheduler.run(Event::ExecutorLeft { executor: ExecutorId(2) });
    assert_eq!(scheduler.no_copy(4, false), Told::default());
    assert_eq!(scheduler.want_copy(4), makes(&[4]));
}

#[test]
fn if_the_maker_is_stopped_only_the_next_makes_the_copy() {
    let mut scheduler = waiting(4);
    let mut stopped = |id| told(&scheduler.report_copy(id, 1, CopyNews::Stopped));
    assert_eq!(stopped(3), Told::default(), "it has waited, and others still do");
    assert_eq!(stopped(1), makes(&[2]));
    assert_eq!(stopped(1), Told::default(), "it makes the copy no longer");
    assert_eq!(stopped(2), makes(&[4]));
    // One that asks again waits like any other.
    assert_eq!(scheduler.want_copy(1), Told::default());
    assert_eq!(scheduler.make_copy(4, 5_000_000).fetches, [(1, vec![4])]);
    // The task of one that fetches the copy is stopped: the copy may not come.
    let stopped = scheduler.report_copy(1, 1, CopyNews::Stopped);
    assert_eq!(told(&stopped), Told::default());
}

#[test]
fn where_an_executor_fails_the_others_make_the_copy_themselves() {
    let mut scheduler = waiting(3);
    assert_eq!(scheduler.no_copy(2, false), Told::default(), "it waits no longer");
    assert_eq!(scheduler.want_copy(2), Told::default());
    assert_eq!(scheduler.no_copy(1, false), makes(&[3, 2]));
    // It failed on one node only.
    assert_eq!(scheduler.make_copy(3, 5_000_000), Told::default());
    assert_eq!(scheduler.make_copy(2, 5_000_000), Told::default());
    assert_eq!(scheduler.want_copy(1).fetches.len(), 1);
}

#[test]
fn nobody_waits_for_a_copy_that_is_given_to_no_others() {
    let mut scheduler = waiting(3);
    assert_eq!(scheduler.no_copy(1, true), makes(&[2, 3]));
    scheduler.join(4, 1);
    scheduler.join(5, 1);
    assert_eq!((scheduler.want_copy(4), scheduler.want_copy(5)), (makes(&[4]), makes(&[5])));
    assert_eq!(scheduler.make_copy(4, 5_000_000), Told::default());
    scheduler.join(6, 1);
    assert_eq!(scheduler.want_copy(6).fetches, [(6, vec![4])], "it is given now");
}

#[test]
fn copies_do_not_cross_sites_and_those_that_are_gone_are_forgotten() {
    let mut scheduler = scheduler(PlacementPolicy::Cost);
    for (id, site) in [(1, "a"), (2, "b"), (3, "a")] {
        let labels = [("site".into(), site.into())].into();
        let profile = Box::new(ExecutorProfile { labels, ..ExecutorProfile::default() });
        let (executor, held) = (ExecutorId(id), Box::default());
        scheduler.run(Event::ExecutorJoined { executor, capacity: cpus(1000), profile, held });
    }
    assert_eq!((scheduler.want_copy(1), scheduler.want_copy(2)), (makes(&[1]), makes(&[2])));
    assert_eq!(scheduler.want_copy(3), Told::default());
    assert_eq!(scheduler.make_copy(1, 9_000_000).fetches, [(3, vec![1])]);
    scheduler.evict(1, 1);
    assert_eq!(scheduler.no_copy(3, false), Told::default());
    for n in 2..40 {
        scheduler.report_copy(1, n, CopyNews::Wanted);
        let is_private = n % 2 == 0;
        scheduler.report_copy(1, n, if is_private { CopyNews::Private } else { CopyNews::Missing });
    }
    assert!(scheduler.replication().copies().len() < 10);
}

/// Names object 2 as what is made of object 1, and submits a task that reads it.
fn submit_reader(scheduler: &mut Scheduler, index: u32) -> (u32, Vec<(u32, Vec<u32>)>) {
    let size_bytes = scheduler.name_copy(object(2), (object(1), None), 1_000_000);
    let inputs = [(object(1), 1_000_000), (object(2), size_bytes)].into();
    assigned(scheduler.run(Event::TaskReady { task: task(index), inputs, need: Need::default() }))
}

/// The executor that was assigned a task, and the hints: inputs and their holders.
fn assigned(effects: Vec<Effect>) -> (u32, Vec<(u32, Vec<u32>)>) {
    let [Effect::Command(PlacementCommand::Assign { executor, hints, .. })] = &effects[..] else {
        panic!("{effects:?}")
    };
    let ids = |holders: &[Holder]| holders.iter().map(|holder| holder.executor.0).collect();
    let hints = hints.iter().map(|hint| (hint.input, ids(&hint.holders)));
    (executor.0, hints.collect())
}

fn has_made(scheduler: &mut Scheduler, id: u32, took_us: u64) {
    let made = CopyNews::Made { size_bytes: 2_000_000, took_us };
    assert_eq!(scheduler.report_copy(id, 2, made), []);
}

fn has_source(scheduler: &mut Scheduler, id: u32) {
    let (executor, size_bytes) = (ExecutorId(id), 1_000_000);
    scheduler.run(Event::Stored { executor, object: object(1), size_bytes });
}

#[test]
fn tasks_go_to_the_copy_and_need_no_source_there() {
    let mut scheduler = with_executors(3);
    has_source(&mut scheduler, 1);
    has_made(&mut scheduler, 2, 9_000_000);
    assert_eq!(submit_reader(&mut scheduler, 1), (2, vec![]));
    let estimate = scheduler.estimate_of(task(1)).unwrap();
    assert_eq!(estimate.transfer_us, 0);
}

#[test]
fn a_kept_source_has_holders_also_where_its_copy_is() {
    let mut scheduler = with_executors(3);
    let (object, executor) = (object(1), Some(ExecutorId(1)));
    scheduler.run(Event::Keep { object, replicas: 1, executor });
    has_source(&mut scheduler, 1);
    has_made(&mut scheduler, 2, 9_000_000);
    assert_eq!(submit_reader(&mut scheduler, 1), (2, vec![(0, vec![1])]));
}

#[test]
fn an_executor_fetches_the_copy_if_that_is_cheaper_than_to_make_it() {
    for (took_us, is_fetched) in [(9_000_000, true), (1_000, false)] {
        let mut scheduler = with_executors(1);
        has_source(&mut scheduler, 1);
        has_made(&mut scheduler, 1, took_us);
        let busy = submit_reader(&mut scheduler, 1);
        assert_eq!(busy, (1, vec![]));
        scheduler.join(2, 1);
        // The first has a task that computes, so the second takes this one.
        let (executor, hints) = submit_reader(&mut scheduler, 2);
        assert_eq!(executor, 2);
        assert_eq!(hints.contains(&(1, vec![1])), is_fetched);
        assert!(hints.contains(&(0, vec![1])), "the source, in case no executor gives the copy");
    }
}

#[test]
fn an_executor_with_the_source_is_not_told_to_fetch_the_copy() {
    let mut scheduler = with_executors(1);
    has_made(&mut scheduler, 1, 9_000_000);
    assert_eq!(submit_reader(&mut scheduler, 1), (1, vec![]));
    scheduler.join(2, 1);
    has_source(&mut scheduler, 2);
    // It asks before it makes the copy.
    assert_eq!(submit_reader(&mut scheduler, 2), (2, vec![]));
}

/// Submits a task that reads a folder (object 2), which is made of object 1, and is given as object
/// 3.
fn submit_reader_of_folder(scheduler: &mut Scheduler, index: u32) -> (u32, Vec<(u32, Vec<u32>)>) {
    let folder_bytes = scheduler.name_copy(object(2), (object(1), Some(object(3))), 1_000_000);
    let packed_bytes = scheduler.name_copy(object(3), (object(1), None), 0);
    let inputs =
        [(object(1), 1_000_000), (object(2), folder_bytes), (object(3), packed_bytes)].into();
    assigned(scheduler.run(Event::TaskReady { task: task(index), inputs, need: Need::default() }))
}

#[test]
fn an_executor_without_the_source_of_a_folder_fetches_the_folder_packed() {
    let mut scheduler = with_executors(1);
    has_source(&mut scheduler, 1);
    has_made(&mut scheduler, 1, 9_000_000);
    let packed = CopyNews::Made { size_bytes: 2_000_000, took_us: 9_000_000 };
    assert_eq!(scheduler.report_copy(1, 3, packed), []);
    assert_eq!(submit_reader_of_folder(&mut scheduler, 1), (1, vec![]));
    scheduler.join(2, 1);
    let (executor, hints) = submit_reader_of_folder(&mut scheduler, 2);
    assert_eq!((executor, hints), (2, vec![(0, vec![1]), (2, vec![1])]));
    // One that has the folder needs neither, and one that has it packed unpacks it.
    for (id, held) in [(3, 2), (4, 3)] {
        scheduler.join(id, 1);
        let (executor, size_bytes) = (ExecutorId(id), 2_000_000);
        scheduler.run(Event::Stored { executor, object: object(held), size_bytes });
        assert_eq!(submit_reader_of_folder(&mut scheduler, id), (id, vec![]));
        assert_eq!(scheduler.estimate_of(task(id)).unwrap().transfer_us, 0);
    }
    // A folder that executors do not give each other is made.
    scheduler.join(5, 1);
    let executor = ExecutorId(5);
    (1..=4).for_each(|id| {
        _ = scheduler.run(Event::Evicted { executor: ExecutorId(id), object: object(3) })
    });
    let (reader, hints) = submit_reader_of_folder(&mut scheduler, 5);
    assert_eq!((reader, hints.len(), hints[0].0), (executor.0, 1, 0), "of the source");
}
