//! Matchmaking between tasks and executors; expressions are functions here.

use alloc::string::{String, ToString};
use alloc::sync::Arc;

use eyas_types::matching::{Attribute, EvaluationError, Expression, Fact, Facts, Terms};

use super::*;
use crate::{ExecutorProfile, Mismatch, WaitReason};

/// What an expression would be compiled to.
#[derive(Clone)]
struct TestExpression {
    text: &'static str,
    is_fixed: bool,
    number: fn(&dyn Facts) -> Result<f64, EvaluationError>,
}

impl alloc::fmt::Debug for TestExpression {
    fn fmt(&self, f: &mut alloc::fmt::Formatter<'_>) -> alloc::fmt::Result {
        f.write_str(self.text)
    }
}

impl Expression for TestExpression {
    fn text(&self) -> &str {
        self.text
    }

    fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    fn holds(&self, facts: &dyn Facts) -> Result<bool, EvaluationError> {
        Ok((self.number)(facts)? != 0.0)
    }

    fn number(&self, facts: &dyn Facts) -> Result<f64, EvaluationError> {
        (self.number)(facts)
    }
}

fn number(facts: &dyn Facts, attribute: Attribute) -> f64 {
    match facts.fact(attribute) {
        Fact::Whole(number) => number as f64,
        Fact::Fraction(number) => number,
        Fact::Text(_) | Fact::Labels(_) => panic!("{} is no number", attribute.name()),
    }
}

fn label(facts: &dyn Facts, name: &str) -> Result<String, EvaluationError> {
    let Fact::Labels(labels) = facts.fact(Attribute::NodeLabels) else {
        panic!("labels are labels")
    };
    labels.get(name).cloned().ok_or_else(|| EvaluationError::NoValue("no such key".to_string()))
}

const SITE_A: TestExpression = TestExpression {
    text: "node.labels.site == 'a'",
    is_fixed: true,
    number: |facts| Ok(f64::from(u8::from(label(facts, "site")? == "a"))),
};
const IDLE: TestExpression = TestExpression {
    text: "node.load < 0.5",
    is_fixed: false,
    number: |facts| Ok(f64::from(u8::from(number(facts, Attribute::NodeLoad) < 0.5))),
};
const LARGE_INPUTS: TestExpression = TestExpression {
    text: "task.input_bytes >= 100",
    is_fixed: false,
    number: |facts| Ok(f64::from(u8::from(number(facts, Attribute::TaskInputBytes) >= 100.0))),
};
const NEVER: TestExpression =
    TestExpression { text: "task.attempt < 0", is_fixed: false, number: |_| Ok(0.0) };
const MOST_CPUS: TestExpression = TestExpression {
    text: "node.cpus",
    is_fixed: true,
    number: |facts| Ok(number(facts, Attribute::NodeCpus)),
};
const MOST_LOCAL: TestExpression = TestExpression {
    text: "local_bytes",
    is_fixed: false,
    number: |facts| Ok(number(facts, Attribute::LocalBytes)),
};
const ONE_CPU: TestExpression = TestExpression {
    text: "task.cpus <= 1.0",
    is_fixed: true,
    number: |facts| Ok(f64::from(u8::from(number(facts, Attribute::TaskCpus) <= 1.0))),
};
const NIGHTLY: TestExpression = TestExpression {
    text: "task.job == 'nightly'",
    is_fixed: false,
    number: |facts| {
        Ok(f64::from(u8::from(facts.fact(Attribute::TaskJob) == Fact::Text("nightly"))))
    },
};

fn parts(asks: &[TestExpression]) -> Box<[Arc<dyn Expression>]> {
    asks.iter().map(|part| Arc::new(part.clone()) as Arc<dyn Expression>).collect()
}

fn requires(asks: &[TestExpression]) -> Need {
    terms(asks, None)
}

fn terms(asks: &[TestExpression], rank: Option<TestExpression>) -> Need {
    let rank = rank.map(|rank| Arc::new(rank) as Arc<dyn Expression>);
    let terms = Terms { requirements: parts(asks), rank };
    Need { terms: Some(Arc::new(terms)), ..Need::default() }
}

/// One of several needs; most have no terms.
pub(super) fn need_of(which: u8, resources: Resources) -> Need {
    let terms = match which {
        0 => requires(&[SITE_A]).terms,
        1 => requires(&[IDLE]).terms,
        2 => terms(&[SITE_A], Some(MOST_LOCAL)).terms,
        3 => terms(&[], Some(MOST_CPUS)).terms,
        _ => None,
    };
    Need { resources, terms, ..Need::default() }
}

/// One of several executors; the first matches all that [`need_of`] gives.
pub(super) fn profile_of(which: u8) -> Box<ExecutorProfile> {
    let site = if which < 4 { "a" } else { "b" };
    let accept = match which {
        1 => parts(&[ONE_CPU]),
        2 => parts(&[NIGHTLY]),
        _ => Box::default(),
    };
    Box::new(ExecutorProfile {
        labels: [("site".into(), site.into())].into(),
        accept,
        ..ExecutorProfile::default()
    })
}

impl Scheduler {
    fn join_at(
        &mut self,
        id: u32,
        slots: u32,
        site: Option<&str>,
        accept: &[TestExpression],
    ) -> Vec<Effect> {
        let labels = site.map(|site| ("site".to_string(), site.to_string())).into_iter().collect();
        let profile = Box::new(ExecutorProfile {
            labels,
            accept: parts(accept),
            ..ExecutorProfile::default()
        });
        let (capacity, held) = (cpus(slots * 1000), Box::default());
        self.run(Event::ExecutorJoined { executor: ExecutorId(id), capacity, profile, held })
    }

    fn submit_needing(&mut self, index: u32, inputs: &[u8], need: &Need) -> Vec<Effect> {
        let inputs = inputs.iter().map(|n| (object(*n), 10)).collect();
        self.run(Event::TaskReady { task: task(index), inputs, need: need.clone() })
    }

    fn free_disk(&mut self, id: u32, bytes: u64) -> Vec<Effect> {
        self.run(Event::FreeDisk { executor: ExecutorId(id), bytes })
    }

    fn why(&self, index: u32) -> Option<WaitReason> {
        self.explain_task(task(index), usize::MAX).unwrap().waits
    }
}

#[test]
fn a_task_goes_to_the_one_executor_that_it_requires() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        (0..100).for_each(|id| {
            drop(scheduler.join_at(id, 1, Some(if id == 80 { "a" } else { "b" }), &[]))
        });
        let need = requires(&[SITE_A]);
        // One to run and one queued; others hold inputs of it, and do not match.
        scheduler.store(3, 1);
        assert_eq!(assigned(&scheduler.submit_needing(0, &[1], &need)), [(80, 0)], "{policy}");
        assert_eq!(assigned(&scheduler.submit_needing(1, &[1], &need)), [(80, 1)], "{policy}");
        assert_eq!(assigned(&scheduler.submit_needing(2, &[1], &need)), [], "{policy}");
        assert!(matches!(
            scheduler.why(2),
            Some(WaitReason::SlotsTaken | WaitReason::Soonest { elsewhere: None, .. })
        ));
        assert_eq!(assigned(&scheduler.finish(80, 0)), [(80, 2)], "{policy}");
    }
}

#[test]
fn an_unmatched_class_holds_up_no_other() {
    for policy in PlacementPolicy::ALL {
        for impossible in [SITE_A, NEVER] {
            let mut scheduler = scheduler(*policy);
            (1..=2).for_each(|id| drop(scheduler.join_at(id, 1, Some("b"), &[])));
            (0..150).for_each(|index| {
                drop(scheduler.submit_needing(
                    index,
                    &[1],
                    &requires(core::slice::from_ref(&impossible)),
                ))
            });
            for index in 500..550 {
                let given = assigned(&scheduler.submit(index, &[1]));
                let [(by, _)] = given[..] else { panic!("{policy}: {given:?}") };
                scheduler.finish(by, index);
            }
        }
    }
}

#[test]
fn mismatches_are_reported_by_part() {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    scheduler.join_at(1, 1, Some("b"), &[]);
    scheduler.join_at(2, 1, None, &[]);
    scheduler.join_at(3, 1, Some("a"), &[NIGHTLY]);
    scheduler.submit_needing(0, &[], &requires(&[SITE_A, NEVER]));
    let part = |asks: TestExpression| Mismatch::Requirement(asks.text.into());
    let accept = Mismatch::Accept(NIGHTLY.text.into());
    let error = Mismatch::Error(SITE_A.text.into(), "no such key".into());
    let mut expected = vec![(part(SITE_A), 1), (part(NEVER), 3), (accept, 1), (error, 1)];
    expected.sort();
    assert_eq!(scheduler.why(0), Some(WaitReason::Unmatched(expected)));
}

#[test]
fn requirements_without_a_value_do_not_match() {
    for policy in PlacementPolicy::ALL {
        for is_fixed in [true, false] {
            let mut scheduler = scheduler(*policy);
            // No label of that name.
            scheduler.join_at(1, 1, None, &[]);
            let asks = TestExpression { is_fixed, ..SITE_A };
            assert_eq!(
                assigned(&scheduler.submit_needing(
                    0,
                    &[],
                    &requires(core::slice::from_ref(&asks))
                )),
                [],
                "{policy}"
            );
            assert_eq!(assigned(&scheduler.submit(1, &[])), [(1, 1)], "{policy}");
            scheduler.join_at(2, 1, None, core::slice::from_ref(&asks));
            assert_eq!(
                assigned(&scheduler.submit(2, &[])),
                [(1, 2)],
                "{policy}: queued, though 2 is idle"
            );
            assert_eq!(
                assigned(&scheduler.join_at(3, 1, Some("a"), &[])).first(),
                Some(&(3, 0)),
                "{policy}"
            );
        }
    }
}

#[test]
fn no_executor_is_reserved_for_a_task_that_it_does_not_match() {
    for is_fixed in [true, false] {
        let mut scheduler = Scheduler::new(Config {
            policy: PlacementPolicy::MaxComputeUtil,
            window: Some(2),
            ..Config::default()
        });
        scheduler.join_at(1, 2, Some("b"), &[]);
        let mut wide = requires(&[TestExpression { is_fixed, ..SITE_A }]);
        wide.resources = cpus(2000);
        (0..4).for_each(|index| drop(scheduler.submit(index, &[])));
        scheduler.submit_needing(100, &[], &wide);
        (4..40).for_each(|index| drop(scheduler.submit(index, &[])));
        for _ in 0..36 {
            let oldest = scheduler.on(1)[0];
            scheduler.finish(1, oldest);
            assert_eq!(
                scheduler.utilisation().busy_milli,
                2000,
                "it idles for what it will never take"
            );
        }
    }
}

#[test]
fn an_executor_takes_only_what_it_accepts() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        scheduler.join_at(1, 4, None, &[ONE_CPU]);
        assert_eq!(assigned(&scheduler.submit_with(0, &[], cpus(2000))), [], "{policy}");
        assert_eq!(assigned(&scheduler.submit(1, &[])), [(1, 1)], "{policy}");
        assert_eq!(assigned(&scheduler.join_at(2, 4, None, &[])), [(2, 0)], "{policy}");
    }
}

#[test]
fn an_executor_may_accept_jobs_by_name() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        scheduler.join_at(1, 1, None, &[NIGHTLY]);
        assert_eq!(assigned(&scheduler.submit(0, &[])), [], "{policy}");
        scheduler.run(Event::JobNamed { job: JobId(2), name: "nightly".into() });
        let nightly = TaskId { job: JobId(2), index: 0 };
        let ready =
            Event::TaskReady { task: nightly, inputs: Arc::default(), need: Need::default() };
        assert_eq!(assigned(&scheduler.run(ready)).len(), 1, "{policy}");
    }
}

#[test]
fn changing_attributes_are_evaluated_again() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        scheduler.join_at(1, 2, None, &[]);
        let need = requires(&[IDLE]);
        assert_eq!(assigned(&scheduler.submit_needing(0, &[], &need)), [(1, 0)], "{policy}");
        // Half of it is busy now.
        assert_eq!(assigned(&scheduler.submit_needing(1, &[], &need)), [], "{policy}");
        assert_eq!(assigned(&scheduler.finish(1, 0)), [(1, 1)], "{policy}");
    }
}

#[test]
fn the_best_of_several_idle_executors_is_taken() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        [(1, 2), (2, 8), (3, 4)]
            .into_iter()
            .for_each(|(id, slots)| drop(scheduler.join_at(id, slots, None, &[])));
        let need = terms(&[], Some(MOST_CPUS));
        let by: Vec<_> = (0..3)
            .flat_map(|index| assigned(&scheduler.submit_needing(index, &[], &need)))
            .collect();
        assert_eq!(by, [(2, 0), (2, 1), (2, 2)], "{policy}");
    }
}

#[test]
fn a_rank_goes_before_the_share_of_inputs_and_is_no_requirement() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    [(1, 1), (2, 2)]
        .into_iter()
        .for_each(|(id, slots)| drop(scheduler.join_at(id, slots, None, &[])));
    scheduler.store(1, 1);
    assert_eq!(
        assigned(&scheduler.submit_needing(0, &[1], &terms(&[], Some(MOST_CPUS)))),
        [(2, 0)]
    );
    assert_eq!(
        assigned(&scheduler.submit_needing(1, &[1], &terms(&[], Some(MOST_LOCAL)))),
        [(1, 1)]
    );
    // Only the worse one is free.
    scheduler.submit_with(9, &[], cpus(1000));
    scheduler.finish(1, 1);
    assert_eq!(
        assigned(&scheduler.submit_needing(2, &[7], &terms(&[], Some(MOST_CPUS)))),
        [(1, 2)]
    );
}

#[test]
fn where_a_rank_has_no_value_any_other_is_better() {
    let error = TestExpression {
        text: "1 / 0",
        is_fixed: true,
        number: |facts| Ok(label(facts, "site")?.len() as f64),
    };
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    [(1, None), (2, Some("a")), (3, None)]
        .into_iter()
        .for_each(|(id, site)| drop(scheduler.join_at(id, 1, site, &[])));
    let need = terms(&[], Some(error));
    assert_eq!(assigned(&scheduler.submit_needing(0, &[], &need)), [(2, 0)]);
    assert_eq!(assigned(&scheduler.submit_needing(1, &[], &need)), [(1, 1)]);
}

#[test]
fn a_disk_without_room_is_no_match_until_it_has_some() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        (1..=2).for_each(|id| drop(scheduler.join_at(id, 1, None, &[])));
        scheduler.free_disk(1, 15);
        scheduler.free_disk(2, 25);
        assert_eq!(assigned(&scheduler.submit(0, &[1, 2])), [(2, 0)], "{policy}");
        scheduler.free_disk(2, 5);
        assert_eq!(assigned(&scheduler.submit(1, &[1, 2])), [], "{policy}");
        assert_eq!(scheduler.why(1), Some(WaitReason::Unmatched(vec![(Mismatch::Disk, 2)])));
        assert!(scheduler.exceeds_disks(&Need::default()), "{policy}");
        assert_eq!(assigned(&scheduler.submit(2, &[1])), [(1, 2)], "{policy}");
        assert_eq!(assigned(&scheduler.free_disk(2, 20)), [(2, 1)], "{policy}");
        assert!(!scheduler.exceeds_disks(&Need::default()), "{policy}");
    }
}

#[test]
fn disk_for_the_sandbox_counts_beside_the_inputs() {
    let mut scheduler = scheduler(PlacementPolicy::MaxCacheHit);
    scheduler.join_with(1, Resources { disk_bytes: 1000, ..cpus(1000) });
    scheduler.store(1, 1);
    scheduler.free_disk(1, 30);
    let need = |disk_bytes| Resources { disk_bytes, ..cpus(1000) };
    assert_eq!(assigned(&scheduler.submit_with(0, &[1], need(21))), []);
    assert_eq!(assigned(&scheduler.submit_with(1, &[1], need(20))), [(1, 1)]);
}

#[test]
fn a_task_that_an_executor_suits_is_found_behind_many_that_none_suits() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        let need = requires(&[LARGE_INPUTS]);
        let large: Vec<u8> = (0..10).collect();
        (0..300).for_each(|index| drop(scheduler.submit_needing(index, &[20], &need)));
        scheduler.submit_needing(300, &large, &need);
        (301..600).for_each(|index| drop(scheduler.submit_needing(index, &[20], &need)));
        let mut given = assigned(&scheduler.join_at(1, 1, None, &[]));
        for _ in 0..600 {
            given.extend(assigned(&scheduler.free_disk(1, 1 << 40)));
        }
        assert_eq!(given, [(1, 300)], "{policy}");
    }
}

#[test]
fn no_task_waits_for_a_holder_that_does_not_match() {
    for asks in [SITE_A, IDLE] {
        let mut scheduler = scheduler(PlacementPolicy::MaxCacheHit);
        scheduler.join_at(1, 2, Some("b"), &[]);
        assert_eq!(assigned(&scheduler.submit(0, &[9])), [(1, 0)]);
        scheduler.store(1, 1);
        scheduler.join_at(2, 1, Some("a"), &[]);
        assert_eq!(assigned(&scheduler.submit_needing(1, &[1], &requires(&[asks]))), [(2, 1)]);
    }
}

#[test]
fn a_queued_task_is_recalled_only_for_an_executor_that_matches() {
    for is_fixed in [true, false] {
        let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
        scheduler.join_at(1, 1, Some("a"), &[]);
        let need = requires(&[TestExpression { is_fixed, ..SITE_A }]);
        (0..2).for_each(|index| drop(scheduler.submit_needing(index, &[], &need)));
        assert_eq!(scheduler.join_at(2, 1, Some("b"), &[]), []);
        let recall =
            Effect::Command(PlacementCommand::Recall { executor: ExecutorId(1), task: task(1) });
        assert_eq!(scheduler.join_at(3, 1, Some("a"), &[]), [recall]);
    }
}

#[test]
fn a_task_is_given_up_when_those_that_match_refused_it() {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    scheduler.join_at(1, 1, Some("a"), &[]);
    scheduler.join_at(2, 1, Some("b"), &[]);
    assert_eq!(assigned(&scheduler.submit_needing(0, &[], &requires(&[SITE_A]))), [(1, 0)]);
    assert_eq!(
        scheduler.end(1, 0, AssignmentEnd::Refused),
        [Effect::Report(PlacementReport::Unplaceable { task: task(0) })]
    );
}

#[test]
fn an_executor_that_comes_later_and_matches_gets_what_waits() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        scheduler.join_at(1, 1, Some("b"), &[]);
        let need = requires(&[SITE_A]);
        (0..2).for_each(|index| drop(scheduler.submit_needing(index, &[1], &need)));
        assert_eq!(assigned(&scheduler.join_at(2, 2, Some("a"), &[])).len(), 2, "{policy}");
    }
}

#[test]
fn a_reused_place_of_a_class_is_matched_again() {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    scheduler.join_at(1, 1, Some("b"), &[]);
    scheduler.submit_needing(0, &[], &requires(&[SITE_A]));
    scheduler.run(Event::TaskCancelled { task: task(0) });
    assert_eq!(assigned(&scheduler.submit(1, &[])), [(1, 1)]);
}
