//! The graph of a job from the parts in which the dispatcher tells it.

use std::collections::BTreeMap;

use eyas_types::course::TaskCounts;
use eyas_wire::client::GraphPart;
use eyas_wire::view::graph::{JobGraph, TemplateReads};

/// The graph that has these parts, which are in order.
pub(crate) fn graph_of(parts: impl IntoIterator<Item = GraphPart>) -> JobGraph {
    let mut graph = JobGraph::default();
    let mut reads = BTreeMap::<(u16, u16), TemplateReads>::new();
    let (mut tasks, mut objects) = (BTreeMap::<u16, TaskCounts>::new(), Vec::new());
    for part in parts {
        graph.templates.extend(part.templates);
        for (template, counts) in part.tasks {
            add_counts(tasks.entry(template).or_default(), &counts);
        }
        for read in part.reads {
            let sum = reads.entry((read.from, read.to)).and_modify(|sum| sum.add(&read));
            sum.or_insert(read);
        }
        objects.extend(part.objects);
    }
    for template in &mut graph.templates {
        template.tasks = tasks.remove(&template.template).unwrap_or_default();
    }
    graph.reads = reads.into_values().collect();
    objects.sort_unstable_by_key(|(id, _)| id.0);
    objects.dedup();
    let mut digest = blake3::Hasher::new();
    for (id, bytes) in &objects {
        digest.update(&id.0);
        graph.input_bytes += bytes;
    }
    graph.inputs = objects.len() as u64;
    graph.input_digest = digest.finalize().to_hex().to_string();
    graph
}

fn add_counts(sum: &mut TaskCounts, more: &TaskCounts) {
    sum.blocked += more.blocked;
    sum.waiting += more.waiting;
    sum.assigned += more.assigned;
    sum.succeeded += more.succeeded;
    sum.failed += more.failed;
    sum.cancelled += more.cancelled;
}

#[cfg(test)]
mod tests {
    use eyas_types::ObjectId;
    use eyas_wire::view::graph::TemplateView;

    use super::*;

    #[test]
    fn parts_make_one_graph() {
        let reads = |pairs, in_order| TemplateReads { from: 0, to: 1, pairs, in_order };
        let part = |template: u16, objects: &[(u8, u64)], in_order| GraphPart {
            templates: vec![TemplateView { template, ..TemplateView::default() }],
            tasks: vec![(0, TaskCounts { succeeded: 2, failed: 1, ..TaskCounts::default() })],
            reads: vec![reads(2, in_order)],
            objects: objects.iter().map(|(id, size)| (ObjectId([*id; 16]), *size)).collect(),
            next: None,
        };
        let one = part(0, &[(9, 5), (1, 7)], Some((0, 1)));
        let two = part(1, &[(1, 7)], Some((2, 3)));
        let graph = graph_of([one.clone(), two.clone()]);
        assert_eq!(graph.templates.len(), 2);
        assert_eq!((graph.templates[0].tasks.succeeded, graph.templates[0].tasks.failed), (4, 2));
        assert_eq!(graph.reads, [reads(4, Some((0, 3)))]);
        assert_eq!((graph.inputs, graph.input_bytes), (2, 12));
        let ids = [[1; 16], [9; 16]].concat();
        assert_eq!(graph.input_digest, blake3::hash(&ids).to_hex().as_str());
        assert_eq!(graph_of([two, one]).reads, [reads(4, None)]);
    }
}
