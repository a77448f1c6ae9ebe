//! The resources of a job: processors, memory, disk and GPUs, from the options of `sbatch`.

use eyas_client::types::{GPU, Resources};

use super::amounts::{count, memory_bytes};
use super::options::Words;

/// Options with the number of tasks.
pub(super) const TASKS: [&str; 3] = ["ntasks", "ntasks-per-node", "tasks-per-node"];

/// Processors, memory, disk and GPUs, the number of tasks, and the number of processors of a task.
pub(super) fn resources(words: &Words) -> Result<(Resources, u32, u32), String> {
    let number = |option| words.value(option).map_or(Ok(1), |text| count(option, text));
    let nodes = words.value("nodes").map_or("1", |nodes| nodes.split('-').next().unwrap_or(nodes));
    if count("nodes", nodes)? > 1 {
        return Err("eyas runs a job on one node: leave out --nodes, or write --nodes=1".into());
    }
    // Of options that say the same, the last one counts: those of the command line come after those
    // of the script.
    let tasks = words.last(&TASKS).map_or(Ok(1), |(option, text)| count(option, text))?;
    let named = generic_resources(words, tasks)?;
    let gpus = named.iter().find(|(name, _)| name == GPU).map_or(0, |(_, amount)| *amount);
    let for_gpus = |option: &str, each: u64| match gpus {
        0 => Err(format!(
            "--{option} needs the number of GPUs: write --gpus, --gpus-per-node or --gres, too"
        )),
        gpus => Ok(gpus.saturating_mul(each)),
    };
    let cpus_per_task = number("cpus-per-task")?;
    let cpus = match words.last(&["cpus-per-task", "cpus-per-gpu"]) {
        Some((option @ "cpus-per-gpu", each)) => for_gpus(option, count(option, each)?.into())?,
        _ => u64::from(tasks) * u64::from(cpus_per_task),
    };
    let memory = match words.last(&["mem", "mem-per-cpu", "mem-per-gpu"]) {
        Some((option @ "mem-per-gpu", memory)) => for_gpus(option, memory_bytes(memory)?)?,
        Some(("mem-per-cpu", memory)) => memory_bytes(memory)?.saturating_mul(cpus),
        Some((_, memory)) => memory_bytes(memory)?,
        None => 0,
    };
    let disk_bytes = words.value("tmp").map_or(Ok(0), memory_bytes)?;
    let milli = u32::try_from(cpus).ok().and_then(|cpus| cpus.checked_mul(1000));
    let milli = milli.ok_or("the job asks for too many processors")?;
    Ok((
        Resources { cpus_milli: milli, memory_bytes: memory, disk_bytes, named },
        tasks,
        cpus_per_task,
    ))
}

/// The GPUs and other named resources of a job with this number of tasks.
fn generic_resources(words: &Words, tasks: u32) -> Result<Vec<(String, u64)>, String> {
    let mut named: Vec<(String, u64)> = Vec::new();
    for (option, list) in &words.options {
        if !["gres", "gpus", "gpus-per-node", "gpus-per-task"].contains(option) {
            continue;
        }
        if *option == "gres" {
            named.retain(|(name, _)| name == GPU);
        }
        for part in
            list.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "none")
        {
            let (name, amount) = generic_resource(option, part)?;
            named.retain(|(known, _)| *known != name);
            let tasks = if *option == "gpus-per-task" { tasks } else { 1 };
            named.push((name, amount.saturating_mul(tasks.into())));
        }
    }
    named.sort();
    Ok(named)
}

/// The name and the amount of a generic resource: `gpu`, `gpu:2`, `gpu:a100:2` or
/// `gres/gpu:2(S:0-1)` of `--gres`; `2` or `a100:2` of `--gpus`. eyas does not tell types of GPUs
/// apart.
fn generic_resource(option: &str, part: &str) -> Result<(String, u64), String> {
    let wrong = || format!("--{option}: `{part}` is not a resource and its number, such as gpu:2");
    let plain = part.split('(').next().unwrap_or(part);
    let mut words: Vec<&str> = plain.strip_prefix("gres/").unwrap_or(plain).split(':').collect();
    let name = if option == "gres" { words.remove(0) } else { GPU };
    let amount = match &words[..] {
        [] => Ok(1),
        [amount] | [_, amount] => amount.parse(),
        _ => return Err(wrong()),
    };
    match (amount, &words[..]) {
        (Ok(amount), _) => Ok((name.to_owned(), amount)),
        // A type without a number.
        (Err(_), [kind])
            if option == "gres" && kind.starts_with(|first: char| first.is_ascii_alphabetic()) =>
        {
            Ok((name.to_owned(), 1))
        }
        (Err(_), _) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::{parse, split_line, value};
    use super::*;

    #[test]
    fn amounts_for_each_task_and_gpu_are_multiplied() {
        let names = [
            "cpus-per-task",
            "cpus-per-gpu",
            "mem",
            "mem-per-cpu",
            "mem-per-gpu",
            "gpus",
            "gpus-per-task",
        ];
        let table: Vec<_> = names.into_iter().chain(TASKS).map(|name| value(' ', name)).collect();
        let read = |line: &str| {
            let (all, tasks, _) = resources(&parse(&split_line(line), &[&table], false).unwrap())?;
            let gpus = all.named.first().map_or(0, |(_, amount)| *amount);
            Ok::<_, String>((all.cpus_milli / 1000, tasks, all.memory_bytes >> 20, gpus))
        };
        assert_eq!(read("--tasks-per-node=3 --cpus-per-task=2 --mem-per-cpu=5"), Ok((6, 3, 30, 0)));
        assert_eq!(read("--gpus=2 --cpus-per-gpu=4 --mem-per-gpu=10"), Ok((8, 1, 20, 2)));
        assert_eq!(read("--ntasks=3 --gpus-per-task=2 --mem-per-gpu=10"), Ok((3, 3, 60, 6)));
        assert_eq!(read("--cpus-per-gpu=4 --cpus-per-task=2 --gpus=9 --mem=1"), Ok((2, 1, 1, 9)));
        assert!(read("--cpus-per-gpu=4").is_err() && read("--mem-per-gpu=4").is_err());
    }
}
