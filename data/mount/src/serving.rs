//! The threads that serve the kernel's requests to a mount.

use std::io;
use std::mem;
use std::thread;

use fuser::{Filesystem, Session};
use tokio::task::{JoinHandle, spawn_blocking};

/// Serves the kernel until the folder is unmounted.
///
/// When a session of `fuser` ends, it unmounts the folder once more. By then, that would be what
/// was mounted there before, or has been since. So its object that does this is never dropped.
///
/// # Errors
/// If no thread can be started. Then the folder is unmounted.
pub fn serve(
    session: Session<impl Filesystem + 'static>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let mut background = session.spawn()?;
    let serving = mem::replace(&mut background.guard, thread::spawn(|| Ok(())));
    mem::forget(background);
    let panicked = |_| Err(io::Error::other("a thread of the mount has panicked"));
    Ok(spawn_blocking(move || serving.join().unwrap_or_else(panicked)))
}
