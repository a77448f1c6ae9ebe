//! What is said of the outputs of a failed task that were delivered all the same, or were not: a
//! line after what the program has written to its standard error, so every way to look at a task
//! shows it.

use eyas_types::name::without_slashes;
use eyas_types::outcome::Delivered;
use eyas_types::units::format_count;
use eyas_types::{Name, Status};

/// Most places that one line has.
const MAX_PLACES: usize = 3;

/// Where the output `file` of a failed task is. `None` if the task has not written it. Places in
/// the folder of submission, `base`, are said without it.
pub(super) fn said_of_delivered(
    file: &Name,
    delivered: &[Delivered],
    base: &Name,
) -> Option<String> {
    let place =
        |delivered: &Delivered| format!("`{}`", shown_place(&delivered.object.source, base));
    let mut places: Vec<_> = delivered.iter().take(MAX_PLACES).map(place).collect();
    let last = places.pop()?;
    let are = if delivered.len() == 1 { "is" } else { "are" };
    Some(match (places.is_empty(), delivered.len().saturating_sub(MAX_PLACES)) {
        (true, _) => format!("its output `{file}` {are} at {last}"),
        (false, 0) => format!("its outputs `{file}` {are} at {} and {last}", places.join(", ")),
        (false, more) => {
            let places = places.join(", ");
            let more = format_count(more as u64, "other place");
            format!("its outputs `{file}` {are} at {places}, {last} and {more}")
        }
    })
}

/// Why an output of a failed task was not delivered.
pub(super) fn said_of_undelivered(file: &Name, why: &Status) -> String {
    let why = match why {
        Status::Failed(failure) => failure.reason.clone(),
        other => other.to_string(),
    };
    format!("its output `{file}` was not delivered: {why}")
}

/// A place as a user would write it.
fn shown_place(url: &Name, base: &Name) -> Name {
    let Some(path) = url.strip_prefix(b"file://") else { return url.clone() };
    let inside = path.strip_prefix(without_slashes(base));
    match inside.and_then(|rest| rest.strip_prefix(b"/")) {
        // Without a destination of its own, a file goes to `./`.
        Some(relative) => relative.strip_prefix(b"./").unwrap_or(relative).into(),
        None => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use eyas_types::outcome::{Failure, FailureKind};
    use eyas_types::{FileMode, ObjectSpec, Version};

    use super::*;

    fn said(sources: &[&str]) -> Option<String> {
        let delivered = |source: &&str| {
            let version = Version::Modified { mtime_ns: 0, size_bytes: 0 };
            let object = ObjectSpec { source: (*source).into(), version, mode: FileMode::READABLE };
            Delivered { output: 0, object, place: None }
        };
        let all: Vec<_> = sources.iter().map(delivered).collect();
        said_of_delivered(&"log*".into(), &all, &"/home/me".into())
    }

    #[test]
    fn a_line_has_a_few_places_as_users_write_them() {
        assert_eq!(said(&[]), None);
        let one = |place: &str| Some(format!("its output `log*` is at `{place}`"));
        assert_eq!(said(&["file:///home/me/logs/3.txt"]), one("logs/3.txt"));
        assert_eq!(said(&["file:///home/me/./3.txt"]), one("3.txt"));
        assert_eq!(said(&["file:///home/merlin/3.txt"]), one("/home/merlin/3.txt"));
        assert_eq!(said(&["s3://bucket/3.txt"]), one("s3://bucket/3.txt"));
        let all = ["file:///a", "file:///b", "file:///c", "file:///d"];
        assert_eq!(said(&all[..2]).unwrap(), "its outputs `log*` are at `/a` and `/b`");
        assert_eq!(
            said(&all).unwrap(),
            "its outputs `log*` are at `/a`, `/b`, `/c` and 1 other place"
        );
    }

    #[test]
    fn what_was_not_delivered_is_said_with_its_reason() {
        let why = Failure { kind: FailureKind::Output, reason: "the disk is full".into() };
        assert_eq!(
            said_of_undelivered(&"log".into(), &Status::Failed(why)),
            "its output `log` was not delivered: the disk is full"
        );
    }
}
