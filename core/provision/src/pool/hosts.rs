//! Hosts on which requests fail. After [`MAX_FAILURES_THERE`] failures in a row, no node is
//! requested on a host for [`REST_US`], so that one bad host costs a pool a few requests and does
//! not pause it.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// Failures on a host, without a node that joined from there in between, after which the host is
/// excluded.
pub(super) const MAX_FAILURES_THERE: u32 = 2;
/// Time for which a host is excluded after a failure.
pub(super) const REST_US: u64 = 1_800_000_000;
/// Most hosts that are remembered; the host whose last failure is the oldest is forgotten first.
const MAX_HOSTS: usize = 256;

/// A host on which no node is requested for a while, because requests have failed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExcludedHost {
    /// Name of the host.
    pub host: String,
    /// Why the last request failed there.
    pub why: String,
    /// Time until which no node is requested there, microseconds since 1970.
    pub until_us: u64,
}

#[derive(Debug, Default)]
pub(super) struct FailedHosts(BTreeMap<String, FailedHost>);

#[derive(Debug)]
struct FailedHost {
    failures: u32,
    failed_us: u64,
    /// Whether it has failed since the pool's last node joined.
    is_in_row: bool,
    why: String,
}

impl FailedHost {
    fn is_excluded(&self, now_us: u64) -> bool {
        self.failures >= MAX_FAILURES_THERE && now_us < self.failed_us + REST_US
    }
}

impl FailedHosts {
    /// Counts `failures` more on a host. Returns whether they are its first ones since the pool's
    /// last node joined, and whether the host is excluded only from now on.
    pub fn add(&mut self, now_us: u64, host: &str, failures: u32, why: &str) -> (bool, bool) {
        if self.0.len() == MAX_HOSTS
            && !self.0.contains_key(host)
            && let Some(oldest) =
                self.0.iter().min_by_key(|(_, host)| host.failed_us).map(|(name, _)| name.clone())
        {
            self.0.remove(&oldest);
        }
        let unknown =
            FailedHost { failures: 0, failed_us: 0, is_in_row: false, why: String::new() };
        let entry = self.0.entry(host.to_owned()).or_insert(unknown);
        let (was_excluded, was_in_row) = (entry.is_excluded(now_us), entry.is_in_row);
        let failures = entry.failures.saturating_add(failures);
        *entry = FailedHost { failures, failed_us: now_us, is_in_row: true, why: why.into() };
        (!was_in_row, entry.is_excluded(now_us) && !was_excluded)
    }

    /// A node has joined from a host.
    pub fn joined(&mut self, host: Option<&str>) {
        host.map(|host| self.0.remove(host));
        self.0.values_mut().for_each(|host| host.is_in_row = false);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Names of the hosts on which no node is requested now.
    pub fn excluded(&self, now_us: u64) -> Vec<String> {
        self.excluded_hosts(now_us).map(|(name, _)| name.clone()).collect()
    }

    /// Hosts on which no node is requested now, and why.
    pub fn reports(&self, now_us: u64) -> Vec<ExcludedHost> {
        let report = |(name, host): (&String, &FailedHost)| ExcludedHost {
            host: name.clone(),
            why: host.why.clone(),
            until_us: host.failed_us + REST_US,
        };
        self.excluded_hosts(now_us).map(report).collect()
    }

    fn excluded_hosts(&self, now_us: u64) -> impl Iterator<Item = (&String, &FailedHost)> {
        self.0.iter().filter(move |(_, host)| host.is_excluded(now_us))
    }
}
