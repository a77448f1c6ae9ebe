//! Executors of a farm, told what to do as by a dispatcher.

use eyas_sched::Holder;
use eyas_types::{ExecutorId, Origin, PlacementPolicy};

use super::{pairs, plain};
use crate::clock::{Ns, SECOND};
use crate::cluster::Policies;
use crate::run::farm::{ExecutorFarm, FarmCommand, FarmEnd, FarmReport, with_farm};
use crate::workload::{AllPairs, Order};

const MB: u64 = 1_000_000;

/// Four tasks that each read two of four objects of 10 MB and compute for ten seconds; two nodes of
/// a processor each.
fn farm(drive: impl FnOnce(&mut ExecutorFarm<'_>)) {
    let policies = Policies::of_eyas(PlacementPolicy::Cost);
    with_farm(&plain(2, 1), &policies, &pairs(2, 10_000_000), 1, drive);
}

fn assign(task: u32, holders: &[(u32, u32)]) -> FarmCommand {
    let holder = |executor| Holder { executor: ExecutorId(executor), is_relay: false, others: 0 };
    let holders = holders.iter().map(|(object, by)| (*object, [holder(*by)].into())).collect();
    FarmCommand::Assign { task, attempt: 0, holders }
}

fn until(farm: &mut ExecutorFarm<'_>, now: Ns) -> Vec<(u32, FarmReport)> {
    let mut reports = Vec::new();
    farm.advance(now, &mut reports);
    reports
}

fn fetched(reports: &[(u32, FarmReport)]) -> Vec<(u32, u32, Origin)> {
    let fetch = |(executor, report): &(u32, FarmReport)| match report {
        FarmReport::Fetched { object, from, .. } => Some((*executor, *object, *from)),
        _ => None,
    };
    reports.iter().filter_map(fetch).collect()
}

fn ended(reports: &[(u32, FarmReport)]) -> Vec<(u32, u32, FarmEnd)> {
    let end = |(executor, report): &(u32, FarmReport)| match report {
        FarmReport::Ended { task, end, .. } => Some((*executor, *task, *end)),
        _ => None,
    };
    reports.iter().filter_map(end).collect()
}

#[test]
fn executors_of_a_farm_fetch_run_and_report() {
    farm(|farm| {
        assert_eq!((farm.executors(), farm.next_at()), (2, None));
        assert_eq!(until(farm, SECOND), []);
        farm.command(0, assign(0, &[]));
        let reports = until(farm, 4 * SECOND);
        let mut from_storage = fetched(&reports);
        from_storage.sort_by_key(|(_, object, _)| *object);
        assert_eq!(from_storage, [(0, 0, Origin::Persistent), (0, 2, Origin::Persistent)]);
        assert!(reports.contains(&(0, FarmReport::Stored { object: 2 })));
        assert_eq!(ended(&reports), [], "it computes for ten seconds");
        // The other node gets one of the objects from the first one.
        farm.command(1, assign(1, &[(0, 0)]));
        let reports = until(farm, 20 * SECOND);
        let mut both = fetched(&reports);
        both.sort_by_key(|(_, object, _)| *object);
        assert_eq!(both, [(1, 0, Origin::Peer), (1, 3, Origin::Persistent)]);
        assert_eq!(
            ended(&reports),
            [(0, 0, FarmEnd::Succeeded), (1, 1, FarmEnd::Succeeded)],
            "each after its ten seconds"
        );
        assert_eq!((farm.outcome().peer_bytes, farm.outcome().storage_bytes), (10 * MB, 30 * MB));
        assert_eq!(farm.next_at(), None);
    });
}

#[test]
fn nobody_waits_for_an_executor_that_gave_back_the_task_before_its_fetches_began() {
    let policies = Policies::of_eyas(PlacementPolicy::Cost);
    let side = 200;
    let workload =
        AllPairs { side, object_bytes: 1_000_000, compute_us: 1_000_000, order: Order::Rows };
    with_farm(&plain(2, 1), &policies, &workload, 1, |farm| {
        // The first task of each row reads the row's object, and one that all rows have.
        (0..side).for_each(|row| farm.command(0, assign(row * side, &[])));
        let last = (side - 1) * side;
        farm.command(0, FarmCommand::Recall { task: last });
        let relay = Holder { executor: ExecutorId(0), is_relay: true, others: 0 };
        let holders = vec![(side - 1, [relay].into())];
        farm.command(1, FarmCommand::Assign { task: last, attempt: 1, holders });
        let reports = until(farm, SECOND);
        assert!(fetched(&reports).contains(&(1, side - 1, Origin::Persistent)), "{reports:?}");
    });
}

#[test]
fn executors_of_a_farm_give_back_kill_hold_and_verify() {
    farm(|farm| {
        farm.command(0, assign(0, &[]));
        until(farm, 5 * SECOND);
        farm.command(0, assign(1, &[]));
        farm.command(0, FarmCommand::Recall { task: 1 });
        farm.command(0, FarmCommand::Cancel { task: 0 });
        farm.command(1, FarmCommand::Hold { object: 0, holders: Box::default() });
        farm.command(1, FarmCommand::Verify { object: 1 });
        let reports = until(farm, 9 * SECOND);
        assert!(reports.contains(&(0, FarmReport::Returned { task: 1, attempt: 0 })));
        assert_eq!(ended(&reports), [(0, 0, FarmEnd::Cancelled)]);
        assert!(reports.contains(&(1, FarmReport::Stored { object: 0 })));
        assert!(reports.contains(&(1, FarmReport::Evicted { object: 1 })), "it is not there");
        farm.command(1, FarmCommand::Release { object: 0 });
        farm.command(1, assign(0, &[]));
        let reports = until(farm, 60 * SECOND);
        assert_eq!(ended(&reports), [(1, 0, FarmEnd::Succeeded)], "a task runs again");
    });
}
