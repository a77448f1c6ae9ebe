//! The graph of a job, a part at a time: its templates, what their tasks read of each other, and
//! the objects of the job.

use std::collections::BTreeMap;

use eyas_jobs::{Job, JobSpec, Phase};
use eyas_types::course::TaskCounts;
use eyas_types::{Input, Program, TaskTemplate};
use eyas_wire::client::GraphPart;
use eyas_wire::view::graph::{TemplateReads, TemplateView};

use super::MAX_BYTES_SHOWN;

/// Templates, tasks and objects in one part of a graph.
const MAX_GRAPH_INDICES: u32 = 20_000;
/// A part of a graph ends once its tasks have this many inputs.
const MAX_GRAPH_INPUTS: usize = 200_000;
/// Bytes of a template's command that a graph shows.
const MAX_TEMPLATE_BYTES: usize = 4000;

/// The part of a job's graph from an index on.
pub(crate) fn part(job: &Job, from: u32) -> GraphPart {
    part_of(&job.spec, |index| job.tasks[index as usize].phase, from, MAX_GRAPH_INDICES)
}

fn part_of(spec: &JobSpec, phase: impl Fn(u32) -> Phase, from: u32, most: u32) -> GraphPart {
    let end = spec.templates.len().max(spec.items.len()).max(spec.objects.len()) as u32;
    let (mut part, mut bytes) = (GraphPart::default(), 0);
    let mut reads = ReadsOfTasks::of(spec);
    let mut tasks = BTreeMap::<u16, TaskCounts>::new();
    for index in from..end {
        if index - from >= most || reads.inputs >= MAX_GRAPH_INPUTS || bytes >= MAX_BYTES_SHOWN {
            part.next = Some(index);
            break;
        }
        if let Some(template) = spec.templates.get(index as usize) {
            let view = view_of(index as u16, template);
            bytes += view.command.iter().map(String::len).sum::<usize>();
            part.templates.push(view);
        }
        if (index as usize) < spec.items.len() {
            count(tasks.entry(reads.add(index)).or_default(), phase(index));
        }
        part.objects.extend(
            spec.objects.get(index as usize).map(|object| (object.id(), object.size_bytes())),
        );
    }
    part.tasks = tasks.into_iter().collect();
    part.reads = reads.found.into_values().collect();
    part
}

fn count(counts: &mut TaskCounts, phase: Phase) {
    *match phase {
        Phase::Blocked => &mut counts.blocked,
        Phase::Waiting => &mut counts.waiting,
        Phase::Assigned => &mut counts.assigned,
        Phase::Succeeded => &mut counts.succeeded,
        Phase::Failed => &mut counts.failed,
        Phase::Cancelled => &mut counts.cancelled,
    } += 1;
}

/// A template with the first words of its command.
fn view_of(index: u16, template: &TaskTemplate) -> TemplateView {
    let words = match &template.program {
        Program::Command(words) | Program::Call(words) => &words[..],
        Program::Noop => &[],
    };
    let (mut command, mut bytes) = (Vec::new(), 0);
    for word in words {
        if bytes >= MAX_TEMPLATE_BYTES {
            command.push("…".into());
            break;
        }
        let mut word = word.to_string();
        if let Some((end, _)) =
            word.char_indices().find(|(place, _)| bytes + place >= MAX_TEMPLATE_BYTES)
        {
            word.truncate(end);
            word.push('…');
        }
        bytes += word.len() + 1;
        command.push(word);
    }
    TemplateView { template: index, id: template.id.clone(), command, tasks: TaskCounts::default() }
}

/// Which outputs of each other tasks read, counted for each pair of templates.
struct ReadsOfTasks<'a> {
    spec: &'a JobSpec,
    /// The tasks whose outputs are inputs of a template, and the same by their templates.
    of_templates: BTreeMap<u16, (Vec<u32>, WritersByTemplate)>,
    found: BTreeMap<(u16, u16), TemplateReads>,
    /// Number of inputs that were looked at.
    inputs: usize,
}

impl<'a> ReadsOfTasks<'a> {
    fn of(spec: &'a JobSpec) -> Self {
        ReadsOfTasks { spec, of_templates: BTreeMap::new(), found: BTreeMap::new(), inputs: 0 }
    }

    /// Adds what a task reads, and returns its template.
    fn add(&mut self, index: u32) -> u16 {
        let item = self.spec.items.get(index);
        let to = item.template;
        let (spec, inputs) = (self.spec, &mut self.inputs);
        let (shared, shared_by_template) = self.of_templates.entry(to).or_insert_with(|| {
            let of_template = &spec.template_of(&item).inputs;
            *inputs += of_template.len();
            let tasks = writers(of_template);
            let by_template = by_template(spec, tasks.clone());
            (tasks, by_template)
        });
        let own = writers(&item.inputs);
        *inputs += item.inputs.len();
        // Tasks without such inputs of their own all read the same, which may be very much.
        let by_template = if own.is_empty() {
            shared_by_template.clone()
        } else {
            *inputs += shared.len();
            by_template(spec, [&own[..], shared].concat())
        };
        for (from, (pairs, task)) in by_template {
            let in_order = (pairs == 1).then_some((task, task));
            let read = TemplateReads { from, to, pairs, in_order };
            self.found.entry((from, to)).and_modify(|before| before.add(&read)).or_insert(read);
        }
        to
    }
}

/// The number of tasks of each template, and the last of these tasks.
type WritersByTemplate = BTreeMap<u16, (u64, u32)>;

fn by_template(spec: &JobSpec, mut tasks: Vec<u32>) -> WritersByTemplate {
    tasks.sort_unstable();
    tasks.dedup();
    let mut by_template = WritersByTemplate::new();
    for task in tasks {
        let (count, last) = by_template.entry(spec.items.template(task)).or_insert((0, task));
        (*count, *last) = (*count + 1, task);
    }
    by_template
}

/// The tasks whose outputs these inputs are.
fn writers(inputs: &[Input]) -> Vec<u32> {
    inputs.iter().filter_map(|input| Some(input.from.output()?.0)).collect()
}

#[cfg(test)]
mod tests {
    use eyas_types::{FileMode, InputFrom, ObjectSpec, TaskItem, Template, Version};

    use super::*;

    fn reads(task: u32) -> Input {
        Input { from: InputFrom::Output { task, output: 0 }, name: None }
    }

    fn template(id: &str, words: &[&str], inputs: Vec<Input>) -> TaskTemplate {
        let words = words.iter().copied().map(Template::parse).collect();
        let mut template = TaskTemplate::new(Program::Command(words));
        (template.id, template.inputs) = (Some(id.into()), inputs);
        template
    }

    fn item(template: u16, inputs: Vec<Input>) -> TaskItem {
        TaskItem { template, values: Vec::new(), inputs }
    }

    /// Tasks 0 to 2 split, 3 to 5 sort the part of one task each, and 6 merges what all sorted.
    fn workflow() -> JobSpec {
        let object = |source: &str| ObjectSpec {
            source: source.into(),
            version: Version::Modified { mtime_ns: 1, size_bytes: 10 },
            mode: FileMode::READABLE,
        };
        let mut spec = JobSpec {
            templates: vec![
                template("split", &["split", "{}"], Vec::new()),
                template("sort", &["sort"], Vec::new()),
                template("merge", &["sort", "-m"], (3..6).map(reads).collect()),
            ],
            objects: vec![object("file:///a"), object("file:///b")],
            ..JobSpec::default()
        };
        let split = (0..3).map(|_| item(0, Vec::new()));
        let sort = (0..3).map(|task| item(1, vec![reads(task)]));
        let items: Vec<_> = split.chain(sort).chain([item(2, Vec::new())]).collect();
        spec.push(&items).unwrap();
        spec
    }

    /// The sum of the parts.
    fn whole(spec: &JobSpec, most: u32) -> GraphPart {
        let phase = |index| if index < 3 { Phase::Succeeded } else { Phase::Blocked };
        let (mut sum, mut from) = (GraphPart::default(), Some(0));
        let mut reads = BTreeMap::<(u16, u16), TemplateReads>::new();
        while let Some(first) = from {
            let part = part_of(spec, phase, first, most);
            from = part.next;
            sum.templates.extend(part.templates);
            sum.tasks.extend(part.tasks);
            sum.objects.extend(part.objects);
            for read in part.reads {
                let sum = reads.entry((read.from, read.to)).and_modify(|sum| sum.add(&read));
                sum.or_insert(read);
            }
        }
        sum.reads = reads.into_values().collect();
        sum
    }

    #[test]
    fn a_graph_is_the_same_in_any_parts() {
        let spec = workflow();
        let graph = whole(&spec, 100);
        let elements = TemplateReads { from: 0, to: 1, pairs: 3, in_order: Some((0, 2)) };
        let all = TemplateReads { from: 1, to: 2, pairs: 3, in_order: None };
        assert_eq!(graph.reads, [elements, all]);
        let succeeded = TaskCounts { succeeded: 3, ..TaskCounts::default() };
        let blocked = |blocked| TaskCounts { blocked, ..TaskCounts::default() };
        assert_eq!(graph.tasks, [(0, succeeded), (1, blocked(3)), (2, blocked(1))]);
        assert_eq!(graph.objects.iter().map(|(_, bytes)| bytes).sum::<u64>(), 20);
        assert_eq!(graph.templates[0].command, ["split", "{}"]);
        assert_eq!(graph.templates[2].id.as_deref(), Some("merge"));
        for most in 1..8 {
            let parts = whole(&spec, most);
            assert_eq!(
                (parts.templates, parts.reads, parts.objects),
                (graph.templates.clone(), graph.reads.clone(), graph.objects.clone()),
                "{most}"
            );
            let tasks: u64 = parts.tasks.iter().map(|(_, counts)| counts.total()).sum();
            assert_eq!(tasks, 7);
        }
    }

    #[test]
    fn a_long_command_is_cut() {
        let long = "ä".repeat(MAX_TEMPLATE_BYTES);
        let view = view_of(0, &template("x", &["echo", &long, "more"], Vec::new()));
        assert_eq!(view.command.len(), 3);
        assert!(view.command[1].len() < MAX_TEMPLATE_BYTES + 10);
        assert!(view.command[1].ends_with('…') && view.command[2] == "…");
    }
}
