//! Graphs for tests.

use eyas_client::view::TaskCounts;
use eyas_client::view::graph::{JobGraph, TemplateReads, TemplateView};

use super::picture::GraphPicture;
use crate::report::example as jobs;

/// A template with tasks that succeeded.
pub(super) fn template(number: u16, id: &str, tasks: u64) -> TemplateView {
    TemplateView {
        template: number,
        id: Some(id.into()),
        command: vec!["/usr/bin/sort".into(), "-m".into(), "{}".into()],
        tasks: TaskCounts { succeeded: tasks, ..TaskCounts::default() },
    }
}

/// Reads of tasks in order.
pub(super) fn reads(from: u16, to: u16, pairs: u64) -> TemplateReads {
    TemplateReads { from, to, pairs, in_order: Some((0, 1)) }
}

/// The picture of a job with these templates.
pub(super) fn picture(templates: Vec<TemplateView>, reads: Vec<TemplateReads>) -> GraphPicture {
    let graph = JobGraph { templates, reads, ..JobGraph::default() };
    GraphPicture::of(&jobs::diffusion().job, &graph)
}
