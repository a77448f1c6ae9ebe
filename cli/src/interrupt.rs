//! The user's wish to stop, by Ctrl-C or SIGTERM, in all commands that wait for something.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::print::say;
use crate::start::interrupted;

/// Exit code after an interrupt, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;

/// The first interrupt is answered by ending in good order, the second at once.
pub(crate) struct Interrupt {
    told: watch::Receiver<bool>,
    last_words: Arc<Mutex<Option<String>>>,
}

impl Interrupt {
    pub fn listen() -> Self {
        let (tell, told) = watch::channel(false);
        let last_words = Arc::<Mutex<Option<String>>>::default();
        let words = last_words.clone();
        tokio::spawn(async move {
            interrupted(false).await;
            tell.send_replace(true);
            interrupted(false).await;
            if let Some(words) = words.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                say!("{words}");
            }
            std::process::exit(INTERRUPTED.into());
        });
        Interrupt { told, last_words }
    }

    /// Returns once it has come.
    pub async fn comes(&mut self) {
        if self.told.wait_for(|has_come| *has_come).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// What is to be known by a user who ends this command at once.
    pub fn last_words(&self, words: Option<String>) {
        *self.last_words.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }
}
