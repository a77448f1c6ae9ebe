//! One pool, told by hand what the batch system and the dispatcher report.

use std::time::Duration;

use async_trait::async_trait;
use eyas_provision::{BatchEnd, MAX_FAILURES};
use eyas_types::{ExecutorId, ProvisioningPolicy, Resources};
use eyas_wire::view::pool::PoolView;
use tempfile::TempDir;

use super::*;

const SECOND_US: u64 = 1_000_000;

/// A batch system whose commands are never run: the tests say what they would have answered.
struct SilentBatchSystem;

#[async_trait]
impl BatchSystem for SilentBatchSystem {
    fn ask_every(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn submit(&self, _: &RequestPlan) -> Result<BatchJob, BatchError> {
        unreachable!("the pool itself runs no command")
    }

    async fn find(&self, _: &RequestPlan) -> Result<Option<BatchJob>, BatchError> {
        unreachable!("the pool itself runs no command")
    }

    async fn states(&self, _: &[BatchJob]) -> Result<Vec<BatchReport>, BatchError> {
        unreachable!("the pool itself runs no command")
    }

    async fn withdraw(&self, _: &[BatchJob]) -> Result<(), BatchError> {
        unreachable!("the pool itself runs no command")
    }

    async fn try_out(&self, _: &RequestPlan) -> Result<String, BatchError> {
        unreachable!("the pool itself runs no command")
    }
}

struct World {
    pool: Pool,
    now_us: u64,
    folder: TempDir,
}

pub(crate) fn options(min_nodes: u32) -> PoolOptions {
    PoolOptions {
        system: "silent".into(),
        time_limit_us: 3_600 * SECOND_US,
        backlog: 8,
        nodes_per_request: 1,
        min_nodes,
        max_nodes: 4,
        idle_timeout_us: 30 * SECOND_US,
        policy: ProvisioningPolicy::Demand,
        keep_us: 0,
        target_us: 10 * SECOND_US,
        join_timeout_us: 60 * SECOND_US,
        start_command: None,
        stop_command: None,
        wrap: None,
        max_node_hours: None,
        max_cost: None,
        price: 0.0,
        labels: Default::default(),
        cpus: Some(2),
        memory_bytes: None,
        resources: Vec::new(),
        executor_options: Vec::new(),
        verbatim: Vec::new(),
        kubernetes: None,
    }
}

impl World {
    fn new(min_nodes: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let system = Arc::new(SilentBatchSystem);
        let pool = Pool::add(
            folder.path(),
            "mine",
            options(min_nodes),
            system,
            Path::new("/eyas"),
            SECOND_US,
        )
        .unwrap();
        World { pool, now_us: SECOND_US, folder }
    }

    /// A report of the dispatcher, after a minute.
    fn report(&mut self, tasks: u64, nodes: &[&PoolNodeState]) -> Vec<PoolAction> {
        self.now_us += 60 * SECOND_US;
        let mut actions = Vec::new();
        let nodes = nodes.iter().map(|node| (*node).clone()).collect();
        self.pool.see_nodes(self.now_us, nodes, &mut actions);
        let work =
            FittingWork { fits: 1, tasks, cpus_milli: 1000 * tasks, ..FittingWork::default() };
        self.pool.see_work(self.now_us, work, OutstandingWork::default(), &mut actions);
        actions
    }

    fn submitted(&mut self, number: u64) -> Vec<PoolAction> {
        let folder = self.pool.folder().request(number);
        std::fs::create_dir_all(&folder).unwrap();
        let job = BatchJob { id: format!("{}", 100 + number), cluster: None, folder };
        let mut actions = Vec::new();
        self.pool.submitted(self.now_us, number, Submission::Accepted(job), &mut actions);
        actions
    }

    fn state(&mut self, number: u64, state: BatchState) -> Vec<PoolAction> {
        let mut actions = Vec::new();
        self.pool.see_state(self.now_us, number, state.into(), &mut actions);
        actions
    }

    fn view(&self) -> PoolView {
        self.pool.view(self.now_us, true)
    }
}

/// Numbers of the requests that are to be submitted.
fn submissions(actions: &[PoolAction]) -> Vec<u64> {
    let number = |action: &PoolAction| match action {
        PoolAction::Submit(plan) => Some(plan.number),
        _ => None,
    };
    actions.iter().filter_map(number).collect()
}

fn ended(says: &str, is_of_node: bool) -> BatchState {
    BatchState::Ended(BatchEnd { says: says.into(), is_of_node })
}

fn node(executor: u32, request: u64) -> PoolNodeState {
    PoolNodeState {
        executor: ExecutorId(executor),
        name: format!("n{executor}"),
        host: "host".into(),
        incarnation: format!("process {executor}"),
        pool: "mine".into(),
        request,
        left_us: None,
        capacity: Resources { cpus_milli: 2000, ..Resources::default() },
        tasks: 0,
        lacks_time: false,
        refill_us: 0,
        ended: 0,
        is_draining: false,
        is_emptied: false,
    }
}

#[test]
fn requests_that_fail_pause_the_pool_but_nodes_that_fail_do_not() {
    for (says, is_of_node, state) in [("NODE_FAIL", true, "active"), ("FAILED", false, "paused")] {
        let mut world = World::new(1);
        for number in 0..u64::from(MAX_FAILURES) {
            world.now_us += 600 * SECOND_US;
            assert_eq!(submissions(&world.report(0, &[])), [number]);
            world.submitted(number);
            world.state(number, ended(says, is_of_node));
        }
        let view = world.view();
        assert!(view.state == state && view.failures == u64::from(MAX_FAILURES), "{view:?}");
        assert!(view.requests[0].has_failed && view.requests[0].says.as_deref() == Some(says));
    }
}

impl World {
    /// A request is made, and fails on a host. Returns the hosts that it was to avoid.
    fn fails_on(&mut self, host: &str) -> Vec<String> {
        self.now_us += 600 * SECOND_US;
        let actions = self.report(0, &[]);
        let [PoolAction::Submit(plan)] = &actions[..] else { panic!("{actions:?}") };
        self.submitted(plan.number);
        let report = BatchReport { state: ended("FAILED", false), host: Some(host.into()) };
        self.pool.see_state(self.now_us, plan.number, report, &mut Vec::new());
        plan.excluded.clone()
    }
}

#[test]
fn a_bad_host_is_excluded_and_does_not_pause_the_pool() {
    let mut world = World::new(1);
    assert!(world.fails_on("n1").is_empty() && world.fails_on("n1").is_empty());
    assert_eq!(world.view().excluded[0].host, "n1");
    // A batch system that cannot exclude hosts may grant it again.
    for _ in 0..2 * MAX_FAILURES {
        assert_eq!(world.fails_on("n1"), ["n1"]);
    }
    assert_eq!(world.view().state, "active");
    world.now_us += 1_800 * SECOND_US;
    assert!(world.view().excluded.is_empty(), "it has rested");
    for host in ["n2", "n3", "n4", "n5"] {
        assert_eq!(world.view().state, "active");
        world.fails_on(host);
    }
    assert_eq!(world.view().state, "paused", "five hosts have failed");
    world.pool.set_status(world.now_us, PoolStatus::Active, &mut Vec::new());
    assert!(world.fails_on("n1").is_empty());
    let number = world.pool.newest_request().unwrap() + 1;
    world.report(0, &[]);
    world.submitted(number);
    world.state(number, BatchState::Running);
    world.report(0, &[&PoolNodeState { host: "n1".into(), ..node(0, number) }]);
    assert!(world.view().excluded.is_empty());
}

#[test]
fn hosts_that_could_not_be_reached_are_excluded_at_once() {
    let mut world = World::new(1);
    world.pool.pass_over(
        world.now_us,
        vec![("gone".into(), "connection refused".into())],
        &mut Vec::new(),
    );
    let actions = world.report(0, &[]);
    assert!(
        matches!(&actions[..], [PoolAction::Submit(plan)] if plan.excluded == ["gone"]),
        "{actions:?}"
    );
    assert!(world.view().events.iter().any(|event| event.text.contains("host gone is excluded")));
}

#[test]
fn a_node_without_time_for_the_waiting_tasks_is_replaced_in_its_second_half() {
    let mut world = World::new(0);
    world.report(2, &[]);
    world.submitted(0);
    let idle = PoolNodeState { lacks_time: true, ..node(0, 0) };
    for _ in 0..29 {
        assert!(world.report(2, &[&idle]).is_empty(), "its time is not half over");
    }
    let mut actions = (0..3).flat_map(|_| world.report(2, &[&idle])).collect::<Vec<_>>();
    actions.truncate(2);
    let [PoolAction::Order(PoolOrder::Drain { .. }), PoolAction::Submit(_)] = &actions[..] else {
        panic!("{actions:?}")
    };
}

#[test]
fn a_node_that_is_idle_when_its_time_ends_is_not_replaced() {
    for (is_over, expected) in [(true, 0), (false, 1)] {
        let mut world = World::new(0);
        world.report(1, &[]);
        world.submitted(0);
        let busy = PoolNodeState { tasks: 1, left_us: Some(600 * SECOND_US), ..node(0, 0) };
        let mut actions: Vec<_> = (0..8).flat_map(|_| world.report(0, &[&busy])).collect();
        assert!(actions.is_empty(), "{actions:?}");
        // Its only task ends when its time is nearly over, or goes on.
        let last = PoolNodeState { tasks: u64::from(!is_over), ..busy };
        actions.extend((0..2).flat_map(|_| world.report(0, &[&last])));
        assert!(matches!(actions[0], PoolAction::Order(PoolOrder::Drain { .. })), "{actions:?}");
        assert_eq!(submissions(&actions).len(), expected);
    }
}

#[test]
fn a_request_that_is_withdrawn_before_it_is_submitted_is_ended_afterwards() {
    let mut world = World::new(0);
    assert_eq!(submissions(&world.report(2, &[])), [0]);
    world.report(0, &[]);
    world.report(0, &[]);
    assert!(world.pool.decider.request_of(0).unwrap().is_withdrawn());
    assert!(matches!(&world.submitted(0)[..], [PoolAction::Withdraw(jobs)] if jobs[0].id == "100"));
    world.state(0, ended("CANCELLED", false));
    assert_eq!(world.view().failures, 0);
}

#[test]
fn a_node_that_joins_while_its_request_is_withdrawn_is_given_back() {
    let mut world = World::new(0);
    assert_eq!(submissions(&world.report(2, &[])), [0]);
    world.submitted(0);
    world.report(0, &[]);
    world.report(0, &[]);
    assert!(world.pool.decider.request_of(0).unwrap().is_withdrawn());
    world.report(0, &[&node(0, 0)]);
    // The batch system ends it before the pool releases it.
    world.report(0, &[]);
    let view = world.view();
    assert_eq!((view.nodes_granted, view.nodes_given_back, view.failures), (1, 1, 0), "{view:?}");
    assert_eq!(view.departed[0].why, "its request was withdrawn");
}

#[test]
fn nodes_are_requested_for_the_resource_that_is_scarcest() {
    let mut world = World::new(0);
    let capacity = Resources { named: vec![("gpu".into(), 1)], ..node(0, 0).capacity };
    assert_eq!(submissions(&world.report(1, &[])), [0]);
    world.submitted(0);
    world.report(1, &[&PoolNodeState { capacity, ..node(0, 0) }]);
    let wanted = |world: &mut World, gpus: u64| {
        let named = [("gpu".to_owned(), gpus)].into();
        // Three processors are two nodes.
        let work = FittingWork { fits: 1, tasks: 3, cpus_milli: 3000, memory_bytes: 0, named };
        world.pool.see_work(world.now_us, work, OutstandingWork::default(), &mut Vec::new());
        world.view().wanted
    };
    assert_eq!((wanted(&mut world, 0), wanted(&mut world, 3)), (2, 3));
}

#[test]
fn a_request_that_the_batch_system_has_lost_is_made_again() {
    let mut world = World::new(1);
    world.report(0, &[]);
    world.submitted(0);
    (0..2).for_each(|_| assert!(world.state(0, BatchState::Unknown).is_empty()));
    world.state(0, BatchState::Pending(None));
    (0..3).for_each(|_| _ = world.state(0, BatchState::Unknown));
    assert_eq!(submissions(&world.report(0, &[])), [1]);
}

#[test]
fn a_node_that_does_not_join_is_given_up() {
    let mut world = World::new(1);
    world.report(0, &[]);
    world.submitted(0);
    world.state(0, BatchState::Running);
    world.now_us += 61 * SECOND_US;
    let given_up = world.state(0, BatchState::Running);
    assert!(matches!(&given_up[..], [PoolAction::Withdraw(_), ..]), "{given_up:?}");
    assert!(world.view().why.unwrap().contains("no node joined within"));
    // The command may have failed.
    world.now_us += 61 * SECOND_US;
    let again = world.state(0, BatchState::Running);
    assert!(matches!(&again[..], [PoolAction::Withdraw(_)]), "{again:?}");
    world.state(0, ended("CANCELLED", false));
    assert!(
        world.view().requests[0].state == "ended" && world.view().failures == 1,
        "{:?}",
        world.view()
    );
}

#[test]
fn a_node_that_cannot_start_is_given_up_with_the_reason() {
    let mut world = World::new(1);
    world.report(0, &[]);
    world.submitted(0);
    world.state(0, BatchState::Starting(Some("ErrImagePull".into())));
    assert!(
        world
            .view()
            .waits
            .unwrap()
            .ends_with("was granted, and its node has not joined (ErrImagePull)")
    );
    world.now_us += 61 * SECOND_US;
    let given_up = world.state(0, BatchState::Starting(Some("ImagePullBackOff".into())));
    assert!(matches!(&given_up[..], [PoolAction::Withdraw(_), ..]), "{given_up:?}");
    assert!(world.view().why.unwrap().ends_with("after the request was granted: ImagePullBackOff"));
}

#[test]
fn a_batch_system_that_does_not_answer_is_named_until_it_does() {
    let mut world = World::new(1);
    world.report(0, &[]);
    world.submitted(0);
    let missing = BatchError::Missing { program: "squeue".into() };
    (0..2).for_each(|_| world.pool.states_unknown(world.now_us, &missing, &mut Vec::new()));
    let noted =
        |text: &str| world.view().events.iter().filter(|event| event.text.contains(text)).count();
    assert_eq!(noted("the states of requests are not known: there is no program `squeue`"), 1);
    assert!(world.view().why.unwrap().contains("no program `squeue`"));
    world.state(0, BatchState::Pending(None));
    assert_eq!(world.view().why, None);
}

#[test]
fn after_a_restart_requests_are_neither_forgotten_nor_made_twice() {
    let mut world = World::new(2);
    assert_eq!(submissions(&world.report(0, &[])), [0, 1]);
    (0..2).for_each(|number| _ = world.submitted(number));
    world.state(0, BatchState::Running);
    world.report(0, &[&node(0, 0)]);
    world.restart();
    assert_eq!(
        submissions(&world.report(0, &[])),
        [0_u64; 0],
        "one is pending, and the node of the other comes back"
    );
    assert_eq!(submissions(&world.report(0, &[&node(7, 0)])), [0_u64; 0]);
    let view = world.view();
    assert!(view.nodes == 1 && view.requested == 1 && view.nodes_granted == 1, "{view:?}");
    // The node is lost for good, and its request is made again with a new number.
    world.report(0, &[]);
    world.state(0, ended("COMPLETED", false));
    assert_eq!(submissions(&world.report(0, &[])), [0_u64; 0], "the number was used above");
    assert!(world.pool.has_request(2));
}

impl World {
    /// The batch system did not answer a submission. The plan of the request, whose script is
    /// written.
    fn unanswered(&mut self, number: u64) -> RequestPlan {
        let mark = self.pool.decider.request_of(number).unwrap().mark.clone();
        let plan = self.pool.plan_of(number, 1, mark, Vec::new());
        crate::script::write(&plan, &SilentBatchSystem, "").unwrap();
        let slow = BatchError::Slow { program: "sbatch".into() };
        self.pool.submitted(self.now_us, number, Submission::Unclear(slow), &mut Vec::new());
        plan
    }

    fn looked_for(&mut self, plan: &RequestPlan, id: Option<&str>) -> Vec<PoolAction> {
        let job =
            id.map(|id| BatchJob { id: id.into(), cluster: None, folder: plan.folder.clone() });
        let mut actions = Vec::new();
        self.pool.looked_for(self.now_us, plan.number, Ok(job), &mut actions);
        actions
    }

    /// Numbers and names of the requests that are looked for.
    fn unclear(&self) -> Vec<(u64, String)> {
        self.pool.unclear(self.now_us).map(|plan| (plan.number, plan.name())).collect()
    }

    fn restart(&mut self) {
        let stored = self.pool.folder().load().unwrap();
        let folder = self.folder.path().to_owned();
        self.pool = Pool::load(
            &folder,
            "mine",
            stored,
            Arc::new(SilentBatchSystem),
            Path::new("/eyas"),
            self.now_us,
        );
    }
}

#[test]
fn a_request_of_unknown_outcome_is_looked_for_until_it_is_found() {
    let mut world = World::new(1);
    assert_eq!(submissions(&world.report(0, &[])), [0]);
    let plan = world.unanswered(0);
    let name = plan.name();
    assert!(name.starts_with("eyas-mine-0-") && name.len() == "eyas-mine-0-".len() + 8, "{name}");
    assert_eq!(
        submissions(&world.report(9, &[])),
        [1, 2, 3],
        "four nodes are the most, with the unclear one"
    );
    let silent = BatchError::Slow { program: "squeue".into() };
    (0..9)
        .for_each(|_| world.pool.looked_for(world.now_us, 0, Err(silent.clone()), &mut Vec::new()));
    (0..2).for_each(|_| assert!(world.looked_for(&plan, None).is_empty()));
    world.restart();
    assert_eq!(world.unclear(), [(0, name)], "also after a restart");
    world.looked_for(&plan, Some("7"));
    assert_eq!(world.pool.open_jobs().map(|(_, job)| job.id).collect::<Vec<_>>(), ["7"]);
    assert!(world.unclear().is_empty() && world.view().failures == 0);
}

#[test]
fn a_node_that_joined_before_its_submission_was_answered_is_waited_for_after_a_restart() {
    let mut world = World::new(1);
    assert_eq!(submissions(&world.report(0, &[])), [0]);
    let plan = world.unanswered(0);
    world.report(0, &[&node(0, 0)]);
    world.restart();
    assert_eq!(submissions(&world.report(0, &[])), [0_u64; 0], "its node comes back");
    assert_eq!(submissions(&world.report(0, &[&node(7, 0)])), [0_u64; 0]);
    world.looked_for(&plan, Some("7"));
    let view = world.view();
    assert!(view.nodes == 1 && view.requested == 0 && view.nodes_granted == 1, "{view:?}");
}

#[test]
fn a_request_that_the_batch_system_does_not_have_has_failed_and_starts_no_node_later() {
    let mut world = World::new(1);
    world.report(0, &[]);
    let plan = world.unanswered(0);
    assert!(plan.access().exists());
    (0..3).for_each(|_| _ = world.looked_for(&plan, None));
    assert!(!plan.access().exists(), "a job that starts later cannot join");
    assert!(
        world.view().failures == 1 && world.view().why.unwrap().contains("`sbatch` did not answer")
    );
    assert_eq!(submissions(&world.report(0, &[])), [1]);
}

#[test]
fn an_unclear_request_that_is_no_longer_wanted_is_withdrawn_when_it_is_found() {
    let mut world = World::new(1);
    world.report(0, &[]);
    let plan = world.unanswered(0);
    world.pool.set_status(world.now_us, PoolStatus::Closing, &mut Vec::new());
    assert!(!world.pool.is_closed() && !plan.access().exists());
    let actions = world.looked_for(&plan, Some("7"));
    let [PoolAction::Withdraw(jobs)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(jobs[0].id, "7");
    // The command may have failed.
    assert!(matches!(&world.state(0, BatchState::Pending(None))[..], [PoolAction::Withdraw(_)]));
    world.state(0, ended("CANCELLED", false));
    assert!(world.pool.is_closed());
}

#[test]
fn a_command_that_cannot_look_says_nothing_about_a_request() {
    let mut world = World::new(1);
    world.report(0, &[]);
    let plan = world.unanswered(0);
    let look = |world: &mut World| {
        let missing = BatchError::Missing { program: "squeue".into() };
        (0..5).for_each(|_| {
            world.pool.looked_for(world.now_us, 0, Err(missing.clone()), &mut Vec::new())
        });
    };
    look(&mut world);
    assert!(
        world.view().failures == 0 && world.unclear().len() == 1,
        "the batch system may have it"
    );
    assert!(world.view().why.unwrap().contains("no program `squeue`"));
    // What is shut out can do no harm, and does not keep the pool.
    world.pool.set_status(world.now_us, PoolStatus::Closing, &mut Vec::new());
    assert!(!plan.access().exists() && !world.pool.is_closed());
    look(&mut world);
    assert!(world.pool.is_closed());
}

#[test]
fn a_request_that_is_withdrawn_has_its_places_until_it_has_ended() {
    let mut world = World::new(0);
    assert_eq!(submissions(&world.report(8, &[])), [0, 1, 2, 3]);
    (0..4).for_each(|number| _ = world.submitted(number));
    (0..2).for_each(|_| _ = world.report(0, &[]));
    assert!(world.pool.decider.request_of(3).unwrap().is_withdrawn());
    assert_eq!(submissions(&world.report(8, &[])), [0_u64; 0], "all four may still start");
    let waits = world.view().waits.unwrap();
    assert_eq!(
        waits,
        "request 0 is withdrawn, and counts among the 4 of --max-nodes until the batch system has \
         ended it"
    );
    let again: Vec<_> =
        (0..4).flat_map(|number| world.state(number, ended("CANCELLED", false))).collect();
    assert_eq!(submissions(&again), [4, 5, 6, 7]);
}

#[test]
fn a_clock_that_was_set_back_before_a_restart_does_no_harm() {
    let mut world = World::new(1);
    world.report(0, &[]);
    world.submitted(0);
    world.now_us = SECOND_US / 2;
    world.restart();
    world.now_us = 0;
    assert_eq!(submissions(&world.report(0, &[])), [0_u64; 0], "the request of before still waits");
    assert!(world.view().waits.unwrap().starts_with("request 0, made 0"), "{:?}", world.view());
    world.state(0, BatchState::Running);
    world.report(0, &[&node(0, 0)]);
    assert_eq!(world.view().nodes, 1);
}

#[test]
fn a_node_is_kept_for_what_only_it_holds_and_says_so() {
    let mut world = World::new(0);
    let mut options = options(0);
    options.keep_us = 600 * SECOND_US;
    world.pool = Pool::add(
        world.folder.path(),
        "keeps",
        options,
        Arc::new(SilentBatchSystem),
        Path::new("/eyas"),
        0,
    )
    .unwrap();
    world.report(2, &[]);
    world.submitted(0);
    let holder = PoolNodeState { refill_us: 200 * SECOND_US, ..node(0, 0) };
    for _ in 0..3 {
        assert!(world.report(0, &[&holder]).is_empty(), "{:?}", world.view());
    }
    let view = world.view();
    assert!(view.node_list[0].why.contains("it is kept for 3 min 20 s"), "{view:?}");
    assert!(
        view.events.iter().any(|event| event.text.contains("node n0 stays without tasks")),
        "{view:?}"
    );
    let drained = world.report(0, &[&node(0, 0)]);
    assert!(
        matches!(&drained[..], [PoolAction::Order(PoolOrder::Drain { .. })]),
        "others hold it now: {drained:?}"
    );
    world.report(0, &[]);
    assert_eq!(world.view().departed[0].node, "n0");
}

#[test]
fn a_limit_of_node_time_closes_the_pool() {
    let mut world = World::new(1);
    let mut options = options(1);
    options.max_node_hours = Some(0.01);
    world.pool = Pool::add(
        world.folder.path(),
        "capped",
        options,
        Arc::new(SilentBatchSystem),
        Path::new("/eyas"),
        0,
    )
    .unwrap();
    world.report(0, &[]);
    world.submitted(0);
    world.report(0, &[&node(0, 0)]);
    let closing = world.report(0, &[&node(0, 0)]);
    assert!(matches!(&closing[..], [PoolAction::Order(PoolOrder::Drain { .. })]), "{closing:?}");
    assert!(world.view().state == "capped" && (world.view().node_seconds - 60.0).abs() < 1e-6);
}
