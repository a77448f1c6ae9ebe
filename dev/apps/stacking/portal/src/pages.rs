//! The pages: sign in, stacks of the account, a new stack, a stack with its results.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::task::block_in_place;

use crate::accounts::Role;
use crate::admission::{Caller, redirect};
use crate::clock::{iso, span};
use crate::html::{Html, page};
use crate::lifecycle;
use crate::outcome_files::{MissingObject, bad_frames, kept_left_out, kept_missing};
use crate::params::Weights;
use crate::portal::Portal;
use crate::problem::Problem;
use crate::record::{Phase, StackJob, Step};
use crate::results::{result_kind, statistics};
use crate::secrets::unix_ms;
use crate::upload::Form;
use crate::uws::{may_see, result_file, visible};

/// Rows of a table of a page; the file has all.
const MAX_ROWS: usize = 100;
/// Stacks that a page lists.
const MAX_LISTED: usize = 200;

type Answered = Result<Response, Problem>;
type At = State<Arc<Portal>>;

/// `GET /style.css`.
pub async fn style() -> Response {
    let kind = [(header::CONTENT_TYPE, "text/css; charset=utf-8")];
    (kind, include_str!("../page/style.css")).into_response()
}

/// `GET /portal.js`.
pub async fn script() -> Response {
    let kind = [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")];
    (kind, include_str!("../page/portal.js")).into_response()
}

fn state(phase: Phase) -> Html {
    let class = match phase {
        Phase::Pending | Phase::Queued => "<span class=\"state\">",
        Phase::Executing => "<span class=\"state running\">",
        Phase::Completed => "<span class=\"state succeeded\">",
        Phase::Error | Phase::Aborted => "<span class=\"state failed\">",
    };
    Html::new().raw(class).text(words_of(phase)).raw("</span>")
}

fn words_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "not started",
        Phase::Queued => "queued",
        Phase::Executing => "running",
        Phase::Completed => "complete",
        Phase::Error => "failed",
        Phase::Aborted => "aborted",
    }
}

fn title_of(job: &StackJob) -> String {
    job.run_id.clone().unwrap_or_else(|| format!("Stack {}", job.id))
}

fn time(ms: u64) -> Html {
    let iso = iso(ms);
    let short = iso.get(..16).unwrap_or(&iso).replace('T', " ");
    Html::new().raw("<time datetime=\"").text(iso).raw("\">").text(short).raw(" UTC</time>")
}

/// `GET /`: the history.
pub async fn history(State(portal): At, Extension(caller): Extension<Caller>) -> Answered {
    let mut jobs = portal.jobs.list(|job| may_see(&caller, job));
    let all = jobs.len();
    jobs.truncate(MAX_LISTED);
    let rows = jobs.iter().map(|job| {
        let survey = job.params.survey.clone().unwrap_or_default();
        Html::new()
            .raw("<tr><td class=\"name\"><a href=\"/jobs/")
            .text(&job.id)
            .raw("\">")
            .text(title_of(job))
            .raw("</a></td><td>")
            .part(state(job.phase))
            .raw("</td><td>")
            .text(survey)
            .raw("</td><td>")
            .text(&job.owner)
            .raw("</td><td class=\"number\">")
            .text(job.params.positions)
            .raw("</td><td class=\"number\">")
            .text(job.counts.stacked)
            .raw("</td><td>")
            .part(time(job.created_ms))
            .raw("</td></tr>")
    });
    let table = match jobs.is_empty() {
        true => Html::new().raw(
            "<p class=\"note\">No stack yet. <a href=\"/stack\">Stack \
                                 positions</a> to see the first one here.</p>",
        ),
        false => Html::new()
            .raw(
                "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Stacks\"><table>\
                  <thead><tr><th>Stack</th><th>State</th><th>Survey</th><th>Account</th>\
                  <th class=\"number\">Positions</th><th class=\"number\">Regions summed</th>\
                  <th>Created</th></tr></thead><tbody>",
            )
            .parts(rows)
            .raw("</tbody></table></div>"),
    };
    let used = portal.usage.used(&caller.account.name, unix_ms());
    let mut content = Html::new()
        .raw("<h1>Stacks</h1><p class=\"lead\">")
        .text(format!(
            "{used} of {} object-frames used in the last 24 hours.",
            caller.account.quota
        ))
        .raw("</p>")
        .part(table);
    if all > MAX_LISTED {
        content = content.raw("<p class=\"lead\">The newest ones are shown, of ").text(all);
        content = content.raw("; /async lists all.</p>");
    }
    Ok(page("Stacks", Some(&caller.account.name), content))
}

/// `GET /stack`: the form of a new stack.
pub async fn new_stack(State(portal): At, Extension(caller): Extension<Caller>) -> Answered {
    caller.must_be(Role::Submit)?;
    let surveys = portal.surveys.all();
    let options = surveys.iter().map(|survey| {
        Html::new()
            .raw("<option value=\"")
            .text(&survey.name)
            .raw("\">")
            .text(&survey.title)
            .text(format!(" ({} arcsec per pixel)", survey.pixel_scale))
            .raw("</option>")
    });
    let mut bands: Vec<&String> = surveys.iter().flat_map(|survey| &survey.bands).collect();
    bands.sort();
    bands.dedup();
    let bands = bands.into_iter().map(|band| {
        Html::new().raw("<option value=\"").text(band).raw("\">").text(band).raw("</option>")
    });
    let weights = Weights::ALL.iter().map(|(weights, words)| {
        let value = Html::new().raw("<option value=\"").text(weights.name());
        value.raw("\">").text(words).raw("</option>")
    });
    let content = Html::new()
        .raw(
            "<h1>New stack</h1><form method=\"post\" action=\"/stack\" class=\"form\" \
              enctype=\"multipart/form-data\"><p><label for=\"survey\">Survey</label>\
              <select id=\"survey\" name=\"SURVEY\">",
        )
        .parts(options)
        .raw(
            "</select></p><p><label for=\"band\">Band</label><select id=\"band\" name=\"BAND\">\
              <option value=\"\">as in the list, or any</option>",
        )
        .parts(bands)
        .raw(
            "</select></p><p><label for=\"size\">Edge of the region, pixels</label>\
              <input id=\"size\" name=\"SIZE\" type=\"number\" min=\"1\" max=\"2048\" \
              value=\"100\"></p><p><label for=\"weights\">Weights</label>\
              <select id=\"weights\" name=\"WEIGHTS\">",
        )
        .parts(weights)
        .raw(
            "</select></p><p><label for=\"positions\">Positions</label>\
              <textarea id=\"positions\" name=\"POSITIONS\" rows=\"10\" spellcheck=\"false\" \
              aria-describedby=\"positions-help\"></textarea></p>\
              <p class=\"lead\" id=\"positions-help\">RA and Dec in degrees (ICRS), one object on \
              each line; CSV, plain text or VOTable. Columns may have names: name, ra, dec, band, \
              weight. Or choose a file, which may be compressed with gzip:</p>\
              <p><label for=\"file\">File</label>\
              <input id=\"file\" name=\"POSITIONS_FILE\" type=\"file\"></p>\
              <p><label for=\"label\">Label</label>\
              <input id=\"label\" name=\"RUNID\" maxlength=\"200\"></p>\
              <p><button class=\"main\">Stack</button></p></form>",
        );
    Ok(page("New stack", Some(&caller.account.name), content))
}

/// `POST /stack`.
pub async fn submit(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    caller.must_be(Role::Submit)?;
    let form = Form::read(&headers, body).await?;
    let job = block_in_place(|| lifecycle::create(&portal, &caller.account.name, &form))?;
    lifecycle::run(&portal, &job.id).inspect_err(|_| {
        let _ = lifecycle::delete(&portal, &job.id);
    })?;
    Ok(redirect(&format!("/jobs/{}", job.id)))
}

/// `POST /jobs/{id}/{action}`: run, abort or delete.
pub async fn act(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Path((id, action)): Path<(String, String)>,
) -> Answered {
    caller.must_be(Role::Submit)?;
    visible(&portal, &caller, &id)?;
    match &*action {
        "run" => drop(lifecycle::run(&portal, &id)?),
        "abort" => drop(lifecycle::abort(&portal, &id)?),
        "delete" => {
            lifecycle::delete(&portal, &id)?;
            return Ok(redirect("/"));
        }
        _ => return Err(Problem::missing("a stack has no such action")),
    }
    Ok(redirect(&format!("/jobs/{id}")))
}

/// `GET /jobs/{id}/progress`: what the page of a job shows while it runs.
pub async fn progress(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answered {
    let job = visible(&portal, &caller, &id)?;
    let (words, percent) = (progress_words(&job), job.percent());
    let over = json!({ "over": !job.phase.is_active(), "percent": percent, "words": words });
    Ok(([(header::CONTENT_TYPE, "application/json")], over.to_string()).into_response())
}

fn progress_words(job: &StackJob) -> String {
    if let Some(why) = &job.waits_for {
        return format!("Waits: {why}");
    }
    let now_ms = unix_ms();
    let frames = format!("{} of {} frames", job.stack.ended, job.stack.tasks);
    match (job.phase, job.estimated_end_ms(now_ms)) {
        (Phase::Queued, _) => "Waits for other stacks".into(),
        _ if job.step == Step::Find => "Looks for the frames".into(),
        (_, Some(end)) => format!("{frames}, about {} left", span(end.saturating_sub(now_ms))),
        (_, None) => frames,
    }
}

/// `GET /jobs/{id}/results/{result}`.
pub async fn download(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Path((id, result)): Path<(String, String)>,
) -> Answered {
    let job = visible(&portal, &caller, &id)?;
    result_file(&portal, &job, &result).await
}

/// `GET /jobs/{id}`.
pub async fn show(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answered {
    let job = visible(&portal, &caller, &id)?;
    let mut content = Html::new().raw("<div class=\"head\"><h1>").text(title_of(&job)).raw(" ");
    content = content.part(state(job.phase)).raw("</h1>").part(buttons(&caller, &job));
    content = content.raw("</div>").part(described(&portal, &job));
    if job.phase.is_active() {
        content = content
            .raw(
                "<section aria-label=\"Progress\" class=\"note\" id=\"progress\" data-url=\"/jobs/",
            )
            .text(&job.id)
            .raw("/progress\"><progress aria-label=\"Progress\" max=\"100\" value=\"")
            .text(job.percent())
            .raw("\"></progress> <b>")
            .text(job.percent())
            .raw(" %</b><p role=\"status\">")
            .text(progress_words(&job))
            .raw("</p></section>");
    }
    if let Some(error) = &job.error {
        content = content.raw("<p class=\"warning\" role=\"alert\">").text(error).raw("</p>");
    }
    if !job.results.is_empty() {
        content = content.part(results(&portal, &job)?);
    }
    Ok(page(&title_of(&job), Some(&caller.account.name), content))
}

fn buttons(caller: &Caller, job: &StackJob) -> Html {
    let button = |action: &'static str, words: &'static str| {
        Html::new()
            .raw("<form method=\"post\" action=\"/jobs/")
            .text(&job.id)
            .raw("/")
            .raw(action)
            .raw("\"><button>")
            .raw(words)
            .raw("</button></form>")
    };
    let mut tools = Html::new().raw("<div class=\"tools\">");
    if caller.role >= Role::Submit {
        if job.phase == Phase::Pending {
            tools = tools.part(button("run", "Start"));
        }
        tools = match job.phase.is_active() {
            true => tools.part(button("abort", "Abort")),
            false => tools.part(button("delete", "Delete")),
        };
    }
    tools.raw("</div>")
}

fn described(portal: &Portal, job: &StackJob) -> Html {
    // A survey that is no longer offered has its name left.
    let name = job.params.survey.as_deref().unwrap_or("no survey");
    let survey = portal.surveys.named(name).map_or(name, |survey| &*survey.title);
    let band = job.params.band.as_deref().map(|band| format!(", band {band}"));
    let edge = job.params.edge();
    Html::new()
        .raw("<p class=\"lead\">")
        .text(format!(
            "{} positions in {survey}{}, regions of {edge} × {edge} pixels. Created ",
            job.params.positions,
            band.unwrap_or_default(),
        ))
        .part(time(job.created_ms))
        .raw("; kept until ")
        .part(time(job.destruction_ms))
        .raw(".</p>")
}

fn results(portal: &Portal, job: &StackJob) -> Result<Html, Problem> {
    let folder = portal.folder_of(&job.id);
    let of_disk = |why: std::io::Error| {
        tracing::error!("a file of job {} cannot be read: {why}", job.id);
        Problem::of_portal("the portal cannot read the results: tell its administrator")
    };
    let left_out = kept_left_out(&folder).map_err(of_disk)?;
    let (missing, bad) =
        (kept_missing(&folder).map_err(of_disk)?, bad_frames(&folder).map_err(of_disk)?);
    let mut content = Html::new();
    if job.results.iter().any(|file| file.id == "picture") {
        content = content
            .raw("<section><h2>Image</h2><figure><img class=\"stack\" alt=\"The stacked image, ")
            .text(format!("{0} × {0} pixels", job.params.edge()))
            .raw("\" src=\"/jobs/")
            .text(&job.id)
            .raw("/results/picture\"></figure></section>");
    }
    let files = job.results.iter().filter_map(|file| Some((file, result_kind(&file.id)?)));
    let files = files.map(|(file, kind)| {
        Html::new()
            .raw("<li><a href=\"/jobs/")
            .text(&job.id)
            .raw("/results/")
            .text(&file.id)
            .raw("\">")
            .raw(kind.words)
            .raw("</a> <small>")
            .text(format!("{}, {}", kind.file, size(file.bytes)))
            .raw("</small></li>")
    });
    content = content.raw("<section><h2>Files</h2><ul>").parts(files).raw("</ul></section>");
    let rows = statistics(job).into_iter().map(|(name, value)| vec![name.replace('_', " "), value]);
    content = content
        .raw("<section><h2>Statistics</h2>")
        .part(table("Statistics", &["Statistic", "Value"], rows.collect()))
        .raw("</section><section><h2>Objects not found</h2>");
    content = content
        .part(objects("Objects not found", &missing))
        .raw("</section><section><h2>Regions left out</h2>")
        .part(objects("Regions left out", &left_out))
        .raw("</section><section><h2>Data not readable</h2>");
    let rows = bad.iter().take(MAX_ROWS);
    let rows = rows.map(|bad| vec![bad.frame.clone(), bad.objects.to_string(), bad.reason.clone()]);
    let names = ["Frame", "Objects", "Reason"];
    content = content.part(listed("Data not readable", bad.len(), &names, rows.collect()));
    Ok(content.raw("</section>"))
}

/// The first objects of a list.
fn objects(label: &'static str, all: &[MissingObject]) -> Html {
    let rows = all.iter().take(MAX_ROWS).cloned().map(|object| {
        vec![object.row.to_string(), object.name, object.ra, object.dec, object.reason]
    });
    listed(label, all.len(), &["Row", "Name", "RA", "Dec", "Reason"], rows.collect())
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} B"),
        1000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// A table with the number of all rows, if it has some.
fn listed(label: &'static str, all: usize, names: &[&'static str], rows: Vec<Vec<String>>) -> Html {
    let count = match all {
        0 => return Html::new().raw("<p class=\"lead\">None.</p>"),
        all if all > rows.len() => format!("{all}; the first {} are shown here.", rows.len()),
        all => format!("{all}."),
    };
    Html::new().raw("<p class=\"lead\">").text(count).raw("</p>").part(table(label, names, rows))
}

fn table(label: &'static str, names: &[&'static str], rows: Vec<Vec<String>>) -> Html {
    let heads = names.iter().map(|name| Html::new().raw("<th>").raw(name).raw("</th>"));
    let cell = |cell: String| Html::new().raw("<td class=\"name\">").text(cell).raw("</td>");
    let row =
        |row: Vec<String>| Html::new().raw("<tr>").parts(row.into_iter().map(cell)).raw("</tr>");
    Html::new()
        .raw("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"")
        .raw(label)
        .raw("\"><table><thead><tr>")
        .parts(heads)
        .raw("</tr></thead><tbody>")
        .parts(rows.into_iter().map(row))
        .raw("</tbody></table></div>")
}
