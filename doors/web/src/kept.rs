//! A cache of what was read of the jobs that requests named last.

use std::collections::VecDeque;
use std::sync::Arc;

use eyas_client::types::JobId;

/// Values of some jobs, that which was used last at the end.
pub(crate) struct KeptOfJobs<T> {
    kept: VecDeque<(JobId, Arc<T>)>,
    most: usize,
}

impl<T> KeptOfJobs<T> {
    /// Keeps values of up to `most` jobs.
    pub fn new(most: usize) -> Self {
        KeptOfJobs { kept: VecDeque::new(), most }
    }

    /// The value of a job. It stays until there is a newer one: reading that may fail, or be given
    /// up.
    pub fn of(&mut self, job: JobId) -> Option<Arc<T>> {
        let at = self.kept.iter().position(|(of, _)| *of == job)?;
        let used = self.kept.remove(at)?;
        self.kept.push_back(used.clone());
        Some(used.1)
    }

    /// Replaces the value of a job. Of too many, the one that was used longest ago is dropped.
    pub fn put(&mut self, job: JobId, value: Arc<T>) {
        self.kept.retain(|(of, _)| *of != job);
        self.kept.push_back((job, value));
        if self.kept.len() > self.most {
            self.kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_kept_until_it_is_replaced_or_others_were_used_since() {
        let mut kept = KeptOfJobs::new(2);
        let of = |kept: &mut KeptOfJobs<u32>, job| kept.of(JobId(job)).map(|value| *value);
        kept.put(JobId(1), Arc::new(10));
        kept.put(JobId(2), Arc::new(20));
        assert_eq!([of(&mut kept, 1), of(&mut kept, 1)], [Some(10); 2]);
        kept.put(JobId(1), Arc::new(11));
        assert_eq!([1, 2].map(|job| of(&mut kept, job)), [Some(11), Some(20)]);
        assert_eq!(of(&mut kept, 1), Some(11));
        kept.put(JobId(3), Arc::new(30));
        assert_eq!([1, 2, 3].map(|job| of(&mut kept, job)), [Some(11), None, Some(30)]);
    }
}
