//! The results of a job: image, picture, report, lists of objects and frames that are not in the
//! image, provenance.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::json;

use crate::clock::iso;
use crate::outcome_files::{BadFrame, MissingObject, bad_frames, kept_left_out, kept_missing};
use crate::portal::Portal;
use crate::position_files::{csv_text, kept_positions, positions_csv};
use crate::record::{ResultFile, StackJob};
use crate::secrets::unix_ms;
use crate::votable_out::{VoDocument, VoField};
use crate::whole_file::write_all_shared;

/// A kind of result: its id in UWS, its file, its type, and what it is in words.
pub struct ResultKind {
    pub id: &'static str,
    pub file: &'static str,
    pub mime: &'static str,
    pub words: &'static str,
    /// What it is to the dataset, in the words of DataLink.
    pub semantics: &'static str,
}

const VOTABLE: &str = "application/x-votable+xml";

/// All kinds.
pub const RESULTS: [ResultKind; 8] = [
    ResultKind {
        id: "result",
        file: "report.vot",
        mime: VOTABLE,
        words: "Report: statistics, objects not found, data not readable",
        semantics: "#auxiliary",
    },
    ResultKind {
        id: "image",
        file: "image.fits",
        mime: "image/fits",
        words: "Stacked image",
        semantics: "#this",
    },
    ResultKind {
        id: "picture",
        file: "image.png",
        mime: "image/png",
        words: "Picture of the stacked image",
        semantics: "#preview",
    },
    ResultKind {
        id: "jpeg",
        file: "image.jpg",
        mime: "image/jpeg",
        words: "The picture as JPEG",
        semantics: "#preview",
    },
    ResultKind {
        id: "not-found",
        file: "not-found.csv",
        mime: "text/csv",
        words: "Objects that were not found",
        semantics: "#auxiliary",
    },
    ResultKind {
        id: "left-out",
        file: "left-out.csv",
        mime: "text/csv",
        words: "Regions that were left out of objects that have others in the image",
        semantics: "#auxiliary",
    },
    ResultKind {
        id: "not-readable",
        file: "not-readable.csv",
        mime: "text/csv",
        words: "Data that could not be read",
        semantics: "#auxiliary",
    },
    ResultKind {
        id: "provenance",
        file: "provenance.json",
        mime: "application/json",
        words: "Provenance: parameters, survey, programs, times",
        semantics: "#auxiliary",
    },
];

/// The kind of an id.
pub fn result_kind(id: &str) -> Option<&'static ResultKind> {
    RESULTS.iter().find(|kind| kind.id == id)
}

/// Writes the results that follow from the files in the folder of a job. Returns all results, those
/// of `stack --sum` as well.
pub fn write_results(portal: &Portal, job: &StackJob) -> io::Result<Vec<ResultFile>> {
    let folder = portal.folder_of(&job.id);
    let (missing, bad) = (kept_missing(&folder)?, bad_frames(&folder)?);
    let left_out = kept_left_out(&folder)?;
    let files = [
        ("not-found.csv", missing_csv(&missing)),
        ("left-out.csv", missing_csv(&left_out)),
        ("not-readable.csv", bad_csv(&bad)),
        ("report.vot", report(job, &missing, &bad)),
        ("provenance.json", provenance(portal, job)?),
    ];
    write_all_shared(&folder, &files)?;
    let there = RESULTS.iter().filter_map(|kind| {
        let bytes = fs::metadata(folder.join(kind.file)).ok()?.len();
        Some(ResultFile { id: kind.id.to_owned(), mime: kind.mime.to_owned(), bytes })
    });
    Ok(there.collect())
}

/// Removes the files of a job that has ended which no result needs.
pub fn remove_scratch(folder: &Path) -> io::Result<()> {
    for name in ["partials", "lists"] {
        match fs::remove_dir_all(folder.join(name)) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
            _ => {}
        }
    }
    for name in ["find.csv", "find.json", "find-tasks.csv", "partials.txt", "tasks.tsv"] {
        match fs::remove_file(folder.join(name)) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
            _ => {}
        }
    }
    Ok(())
}

fn missing_csv(missing: &[MissingObject]) -> String {
    let mut text = String::from("row,name,ra,dec,reason\n");
    for object in missing {
        let MissingObject { row, name, ra, dec, reason } = object;
        let (name, ra, dec) = (csv_text(name), csv_text(ra), csv_text(dec));
        text += &format!("{row},{name},{ra},{dec},{}\n", csv_text(reason));
    }
    text
}

fn bad_csv(bad: &[BadFrame]) -> String {
    let mut text = String::from("frame,objects,reason\n");
    for frame in bad {
        let (name, reason) = (csv_text(&frame.frame), csv_text(&frame.reason));
        text += &format!("{name},{},{reason}\n", frame.objects);
    }
    text
}

/// Statistics, as names and values.
pub fn statistics(job: &StackJob) -> Vec<(String, String)> {
    let counts = &job.counts;
    let numbers = [
        ("positions", job.params.positions),
        ("not_found", counts.not_found),
        ("object_frames", counts.object_frames),
        ("frames", counts.frames),
        ("not_readable", counts.not_readable),
        ("stacked", counts.stacked),
        ("skipped", counts.skipped),
        ("nodes", counts.nodes),
    ];
    let numbers = numbers.iter().map(|(name, value)| ((*name).to_owned(), value.to_string()));
    numbers.chain(job.measured.iter().cloned()).collect()
}

fn report(job: &StackJob, missing: &[MissingObject], bad: &[BadFrame]) -> String {
    let mut document = VoDocument::begin(" type=\"results\"");
    document.info("QUERY_STATUS", "OK");
    document.info("job", &job.id);
    for (name, value) in parameters(job) {
        document.info(name, &value);
    }
    let fields = [
        VoField::text("name", "meta.id", "Name of the statistic"),
        VoField::text("value", "", "Its value"),
    ];
    let rows = statistics(job).into_iter().map(|(name, value)| vec![name, value]);
    document.table(
        "statistics",
        "Numbers of objects and frames, and what was measured",
        &fields,
        rows,
    );
    let fields = [
        VoField::number("row", "long", "", "meta.record", "Row in the list, from 1"),
        VoField::text("name", "meta.id", "Name in the list"),
        VoField::text("ra", "pos.eq.ra", "Right ascension as in the list, degrees"),
        VoField::text("dec", "pos.eq.dec", "Declination as in the list, degrees"),
        VoField::text("reason", "", "Why it was not found"),
    ];
    let rows = missing.iter().map(|object| {
        let MissingObject { row, name, ra, dec, reason } = object.clone();
        vec![row.to_string(), name, ra, dec, reason]
    });
    document.table("not_found", "Objects that are not in the image", &fields, rows);
    let fields = [
        VoField::text("frame", "meta.id", "Path of the frame"),
        VoField::number("objects", "long", "", "meta.number", "Objects of the list that it shows"),
        VoField::text("reason", "", "Why it could not be read"),
    ];
    let rows = bad
        .iter()
        .map(|frame| vec![frame.frame.clone(), frame.objects.to_string(), frame.reason.clone()]);
    document.table("not_readable", "Frames that could not be read", &fields, rows);
    document.end()
}

/// The parameters of a job, as in UWS.
pub fn parameters(job: &StackJob) -> Vec<(&'static str, String)> {
    let params = &job.params;
    let mut all = Vec::new();
    all.extend(params.survey.clone().map(|survey| ("SURVEY", survey)));
    all.extend(params.band.clone().map(|band| ("BAND", band)));
    all.push(("SIZE", params.edge().to_string()));
    all.push(("WEIGHTS", params.weights.name().to_owned()));
    all
}

/// By whom, of what, with what and when the image was made; the list by the hash of its
/// `positions.csv`.
fn provenance(portal: &Portal, job: &StackJob) -> io::Result<String> {
    let folder = portal.folder_of(&job.id);
    let list = positions_csv(&kept_positions(&folder)?);
    let survey = job.params.survey.as_deref().and_then(|name| portal.surveys.named(name));
    let parameters: serde_json::Map<_, _> =
        parameters(job).into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    let provenance = json!({
        "activity": {
            "job": job.id,
            "label": job.run_id,
            "account": job.owner,
            "parameters": parameters,
            "started": job.started_ms.map(iso),
            "written": iso(unix_ms()),
            "nodes": job.counts.nodes,
            "cluster_jobs": [job.stack.name, job.sum.name],
        },
        "used": {
            "survey": survey.map(|survey| &survey.name),
            "survey_title": survey.map(|survey| &survey.title),
            "positions": job.params.positions,
            "positions_csv_blake3": blake3::hash(list.as_bytes()).to_hex().to_string(),
        },
        "programs": {
            "astroportal": env!("CARGO_PKG_VERSION"),
            "stack": portal.stack_version,
        },
    });
    Ok(serde_json::to_string_pretty(&provenance)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_what_is_missing_are_tables() {
        let missing = MissingObject {
            row: 2,
            name: "=x,\"y".into(),
            ra: "NaN".into(),
            dec: "-1".into(),
            reason: "the row has no position".into(),
        };
        let text = missing_csv(&[missing]);
        assert_eq!(text.lines().nth(1).unwrap(), "2,\"'=x,\"\"y\",NaN,-1,the row has no position");
        let bad = BadFrame { frame: "/a".into(), objects: 3, reason: "truncated".into() };
        assert_eq!(bad_csv(&[bad]).lines().nth(1).unwrap(), "/a,3,truncated");
    }
}
