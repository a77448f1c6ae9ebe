//! Tasks that find the disk full.

use alloc::vec;
use alloc::vec::Vec;

use eyas_types::EvictionPolicy;

use super::{LIMITS, id, node, task};
use crate::node::STARTS_ON_FULL_DISK;
use crate::tests::cpus;
use crate::{Effect, Event, FetchFailure, Node, Overlap, StoreLimits};

const MB: u64 = 1 << 20;

/// A node on a disk, whose tasks take one processor of two.
struct Disk {
    node: Node,
    size_bytes: u64,
    stored: Vec<(u8, u64)>,
}

impl Disk {
    fn new(size_bytes: u64) -> Self {
        let limits = StoreLimits { bytes: u64::MAX, inodes: u64::MAX, ..LIMITS };
        let node =
            Node::new(cpus(2000), limits, EvictionPolicy::Lru, true, Overlap::default(), 100, 1);
        Disk { node, size_bytes, stored: Vec::new() }
    }

    fn free(&mut self) -> Event {
        let used: u64 = self.stored.iter().map(|(_, size)| size).sum();
        Event::FreeSpace { bytes: self.size_bytes - used, inodes: u64::MAX }
    }

    /// Carries out effects on the disk, and fetches at once. Returns the tasks that have started or
    /// were refused.
    fn carry_out(&mut self, effects: Vec<Effect>) -> Vec<(u32, bool)> {
        let mut ends = Vec::new();
        for effect in effects {
            match effect {
                Effect::Fetch { object, .. } => {
                    self.stored.push((object.0[0], MB));
                    let fetched = self.node.fetched_here(object.0[0]);
                    ends.extend(self.carry_out(fetched));
                }
                Effect::Evict { object } => self.stored.retain(|(n, _)| *n != object.0[0]),
                Effect::Start { task, .. } => ends.push((task.index, true)),
                Effect::Refuse { task, for_now: true, .. } => ends.push((task.index, false)),
                other => panic!("{other:?}"),
            }
        }
        ends
    }

    fn run(&mut self, event: Event) -> Vec<(u32, bool)> {
        let effects = self.node.run(event);
        self.carry_out(effects)
    }
}

#[test]
fn idle_and_staged_inputs_leave_room_for_what_tasks_write() {
    let mut disk = Disk::new(12 * MB);
    let free = disk.free();
    disk.run(free);
    let mut running = Vec::new();
    for index in 0..60 {
        let effects = disk.node.assign(index, &[(index as u8, MB)]);
        running.extend(disk.carry_out(effects));
    }
    // Each task writes 1 MB into its sandbox, and fails if the disk has less.
    let (mut ended, mut failures) = (0, 0);
    while let Some((index, has_started)) = running.pop() {
        assert!(has_started, "task {index} was refused");
        let Event::FreeSpace { bytes, .. } = disk.free() else { unreachable!() };
        let free = disk.free();
        let next = disk.run(free);
        running.extend(next);
        let next = if bytes >= MB {
            ended += 1;
            disk.run(Event::Ended { task: task(index) })
        } else {
            failures += 1;
            disk.run(Event::OutOfDisk { task: task(index), written_bytes: bytes })
        };
        running.extend(next);
    }
    assert_eq!(ended, 60);
    assert!(failures < 10, "{failures} starts were in vain");
    assert!(!disk.node.is_short_of_disk(), "without tasks, the whole disk is for the store again");
}

#[test]
fn a_task_that_is_alone_on_a_full_disk_is_refused_for_now_and_not_started_for_ever() {
    let mut disk = Disk::new(2 * MB);
    let effects = disk.node.assign(0, &[(1, MB)]);
    assert_eq!(disk.carry_out(effects), [(0, true)]);
    let free = disk.free();
    disk.run(free);
    assert_eq!(disk.run(Event::OutOfDisk { task: task(0), written_bytes: MB }), [(0, false)]);
    // Beside another task, it starts again, but not for ever.
    let free = Event::FreeSpace { bytes: 1000 * MB, inodes: 10 };
    disk.run(free);
    for index in [1, 2] {
        let effects = disk.node.assign(index, &[]);
        assert_eq!(disk.carry_out(effects), [(index, true)]);
    }
    let runs_out = || Event::OutOfDisk { task: task(2), written_bytes: 1 };
    for _ in 1..STARTS_ON_FULL_DISK {
        assert_eq!(disk.run(runs_out()), [(2, true)]);
    }
    assert_eq!(disk.run(runs_out()), [(2, false)]);
}

#[test]
fn a_fetch_that_finds_the_disk_full_waits_for_tasks_that_run() {
    let mut node = super::node(EvictionPolicy::Lru, true);
    node.assign(0, &[]);
    node.assign(1, &[(1, 40)]);
    node.run(Event::FreeSpace { bytes: 0, inodes: 10 });
    let full = || Event::FetchFailed { object: id(1), failure: FetchFailure::Full };
    assert_eq!(node.run(full()), [], "task 0 will leave room");
    let free = vec![Event::FreeSpace { bytes: 100, inodes: 10 }, Event::Ended { task: task(0) }];
    let effects: Vec<_> = free.into_iter().flat_map(|event| node.run(event)).collect();
    assert_eq!(effects, [Effect::Fetch { object: id(1), task: Some(task(1)) }]);
}

#[test]
fn a_full_disk_evicts_and_tries_again_then_refuses() {
    let mut node = node(EvictionPolicy::Lru, true);
    node.assign(0, &[(9, 40)]);
    node.fetched_here(9);
    node.run(Event::Ended { task: task(0) });
    node.assign(1, &[(1, 40)]);
    let full = || Event::FetchFailed { object: id(1), failure: FetchFailure::Full };
    node.run(Event::FreeSpace { bytes: 0, inodes: 10 });
    assert_eq!(
        node.run(full()),
        [Effect::Evict { object: id(9) }, Effect::Fetch { object: id(1), task: Some(task(1)) }]
    );
    assert!(matches!(node.run(full())[..], [Effect::Refuse { .. }]));
}

#[test]
fn a_task_that_had_lent_its_processors_and_starts_again_is_resumed_like_others() {
    let mut node = node(EvictionPolicy::Lru, true);
    (0..2).for_each(|index| drop(node.assign(index, &[])));
    assert_eq!(node.run(Event::Lent { task: task(0) }), [Effect::Lend { task: task(0) }]);
    let again = node.run(Event::OutOfDisk { task: task(0), written_bytes: 0 });
    assert!(matches!(again[..], [Effect::Start { .. }]), "{again:?}");
    let inputs = [].into();
    node.run(Event::Assigned { task: task(2), inputs, need: cpus(2000), priority: 1 });
    let resumed = node.run(Event::Ended { task: task(2) });
    let resumes = |index| resumed.contains(&Effect::Resume { task: task(index) });
    assert!(resumes(0) && resumes(1) && resumed.len() == 2, "{resumed:?}");
}
