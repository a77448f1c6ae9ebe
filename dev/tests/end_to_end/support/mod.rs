//! Homes, clusters and processes for tests.

mod binary;
mod c_library;
mod cluster;
mod disk;
mod home;
pub mod io;
mod mount;
mod network;
mod process;
mod slow_disk;

use std::fmt::Debug;
use std::time::{Duration, Instant};

pub use binary::eyas;
pub use c_library::{c_library, exported};
pub use cluster::Cluster;
pub use disk::SmallDisk;
pub use home::{CommandOutput, Home, finish};
pub use mount::{MountedFiles, can_mount};
pub use network::{Network, address};
pub use process::{children, is_alive, listening_ports, parent, signal, wait_until_ready};
pub use slow_disk::{SlowDisk, SlowMount};

/// Everything that a test waits for happens within this time, also on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Waits until `fact` returns a value.
#[track_caller]
pub fn wait_for<T>(what: impl Debug, mut fact: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = fact() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for: {what:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `fact` holds.
#[track_caller]
pub fn wait_until(what: impl Debug, mut fact: impl FnMut() -> bool) {
    wait_for(what, || fact().then_some(()));
}

/// Whether this user is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether these programs are installed. In CI (the variable `CI` is set) they must be. Elsewhere,
/// the test that needs them prints that it tests nothing.
pub fn can_use(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &&&str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let missing: Vec<_> = programs.iter().filter(|program| !is_there(program)).collect();
    assert!(missing.is_empty() || std::env::var_os("CI").is_none(), "CI lacks {missing:?}");
    if !missing.is_empty() {
        eprintln!("not tested: {missing:?} are missing");
    }
    missing.is_empty()
}
