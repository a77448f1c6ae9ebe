//! The request of an executor for a derived copy: how it is answered, and that the dispatcher is
//! told how it ends.

use std::sync::{Arc, Weak};

use eyas_types::ObjectId;

use super::derived_copy::NoCopy;
use super::output_claim::ClaimPlaces;
use crate::process::ProcessControl;

/// The content of a smaller compressed file is not given to other executors: making it takes about
/// as long as asking for it.
pub(super) const MIN_GIVEN_BYTES: u64 = 256 << 10;

/// What a task has got of a derived copy that its node lacked.
pub(super) enum ObtainedCopy {
    /// The copy is in the store.
    Fetched { took_us: u64, request: CopyRequest },
    /// The task makes it; for others, too, if there is a request.
    ToMake(Option<CopyRequest>),
}

/// A request of this executor for a copy. If it is dropped, the executor has not got the copy: it
/// could not make it, or the task was stopped.
pub(super) struct CopyRequest {
    session: Weak<dyn ClaimPlaces>,
    task: Arc<ProcessControl>,
    object: ObjectId,
    is_open: bool,
}

impl CopyRequest {
    /// A request of a task that the dispatcher has got.
    pub fn new(
        session: Weak<dyn ClaimPlaces>,
        task: Arc<ProcessControl>,
        object: ObjectId,
    ) -> Self {
        CopyRequest { session, task, object, is_open: true }
    }

    /// The copy was counted, and the dispatcher was told.
    pub fn end(mut self) {
        self.is_open = false;
    }

    /// The copy was made, and giving it to others is not worthwhile.
    pub fn end_private(mut self) {
        self.is_open = false;
        if let Some(session) = self.session.upgrade() {
            session.no_copy(self.object, NoCopy::Private);
        }
    }
}

impl Drop for CopyRequest {
    fn drop(&mut self) {
        if self.is_open
            && let Some(session) = self.session.upgrade()
        {
            let is_stopped = self.task.is_cancelled();
            let why = if is_stopped { NoCopy::Stopped } else { NoCopy::Failed };
            session.no_copy(self.object, why);
        }
    }
}
