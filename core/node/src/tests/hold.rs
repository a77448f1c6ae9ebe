//! Objects that a node holds for the dispatcher.

use super::*;

#[test]
fn a_held_object_stays_until_it_is_released() {
    let mut node = node(EvictionPolicy::Lru, true);
    let hold = |n, size_bytes| Event::Hold { object: id(n), size_bytes };
    assert_eq!(node.run(hold(1, 60)), [Effect::Fetch { object: id(1), task: None }]);
    assert_eq!(node.fetched_here(1), [Effect::Held { object: id(1) }]);
    assert_eq!(node.run(hold(1, 60)), [Effect::Held { object: id(1) }]);
    let [Effect::Refuse { for_now: true, .. }] = node.assign(0, &[(2, 60)])[..] else {
        panic!("there is no room")
    };
    let [Effect::NotHeld { object, reason }] = &node.run(hold(3, 60))[..] else {
        panic!("there is no room")
    };
    assert!(*object == id(3) && reason.contains("60 B"), "{reason}");
    assert_eq!(node.run(Event::Release { object: id(1) }), []);
    let fetch = Effect::Fetch { object: id(2), task: Some(task(1)) };
    assert_eq!(node.assign(1, &[(2, 60)]), [Effect::Evict { object: id(1) }, fetch]);
    // An output of a task takes the space of idle objects, and never that of held or pinned ones.
    node.fetched_here(2);
    let produced = |n, size_bytes| Event::Produced { task: task(1), object: id(n), size_bytes };
    assert_eq!(node.run(produced(4, 40)), []);
    assert!(matches!(node.run(produced(5, 10))[..], [Effect::CannotKeep { .. }]));
    node.run(Event::Ended { task: task(1) });
    assert_eq!(node.run(produced(6, 10)), [Effect::Evict { object: id(2) }]);
    assert!(matches!(node.run(Event::Lost { object: id(4) })[..], [Effect::NotHeld { .. }]));
}

#[test]
fn a_discarded_object_is_evicted_once_no_task_reads_it() {
    let mut node = node(EvictionPolicy::Lru, true);
    for n in [1, 2] {
        node.run(Event::Hold { object: id(n), size_bytes: 10 });
        node.fetched_here(n);
    }
    node.assign(1, &[(2, 10)]);
    assert_eq!(node.run(Event::Discard { object: id(1) }), [Effect::Evict { object: id(1) }]);
    assert_eq!(node.run(Event::Discard { object: id(2) }), [], "a task reads it");
    assert_eq!(node.run(Event::Ended { task: task(1) }), [Effect::Evict { object: id(2) }]);
    // An object that is held again is an object like others.
    assert_eq!(node.run(Event::Discard { object: id(3) }), []);
    node.run(Event::Hold { object: id(3), size_bytes: 10 });
    node.fetched_here(3);
    assert_eq!(node.run(Event::Release { object: id(3) }), []);
}

#[test]
fn an_object_that_returns_after_a_discard_is_an_ordinary_one() {
    type Leave = fn(&mut Node) -> Vec<Effect>;
    let ways: [(&str, Leave); 4] = [
        ("its fetch fails", |node| {
            node.run(Event::FetchFailed { object: id(1), failure: FetchFailure::Unavailable })
        }),
        ("its task is recalled before its fetch begins", |node| {
            node.run(Event::Recalled { task: task(0) })
        }),
        ("it is lost", |node| {
            node.fetched_here(1);
            node.run(Event::Lost { object: id(1) });
            node.run(Event::Ended { task: task(0) })
        }),
        ("it is evicted", |node| {
            node.fetched_here(1);
            node.run(Event::Ended { task: task(0) })
        }),
    ];
    for (way, leave) in ways {
        let mut node = node(EvictionPolicy::Lru, true);
        // Three fetches at a time.
        node.assign(9, &[(8, 1), (9, 1)]);
        if way.contains("recalled") {
            node.assign(8, &[(7, 1)]);
        }
        node.assign(0, &[(1, 10)]);
        assert_eq!(node.run(Event::Discard { object: id(1) }), [], "{way}: a task needs it");
        leave(&mut node);
        node.fetched_here(8);
        node.assign(1, &[(1, 10)]);
        node.fetched_here(1);
        assert_eq!(node.run(Event::Ended { task: task(1) }), [], "{way}: it stays");
    }
}

#[test]
fn a_discard_evicts_at_once_unless_the_object_is_held_again() {
    let mut node = node(EvictionPolicy::Lru, true);
    node.assign(0, &[(1, 10), (2, 10)]);
    node.fetched_here(1);
    node.fetched_here(2);
    node.run(Event::Discard { object: id(2) });
    assert_eq!(node.run(Event::Produced { task: task(0), object: id(2), size_bytes: 10 }), []);
    assert_eq!(node.run(Event::Ended { task: task(0) }), []);
    assert_eq!(
        node.run(Event::Release { object: id(2) }),
        [],
        "it may be evicted, and need not be"
    );
    // It was never held.
    assert_eq!(node.run(Event::Discard { object: id(1) }), [Effect::Evict { object: id(1) }]);
}

#[test]
fn an_offered_object_is_held_when_a_task_has_fetched_it() {
    let mut node = node(EvictionPolicy::Lru, true);
    assert_eq!(node.assign(0, &[(1, 10)]), [Effect::Fetch { object: id(1), task: Some(task(0)) }]);
    assert_eq!(node.run(Event::Offered { object: id(1), size_bytes: 10 }), []);
    let effects = node.fetched_here(1);
    assert!(effects.contains(&Effect::Held { object: id(1) }), "{effects:?}");
}

#[test]
fn tasks_fetch_what_another_process_does_not_send() {
    let mut node = node(EvictionPolicy::Lru, true);
    let expected = node.run(Event::Offered { object: id(1), size_bytes: 10 });
    assert_eq!(expected, [Effect::Expected { object: id(1) }]);
    assert_eq!(node.assign(0, &[(1, 10)]), []);
    let effects = node.run(Event::TransferEnded { object: id(1), is_here: false });
    let [Effect::NotHeld { .. }, Effect::Fetch { object, task: Some(by) }] = effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((object, by), (id(1), task(0)));
}
