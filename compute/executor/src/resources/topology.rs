//! The cores that this process may use, and their NUMA nodes, from the affinity mask and `/sys`.

use std::fs;

use eyas_node::Core;
use rustix::thread::{CpuSet, sched_getaffinity};

/// The cores that this process was given, for example by the cpuset of a batch system, or by
/// `taskset`.
pub fn usable_cores() -> Vec<Core> {
    let Ok(usable) = sched_getaffinity(None) else { return Vec::new() };
    let numa_nodes = numa_nodes();
    let of = |core| {
        numa_nodes.iter().find(|(_, cores)| cores.contains(&core)).map_or(0, |(node, _)| *node)
    };
    let numbers =
        (0..CpuSet::MAX_CPU).filter(|number| usable.is_set(*number)).map(|number| number as u32);
    numbers.map(|number| Core { numa_node: of(number), number }).collect()
}

/// The NUMA nodes of this machine, with their cores.
fn numa_nodes() -> Vec<(u32, Vec<u32>)> {
    let entries = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let node = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let list = fs::read_to_string(entry.path().join("cpulist")).ok()?;
        Some((number, numbers(list.trim())))
    };
    entries.filter_map(node).collect()
}

/// The numbers in a list such as `0-3,8`.
fn numbers(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(numbers("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(numbers(""), [0; 0]);
    }

    #[test]
    fn this_process_may_use_as_many_cores_as_it_has_processors() {
        assert!(usable_cores().len() >= std::thread::available_parallelism().unwrap().get());
    }
}
