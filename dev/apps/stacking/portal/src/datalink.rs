//! Links to the results of a job, as DataLink 1.1 has them.

use crate::record::{ResultFile, StackJob};
use crate::results::result_kind;
use crate::votable_out::{VoDocument, VoField};

const FIELDS: [VoField; 9] = [
    VoField::text("ID", "meta.id;meta.main", "Id of the job"),
    VoField::text("access_url", "meta.ref.url", "URL of the file"),
    VoField::text("service_def", "meta.ref", "Not used: no link is a service"),
    VoField::text("error_message", "meta.code.error", "Why there is no link"),
    VoField::text("semantics", "meta.code", "What the file is to the image"),
    VoField::text("description", "meta.note", "What the file is, in words"),
    VoField::text("content_type", "meta.code.mime", "Type of the file"),
    VoField::number("content_length", "long", "byte", "phys.size;meta.file", "Its size"),
    VoField::text("content_qualifier", "", "Kind of data product"),
];

/// The links of jobs; of an id without a job, an error.
pub fn links_document(jobs: &[(String, Option<StackJob>)], base: &str) -> String {
    let mut document = VoDocument::begin(" type=\"results\"");
    document.info("QUERY_STATUS", "OK");
    document.standard("ivo://ivoa.net/std/DataLink#links-1.1");
    let rows = jobs.iter().flat_map(|(id, job)| match job {
        Some(job) => rows_of(job, base),
        None => {
            let row = ["", "", "NotFoundFault: there is no such job", "#this", "", "", "", ""];
            let cells = std::iter::once(id.clone()).chain(row.map(str::to_owned));
            vec![cells.collect()]
        }
    });
    document.table("links", "", &FIELDS, rows);
    document.end()
}

fn rows_of(job: &StackJob, base: &str) -> Vec<Vec<String>> {
    let row = |result: &ResultFile| {
        let kind = result_kind(&result.id)?;
        let qualifier = if kind.id == "image" { "#image" } else { "" };
        Some(vec![
            job.id.clone(),
            format!("{base}/{}/results/{}", job.id, result.id),
            String::new(),
            String::new(),
            kind.semantics.to_owned(),
            kind.words.to_owned(),
            result.mime.clone(),
            result.bytes.to_string(),
            qualifier.to_owned(),
        ])
    };
    job.results.iter().filter_map(row).collect()
}
