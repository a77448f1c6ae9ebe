//! Tests of what the mount knows of an inode.

use eyas_files::ContentDraft;
use eyas_types::dfs::{Attributes, FileId, FileKind};

use super::state::InodeState;
use crate::cluster_entry::ClusterEntry;

fn found(kind: FileKind, modified_ns: u64) -> ClusterEntry {
    let attributes = Attributes { modified_ns, changed_ns: modified_ns, ..Default::default() };
    ClusterEntry { id: FileId(1), kind, size_bytes: 0, hole_bytes: 0, attributes, file: None }
}

/// A state with a change of now of which the cluster, which knows of one in 1970, knows nothing.
fn changed_here(kind: FileKind) -> InodeState {
    let mut state = InodeState::new(&found(kind.clone(), 1), true);
    match kind {
        FileKind::Folder => state.entries_changed(),
        _ => {
            let mut draft = ContentDraft::new(&std::env::temp_dir(), None);
            draft.write(0, b"text", false).unwrap();
            state.created(draft, None);
            state.written_now();
        }
    }
    state
}

#[test]
fn a_change_of_attributes_keeps_the_time_of_a_write_that_the_cluster_does_not_know() {
    for kind in [FileKind::File, FileKind::Folder] {
        let mut state = changed_here(kind.clone());
        let written = state.attributes();
        let mut chmod = found(kind.clone(), 2);
        chmod.attributes.mode = 0o640;
        state.changed(chmod, false);
        assert_eq!(state.attributes(), Attributes { mode: 0o640, ..written }, "{kind:?}");
        // The time of the last write is as a program has set it.
        state.changed(found(kind.clone(), 3), true);
        assert_eq!(state.attributes().modified_ns, 3, "{kind:?}");
    }
    // Once it is published, the cluster knows the time.
    let mut state = changed_here(FileKind::File);
    state.draft_mut().unwrap().begin_publication();
    state.changed(found(FileKind::File, 4), false);
    assert_eq!(state.attributes().modified_ns, 4);
}
