//! Valid scenarios, and the errors of invalid ones.

use eyas_sched::HolderPatience;
use eyas_types::{Distribution, EvictionPolicy, PlacementPolicy, ProvisioningPolicy};

use super::*;
use crate::clock::SECOND;
use crate::cluster::TaskPartitioning;
use crate::nodes::{Batch, Failures};

fn parse(text: &str) -> Result<Scenario, (usize, ScenarioMistake)> {
    Scenario::parse(text, "file", Path::new("/nowhere"))
}

/// A scenario of a small Zipf workload, with lines before and after it.
fn zipf(before: &str, after: &str) -> String {
    let workload =
        "[workload.zipf]\nobjects = 100\nsize = \"10 MB\"\ntasks = 500\ncompute = \"10 ms\"\n";
    format!("{before}{workload}{after}")
}

/// `[job]` with one output for each task, and more lines.
fn after_job(more: &str) -> String {
    format!("[job]\noutputs = 1\noutput_size = \"1 MB\"\n{more}")
}

fn job(more: &str) -> String {
    zipf("", &after_job(more))
}

fn run(scenario: &Scenario) -> RunOutcome {
    scenario.run(&scenario.cluster, &scenario.policies, &mut |_| ControlFlow::Continue(()))
}

#[test]
fn defaults_are_those_of_the_paper_and_of_eyas() {
    let scenario = parse(&zipf("", "")).unwrap();
    assert_eq!((scenario.name.as_str(), scenario.seed, scenario.limit_us), ("file", 1, LIMIT_US));
    assert_eq!(scenario.cluster, SimCluster::teragrid_64(4_000_000_000).under_eyas());
    assert_eq!(scenario.policies, Policies::of_eyas(PlacementPolicy::Cost));
    assert_eq!((scenario.workload.tasks(), scenario.workload.object_bytes()), (500, 10_000_000));
    assert!(run(&scenario).is_complete());
}

#[test]
fn all_settings_of_a_scenario_are_read() {
    let before = "name = \"mine\"\nseed = 7\nlimit = \"2 h\"\n\
        [cluster]\nlike = \"sicortex\"\nnodes = 3\nslots = 5\n\
        cache = \"1 GiB\"\nlink = \"10 Gbit/s\"\ndisk_read = \"500 MB/s\"\nbisection = \"1 GB/s\"\n\
        storage = \"2 Gbit/s\"\nstorage_client = \"50 MB/s\"\nstorage_latency = \"5 ms\"\n\
        decision = \"10 us\"\ncatalog_delay = \"12 s\"\n";
    let after = "[policies]\nlike = \"paper\"\nplacement = \"gcc\"\neviction = \"lfu\"\n\
        utilisation = 0.8\nwindow = 9\n\
        min_cache_hit = 0.25\npatience = 70\nhits_first = false\nspread = true\n\
        [provisioning]\npolicy = \"additive\"\nmin_nodes = 2\ngrant_least = \"5 s\"\n\
        idle = \"1 min\"\nwalltime = \"1 h\"\n\
        [failures]\nnode_lost_after = \"10 h\"\nnode_back_after = \"5 min\"\n\
        disconnected_after = \"1 h\"\nslow_disks = 0.25\nfailed_requests = 0.5\n";
    let Scenario { name, cluster, policies, seed, limit_us, .. } =
        parse(&zipf(before, after)).unwrap();
    assert_eq!((name.as_str(), seed, limit_us), ("mine", 7, 7_200_000_000));
    let disk = cluster.disk.expect("it was named");
    assert_eq!((cluster.nodes, cluster.cpus, cluster.cache_bytes), (3, 5, 1 << 30));
    assert_eq!(
        (disk.read_bytes_per_s, disk.write_bytes_per_s, cluster.card_bytes_per_s),
        (500e6, 73e6, 1.25e9)
    );
    assert_eq!(
        (cluster.bisection_bytes_per_s, cluster.storage.client_bytes_per_s),
        (Some(1e9), Some(50e6))
    );
    assert_eq!((cluster.storage.bytes_per_s, cluster.storage.latency_ns), (250e6, 5_000_000));
    assert_eq!((cluster.decision_ns, cluster.catalog_delay_ns), (10_000, 12_000_000_000));
    let batch = Batch {
        policy: ProvisioningPolicy::Additive,
        min_nodes: 2,
        grants_after_ns: (5 * SECOND, 60 * SECOND),
        idle_ns: 60 * SECOND,
        walltime_ns: 3600 * SECOND,
        ..Batch::default()
    };
    assert_eq!(cluster.batch, Some(batch));
    let soon = parse(&zipf("", "[provisioning]\ntarget = \"30 s\"\n")).unwrap();
    assert_eq!(soon.cluster.batch.map(|batch| batch.target_ns), Some(30 * SECOND));
    let failures = Failures {
        lost_after_ns: Some(36_000 * SECOND),
        back_after_ns: Some(300 * SECOND),
        disconnected_after_ns: Some(3600 * SECOND),
        slow_disks: 0.25,
        failed_requests: 0.5,
        dispatcher_back_after_ns: 5 * SECOND,
        ..Failures::default()
    };
    assert_eq!(cluster.failures, failures);
    let paper = Policies::of_the_paper(PlacementPolicy::GoodCacheCompute);
    let said = Policies {
        eviction: EvictionPolicy::Lfu,
        utilisation_threshold: 0.8,
        min_cache_hit: 0.25,
        window: Some(9),
        patience: HolderPatience::Tasks(70),
        hits_first: false,
        spread: true,
        ..paper
    };
    assert_eq!(policies, said);
    let endless = parse(&zipf("", "[policies]\npatience = \"off\"\n")).unwrap();
    assert_eq!(endless.policies.patience, HolderPatience::Unlimited);
    let pushed = parse(&zipf("", "[policies]\ndistribution = \"spanning-tree\"\n")).unwrap();
    assert_eq!(pushed.policies.distribution, Some(Distribution::SpanningTree));
}

#[test]
fn every_workload_has_a_name() {
    for (text, tasks, data_bytes) in [
        ("[workload.monotonically_increasing]", 250_000, 100_000_000_000),
        ("[workload.sine_wave]\ncompute = \"1 ms\"", 2_000_000, 1_000_000_000_000),
        (
            "[workload.all_pairs]\nside = 20\nsize = \"1 MB\"\ncompute = \"1 s\"\n\
             order = \"random\"",
            400,
            40_000_000,
        ),
        (
            "[workload.all_pairs]\nside = 20\nsize = \"1 B\"\ncompute = \"1 s\"\n\
             order = \"tiles\"\ntile = 8",
            400,
            40,
        ),
        ("[workload.stacking]\nlocality = 30", 23_695, 1_580_000_000),
        ("[workload.uniform]\nobjects = 9\nsize = \"1 B\"\ntasks = 10\ncompute = \"1 s\"", 10, 9),
        ("[workload.scan]\nobjects = 9\nsize = \"1 B\"\nrounds = 3\ncompute = \"1 s\"", 27, 9),
    ] {
        let scenario = parse(text).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
        assert_eq!(
            (scenario.workload.tasks(), scenario.workload.data_bytes()),
            (tasks, data_bytes),
            "{text}"
        );
    }
}

#[test]
fn mistakes_are_told_with_their_line() {
    let all = "[workload.zipf]\nobjects = 0";
    for (text, line, why) in [
        ("", 1, "workload"),
        ("[workload.zipf\n", 1, ""),
        (all, 2, "at least 1"),
        ("[workload.zip]\nobjects = 1", 1, "`zip` is not a value here: the nearest is `zipf`"),
        ("[workload.zipf]\nobjects = 1", 1, "the key `size` is missing"),
        (&zipf("[cluster]\nnodes = 0\n", ""), 2, "at least 1"),
        (&zipf("[cluster]\nnodes = 2000000\n", ""), 2, "give at most 1000000"),
        (
            &zipf("[cluster]\n\nnods = 5\n", ""),
            3,
            "`nods` is not a key here: the nearest is `nodes`",
        ),
        (&zipf("[cluster]\ncache = 10\n", ""), 2, "no unit"),
        (&zipf("[cluster]\ncache = \"10\"\n", ""), 2, "no unit"),
        (&zipf("[cluster]\nlink = 1.5\n", ""), 2, "a rate with its unit"),
        (&zipf("[cluster]\nlink = \"1 GB\"\n", ""), 2, "is not a rate"),
        (&zipf("limit = \"soon\"\n", ""), 1, "is not a duration"),
        (
            &zipf("[cluster]\nnodes = 4\ncache = \"9 MB\"\n", ""),
            3,
            "no room for the inputs of a task, 10.0 MB",
        ),
        (
            &zipf("[cluster]\ncache = \"999 MB\"\n", "[policies]\ndistribution = \"chain\"\n"),
            2,
            "no room for all objects, 1.0 GB",
        ),
        (&zipf("", "[provisioning]\n[policies]\ndistribution = \"chain\"\n"), 6, "there are none"),
        (
            &zipf("", "[policies]\nplacement = \"fa\"\ndistribution = \"chain\"\n"),
            6,
            "under `fa` nodes store nothing",
        ),
        (&zipf("", "[policies]\ndistribution = \"bush\"\n"), 7, "there are chain, spanning-tree"),
        (&zipf("[cluster]\nlike = \"cray\"\n", ""), 2, "cray"),
        (&zipf("[cluster]\nnodes = 4\ndispatchers = 5\n", ""), 3, "5 dispatchers for 4 nodes"),
        (&zipf("[cluster]\ndispatchers = 2\n", "[provisioning]\n"), 2, "for one dispatcher only"),
        (&zipf("", "[policies]\ndeal = \"cards\"\n"), 7, "write one of objects, turns"),
        (
            &zipf("[cluster]\nnodes = 4\n", "[provisioning]\nmin_nodes = 5\n"),
            8,
            "`min_nodes` is 5, and the cluster",
        ),
        (
            &zipf("", "[provisioning]\npolicy = \"greedy\"\n"),
            7,
            "there are one-at-a-time, additive,",
        ),
        (
            &zipf("", "[provisioning]\npolicy = \"additive\"\ntarget = \"30 s\"\n"),
            6,
            "belongs to the policy `demand`, and `policy` is `additive`: leave one of them out",
        ),
        (&zipf("", "[provisioning]\nidle = 30\n"), 7, "no unit"),
        (&zipf("", "[provisioning]\nidle = \"0 s\"\n"), 6, "longer than 0"),
        (&zipf("", "[provisioning]\ngrant_least = \"61 s\"\n"), 6, "longer than `grant_most`"),
        (&zipf("", "[provisioning]\nwalltime = \"2 min\"\n"), 6, "`walltime` is too short"),
        (
            &zipf("", "[provisioning]\nwalltime = \"3 min\"\n")
                .replace("compute = \"10 ms\"", "compute = \"3 min\""),
            6,
            "a task computes for 3 min 0 s, and the walltime of a node is only 3 min 0 s: make \
             `walltime` longer",
        ),
        (&zipf("", "[failures]\nnode_lost_after = \"0 s\"\n"), 6, "longer than 0"),
        (
            &zipf("", "[failures]\nnode_back_after = \"1 s\"\n"),
            6,
            "`node_back_after` needs `node_lost_after`",
        ),
        (&zipf("", "[failures]\nslow_disks = 1.5\n"), 7, "from 0 to 1"),
        (
            &zipf("[cluster]\nstore = \"memory\"\n", "[failures]\nslow_disks = 0.5\n"),
            8,
            "are in memory",
        ),
        (&zipf("", "[failures]\nfailed_requests = 0.5\n"), 6, "no nodes are requested"),
        (
            &zipf("", "[provisioning]\n[failures]\nfailed_requests = 1\n"),
            7,
            "no node is ever granted",
        ),
        (&zipf("", "[job]\noutputs = 2\n"), 6, "`outputs` needs `output_size`"),
        (&zipf("", "[job]\noutput_size = \"1 MB\"\n"), 6, "`output_size` needs `outputs`"),
        (&zipf("", "[job]\noutputs = 101\n"), 7, "give at most 100"),
        (&zipf("", "[job]\noutputs = 1\noutput_size = \"0 B\"\n"), 8, "give at least 1 B"),
        (&zipf("", "[job]\ncontent_size = \"6 MB\"\n"), 6, "`content_size` needs `decompress`"),
        (&zipf("", "[job]\ndecompress = \"1 s\"\n"), 6, "`decompress` needs `content_size`"),
        (&zipf("", "[job]\nkeep_content = false\n"), 7, "`keep_content` needs `content_size`"),
        (&zipf("", "[job]\nkept = 1\n"), 7, "`kept` needs `outputs`"),
        (&zipf("", "[job]\nuntil_read = true\n"), 7, "`until_read` needs `kept`"),
        (&zipf("", "[job]\nstages = 2\n"), 7, "`stages` needs `outputs`"),
        (&job("stages = 501\n"), 9, "only 500 tasks"),
        (&job("reads = 2\n"), 9, "`reads` needs `stages`"),
        (&zipf("", "[job]\nretries = 1001\n"), 7, "give at most 1000"),
        (&zipf("", "[job]\njob_retries = 0\n"), 7, "at least 1"),
        (&zipf("", "[job]\ncancel_share = 0.5\n"), 7, "`cancel_share` needs `cancel_at`"),
        (&zipf("", "[job]\ncancel_at = \"1 s\"\ncancel_share = 2\n"), 8, "from 0 to 1"),
        (&job("kept = 1\n[policies]\nplacement = \"fa\"\n"), 6, "under `fa` nodes store nothing"),
        (
            &zipf("[cluster]\ndispatchers = 2\n", &after_job("stages = 2\n")),
            8,
            "2 dispatchers do not know",
        ),
        (&zipf("", "[failures]\nnode_leaves_after = \"0 s\"\n"), 6, "longer than 0"),
        (&zipf("", "[failures]\ndispatcher_dies_after = \"0 s\"\n"), 6, "longer than 0"),
        (
            &zipf("", "[failures]\nnode_away = \"1 s\"\n"),
            6,
            "`node_away` needs `node_leaves_after`",
        ),
        (
            &zipf("", "[failures]\ndispatcher_back_after = \"1 s\"\n"),
            6,
            "needs `dispatcher_dies_after`",
        ),
        (&zipf("", "[failures]\nfailed_tries = 1\n"), 6, "no task ever succeeds"),
        (&zipf("", "[failures]\nuntil = 5\n"), 7, "no unit"),
        (
            &zipf("", "[provisioning]\n[failures]\ndispatcher_dies_after = \"1 h\"\n"),
            7,
            "leave one of them out",
        ),
        (
            &zipf("", "[policies]\nplacement = \"best\"\n"),
            7,
            "there are fa, fca, mch, mcu, gcc, cost",
        ),
        (&zipf("", "[policies]\nutilisation = 90\n"), 7, "from 0 to 1"),
        (&zipf("", "exponent = -1\n"), 1, "exponent"),
        (
            &zipf("limit = \"60 s\"\n", "interval = \"1 s\""),
            2,
            "arrival of all tasks takes at least",
        ),
        (&zipf("limit = \"10 ms\"\n[cluster]\nnodes = 1\n", ""), 4, "computing takes at least"),
        (
            &zipf("limit = \"1 s\"\n[cluster]\nstorage = \"1 MB/s\"\n", ""),
            4,
            "reading each object once takes at least",
        ),
        (&zipf("", "interval = \"50 d\"\ncompute = \"1 s\""), 7, "this key is given twice"),
        (&zipf("", "interval = \"36000 d\"\n"), 1, "hundred years"),
        ("[workload.stacking]\nlocality = 7", 2, "choose one of 1, 1.38"),
        (
            "[workload.all_pairs]\nside = 60_000\nsize = \"1 B\"\ncompute = \"1 s\"",
            1,
            "tasks are too many",
        ),
        (
            "[workload.all_pairs]\nside = 6\nsize = \"1 B\"\ncompute = \"1 s\"\ntile = 3",
            5,
            "`tile` needs `order",
        ),
        ("[workload.trace]\nfile = \"job.jsonl\"", 2, "/nowhere/job.jsonl cannot be read"),
    ] {
        let Err(error) = parse(text) else { panic!("this is no mistake:\n{text}") };
        assert_eq!(error.0, line, "{error:?}\n{text}");
        assert!(error.1.to_string().contains(why), "{error:?}\n{text}");
    }
    let error =
        Scenario::read(Path::new("/nowhere/it.toml")).err().expect("there is none").to_string();
    assert!(error.starts_with("/nowhere/it.toml cannot be read: "), "{error}");
}

#[test]
fn a_cache_for_one_task_is_enough_and_less_is_not() {
    for (cache, is_enough) in [("9.9 MB", false), ("10 MB", true)] {
        for placement in PlacementPolicy::ALL {
            let text = zipf(
                &format!("[cluster]\ncache = \"{cache}\"\n"),
                &format!("[policies]\nplacement = \"{placement}\"\n"),
            );
            let ended = parse(&text).map(|scenario| run(&scenario).is_complete());
            assert_eq!(ended.ok(), is_enough.then_some(true), "{cache} under {placement}");
        }
    }
}

#[test]
fn a_run_ends_at_its_limit() {
    // The tasks read 5 GB at 50 MB/s. Reading each object once would take 20 s.
    let slow = "limit = \"60 s\"\n[cluster]\nstorage = \"50 MB/s\"\n";
    let scenario = parse(&zipf(slow, "[policies]\nplacement = \"fa\"\n")).unwrap();
    let outcome = run(&scenario);
    assert!(!outcome.is_complete() && outcome.done < outcome.tasks);
    assert_eq!(outcome.makespan_ns, scenario.limit_ns());
    assert!(outcome.course.samples.iter().map(|sample| sample.done).sum::<u64>() == outcome.done);
    let mut looks = 0;
    let broken_off = scenario.run(&scenario.cluster, &scenario.policies, &mut |_| {
        looks += 1;
        ControlFlow::Break(())
    });
    assert!(looks <= 1 && !broken_off.is_complete());
}

#[test]
fn dispatchers_and_what_they_are_dealt_are_heard() {
    let scenario =
        parse(&zipf("[cluster]\ndispatchers = 8\n", "[policies]\ndeal = \"turns\"\n")).unwrap();
    assert_eq!(
        (scenario.cluster.dispatchers, scenario.policies.partitioning),
        (8, TaskPartitioning::RoundRobin)
    );
    assert_eq!(parse(&zipf("", "")).unwrap().policies.partitioning, TaskPartitioning::FirstInput);
    assert!(run(&scenario).is_complete());
}
