//! The agent's socket, where programs get the board and send files to be read ahead.

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
use super::core::AgentMessage;
use super::read_ahead::fetch::without_kernel_read_ahead;

/// Time within which a program must send its message.
const PATIENCE: Duration = Duration::from_millis(50);

/// The agent's socket and what it hands out.
pub(super) struct AgentSocket {
    pub listener: UnixListener,
    pub memory: OwnedFd,
    pub board: &'static Board,
    pub news: Sender<AgentMessage<File>>,
}

impl AgentSocket {
    /// Serves programs one after the other until the agent has ended.
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

    fn welcome(&self, program: UnixStream) -> std::io::Result<Option<AgentMessage<File>>> {
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
        let received =
            net::recvmsg(&program, &mut [IoSliceMut::new(&mut message)], &mut rights, flags)?;
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
                // The program's descriptor is closed before the program continues: it may hold
                // locks that end with it.
                Some(AgentMessage::File {
                    seat: u32::from_le_bytes(seat) as usize,
                    file: file.and_then(open_again),
                })
            }
            (HELLO, 1) => {
                // A process that the agent cannot see does not keep it running.
                let process = Pid::from_raw(peer.process.cast_signed());
                let process =
                    process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
                Some(AgentMessage::Hello { program, process })
            }
            (STATUS, 1) => Some(AgentMessage::Status(program)),
            _ => None,
        })
    }

    /// Sends the board's memory and the process id of the program in the agent's namespace. The id
    /// is 0 if the program runs in a namespace that the agent cannot see.
    fn give_board(&self, program: &UnixStream, number: u32) -> std::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = net::SendAncillaryBuffer::new(&mut space);
        let files = [std::os::fd::AsFd::as_fd(&self.memory)];
        rights.push(SendAncillaryMessage::ScmRights(&files));
        net::sendmsg(
            program,
            &[IoSlice::new(&number.to_le_bytes())],
            &mut rights,
            net::SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }
}

/// The same file with flags, position and read-ahead state of its own.
fn open_again(file: OwnedFd) -> Option<File> {
    // Without NONBLOCK, opening a pipe, or a file with a lease, would wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let again =
        rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty())
            .ok()?;
    let again = File::from(again);
    let is_file = again.metadata().is_ok_and(|found| found.is_file());
    is_file.then(|| without_kernel_read_ahead(again))
}
