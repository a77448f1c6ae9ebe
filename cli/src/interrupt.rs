//! The user's wish to stop, by Ctrl-C or SIGTERM, in all commands that wait for something.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::error::INTERRUPTED;
use crate::print::say;

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

/// Returns when this process is told to end: by a signal that terminals and batch systems end jobs with, or, if `owned`,
/// by the end of standard input.
pub(crate) async fn interrupted(owned: bool) {
    let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate(), SignalKind::from_raw(Signal::XCPU.as_raw())];
    // Under `nohup` the end of the terminal is none of ours.
    if !is_ignored(Signal::HUP) {
        kinds.push(SignalKind::hangup());
    }
    let Ok(mut signals) = kinds.into_iter().map(signal).collect::<Result<Vec<_>, _>>() else {
        return std::future::pending().await;
    };
    let comes = poll_fn(|context| {
        let is_ready = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    });
    let input_ends = async {
        if !owned {
            std::future::pending::<()>().await;
        }
        let mut input = tokio::io::stdin();
        let mut buffer = [0; 64];
        while matches!(input.read(&mut buffer).await, Ok(count) if count > 0) {}
    };
    tokio::select! {
        () = comes => {}
        () = input_ends => {}
    }
}

/// Whether this process was started with a signal ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal.as_raw() - 1) != 0
}
