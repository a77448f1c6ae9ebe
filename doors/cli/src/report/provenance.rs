//! What was run, where its data came from, and a paragraph about both for a paper. The page and the
//! terminal have the same sentences; the page escapes them.

use std::collections::BTreeSet;

use eyas_client::types::shown::shortened;
use eyas_client::types::units::format_bytes;
use eyas_client::types::{Name, shown};
use eyas_client::view::graph::{JobGraph, TemplateView};
use eyas_client::view::{JobReport, JobState, JobView};

use super::amount::{count, counted, moment, share};
use super::details::JobDetails;
use super::escaped::EscapedText;
use crate::words::command_line;

/// Commands that a report lists.
pub(super) const MAX_COMMANDS: usize = 20;
/// Commands and nodes that the paragraph names.
const MAX_NAMED: usize = 5;
/// Characters of a command that the page shows.
const MAX_COMMAND_CHARS: usize = 2000;

/// The command of a template as a shell reads it, with its placeholders.
pub(crate) fn command_of(template: &TemplateView) -> String {
    let words: Vec<Name> = template.command.iter().map(|word| word.as_str().into()).collect();
    let line = String::from_utf8_lossy(&command_line(&words)).into_owned();
    shortened(&line, MAX_COMMAND_CHARS).into_owned()
}

/// The section with the commands of the job; nothing if they are not known.
pub(super) fn commands(graph: &JobGraph) -> String {
    let with_command = |template: &&TemplateView| !template.command.is_empty();
    let all = graph.templates.iter().filter(with_command).count();
    if all == 0 {
        return String::new();
    }
    let mut html = String::from(
        r#"<section><h2>Commands</h2><p class="lead">What ran for each task. A placeholder such as
<code>{}</code> stands for the item of a task, <code>{1}</code> for its first column,
<code>{#}</code> for the number of the task.</p><dl class="commands">"#,
    );
    for template in graph.templates.iter().filter(with_command).take(MAX_COMMANDS) {
        let id = template.id.as_deref().map(|id| format!("<b>{}</b> ", EscapedText(id)));
        html += &format!(
            "<dt>{}{}</dt><dd>{}</dd>",
            id.unwrap_or_default(),
            counted(template.tasks.total(), "task"),
            EscapedText(&command_of(template))
        );
    }
    html.push_str("</dl>");
    if all > MAX_COMMANDS {
        html += &format!(
            r#"<p class="note">{} are left out.</p>"#,
            counted((all - MAX_COMMANDS) as u64, "further command")
        );
    }
    html.push_str("</section>");
    html
}

/// What happened to tasks and where inputs came from, in sentences.
pub(super) fn sentences(job: &JobView) -> Vec<String> {
    let (total, reads) = (job.tasks.total(), &job.reads);
    let mut said = Vec::new();
    let of_all = |tasks: u64| format!("{} of {}", count(tasks), counted(total, "task"));
    if job.reused > 0 {
        said.push(format!(
            "{} reused results of earlier tasks and did not run.",
            of_all(job.reused)
        ));
    }
    if job.retried > 0 {
        said.push(format!("{} after failures.", counted_as(job.retried, "retry", "retries")));
    }
    if job.recomputed > 0 {
        said.push(format!(
            "{} ran again because an output that was still needed was lost.",
            counted(job.recomputed, "task")
        ));
    }
    let sources = [
        (reads.persistent.bytes, "from storage"),
        (reads.peer.bytes, "from other nodes' disks"),
        (reads.local.bytes, "from the disk of the node that ran the task"),
        (reads.files.bytes(), "from files of the cluster"),
    ];
    let amounts: Vec<_> = sources
        .iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, source)| format!("{} {source}", format_bytes(*bytes)))
        .collect();
    if !amounts.is_empty() {
        said.push(format!("Read: {}.", amounts.join(", ")));
    }
    let inputs = reads.local.count + reads.peer.count + reads.persistent.count;
    if inputs > 0 {
        let hits = share(reads.local.count as f64 / inputs as f64);
        let all = counted(inputs, "input");
        said.push(format!("Hit rate: {hits} of {all} were on the node's disk already."));
    }
    said
}

fn counted_as(amount: u64, one: &str, several: &str) -> String {
    format!("{} {}", count(amount), if amount == 1 { one } else { several })
}

/// A paragraph for a paper: program, commands, time, inputs and nodes.
pub(super) fn paragraph(report: &JobReport, details: &JobDetails) -> String {
    let job = &report.job;
    let ended_ms = job.submitted_unix_ms + job.elapsed_us / 1000;
    let until = match job.state {
        JobState::Running => format!("was still running {}", moment(ended_ms)),
        _ => format!("ended {}", moment(ended_ms)),
    };
    let mut text = format!(
        "Computed with eyas {} as job {} ({}), which was submitted {} and {until} (UTC): {} of {} \
         succeeded.",
        env!("CARGO_PKG_VERSION"),
        job.job,
        if job.name.trim().is_empty() {
            "without a name".into()
        } else {
            shown(&job.name).to_string()
        },
        moment(job.submitted_unix_ms),
        count(job.tasks.succeeded),
        counted(job.tasks.total(), "task")
    );
    if let Some(graph) = &details.graph {
        text += &commands_in_words(graph);
        text += &inputs_in_words(graph);
    }
    let nodes: BTreeSet<&str> =
        details.tasks.iter().filter_map(|task| task.executor.as_deref()).collect();
    if !nodes.is_empty() {
        let mut names: Vec<_> =
            nodes.iter().take(MAX_NAMED).map(|name| shown(name).to_string()).collect();
        if nodes.len() > MAX_NAMED {
            names.push(format!("{} more", count((nodes.len() - MAX_NAMED) as u64)));
        }
        text += &format!(
            " The tasks ran on {}: {}.",
            counted(nodes.len() as u64, "executor"),
            names.join(", ")
        );
    }
    text
}

fn commands_in_words(graph: &JobGraph) -> String {
    let commands: Vec<_> = graph
        .templates
        .iter()
        .filter(|template| !template.command.is_empty())
        .map(|template| format!("`{}`", shortened(&command_of(template), 200)))
        .collect();
    match commands.len() {
        0 => String::new(),
        1 => format!(" The command of the tasks was {}.", commands[0]),
        count if count <= MAX_NAMED => {
            format!(" The commands of the tasks were {}.", commands.join(", "))
        }
        count => format!(
            " The commands of the tasks were {}, and {} more.",
            commands[..MAX_NAMED].join(", "),
            count - MAX_NAMED
        ),
    }
}

fn inputs_in_words(graph: &JobGraph) -> String {
    if graph.inputs == 0 {
        return " The job named no inputs.".into();
    }
    format!(
        " The job read {} with {} bytes together; the digest of their versions is {}.",
        counted(graph.inputs, "input"),
        count(graph.input_bytes),
        graph.input_digest
    )
}

/// How the digest in the paragraph is made.
pub(super) const DIGEST_NOTE: &str = "The digest is the BLAKE3 hash of the ids of all inputs, \
    sorted, 16 bytes each. The id of an input is a hash of its source and its version: size, times \
    of the last changes and inode of a file, size and ETag of an object, or the hash of a chunk. \
    Jobs with the same digest were given the same inputs in the same versions. A copy of a file is \
    another input, even if its content is the same.";

/// The section with the paragraph.
pub(super) fn section(report: &JobReport, details: &JobDetails) -> String {
    format!(
        r#"<section><h2>How to cite this job</h2><p class="lead">A paragraph for a paper or a log
book.</p><p class="note">{}</p><p class="beside">{DIGEST_NOTE}</p></section>"#,
        EscapedText(&paragraph(report, details))
    )
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_paragraph_names_program_commands_inputs_and_nodes() {
        let (mut report, mut details) = (example::diffusion(), example::details());
        let text = paragraph(&report, &details);
        for part in [
            concat!("eyas ", env!("CARGO_PKG_VERSION")),
            "job 7 (mi-250k-10MB-10ms)",
            "submitted 2026-11-21 06:28:37",
            "250,000 of 250,000 tasks succeeded",
            "The commands of the tasks were `stack {} 'a b'`, `merge",
            "12 inputs with 1,200 bytes together",
            "digest of their versions is 0123abcd",
            "4 executors: <script>alert(3)</script>.fits, node-0, node-1, node-2.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        report.job.state = JobState::Running;
        details.graph = None;
        let text = paragraph(&report, &details);
        assert!(text.contains("was still running 2026-") && !text.contains("digest"), "{text}");
    }

    #[test]
    fn counts_and_bytes_have_words() {
        let mut job = example::diffusion().job;
        (job.reused, job.retried) = (12, 1);
        (job.reads.persistent.bytes, job.reads.peer.bytes) = (1_200_000_000, 3_400_000_000);
        let said = sentences(&job).join(" ");
        assert!(said.contains("12 of 250,000 tasks reused results"), "{said}");
        assert!(said.contains("1 retry after failures."), "{said}");
        assert!(said.contains("1.2 GB from storage, 3.4 GB from other nodes' disks"), "{said}");
        assert!(said.contains("Hit rate: "), "{said}");
        assert!(sentences(&example::empty().job).is_empty());
    }

    #[test]
    fn commands_are_bounded() {
        let mut graph = example::details().graph.expect("a graph");
        let one = graph.templates[0].clone();
        graph.templates = vec![one; MAX_COMMANDS + 3];
        let html = commands(&graph);
        assert_eq!(html.matches("<dt>").count(), MAX_COMMANDS);
        assert!(html.contains("3 further commands are left out"), "{html}");
    }
}
