//! Runs in which the power of all nodes is cut: what was on the disks is there again, and no name
//! leads to content that is gone.

use std::collections::BTreeMap;

use eyas_faults::try_seeds;
use eyas_ring::NameEntry;
use eyas_types::dfs::{FileId, FileName};

use crate::{Run, SEEDS};

#[test]
fn a_power_failure_takes_no_content_that_was_on_the_disks() {
    let Some(outcomes) = try_seeds(SEEDS, cut_power) else { return };
    let fell_back: u64 = outcomes.iter().sum();
    assert!(
        fell_back > outcomes.len() as u64 / 4,
        "too few files had content that was not on the disks"
    );
}

/// Returns the number of files whose content the power failure has taken.
fn cut_power(seed: u64) -> u64 {
    let mut run = Run::new(seed);
    run.cluster.unsynced = 500;
    run.break_things();
    run.heal();
    // Content has just been written.
    run.go_on(500_000);
    let before = run.files();
    let in_doubt = run.clients.in_doubt(run.cluster.now_us);
    run.cluster.cut_power();
    run.cluster.heal();
    run.clients.stop();
    // All chunks of all files are there again.
    run.heal();
    let after = run.files();
    let mut fell_back = 0;
    for (name, (contents, synced)) in
        before.into_iter().filter(|(name, _)| !in_doubt.contains(name))
    {
        let now = after.get(&name).map(|(contents, _)| contents.clone());
        assert!(now.is_some() || synced.is_none(), "{name} has lost what was on the disks");
        fell_back += u64::from(now != Some(contents));
    }
    fell_back
}

type Content = Vec<[u8; 16]>;

impl Run {
    /// The content of each file, and the content that is on the disks.
    fn files(&self) -> BTreeMap<FileName, (Content, Option<FileId>)> {
        let files = self.led().into_iter().filter_map(|(name, entry)| match entry {
            NameEntry::File(record) => {
                let content = record.chunks.iter().map(|chunk| chunk.object.0).collect();
                Some((name, (content, record.synced().map(|record| record.id))))
            }
            _ => None,
        });
        files.collect()
    }
}
