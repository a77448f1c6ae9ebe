//! The way to the node's agent: a socket, over which the board comes once, and the agent is given files that it wants to read.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use eyas_board::{Board, GIVE_BOARD, Peer, TAKE_FILE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net;
use rustix::time::{ClockId, clock_gettime};

use crate::environment::{ALWAYS, CLASS, SOCKET};
use crate::next::with_errno_kept;

/// An agent that does not answer for so long is not there.
const PATIENCE: Duration = Duration::from_millis(200);
/// How often one that is not there is looked for.
const RETRY_MS: u64 = 1_000;

static BOARD: AtomicPtr<Board> = AtomicPtr::new(ptr::null_mut());
static NEXT_TRY_MS: AtomicU64 = AtomicU64::new(0);
/// This process, as it knows itself and as the agent does. A forked one finds its parent's here.
static OWN_NUMBER: AtomicU32 = AtomicU32::new(0);
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The number of the class that the program's requests are of.
pub(crate) fn class() -> u32 {
    CLASS.get().and_then(|number| number.to_str().ok()?.parse().ok()).unwrap_or(0)
}

/// Whether the program asks for every turn, though nothing is gained by it.
pub(crate) fn insists() -> bool {
    ALWAYS.get().is_some()
}

/// Milliseconds of the clock that all processes of a node share.
pub(crate) fn now_ms() -> u64 {
    now_us() / 1_000
}

/// The same in microseconds.
pub(crate) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

/// What passes for the agent's beat while none is known, about as often; the clock's cheapest time will do.
pub(crate) fn own_beat() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 8 + now.tv_nsec as u64 / 125_000_000
}

/// The board, whether its agent is alive or not.
#[inline]
pub(crate) fn known_board() -> Option<&'static Board> {
    // SAFETY: null, or what `attach` got from `eyas_board::map`, which lasts.
    unsafe { BOARD.load(Ordering::Acquire).as_ref() }
}

/// The board, if requests are ordered now. It is looked for when there is none, or none that is alive, every now and then.
pub(crate) fn board() -> Option<&'static Board> {
    let now_ms = now_ms();
    if let Some(board) = known_board().filter(|board| board.is_alive(now_ms)) {
        return Some(board).filter(|board| board.is_open(now_ms));
    }
    let next = NEXT_TRY_MS.load(Ordering::Relaxed);
    let is_due = now_ms >= next
        && NEXT_TRY_MS.compare_exchange(next, now_ms + RETRY_MS, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    let board = if is_due { attach() } else { None }?;
    BOARD.store(ptr::from_ref(board).cast_mut(), Ordering::Release);
    Some(board).filter(|board| board.is_open(now_ms))
}

/// What the agent knows this process by: its number in the agent's namespace of processes, or 0 if it has none there.
pub(crate) fn process() -> u32 {
    let own = own_number();
    if OWN_NUMBER.load(Ordering::Acquire) != own {
        let number = introduce().map_or(0, |(_, number)| number);
        NUMBER.store(number, Ordering::Relaxed);
        OWN_NUMBER.store(own, Ordering::Release);
    }
    NUMBER.load(Ordering::Relaxed)
}

/// Whether this process was forked from the one that has come to the agent, and has not come itself.
pub(crate) fn is_forked() -> bool {
    let known = OWN_NUMBER.load(Ordering::Acquire);
    known != 0 && known != own_number()
}

fn own_number() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// Sends the agent a file, for the request at that seat.
pub(crate) fn send_file(seat: usize, file: BorrowedFd<'_>) -> Option<()> {
    let mut message = [TAKE_FILE, 0, 0, 0, 0];
    message[1..].copy_from_slice(&u32::try_from(seat).ok()?.to_le_bytes());
    let socket = connect()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = net::SendAncillaryBuffer::new(&mut space);
    let files = [file];
    rights.push(net::SendAncillaryMessage::ScmRights(&files)).then_some(())?;
    net::sendmsg(&socket, &[IoSlice::new(&message)], &mut rights, net::SendFlags::NOSIGNAL).ok()?;
    Some(())
}

fn attach() -> Option<&'static Board> {
    let (memory, number) = introduce()?;
    NUMBER.store(number, Ordering::Relaxed);
    OWN_NUMBER.store(own_number(), Ordering::Release);
    eyas_board::map(memory).ok()
}

/// Comes to the agent, and is given the memory of the board, and its number.
fn introduce() -> Option<(OwnedFd, u32)> {
    let socket = connect()?;
    net::send(&socket, &[GIVE_BOARD], net::SendFlags::NOSIGNAL).ok()?;
    let timeout = Timespec { tv_sec: 0, tv_nsec: PATIENCE.as_nanos() as i64 };
    poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout)).ok()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = net::RecvAncillaryBuffer::new(&mut space);
    let (mut number, flags) = ([0; 4], net::RecvFlags::CMSG_CLOEXEC);
    net::recvmsg(&socket, &mut [IoSliceMut::new(&mut number)], &mut rights, flags).ok()?;
    let memory = rights.drain().find_map(|message| match message {
        net::RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    })?;
    Some((memory, u32::from_le_bytes(number)))
}

fn connect() -> Option<OwnedFd> {
    let address = net::SocketAddrUnix::new(SOCKET.get()?).ok()?;
    let flags = net::SocketFlags::CLOEXEC | net::SocketFlags::NONBLOCK;
    let socket = net::socket_with(net::AddressFamily::UNIX, net::SocketType::STREAM, flags, None).ok()?;
    net::connect(&socket, &address).ok()?;
    // It is given the program's open files.
    let agent = with_errno_kept(|| Peer::of(&socket)).ok()?;
    agent.is_trusted().then_some(socket)
}
