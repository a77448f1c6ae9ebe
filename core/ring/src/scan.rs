//! The scan of names: a leader looks at all names that it has, some at each tick, again and again.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::event::Config;
use crate::record::Round;

/// Where the scan is.
#[derive(Default)]
pub(crate) struct NameScan {
    /// The partition and name to scan next.
    cursor: (u16, String),
    /// Whether names were skipped because an operation on them was in progress.
    has_passed: bool,
    /// The whole scan is complete; the next one starts at this time.
    rest_until_us: u64,
}

impl NameScan {
    pub fn is_resting(&self, now_us: u64) -> bool {
        now_us < self.rest_until_us
    }

    /// The partition to scan next, of those that this node has, and the name to begin with; `None`
    /// at the end.
    pub fn position(&self, partitions: &BTreeMap<u16, Round>) -> Option<(u16, String)> {
        let (at, from) = &self.cursor;
        let partition = partitions.range(at..).next().map(|(partition, _)| *partition)?;
        Some((partition, if partition == *at { from.clone() } else { String::new() }))
    }

    pub fn go_to(&mut self, partition: u16, name: String) {
        self.cursor = (partition, name);
    }

    /// A name is skipped, because an operation on it is in progress.
    pub fn pass(&mut self) {
        self.has_passed = true;
    }

    /// All names were scanned. The next scan starts at once if partitions were skipped that are not
    /// served yet, after [`Config::resend_us`] if names were skipped, and otherwise after
    /// [`Config::patience_us`]: with the default configuration after 0 s, 0.5 s or 5 s.
    pub fn rest(&mut self, config: &Config, has_settled: bool, now_us: u64) {
        let rest_us = match (has_settled, self.has_passed) {
            (false, _) => 0,
            (true, true) => config.resend_us,
            (true, false) => config.patience_us,
        };
        *self = NameScan { rest_until_us: now_us + rest_us, ..NameScan::default() };
    }

    /// Moves the scan back to a name for which there may be more to do.
    pub fn go_back_to(&mut self, partition: u16, name: &str, now_us: u64) {
        let at = (partition, name.to_owned());
        if self.is_resting(now_us) || at < self.cursor {
            self.cursor = at;
        }
        self.rest_until_us = 0;
    }
}

#[cfg(test)]
mod tests {
    use eyas_types::dfs::{FileSystemId, NodeId};

    use super::*;

    #[test]
    fn a_scan_goes_on_after_a_partition_that_is_gone_and_back_to_names_with_more_to_do() {
        let config = Config::new(FileSystemId(1), NodeId(1));
        let all = [2, 5].map(|partition| (partition, Round::default())).into();
        let mut scan = NameScan::default();
        assert_eq!(scan.position(&all), Some((2, String::new())));
        scan.go_to(3, "/a".to_owned());
        assert_eq!(
            scan.position(&all),
            Some((5, String::new())),
            "the name is of another partition"
        );
        scan.go_to(5, "/b".to_owned());
        scan.go_back_to(5, "/c", 0);
        assert_eq!(scan.position(&all), Some((5, "/b".to_owned())), "it will come there");
        scan.go_back_to(5, "/a", 0);
        assert_eq!(scan.position(&all), Some((5, "/a".to_owned())));
        scan.go_to(6, String::new());
        assert_eq!(scan.position(&all), None);
        scan.pass();
        scan.rest(&config, true, 10);
        assert!(scan.is_resting(500_009) && !scan.is_resting(500_010));
        scan.go_back_to(5, "/z", 20);
        assert_eq!((scan.is_resting(20), scan.position(&all)), (false, Some((5, "/z".to_owned()))));
    }
}
