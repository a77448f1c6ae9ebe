//! Draws `eyas top`: three lines about the cluster, a line for each pool, the jobs, the executors,
//! and a line for keys, questions and notices. It draws on a buffer and decides nothing.

use eyas_client::types::units::format_count;
use eyas_wire::view::pool::PoolView;

use super::canvas::{Canvas, DrawStyle};
use super::cells::{Buffer, Colour, Style, width_of};
use super::overview::Overview;
use super::rows::{self, UNKNOWN, cpus, number, read_rates};
use super::screen::{Disconnection, Pane, Screen};
use super::table::{self, Cell, Column};

/// Number of lines above the panes. Lines about pools come in addition.
const HEAD: u16 = 3;
/// Maximum number of lines about pools.
const MAX_POOL_LINES: usize = 4;
/// Number of lines of a pane above its rows: title and headings.
const PANE_HEAD: u16 = 2;
/// Maximum width of the bar of busy processors, cells.
const MAX_GAUGE: u16 = 40;
/// Maximum number of rows of a pane in a plain frame; the title of the pane has the total.
const MAX_PLAIN_ROWS: usize = 1000;

const KEYS: &str = "q quit   tab switch pane   j/k down/up   c cancel job";

/// The row of a pane that must be visible, and whether keys act on the pane.
#[derive(Clone, Copy, Default)]
struct Focus {
    row: usize,
    is_active: bool,
}

/// Draws the whole screen on a terminal.
pub(crate) fn screen(buffer: &mut Buffer, screen: &Screen, style: DrawStyle) {
    let (overview, area) = (&screen.overview, buffer.area);
    let mut canvas = Canvas { buffer, area, style };
    let height = area.height.saturating_sub(1);
    let head_height = head_height(overview).min(height);
    head(&mut canvas.rows(0, head_height), &screen.cluster, overview);
    if let Some(disconnection) = &screen.disconnection {
        draw_disconnection(&mut canvas.rows(0, head_height), &screen.cluster, disconnection);
    }
    let focus = |pane| Focus { row: screen.row(pane), is_active: screen.pane == pane };
    let (jobs_height, executors_height) = heights(height - head_height, overview);
    jobs(&mut canvas.rows(head_height, jobs_height), overview, focus(Pane::Jobs));
    executors(
        &mut canvas.rows(head_height + jobs_height, executors_height),
        overview,
        focus(Pane::Executors),
    );
    foot(&mut canvas.rows(height, 1), screen);
}

/// Draws one frame as text of this width, with all rows.
pub(crate) fn plain(cluster: &str, overview: &Overview, width: u16, style: DrawStyle) -> String {
    let needed = |count: usize| count.min(MAX_PLAIN_ROWS) as u16 + PANE_HEAD;
    let (jobs_height, executors_height) =
        (needed(overview.jobs.len()), needed(overview.executors.len()));
    let head_height = head_height(overview);
    let mut buffer = Buffer::blank(width, head_height + jobs_height + executors_height);
    let area = buffer.area;
    let mut canvas = Canvas { buffer: &mut buffer, area, style };
    head(&mut canvas, cluster, overview);
    jobs(&mut canvas.rows(head_height, jobs_height), overview, Focus::default());
    executors(
        &mut canvas.rows(head_height + jobs_height, executors_height),
        overview,
        Focus::default(),
    );
    buffer.text()
}

/// Number of lines for the panes of jobs and of executors: what each needs, and if that is too
/// much, at least half of `room`.
fn heights(room: u16, overview: &Overview) -> (u16, u16) {
    let needed = |count: usize| u16::try_from(count).unwrap_or(u16::MAX).saturating_add(PANE_HEAD);
    let others = room.saturating_sub(needed(overview.executors.len()));
    let jobs = needed(overview.jobs.len()).min(others.max(room - room / 2));
    (jobs, room - jobs)
}

/// Number of lines above the panes.
fn head_height(overview: &Overview) -> u16 {
    HEAD + overview.pools.len().min(MAX_POOL_LINES) as u16
}

/// A line about a pool: its nodes now, those that it ever had, and what they have cost.
fn pool_line(pool: &PoolView) -> String {
    let hours = pool.node_seconds / 3600.0;
    let state = if pool.state == "active" { String::new() } else { format!(" ({})", pool.state) };
    let cost = if pool.price > 0.0 { format!("   cost {:.2}", pool.cost) } else { String::new() };
    format!(
        "pool {}{state}   {} of {} nodes   {} requested   {} granted   {} given back   {hours:.2} \
         node-hours{cost}",
        pool.pool,
        pool.nodes,
        pool.max_nodes,
        pool.requested,
        pool.nodes_granted,
        pool.nodes_given_back
    )
}

fn head(canvas: &mut Canvas, cluster: &str, overview: &Overview) {
    let sums = &overview.cluster;
    let (executors, jobs) =
        (format_count(sums.executors, "executor"), format_count(sums.running_jobs, "job"));
    let title = format!("eyas {cluster}   {executors}   {jobs} running");
    canvas.line(0, &title, Style::BOLD);

    let rate = sums.tasks_per_s.map_or_else(|| UNKNOWN.into(), number);
    let (busy, capacity) = (cpus(sums.busy_milli), cpus(sums.capacity_milli));
    let words = format!(
        " {busy}/{capacity}   {} waiting   {} running   {rate} tasks/s",
        sums.waiting, sums.running
    );
    let label = "cpus ";
    let gauge = canvas.area.width.saturating_sub(width_of(label) + width_of(&words)).min(MAX_GAUGE);
    canvas.line(1, &format!("{label}{}{words}", " ".repeat(usize::from(gauge))), Style::PLAIN);
    let share = sums.busy_milli as f64 / sums.capacity_milli.max(1) as f64;
    canvas.bar(width_of(label), 1, gauge, share, canvas.style.colour(Colour::Green));

    let [local, peer, persistent, files] = read_rates(sums.reads);
    canvas.line(
        2,
        &format!("reads local {local}   peers {peer}   storage {persistent}   files {files}"),
        Style::PLAIN,
    );
    for (line, pool) in (HEAD..).zip(overview.pools.iter().take(MAX_POOL_LINES)) {
        let style =
            if pool.state == "active" { Style::PLAIN } else { canvas.style.colour(Colour::Yellow) };
        canvas.line(line, &pool_line(pool), style);
    }
}

/// Replaces the lines about the cluster while the dispatcher cannot be reached.
fn draw_disconnection(canvas: &mut Canvas, cluster: &str, disconnection: &Disconnection) {
    let alarm = canvas.style.colour(Colour::Red).bold();
    let age_s = disconnection.age_us / 1_000_000;
    canvas.line(
        0,
        &format!("eyas {cluster}   NOT CONNECTED, reconnecting; the data below is {age_s} s old"),
        alarm,
    );
    canvas.line(2, &disconnection.why, alarm);
}

fn jobs(canvas: &mut Canvas, overview: &Overview, focus: Focus) {
    pane(canvas, "Jobs", &rows::JOBS, &overview.jobs, focus, rows::job);
}

fn executors(canvas: &mut Canvas, overview: &Overview, focus: Focus) {
    pane(canvas, "Executors", &rows::EXECUTORS, &overview.executors, focus, rows::executor);
}

/// Draws a title, headings, and as many rows around the row in focus as there is room for.
fn pane<T>(
    canvas: &mut Canvas,
    title: &str,
    columns: &[Column],
    lines: &[T],
    focus: Focus,
    cells: impl Fn(&T, DrawStyle) -> Vec<Cell>,
) {
    let (draw_style, area) = (canvas.style, canvas.area);
    let room = usize::from(area.height.saturating_sub(PANE_HEAD));
    let first = focus.row.saturating_sub(room / 2).min(lines.len().saturating_sub(room));
    let shown = &lines[first..(first + room).min(lines.len())];
    let range = match shown.len() {
        count if count < lines.len() => format!("{}-{} of ", first + 1, first + count),
        _ => String::new(),
    };
    let rule = draw_style.rule();
    let title = format!("{rule}{rule} {title}: {range}{} ", lines.len());
    let rest = usize::from(area.width.saturating_sub(width_of(&title)));
    let style = if focus.is_active { draw_style.colour(Colour::Cyan).bold() } else { Style::PLAIN };
    canvas.line(0, &(title + &rule.repeat(rest)), style);
    let rows: Vec<_> = shown.iter().map(|line| cells(line, draw_style)).collect();
    let chosen = focus.is_active.then(|| focus.row - first);
    table::draw(&mut canvas.rows(1, area.height), columns, &rows, chosen);
}

fn foot(canvas: &mut Canvas, screen: &Screen) {
    let asked = screen.question.map(|job| {
        let view = screen.overview.jobs.iter().map(|line| &line.view).find(|view| view.job == job);
        let what = view.map_or_else(String::new, |view| {
            format!(
                " ({}, {} left)",
                view.name,
                format_count(view.tasks.total() - view.tasks.ended(), "task")
            )
        });
        format!("cancel job {job}{what}? y/n")
    });
    let chosen =
        screen.overview.jobs.get(screen.row(Pane::Jobs)).filter(|_| screen.pane == Pane::Jobs);
    let warning = chosen
        .and_then(|line| Some(format!("job {}: {}", line.view.job, line.view.warnings.first()?)));
    match asked.or_else(|| screen.notice.clone()).or(warning) {
        Some(words) => canvas.line(0, &words, canvas.style.colour(Colour::Yellow).bold()),
        None => canvas.line(0, KEYS, Style::DIM),
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Key;
    use super::super::overview::Snapshot;
    use super::super::overview::tests::{executor, job};
    use super::super::screen::tests::{press, screen as example};
    use super::super::watch::TopEvent;
    use super::*;

    const PLAIN: DrawStyle = DrawStyle { colour: false, unicode: true };

    fn drawn_with(screen: &Screen, width: u16, height: u16, style: DrawStyle) -> Buffer {
        let mut buffer = Buffer::blank(width, height);
        super::screen(&mut buffer, screen, style);
        buffer
    }

    fn drawn(screen: &Screen, width: u16, height: u16) -> Vec<String> {
        drawn_with(screen, width, height, PLAIN).text().lines().map(str::to_owned).collect()
    }

    #[test]
    fn eighty_columns_have_what_matters() {
        let expected = [
            "eyas sky   2 executors   2 jobs running",
            "cpus ████████████████████░░░░░░░ 3.0/4.0   992 waiting   2 running   250 tasks/s",
            "reads local 0 B/s   peers 0 B/s   storage 0 B/s   files 0 B/s",
            "── Jobs: 3 ─────────────────────────────────────────────────────────────────────",
            "JOB NAME         STATE     PROGRESS               TASKS FAILED   RATE        ETA",
            "  1 wide         running   █████░░░░░░  50%    500/1000      0  250/s     2.00 s",
            "  2 late         running   ░░░░░░░░░░░   0%       0/500      0  0.0/s          -",
            "  3 over         succeeded ███████████ 100%         7/7      0",
            "── Executors: 2 ────────────────────────────────────────────────────────────────",
            "NAME      CPUS  BUSY TASKS STATE     STORE           LOCAL       PEER    STORAGE",
            "n1         2.0   2.0     2 computing █░░░░  25%      0 B/s      0 B/s      0 B/s",
            "n2         2.0   1.0     1 computing █░░░░  25%      0 B/s      0 B/s      0 B/s",
            "",
            "",
            "",
            KEYS,
        ];
        assert_eq!(drawn(&example(), 80, 16), expected);
    }

    #[test]
    fn a_plain_frame_is_as_long_as_it_must_be() {
        let screen = example();
        let ascii = DrawStyle { colour: false, unicode: false };
        let expected = "\
eyas sky   2 executors   2 jobs running
cpus ######... 3.0/4.0   992 waiting   2 running   250 tasks/s
reads local 0 B/s   peers 0 B/s   storage 0 B/s   files 0 B/s
-- Jobs: 3 ---------------------------------------------------
JOB NAME         PROGRESS              TASKS   RATE        ETA
  1 wide         #####.....  50%    500/1000  250/s     2.00 s
  2 late         ..........   0%       0/500  0.0/s          -
  3 over         ########## 100%         7/7
-- Executors: 2 ----------------------------------------------
NAME        CPUS  BUSY TASKS STORE            LOCAL    STORAGE
n1           2.0   2.0     2 #.....  25%      0 B/s      0 B/s
n2           2.0   1.0     1 #.....  25%      0 B/s      0 B/s
";
        assert_eq!(plain("sky", &screen.overview, 62, ascii), expected);
    }

    #[test]
    fn panes_share_the_rows_and_show_what_is_chosen() {
        let jobs = (1..=40).map(|id| job(id, "many", 0, 10)).collect();
        let executors = (1..=30).map(|id| executor(id, 0)).collect();
        let mut screen =
            Screen::new("sky".into(), Snapshot { at_us: 0, jobs, executors, pools: Vec::new() });
        let title = |lines: &[String], name: &str| {
            let line = lines.iter().find(|line| line.contains(name)).cloned().unwrap_or_default();
            line.trim_matches(['─', ' ']).to_owned()
        };
        let lines = drawn(&screen, 80, 24);
        assert_eq!(title(&lines, "Jobs"), "Jobs: 1-8 of 40");
        assert_eq!(title(&lines, "Executors"), "Executors: 1-8 of 30");
        press(&mut screen, Key::End);
        let lines = drawn(&screen, 80, 24);
        assert_eq!(title(&lines, "Jobs"), "Jobs: 33-40 of 40");
        assert!(lines.iter().any(|line| line.starts_with(" 40 many")), "{lines:#?}");
        let reversed: Vec<_> = (0..24)
            .filter(|y| drawn_with(&screen, 80, 24, PLAIN).row(*y)[0].style.is_reversed)
            .collect();
        assert_eq!(reversed, [12], "the last of eight rows from line 5 on");
        // One job leaves its rows to the executors.
        screen.handle(TopEvent::Snapshot(Snapshot {
            at_us: 1,
            jobs: vec![job(1, "one", 0, 10)],
            executors: (1..=30).map(|id| executor(id, 0)).collect(),
            pools: Vec::new(),
        }));
        assert_eq!(title(&drawn(&screen, 80, 24), "Executors"), "Executors: 1-15 of 30");
    }

    #[test]
    fn questions_notices_and_warnings_are_on_the_last_line() {
        let mut screen = example();
        let last = |screen: &Screen| drawn(screen, 80, 24).pop().unwrap();
        assert_eq!(last(&screen), KEYS);
        press(&mut screen, Key::Character('c'));
        assert_eq!(last(&screen), "cancel job 1 (wide, 500 tasks left)? y/n");
        press(&mut screen, Key::Character('n'));
        screen.handle(TopEvent::Answer("job 1: 7 tasks were cancelled".into()));
        assert_eq!(last(&screen), "job 1: 7 tasks were cancelled");
        press(&mut screen, Key::Character('x'));
        screen.overview.jobs[0].view.warnings.push("no executor has a gpu".into());
        assert_eq!(last(&screen), "job 1: no executor has a gpu");
    }

    #[test]
    fn a_lost_dispatcher_is_plain_to_see() {
        let mut screen = example();
        screen.handle(TopEvent::Disconnected {
            why: "cannot reach sky:1: refused".into(),
            at_us: 14_500_000,
        });
        let lines = drawn(&screen, 80, 24);
        assert_eq!(lines[0], "eyas sky   NOT CONNECTED, reconnecting; the data below is 12 s old");
        assert_eq!(lines[2], "cannot reach sky:1: refused");
        assert!(
            lines.iter().any(|line| line.contains("500/1000")),
            "what was seen stays: {lines:#?}"
        );
    }

    #[test]
    fn colours_are_there_only_if_they_are_wanted() {
        let colours = |colour| {
            let buffer = drawn_with(&example(), 80, 24, DrawStyle { colour, unicode: true });
            (0..24).flat_map(|y| buffer.row(y)).filter(|cell| cell.style.colour.is_some()).count()
        };
        assert_eq!(colours(false), 0);
        assert!(colours(true) > 0);
    }

    #[test]
    fn the_screen_can_be_drawn_at_any_size() {
        for (width, height) in [(1, 1), (5, 2), (9, 3), (20, 5), (40, 8), (79, 9), (300, 100)] {
            for key in [Key::End, Key::Tab] {
                let mut screen = example();
                press(&mut screen, key);
                drawn(&screen, width, height);
                screen.handle(TopEvent::Disconnected { why: "gone".into(), at_us: 9_000_000 });
                drawn(&screen, width, height);
            }
        }
    }
}
