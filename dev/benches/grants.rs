//! Number of runs that `core/ioq` grants per second on one core, by policy and number of waiting
//! requests.
//!
//! A server's queue is filled; then each run that is completed is followed by as many new requests
//! as it had, so that the queue stays as long. Requests are of many files and sizes, and one in
//! four continues another. What is timed is [`Servers::handle`](eyas_ioq::Servers) alone, in
//! processor time of its thread: a completion with the decision after it, and the arrivals.
//!
//! Expected before measuring: FIFO and SJF touch a few ordered maps for each request, each some 100
//! ns at 100,000 entries and less at 10: 1 to 2 µs in all. WSJF and SOJF also repair a kinetic tree
//! along two paths of about 40 nodes, of which each costs a few crossings in 128 bits, and what
//! crosses meanwhile: 10 µs. So 100,000 grants/s at least.
//!
//! Found: 1 µs at 10, 2 to 4 at 1,000; at 100,000 FIFO and SJF take 5 µs, since what they touch is
//! in no near cache, MLF 8, WSJF and SOJF 10 to 13, the kinetic tree as expected: 77,000 grants/s
//! at worst.
//!
//! `cargo bench -p eyas-dev --bench grants`; `-- --tiny` only shows that it runs.

use std::time::Duration;

use eyas_dev::bench::{is_tiny, median};
use eyas_ioq::{
    ClassId, ClientId, Config, Effect, Event, POLICIES, Policy, Request, RequestId, ServerId,
    Servers,
};
use eyas_types::random::SplitMix64;
use eyas_types::{Extent, Operation, StorageFileId};
use rustix::time::{ClockId, clock_gettime};

const LENGTHS: [usize; 3] = [10, 1_000, 100_000];

fn main() {
    let (lengths, grants, runs) =
        if is_tiny() { (&LENGTHS[..2], 100, 1) } else { (&LENGTHS[..], 50_000, 3) };
    println!("grants/s with so many requests waiting; medians of {runs} runs of {grants} grants\n");
    print!("policy    ");
    lengths.iter().for_each(|length| print!("{length:>12} {:>8}", "us each"));
    println!();
    for (name, policy) in POLICIES {
        print!("{name:<10}");
        for length in lengths {
            let rates: Vec<_> = (0..runs).map(|_| measure(*policy, *length, grants)).collect();
            let per_s = median(&rates);
            print!("{per_s:>12.0} {:>8.2}", 1e6 / per_s);
        }
        println!();
    }
}

/// Requests that make no sense, and always the same.
struct Requests {
    next: u64,
    ends: Vec<(StorageFileId, u64)>,
}

impl Requests {
    fn next(&mut self) -> Request {
        self.next += 1;
        let dice = SplitMix64::mix(self.next);
        let (mut file, mut offset) = (StorageFileId(dice % 100), (dice >> 8) % (1 << 30) * 4096);
        if dice >> 62 == 0 && !self.ends.is_empty() {
            let at = (dice >> 20) as usize % self.ends.len();
            (file, offset) = self.ends.swap_remove(at);
        }
        let size_bytes = 4096 << (dice >> 40 & 7);
        if self.ends.len() < 1_000 {
            self.ends.push((file, offset + size_bytes));
        }
        Request {
            id: RequestId(self.next),
            client: ClientId(dice >> 50 & 63),
            server: ServerId(0),
            class: ClassId(0),
            file,
            operation: Operation::Read,
            extent: Extent { offset, size_bytes },
            call: None,
        }
    }
}

/// Grants in a second.
fn measure(policy: Policy, length: usize, grants: u64) -> f64 {
    let mut servers = Servers::new();
    servers.serve(
        ServerId(0),
        Config { policy, window_us: 0, lease_us: 1 << 40, ..Config::default() },
    );
    let mut requests = Requests { next: 0, ends: Vec::new() };
    let mut effects = Vec::new();
    let mut now_us = 0;
    for _ in 0..length {
        now_us += 3;
        servers.handle(now_us, Event::Asked(vec![requests.next()]), &mut effects);
    }
    let mut took = Duration::ZERO;
    for _ in 0..grants {
        let Some(Effect::Granted(grant)) = effects.pop() else { panic!("one is out: {effects:?}") };
        now_us += grant.extent.size_bytes / 150;
        let more: Vec<_> =
            grant.requests.iter().map(|_| Event::Asked(vec![requests.next()])).collect();
        let (client, server, bytes) = (grant.client, grant.server, grant.extent.size_bytes);
        let began = thread_time();
        more.into_iter().for_each(|event| servers.handle(now_us, event, &mut effects));
        servers.handle(
            now_us,
            Event::Completed { client, server, grant: grant.id, bytes, took_us: None },
            &mut effects,
        );
        took += thread_time() - began;
    }
    grants as f64 / took.as_secs_f64()
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
