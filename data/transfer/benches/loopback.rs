//! The rate at which an object gets from a peer's page cache into this node's store, encrypted and
//! plain, and the processor time on both sides together; for comparison, one stream of `iperf3`,
//! which discards its data. All of them run in turns, so noise of the machine affects all.
//!
//! ```text
//! cargo bench -p eyas-transfer --bench loopback
//! EYAS_BENCH_DIR=/scratch cargo bench -p eyas-transfer --bench loopback     # stores on that disk
//! ```

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use eyas_session::{Access, DataKeys};
use eyas_store::{Limiter, ObjectStore, StagedBy};
use eyas_transfer::{PeerLimits, PeerServer, Peers};
use eyas_types::{FileMode, ObjectId};
use eyas_wire::DataMode;
use rustix::time::{ClockId, clock_gettime};

struct Plan {
    object_bytes: usize,
    objects_per_round: usize,
    rounds: usize,
    small_objects: usize,
    iperf_seconds: Option<u32>,
}

/// One way to move data between the two stores, and its measurements.
struct Way {
    name: &'static str,
    server: PeerServer,
    peers: Peers,
    mb_per_s: Vec<f64>,
    cpu_s_per_gb: Vec<f64>,
    small_us: Vec<f64>,
}

/// The cost of a fetch.
struct FetchCost {
    wall_s: f64,
    cpu_s: f64,
}

fn main() {
    // `cargo bench` passes --bench; `cargo test --benches` does not, and gets a run that only
    // proves that it works.
    let plan = match std::env::args().any(|arg| arg == "--bench") {
        true => Plan {
            object_bytes: 10_000_000,
            objects_per_round: 60,
            rounds: 15,
            small_objects: 2_000,
            iperf_seconds: Some(1),
        },
        false => Plan {
            object_bytes: 1_000_000,
            objects_per_round: 2,
            rounds: 2,
            small_objects: 10,
            iperf_seconds: None,
        },
    };
    let parent = std::env::var_os("EYAS_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(parent).expect("a folder to work in");
    let (there, _) = ObjectStore::open(dir.path().join("there")).expect("the peer's store");
    let (here, _) = ObjectStore::open(dir.path().join("here")).expect("this node's store");
    let (big, small) = (ObjectId([1; 16]), ObjectId([2; 16]));
    put(&there, big, plan.object_bytes);
    put(&there, small, 100);
    let access = Access::create("bench", "127.0.0.1:1");
    let way = |name, mode| Way::new(name, &there, DataKeys::of(&access.clone().with_data(mode)));
    let mut ways = [way("encrypted", DataMode::Encrypted), way("plain", DataMode::Plain)];
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    // The removal in between is not counted: a node evicts only when it must, not with every
    // object.
    let fetch = |way: &Way, id, size_bytes: usize| {
        let (started, before) = (Instant::now(), cpu_time());
        let into = here.begin(id, size_bytes as u64, FileMode::READABLE).expect("room");
        runtime
            .block_on(way.peers.fetch(way.server.addr(), into, false, false))
            .expect("the object");
        let took = FetchCost {
            wall_s: started.elapsed().as_secs_f64(),
            cpu_s: (cpu_time() - before).as_secs_f64(),
        };
        here.remove(id).expect("removal");
        took
    };

    let iperf = plan.iperf_seconds.and_then(|_| Iperf::start());
    let mut theirs = Vec::new();
    for way in &ways {
        fetch(way, big, plan.object_bytes);
    }
    for _ in 0..plan.rounds {
        for way in &mut ways {
            let round: Vec<FetchCost> =
                (0..plan.objects_per_round).map(|_| fetch(way, big, plan.object_bytes)).collect();
            let gb = (plan.object_bytes * round.len()) as f64 / 1e9;
            way.mb_per_s.push(gb * 1e3 / round.iter().map(|took| took.wall_s).sum::<f64>());
            way.cpu_s_per_gb.push(round.iter().map(|took| took.cpu_s).sum::<f64>() / gb);
        }
        theirs.extend(
            iperf.as_ref().and_then(|iperf| iperf.measure(plan.iperf_seconds.unwrap_or(1))),
        );
    }
    for way in &mut ways {
        way.small_us =
            (0..plan.small_objects).map(|_| fetch(way, small, 100).wall_s * 1e6).collect();
    }
    let object_mb = plan.object_bytes / 1_000_000;
    println!(
        "peer to store, medians           {object_mb} MB objects       processor time   100 B \
         objects"
    );
    for way in &mut ways {
        let (mb_per_s, cpu_s_per_gb) = (median(&mut way.mb_per_s), median(&mut way.cpu_s_per_gb));
        let small_us = median(&mut way.small_us);
        println!(
            "  {:10}                   {mb_per_s:8.0} MB/s      {cpu_s_per_gb:5.2} s/GB      \
             {small_us:8.0} us each",
            way.name
        );
    }
    match theirs.is_empty() {
        true => println!(
            "  iperf3, one stream           not measured: install iperf3 and run `cargo bench`"
        ),
        false => println!("  iperf3, one stream           {:8.0} MB/s", median(&mut theirs)),
    }
    println!(
        "stage by hard link             {:8.1} us each",
        stage_us(&here, dir.path(), plan.small_objects)
    );
}

impl Way {
    fn new(name: &'static str, store: &ObjectStore, keys: DataKeys) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let unlimited = (Limiter::unlimited(), Limiter::unlimited());
        let server = PeerServer::start(
            listener,
            store.clone(),
            keys.clone(),
            PeerLimits::default(),
            unlimited,
        );
        let peers = Peers::new(keys, PeerLimits::default(), Limiter::unlimited());
        let (mb_per_s, cpu_s_per_gb, small_us) = (Vec::new(), Vec::new(), Vec::new());
        Way {
            name,
            server: server.expect("the peer's server"),
            peers,
            mb_per_s,
            cpu_s_per_gb,
            small_us,
        }
    }
}

/// Processor time of this process, which is both nodes.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn put(store: &ObjectStore, id: ObjectId, size_bytes: usize) {
    let content: Vec<u8> = (0..size_bytes)
        .map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect();
    let mut incoming = store.begin(id, size_bytes as u64, FileMode::READABLE).expect("room");
    incoming.write(&content).expect("room");
    incoming.commit().expect("an object");
}

fn stage_us(store: &ObjectStore, dir: &Path, count: usize) -> f64 {
    let id = ObjectId([3; 16]);
    put(store, id, 100);
    let paths: Vec<_> = (0..count).map(|number| dir.join(number.to_string())).collect();
    let started = Instant::now();
    for path in &paths {
        assert_eq!(store.stage(id, path).expect("a link"), StagedBy::HardLink);
    }
    started.elapsed().as_secs_f64() * 1e6 / count as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// An `iperf3` server.
struct Iperf {
    server: Child,
    port: String,
}

impl Iperf {
    fn start() -> Option<Self> {
        let free = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port().to_string();
        let server = Command::new("iperf3")
            .args(["-s", "-B", "127.0.0.1", "-p", &free])
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        Some(Iperf { server, port: free })
    }

    /// MB/s that one stream has received.
    fn measure(&self, seconds: u32) -> Option<f64> {
        // The server takes a moment to listen, and another one between two tests.
        for _ in 0..50 {
            let seconds = seconds.to_string();
            let run = Command::new("iperf3")
                .args(["-c", "127.0.0.1", "-p", &self.port, "-t", &seconds, "-J"])
                .output()
                .ok()?;
            let report = String::from_utf8_lossy(&run.stdout).into_owned();
            let received = report
                .split("\"sum_received\"")
                .nth(1)
                .and_then(|rest| rest.split("\"bits_per_second\":").nth(1));
            if let Some(bits) =
                received.and_then(|rest| rest.split([',', '\n']).next()?.trim().parse::<f64>().ok())
            {
                return Some(bits / 8e6);
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Iperf {
    fn drop(&mut self) {
        // If it has ended by itself, there is nothing to clean up.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
