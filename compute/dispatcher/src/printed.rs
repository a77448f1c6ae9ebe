//! Questions of clients about what running tasks have printed, until executors have answered them.
//! Each client asks one question at a time, so there are no more questions than connected clients.

use std::collections::BTreeMap;
use std::time::Duration;

use eyas_types::ExecutorId;
use eyas_wire::printed::{Printed, PrintedPiece};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Most questions that wait for answers. Further clients are refused.
pub(crate) const MAX_QUESTIONS: usize = 1024;

/// How long a client waits for the answer of an executor. Killed programs may take 2 s to end, in
/// which nothing is answered.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// What an executor answers; `None` if the program does not run.
type PieceOrNone = Option<Box<PrintedPiece>>;

/// The questions that wait.
#[derive(Debug, Default)]
pub(crate) struct PrintedReplies {
    asked: u64,
    waiting: BTreeMap<u64, (ExecutorId, oneshot::Sender<PieceOrNone>)>,
}

impl PrintedReplies {
    /// Adds a question to an executor. Returns its number, and where the answer comes; `None` if
    /// too many questions wait.
    pub fn ask(&mut self, executor: ExecutorId) -> Option<(u64, oneshot::Receiver<PieceOrNone>)> {
        // Clients that have gone away wait for nothing.
        self.waiting.retain(|_, (_, reply)| !reply.is_closed());
        if self.waiting.len() >= MAX_QUESTIONS {
            return None;
        }
        self.asked += 1;
        let (reply, answer) = oneshot::channel();
        self.waiting.insert(self.asked, (executor, reply));
        Some((self.asked, answer))
    }

    /// An executor has answered.
    pub fn answered(&mut self, executor: ExecutorId, question: u64, piece: PieceOrNone) {
        if self.waiting.get(&question).is_some_and(|(asked, _)| *asked == executor)
            && let Some((_, reply)) = self.waiting.remove(&question)
        {
            // The client may have gone away.
            let _ = reply.send(piece);
        }
    }

    /// An executor is gone, and answers nothing.
    pub fn lost(&mut self, executor: ExecutorId) {
        self.waiting.retain(|_, (asked, _)| *asked != executor);
    }
}

/// What is known of the output of a task.
pub(crate) enum PrintedNow {
    /// All that there is to say.
    Known(Printed),
    /// The task's executor was asked.
    Asked {
        /// Name of the executor.
        executor: String,
        /// Whether the task is suspended.
        is_suspended: bool,
        answer: oneshot::Receiver<PieceOrNone>,
    },
}

impl PrintedNow {
    /// Waits for the answer of the executor.
    pub async fn settled(self) -> Printed {
        let (executor, is_suspended, answer) = match self {
            PrintedNow::Known(printed) => return printed,
            PrintedNow::Asked { executor, is_suspended, answer } => {
                (executor, is_suspended, answer)
            }
        };
        match timeout(ANSWER_DEADLINE, answer).await {
            Ok(Ok(Some(piece))) => Printed::Running { executor, is_suspended, piece: *piece },
            Ok(Ok(None)) => Printed::NotRunning { executor },
            Ok(Err(_)) | Err(_) => Printed::Silent { executor },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ExecutorId = ExecutorId(1);
    const OTHER: ExecutorId = ExecutorId(2);

    #[test]
    fn an_answer_reaches_the_client_that_has_asked_and_lost_executors_answer_nothing() {
        let mut questions = PrintedReplies::default();
        let (first, mut answer) = questions.ask(ONE).unwrap();
        let (second, mut of_other) = questions.ask(OTHER).unwrap();
        assert_ne!(first, second);
        questions.answered(OTHER, first, None);
        assert!(answer.try_recv().is_err(), "another executor was asked");
        let piece = PrintedPiece { stdout: b"out".into(), ..PrintedPiece::default() };
        questions.answered(ONE, first, Some(Box::new(piece.clone())));
        questions.answered(ONE, first, None);
        assert_eq!(answer.try_recv().unwrap().as_deref(), Some(&piece));
        questions.lost(OTHER);
        assert_eq!(of_other.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    #[test]
    fn questions_are_bounded_and_those_of_clients_that_are_gone_do_not_count() {
        let mut questions = PrintedReplies::default();
        let answers: Vec<_> =
            (0..MAX_QUESTIONS).map(|_| questions.ask(ONE).expect("there is room")).collect();
        assert!(questions.ask(OTHER).is_none());
        drop(answers);
        assert!(questions.ask(OTHER).is_some());
    }

    #[tokio::test]
    async fn an_executor_that_is_gone_is_said() {
        let mut questions = PrintedReplies::default();
        let asked =
            |(_, answer)| PrintedNow::Asked { executor: "n1".into(), is_suspended: true, answer };
        let silent = Printed::Silent { executor: "n1".into() };
        let lost = questions.ask(OTHER).unwrap();
        questions.lost(OTHER);
        assert_eq!(asked(lost).settled().await, silent);
        let (number, answer) = questions.ask(ONE).unwrap();
        let piece = PrintedPiece::default();
        questions.answered(ONE, number, Some(Box::new(piece.clone())));
        assert_eq!(
            asked((number, answer)).settled().await,
            Printed::Running { executor: "n1".into(), is_suspended: true, piece }
        );
    }
}
