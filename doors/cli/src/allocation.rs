//! The allocation of this process by a batch system: name of the node, processors and memory. A
//! process that can run on all processors of its machine may have been allocated only some of them.

use std::path::Path;

/// Bytes in a mebibyte, the unit in which batch systems count memory.
const MIB: u64 = 1 << 20;

/// The part of an allocation that one executor has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// Name of the node in the batch system, with a number if several executors share the node.
    pub name: Option<String>,
    /// Number of whole processors.
    pub processors: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
}

impl Allocation {
    /// The allocation of this process, if it has one.
    pub fn current() -> Option<Self> {
        Allocation::of(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// The allocation that an environment describes.
    fn of(variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| {
            variable(name).and_then(|text| text.trim().parse::<u64>().ok()).filter(|n| *n > 0)
        };
        if variable("SLURM_JOB_ID").is_some() {
            return Some(slurm(variable, &number));
        }
        // The variables of PBS Professional, TORQUE, Grid Engine and LSF.
        let jobs = [
            ("PBS_JOBID", &["NCPUS", "PBS_NUM_PPN", "PBS_NCPUS"][..]),
            ("LSB_JOBID", &["LSB_DJOB_NUMPROC"]),
            ("SGE_TASK_ID", &["NSLOTS"]),
        ];
        let (_, counts) = jobs.into_iter().find(|(job, _)| variable(job).is_some())?;
        let processors =
            counts.iter().find_map(|name| number(name)).and_then(|count| u32::try_from(count).ok());
        Some(Allocation { processors, ..Allocation::default() })
    }
}

/// The allocation that Slurm describes: see `sbatch(1)` and `srun(1)`, OUTPUT ENVIRONMENT
/// VARIABLES.
fn slurm(
    variable: &dyn Fn(&str) -> Option<String>,
    number: &dyn Fn(&str) -> Option<u64>,
) -> Allocation {
    let node: usize = variable("SLURM_NODEID").and_then(|text| text.parse().ok()).unwrap_or(0);
    // Set only in a step: the number of its processes on each node.
    let beside =
        variable("SLURM_STEP_TASKS_PER_NODE").and_then(|text| at(&text, node)).unwrap_or(1).max(1);
    let on_node = number("SLURM_CPUS_ON_NODE");
    let processors = match (beside, number("SLURM_CPUS_PER_TASK"), on_node) {
        (2.., Some(each), _) => Some(each),
        (_, each, on_node) => on_node.map(|count| (count / beside).max(1)).or(each),
    };
    let memory_bytes = match (number("SLURM_MEM_PER_NODE"), number("SLURM_MEM_PER_CPU")) {
        (Some(per_node), _) => Some(per_node.saturating_mul(MIB) / beside),
        (None, Some(per_processor)) => {
            processors.map(|count| count.saturating_mul(per_processor).saturating_mul(MIB))
        }
        (None, None) => None,
    };
    let name = variable("SLURMD_NODENAME").map(|name| match variable("SLURM_LOCALID") {
        Some(local) if beside > 1 => format!("{name}-{local}"),
        _ => name,
    });
    Allocation {
        name,
        processors: processors.and_then(|count| u32::try_from(count).ok()),
        memory_bytes,
    }
}

/// The number for one node in a list such as `4(x2),1`, which means 4, 4, 1.
fn at(list: &str, node: usize) -> Option<u64> {
    let mut before = 0;
    list.split(',').find_map(|part| {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.trim_end_matches(')').parse().ok()?),
            None => (part, 1),
        };
        before += times;
        if node < before { count.trim().parse().ok() } else { None }
    })
}

/// The smallest memory limit of the control groups that contain this process, bytes.
pub(crate) fn memory_limit() -> Option<u64> {
    let memberships = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let groups = memberships.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        match controllers {
            "" => Some(("/sys/fs/cgroup", path, "memory.max")),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some(("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"))
            }
            _ => None,
        }
    });
    let limits = groups.flat_map(|(root, path, file)| {
        let limit = move |group: &Path| {
            std::fs::read_to_string(Path::new(root).join(group).join(file)).ok()
        };
        // `max` means that there is no limit; it does not parse as a number.
        Path::new(path)
            .ancestors()
            .filter_map(move |group| limit(group)?.trim().parse().ok())
            .collect::<Vec<u64>>()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(variables: &[(&str, &str)]) -> Option<Allocation> {
        Allocation::of(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn part(
        name: Option<&str>,
        processors: Option<u32>,
        memory_mib: Option<u64>,
    ) -> Option<Allocation> {
        Some(Allocation {
            name: name.map(str::to_owned),
            processors,
            memory_bytes: memory_mib.map(|mib| mib * MIB),
        })
    }

    #[test]
    fn an_executor_has_what_batch_systems_allocate() {
        let batch = [("SLURM_JOB_ID", "7"), ("SLURMD_NODENAME", "c1"), ("SLURM_CPUS_ON_NODE", "8")];
        let with = |more: &[(&'static str, &'static str)]| given(&[&batch[..], more].concat());
        // In the script of a batch job, and in steps with one process or several on each node.
        assert_eq!(with(&[]), part(Some("c1"), Some(8), None));
        assert_eq!(with(&[("SLURM_MEM_PER_NODE", "4096")]), part(Some("c1"), Some(8), Some(4096)));
        assert_eq!(with(&[("SLURM_MEM_PER_CPU", "512")]), part(Some("c1"), Some(8), Some(4096)));
        let step =
            [("SLURM_STEP_TASKS_PER_NODE", "1(x2)"), ("SLURM_NODEID", "1"), ("SLURM_LOCALID", "0")];
        assert_eq!(with(&step), part(Some("c1"), Some(8), None));
        let shared = [
            ("SLURM_STEP_TASKS_PER_NODE", "2(x2),1"),
            ("SLURM_NODEID", "1"),
            ("SLURM_LOCALID", "1"),
        ];
        assert_eq!(with(&shared), part(Some("c1-1"), Some(4), None));
        let each =
            [&shared[..], &[("SLURM_CPUS_PER_TASK", "3"), ("SLURM_MEM_PER_NODE", "4096")]].concat();
        assert_eq!(with(&each), part(Some("c1-1"), Some(3), Some(2048)));
        let last = [
            ("SLURM_STEP_TASKS_PER_NODE", "2(x2),1"),
            ("SLURM_NODEID", "2"),
            ("SLURM_LOCALID", "0"),
        ];
        assert_eq!(with(&last), part(Some("c1"), Some(8), None));
        // Other systems.
        assert_eq!(given(&[("PBS_JOBID", "7.pbs"), ("NCPUS", "4")]), part(None, Some(4), None));
        assert_eq!(
            given(&[("PBS_JOBID", "7.pbs"), ("PBS_NUM_PPN", "2")]),
            part(None, Some(2), None)
        );
        assert_eq!(
            given(&[("LSB_JOBID", "7"), ("LSB_DJOB_NUMPROC", "6")]),
            part(None, Some(6), None)
        );
        assert_eq!(
            given(&[("SGE_TASK_ID", "undefined"), ("NSLOTS", "5")]),
            part(None, Some(5), None)
        );
        // A value that is not a number, and no allocation.
        assert_eq!(given(&[("PBS_JOBID", "7.pbs"), ("NCPUS", "many")]), part(None, None, None));
        assert_eq!(given(&[("NCPUS", "4"), ("SLURM_CPUS_ON_NODE", "4")]), None);
    }

    #[test]
    fn lists_of_nodes_are_read() {
        for (list, node, expected) in [
            ("4", 0, Some(4)),
            ("4", 1, None),
            ("2(x3),1", 2, Some(2)),
            ("2(x3),1", 3, Some(1)),
            ("x", 0, None),
        ] {
            assert_eq!(at(list, node), expected, "{list} {node}");
        }
    }
}
