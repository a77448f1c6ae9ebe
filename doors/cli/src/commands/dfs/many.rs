//! Work on many files at the same time, in bounded memory. The client sends the requests of all of
//! them in groups.

use std::path::Path;
use std::sync::Arc;

use eyas_client::files::{FilesError, FilesErrorKind, SMALL_CHUNK_BYTES};
use eyas_client::types::units::format_count;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::error::CliError;

/// Maximum number of files under way.
const FILES_TOGETHER: usize = 2048;

/// Maximum cost of all files under way, bytes. A file that costs more goes alone.
const BYTES_TOGETHER: u64 = 64 << 20;

/// The cost of a large file, of which a few chunks are in memory at a time, bytes.
pub(super) const LARGE_FILE_BYTES: u64 = 16 << 20;

/// The least cost of a file that needs a thread, a connection or a large buffer, bytes: 32 such
/// files go together.
const BUFFER_BYTES: u64 = 2 << 20;

/// Maximum number of source files that are opened and read at the same time.
const READERS: usize = 8;

/// The cost of writing a file, from its size if that is known: small files share their groups.
pub(super) fn cost_to_put(path: &Path) -> u64 {
    match path.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len())
    {
        Some(bytes) if bytes <= SMALL_CHUNK_BYTES as u64 => bytes,
        Some(bytes) => bytes.clamp(BUFFER_BYTES, LARGE_FILE_BYTES),
        None => LARGE_FILE_BYTES,
    }
}

/// The cost of reading a file: small files share their groups.
pub(super) fn cost_to_read(size_bytes: u64) -> u64 {
    match size_bytes <= SMALL_CHUNK_BYTES as u64 {
        true => size_bytes,
        false => size_bytes.clamp(BUFFER_BYTES / 4, LARGE_FILE_BYTES),
    }
}

/// The cost of moving replicas of a file from node to node. Nothing of them is in memory here, but
/// each chunk has a transfer.
pub(super) fn cost_to_move(size_bytes: u64) -> u64 {
    size_bytes.clamp(BUFFER_BYTES, LARGE_FILE_BYTES)
}

/// Bounds the source files that are opened at the same time.
pub(super) fn readers() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(READERS))
}

/// Does `act` for each item, many at a time, and begins them in order. After a failure, no further
/// item is begun; those under way are completed. `see` is told each result as it comes, with the
/// place of the item. Returns the number of items that were begun.
pub(super) async fn for_each<T, R, F>(
    items: impl IntoIterator<Item = T>,
    cost: impl Fn(&T) -> u64,
    act: impl Fn(T) -> F,
    mut see: impl FnMut(usize, Result<R, CliError>),
) -> usize
where
    R: Send + 'static,
    F: Future<Output = Result<R, CliError>> + Send + 'static,
{
    let mut items = items.into_iter().peekable();
    let (mut under_way, mut bytes_under_way, mut begun, mut has_failed) =
        (JoinSet::new(), 0, 0, false);
    loop {
        while !has_failed && let Some(next) = items.peek() {
            let bytes = cost(next);
            let is_full =
                under_way.len() >= FILES_TOGETHER || bytes_under_way + bytes > BYTES_TOGETHER;
            if is_full && !under_way.is_empty() {
                break;
            }
            let (place, acting) = (begun, act(items.next().expect("it was just there")));
            under_way.spawn(async move { (place, bytes, acting.await) });
            bytes_under_way += bytes;
            begun += 1;
        }
        let Some(ended) = under_way.join_next().await else { return begun };
        let (place, bytes, result) = ended.unwrap_or_else(eyas_panics::resume);
        bytes_under_way -= bytes;
        has_failed |= result.is_err();
        see(place, result);
    }
}

/// What a command with many files has done, for its error.
pub(super) struct FilesOutcome<R> {
    /// The results by place, of items that were completed.
    pub done: Vec<Option<R>>,
    /// The places of items that failed, with the reasons.
    pub failed: Vec<(usize, CliError)>,
    begun: usize,
}

impl<R> FilesOutcome<R> {
    /// Does `act` for each of `count` items, and calls `completed` for each that was completed.
    pub async fn of<T, F>(
        items: Vec<T>,
        cost: impl Fn(&T) -> u64,
        act: impl Fn(T) -> F,
        completed: impl Fn(&R),
    ) -> Self
    where
        R: Send + 'static,
        F: Future<Output = Result<R, CliError>> + Send + 'static,
    {
        let mut done: Vec<Option<R>> = std::iter::repeat_with(|| None).take(items.len()).collect();
        let mut failed = Vec::new();
        let begun = for_each(items, cost, act, |place, result| match result {
            Ok(result) => {
                completed(&result);
                done[place] = Some(result);
            }
            Err(error) => failed.push((place, error)),
        });
        let begun = begun.await;
        failed.sort_by_key(|(place, _)| *place);
        FilesOutcome { done, failed, begun }
    }

    /// The results of all items; or an error that says which items were completed and which were
    /// not. `verb` is what was done to them.
    pub fn all_or_why(
        self,
        verb: &str,
        name: impl Fn(usize) -> String,
    ) -> Result<Vec<R>, CliError> {
        let FilesOutcome { done, mut failed, begun } = self;
        let total = done.len();
        if failed.is_empty() {
            return Ok(done.into_iter().flatten().collect());
        }
        if total == 1 {
            return Err(failed.remove(0).1);
        }
        let completed = done.iter().flatten().count();
        let mut words =
            format!("{completed} of {} were {verb}", format_count(total as u64, "file"));
        if completed > 0 {
            words.push_str(&format!(": all up to {}, except", name(begun - 1)));
        } else {
            words.push_str("; these were not:");
        }
        for (place, why) in &failed {
            words.push_str(&format!("\n  {}: {why}", name(*place)));
        }
        match total - begun {
            0 => {}
            1 => words.push_str(&format!("\n{} was not begun", name(begun))),
            more => words.push_str(&format!(
                "\n{} and {} after it were not begun",
                name(begun),
                format_count(more as u64 - 1, "file")
            )),
        }
        Err(words.into())
    }
}

/// Ignores that a file is not there, since another client has removed it.
pub(super) fn or_gone(removed: Result<(), FilesError>) -> Result<(), CliError> {
    match removed {
        Err(error) if error.kind == FilesErrorKind::NotFound => Ok(()),
        removed => Ok(removed?),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn files_under_way_are_bounded_and_all_are_done() {
        let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for (bytes, bound) in [(1, FILES_TOGETHER), (1 << 20, 64), (BYTES_TOGETHER * 2, 1)] {
            most.store(0, Ordering::Relaxed);
            let act = |number: usize| {
                let (under_way, most) = (under_way.clone(), most.clone());
                async move {
                    most.fetch_max(
                        under_way.fetch_add(1, Ordering::Relaxed) + 1,
                        Ordering::Relaxed,
                    );
                    for _ in 0..number % 7 {
                        tokio::task::yield_now().await;
                    }
                    under_way.fetch_sub(1, Ordering::Relaxed);
                    Ok(number)
                }
            };
            let outcome = FilesOutcome::of((0..4000).collect(), |_| bytes, act, |_| {}).await;
            let all = outcome.all_or_why("stored", |place| place.to_string()).unwrap();
            assert!(all.into_iter().eq(0..4000), "in the order of the items");
            assert!((1..=bound).contains(&most.load(Ordering::Relaxed)), "{bytes}: {most:?}");
        }
    }

    #[tokio::test]
    async fn a_failure_names_what_failed_and_what_was_not_begun() {
        let act = |number: usize| async move {
            match number % 400 {
                300 => Err(format!("no space for {number}").into()),
                _ => Ok(number),
            }
        };
        let run = async |count: usize| {
            let outcome = FilesOutcome::of((0..count).collect(), |_| 1, act, |_| {}).await;
            outcome
                .all_or_why("stored", |place| format!("f{place}"))
                .map_err(|error| error.to_string())
        };
        assert_eq!(run(300).await.unwrap().len(), 300);
        let why = run(301).await.unwrap_err();
        assert_eq!(
            why,
            "300 of 301 files were stored: all up to f300, except\n  f300: no space for 300"
        );
        let why = run(10_000).await.unwrap_err();
        assert!(
            why.contains("\n  f300: no space for 300") && why.contains(" after it were not begun"),
            "{why}"
        );
        let done: usize = why.split(' ').next().unwrap().parse().unwrap();
        let failed = why.lines().filter(|line| line.starts_with("  f")).count();
        let begun =
            why.lines().last().unwrap().split(' ').next().unwrap()[1..].parse::<usize>().unwrap();
        assert_eq!(done + failed, begun, "{why}");
        let only =
            FilesOutcome::<()>::of(vec![()], |()| 1, |()| async { Err("why".into()) }, |()| {})
                .await;
        assert_eq!(only.all_or_why("stored", |_| String::new()).unwrap_err().to_string(), "why");
    }
}
