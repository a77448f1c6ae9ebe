//! What benchmarks with real processes share.

#[path = "../tests/end_to_end/support/binary.rs"]
mod binary;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Whether the words of the command line ask for a run that only proves that it works.
pub fn is_tiny() -> bool {
    std::env::args().any(|word| word == "--tiny")
}

/// The middle value; not a number if there is none.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A temporary eyas home.
pub fn home() -> TempDir {
    TempDir::with_prefix("eyas-bench-").expect("a temporary folder")
}

/// The `eyas` command in `home`.
pub fn eyas(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(binary::eyas());
    command.args(words).current_dir(home).env("EYAS_HOME", home).stdin(Stdio::null());
    for variable in ["EYAS_CLUSTER", "EYAS_ACCESS", "EYAS_LOG"] {
        command.env_remove(variable);
    }
    command
}

/// A process that ends when this is dropped: its standard input does.
pub struct OwnedProcess(pub Child);

impl Drop for OwnedProcess {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if self.0.try_wait().is_ok_and(|status| status.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // It is our own child, and stuck.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `path` is there, as long as `process` lives.
pub fn wait_for(path: &Path, process: &mut OwnedProcess) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !path.exists() {
        assert!(
            process.0.try_wait().expect("our own child").is_none(),
            "a process of the benchmark has ended"
        );
        assert!(Instant::now() < deadline, "{} does not appear", path.display());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Processor time that this process and all processes it has waited for have used, in seconds;
/// counted in hundredths.
pub fn used_cpu_s() -> f64 {
    cpu_s("self")
}

/// Processor time that a process and all processes it has waited for have used, in seconds; counted
/// in hundredths.
pub fn cpu_s(process: &str) -> f64 {
    let stat =
        fs::read_to_string(format!("/proc/{process}/stat")).expect("it lives, and Linux has /proc");
    // utime, stime, cutime and cstime are the 14th to 17th field; the second ends with the last
    // parenthesis.
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(4)
        .map(|field| field.parse::<u64>().expect("a count"))
        .sum();
    ticks as f64 / 100.0
}

/// A line of a process's status, in bytes.
pub fn resident_bytes(process: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it lives");
    let line = status.lines().find(|line| line.starts_with(name)).expect("Linux tells it");
    let kib: u64 =
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number");
    kib * 1024
}
