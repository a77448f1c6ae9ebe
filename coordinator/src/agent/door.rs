//! Where programs come to the agent: they get the board, and give it files to read.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::Sender;
use std::time::Duration;

use eyas_board::{Board, GIVE_BOARD, HELLO, Peer, TAKE_FILE, ring};
use rustix::fs::{Mode, OFlags};
use rustix::net::{self, RecvAncillaryMessage, SendAncillaryMessage};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::STATUS;
use super::brain::News;

/// Who says nothing for so long after it has come is shut out.
const PATIENCE: Duration = Duration::from_millis(50);

/// The agent's socket.
pub(super) struct Door {
    pub listener: UnixListener,
    pub memory: OwnedFd,
    pub board: &'static Board,
    pub news: Sender<News>,
}

impl Door {
    /// Lets programs in, one after the other, until the agent has gone.
    pub fn keep(self) {
        for program in self.listener.incoming() {
            let Ok(news) = program.and_then(|program| self.welcome(program)) else { continue };
            if let Some(news) = news {
                if self.news.send(news).is_err() {
                    return;
                }
                ring(&self.board.agent.bell);
            }
        }
    }

    fn welcome(&self, program: UnixStream) -> std::io::Result<Option<News>> {
        let peer = Peer::of(&program)?;
        if !peer.is_trusted() {
            return Ok(None);
        }
        program.set_read_timeout(Some(PATIENCE))?;
        program.set_write_timeout(Some(PATIENCE))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = net::RecvAncillaryBuffer::new(&mut space);
        let mut message = [0; 5];
        let flags = net::RecvFlags::CMSG_CLOEXEC;
        let received = net::recvmsg(&program, &mut [IoSliceMut::new(&mut message)], &mut rights, flags)?;
        let file = rights.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        Ok(match (message[0], received.bytes) {
            (GIVE_BOARD, 1) => {
                self.give_board(&program, peer.process)?;
                None
            }
            (TAKE_FILE, 5) => {
                let [_, seat @ ..] = message;
                // The program's own descriptor is closed before it is answered: it may hold locks that end with it.
                Some(News::File { seat: u32::from_le_bytes(seat) as usize, file: file.and_then(open_again) })
            }
            (HELLO, 1) => {
                // One that it cannot see does not keep it.
                let process = Pid::from_raw(peer.process.cast_signed());
                let process = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
                Some(News::Hello { program, process })
            }
            (STATUS, 1) => Some(News::Status(program)),
            _ => None,
        })
    }

    /// With the number by which the agent knows the program. There is none if it lives in another namespace of processes, which
    /// the agent cannot look into.
    fn give_board(&self, program: &UnixStream, number: u32) -> std::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = net::SendAncillaryBuffer::new(&mut space);
        let files = [std::os::fd::AsFd::as_fd(&self.memory)];
        rights.push(SendAncillaryMessage::ScmRights(&files));
        net::sendmsg(program, &[IoSlice::new(&number.to_le_bytes())], &mut rights, net::SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// The same file, with flags, position and read-ahead of its own.
fn open_again(file: OwnedFd) -> Option<File> {
    // A pipe would be waited for, and a lease that somebody has on it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let again = rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty()).ok()?;
    Some(File::from(again)).filter(|again| again.metadata().is_ok_and(|found| found.is_file()))
}
