//! A session with an executor: what it says goes to the core, what the core posts goes to it.

use eyas_session::{Certified, Session, SessionError, TrustWatch, WeakOutbox, outbox};
use eyas_types::access::Principal;
use eyas_wire::executor::{FromExecutor, ToExecutor};
use eyas_wire::trust::{SecretText, TrustRefusal};
use tokio::sync::{mpsc, oneshot};

use crate::dispatcher_core::CoreMessage;
use crate::keys::Keys;

/// Serves one executor until its connection ends.
pub(crate) async fn serve(session: Session, core: mpsc::Sender<CoreMessage>, keys: &Keys) -> Result<(), SessionError> {
    let Session { mut reader, mut writer, remote, mut standing, .. } = session;
    if !matches!(standing.holder(), Principal::Key(_, role) if role.is_of_nodes()) {
        let why = format!(
            "{} is not permitted to be an executor: start it with an access file for executors, \
             which an admin makes with `eyas access show --role executor -o FILE`",
            standing.holder()
        );
        writer.send(&[ToExecutor::Refused(why)]).await?;
        writer.close().await;
        return Ok(());
    }
    let mut first = reader.next::<FromExecutor>().await?.into_iter();
    let Some(FromExecutor::Register(registration)) = first.next() else {
        return Err(SessionError::Protocol { address: remote.to_string(), why: "it did not register".into() });
    };
    // It was checked where the executor was started; by another eyas than this one, if it does not compile here.
    let accept = registration.accept.as_deref().map_or(Ok(Box::default()), eyas_matching::accept);
    let accept = accept.map_err(|e| SessionError::Protocol { address: remote.to_string(), why: e.to_string() })?;
    let (outbox, send) = outbox::<ToExecutor>(writer);
    let (reply, id) = oneshot::channel();
    let to_tell = outbox.downgrade();
    // If the core is gone, the dispatcher is ending.
    let _ = core.send(CoreMessage::Joined { registration, accept, outbox, reply }).await;
    let Ok(executor) = id.await else { return Ok(()) };
    let receive = async {
        let rest: Vec<_> = first.collect();
        let _ = core.send(CoreMessage::Said { executor, messages: rest }).await;
        loop {
            let messages = reader.next().await?;
            if core.send(CoreMessage::Said { executor, messages }).await.is_err() {
                return Ok(());
            }
        }
    };
    // Ends when one does; sending ends when the core has dropped the executor's outbox.
    let ended = tokio::select! {
        ended = receive => ended,
        ended = send => ended,
        refusal = keep_current(&mut standing, to_tell, keys) => {
            tracing::warn!(%executor, ?refusal, "its key is no longer accepted");
            Err(SessionError::Ended { address: remote.to_string(), why: "its key is no longer accepted".into() })
        }
    };
    let _ = core.send(CoreMessage::Gone { executor }).await;
    ended
}

/// Has an executor know what is trusted and gives it a new key in time, until its key is no longer accepted.
async fn keep_current(standing: &mut TrustWatch, outbox: WeakOutbox<ToExecutor>, keys: &Keys) -> TrustRefusal {
    let mut trust = keys.for_nodes();
    loop {
        let now = trust.borrow_and_update().clone();
        match keys.successor(standing.holder()) {
            Ok(Some((holder, Certified { certificate, key }))) => {
                let _ = outbox.put(vec![ToExecutor::Key { certificate, key: SecretText(key) }]).await;
                // It has what it needs to prove itself once this session is over.
                standing.becomes(holder);
            }
            Ok(None) => {}
            Err(e) => tracing::error!("an executor cannot be given a new key: {e}"),
        }
        // If the connection has ended, so does the session.
        let _ = outbox.put(vec![ToExecutor::Trust(Box::new((*now).clone()))]).await;
        tokio::select! {
            changed = trust.changed() => if changed.is_err() {
                return std::future::pending().await;
            },
            refusal = standing.ends() => {
                let is_exchanged = matches!(keys.successor(standing.holder()), Ok(Some(_)));
                if !is_exchanged {
                    return refusal;
                }
            }
        }
    }
}
