//! A session with an executor: what it says goes to the brain, what the brain posts goes to it.

use eyas_session::{Session, SessionError, outbox};
use eyas_wire::executor::{FromExecutor, ToExecutor};
use tokio::sync::{mpsc, oneshot};

use crate::brain::Message;

/// Serves one executor until its connection ends.
pub(crate) async fn serve(session: Session, brain: mpsc::Sender<Message>) -> Result<(), SessionError> {
    let Session { mut reader, writer, remote, .. } = session;
    let mut first = reader.next::<FromExecutor>().await?.into_iter();
    let Some(FromExecutor::Register(registration)) = first.next() else {
        return Err(SessionError::Protocol { address: remote.to_string(), why: "it did not register".into() });
    };
    // It was checked where the executor was started; by another eyas than this one, if it does not compile here.
    let accept = registration.accept.as_deref().map_or(Ok(Box::default()), eyas_matching::accept);
    let accept = accept.map_err(|e| SessionError::Protocol { address: remote.to_string(), why: e.to_string() })?;
    let (outbox, send) = outbox::<ToExecutor>(writer);
    let (reply, id) = oneshot::channel();
    // If the brain is gone, the dispatcher is ending.
    let _ = brain.send(Message::Joined { registration, accept, outbox, reply }).await;
    let Ok(executor) = id.await else { return Ok(()) };
    let receive = async {
        let rest: Vec<_> = first.collect();
        let _ = brain.send(Message::Said { executor, messages: rest }).await;
        loop {
            let messages = reader.next().await?;
            if brain.send(Message::Said { executor, messages }).await.is_err() {
                return Ok(());
            }
        }
    };
    // Ends when either does; sending ends when the brain has dropped the executor's outbox.
    let ended = tokio::select! {
        ended = receive => ended,
        ended = send => ended,
    };
    let _ = brain.send(Message::Gone { executor }).await;
    ended
}
