//! Provisioners against a simulated batch system: single histories in full, and random histories
//! that are checked after each step.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use alloc::{format, vec};

use eyas_types::{ExecutorId, ProvisioningPolicy};
use proptest::prelude::*;

use super::*;
use crate::policies;

const SECOND_US: u64 = 1_000_000;

fn config(policy: ProvisioningPolicy) -> Config {
    Config { policy, max_nodes: 20, ..Config::default() }
}

fn node(n: u32) -> ExecutorId {
    ExecutorId(n)
}

/// A provisioner and its clock.
struct ClockedProvisioner {
    provisioner: Provisioner,
    now_us: u64,
}

impl ClockedProvisioner {
    fn new(config: Config) -> Self {
        ClockedProvisioner { provisioner: Provisioner::new(config), now_us: 0 }
    }

    fn tell(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.provisioner.handle(self.now_us, event, &mut effects);
        let next = self.provisioner.next_timeout();
        assert!(
            next.is_none_or(|at_us| at_us > self.now_us),
            "{event:?}: {next:?} is not after {}",
            self.now_us
        );
        effects
    }

    fn waiting(&mut self, waiting: u64) -> Vec<Effect> {
        self.tell(Event::Work(OutstandingWork { waiting, ..OutstandingWork::default() }))
    }

    /// A node loses its connection, and reconnects at once as another executor.
    fn reconnected(&mut self, was: u32, n: u32, request: u64) -> Vec<Effect> {
        let mut effects = self.tell(Event::NodeLeft { node: node(was) });
        let (request, was) = (Some(NodeRequestId(request)), Some(node(was)));
        effects.extend(self.tell(Event::NodeJoined { node: node(n), request, was }));
        effects
    }

    fn joined(&mut self, n: u32, request: u64) -> Vec<Effect> {
        self.tell(Event::NodeJoined {
            node: node(n),
            request: Some(NodeRequestId(request)),
            was: None,
        })
    }

    /// Lets time pass until that second. Returns all effects, each with its second.
    fn pass(&mut self, until_s: u64) -> Vec<(u64, Effect)> {
        let mut done = Vec::new();
        while let Some(at_us) =
            self.provisioner.next_timeout().filter(|at_us| *at_us <= until_s * SECOND_US)
        {
            self.now_us = at_us;
            done.extend(
                self.tell(Event::TimePassed).into_iter().map(|effect| (at_us / SECOND_US, effect)),
            );
        }
        self.now_us = until_s * SECOND_US;
        done
    }
}

/// The size of each request.
fn asked(effects: &[Effect]) -> Vec<u32> {
    let nodes = |effect: &Effect| match effect {
        Effect::Request { nodes, .. } => Some(*nodes),
        _ => None,
    };
    effects.iter().filter_map(nodes).collect()
}

#[test]
fn each_policy_asks_in_its_own_way() {
    let cases = [
        (ProvisioningPolicy::OneAtATime, vec![1; 12]),
        (ProvisioningPolicy::Additive, vec![1, 2, 3, 4, 2]),
        (ProvisioningPolicy::Exponential, vec![1, 2, 4, 5]),
        (ProvisioningPolicy::AllAtOnce, vec![12]),
        (ProvisioningPolicy::Demand, vec![12]),
    ];
    for (policy, expected) in cases {
        let mut run = ClockedProvisioner::new(Config { slots: 2, ..config(policy) });
        assert_eq!(asked(&run.waiting(23)), expected, "{policy}");
        assert_eq!(run.waiting(23), [], "{policy}: they are on their way");
        assert_eq!(
            asked(&run.waiting(1_000)).iter().sum::<u32>(),
            8,
            "{policy}: no more than 20 in all"
        );
    }
}

#[test]
fn growing_requests_go_on_growing_until_there_is_enough() {
    let mut run = ClockedProvisioner::new(config(ProvisioningPolicy::Exponential));
    assert_eq!(asked(&run.waiting(3)), [1, 2]);
    assert_eq!(asked(&run.waiting(7)), [4]);
    run.joined(0, 0);
    [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 2)]
        .into_iter()
        .for_each(|(n, request)| assert_eq!(run.joined(n, request), []));
    assert_eq!(asked(&run.waiting(10)), [1, 2], "the next time it begins anew");
}

#[test]
fn requests_in_the_queue_are_bounded() {
    let mut run = ClockedProvisioner::new(Config {
        max_nodes: 100,
        ..config(ProvisioningPolicy::OneAtATime)
    });
    assert_eq!(asked(&run.waiting(100)).len(), Config::default().backlog);
    assert_eq!(asked(&run.joined(0, 0)), [1], "one was granted");
}

#[test]
fn an_idle_node_stays_while_refilling_it_would_take_as_long() {
    const IDLE_S: u64 = 30;
    for policy in ProvisioningPolicy::ALL {
        // It would take 50 s, then an hour; a node is kept for 100 s at most.
        for (refill_s, kept_s) in [(50, 50), (3600, 100)] {
            let mut run =
                ClockedProvisioner::new(Config { keep_us: 100 * SECOND_US, ..config(*policy) });
            run.waiting(2);
            let requests = [0, 1]
                .map(|n| (n, if *policy == ProvisioningPolicy::OneAtATime { n.into() } else { 0 }));
            requests.into_iter().for_each(|(n, request)| _ = run.joined(n, request));
            run.waiting(0);
            run.tell(Event::NodeHolds { node: node(1), refill_us: refill_s * SECOND_US });
            let expected = [(IDLE_S, 0), (IDLE_S + kept_s, 1)]
                .map(|(at_s, n)| (at_s, Effect::Drain { node: node(n) }));
            let left: Vec<_> = run
                .pass(200)
                .into_iter()
                .filter(|(_, effect)| matches!(effect, Effect::Drain { .. }))
                .collect();
            assert_eq!(left, expected, "{policy}");
        }
        // Its tasks have read what it holds: nothing keeps it.
        let mut run =
            ClockedProvisioner::new(Config { keep_us: 100 * SECOND_US, ..config(*policy) });
        run.waiting(1);
        run.joined(0, 0);
        run.waiting(0);
        run.tell(Event::NodeHolds { node: node(0), refill_us: 60 * SECOND_US });
        assert!(run.pass(IDLE_S + 10).is_empty(), "{policy}");
        let drained = run.tell(Event::NodeHolds { node: node(0), refill_us: 0 });
        assert_eq!(drained, [Effect::Drain { node: node(0) }], "{policy}");
    }
}

#[test]
fn nodes_of_a_request_that_is_no_longer_wanted_count_until_it_has_ended() {
    let ended = |request| Event::RequestEnded { request: NodeRequestId(request) };
    let mut run =
        ClockedProvisioner::new(Config { max_nodes: 3, ..config(ProvisioningPolicy::AllAtOnce) });
    assert_eq!(asked(&run.waiting(2)), [2]);
    run.waiting(0);
    assert_eq!(run.pass(60), [(30, Effect::Withdraw { request: NodeRequestId(0) })]);
    assert_eq!(asked(&run.waiting(9)), [1], "two may still join");
    run.joined(0, 0);
    assert_eq!(
        (run.provisioner.withdrawn(), asked(&run.waiting(9))),
        (1, [].into()),
        "one of them has"
    );
    assert_eq!(asked(&run.tell(ended(0))), [1]);
    // The same of a request whose nodes are overdue, and after a restart.
    assert_eq!(run.tell(Event::RequestOverdue { request: NodeRequestId(2) }), []);
    run.pass(600);
    assert_eq!((run.provisioner.withdrawn(), asked(&run.waiting(9))), (1, [].into()));
    assert_eq!(asked(&run.tell(ended(2))), [1], "it has paused long enough");
    run.tell(Event::RequestFound { request: NodeRequestId(7), nodes: 1, is_withdrawn: true });
    assert_eq!((run.provisioner.withdrawn(), run.provisioner.requested()), (1, 2));
}

#[test]
fn a_paused_pool_keeps_its_nodes_and_requests_no_others() {
    let mut run = ClockedProvisioner::new(config(ProvisioningPolicy::OneAtATime));
    assert_eq!(asked(&run.waiting(2)), [1, 1]);
    run.joined(0, 0);
    assert_eq!(run.tell(Event::ModeSet(Mode::Paused)), []);
    assert_eq!(run.waiting(9), [], "it is paused");
    assert_eq!(asked(&run.tell(Event::ModeSet(Mode::Active))).len(), 7);
}

#[test]
fn a_closed_pool_withdraws_its_requests_and_gives_back_its_nodes() {
    let mut run = ClockedProvisioner::new(config(ProvisioningPolicy::OneAtATime));
    assert_eq!(asked(&run.waiting(2)), [1, 1]);
    run.joined(0, 0);
    let request = NodeRequestId(1);
    let closing = run.tell(Event::ModeSet(Mode::Closed));
    assert_eq!(closing, [Effect::Withdraw { request }, Effect::Drain { node: node(0) }]);
    assert_eq!(run.waiting(9), []);
    assert_eq!(run.joined(1, 1), [Effect::Drain { node: node(1) }], "it was withdrawn too late");
    assert_eq!(run.tell(Event::NodeEmptied { node: node(0) }), [Effect::Release { node: node(0) }]);
}

#[test]
fn requests_of_an_earlier_time_count() {
    let mut run = ClockedProvisioner::new(Config {
        nodes_per_request: 2,
        backlog: 2,
        ..config(ProvisioningPolicy::AllAtOnce)
    });
    run.tell(Event::RequestFound { request: NodeRequestId(7), nodes: 3, is_withdrawn: false });
    let expected =
        Effect::Request { request: NodeRequestId(8), nodes: 2, walltime_us: 3_600 * SECOND_US };
    assert_eq!(run.waiting(9), [expected], "no more than two requests, of two nodes");
}

#[test]
fn demand_counts_what_comes_what_waits_and_what_both_take() {
    let policy = policies::of(ProvisioningPolicy::Demand, 60 * SECOND_US);
    let wanted = |waiting, task_ms: u64, transfer_ms: u64, per_s: f64| {
        let work = OutstandingWork {
            waiting,
            task_us: task_ms * 1_000,
            transfer_us: transfer_ms * 1_000,
            ..OutstandingWork::default()
        };
        policy.wanted(&work, per_s / SECOND_US as f64, 2)
    };
    // 100 tasks a second of 10 ms on two slots take half a node. Their transfers of 80 ms take
    // eight links.
    assert_eq!(wanted(0, 10, 0, 100.0), 1);
    assert_eq!(wanted(0, 10, 80, 100.0), 8);
    // 6,000 waiting tasks in a target of a minute are 100 a second more.
    assert_eq!(wanted(6_000, 10, 80, 100.0), 16);
    // There are no more slots than tasks.
    assert_eq!(wanted(10, 3_600_000, 0, 0.0), 5);
    // Nothing was measured yet.
    assert_eq!(wanted(10, 0, 0, 0.0), 5);
    assert_eq!(wanted(0, 10, 80, 0.0), 0);
    // Tasks wait for objects that were evicted: a node ends one task in 200 ms, although the task
    // takes 5 ms of it.
    let again = OutstandingWork {
        waiting: 6_000,
        task_us: 10_000,
        refetch_us: 200_000,
        ..OutstandingWork::default()
    };
    assert_eq!(policy.wanted(&again, 0.0, 2), 20);
    // Nodes whose stores are needed stay.
    assert_eq!(policy.wanted(&OutstandingWork { holding: 25, ..again }, 0.0, 2), 25);
}

#[test]
fn arrivals_are_smoothed() {
    let mut run = ClockedProvisioner::new(Config {
        target_us: 60 * SECOND_US,
        ..config(ProvisioningPolicy::Demand)
    });
    let work = |arrived| {
        Event::Work(OutstandingWork { arrived, task_us: SECOND_US, ..OutstandingWork::default() })
    };
    for second in 0..600 {
        run.now_us = second * SECOND_US;
        run.tell(work(second * 5));
    }
    assert_eq!(run.provisioner.wanted(), 5, "five a second, of a second each");
    for second in 600..660 {
        run.now_us = second * SECOND_US;
        run.tell(work(3_000));
    }
    assert_eq!(run.provisioner.wanted(), 2, "none for a minute");
}

#[test]
fn idle_nodes_leave_when_they_are_not_wanted() {
    let mut run =
        ClockedProvisioner::new(Config { min_nodes: 1, ..config(ProvisioningPolicy::AllAtOnce) });
    assert_eq!(asked(&run.waiting(3)), [3]);
    (0..3).for_each(|n| assert_eq!(run.joined(n, 0), []));
    (0..3).for_each(|n| assert_eq!(run.tell(Event::NodeBusy { node: node(n) }), []));
    for (second, n) in [(5, 1), (10, 0), (11, 2)] {
        assert_eq!(run.pass(second), []);
        run.tell(Event::NodeIdle { node: node(n) });
    }
    assert_eq!(run.pass(34), [], "there is work for all three");
    assert_eq!(run.waiting(1), []);
    assert_eq!(
        run.pass(100),
        [(35, Effect::Drain { node: node(1) }), (40, Effect::Drain { node: node(0) })]
    );
    // A node is not released before other nodes hold what it holds.
    assert_eq!(run.tell(Event::NodeEmptied { node: node(0) }), [Effect::Release { node: node(0) }]);
    assert_eq!(run.waiting(0), [], "the least is one");
    assert_eq!(run.provisioner.staying(), 1);
}

#[test]
fn unneeded_requests_are_withdrawn_and_nodes_consolidated() {
    let mut run = ClockedProvisioner::new(config(ProvisioningPolicy::Demand));
    let work = |waiting, running| {
        Event::Work(OutstandingWork { waiting, running, ..OutstandingWork::default() })
    };
    assert_eq!(asked(&run.tell(work(4, 0))), [4]);
    (0..4).for_each(|n| {
        run.now_us = u64::from(n) * SECOND_US;
        run.joined(n, 0);
        run.tell(Event::NodeBusy { node: node(n) });
    });
    assert_eq!(asked(&run.tell(work(3, 4))), [3]);
    run.pass(10);
    // A moment in which the nodes are wanted starts the idle time again.
    run.tell(work(0, 2));
    run.pass(20);
    run.tell(work(3, 4));
    run.tell(work(0, 2));
    let expected = [
        (50, Effect::Withdraw { request: NodeRequestId(1) }),
        (50, Effect::Drain { node: node(3) }),
        (50, Effect::Drain { node: node(2) }),
    ];
    assert_eq!(run.pass(100), expected);
    // The withdrawn request is granted all the same: the node is ours, and leaves when it has been
    // idle.
    run.joined(9, 1);
    assert_eq!(run.pass(200), [(130, Effect::Drain { node: node(9) })]);
}

#[test]
fn only_nodes_that_were_never_needed_are_released() {
    let mut run = ClockedProvisioner::new(config(ProvisioningPolicy::Demand));
    run.waiting(5);
    (0..5).for_each(|n| {
        run.joined(n, 0);
        run.tell(Event::NodeBusy { node: node(n) });
    });
    run.waiting(1);
    run.pass(20);
    run.waiting(3);
    run.waiting(1);
    let (fourth, third) = (Effect::Drain { node: node(4) }, Effect::Drain { node: node(3) });
    assert_eq!(run.pass(31), [(30, fourth), (30, third)], "three were needed for a moment");
    let (second, first) = (Effect::Drain { node: node(2) }, Effect::Drain { node: node(1) });
    assert_eq!(run.pass(100), [(60, second), (60, first)]);
}

#[test]
fn a_drained_node_is_given_back_when_it_is_emptied() {
    let mut run = ClockedProvisioner::new(config(ProvisioningPolicy::AllAtOnce));
    run.waiting(1);
    run.joined(0, 0);
    run.waiting(0);
    assert_eq!(run.pass(60), [(30, Effect::Drain { node: node(0) })]);
    assert_eq!(run.tell(Event::NodeEmptied { node: node(0) }), [Effect::Release { node: node(0) }]);
}

#[test]
#[should_panic = "cannot go from Staying to Released"]
fn a_node_that_stays_is_not_given_back() {
    let mut run = ClockedProvisioner::new(config(ProvisioningPolicy::Demand));
    run.waiting(1);
    run.joined(0, 0);
    run.tell(Event::NodeEmptied { node: node(0) });
}

#[test]
fn failed_requests_back_off() {
    let mut run = ClockedProvisioner::new(config(ProvisioningPolicy::AllAtOnce));
    run.waiting(2);
    let mut waits = Vec::new();
    for request in 0..10 {
        let failed_us = run.now_us;
        assert_eq!(run.tell(Event::RequestFailed { request: NodeRequestId(request) }), []);
        let done = run.pass(run.now_us / SECOND_US + 600);
        assert_eq!(asked(&done.iter().map(|(_, effect)| *effect).collect::<Vec<_>>()), [2]);
        waits.push(done[0].0 - failed_us / SECOND_US);
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]);
    run.joined(0, 10);
    run.tell(Event::RequestFailed { request: NodeRequestId(10) });
    assert_eq!(
        run.pass(run.now_us / SECOND_US + 5).len(),
        1,
        "a node that came ended it; of this one, the other did not"
    );
}

#[test]
fn nodes_leave_before_their_time_is_over_and_are_replaced() {
    let mut run = ClockedProvisioner::new(config(ProvisioningPolicy::AllAtOnce));
    run.waiting(1);
    run.joined(0, 0);
    run.tell(Event::NodeBusy { node: node(0) });
    let request =
        Effect::Request { request: NodeRequestId(1), nodes: 1, walltime_us: 3_600 * SECOND_US };
    assert_eq!(run.pass(3_600), [(3_480, Effect::Drain { node: node(0) }), (3_480, request)]);
}

#[test]
fn an_idle_node_whose_time_is_over_is_not_replaced() {
    for min_nodes in [0, 1] {
        let mut run =
            ClockedProvisioner::new(Config { min_nodes, ..config(ProvisioningPolicy::Demand) });
        let work = |arrived, running| {
            Event::Work(OutstandingWork {
                arrived,
                running,
                task_us: SECOND_US,
                ..OutstandingWork::default()
            })
        };
        run.waiting(1);
        run.joined(0, 0);
        run.tell(Event::NodeBusy { node: node(0) });
        for second in 1..=10 {
            run.now_us = second * SECOND_US;
            assert_eq!(run.tell(work(second, 1)), []);
        }
        run.tell(Event::NodeIdle { node: node(0) });
        run.now_us = 11 * SECOND_US;
        run.tell(work(10, 0));
        assert_eq!(run.provisioner.wanted(), 1, "tasks arrived a moment ago");
        let leaves = run.tell(Event::NodeExpires { node: node(0) });
        assert_eq!(leaves[0], Effect::Drain { node: node(0) });
        assert_eq!(asked(&leaves).len() as u32, min_nodes, "no task waits");
        assert_eq!(asked(&run.waiting(1)).len() as u32, 1 - min_nodes, "a task has come");
    }
}

#[test]
fn nodes_that_were_not_requested_count_and_are_never_released() {
    let mut run = ClockedProvisioner::new(config(ProvisioningPolicy::Demand));
    assert_eq!(run.tell(Event::NodeJoined { node: node(7), request: None, was: None }), []);
    assert_eq!(asked(&run.waiting(3)), [2]);
    run.waiting(0);
    assert_eq!(run.pass(10_000), [(30, Effect::Withdraw { request: NodeRequestId(0) })]);
}

#[test]
fn a_node_that_is_back_goes_on_as_what_it_was() {
    let mut run = ClockedProvisioner::new(config(ProvisioningPolicy::AllAtOnce));
    assert_eq!(asked(&run.waiting(3)), [3]);
    run.joined(0, 0);
    run.waiting(2);
    run.pass(10);
    assert_eq!(run.reconnected(0, 1, 0), []);
    assert_eq!(
        (run.provisioner.staying(), run.provisioner.requested()),
        (1, 2),
        "two of three have not come"
    );
    run.tell(Event::RequestFailed { request: NodeRequestId(0) });
    assert_eq!(run.reconnected(1, 2, 0), [], "nothing was granted since the request failed");
    let request =
        |n| Effect::Request { request: NodeRequestId(n), nodes: 1, walltime_us: 3_600 * SECOND_US };
    assert_eq!(run.pass(15), [(15, request(1))]);
    run.tell(Event::NodeBusy { node: node(2) });
    run.waiting(1);
    let leaves = [(3_480, Effect::Drain { node: node(2) }), (3_480, request(2))];
    assert_eq!(
        run.pass(3_500),
        [&[(45, Effect::Withdraw { request: NodeRequestId(1) })], &leaves[..]].concat()
    );
    // The node was draining when it left, and is drained again.
    assert_eq!(run.reconnected(2, 3, 0), [Effect::Drain { node: node(3) }]);
    assert_eq!(run.tell(Event::NodeEmptied { node: node(3) }), [Effect::Release { node: node(3) }]);
}

#[test]
fn nodes_that_are_remembered_after_they_left_are_bounded() {
    for (others, leaves_at_s) in [(MAX_AWAY as u32 - 1, 3_480), (MAX_AWAY as u32, 6_480)] {
        let mut run = ClockedProvisioner::new(config(ProvisioningPolicy::AllAtOnce));
        run.waiting(1);
        run.joined(0, 0);
        run.tell(Event::NodeLeft { node: node(0) });
        run.now_us = 3_000 * SECOND_US;
        for n in 1..=others {
            run.tell(Event::NodeJoined { node: node(n), request: None, was: None });
            run.tell(Event::NodeLeft { node: node(n) });
        }
        let (id, request, was) = (node(others + 1), Some(NodeRequestId(0)), Some(node(0)));
        run.tell(Event::NodeJoined { node: id, request, was });
        run.tell(Event::NodeBusy { node: id });
        let done = run.pass(7_000);
        assert!(
            done.contains(&(leaves_at_s, Effect::Drain { node: id })),
            "{others} others: {done:?}"
        );
    }
}

/// A batch system that behaves at random, and a cluster.
struct World {
    run: ClockedProvisioner,
    config: Config,
    /// The nodes of each request that are still to be granted; withdrawn requests too.
    requests: BTreeMap<NodeRequestId, u32>,
    withdrawn: Vec<NodeRequestId>,
    /// The time since which each node that is not draining is idle.
    idle_since_us: BTreeMap<ExecutorId, Option<u64>>,
    draining: Vec<ExecutorId>,
    released: Vec<ExecutorId>,
    /// The request of each node, and the time when the node was granted.
    granted: BTreeMap<ExecutorId, (NodeRequestId, u64)>,
    /// Nodes that are gone and may come back, and whether each was draining.
    away: Vec<(ExecutorId, bool)>,
    joined: u32,
    silent_until_us: u64,
    failures: u32,
}

impl World {
    fn tell(&mut self, event: Event) {
        let effects = self.run.tell(event);
        for effect in effects {
            self.apply(effect);
        }
        let staying = self.idle_since_us.len() as u32;
        assert_eq!(self.run.provisioner.staying(), staying);
        let open = self.requests.iter().filter(|(request, _)| !self.withdrawn.contains(request));
        assert_eq!(self.run.provisioner.requested(), open.map(|(_, nodes)| nodes).sum());
        let stays_us = self.config.walltime_us - self.config.notice_us;
        let is_in_time = |node| self.granted[node].1 + stays_us > self.run.now_us;
        assert!(self.idle_since_us.keys().all(is_in_time), "one stays beyond its walltime");
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Request { request, nodes, walltime_us } => {
                assert!(nodes > 0 && walltime_us == self.config.walltime_us);
                assert!(
                    self.run.now_us >= self.silent_until_us,
                    "it asks although the last request has just failed"
                );
                assert!(self.requests.insert(request, nodes).is_none(), "an id is used twice");
                let open = self
                    .requests
                    .keys()
                    .filter(|request| !self.withdrawn.contains(request))
                    .count();
                assert!(open <= MAX_REQUESTS);
                let all = self.idle_since_us.len() + self.draining.len() + self.released.len();
                let asked: u32 = self.requests.values().sum();
                assert!(
                    all as u32 + asked <= self.config.max_nodes.max(all as u32),
                    "more than may be"
                );
            }
            Effect::Withdraw { request } => {
                assert!(self.requests.contains_key(&request), "it is not there to be withdrawn");
                self.withdrawn.push(request);
            }
            Effect::Drain { node } => {
                self.idle_since_us.remove(&node).expect("it was staying");
                self.draining.push(node);
            }
            Effect::Release { node } => {
                assert!(!self.draining.contains(&node), "it still holds what is needed");
                self.released.push(node);
            }
        }
    }

    fn grant(&mut self, request: NodeRequestId) {
        let nodes = self.requests.get_mut(&request).expect("one of them");
        *nodes -= 1;
        if *nodes == 0 {
            self.requests.remove(&request);
        }
        (self.failures, self.silent_until_us) = (0, 0);
        self.join(request, self.run.now_us, None);
    }

    fn join(
        &mut self,
        request: NodeRequestId,
        granted_us: u64,
        was: Option<ExecutorId>,
    ) -> ExecutorId {
        self.joined += 1;
        let id = node(self.joined);
        self.idle_since_us.insert(id, Some(self.run.now_us));
        self.granted.insert(id, (request, granted_us));
        self.tell(Event::NodeJoined { node: id, request: Some(request), was });
        id
    }

    fn leave(&mut self, node: ExecutorId, is_draining: bool) {
        self.away.push((node, is_draining));
        self.tell(Event::NodeLeft { node });
    }

    fn step(&mut self, kind: u8, which: usize, amount: u64) {
        let nodes: Vec<_> = self.idle_since_us.keys().copied().collect();
        let requests: Vec<_> = self.requests.keys().copied().collect();
        match kind {
            0 | 1 => {
                let work = OutstandingWork {
                    waiting: amount % 60,
                    running: amount / 7 % 30,
                    task_us: amount * 1_000,
                    ..OutstandingWork::default()
                };
                self.tell(Event::Work(work));
            }
            2 | 3 if !requests.is_empty() => self.grant(requests[which % requests.len()]),
            4 if !requests.is_empty() => {
                let request = requests[which % requests.len()];
                self.requests.remove(&request);
                if !self.withdrawn.contains(&request) {
                    let backoff_us = (self.config.backoff_us << self.failures.min(20))
                        .min(self.config.max_backoff_us);
                    self.silent_until_us = self.run.now_us + backoff_us;
                    self.failures += 1;
                }
                self.tell(Event::RequestFailed { request });
            }
            5 if !nodes.is_empty() => {
                let node = nodes[which % nodes.len()];
                let is_idle = which.is_multiple_of(3);
                self.idle_since_us.insert(node, is_idle.then_some(self.run.now_us));
                self.tell(if is_idle {
                    Event::NodeIdle { node }
                } else {
                    Event::NodeBusy { node }
                });
            }
            6 if !self.draining.is_empty() => {
                let node = self.draining.swap_remove(which % self.draining.len());
                self.tell(Event::NodeEmptied { node });
            }
            7 if !self.released.is_empty() => {
                let node = self.released.swap_remove(which % self.released.len());
                self.tell(Event::NodeLeft { node });
            }
            8 if !nodes.is_empty() && which.is_multiple_of(8) => {
                let node = nodes[which % nodes.len()];
                self.idle_since_us.remove(&node);
                self.leave(node, false);
            }
            8 if !self.draining.is_empty() => {
                let node = self.draining.swap_remove(which % self.draining.len());
                self.leave(node, true);
            }
            9 if !self.away.is_empty() => {
                let (was, was_draining) = self.away.swap_remove(which % self.away.len());
                let (request, granted_us) = self.granted[&was];
                let node = self.join(request, granted_us, Some(was));
                assert!(!was_draining || self.draining.contains(&node), "it was told to leave");
            }
            _ => self.pass(amount * SECOND_US / 10),
        }
    }

    fn pass(&mut self, time_us: u64) {
        let until_us = self.run.now_us + time_us;
        while let Some(at_us) =
            self.run.provisioner.next_timeout().filter(|at_us| *at_us <= until_us)
        {
            self.run.now_us = at_us;
            self.tell(Event::TimePassed);
        }
        self.run.now_us = until_us;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_runs_keep_to_the_rules(
        policy in 0..ProvisioningPolicy::ALL.len(),
        min_nodes in 0_u32..4,
        slots in 1_u32..4,
        steps in prop::collection::vec((0_u8..11, 0_usize..1_000, 0_u64..400), 1..200),
    ) {
        let config = Config { min_nodes, slots, ..config(ProvisioningPolicy::ALL[policy]) };
        let mut world = World {
            run: ClockedProvisioner::new(config.clone()),
            config,
            requests: BTreeMap::new(),
            withdrawn: Vec::new(),
            idle_since_us: BTreeMap::new(),
            draining: Vec::new(),
            released: Vec::new(),
            granted: BTreeMap::new(),
            away: Vec::new(),
            joined: 0,
            silent_until_us: 0,
            failures: 0,
        };
        steps.into_iter().for_each(|(kind, which, amount)| world.step(kind, which, amount));
        // Without work, and when every effect is carried out, the least nodes are left and nothing
        // is requested.
        world.tell(Event::Work(OutstandingWork::default()));
        for node in world.idle_since_us.keys().copied().collect::<Vec<_>>() {
            world.idle_since_us.insert(node, Some(world.run.now_us));
            world.tell(Event::NodeIdle { node });
        }
        for _ in 0..100 {
            world.pass(40 * SECOND_US);
            while !world.draining.is_empty() {
                world.step(6, 0, 0);
            }
            while !world.released.is_empty() {
                world.step(7, 0, 0);
            }
            while let Some(request) = world.requests.keys().next().copied() {
                world.grant(request);
            }
        }
        let left = world.idle_since_us.len() as u32;
        prop_assert_eq!(
            (left, world.run.provisioner.requested()),
            (min_nodes, 0),
            "{}",
            format!("{policy}")
        );
    }
}
