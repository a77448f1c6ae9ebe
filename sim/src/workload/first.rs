//! The first tasks of another workload.

use super::Workload;
use crate::arrival::Arrival;

/// The first tasks of another workload.
pub struct First<W> {
    /// The other.
    pub workload: W,
    /// How many tasks at most.
    pub most: u64,
}

impl<W: Workload> Workload for First<W> {
    fn objects(&self) -> u32 {
        self.workload.objects()
    }

    fn object_bytes(&self) -> u64 {
        self.workload.object_bytes()
    }

    fn size_bytes(&self, object: u32) -> u64 {
        self.workload.size_bytes(object)
    }

    fn tasks(&self) -> u64 {
        self.workload.tasks().min(self.most)
    }

    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_> {
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        Box::new(self.workload.arrivals().take(most))
    }
}
