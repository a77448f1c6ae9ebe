//! VOSI 1.1: what the service is, and whether it works.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::admission::PortalUrl;
use crate::portal::Portal;
use crate::votable_out::xml_text;

fn xml(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/xml; charset=utf-8")], text).into_response()
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
