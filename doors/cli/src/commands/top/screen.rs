//! The state of `eyas top`: the last snapshot, the selection, and open questions. It is pure: it
//! takes events and keys, and returns actions. `draw` draws it.

use eyas_client::types::JobId;
use eyas_client::view::JobState;

use super::keys::Key;
use super::overview::{Overview, Snapshot};
use super::watch::TopEvent;

/// Number of rows that PageUp and PageDown move the selection by.
const PAGE: isize = 10;
/// A notice disappears after this time.
const NOTICE_US: u64 = 5_000_000;

/// A part of the screen: a title and a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pane {
    Jobs,
    Executors,
}

/// An action that a key asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeyAction {
    Quit,
    Cancel(JobId),
}

/// The loss of the connection to the dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disconnection {
    pub why: String,
    /// Age of the last snapshot, microseconds.
    pub age_us: u64,
}

/// Everything that the view shows.
pub(crate) struct Screen {
    /// Name of the cluster.
    pub cluster: String,
    /// The last snapshot, with rates.
    pub overview: Overview,
    /// Set while the dispatcher cannot be reached; the last snapshot stays visible.
    pub disconnection: Option<Disconnection>,
    /// The pane that keys act on.
    pub pane: Pane,
    /// The job that is cancelled if the user answers yes.
    pub question: Option<JobId>,
    /// The outcome of a request; shown until the next key, or for [`NOTICE_US`].
    pub notice: Option<String>,
    /// The selected job, which stays selected when its row moves; `None` selects the first row.
    job: Option<JobId>,
    /// The row of the selected executor.
    executor_row: usize,
    last: Snapshot,
    /// Time of the notice.
    noticed_us: u64,
    /// Whether `last` is from the present connection, so that rates can be computed from it.
    comparable: bool,
}

impl Screen {
    pub fn new(cluster: String, first: Snapshot) -> Self {
        Screen {
            cluster,
            overview: Overview::between(None, &first),
            disconnection: None,
            pane: Pane::Jobs,
            question: None,
            notice: None,
            job: None,
            executor_row: 0,
            last: first,
            noticed_us: 0,
            comparable: true,
        }
    }

    /// Handles an event of the watch.
    pub fn handle(&mut self, event: TopEvent) {
        match event {
            TopEvent::Snapshot(snapshot) => {
                self.overview = Overview::between(self.comparable.then_some(&self.last), &snapshot);
                (self.last, self.comparable, self.disconnection) = (snapshot, true, None);
                if self.last.at_us.saturating_sub(self.noticed_us) > NOTICE_US {
                    self.notice = None;
                }
                self.executor_row =
                    self.executor_row.min(self.overview.executors.len().saturating_sub(1));
            }
            TopEvent::Disconnected { why, at_us } => {
                // A restarted dispatcher counts the reads of executors from 0 again.
                self.comparable = false;
                self.disconnection =
                    Some(Disconnection { why, age_us: at_us.saturating_sub(self.last.at_us) });
            }
            TopEvent::Answer(words) => self.notify(words),
        }
    }

    /// The selected row of a pane.
    pub fn row(&self, pane: Pane) -> usize {
        match pane {
            Pane::Jobs => {
                let place = |job| self.overview.jobs.iter().position(|line| line.view.job == job);
                self.job.and_then(place).unwrap_or(0)
            }
            Pane::Executors => self.executor_row,
        }
    }

    /// Handles a key.
    pub fn key(&mut self, key: Key) -> Option<KeyAction> {
        self.notice = None;
        if key == Key::Interrupt {
            return Some(KeyAction::Quit);
        }
        if let Some(job) = self.question {
            return self.answer(job, key);
        }
        match key {
            Key::Character('q') | Key::Escape => return Some(KeyAction::Quit),
            Key::Tab => {
                self.pane = if self.pane == Pane::Jobs { Pane::Executors } else { Pane::Jobs };
            }
            Key::Character('j') | Key::Down => self.move_by(1),
            Key::Character('k') | Key::Up => self.move_by(-1),
            Key::PageDown => self.move_by(PAGE),
            Key::PageUp => self.move_by(-PAGE),
            Key::Home => self.move_by(isize::MIN),
            Key::End => self.move_by(isize::MAX),
            Key::Character('c') => self.ask_to_cancel(),
            _ => {}
        }
        None
    }

    /// Handles a key while a question is open. Keys other than yes and no leave the question open.
    fn answer(&mut self, job: JobId, key: Key) -> Option<KeyAction> {
        match key {
            Key::Character('y' | 'Y') => {
                self.question = None;
                Some(KeyAction::Cancel(job))
            }
            Key::Character('n' | 'N' | 'q') | Key::Escape | Key::Enter => {
                self.question = None;
                None
            }
            _ => None,
        }
    }

    fn ask_to_cancel(&mut self) {
        let chosen = self
            .overview
            .jobs
            .get(self.row(Pane::Jobs))
            .map(|line| (line.view.job, line.view.state));
        match chosen {
            _ if self.pane != Pane::Jobs => {
                self.notify("select a job to cancel: press tab to go to the jobs".into())
            }
            None => self.notify("there is no job to cancel".into()),
            Some((job, JobState::Running)) => self.question = Some(job),
            Some((job, _)) => self.notify(format!("job {job} has already ended")),
        }
    }

    fn notify(&mut self, words: String) {
        (self.notice, self.noticed_us) = (Some(words), self.last.at_us);
    }

    fn move_by(&mut self, rows: isize) {
        let count = match self.pane {
            Pane::Jobs => self.overview.jobs.len(),
            Pane::Executors => self.overview.executors.len(),
        };
        let row = self.row(self.pane).saturating_add_signed(rows).min(count.saturating_sub(1));
        match self.pane {
            Pane::Jobs => self.job = self.overview.jobs.get(row).map(|line| line.view.job),
            Pane::Executors => self.executor_row = row,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::overview::tests::{executor, job};
    use super::*;

    /// Two executors, jobs 1 (of 1000 tasks) and 2 (of 500) running, job 3 ended.
    pub(crate) fn seen(at_us: u64, succeeded: u64) -> Snapshot {
        let jobs =
            vec![job(1, "wide", succeeded, 1000), job(2, "late", 0, 500), job(3, "over", 7, 7)];
        Snapshot {
            at_us,
            jobs,
            executors: vec![executor(1, 2000), executor(2, 1000)],
            pools: vec![],
        }
    }

    pub(crate) fn screen() -> Screen {
        let mut screen = Screen::new("sky".into(), seen(1_000_000, 250));
        screen.handle(TopEvent::Snapshot(seen(2_000_000, 500)));
        screen
    }

    pub(crate) fn press(screen: &mut Screen, code: Key) -> Option<KeyAction> {
        screen.key(code)
    }

    #[test]
    fn keys_that_quit() {
        for code in [Key::Character('q'), Key::Escape] {
            assert_eq!(press(&mut screen(), code), Some(KeyAction::Quit));
        }
        let mut screen = screen();
        assert_eq!(screen.key(Key::Interrupt), Some(KeyAction::Quit));
        press(&mut screen, Key::Character('c'));
        assert_eq!(
            screen.key(Key::Interrupt),
            Some(KeyAction::Quit),
            "also while a question is open"
        );
    }

    #[test]
    fn a_job_is_cancelled_after_a_yes_alone() {
        for (keys, cancelled) in
            [("cy", Some(1)), ("jcY", Some(2)), ("cn", None), ("cny", None), ("y", None)]
        {
            let mut screen = screen();
            let actions: Vec<_> =
                keys.chars().filter_map(|key| press(&mut screen, Key::Character(key))).collect();
            assert_eq!(
                actions,
                cancelled.map(|job| KeyAction::Cancel(JobId(job))).into_iter().collect::<Vec<_>>(),
                "{keys}"
            );
            assert_eq!(screen.question, None, "{keys}");
        }
        let mut screen = screen();
        for key in "cx".chars() {
            press(&mut screen, Key::Character(key));
        }
        assert_eq!(screen.question, Some(JobId(1)));
        // The answer is for the job of the question, although that job is no longer in the first
        // row.
        let mut later = seen(3_000_000, 1000);
        later.jobs[0].state = JobState::Succeeded;
        screen.handle(TopEvent::Snapshot(later));
        assert_eq!(press(&mut screen, Key::Character('y')), Some(KeyAction::Cancel(JobId(1))));
    }

    #[test]
    fn a_job_that_cannot_be_cancelled_is_reported() {
        for (keys, why) in
            [(&[Key::End][..], "job 3 has already ended"), (&[Key::Tab], "select a job")]
        {
            let mut screen = screen();
            keys.iter().for_each(|key| assert_eq!(press(&mut screen, *key), None));
            press(&mut screen, Key::Character('c'));
            assert_eq!(screen.question, None);
            assert!(
                screen.notice.as_ref().is_some_and(|notice| notice.contains(why)),
                "{:?}",
                screen.notice
            );
            press(&mut screen, Key::Home);
            assert_eq!(screen.notice, None);
        }
    }

    #[test]
    fn a_notice_goes_after_a_while() {
        let mut screen = screen();
        screen.handle(TopEvent::Answer("done".into()));
        screen.handle(TopEvent::Snapshot(seen(2_000_000 + NOTICE_US, 500)));
        assert_eq!(screen.notice.as_deref(), Some("done"));
        screen.handle(TopEvent::Snapshot(seen(2_000_001 + NOTICE_US, 500)));
        assert_eq!(screen.notice, None);
    }

    #[test]
    fn rows_are_chosen_within_their_pane_and_stay_with_their_job() {
        let mut screen = screen();
        press(&mut screen, Key::Up);
        assert_eq!(screen.row(Pane::Jobs), 0);
        press(&mut screen, Key::Down);
        assert_eq!((screen.row(Pane::Jobs), screen.row(Pane::Executors)), (1, 0));
        screen.handle(TopEvent::Snapshot(seen(3_000_000, 1000)));
        assert_eq!(
            screen.overview.jobs[screen.row(Pane::Jobs)].view.job,
            JobId(2),
            "which is now the first"
        );
        assert_eq!(screen.row(Pane::Jobs), 0);
        press(&mut screen, Key::Tab);
        press(&mut screen, Key::PageDown);
        assert_eq!(screen.row(Pane::Executors), 1);
        let mut fewer = seen(4_000_000, 1000);
        fewer.executors.pop();
        screen.handle(TopEvent::Snapshot(fewer));
        assert_eq!(screen.row(Pane::Executors), 0);
    }

    #[test]
    fn rates_are_measured_again_after_a_disconnection() {
        let mut screen = screen();
        assert_eq!(screen.overview.cluster.tasks_per_s, Some(250.0));
        screen.handle(TopEvent::Disconnected { why: "gone".into(), at_us: 5_000_000 });
        assert_eq!(
            screen.disconnection,
            Some(Disconnection { why: "gone".into(), age_us: 3_000_000 })
        );
        assert_eq!(screen.overview.jobs.len(), 3, "the last snapshot stays visible");
        screen.handle(TopEvent::Snapshot(seen(6_000_000, 600)));
        assert_eq!(
            (screen.disconnection.clone(), screen.overview.cluster.tasks_per_s),
            (None, None)
        );
        screen.handle(TopEvent::Snapshot(seen(7_000_000, 610)));
        assert_eq!(screen.overview.cluster.tasks_per_s, Some(10.0));
    }
}
