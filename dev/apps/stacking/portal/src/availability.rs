//! Whether the cluster answers, for `/availability`, which needs no account.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::cluster_api::{ClusterApi, ClusterError};

/// An answer about the cluster holds for this time.
const NOTE_TIME: Duration = Duration::from_secs(10);
/// The cluster answers within this time, or counts as away.
const ASK_DEADLINE: Duration = Duration::from_secs(5);

/// Whether the cluster answers, as it was found out last: everybody may ask for that, and the
/// cluster is not asked each time.
#[derive(Default)]
pub struct Availability(Mutex<Option<(Instant, &'static str)>>);

impl Availability {
    /// The note, without causes: they may name files and addresses.
    pub async fn note(&self, cluster: &ClusterApi) -> &'static str {
        // Others wait for this answer.
        let mut known = self.0.lock().await;
        if let Some((at, note)) = *known
            && at.elapsed() < NOTE_TIME
        {
            return note;
        }
        let asked = timeout(ASK_DEADLINE, cluster.find("astroportal-availability")).await;
        let note = match asked {
            Ok(Ok(_)) => "jobs are accepted, and the cluster answers",
            Ok(Err(ClusterError::Token)) => {
                "jobs are accepted, and wait: the cluster refuses the portal's token"
            }
            Ok(Err(_)) | Err(_) => "jobs are accepted, and wait: the cluster does not answer",
        };
        *known = Some((Instant::now(), note));
        note
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_note_is_kept_and_names_no_file() {
        // Another test may have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let availability = Availability::default();
        let token_file = folder.path().join("secret-place");
        let cluster = ClusterApi::new("http://127.0.0.1:1", token_file.clone()).unwrap();
        let note = availability.note(&cluster).await;
        assert!(note.ends_with("the cluster does not answer"), "{note}");
        *availability.0.lock().await = Some((Instant::now(), "kept"));
        assert_eq!(availability.note(&cluster).await, "kept");
    }
}
