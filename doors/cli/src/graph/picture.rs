//! What the picture of a job shows: a box for each template, and an arrow for each template whose
//! outputs another one reads. It is bounded, and says what it leaves out.

use eyas_client::types::shown;
use eyas_client::types::shown::shortened;
use eyas_client::types::units::format_count;
use eyas_client::view::graph::{JobGraph, TemplateReads, TemplateView};
use eyas_client::view::{JobView, TaskCounts};

use crate::report::{command_of, count};

/// Boxes of a picture. Further templates are left out.
const MAX_BOXES: usize = 300;
/// Arrows of a picture. Further arrows are left out.
const MAX_ARROWS: usize = 1500;
/// Characters of the title of a picture.
const MAX_TITLE_CHARS: usize = 80;

/// What a picture shows.
pub(crate) struct GraphPicture {
    /// Title: the job.
    pub(super) title: String,
    pub(super) boxes: Vec<TemplateBox>,
    pub(super) arrows: Vec<ReadArrow>,
    /// Sentences about what is left out.
    pub(super) left_out: Vec<String>,
}

/// A template.
pub(super) struct TemplateBox {
    /// Id of the template, or its program.
    pub name: String,
    /// The command; empty for tasks without a command.
    pub command: String,
    /// Number of tasks.
    pub tasks: u64,
    /// Numbers of tasks by state; without states that no task has.
    pub states: Vec<(&'static str, u64)>,
}

/// An arrow from a template whose outputs are read to a template whose tasks read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadArrow {
    pub from: usize,
    pub to: usize,
    pub kind: ReadKind,
}

/// Which tasks of a template read the outputs of which tasks of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadKind {
    /// There is one task of each.
    One,
    /// The first task reads of the first, the second of the second, and so on.
    Elements,
    /// Each task reads outputs of all.
    All,
    /// Other pairs of tasks.
    Some(u64),
}

impl ReadKind {
    /// What tasks read, of templates with these numbers of tasks.
    fn of(reads: &TemplateReads, writers: u64, readers: u64) -> Self {
        match reads.pairs {
            1 if (writers, readers) == (1, 1) => ReadKind::One,
            pairs if pairs == writers && pairs == readers && reads.in_order.is_some() => {
                ReadKind::Elements
            }
            pairs if pairs == writers.saturating_mul(readers) => ReadKind::All,
            pairs => ReadKind::Some(pairs),
        }
    }

    /// The mark beside an arrow.
    pub(super) fn mark(self) -> String {
        match self {
            ReadKind::One => String::new(),
            ReadKind::Elements => "each of its own".into(),
            ReadKind::All => "all".into(),
            ReadKind::Some(1) => "1 read".into(),
            ReadKind::Some(pairs) => format!("{} reads", count(pairs)),
        }
    }
}

impl GraphPicture {
    /// The picture of a job.
    pub(crate) fn of(job: &JobView, graph: &JobGraph) -> Self {
        let shown_templates = &graph.templates[..graph.templates.len().min(MAX_BOXES)];
        let boxes: Vec<_> = shown_templates.iter().map(TemplateBox::of).collect();
        let is_shown = |reads: &&TemplateReads| usize::from(reads.from.max(reads.to)) < boxes.len();
        let arrow = |reads: &TemplateReads| {
            let (from, to) = (usize::from(reads.from), usize::from(reads.to));
            let kind = ReadKind::of(reads, boxes[from].tasks, boxes[to].tasks);
            ReadArrow { from, to, kind }
        };
        let arrows: Vec<_> =
            graph.reads.iter().filter(is_shown).take(MAX_ARROWS).map(arrow).collect();
        let mut left_out = Vec::new();
        for (all, drawn, noun) in [
            (graph.templates.len(), boxes.len(), "template"),
            (graph.reads.len(), arrows.len(), "arrow"),
        ] {
            if all > drawn {
                left_out.push(format!(
                    "{} left out: the picture has {drawn} of {all}.",
                    format_count((all - drawn) as u64, noun)
                ));
            }
        }
        let name = shown(&job.name).to_string();
        let title = match name.trim() {
            "" => format!("Job {}", job.job),
            name => format!("Job {}: {}", job.job, shortened(name, MAX_TITLE_CHARS)),
        };
        GraphPicture { title, boxes, arrows, left_out }
    }
}

impl TemplateBox {
    fn of(template: &TemplateView) -> Self {
        let program = template.command.first().map(|word| {
            let word = word.trim_end_matches('/');
            word.rsplit('/').next().unwrap_or(word).to_owned()
        });
        let name = match (&template.id, program) {
            (Some(id), _) => shown(id).to_string(),
            (None, Some(program)) => program,
            (None, None) => format!("template {}", template.template),
        };
        let TaskCounts { blocked, waiting, assigned, succeeded, failed, cancelled } =
            template.tasks;
        let states = [
            ("succeeded", succeeded),
            ("failed", failed),
            ("cancelled", cancelled),
            ("assigned", assigned),
            ("waiting", waiting),
            ("blocked", blocked),
        ];
        TemplateBox {
            name,
            command: command_of(template),
            tasks: template.tasks.total(),
            states: states.into_iter().filter(|(_, tasks)| *tasks > 0).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::example::{picture, reads, template};
    use super::*;

    #[test]
    fn arrows_say_which_tasks_read() {
        let in_order = Some((0, 2));
        for (pairs, in_order, writers, readers, kind) in [
            (1, in_order, 1, 1, ReadKind::One),
            (3, in_order, 3, 3, ReadKind::Elements),
            (3, None, 3, 3, ReadKind::Some(3)),
            (3, None, 3, 1, ReadKind::All),
            (5, None, 1, 5, ReadKind::All),
            (9, None, 3, 3, ReadKind::All),
            (2, in_order, 3, 3, ReadKind::Some(2)),
        ] {
            let reads = TemplateReads { from: 0, to: 1, pairs, in_order };
            assert_eq!(ReadKind::of(&reads, writers, readers), kind, "{pairs}");
        }
        assert_eq!(ReadKind::Some(1234).mark(), "1,234 reads");
    }

    #[test]
    fn a_picture_is_bounded_and_says_what_it_leaves_out() {
        let templates = (0..1000).map(|number| template(number, "t", 1)).collect();
        let chain = (1..1000).map(|number| reads(number - 1, number, 1)).collect();
        let picture = picture(templates, chain);
        assert_eq!((picture.boxes.len(), picture.arrows.len()), (MAX_BOXES, MAX_BOXES - 1));
        assert_eq!(
            picture.left_out,
            [
                "700 templates left out: the picture has 300 of 1000.",
                "700 arrows left out: the picture has 299 of 999."
            ]
        );
    }

    #[test]
    fn a_box_has_a_name() {
        let mut unnamed = template(4, "", 3);
        unnamed.id = None;
        assert_eq!(TemplateBox::of(&unnamed).name, "sort");
        unnamed.command.clear();
        assert_eq!(TemplateBox::of(&unnamed).name, "template 4");
        assert_eq!(TemplateBox::of(&template(0, "a\u{1b}b", 3)).name, "a\\x1bb");
    }
}
