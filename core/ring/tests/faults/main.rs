//! Small clusters with faults: the network loses, delays, repeats and reorders messages, and is
//! split; nodes crash between any two effects; clocks differ; gossip is wrong; nodes are lost for
//! ever, and new ones join. One seed decides everything.
//!
//! At each step at most one node answers for a partition. After each run all faults are healed.
//! Then every acknowledged entry is there, the history that clients saw is linearizable, and every
//! chunk has its number of replicas.
//!
//! `cargo test` tries a few seeds (`EYAS_SEEDS=10000` tries 10,000), and `make soak MINUTES=10`
//! tries new seeds for 10 minutes. `EYAS_SEED=17 make soak` repeats a seed that failed.

mod clients;
mod cluster;
mod history;
mod power;
mod recovery;

use eyas_faults::try_seeds;
use eyas_ring::NameEntry;
use eyas_types::dfs::{FileName, NodeId};

use clients::Clients;
use cluster::{Cluster, Faults, MS};

/// Seeds that `cargo test` tries.
const SEEDS: u64 = 40;
/// A cluster that is not healthy this long after all faults were healed never becomes so.
const HEALED_WITHIN_US: u64 = 120_000 * MS;
/// The cluster is healthy if nothing was wrong in this number of consecutive checks, which take
/// longer than noticing a missing node.
const QUIET: u64 = 3;

#[test]
fn whatever_breaks_nothing_acknowledged_is_lost() {
    let Some(outcomes) = try_seeds(SEEDS, try_seed) else { return };
    let seeds = outcomes.len() as u64;
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    assert!(sum(|of| of.crashes) > seeds && sum(|of| of.views) > seeds, "too few faults happened");
    assert!(
        sum(|of| of.acknowledged) > 50 * seeds && sum(|of| of.lost) > seeds / 4,
        "too few operations were done"
    );
    assert_eq!(try_seed(0), outcomes[0], "the same seed gave two different runs");
}

/// A node reads records while it decides. They are those that its own effects have saved, so its
/// decisions follow from its events.
#[test]
fn the_same_events_give_the_same_effects() {
    try_seeds(SEEDS / 10, |seed| {
        let mut run = Run::with_twins(seed);
        run.break_things();
        run.heal();
        run.check();
    });
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Outcome {
    crashes: u64,
    views: u64,
    acknowledged: u64,
    lost: u64,
    messages: u64,
}

fn try_seed(seed: u64) -> Outcome {
    let mut run = Run::new(seed);
    for _ in 0..1 + run.cluster.dice.below(2) {
        run.break_things();
        run.heal();
        run.lose_some();
    }
    run.heal();
    run.check();
    let (views, _) = run.view();
    let Run { cluster, clients, lost, .. } = run;
    let (crashes, messages, acknowledged) =
        (cluster.crashes, cluster.messages, clients.acknowledged);
    Outcome { crashes, views, acknowledged, lost, messages }
}

struct Run {
    cluster: Cluster,
    clients: Clients,
    partitions: u16,
    replication: u8,
    lost: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        Run::of(Cluster::new(seed))
    }

    fn with_twins(seed: u64) -> Self {
        let mut cluster = Cluster::new(seed);
        cluster.has_twins = true;
        Run::of(cluster)
    }

    fn of(mut cluster: Cluster) -> Self {
        let (partitions, replication) =
            (1 + cluster.dice.below(6) as u16, 1 + cluster.dice.below(3) as u8);
        let nodes = 3 + cluster.dice.below(7);
        cluster.add(true, partitions, replication);
        for _ in 1..nodes {
            cluster.add(false, partitions, replication);
        }
        let (names, clients) = (2 + cluster.dice.below(5), 1 + cluster.dice.below(4));
        Run { cluster, clients: Clients::new(names, clients), partitions, replication, lost: 0 }
    }

    /// The number and the members of the latest view.
    fn view(&self) -> (u64, Vec<NodeId>) {
        let nodes =
            self.cluster.machines.values().filter_map(|machine| machine.node.as_ref()?.view());
        let latest =
            nodes.max_by_key(|view| view.number).expect("a node has founded the file system");
        (latest.number, latest.members.iter().copied().collect())
    }

    fn go_on(&mut self, for_us: u64) {
        let until_us = self.cluster.now_us + for_us;
        while self.cluster.step(until_us) {
            self.clients.act(&mut self.cluster);
        }
        self.clients.act(&mut self.cluster);
    }

    fn break_things(&mut self) {
        let dice = &mut self.cluster.dice;
        let mut some = |most: u64| if dice.chance(500) { dice.below(most) } else { 0 };
        let faults = Faults {
            lost: some(200),
            twice: some(100),
            late: some(100),
            crash: some(40),
            wrong: some(150),
        };
        self.cluster.faults = faults;
        for _ in 0..3 + self.cluster.dice.below(8) {
            match self.cluster.dice.below(6) {
                0 => self.cluster.split(),
                1 => {
                    let down = self.cluster.down();
                    down.into_iter().for_each(|node| self.cluster.start(node));
                }
                2 | 3 => {
                    let up = self.cluster.up();
                    if let Some(node) = self.cluster.dice.any(&up) {
                        self.cluster.crash(node);
                    }
                }
                4 if self.cluster.machines.len() < 10 => {
                    self.cluster.add(false, self.partitions, self.replication);
                }
                _ => {
                    let down = self.cluster.down();
                    if let Some(node) = self.cluster.dice.any(&down) {
                        self.cluster.start(node);
                    }
                }
            }
            let for_us = self.cluster.dice.below(2_000 * MS);
            self.go_on(for_us);
        }
    }

    /// Heals all faults, and continues until the cluster is healthy and stays so in one view.
    fn heal(&mut self) {
        self.cluster.heal();
        let until_us = self.cluster.now_us + HEALED_WITHIN_US;
        let mut quiet = (0, 0);
        while quiet.1 < QUIET {
            self.go_on(500 * MS);
            let (view, _) = self.view();
            quiet = match self.wrong() {
                None if quiet.0 == view => (view, quiet.1 + 1),
                None => (view, 0),
                Some(wrong) if self.cluster.now_us > until_us => panic!("{wrong}"),
                Some(_) => (0, 0),
            };
        }
    }

    /// The first thing that is wrong in a cluster without faults.
    fn wrong(&self) -> Option<String> {
        let (number, members) = self.view();
        let up = self.cluster.up();
        if members != up {
            return Some(format!("members are {members:?}, and {up:?} run"));
        }
        for (node, machine) in &self.cluster.machines {
            let decider = machine.node.as_ref().expect("all run");
            if decider.view().is_none_or(|view| view.number != number) {
                return Some(format!("{node} does not know view {number}"));
            }
            let acceptor = &machine.disk.saved.acceptor;
            if acceptor.view > number && acceptor.accepted.is_some() {
                return Some(format!("{node} has accepted what was not chosen"));
            }
            if !decider.is_settled() {
                return Some(format!("{node} is not settled"));
            }
        }
        for (name, stored) in self.led() {
            match stored {
                NameEntry::Removed { .. } => {}
                NameEntry::File(record) => {
                    for chunk in &record.chunks {
                        let has = |node: &&NodeId| {
                            self.cluster
                                .machines
                                .get(node)
                                .is_some_and(|machine| machine.store.contains(&chunk.object))
                        };
                        let has = chunk.replicas.iter().filter(has).count();
                        if has < members.len().min(record.replication.into()) {
                            return Some(format!(
                                "a chunk of {name} is at {has} of {:?}",
                                chunk.replicas
                            ));
                        }
                    }
                }
                other => return Some(format!("{name} is still {other:?}")),
            }
        }
        None
    }

    /// The entries of all leaders.
    fn led(&self) -> Vec<(FileName, NameEntry)> {
        let mut led = Vec::new();
        for (node, machine) in &self.cluster.machines {
            let Some(ring) = machine.node.as_ref().and_then(|node| node.ring()) else { continue };
            for ((partition, name), stored) in &machine.disk.records {
                if ring.replicas(*partition)[0] == *node {
                    led.push((name.parse().unwrap(), stored.entry.clone()));
                }
            }
        }
        led
    }

    /// Loses as many nodes as allowed for ever, all at once, and adds new ones.
    fn lose_some(&mut self) {
        let (_, members) = self.view();
        let most = (u64::from(self.replication) - 1).min((members.len() as u64 - 1) / 2);
        for _ in 0..self.cluster.dice.below(most + 1) {
            let up = self.cluster.up();
            let node = self.cluster.dice.any(&up).expect("some run");
            self.cluster.machines.remove(&node);
            self.lost += 1;
        }
        if self.cluster.dice.chance(500) {
            self.cluster.add(false, self.partitions, self.replication);
        }
    }

    /// Checks every name, and then the whole history.
    fn check(&mut self) {
        self.clients.look_at_all(&mut self.cluster);
        history::check(&self.clients.history());
    }
}
