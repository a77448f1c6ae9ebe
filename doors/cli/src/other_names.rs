//! Commands as users of other systems type them first, and what they are here. clap knows only
//! names that are near to ours.

/// Words that are no command of `eyas`, `eyas job` or `eyas task`, and what to type.
const NAMES: &[(&[&str], &str)] = &[
    (
        &["status", "stat", "qstat", "squeue", "queue", "ps", "ls", "list", "jobs", "sacct"],
        "`eyas job list` lists jobs, `eyas task list JOB` the tasks of a job, and `eyas top` shows \
         the cluster as it works",
    ),
    (
        &["logs", "log", "output", "outputs", "peek"],
        "`eyas task log JOB.INDEX` prints the output of a task, such as `eyas task log last.0`; \
         `eyas task list JOB --failed` lists the failed ones",
    ),
    (
        &["kill", "cancel", "scancel", "qdel", "delete", "del", "rm", "terminate", "abort"],
        "`eyas job cancel JOB` cancels a job, and `eyas task cancel JOB.INDEX` a task",
    ),
    (
        &["describe", "inspect", "info", "show", "why"],
        "`eyas job show JOB` shows a job, `eyas task show JOB.INDEX` a task, and `eyas explain \
         JOB.INDEX` why it waits or where it ran",
    ),
    (&["wait", "attach", "follow"], "`eyas job wait JOB` waits for the end of a job"),
    (
        &["retry", "rerun", "resubmit", "restart", "resume"],
        "`eyas job retry JOB` runs the failed tasks of a job again; `eyas run --resume` goes on \
         with a run that was interrupted",
    ),
    (
        &["get", "fetch", "download", "results"],
        "`eyas job get JOB` copies the outputs that a job keeps, and `eyas dfs get` files of the \
         cluster",
    ),
    (&["graph", "dag"], "`eyas job graph JOB` draws a job"),
    (&["forget", "release"], "`eyas job forget JOB` and `eyas job release JOB` do that"),
    (
        &["sbatch", "qsub", "batch", "apply", "create", "job-submit"],
        "`eyas submit FILE` submits a job file, and `eyas run -- COMMAND` runs a command; `eyas \
         shim` makes an `sbatch` that runs jobs on eyas",
    ),
    (
        &["srun", "exec", "parallel", "xargs"],
        "`eyas run --each 'in/*' -- COMMAND {}` runs a command for each file",
    ),
    (
        &["nodes", "node", "sinfo", "pbsnodes", "workers", "worker-list", "machines"],
        "`eyas executor list` lists the nodes of the cluster, and `eyas pool list` its pools",
    ),
    (&["clusters", "context", "contexts"], "`eyas cluster list` lists the clusters"),
    (
        &["up", "init", "serve", "server", "daemon", "local"],
        "`eyas start local --detach` starts a cluster on this machine",
    ),
    (&["down", "shutdown", "halt", "quit", "exit"], "`eyas stop` stops the cluster"),
    (&["watch", "monitor", "dashboard", "htop"], "`eyas top` shows the cluster as it works"),
    (&["model"], "`eyas simulate model` estimates how long a workload takes"),
    (
        &["cp", "put", "cat", "upload", "mkdir", "files", "fs"],
        "`eyas dfs` has the commands for files of the cluster, such as `eyas dfs put FILE /`",
    ),
    (&["version"], "`eyas --version` prints the version"),
    (&["keys", "key", "token", "login", "auth"], "`eyas access show` shows the cluster's keys"),
];

/// What to type in place of an unknown word behind `eyas`, `eyas job` or `eyas task`.
pub(crate) fn right_command(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let known = NAMES.iter().find(|(words, _)| words.contains(&word.as_str()));
    known.map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn commands_that_are_named_exist_and_other_words_are_none() {
        let eyas = crate::commands::Eyas::command();
        for (words, instead) in NAMES {
            for word in *words {
                assert_eq!(right_command(&word.to_uppercase()), Some(*instead));
                assert!(eyas.find_subcommand(word).is_none(), "{word} is a command");
            }
            let quoted = instead.split('`').skip(1).step_by(2).filter(|text| text.contains(' '));
            for line in quoted {
                let mut command = &eyas;
                for word in line.split(' ').skip(1) {
                    match command.find_subcommand(word) {
                        Some(next) => command = next,
                        None => break,
                    }
                }
                let is_option = line.contains("--version");
                assert!(command.get_name() != "eyas" || is_option, "`{line}` is no command");
            }
        }
        assert_eq!(right_command("x"), None);
    }
}
