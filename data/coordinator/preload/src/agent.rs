//! Connection to the node's agent: a socket over which the board arrives once, and over which files
//! are sent that the agent wants to read.

use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::{IoSlice, IoSliceMut};

use eyas_board::{Board, GIVE_BOARD, Peer, TAKE_FILE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net;
use rustix::time::{ClockId, clock_gettime};

use crate::environment::{ALWAYS, CLASS, SOCKET};
use crate::next_symbol::preserving_errno;

/// An agent that does not answer within this time is taken to be gone.
const PATIENCE: Duration = Duration::from_millis(200);
/// Interval between attempts to find an agent.
const RETRY_MS: u64 = 1_000;

static BOARD: AtomicPtr<Board> = AtomicPtr::new(ptr::null_mut());
static NEXT_TRY_MS: AtomicU64 = AtomicU64::new(0);
/// This process's id, in its own namespace and in the agent's. A forked process finds its parent's
/// here.
static OWN_NUMBER: AtomicU32 = AtomicU32::new(0);
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Number of the program's job class.
pub(crate) fn class() -> u32 {
    CLASS.get().and_then(|number| number.to_str().ok()?.parse().ok()).unwrap_or(0)
}

/// Whether the program asks for every turn, also at bypassed storages.
pub(crate) fn must_order() -> bool {
    ALWAYS.get().is_some()
}

/// Monotonic time in milliseconds, the same in all processes of a node.
pub(crate) fn now_ms() -> u64 {
    now_us() / 1_000
}

/// Monotonic time in microseconds.
pub(crate) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

/// Replacement for the agent's heartbeat while no agent is known: a number that changes eight times
/// a second, from the cheapest clock.
pub(crate) fn own_heartbeat() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 8 + now.tv_nsec as u64 / 125_000_000
}

/// The board, whether its agent is alive or not.
#[inline]
pub(crate) fn known_board() -> Option<&'static Board> {
    // SAFETY: null, or the result of `eyas_board::map`, which is valid forever.
    unsafe { BOARD.load(Ordering::Acquire).as_ref() }
}

/// The board, if requests are ordered now. Without a board, or with a dead agent, it looks for an
/// agent every second.
pub(crate) fn board() -> Option<&'static Board> {
    let now_ms = now_ms();
    if let Some(board) = known_board().filter(|board| board.is_alive(now_ms)) {
        return Some(board).filter(|board| board.is_open(now_ms));
    }
    let next = NEXT_TRY_MS.load(Ordering::Relaxed);
    let is_due = now_ms >= next
        && NEXT_TRY_MS
            .compare_exchange(next, now_ms + RETRY_MS, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
    let board = if is_due { attach() } else { None }?;
    BOARD.store(ptr::from_ref(board).cast_mut(), Ordering::Release);
    Some(board).filter(|board| board.is_open(now_ms))
}

/// This process's id in the agent's namespace, or 0 if it has none there.
pub(crate) fn process() -> u32 {
    let own = own_number();
    if OWN_NUMBER.load(Ordering::Acquire) != own {
        let number = introduce().map_or(0, |(_, number)| number);
        NUMBER.store(number, Ordering::Relaxed);
        OWN_NUMBER.store(own, Ordering::Release);
    }
    NUMBER.load(Ordering::Relaxed)
}

/// Whether this process was forked from the one that knows the agent, and has not contacted the
/// agent itself.
pub(crate) fn is_forked() -> bool {
    let known = OWN_NUMBER.load(Ordering::Acquire);
    known != 0 && known != own_number()
}

fn own_number() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// Sends a file to the agent, for the request at this seat.
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
    eyas_board::map_for_program(memory).ok()
}

/// Asks the agent for the board's memory and for this process's id.
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
    let socket =
        net::socket_with(net::AddressFamily::UNIX, net::SocketType::STREAM, flags, None).ok()?;
    net::connect(&socket, &address).ok()?;
    // The agent receives the program's open files, so it must be trusted.
    let agent = preserving_errno(|| Peer::of(&socket)).ok()?;
    agent.is_trusted().then_some(socket)
}
