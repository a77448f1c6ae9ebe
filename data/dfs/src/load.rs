//! How busy this node's disk and processors are, as a moving average of what the kernel counts
//! (elastic-blocks §2.6). The node gossips the average, so that leaders of runs know the load of
//! all nodes before the first worker asks for chunks.
//!
//! The load is the node's own, as far as the kernel tells it apart from the machine's: of the
//! device that has the store, and of the processors that the node's control group may use.

use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use eyas_files::protocol::NodeLoad;

/// A process's control groups.
const MEMBERSHIPS: &str = "/proc/self/cgroup";

/// Where control groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// Position in `/sys/dev/block/DEVICE/stat` of the time for which the device was busy, ms.
const BUSY_MS: usize = 9;

/// Positions in a line of `/proc/stat`, after its name, of the time for which the processor was
/// idle or waited for a disk.
const IDLE: [usize; 2] = [3, 4];

/// How the load of a node is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadOptions {
    /// Time between two measurements.
    pub period: Duration,
    /// Weight of the newest measurement in the average, above 0 and at most 1.
    pub weight: f64,
}

impl LoadOptions {
    /// With these, the average has followed a change by nine tenths after 14 s.
    pub const DEFAULT: LoadOptions = LoadOptions { period: Duration::from_secs(2), weight: 0.3 };
}

/// Measures the load of this node.
pub(crate) struct LoadMeter {
    store: PathBuf,
    weight: f64,
    last: Reading,
    /// Two shares from 0 to 1: of the disk, of the processors.
    average: Option<[f64; 2]>,
}

/// Counters of the kernel at one time.
struct Reading {
    at: Instant,
    disk: Option<Counter>,
    processors: Option<Counter>,
}

/// A counter: the time for which something was busy, of the time for which it could have been.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counter {
    source: Source,
    busy: f64,
    /// `None` if that is the time that has passed, in microseconds.
    possible: Option<f64>,
    /// What can be busy at the same time, such as processors.
    parallel: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Device(u64),
    Pressure,
    Machine,
    Group,
    GroupAtLimit,
}

impl LoadMeter {
    /// A meter of the node with this store.
    pub fn begin(store: &Path, weight: f64) -> Self {
        let last = Reading::take(store);
        LoadMeter { store: store.to_owned(), weight, last, average: None }
    }

    /// The average after another measurement, of the time since the last one.
    pub fn measure(&mut self) -> NodeLoad {
        let now = Reading::take(&self.store);
        let elapsed_us = now.at.duration_since(self.last.at).as_micros().max(1) as f64;
        let share = |before: Option<Counter>, now: Option<Counter>| {
            before.zip(now).and_then(|(before, now)| now.share_since(&before, elapsed_us))
        };
        let seen = [share(self.last.disk, now.disk), share(self.last.processors, now.processors)];
        self.last = now;
        let average = averaged(self.average, seen, self.weight);
        self.average = Some(average);
        let milli = |share: f64| (share * 1000.0).round() as u16;
        NodeLoad { disk_milli: milli(average[0]), processors_milli: milli(average[1]) }
    }
}

/// The average after measurements; the first one is taken as it is. With a weight of 0.3, 0.5 and a
/// measurement of 1 are 0.65. What was not measured stays as it was.
fn averaged(before: Option<[f64; 2]>, seen: [Option<f64>; 2], weight: f64) -> [f64; 2] {
    let Some(before) = before else { return seen.map(Option::unwrap_or_default) };
    let next = |index: usize| {
        let seen = seen[index].unwrap_or(before[index]);
        before[index] + weight * (seen - before[index])
    };
    [next(0), next(1)]
}

impl Counter {
    /// The share of the time since another reading for which it was busy. `None` if the two do not
    /// count the same.
    fn share_since(&self, before: &Counter, elapsed_us: f64) -> Option<f64> {
        if self.source != before.source || self.busy < before.busy {
            return None;
        }
        let possible = match self.possible.zip(before.possible) {
            Some((now, before)) => now - before,
            None => elapsed_us * self.parallel,
        };
        (possible > 0.0).then(|| ((self.busy - before.busy) / possible).clamp(0.0, 1.0))
    }
}

impl Reading {
    fn take(store: &Path) -> Self {
        let memberships = fs::read_to_string(MEMBERSHIPS).unwrap_or_default();
        let group = || unified_group(&memberships).or_else(|| first_version_group(&memberships));
        Reading {
            at: Instant::now(),
            disk: device(store).or_else(|| pressure(&memberships)),
            processors: group().or_else(machine),
        }
    }
}

/// The device that has the store.
fn device(store: &Path) -> Option<Counter> {
    let device = fs::metadata(store).ok()?.dev();
    let [major, minor] = [rustix::fs::major(device), rustix::fs::minor(device)];
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let busy_ms: f64 = text.split_whitespace().nth(BUSY_MS)?.parse().ok()?;
    Some(of_time(Source::Device(device), busy_ms * 1000.0, 1.0))
}

/// The time for which a program of the node's control group, or of the machine, waited for a disk:
/// where the store is on no device of the machine, as in memory or on NFS.
fn pressure(memberships: &str) -> Option<Counter> {
    let own = membership(memberships, "").map(|path| format!("{GROUPS}{path}/io.pressure"));
    let text = own
        .and_then(|path| fs::read_to_string(path).ok())
        .or_else(|| fs::read_to_string("/proc/pressure/io").ok())?;
    Some(of_time(Source::Pressure, pressure_us(&text)?, 1.0))
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`
fn pressure_us(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_once("total=")?.1.trim().parse().ok()
}

/// The processors of the nearest control group of version 2 around this process that has a limit.
fn unified_group(memberships: &str) -> Option<Counter> {
    around(membership(memberships, "")?).find_map(unified_counter)
}

/// A group and all groups around it, the nearest first.
fn around(group: &str) -> impl Iterator<Item = &str> {
    Path::new(group).ancestors().filter_map(Path::to_str).map(|group| group.trim_end_matches('/'))
}

fn unified_counter(group: &str) -> Option<Counter> {
    let folder = format!("{GROUPS}{group}");
    let limit = fs::read_to_string(format!("{folder}/cpu.max")).ok()?;
    let (quota, period) = limit.trim().split_once(' ')?;
    let processors = quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?;
    let usage = fs::read_to_string(format!("{folder}/cpu.stat")).ok()?;
    Some(of_time(Source::Group, named(&usage, "usage_usec")?, processors))
}

/// The processors of the nearest control group of version 1 around this process that has a limit.
fn first_version_group(memberships: &str) -> Option<Counter> {
    let counted = membership(memberships, "cpuacct").map(|group| around(group).collect::<Vec<_>>());
    let is_counted = |group: &str| counted.iter().flatten().any(|counted| *counted == group);
    around(membership(memberships, "cpu")?)
        .find_map(|group| first_version_counter(group, is_counted(group)))
}

/// The processors of a group with a limit. If it is not also a group of the controller that counts
/// processor time, the time counts in which the group was at its limit.
fn first_version_counter(group: &str, is_counted: bool) -> Option<Counter> {
    let folder = format!("{GROUPS}/cpu{group}");
    let number = |name: &str| {
        fs::read_to_string(format!("{folder}/{name}")).ok()?.trim().parse::<f64>().ok()
    };
    let quota_us = number("cpu.cfs_quota_us").filter(|quota_us| *quota_us > 0.0)?;
    let period_us = number("cpu.cfs_period_us").filter(|period_us| *period_us > 0.0)?;
    let usage_ns = is_counted.then(|| {
        let path = format!("{GROUPS}/cpuacct{group}/cpuacct.usage");
        fs::read_to_string(path).ok()?.trim().parse::<f64>().ok()
    });
    if let Some(usage_ns) = usage_ns.flatten() {
        return Some(of_time(Source::Group, usage_ns / 1000.0, quota_us / period_us));
    }
    let text = fs::read_to_string(format!("{folder}/cpu.stat")).ok()?;
    let periods = named(&text, "nr_throttled")?;
    Some(of_time(Source::GroupAtLimit, periods * period_us, 1.0))
}

/// The processors of the machine that this process may use.
fn machine() -> Option<Counter> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let (busy, all) = ticks(&fs::read_to_string("/proc/stat").ok()?, &allowed(&status)?);
    Some(Counter { source: Source::Machine, busy, possible: Some(all), parallel: 1.0 })
}

/// The processors that a process may use, from `Cpus_allowed_list:   0-3,8`.
fn allowed(status: &str) -> Option<Vec<RangeInclusive<u32>>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').map(range).collect()
}

/// For these processors together, the time for which they were busy, and all time, in the unit of
/// `/proc/stat`.
fn ticks(stat: &str, processors: &[RangeInclusive<u32>]) -> (f64, f64) {
    let mut sums = (0.0, 0.0);
    for line in stat.lines() {
        let mut fields = line.split_whitespace();
        let number = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        if !number.is_some_and(|number| processors.iter().any(|range| range.contains(&number))) {
            continue;
        }
        // Time of virtual machines, the last two fields, is in the first ones as well.
        let times: Vec<f64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let all: f64 = times.iter().sum();
        let idle: f64 = IDLE.iter().filter_map(|at| times.get(*at)).sum();
        sums = (sums.0 + all - idle, sums.1 + all);
    }
    sums
}

fn of_time(source: Source, busy_us: f64, parallel: f64) -> Counter {
    Counter { source, busy: busy_us, possible: None, parallel }
}

/// The path of a process's group under this controller of version 1, or with `""` of version 2.
fn membership<'a>(memberships: &'a str, controller: &str) -> Option<&'a str> {
    memberships.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|one| one == controller).then_some(path)
    })
}

/// The number after a name at the beginning of a line.
fn named(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_follow_what_lasts() {
        assert_eq!(averaged(None, [Some(0.5), None], 0.3), [0.5, 0.0], "nothing else is known");
        assert_eq!(averaged(Some([0.5, 0.25]), [Some(1.0), None], 0.3), [0.65, 0.25]);
        let last = (0..60)
            .fold([1.0, 0.0], |before, _| averaged(Some(before), [Some(0.0), Some(1.0)], 0.3));
        assert!(last[0] < 1e-6 && last[1] > 0.999_999, "{last:?}");
    }

    #[test]
    fn shares_are_of_the_time_or_of_what_was_possible() {
        let before = of_time(Source::Group, 1_000_000.0, 0.5);
        let after = |busy_us| of_time(Source::Group, busy_us, 0.5);
        // A quarter of a second of half a processor for one second.
        assert_eq!(after(1_250_000.0).share_since(&before, 1_000_000.0), Some(0.5));
        assert_eq!(after(9_000_000.0).share_since(&before, 1_000_000.0), Some(1.0));
        assert_eq!(after(0.0).share_since(&before, 1_000_000.0), None, "it was set back");
        let other = of_time(Source::GroupAtLimit, 1_250_000.0, 1.0);
        assert_eq!(other.share_since(&before, 1_000_000.0), None, "they count different things");
        let machine = |busy, all| Counter {
            source: Source::Machine,
            busy,
            possible: Some(all),
            parallel: 1.0,
        };
        assert_eq!(machine(130.0, 1040.0).share_since(&machine(100.0, 1000.0), 7.0), Some(0.75));
        assert_eq!(machine(100.0, 1000.0).share_since(&machine(100.0, 1000.0), 7.0), None);
    }

    #[test]
    fn files_of_the_kernel_are_read() {
        let memberships = "12:cpuset:/\n4:cpu,cpuacct:/node-1\n0::/user.slice\n";
        assert_eq!(membership(memberships, "cpuacct"), Some("/node-1"));
        assert_eq!(membership(memberships, ""), Some("/user.slice"));
        assert_eq!(membership(memberships, "blkio"), None);
        assert_eq!(around("/a/b").collect::<Vec<_>>(), ["/a/b", "/a", ""]);
        assert_eq!(named("nr_periods 7\nnr_throttled 3\n", "nr_throttled"), Some(3.0));
        let stat = "cpu  9 9 9 9 9\ncpu0 10 0 5 80 5 0 0 0 7 7\ncpu1 0 0 0 100\ncpu12 100 0 0 0\n";
        let of = |list: &str| ticks(stat, &allowed(&format!("Pid:\t1\n{list}\n")).unwrap());
        assert_eq!(of("Cpus_allowed_list:\t0"), (15.0, 100.0));
        assert_eq!(of("Cpus_allowed_list:\t0-1,12"), (115.0, 300.0));
        let pressure = "some avg10=0.10 avg60=0.00 total=5024\nfull avg10=0.00 total=17\n";
        assert_eq!(pressure_us(pressure), Some(5024.0));
    }

    #[test]
    fn this_machine_has_a_load() {
        let folder = tempfile::tempdir().unwrap();
        let mut meter = LoadMeter::begin(folder.path(), 0.3);
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let NodeLoad { disk_milli, processors_milli } = meter.measure();
        assert!(disk_milli <= 1000 && processors_milli <= 1000);
        let source = meter.last.processors.expect("each Linux counts processor time").source;
        assert!(
            processors_milli > 0 || source == Source::GroupAtLimit,
            "this test has kept a processor busy"
        );
    }
}
