//! Files of a room do not import each other in circles. A table lists the circles that are left; it
//! only shrinks.

use std::collections::{BTreeMap, BTreeSet};

use eyas_tree::files;
use eyas_tree::imports::Imports;

/// Most files of a circle.
const MAX_FILES_OF_A_CIRCLE: usize = 4;

/// Circles: a room, and the files of its `src`.
const CIRCLES: &[(&str, &[&str])] = &[
    ("base/matching", &["lib.rs", "check.rs"]),
    ("base/types", &["dfs.rs", "dfs/unsynced.rs"]),
    ("compute/dispatcher", &["answers/explain.rs", "answers/views.rs"]),
    ("compute/dispatcher", &["dispatcher_core.rs", "dispatcher_core/run.rs"]),
    ("compute/dispatcher", &["journal.rs", "journal/read.rs", "journal/write.rs"]),
    ("compute/dispatcher", &["keys.rs", "keys/key_ring.rs"]),
    ("compute/executor", &["executor_core.rs", "executor_core/slots.rs"]),
    (
        "compute/executor",
        &["leftovers/cgroup.rs", "resources/delegation.rs", "resources/task_group.rs"],
    ),
    ("compute/executor", &["process.rs", "process/oversight.rs"]),
    ("compute/executor", &["task.rs", "task/call.rs", "task/deliver.rs"]),
    ("compute/executor", &["task/sandbox.rs", "task/sandbox/kept.rs"]),
    ("compute/sim", &["cluster.rs", "nodes.rs"]),
    ("compute/sim", &["model.rs", "model/predict.rs"]),
    (
        "compute/sim",
        &["run.rs", "run/client.rs", "run/dispatchers.rs", "run/dispatchers/dispatcher.rs"],
    ),
    ("core/jobs", &["dependencies.rs", "spec.rs"]),
    ("core/jobs", &["lineage.rs", "lineage/missing_objects.rs"]),
    ("core/ring", &["list.rs", "rename.rs", "serve.rs", "syncing.rs"]),
    ("core/sched", &["placement/parts.rs", "scheduler.rs"]),
    ("data/coordinator/board", &["lib.rs", "bypassed.rs", "map.rs", "seat.rs"]),
    ("data/dfs", &["chunks.rs", "chunks/durable.rs"]),
    ("data/store", &["damaged.rs", "durable.rs", "incoming.rs", "objects.rs"]),
    ("data/store", &["storage.rs", "storage/cluster.rs", "storage/remote.rs", "storage/stream.rs"]),
    ("data/transfer", &["peers.rs", "push.rs", "receive.rs"]),
    ("doors/client", &["client.rs", "draft.rs", "draft_files.rs", "kept.rs"]),
    ("doors/client", &["map.rs", "map/failures.rs"]),
    ("doors/client", &["map/error.rs", "map/header.rs"]),
];

#[test]
fn files_of_a_room_do_not_import_each_other_in_circles() {
    let mut rooms: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (path, text) in files(&["rs"]) {
        if let Some((room, file)) = path.split_once("/src/") {
            rooms.entry(room.to_owned()).or_default().push((file.to_owned(), text));
        }
    }
    let mut found = BTreeSet::new();
    for (room, files) in rooms {
        let imports = Imports::of(files);
        let circles = imports.circles();
        found.extend(circles.iter().map(|circle| format!("{room}: {}", circle.join(", "))));
        for circle in circles {
            assert!(
                circle.len() <= MAX_FILES_OF_A_CIRCLE,
                "{room}: {} files import each other in a circle: {circle:?}",
                circle.len()
            );
        }
    }
    let listed: BTreeSet<_> =
        CIRCLES.iter().map(|(room, files)| format!("{room}: {}", files.join(", "))).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(
        new.is_empty(),
        "these files import each other: put what both need into a file below both: {new:#?}"
    );
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "these circles are gone: remove their rows: {gone:#?}");
}
