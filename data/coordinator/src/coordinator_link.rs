//! Session with the coordinator. A thread of its own connects, and connects again when the session
//! is lost.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use eyas_session::{Access, Session, SessionError, dial, own_address};
use eyas_wire::Role;
use tokio::sync::mpsc;
use tokio::time::{interval, sleep, timeout};

use crate::protocol::{
    HEARTBEAT, HEARTBEAT_TIMEOUT, MINOR_OF_LAYOUTS, MINOR_OF_SHARED, ToAgent, ToCoordinator,
};

/// Interval between attempts to connect.
const REDIAL: Duration = Duration::from_millis(500);
/// Messages that are sent together.
const MAX_TOGETHER: usize = 1 << 10;

/// Sends messages to the coordinator. The queue is bounded by the requests under way.
pub(crate) type LinkSender = mpsc::UnboundedSender<ToCoordinator>;

/// A session with the coordinator.
pub(crate) struct CoordinatorLink {
    pub sender: LinkSender,
    /// Whether the coordinator names other agents that have parts of files.
    pub can_share: bool,
    /// Whether the coordinator knows layouts of files.
    pub has_layouts: bool,
    /// The address at which other nodes reach this one.
    pub own: IpAddr,
}

/// Event of the session.
pub(crate) enum LinkEvent {
    /// The coordinator was connected (`Some`) or lost (`None`).
    Changed(Option<CoordinatorLink>),
    /// The coordinator has sent these messages.
    Received(Vec<ToAgent>),
}

/// Keeps a session with the coordinator until `tell` returns false.
pub(crate) fn keep(
    access: Access,
    tell: impl Fn(LinkEvent) -> bool + Send + Sync + 'static,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let keep = async move {
        loop {
            if let Ok(session) = dial(&access, Role::Agent).await {
                let (sender, queue) = mpsc::unbounded_channel();
                let can_share = session.minor >= MINOR_OF_SHARED;
                let has_layouts = session.minor >= MINOR_OF_LAYOUTS;
                let local = session.local.ip();
                let is_here = session.is_local || local.is_loopback();
                let own = if is_here { own_address() } else { local };
                let link = CoordinatorLink { sender, can_share, has_layouts, own };
                tell(LinkEvent::Changed(Some(link)));
                if let Err(error) = carry(session, queue, &tell).await {
                    tracing::info!("lost the session with the coordinator: {error}");
                }
                if !tell(LinkEvent::Changed(None)) {
                    return;
                }
            }
            sleep(REDIAL).await;
        }
    };
    thread::Builder::new().name("link".to_owned()).spawn(move || runtime.block_on(keep))?;
    Ok(())
}

/// Carries messages both ways until the session ends or the coordinator is silent.
async fn carry(
    session: Session,
    mut queue: mpsc::UnboundedReceiver<ToCoordinator>,
    tell: &impl Fn(LinkEvent) -> bool,
) -> Result<(), SessionError> {
    let Session { mut reader, mut writer, .. } = session;
    let speak = async {
        let (mut together, mut beat) = (Vec::new(), interval(HEARTBEAT));
        loop {
            tokio::select! {
                _ = queue.recv_many(&mut together, MAX_TOGETHER) => {}
                _ = beat.tick() => together.push(ToCoordinator::Alive),
            }
            writer.send(&together).await?;
            together.clear();
        }
    };
    let listen = async {
        while let Ok(messages) = timeout(HEARTBEAT_TIMEOUT, reader.next::<ToAgent>()).await {
            if !tell(LinkEvent::Received(messages?)) {
                break;
            }
        }
        Ok(())
    };
    tokio::select! {
        spoken = speak => spoken,
        heard = listen => heard,
    }
}
