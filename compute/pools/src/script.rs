//! The script of a request: what runs on each node, readable, and kept in the request's folder.

use std::fmt::Write;
use std::path::Path;

use crate::batch_error::BatchError;
use crate::batch_system::{BatchSystem, NodePaths};
use crate::request::{RequestPlan, make_private_folder, write_private};

/// Makes the folder of a request, with script and access file.
pub(crate) fn write(
    plan: &RequestPlan,
    system: &dyn BatchSystem,
    access: &str,
) -> Result<(), BatchError> {
    let cannot = |path: &Path| {
        let path = path.to_owned();
        move |why| BatchError::file(&path, &why)
    };
    make_private_folder(&plan.folder)?;
    write_private(&plan.access(), access.as_bytes(), 0o600).map_err(cannot(&plan.access()))?;
    let text = text(plan, system);
    write_private(&plan.script(), text.as_bytes(), 0o700).map_err(cannot(&plan.script()))
}

/// The script's text.
pub(crate) fn text(plan: &RequestPlan, system: &dyn BatchSystem) -> String {
    let options = &plan.options;
    let mut script = format!("#!{}\n", shell());
    let mut line = |text: &str| _ = writeln!(script, "{text}");
    system.directives(plan).iter().for_each(|directive| line(directive));
    line(&format!("# Request {} of the eyas pool {}.", plan.number, plan.pool));
    line("unset EYAS_ACCESS EYAS_CLUSTER");
    if plan.nodes == 1 && !system.names_hosts() {
        line(&format!("uname -n > {}", quoted(&plan.host_file().display().to_string())));
    }
    let node = one_node(plan, system.node_number(), system.node_paths(plan));
    let command = match system.launcher(plan) {
        launcher if launcher.is_empty() => node,
        launcher => format!("{launcher} {node}"),
    };
    if let Some(start) = &options.start_command {
        line(&format!("{{ {start}\n}} || exit $?"));
    }
    let warning = system.warning();
    if options.stop_command.is_none() && warning.is_none() {
        line(&format!("exec {command}"));
        return script;
    }
    // The shell passes on the signal with which the batch system ends the node, so that the
    // executor can leave.
    match warning {
        None => line(&format!("{command} &")),
        // The batch system sends its warning to the executor too, which it would end at once.
        Some(signal) => line(&format!("( trap '' {signal}; exec {command} ) &")),
    }
    line("executor=$!");
    line(&format!(
        "trap 'kill -TERM $executor 2>/dev/null' TERM INT HUP {}",
        warning.unwrap_or_default()
    ));
    line("wait $executor; status=$?");
    line("while kill -0 $executor 2>/dev/null; do wait $executor; status=$?; done");
    options.stop_command.iter().for_each(|stop| line(stop));
    line("exit $status");
    script
}

/// The command that starts one executor.
fn one_node(plan: &RequestPlan, number: &str, paths: NodePaths) -> String {
    let options = &plan.options;
    let NodePaths { eyas, access, folder } = paths;
    let mut words = vec![eyas.display().to_string(), "start".into(), "executor".into()];
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    option("access", access.display().to_string());
    let names_folder = options.executor_options.iter().any(|word| word.starts_with("--folder"));
    if let Some(folder) = folder.filter(|_| !names_folder) {
        option("folder", folder.display().to_string());
    }
    option("request", format!("{}/{}", plan.pool, plan.number));
    option("time-limit", format!("{}us", options.time_limit_us));
    if let Some(cpus) = options.cpus {
        option("slots", cpus.to_string());
    }
    if let Some(memory) = options.memory_bytes {
        option("node-memory", memory.to_string());
    }
    options
        .resources
        .iter()
        .for_each(|(name, amount)| option("node-resource", format!("{name}={amount}")));
    options.labels.iter().for_each(|(name, value)| option("label", format!("{name}={value}")));
    words.extend(options.executor_options.iter().cloned());
    let mut command = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    // Nodes of one request may be on one host.
    if plan.nodes > 1 && !number.is_empty() {
        let _ = write!(command, " --name {}-{}-{number}", plan.pool, plan.number);
    }
    match &options.wrap {
        Some(wrap) => format!("{wrap} {command}"),
        None => command,
    }
}

/// The shell that runs scripts where the batch system passes on the environment of a submission.
/// `bash` keeps variables that are no variables of a shell, such as the functions that it exports
/// (`module` of environment modules); `dash`, which is `/bin/sh` of Debian, drops them.
pub(crate) fn shell() -> &'static str {
    const BASH: &str = "/bin/bash";
    if Path::new(BASH).exists() { BASH } else { "/bin/sh" }
}

/// A word as a shell reads it.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("/a/b-c.toml"), "/a/b-c.toml");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
