//! What `eyas top` shows and what is chosen on it: pure. News and keys come in, what is to be done goes out; how it
//! looks is decided in `draw`.

use eyas_client::types::JobId;
use eyas_client::view::JobState;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::overview::{Overview, Snapshot};
use super::watch::News;

/// Rows that PageUp and PageDown go.
const PAGE: isize = 10;
/// A notice is gone after so long.
const NOTICE_US: u64 = 5_000_000;

/// A part of the screen with rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pane {
    Jobs,
    Executors,
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Quit,
    Cancel(JobId),
}

/// Why nothing new is seen, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub why: String,
    pub since_us: u64,
}

/// The screen.
pub(crate) struct Screen {
    /// The cluster's name.
    pub cluster: String,
    /// What was seen last.
    pub overview: Overview,
    /// If the dispatcher is away; what was seen last is shown on.
    pub lost: Option<Lost>,
    /// Where keys go.
    pub pane: Pane,
    /// A job that is to be cancelled, if the answer is yes.
    pub question: Option<JobId>,
    /// What came of a request; until the next key, or for a while.
    pub notice: Option<String>,
    /// The chosen job, which stays chosen where it moves; `None` for whichever is first.
    job: Option<JobId>,
    /// The chosen executor's row.
    executor_row: usize,
    last: Snapshot,
    /// When the notice came.
    noticed_us: u64,
    /// Whether `last` was seen on this connection, so that rates can be told from it.
    comparable: bool,
}

impl Screen {
    pub fn new(cluster: String, first: Snapshot) -> Self {
        Screen {
            cluster,
            overview: Overview::between(None, &first),
            lost: None,
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

    /// Takes news in.
    pub fn learn(&mut self, news: News) {
        match news {
            News::Seen(snapshot) => {
                self.overview = Overview::between(self.comparable.then_some(&self.last), &snapshot);
                (self.last, self.comparable, self.lost) = (snapshot, true, None);
                if self.last.at_us.saturating_sub(self.noticed_us) > NOTICE_US {
                    self.notice = None;
                }
                self.executor_row = self.executor_row.min(self.overview.executors.len().saturating_sub(1));
            }
            // A dispatcher that started again counts executors' reads from nothing.
            News::Lost { why, at_us } => {
                self.comparable = false;
                self.lost = Some(Lost { why, since_us: at_us.saturating_sub(self.last.at_us) });
            }
            News::Said(words) => self.say(words),
        }
    }

    /// The chosen row of a pane.
    pub fn row(&self, pane: Pane) -> usize {
        match pane {
            Pane::Jobs => {
                let place = |job| self.overview.jobs.iter().position(|line| line.view.job == job);
                self.job.and_then(place).unwrap_or(0)
            }
            Pane::Executors => self.executor_row,
        }
    }

    /// Takes a key in.
    pub fn key(&mut self, key: KeyEvent) -> Option<Act> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.notice = None;
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Some(Act::Quit);
        }
        if let Some(job) = self.question {
            return self.answer(job, key.code);
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Act::Quit),
            KeyCode::Tab | KeyCode::BackTab => {
                self.pane = if self.pane == Pane::Jobs { Pane::Executors } else { Pane::Jobs };
            }
            KeyCode::Char('j') | KeyCode::Down => self.go(1),
            KeyCode::Char('k') | KeyCode::Up => self.go(-1),
            KeyCode::PageDown => self.go(PAGE),
            KeyCode::PageUp => self.go(-PAGE),
            KeyCode::Home => self.go(isize::MIN),
            KeyCode::End => self.go(isize::MAX),
            KeyCode::Char('c') => self.ask_to_cancel(),
            _ => {}
        }
        None
    }

    /// Only a yes is a yes; a key that is no answer leaves the question.
    fn answer(&mut self, job: JobId, key: KeyCode) -> Option<Act> {
        match key {
            KeyCode::Char('y' | 'Y') => {
                self.question = None;
                Some(Act::Cancel(job))
            }
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc | KeyCode::Enter => {
                self.question = None;
                None
            }
            _ => None,
        }
    }

    fn ask_to_cancel(&mut self) {
        let chosen = self.overview.jobs.get(self.row(Pane::Jobs)).map(|line| (line.view.job, line.view.state));
        match chosen {
            _ if self.pane != Pane::Jobs => self.say("c cancels jobs: choose one there (tab)".into()),
            None => self.say("there is no job to cancel".into()),
            Some((job, JobState::Running)) => self.question = Some(job),
            Some((job, _)) => self.say(format!("job {job} has ended")),
        }
    }

    fn say(&mut self, words: String) {
        (self.notice, self.noticed_us) = (Some(words), self.last.at_us);
    }

    fn go(&mut self, rows: isize) {
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
        let jobs = vec![job(1, "wide", succeeded, 1000), job(2, "late", 0, 500), job(3, "over", 7, 7)];
        Snapshot { at_us, jobs, executors: vec![executor(1, 2000), executor(2, 1000)] }
    }

    pub(crate) fn screen() -> Screen {
        let mut screen = Screen::new("sky".into(), seen(1_000_000, 250));
        screen.learn(News::Seen(seen(2_000_000, 500)));
        screen
    }

    pub(crate) fn press(screen: &mut Screen, code: KeyCode) -> Option<Act> {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_that_quit() {
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(press(&mut screen(), code), Some(Act::Quit));
        }
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        let mut screen = screen();
        assert_eq!(screen.key(interrupt), Some(Act::Quit));
        press(&mut screen, KeyCode::Char('c'));
        assert_eq!(screen.key(interrupt), Some(Act::Quit), "a question does not hold it");
    }

    #[test]
    fn a_job_is_cancelled_after_a_yes_alone() {
        for (keys, cancelled) in [("cy", Some(1)), ("jcY", Some(2)), ("cn", None), ("cny", None), ("y", None)] {
            let mut screen = screen();
            let acts: Vec<_> = keys.chars().filter_map(|key| press(&mut screen, KeyCode::Char(key))).collect();
            assert_eq!(acts, cancelled.map(|job| Act::Cancel(JobId(job))).into_iter().collect::<Vec<_>>(), "{keys}");
            assert_eq!(screen.question, None, "{keys}");
        }
        let mut screen = screen();
        for key in "cx".chars() {
            press(&mut screen, KeyCode::Char(key));
        }
        assert_eq!(screen.question, Some(JobId(1)));
        // What was asked stays what is answered, though the job is no longer the first.
        let mut later = seen(3_000_000, 1000);
        later.jobs[0].state = JobState::Succeeded;
        screen.learn(News::Seen(later));
        assert_eq!(press(&mut screen, KeyCode::Char('y')), Some(Act::Cancel(JobId(1))));
    }

    #[test]
    fn what_cannot_be_cancelled_says_why() {
        for (keys, why) in [(&[KeyCode::End][..], "job 3 has ended"), (&[KeyCode::Tab], "choose one there")] {
            let mut screen = screen();
            keys.iter().for_each(|key| assert_eq!(press(&mut screen, *key), None));
            press(&mut screen, KeyCode::Char('c'));
            assert_eq!(screen.question, None);
            assert!(screen.notice.as_ref().is_some_and(|notice| notice.contains(why)), "{:?}", screen.notice);
            press(&mut screen, KeyCode::Home);
            assert_eq!(screen.notice, None);
        }
    }

    #[test]
    fn a_notice_goes_after_a_while() {
        let mut screen = screen();
        screen.learn(News::Said("done".into()));
        screen.learn(News::Seen(seen(2_000_000 + NOTICE_US, 500)));
        assert_eq!(screen.notice.as_deref(), Some("done"));
        screen.learn(News::Seen(seen(2_000_001 + NOTICE_US, 500)));
        assert_eq!(screen.notice, None);
    }

    #[test]
    fn rows_are_chosen_within_their_pane_and_stay_with_their_job() {
        let mut screen = screen();
        press(&mut screen, KeyCode::Up);
        assert_eq!(screen.row(Pane::Jobs), 0);
        press(&mut screen, KeyCode::Down);
        assert_eq!((screen.row(Pane::Jobs), screen.row(Pane::Executors)), (1, 0));
        screen.learn(News::Seen(seen(3_000_000, 1000)));
        assert_eq!(screen.overview.jobs[screen.row(Pane::Jobs)].view.job, JobId(2), "which is now the first");
        assert_eq!(screen.row(Pane::Jobs), 0);
        press(&mut screen, KeyCode::Tab);
        press(&mut screen, KeyCode::PageDown);
        assert_eq!(screen.row(Pane::Executors), 1);
        let mut fewer = seen(4_000_000, 1000);
        fewer.executors.pop();
        screen.learn(News::Seen(fewer));
        assert_eq!(screen.row(Pane::Executors), 0);
    }

    #[test]
    fn after_a_loss_rates_begin_anew() {
        let mut screen = screen();
        assert_eq!(screen.overview.cluster.tasks_per_s, Some(250.0));
        screen.learn(News::Lost { why: "gone".into(), at_us: 5_000_000 });
        assert_eq!(screen.lost, Some(Lost { why: "gone".into(), since_us: 3_000_000 }));
        assert_eq!(screen.overview.jobs.len(), 3, "what was seen stays");
        screen.learn(News::Seen(seen(6_000_000, 600)));
        assert_eq!((screen.lost.clone(), screen.overview.cluster.tasks_per_s), (None, None));
        screen.learn(News::Seen(seen(7_000_000, 610)));
        assert_eq!(screen.overview.cluster.tasks_per_s, Some(10.0));
    }
}
