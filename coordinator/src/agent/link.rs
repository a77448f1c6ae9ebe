//! The agent's session with the coordinator: a thread of its own, which dials until there is one, and again when it is lost.

use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use eyas_board::{Board, ring};
use eyas_session::{Access, Session, SessionError, dial};
use eyas_wire::Role;
use tokio::sync::mpsc;
use tokio::time::{interval, sleep, timeout};

use super::brain::News;
use crate::protocol::{BEAT, SILENCE, ToAgent, ToCoordinator};

/// Between two tries to reach the coordinator.
const REDIAL: Duration = Duration::from_millis(500);
/// Of what is to be said, so much is said together.
const MAX_TOGETHER: usize = 1 << 10;

/// Where the agent puts what it has to say. What can wait there is bounded by what the agent has under way.
pub(super) type Say = mpsc::UnboundedSender<ToCoordinator>;

/// Keeps a session with the coordinator as long as the agent lives.
pub(super) fn keep(access: Access, board: &'static Board, news: Sender<News>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tell = move |what: News| {
        let is_there = news.send(what).is_ok();
        ring(&board.head.bell);
        is_there
    };
    let keep = async move {
        loop {
            if let Ok(session) = dial(&access, Role::Agent).await {
                let (say, said) = mpsc::unbounded_channel();
                tell(News::Linked(Some(say)));
                if let Err(error) = carry(session, said, &tell).await {
                    tracing::info!("the coordinator is lost: {error}");
                }
                if !tell(News::Linked(None)) {
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
    tell: &impl Fn(News) -> bool,
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
            if !tell(News::Coordinator(messages?)) {
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
