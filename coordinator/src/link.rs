//! A session with the coordinator: a thread of its own, which dials until there is one, and again when it is lost.

use std::thread;
use std::time::Duration;

use eyas_session::{Access, Session, SessionError, dial};
use eyas_wire::Role;
use tokio::sync::mpsc;
use tokio::time::{interval, sleep, timeout};

use crate::protocol::{BEAT, SILENCE, ToAgent, ToCoordinator};

/// Between two tries to reach the coordinator.
const REDIAL: Duration = Duration::from_millis(500);
/// Of what is to be said, so much is said together.
const MAX_TOGETHER: usize = 1 << 10;

/// Where is put what there is to say. What can wait there is bounded by what is under way.
pub(crate) type Say = mpsc::UnboundedSender<ToCoordinator>;

/// What comes of a session.
pub(crate) enum Heard {
    /// The coordinator has been reached, or lost.
    Linked(Option<Say>),
    /// It has said this.
    Said(Vec<ToAgent>),
}

/// Keeps a session with the coordinator until nobody listens any more: `tell` says whether somebody does.
pub(crate) fn keep(access: Access, tell: impl Fn(Heard) -> bool + Send + Sync + 'static) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let keep = async move {
        loop {
            if let Ok(session) = dial(&access, Role::Agent).await {
                let (say, said) = mpsc::unbounded_channel();
                tell(Heard::Linked(Some(say)));
                if let Err(error) = carry(session, said, &tell).await {
                    tracing::info!("the coordinator is lost: {error}");
                }
                if !tell(Heard::Linked(None)) {
                    return;
                }
            }
            sleep(REDIAL).await;
        }
    };
    thread::Builder::new().name("link".to_owned()).spawn(move || runtime.block_on(keep))?;
    Ok(())
}

/// Carries words both ways until one of the two has gone, or says nothing any more.
async fn carry(
    session: Session,
    mut said: mpsc::UnboundedReceiver<ToCoordinator>,
    tell: &impl Fn(Heard) -> bool,
) -> Result<(), SessionError> {
    let Session { mut reader, mut writer, .. } = session;
    let speak = async {
        let (mut together, mut beat) = (Vec::new(), interval(BEAT));
        loop {
            tokio::select! {
                _ = said.recv_many(&mut together, MAX_TOGETHER) => {}
                _ = beat.tick() => together.push(ToCoordinator::Alive),
            }
            writer.send(&together).await?;
            together.clear();
        }
    };
    let listen = async {
        while let Ok(messages) = timeout(SILENCE, reader.next::<ToAgent>()).await {
            if !tell(Heard::Said(messages?)) {
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
