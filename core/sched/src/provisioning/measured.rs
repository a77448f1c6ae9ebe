//! How long tasks take and how much they lack, learned from what executors tell.

/// What was seen until one look still counts at the next.
const REMEMBERED: f64 = 7.0 / 8.0;

/// Sums over the tasks that have ended lately.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    tasks: f64,
    run_us: f64,
    fetched_bytes: f64,
}

impl Measured {
    /// A task has ended, after it had its slot for so long, microseconds.
    pub fn ran(&mut self, us: u64) {
        self.tasks += 1.0;
        self.run_us += us as f64;
    }

    /// An executor has fetched so many bytes.
    pub fn fetched(&mut self, bytes: u64) {
        self.fetched_bytes += bytes as f64;
    }

    /// Looks at it, as often as the provisioner is told of [`Work`](super::Work).
    pub fn look(&mut self) {
        for sum in [&mut self.tasks, &mut self.run_us, &mut self.fetched_bytes] {
            *sum *= REMEMBERED;
        }
    }

    /// How long a task has its slot, on average, microseconds; 0 before one has ended.
    pub fn task_us(&self) -> u64 {
        if self.tasks > 0.0 { (self.run_us / self.tasks) as u64 } else { 0 }
    }

    /// How many bytes are fetched for a task, on average; 0 before one has ended.
    pub fn fetched_bytes(&self) -> u64 {
        if self.tasks > 0.0 { (self.fetched_bytes / self.tasks) as u64 } else { 0 }
    }
}
