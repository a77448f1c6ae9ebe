//! The XML of UWS 1.1.

use crate::clock::iso;
use crate::record::StackJob;
use crate::results::parameters;
use crate::votable_out::xml_text;

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
const SPACES: &str = "xmlns:uws=\"http://www.ivoa.net/xml/UWS/v1.0\" \
    xmlns:xlink=\"http://www.w3.org/1999/xlink\" \
    xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"";

/// An element with a text, or with none.
fn element(name: &str, text: Option<String>) -> String {
    match text {
        Some(text) => format!("<uws:{name}>{}</uws:{name}>\n", xml_text(&text)),
        None => format!("<uws:{name} xsi:nil=\"true\"/>\n"),
    }
}

/// `uws:job`. `base` is the URL of the list of jobs.
pub fn job_document(job: &StackJob, base: &str, quote_ms: u64) -> String {
    let mut text = format!("{HEAD}<uws:job version=\"1.1\" {SPACES}>\n");
    text += &element("jobId", Some(job.id.clone()));
    if let Some(run_id) = &job.run_id {
        text += &element("runId", Some(run_id.clone()));
    }
    text += &element("ownerId", Some(job.owner.clone()));
    text += &element("phase", Some(job.phase.name().to_owned()));
    text += &element("quote", Some(iso(quote_ms)));
    text += &element("creationTime", Some(iso(job.created_ms)));
    text += &element("startTime", job.started_ms.map(iso));
    text += &element("endTime", job.ended_ms.map(iso));
    text += &element("executionDuration", Some(job.duration_s.to_string()));
    text += &element("destruction", Some(iso(job.destruction_ms)));
    text += &parameter_elements(job, base);
    text += &result_elements(job, base);
    if let Some(error) = &job.error {
        text += &format!(
            "<uws:errorSummary type=\"fatal\" hasDetail=\"true\"><uws:message>{}</uws:message>\
             </uws:errorSummary>\n",
            xml_text(error)
        );
    }
    text += &job_info(job);
    text + "</uws:job>\n"
}

/// How far the job is: an element of the portal's own.
fn job_info(job: &StackJob) -> String {
    let counts = &job.counts;
    let waits = job.waits_for.as_ref().map(|why| format!(" waitsFor=\"{}\"", xml_text(why)));
    format!(
        "<uws:jobInfo><progress xmlns=\"urn:astroportal\" percent=\"{}\" objectFrames=\"{}\" \
         frames=\"{}\" notFound=\"{}\" notReadable=\"{}\" nodes=\"{}\"{}/></uws:jobInfo>\n",
        job.percent(),
        counts.object_frames,
        counts.frames,
        counts.not_found,
        counts.not_readable,
        counts.nodes,
        waits.unwrap_or_default(),
    )
}

fn parameter_elements(job: &StackJob, base: &str) -> String {
    let mut text = String::from("<uws:parameters>\n");
    for (name, value) in parameters(job) {
        let value = xml_text(&value);
        text += &format!("<uws:parameter id=\"{name}\">{value}</uws:parameter>\n");
    }
    if job.params.positions > 0 {
        text += &format!(
            "<uws:parameter id=\"POSITIONS\" byReference=\"true\">{}</uws:parameter>\n",
            xml_text(&format!("{base}/{}/positions.csv", job.id))
        );
    }
    text + "</uws:parameters>\n"
}

fn result_elements(job: &StackJob, base: &str) -> String {
    let mut text = String::from("<uws:results>\n");
    for result in &job.results {
        let href = xml_text(&format!("{base}/{}/results/{}", job.id, result.id));
        let (id, mime, bytes) = (xml_text(&result.id), xml_text(&result.mime), result.bytes);
        text += &format!(
            "<uws:result id=\"{id}\" xlink:type=\"simple\" xlink:href=\"{href}\" \
             mime-type=\"{mime}\" size=\"{bytes}\"/>\n"
        );
    }
    text + "</uws:results>\n"
}

/// `uws:parameters` as a document.
pub fn parameters_document(job: &StackJob, base: &str) -> String {
    let elements = parameter_elements(job, base);
    format!("{HEAD}{}", elements.replacen('>', &format!(" {SPACES}>"), 1))
}

/// `uws:results` as a document.
pub fn results_document(job: &StackJob, base: &str) -> String {
    let elements = result_elements(job, base);
    format!("{HEAD}{}", elements.replacen('>', &format!(" {SPACES}>"), 1))
}

/// `uws:jobs`: the list.
pub fn jobs_document(jobs: &[StackJob], base: &str) -> String {
    let mut text = format!("{HEAD}<uws:jobs version=\"1.1\" {SPACES}>\n");
    for job in jobs {
        let href = xml_text(&format!("{base}/{}", job.id));
        text += &format!(
            "<uws:jobref id=\"{}\" xlink:type=\"simple\" xlink:href=\"{href}\">\n",
            xml_text(&job.id)
        );
        text += &element("phase", Some(job.phase.name().to_owned()));
        if let Some(run_id) = &job.run_id {
            text += &element("runId", Some(run_id.clone()));
        }
        text += &element("ownerId", Some(job.owner.clone()));
        text += &element("creationTime", Some(iso(job.created_ms)));
        text += "</uws:jobref>\n";
    }
    text + "</uws:jobs>\n"
}
