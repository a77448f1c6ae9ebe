//! How many things an account does at the same time. Its further jobs are QUEUED, for example, and
//! leave the slots of the portal to other accounts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;

/// Jobs of an account that are not over and run.
pub const MAX_RUNNING_OF_ACCOUNT: usize = 8;
/// Requests of an account that wait for a phase.
pub const MAX_WAITS_OF_ACCOUNT: usize = 32;

/// The slots of all accounts.
pub struct AccountSlots {
    each: usize,
    used: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

impl AccountSlots {
    /// This number of slots for each account.
    pub fn of(each: usize) -> Self {
        AccountSlots { each, used: Mutex::default() }
    }

    /// The slots of an account.
    pub fn of_account(&self, name: &str) -> Arc<Semaphore> {
        let mut slots = self.used.lock().unwrap_or_else(|e| e.into_inner());
        // Those that no job uses are as new ones.
        slots.retain(|_, slots| Arc::strong_count(slots) > 1);
        let new = || Arc::new(Semaphore::new(self.each));
        slots.entry(name.to_owned()).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_takes_no_slots_of_others() {
        let slots = AccountSlots::of(3);
        let ada = slots.of_account("ada");
        let held: Vec<_> = (0..3).map(|_| ada.try_acquire()).collect();
        assert!(held.iter().all(Result::is_ok));
        assert!(slots.of_account("ada").try_acquire().is_err());
        assert!(slots.of_account("bob").try_acquire().is_ok());
        assert_eq!(slots.used.lock().unwrap().len(), 2);
    }
}
