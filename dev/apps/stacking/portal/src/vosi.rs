//! VOSI 1.1: what the service is, and whether it works.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::admission::PortalUrl;
use crate::cluster_api::{ClusterApi, ClusterError};
use crate::portal::Portal;
use crate::votable_out::xml_text;

/// An answer about the cluster holds for this time.
const NOTE_TIME: Duration = Duration::from_secs(10);
/// The cluster answers within this time, or counts as away.
const ASK_DEADLINE: Duration = Duration::from_secs(5);

fn xml(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/xml; charset=utf-8")], text).into_response()
}

/// Whether the cluster answers, as it was found out last: everybody may ask for that, and the
/// cluster is not asked each time.
#[derive(Default)]
pub struct Availability(Mutex<Option<(Instant, &'static str)>>);

impl Availability {
    /// The note, without causes: they may name files and addresses.
    async fn note(&self, cluster: &ClusterApi) -> &'static str {
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

/// `GET /availability`. While the cluster does not answer, jobs are accepted, and wait.
pub async fn availability(State(portal): State<Arc<Portal>>) -> Response {
    let note = portal.availability.note(&portal.cluster).await;
    xml(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<vosi:availability \
         xmlns:vosi=\"http://www.ivoa.net/xml/VOSIAvailability/v1.0\">\
         <vosi:available>true</vosi:available><vosi:note>{}</vosi:note>\
         </vosi:availability>\n",
        xml_text(note)
    ))
}

/// `GET /capabilities`.
pub async fn capabilities(Extension(url): Extension<PortalUrl>) -> Response {
    let base = xml_text(&url.text);
    let capability = |id: &str, path: &str, is_base: bool| {
        let (id, use_) = (
            if id.is_empty() { String::new() } else { format!(" standardID=\"{id}\"") },
            if is_base { "base" } else { "full" },
        );
        format!(
            "<capability{id}><interface xsi:type=\"vod:ParamHTTP\" role=\"std\" version=\"1.1\">\
             <accessURL use=\"{use_}\">{base}{path}</accessURL></interface></capability>\n"
        )
    };
    let all = [
        capability("ivo://ivoa.net/std/VOSI#capabilities", "/capabilities", false),
        capability("ivo://ivoa.net/std/VOSI#availability", "/availability", false),
        capability("ivo://ivoa.net/std/DataLink#links-1.1", "/links", false),
        capability("", "/async", true),
    ];
    xml(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<vosi:capabilities \
         xmlns:vosi=\"http://www.ivoa.net/xml/VOSICapabilities/v1.0\" \
         xmlns:vod=\"http://www.ivoa.net/xml/VODataService/v1.1\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\n{}</vosi:capabilities>\n",
        all.concat()
    ))
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
