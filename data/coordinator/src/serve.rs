//! The coordinator: grants turns to all agents that share storages.
//!
//! It has no state that must survive. When it ends, agents proceed without it; when it is back,
//! they ask again.

use eyas_ioq::ClientId;
use eyas_session::{
    Access, Listener, Outbox, Session, SessionAcceptor, SessionError, dial, outbox,
};
use eyas_wire::Role;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::protocol::{
    HEARTBEAT_TIMEOUT, IoStatus, MINOR_OF_CONFIGS, StorageConfigs, ToAgent, ToCoordinator,
};
use crate::rules::Rules;
use crate::serve::core::{CoordinatorCore, CoordinatorMessage};

pub(crate) mod core;
mod known_storages;

/// Messages from agents that wait to be handled; then agents wait.
const MAX_WAITING: usize = 1 << 14;

/// Status of the coordinator with this access file, and the configuration of its storages. An
/// earlier version of the coordinator tells no configuration.
///
/// # Errors
/// If it cannot be reached.
pub async fn status(access: &Access) -> Result<(IoStatus, StorageConfigs), SessionError> {
    let Session { mut reader, mut writer, minor, .. } = dial(access, Role::Client).await?;
    if minor >= MINOR_OF_CONFIGS {
        writer.send(&[ToCoordinator::Configs]).await?;
    }
    writer.send(&[ToCoordinator::Status]).await?;
    let mut configs = StorageConfigs::default();
    loop {
        for message in reader.next().await? {
            match message {
                ToAgent::Configs(told) => configs = told,
                ToAgent::Status(status) => return Ok((status, configs)),
                _ => {}
            }
        }
    }
}

/// Serves agents until the future is dropped.
pub async fn serve(listener: TcpListener, access: &Access, rules: Rules) {
    let (tell, told) = mpsc::channel(MAX_WAITING);
    let mut tasks = JoinSet::new();
    tasks.spawn(CoordinatorCore::new(rules).run(told));
    accept(
        Listener::new(
            listener,
            SessionAcceptor::new(access, Role::Coordinator),
            "the coordinator's port",
        ),
        tell,
    )
    .await;
}

async fn accept(listener: Listener, tell: mpsc::Sender<CoordinatorMessage<Outbox<ToAgent>>>) {
    let mut connections = JoinSet::new();
    let mut last = 0;
    loop {
        while connections.try_join_next().is_some() {}
        let greeting = listener.next().await;
        last += 1;
        let (client, tell) = (ClientId(last), tell.clone());
        connections.spawn(async move {
            let ended = match greeting.await {
                Ok((session, role @ (Role::Agent | Role::Client))) => {
                    listen(client, session, role, tell).await
                }
                Ok((session, role)) => {
                    let remote = &session.remote;
                    return tracing::debug!(
                        %remote, ?role,
                        "refused a peer that is neither an agent nor a client"
                    );
                }
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::debug!("{error}");
            }
        });
    }
}

/// Passes on what an agent sends, until the agent disconnects or is silent.
async fn listen(
    client: ClientId,
    session: Session,
    role: Role,
    tell: mpsc::Sender<CoordinatorMessage<Outbox<ToAgent>>>,
) -> Result<(), SessionError> {
    let Session { mut reader, writer, .. } = session;
    let (outbox, send) = outbox::<ToAgent>(writer);
    let mut sending = JoinSet::new();
    sending.spawn(async move { drop(send.await) });
    // The core lasts as long as the connections.
    let _ = tell.send(CoordinatorMessage::Connected(client, outbox, role)).await;
    let ended = loop {
        match timeout(HEARTBEAT_TIMEOUT, reader.next()).await {
            Ok(Ok(messages)) => {
                for message in messages {
                    let _ = tell.send(CoordinatorMessage::Received(client, message)).await;
                }
            }
            Ok(Err(error)) => break Err(error),
            Err(_) => {
                tracing::info!(?client, "an agent is silent; its session is closed");
                break Ok(());
            }
        }
    };
    let _ = tell.send(CoordinatorMessage::Disconnected(client)).await;
    ended
}
