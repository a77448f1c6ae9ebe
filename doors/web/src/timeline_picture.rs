//! A timeline as a page draws it. Its size is bounded: of few tasks, each is told; of many, the
//! shares of time in cells of a grid. So 1,000,000 tasks are some 100 KB.

use serde::Serialize;

use crate::time_axis::{AxisMark, TimeAxis};
use crate::timeline::{BarState, TaskBar, Timeline, TimelineExecutor};

/// Rows of a picture. Of more slots than that, each executor is a row; of more executors, each
/// group of executors. Of one executor with more slots, each group of slots is a row.
const MAX_PICTURE_ROWS: usize = 96;
/// Tasks that are told one by one; of more, cells are told.
const MAX_PICTURE_BARS: usize = 1000;
/// Cells of a picture, and columns of its grid.
const MAX_PICTURE_CELLS: usize = 24_000;
const MAX_PICTURE_COLUMNS: usize = 600;
/// A cell that is filled has this share.
const WHOLE: f64 = 1000.0;

/// Which part of a timeline is drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PictureWindow {
    /// The job's time, microseconds; by default the whole time.
    pub from_us: Option<u64>,
    pub to_us: Option<u64>,
    /// Whether long stretches without tasks are drawn shorter.
    pub is_compressed: bool,
    /// Only the slots of this executor, by its position.
    pub executor: Option<usize>,
}

/// The part of a timeline that is drawn.
#[derive(Debug, Serialize)]
pub(crate) struct TimelinePicture {
    /// The part of the job's time, microseconds.
    pub from_us: u64,
    pub to_us: u64,
    /// The job's time now, or at its end.
    pub end_us: u64,
    /// Moments of the job's time with their positions on the axis. Between two, the axis is even.
    pub axis: Vec<AxisMark>,
    pub rows: Vec<PictureRow>,
    /// The tasks, if they are few.
    pub bars: Option<Vec<PictureBar>>,
    /// Cells in each row, if the tasks are many.
    pub columns: Option<usize>,
    pub totals: PictureTotals,
}

/// A slot, some slots of an executor, an executor, or some executors.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PictureRow {
    /// Name of the first executor.
    pub executor: String,
    /// Name of the last executor, if there are several.
    pub last_executor: Option<String>,
    /// Number of the first slot, from 1, if the row is of slots.
    pub slot: Option<u32>,
    /// Number of the last slot, if the row is of several.
    pub last_slot: Option<u32>,
    /// Number of slots of the row.
    pub slots: u32,
    /// The cells of the row.
    pub cells: Option<PictureCells>,
}

/// Thousandths of each cell's time, for what slots did. The rest of it, slots were idle.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PictureCells {
    pub staging: Vec<u16>,
    pub computing: Vec<u16>,
    pub delivering: Vec<u16>,
    /// At an executor, staging or computing.
    pub open: Vec<u16>,
    /// Number of tasks that failed in the cell.
    pub failed: Vec<u32>,
}

/// A task of a picture. Times are of the job, microseconds.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PictureBar {
    /// Index of the task in the job.
    pub index: u32,
    pub row: usize,
    /// `succeeded`, `failed`, `cancelled` or `open`.
    pub state: &'static str,
    /// Whether the beginning is estimated.
    pub is_estimated: bool,
    pub staged_us: u64,
    pub started_us: u64,
    pub ended_us: u64,
    pub delivered_us: u64,
}

/// Sums over the slots and time of a picture, microseconds.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PictureTotals {
    pub slots: u64,
    pub tasks: u64,
    pub staging_us: u64,
    pub computing_us: u64,
    pub delivering_us: u64,
    pub open_us: u64,
    pub idle_us: u64,
}

/// What a slot does in a part of a bar, in the order of the arrays below.
const STAGING: usize = 0;
const COMPUTING: usize = 1;
const DELIVERING: usize = 2;
const OPEN: usize = 3;

/// The parts of a bar within a window.
fn parts(bar: &TaskBar, from_us: u64, to_us: u64) -> [(usize, u64, u64); 3] {
    let computing = if bar.state == BarState::Open { OPEN } else { COMPUTING };
    [
        (STAGING, bar.staged_us, bar.started_us),
        (computing, bar.started_us, bar.ended_us),
        (DELIVERING, bar.ended_us, bar.delivered_us),
    ]
    .map(|(kind, from, to)| (kind, from.clamp(from_us, to_us), to.clamp(from_us, to_us)))
}

/// The rows of a picture, and the row of each slot.
struct Rows {
    rows: Vec<PictureRow>,
    /// First row of each executor; `None` if it is not drawn.
    first: Vec<Option<usize>>,
    /// Number of slots that are a row; `None` if rows are executors.
    slots_per_row: Option<u32>,
}

impl Rows {
    fn of(timeline: &Timeline, only: Option<usize>) -> Self {
        let executors = &timeline.executors;
        let is_shown = |at: usize| only.is_none_or(|only| only == at);
        let slots: usize = executors.iter().map(|executor| executor.slots as usize).sum();
        let slots_per_row = match only {
            Some(only) => Some(executors[only].slots.div_ceil(MAX_PICTURE_ROWS as u32).max(1)),
            None => (slots <= MAX_PICTURE_ROWS).then_some(1),
        };
        let group = executors.len().div_ceil(MAX_PICTURE_ROWS).max(1);
        let (mut rows, mut first) = (Vec::<PictureRow>::new(), Vec::new());
        for (at, executor) in executors.iter().enumerate() {
            if !is_shown(at) {
                first.push(None);
            } else if let Some(count) = slots_per_row {
                first.push(Some(rows.len()));
                rows.extend(rows_of_slots(executor, count));
            } else if let Some(last) = rows.last_mut().filter(|_| at % group > 0) {
                last.last_executor = Some(executor.name.clone());
                last.slots += executor.slots;
                first.push(Some(rows.len() - 1));
            } else {
                first.push(Some(rows.len()));
                let (executor, slots) = (executor.name.clone(), executor.slots);
                rows.push(PictureRow { executor, slots, ..PictureRow::default() });
            }
        }
        Rows { rows, first, slots_per_row }
    }

    fn row_of(&self, bar: &TaskBar) -> Option<usize> {
        let first = self.first[bar.executor as usize]?;
        Some(first + self.slots_per_row.map_or(0, |count| bar.slot / count) as usize)
    }
}

/// Rows of an executor, each of `count` slots.
fn rows_of_slots(executor: &TimelineExecutor, count: u32) -> impl Iterator<Item = PictureRow> {
    (0..executor.slots).step_by(count as usize).map(move |before| {
        let last = executor.slots.min(before.saturating_add(count));
        PictureRow {
            executor: executor.name.clone(),
            slot: Some(before + 1),
            last_slot: Some(last).filter(|last| *last > before + 1),
            slots: last - before,
            ..PictureRow::default()
        }
    })
}

/// Sums of time in the cells of a grid.
struct Grid {
    columns: usize,
    column_us: f64,
    /// By kind, then by row and column.
    sums: [Vec<f64>; 4],
    failed: Vec<u32>,
}

impl Grid {
    fn new(rows: usize, axis: &TimeAxis) -> Self {
        let columns = (MAX_PICTURE_CELLS / rows.max(1)).clamp(1, MAX_PICTURE_COLUMNS);
        let cells = rows * columns;
        Grid {
            columns,
            column_us: axis.length_us() as f64 / columns as f64,
            sums: [(); 4].map(|()| vec![0.0; cells]),
            failed: vec![0; cells],
        }
    }

    /// The cell of a row at a position of the axis.
    fn cell(&self, row: usize, position: f64) -> usize {
        let column = ((position / self.column_us) as usize).min(self.columns - 1);
        row * self.columns + column
    }

    /// Adds a part of a bar between two positions of the axis.
    fn add(&mut self, kind: usize, row: usize, from: f64, to: f64) {
        let (first, last) = (self.cell(row, from), self.cell(row, to));
        for cell in first..=last {
            let begin = (cell - row * self.columns) as f64 * self.column_us;
            let inside = to.min(begin + self.column_us) - from.max(begin);
            self.sums[kind][cell] += inside.max(0.0);
        }
    }

    fn cells(&self, row: usize, slots: u32) -> PictureCells {
        let own = row * self.columns..(row + 1) * self.columns;
        let whole = self.column_us * f64::from(slots.max(1));
        let shares = |kind: usize| {
            let share = |sum: &f64| (sum / whole * WHOLE).round().min(WHOLE) as u16;
            self.sums[kind][own.clone()].iter().map(share).collect()
        };
        PictureCells {
            staging: shares(STAGING),
            computing: shares(COMPUTING),
            delivering: shares(DELIVERING),
            open: shares(OPEN),
            failed: self.failed[own.clone()].to_vec(),
        }
    }
}

impl Timeline {
    /// Draws a part of the timeline.
    pub fn picture(&self, window: &PictureWindow) -> TimelinePicture {
        let end_us = self.end_us.max(1);
        let to_us = window.to_us.unwrap_or(end_us).clamp(1, end_us);
        let from_us = window.from_us.unwrap_or(0).min(to_us - 1);
        let axis = match window.is_compressed {
            true => TimeAxis::compressed(from_us, to_us, &self.busy),
            false => TimeAxis::even(from_us, to_us),
        };
        let mut rows = Rows::of(self, window.executor);
        let is_inside = |bar: &&TaskBar| bar.staged_us <= to_us && bar.delivered_us >= from_us;
        let shown = self.bars.iter().filter(is_inside);
        let shown: Vec<_> =
            shown.filter_map(|bar| rows.row_of(bar).map(|row| (row, bar))).collect();
        let totals = totals(&shown, &rows.rows, from_us, to_us);
        let has_bars = rows.slots_per_row == Some(1) && shown.len() <= MAX_PICTURE_BARS;
        let (mut bars, mut columns) = (None, None);
        if has_bars {
            bars = Some(shown.iter().map(|(row, bar)| picture_bar(*row, bar)).collect());
        } else {
            let grid = grid_of(&shown, rows.rows.len(), &axis, from_us, to_us);
            for (at, row) in rows.rows.iter_mut().enumerate() {
                row.cells = Some(grid.cells(at, row.slots));
            }
            columns = Some(grid.columns);
        }
        TimelinePicture {
            from_us,
            to_us,
            end_us,
            axis: axis.marks().to_vec(),
            rows: rows.rows,
            bars,
            columns,
            totals,
        }
    }
}

fn grid_of(
    shown: &[(usize, &TaskBar)],
    rows: usize,
    axis: &TimeAxis,
    from_us: u64,
    to_us: u64,
) -> Grid {
    let mut grid = Grid::new(rows, axis);
    for (row, bar) in shown {
        for (kind, from, to) in parts(bar, from_us, to_us) {
            if from < to {
                let at = |moment| axis.position_of(moment) as f64;
                grid.add(kind, *row, at(from), at(to));
            }
        }
        if bar.state == BarState::Failed && (from_us..=to_us).contains(&bar.ended_us) {
            let cell = grid.cell(*row, axis.position_of(bar.ended_us) as f64);
            grid.failed[cell] += 1;
        }
    }
    grid
}

fn picture_bar(row: usize, bar: &TaskBar) -> PictureBar {
    PictureBar {
        index: bar.index,
        row,
        state: match bar.state {
            BarState::Succeeded => "succeeded",
            BarState::Failed => "failed",
            BarState::Cancelled => "cancelled",
            BarState::Open => "open",
        },
        is_estimated: bar.is_estimated,
        staged_us: bar.staged_us,
        started_us: bar.started_us,
        ended_us: bar.ended_us,
        delivered_us: bar.delivered_us,
    }
}

fn totals(
    shown: &[(usize, &TaskBar)],
    rows: &[PictureRow],
    from_us: u64,
    to_us: u64,
) -> PictureTotals {
    let mut sums = [0; 4];
    for (_, bar) in shown {
        for (kind, from, to) in parts(bar, from_us, to_us) {
            sums[kind] += to.saturating_sub(from);
        }
    }
    let slots = rows.iter().map(|row| u64::from(row.slots)).sum();
    PictureTotals {
        slots,
        tasks: shown.len() as u64,
        staging_us: sums[STAGING],
        computing_us: sums[COMPUTING],
        delivering_us: sums[DELIVERING],
        open_us: sums[OPEN],
        idle_us: (slots * (to_us - from_us)).saturating_sub(sums.iter().sum()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::tests::{bar, executor};

    fn window(from_us: u64, to_us: u64) -> PictureWindow {
        PictureWindow { from_us: Some(from_us), to_us: Some(to_us), ..PictureWindow::default() }
    }

    #[test]
    fn few_tasks_are_drawn_one_by_one() {
        let failed = TaskBar { state: BarState::Failed, ..bar(1, 1, [10, 20, 90, 90]) };
        let tasks = vec![bar(0, 0, [0, 10, 50, 60]), failed];
        let executors = vec![executor("n1", 2), executor("n2", 1)];
        let timeline = Timeline::of(executors, tasks, Vec::new(), 100);
        let whole = timeline.picture(&PictureWindow::default());
        let rows: Vec<_> = whole.rows.iter().map(|row| (&*row.executor, row.slot)).collect();
        assert_eq!(rows, [("n1", Some(1)), ("n1", Some(2)), ("n2", Some(1))]);
        let bars = whole.bars.unwrap();
        assert_eq!((bars[0].row, bars[1].row, bars[1].state), (0, 2, "failed"));
        let PictureTotals { staging_us, computing_us, delivering_us, idle_us, .. } = whole.totals;
        assert_eq!((staging_us, computing_us, delivering_us, idle_us), (20, 110, 10, 160));
        // What is outside of the window does not count.
        let part = timeline.picture(&window(40, 55));
        assert_eq!((part.totals.computing_us, part.totals.delivering_us), (25, 5));
        let only = timeline.picture(&PictureWindow { executor: Some(1), ..window(0, 100) });
        assert_eq!((only.rows.len(), only.totals.tasks), (1, 1));
        // Odd windows are moved into the time of the job.
        for (from, to) in [(0, 0), (500, 600), (90, 10), (0, u64::MAX)] {
            let odd = timeline.picture(&window(from, to));
            assert!(odd.from_us < odd.to_us && odd.to_us <= 100, "{odd:?}");
        }
    }

    #[test]
    fn many_slots_of_one_executor_are_rows_of_some_slots() {
        let slots = 200;
        let tasks = (0..slots).map(|index| bar(index, 1, [0, 10, 60, 100])).collect();
        let executors = vec![executor("n1", 4), executor("n2", slots)];
        let timeline = Timeline::of(executors, tasks, Vec::new(), 100);
        let picture = timeline.picture(&PictureWindow { executor: Some(1), ..window(0, 100) });
        let rows: Vec<_> =
            picture.rows.iter().map(|row| (row.slot, row.last_slot, row.slots)).collect();
        // Of 200 slots, 66 rows have three, and the last one has two.
        assert_eq!(rows.len(), 67);
        assert_eq!((rows[0], rows[66]), ((Some(1), Some(3), 3), (Some(199), Some(200), 2)));
        assert!(picture.bars.is_none() && picture.totals.slots == u64::from(slots));
        let is_full = |row: &PictureRow| row.cells.as_ref().unwrap().computing[100] == 1000;
        assert!(picture.rows.iter().all(is_full), "tasks are in the rows of their slots");
    }

    #[test]
    fn many_tasks_are_cells_of_a_bounded_size() {
        let nodes = 300;
        let executors: Vec<_> = (0..nodes).map(|at| executor(&format!("n{at}"), 4)).collect();
        let one = |index: u32| {
            let begin = u64::from(index / (4 * nodes)) * 100;
            let times = [begin, begin + 25, begin + 75, begin + 75];
            bar(index, index % nodes, times)
        };
        let tasks: Vec<_> = (0..50 * 4 * nodes).map(one).collect();
        let timeline = Timeline::of(executors, tasks, Vec::new(), 5000);
        let picture = timeline.picture(&PictureWindow::default());
        assert!(picture.bars.is_none() && picture.rows.len() <= MAX_PICTURE_ROWS);
        let text = serde_json::to_string(&picture).unwrap();
        assert!(text.len() < 600_000, "{} bytes", text.len());
        // Each slot stages for a quarter of its time, and computes for half of it.
        let totals = &picture.totals;
        assert_eq!(totals.slots, u64::from(4 * nodes));
        assert_eq!(totals.computing_us, 2 * totals.staging_us);
        assert_eq!(totals.idle_us, totals.staging_us);
        let cells = picture.rows[0].cells.as_ref().unwrap();
        let mean = |shares: &[u16]| shares.iter().map(|share| u64::from(*share)).sum::<u64>();
        let columns = picture.columns.unwrap() as u64;
        assert!((245..255).contains(&(mean(&cells.staging) / columns)));
        assert!((495..505).contains(&(mean(&cells.computing) / columns)));
    }
}
