//! Which task of a job has which place in persistent storage. Of two tasks whose outputs would be
//! one file, the second would replace what the first wrote. What tasks write is known only when
//! they have run: a pattern finds it, a symbolic link leads to it. So each task claims its places
//! before its outputs appear, and has all of them or none.
//!
//! A place that the job says a task has is not claimed: it is that task's from the beginning.
//!
//! Tasks of an attached job have no places: a client that adds a task later may mean to replace
//! what an earlier one wrote, and the last one counts.
//!
//! A place stays with its task as long as the job is remembered: the same task may write there
//! again, after a failure or when its output is made again. A task that ends without success lets
//! go of what it claimed, other than the places of outputs that it has delivered all the same
//! (`when = "failure"` or `"always"`). Another job knows nothing of it, and may replace all.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::outcome::Delivered;
use eyas_types::{Outcome, PlaceId};

use crate::spec::JobSpec;

/// The places of a job's tasks.
#[derive(Debug, Default)]
pub(crate) struct Places {
    owners: BTreeMap<PlaceId, u32>,
    /// What the job says, once a task has claimed something: most jobs need it never.
    declared: Option<BTreeMap<PlaceId, u32>>,
    /// What tasks have claimed that have not ended since.
    claimed: BTreeMap<u32, Vec<PlaceId>>,
}

impl Places {
    /// Gives a task these places.
    ///
    /// # Errors
    /// The first place that another task has, and which that is; then the task is given none.
    pub fn claim(
        &mut self,
        task: u32,
        places: Vec<PlaceId>,
        spec: &JobSpec,
    ) -> Result<(), (PlaceId, u32)> {
        self.declared.get_or_insert_with(|| spec.declared_places());
        if let Some(taken) = self.taken(task, places.iter().copied()) {
            return Err(taken);
        }
        self.owners.extend(places.iter().map(|place| (*place, task)));
        self.claimed.entry(task).or_default().extend(places);
        Ok(())
    }

    /// The first place that another task has, and which that is.
    fn taken(
        &self,
        task: u32,
        places: impl IntoIterator<Item = PlaceId>,
    ) -> Option<(PlaceId, u32)> {
        let declared = |place: PlaceId| self.declared.as_ref()?.get(&place);
        let owner =
            |place: PlaceId| Some((place, *self.owners.get(&place).or_else(|| declared(place))?));
        places.into_iter().filter_map(owner).find(|(_, owner)| *owner != task)
    }

    /// Whether a task could have ended so: no other task has a place of its outputs.
    pub fn allow(&self, task: u32, outcome: &Outcome) -> bool {
        self.taken(task, places_of(outcome)).is_none()
    }

    /// All places with their tasks.
    pub fn owners(&self) -> impl Iterator<Item = (PlaceId, u32)> {
        self.owners.iter().map(|(place, task)| (*place, *task))
    }

    /// Gives tasks the places that a snapshot says they have.
    pub fn give(&mut self, owners: Vec<(PlaceId, u32)>) {
        self.owners.extend(owners);
    }

    /// A task has ended: it has the places of what it delivered, and no other that it claimed since
    /// it ended last. One that had succeeded before, and has not now, has none.
    pub fn ended(&mut self, task: u32, outcome: &Outcome, has_succeeded_before: bool) {
        for place in self.claimed.remove(&task).unwrap_or_default() {
            self.owners.remove(&place);
        }
        if !outcome.status.is_success() && has_succeeded_before {
            self.owners.retain(|_, owner| *owner != task);
        }
        for place in places_of(outcome) {
            self.owners.entry(place).or_insert(task);
        }
    }
}

fn places_of(outcome: &Outcome) -> impl Iterator<Item = PlaceId> {
    outcome.outputs.iter().filter_map(|Delivered { place, .. }| *place)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use eyas_types::{FileMode, ObjectSpec, Status, Version};

    const A: PlaceId = PlaceId([0; 16]);
    const B: PlaceId = PlaceId([1; 16]);

    fn claim(places: &mut Places, task: u32, wanted: Vec<PlaceId>) -> Result<(), (PlaceId, u32)> {
        places.claim(task, wanted, &JobSpec::default())
    }

    fn delivered(places: &[PlaceId]) -> Outcome {
        let version = Version::Modified { mtime_ns: 0, size_bytes: 0 };
        let object = ObjectSpec { source: "file:///x".into(), version, mode: FileMode::READABLE };
        let output =
            |place: &PlaceId| Delivered { output: 0, object: object.clone(), place: Some(*place) };
        Outcome { outputs: places.iter().map(output).collect(), ..Outcome::of(Status::Succeeded) }
    }

    #[test]
    fn a_place_is_one_tasks_until_that_fails() {
        let mut places = Places::default();
        assert_eq!(claim(&mut places, 0, vec![A]), Ok(()));
        assert_eq!(
            claim(&mut places, 1, vec![B, A]),
            Err((A, 0)),
            "before the first has ended, too"
        );
        assert_eq!(claim(&mut places, 2, vec![B]), Ok(()), "a refused task has no place");
        places.ended(0, &delivered(&[A]), false);
        assert_eq!(claim(&mut places, 1, vec![A]), Err((A, 0)));
        assert_eq!(claim(&mut places, 0, vec![A]), Ok(()), "it writes it again");
        places.ended(0, &Outcome::of(Status::TimedOut), false);
        assert_eq!(claim(&mut places, 1, vec![A]), Ok(()));
        // Its executor was lost; it runs elsewhere, and writes something else.
        assert_eq!(claim(&mut places, 2, vec![PlaceId([2; 16])]), Ok(()));
        places.ended(2, &delivered(&[PlaceId([2; 16])]), false);
        assert_eq!(claim(&mut places, 3, vec![B]), Ok(()));
    }

    #[test]
    fn a_failed_task_has_the_places_of_what_it_has_delivered() {
        let mut places = Places::default();
        let failed = |places: &[PlaceId]| Outcome { status: Status::TimedOut, ..delivered(places) };
        assert_eq!(claim(&mut places, 0, vec![A]), Ok(()));
        assert_eq!(claim(&mut places, 0, vec![B]), Ok(()), "one output after the other");
        places.ended(0, &failed(&[A]), false);
        assert_eq!(claim(&mut places, 1, vec![A]), Err((A, 0)));
        assert_eq!(claim(&mut places, 1, vec![B]), Ok(()));
        // It runs again, and succeeds with an output at the same place.
        assert_eq!(claim(&mut places, 0, vec![A]), Ok(()));
        places.ended(0, &delivered(&[A]), false);
        assert_eq!(claim(&mut places, 1, vec![A]), Err((A, 0)));
        // Its output was lost, it ran again, and failed with its log alone.
        let log = PlaceId([3; 16]);
        places.ended(0, &failed(&[log]), true);
        assert_eq!(claim(&mut places, 1, vec![A]), Ok(()));
        assert_eq!(claim(&mut places, 1, vec![log]), Err((log, 0)));
    }

    #[test]
    fn results_that_are_read_again_or_reused_have_their_places() {
        let mut places = Places::default();
        places.ended(4, &delivered(&[A]), false);
        assert_eq!(claim(&mut places, 5, vec![A]), Err((A, 4)));
        assert!(places.allow(4, &delivered(&[A, B])) && !places.allow(5, &delivered(&[B, A])));
    }
}
