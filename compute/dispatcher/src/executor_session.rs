//! A session with an executor: what it says goes to the core, what the core posts goes to it.

use eyas_session::{KeyAndCertificate, Session, SessionError, TrustWatch, WeakOutbox, outbox};
use eyas_types::access::Principal;
use eyas_wire::executor::{FromExecutor, ToExecutor};
use eyas_wire::trust::{SecretText, TrustRefusal};
use tokio::sync::{mpsc, oneshot};

use crate::dispatcher_core::CoreMessage;
use crate::keys::Keys;

/// A change of free disk by less than one part in this many is no news.
const DISK_NEWS: u64 = 256;

/// Serves one executor until its connection ends.
pub(crate) async fn serve(
    session: Session,
    core: mpsc::Sender<CoreMessage>,
    keys: &Keys,
) -> Result<(), SessionError> {
    let Session { mut reader, mut writer, remote, mut trust, minor, .. } = session;
    if !matches!(trust.holder(), Principal::Key(_, role) if role.is_of_nodes()) {
        let why = format!(
            "{} is not permitted to be an executor: start it with an access file for executors, \
             which an admin makes with `eyas access show --role executor -o FILE`",
            trust.holder()
        );
        writer.send(&[ToExecutor::Refused(why)]).await?;
        writer.close().await;
        return Ok(());
    }
    let mut first = reader.next::<FromExecutor>().await?.into_iter();
    let Some(FromExecutor::Register(registration)) = first.next() else {
        return Err(SessionError::Protocol {
            address: remote.to_string(),
            why: "it did not register".into(),
        });
    };
    // It was checked where the executor was started; by another eyas than this one, if it does not
    // compile here.
    let accept = registration.accept.as_deref().map_or(Ok(Box::default()), eyas_matching::accept);
    let accept = accept
        .map_err(|e| SessionError::Protocol { address: remote.to_string(), why: e.to_string() })?;
    let (outbox, send) = outbox::<ToExecutor>(writer);
    let (reply, id) = oneshot::channel();
    let (to_answer, to_tell) = (outbox.downgrade(), outbox.downgrade());
    // If the core is gone, the dispatcher is ending.
    let _ = core.send(CoreMessage::Joined { registration, minor, accept, outbox, reply }).await;
    let Ok((executor, sign_of_life)) = id.await else { return Ok(()) };
    let receive = async {
        let mut news = DiskNews::default();
        let mut messages: Vec<_> = first.collect();
        loop {
            // The answer lets outputs appear for some time. There is none if the executor was given
            // up.
            if news.has_none(&messages) && sign_of_life.note() {
                let _ = to_answer.put(vec![ToExecutor::Heard]).await;
            } else if core.send(CoreMessage::Messages { executor, messages }).await.is_err() {
                return Ok(());
            }
            messages = reader.next().await?;
        }
    };
    // Receiving is polled first, so that a heartbeat is answered at once. The session ends when one
    // of these ends. Sending ends when the core has dropped the executor's outbox.
    let ended = tokio::select! {
        biased;
        ended = receive => ended,
        ended = send => ended,
        refusal = keep_current(&mut trust, to_tell, keys) => {
            tracing::warn!(%executor, ?refusal, "its key is no longer accepted");
            Err(SessionError::Ended {
                address: remote.to_string(),
                why: "its key is no longer accepted".into(),
            })
        }
    };
    let _ = core.send(CoreMessage::Gone { executor }).await;
    ended
}

/// What the core was last told of the executor's free disk, bytes.
#[derive(Default)]
struct DiskNews(Option<u64>);

impl DiskNews {
    /// Whether messages are a heartbeat that tells the core nothing new. If not, the core is told
    /// all of them.
    fn has_none(&mut self, messages: &[FromExecutor]) -> bool {
        if let ([FromExecutor::Heartbeat { free_disk_bytes }], Some(told_bytes)) =
            (messages, self.0)
            && free_disk_bytes.abs_diff(told_bytes) <= told_bytes / DISK_NEWS
        {
            return true;
        }
        for message in messages {
            if let FromExecutor::Heartbeat { free_disk_bytes } = message {
                self.0 = Some(*free_disk_bytes);
            }
        }
        false
    }
}

/// Has an executor know what is trusted and gives it a new key in time, until its key is no longer
/// accepted.
async fn keep_current(
    trust: &mut TrustWatch,
    outbox: WeakOutbox<ToExecutor>,
    keys: &Keys,
) -> TrustRefusal {
    let mut told = keys.for_nodes();
    loop {
        let now = told.borrow_and_update().clone();
        match keys.successor(trust.holder()) {
            Ok(Some((holder, KeyAndCertificate { certificate, key }))) => {
                let _ =
                    outbox.put(vec![ToExecutor::Key { certificate, key: SecretText(key) }]).await;
                // It has what it needs to prove itself once this session is over.
                trust.becomes(holder);
            }
            Ok(None) => {}
            Err(e) => tracing::error!("an executor cannot be given a new key: {e}"),
        }
        // If the connection has ended, so does the session.
        let _ = outbox.put(vec![ToExecutor::Trust(Box::new((*now).clone()))]).await;
        tokio::select! {
            changed = told.changed() => if changed.is_err() {
                return std::future::pending().await;
            },
            refusal = trust.ends() => {
                let is_exchanged = matches!(keys.successor(trust.holder()), Ok(Some(_)));
                if !is_exchanged {
                    return refusal;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_heartbeat_alone_with_about_the_same_free_disk_is_no_news() {
        let heartbeat = |free_disk_bytes| FromExecutor::Heartbeat { free_disk_bytes };
        let mut news = DiskNews::default();
        assert!(!news.has_none(&[]));
        assert!(!news.has_none(&[heartbeat(256_000)]), "the first one");
        assert!(news.has_none(&[heartbeat(256_000)]) && news.has_none(&[heartbeat(257_000)]));
        assert!(!news.has_none(&[FromExecutor::Retiring, heartbeat(257_000)]));
        assert!(!news.has_none(&[heartbeat(255_000)]) && news.has_none(&[heartbeat(255_000)]));
    }
}
