//! Interrupts by Ctrl-C or a signal, for all commands that wait.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::watch;

use crate::error::INTERRUPTED;
use crate::print::say;

/// After the first interrupt, the command cleans up and ends; after the second, it ends at once.
#[derive(Clone)]
pub(crate) struct Interrupt {
    is_received: watch::Receiver<bool>,
    final_message: Arc<Mutex<Option<String>>>,
}

impl Interrupt {
    pub fn listen() -> Self {
        let (sender, is_received) = watch::channel(false);
        let final_message = Arc::<Mutex<Option<String>>>::default();
        let words = final_message.clone();
        let mut signals = Signals::listen();
        tokio::spawn(async move {
            signals.next().await;
            sender.send_replace(true);
            signals.next().await;
            if let Some(words) = words.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                say!("{words}");
            }
            std::process::exit(INTERRUPTED.into());
        });
        Interrupt { is_received, final_message }
    }

    /// Returns after the first interrupt.
    pub async fn received(&mut self) {
        if self.is_received.wait_for(|is_received| *is_received).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Sets the message that is printed if the user ends this command at once.
    pub fn set_final_message(&self, words: Option<String>) {
        *self.final_message.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }
}

/// The signals by which terminals and batch systems end processes.
pub(crate) struct Signals(Vec<unix::Signal>);

impl Signals {
    /// Catches the signals from now on.
    pub fn listen() -> Self {
        let mut kinds = vec![
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::from_raw(Signal::XCPU.as_raw()),
        ];
        // Under `nohup`, the end of the terminal must not end this process.
        if !is_ignored(Signal::HUP) {
            kinds.push(SignalKind::hangup());
        }
        Signals(kinds.into_iter().filter_map(|kind| unix::signal(kind).ok()).collect())
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        poll_fn(|context| {
            let is_ready = self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Waits for a signal to end, or, if `owned`, for the end of standard input.
pub(crate) async fn interrupted(owned: bool) {
    interrupted_by(Signals::listen(), owned).await;
}

/// The same, with signals that are caught already.
pub(crate) async fn interrupted_by(mut signals: Signals, owned: bool) {
    let input_ends = async {
        if !owned {
            std::future::pending::<()>().await;
        }
        let mut input = tokio::io::stdin();
        let mut buffer = [0; 64];
        while matches!(input.read(&mut buffer).await, Ok(count) if count > 0) {}
    };
    tokio::select! {
        () = signals.next() => {}
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
