//! Tasks of another framework with faults: attempts are killed in each phase, run twice at once,
//! run again after they have succeeded, or are presumed dead and come back; the leader restarts,
//! and forgets the records that it had not promised.
//!
//! The framework counts the attempt of a task that first reads its list to the end, until it loses
//! the output. Whatever fails, the counted attempts have each chunk once.

use std::collections::BTreeMap;

use eyas_blocks::{
    Blocks, Config, Effect, Event, POLICIES, Record, TaskAnswer, TaskBlock, TaskNumber,
};
use eyas_faults::{Dice, run_twice, try_seeds};
use eyas_types::dfs::NodeId;

const SECOND: u64 = 1_000_000;
const TERM_US: u64 = 6 * SECOND;

/// Seeds that `cargo test` tries.
const SEEDS: u64 = 1_000;

#[derive(Clone, Debug, Default, PartialEq)]
struct Outcome {
    restarts: u64,
    forgotten: u64,
    killed: u64,
    presumed_dead: u64,
    twice: u64,
    again: u64,
}

struct Attempt {
    task: u32,
    block: TaskBlock,
    read: Vec<u32>,
    is_slow: bool,
}

struct Framework {
    dice: Dice,
    now_us: u64,
    config: Config,
    sizes: Vec<u64>,
    leader: Blocks,
    epoch: u32,
    records: Vec<Record>,
    /// Number of records that a restart keeps.
    durable: usize,
    attempts: Vec<Attempt>,
    /// The chunks of the attempts that count, by task.
    counted: BTreeMap<u32, Vec<u32>>,
    /// What an attempt of the task has read that counted before.
    before: BTreeMap<u32, Vec<u32>>,
    tasks: u32,
    outcome: Outcome,
}

#[test]
fn whatever_fails_the_counted_attempts_have_each_chunk_once() {
    let Some(outcomes) = try_seeds(SEEDS, |seed| run_twice(&seed, |seed| Framework::run(*seed)))
    else {
        return;
    };
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let all = [
        sum(|of| of.restarts),
        sum(|of| of.forgotten),
        sum(|of| of.killed),
        sum(|of| of.presumed_dead),
        sum(|of| of.twice),
        sum(|of| of.again),
    ];
    assert!(
        all.iter().all(|count| *count > outcomes.len() as u64 / 20),
        "too few faults happened: {all:?}"
    );
}

fn leader(config: &Config, sizes: &[u64], epoch: u32, records: &[Record], now_us: u64) -> Blocks {
    let replicas = [NodeId(1), NodeId(2)];
    let chunks = sizes.iter().map(|size| (*size, &replicas[..]));
    Blocks::new(config.clone(), chunks, epoch, records.iter().cloned(), now_us)
}

impl Framework {
    fn run(seed: u64) -> Outcome {
        let mut dice = Dice::new(seed);
        let (_, policy) = POLICIES[dice.below(POLICIES.len() as u64) as usize];
        let tasks = 1 + dice.below(6) as u32;
        let slots = (0..tasks).map(|task| (NodeId(u64::from(task % 3)), None)).collect();
        let config = Config {
            steal: dice.below(2) == 0,
            term_us: TERM_US,
            window_us: [0, SECOND][dice.below(2) as usize],
            ..Config::new(policy, slots)
        };
        let sizes: Vec<_> = (0..dice.below(60)).map(|_| dice.below(5) * 1_000_000).collect();
        let leader = leader(&config, &sizes, 1, &[], 0);
        let mut framework = Framework {
            dice,
            now_us: 0,
            config,
            sizes,
            leader,
            epoch: 1,
            records: Vec::new(),
            durable: 0,
            attempts: Vec::new(),
            counted: BTreeMap::new(),
            before: BTreeMap::new(),
            tasks,
            outcome: Outcome::default(),
        };
        (0..600).for_each(|_| framework.step(true));
        for _ in 0..100_000 {
            if framework.counted.len() == tasks as usize {
                break;
            }
            framework.step(false);
        }
        framework.check();
        framework.outcome
    }

    fn step(&mut self, has_faults: bool) {
        self.now_us += self.dice.below(SECOND / 2);
        match self.dice.below(40) {
            0 if has_faults => self.restart(),
            1 if has_faults && !self.attempts.is_empty() => {
                let index = self.dice.below(self.attempts.len() as u64) as usize;
                self.attempts.swap_remove(index);
                self.outcome.killed += 1;
            }
            2 if has_faults && !self.attempts.is_empty() => {
                let index = self.dice.below(self.attempts.len() as u64) as usize;
                self.attempts[index].is_slow ^= true;
            }
            3 if has_faults => {
                let task = self.dice.below(u64::from(self.tasks)) as u32;
                if let Some(lost) = self.counted.remove(&task) {
                    self.before.insert(task, lost);
                    self.outcome.again += 1;
                }
            }
            4..=8 => self.start(has_faults),
            9 => {
                let mut effects = Vec::new();
                self.leader.handle(self.now_us, Event::Tick, &mut effects);
                self.save(effects);
            }
            _ if self.attempts.is_empty() => self.start(has_faults),
            _ => {
                let index = self.dice.below(self.attempts.len() as u64) as usize;
                // A slow attempt seldom does anything, and comes back when its term has ended.
                if !self.attempts[index].is_slow || self.dice.below(20) == 0 {
                    self.advance(index);
                }
            }
        }
    }

    /// Starts an attempt of a task that does not count yet.
    fn start(&mut self, may_be_twice: bool) {
        let task = self.dice.below(u64::from(self.tasks)) as u32;
        let running = self.attempts.iter().filter(|attempt| attempt.task == task).count();
        let most = if may_be_twice { 2 } else { 1 };
        if self.counted.contains_key(&task) || running >= most {
            return;
        }
        self.outcome.twice += running as u64;
        let block = TaskBlock::new(TaskNumber(task), NodeId(self.dice.below(3)));
        self.attempts.push(Attempt { task, block, read: Vec::new(), is_slow: false });
    }

    /// An attempt reads a chunk, or claims more, or is at its end.
    fn advance(&mut self, index: usize) {
        let attempt = &mut self.attempts[index];
        if let Some(chunk) = attempt.block.current() {
            attempt.read.push(chunk);
            attempt.block.end_chunk();
            if let Some(beat) = attempt.block.heartbeat() {
                let answer = self.ask(&beat);
                if self.dice.below(2) == 0 {
                    self.attempts[index].block.told(&beat, answer);
                }
            }
        } else if !attempt.block.is_at_end() && !attempt.block.is_discarded() {
            let claim = attempt.block.claim();
            let answer = self.ask(&claim);
            // The answer may be lost.
            if self.dice.below(5) > 0 {
                self.attempts[index].block.told(&claim, answer);
            }
        }
        let attempt = &self.attempts[index];
        if attempt.block.is_discarded() {
            self.attempts.swap_remove(index);
            self.outcome.presumed_dead += 1;
        } else if attempt.block.is_at_end() {
            // The framework may take a moment to count it; the first one counts.
            let attempt = self.attempts.swap_remove(index);
            self.counted.entry(attempt.task).or_insert(attempt.read.clone());
            if let Some(before) = self.before.get(&attempt.task) {
                assert_eq!(before, &attempt.read, "a task has the same chunks again");
            }
        }
    }

    fn ask(&mut self, claim: &eyas_blocks::TaskClaim) -> TaskAnswer {
        let mut effects = Vec::new();
        let answer = self.leader.claim_task(self.now_us, claim, &mut effects);
        let is_promised = effects.iter().any(|effect| matches!(effect, Effect::Save(_)));
        self.save(effects);
        if is_promised {
            self.durable = self.records.len();
        }
        answer
    }

    fn save(&mut self, effects: Vec<Effect>) {
        self.leader.validate();
        for effect in effects {
            match effect {
                Effect::Save(record) => self.records.push(record),
                Effect::Complete => self.durable = self.records.len(),
                _ => {}
            }
        }
    }

    fn restart(&mut self) {
        self.outcome.restarts += 1;
        // What time alone has changed is not promised to any attempt.
        let mut effects = Vec::new();
        self.now_us += self.dice.below(2 * TERM_US);
        self.leader.handle(self.now_us, Event::Tick, &mut effects);
        self.save(effects);
        let kept =
            self.durable + self.dice.below((self.records.len() - self.durable) as u64 + 1) as usize;
        self.outcome.forgotten += (self.records.len() - kept) as u64;
        self.records.truncate(kept);
        self.durable = kept;
        self.epoch += 1;
        self.leader = leader(&self.config, &self.sizes, self.epoch, &self.records, self.now_us);
        self.leader.validate();
    }

    fn check(&self) {
        assert_eq!(self.counted.len(), self.tasks as usize, "a task does not end");
        assert!(self.leader.is_complete());
        let mut all: Vec<u32> = self.counted.values().flatten().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..self.sizes.len() as u32).collect::<Vec<_>>());
        for (task, before) in &self.before {
            assert_eq!(before, &self.counted[task], "a task has the same chunks again");
        }
    }
}
