//! A pause of microseconds. The timers of the async runtime have a resolution of 1 ms, in which a
//! fast program reads several full pipes.

use std::io::{self, ErrorKind};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// A timer of the system.
pub(super) struct Pause {
    /// Can be read once the time is over, as a pipe can be read once there is content.
    timer: Receiver,
    is_running: bool,
}

impl Pause {
    /// A timer that does not run.
    ///
    /// # Errors
    /// If this process may not open more files.
    pub fn new() -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        Ok(Pause { timer: Receiver::from_owned_fd_unchecked(timer)?, is_running: false })
    }

    /// Begins a pause, which must not be zero. A pause that has begun before is replaced.
    ///
    /// # Errors
    /// If the system refuses the time.
    pub fn begin(&mut self, pause: Duration) -> io::Result<()> {
        let it_value =
            Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval, it_value },
        )?;
        self.is_running = true;
        Ok(())
    }

    /// Waits until the pause has ended; does not wait if none has begun. The future may be dropped
    /// and the method called again.
    ///
    /// # Errors
    /// If the timer cannot be read.
    pub async fn ended(&mut self) -> io::Result<()> {
        while self.is_running {
            self.timer.readable().await?;
            match self.timer.try_read(&mut [0; 8]) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                expired => self.is_running = expired? == 0,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_pause_ends_once() {
        let mut pause = Pause::new().unwrap();
        pause.ended().await.unwrap();
        for _ in 0..3 {
            let began = Instant::now();
            pause.begin(Duration::from_micros(300)).unwrap();
            drop(pause.ended());
            pause.ended().await.unwrap();
            assert!(began.elapsed() >= Duration::from_micros(300));
            pause.ended().await.unwrap();
        }
    }
}
