//! How many jobs of an account run at the same time: the others of the account are QUEUED, and leave
//! the slots of the portal to other accounts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;

/// Jobs of an account that are not over and run.
const MAX_RUNNING_OF_ACCOUNT: usize = 8;

/// The slots of all accounts.
#[derive(Default)]
pub struct AccountSlots(Mutex<BTreeMap<String, Arc<Semaphore>>>);

impl AccountSlots {
    /// The slots of an account.
    pub fn of_account(&self, name: &str) -> Arc<Semaphore> {
        let mut slots = self.0.lock().unwrap_or_else(|e| e.into_inner());
        // Those that no job uses are as new ones.
        slots.retain(|_, slots| Arc::strong_count(slots) > 1);
        let new = || Arc::new(Semaphore::new(MAX_RUNNING_OF_ACCOUNT));
        slots.entry(name.to_owned()).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_takes_no_slots_of_others() {
        let slots = AccountSlots::default();
        let ada = slots.of_account("ada");
        let held: Vec<_> = (0..MAX_RUNNING_OF_ACCOUNT).map(|_| ada.try_acquire()).collect();
        assert!(held.iter().all(Result::is_ok));
        assert!(slots.of_account("ada").try_acquire().is_err());
        assert!(slots.of_account("bob").try_acquire().is_ok());
        assert_eq!(slots.0.lock().unwrap().len(), 2);
    }
}
