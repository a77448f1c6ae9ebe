//! Linearizability of what clients saw (Herlihy and Wing 1990), checked as by Lowe 2017 in the
//! order of answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Debug};

use eyas_ring::{FileAnswer, FileOperation, RecordVersion, Refusal, Replaceable, Round};

use eyas_types::dfs::{FileId, FileName};

/// One attempt of a client.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub operation: FileOperation,
    /// The version that the client intends to replace or rename, given by the time when it was
    /// written.
    pub stamp: u64,
    pub asked_us: u64,
    /// `None` if the operation may happen at any later time.
    pub answer: Option<(u64, Result<FileAnswer, Refusal>)>,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |id: FileId| id.0 % 10_000;
        let ms = |us: u64| us as f64 / 1000.0;
        write!(f, "{:9.3} ", ms(self.asked_us))?;
        match &self.operation {
            FileOperation::Create { name, record } => {
                write!(f, "create {name} {}", short(record.id))?
            }
            FileOperation::Replace { name, record, .. } => {
                let (old, new) = (self.stamp % 10_000, record.attributes.modified_ns % 10_000);
                write!(f, "replace {name} {} written {old} by {new}", short(record.id))?;
            }
            FileOperation::Remove { name, id } => write!(f, "remove {name} {}", short(*id))?,
            FileOperation::SetAttributes { name, attributes, .. } => {
                let (old, new) = (self.stamp % 10_000, attributes.modified_ns % 10_000);
                write!(f, "attributes of {name} written {old} become {new}")?;
            }
            FileOperation::Rename { from, to, id, over, .. } => {
                write!(f, "rename {from} {} to {to} over {over:?}", short(*id))?;
            }
            FileOperation::Stat { name } => write!(f, "stat {name}")?,
            FileOperation::List { .. } | FileOperation::Use { .. } => write!(f, "list")?,
            FileOperation::Recover { without, .. } => write!(f, "recover without {without:?}")?,
        }
        let Some((at_us, answer)) = &self.answer else { return f.write_str(" -") };
        write!(f, " - {:.3} ", ms(*at_us))?;
        match answer {
            Ok(FileAnswer::Found { record, .. }) => {
                write!(f, "{} written {}", short(record.id), record.attributes.modified_ns % 10_000)
            }
            Err(Refusal::Exists { id, .. }) => write!(f, "{} exists", short(*id)),
            other => write!(f, "{other:?}"),
        }
    }
}

/// Panics if the history is not linearizable.
pub fn check(history: &[Attempt]) {
    let mut names = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for attempt in history {
        match &attempt.operation {
            FileOperation::Create { name, record }
            | FileOperation::Replace { name, record, .. } => {
                names.insert(name.clone());
                ids.insert(record.id);
            }
            FileOperation::Remove { name, .. }
            | FileOperation::SetAttributes { name, .. }
            | FileOperation::Stat { name } => drop(names.insert(name.clone())),
            FileOperation::Rename { from, to, .. } => names.extend([from.clone(), to.clone()]),
            FileOperation::List { .. }
            | FileOperation::Use { .. }
            | FileOperation::Recover { .. } => {}
        }
    }
    for name in names {
        linearize(&format!("{name}"), history, None, |attempt, state| {
            at_name(&name, attempt, state)
        });
    }
    for id in ids {
        linearize(&format!("file {id}"), history, None, |attempt, state| {
            of_file(id, attempt, state)
        });
    }
}

/// The state of a name after an attempt: its file and when it was written. `None` if the attempt
/// does not concern the name.
type AtName = Option<(FileId, u64)>;

fn at_name(name: &FileName, attempt: &Attempt, state: &AtName) -> Option<Vec<AtName>> {
    let answer = attempt.answer.as_ref().map(|(_, answer)| answer);
    let id = state.map(|(id, _)| id);
    let only_if = |is: bool, next: AtName| if is { vec![next] } else { vec![] };
    let unknown = |is: bool, next: AtName| if is { vec![next] } else { vec![*state] };
    Some(match &attempt.operation {
        FileOperation::Create { name: of, record } if of == name => match answer {
            Some(Ok(_)) if id == Some(record.id) => vec![*state],
            Some(Ok(_)) => only_if(id.is_none(), Some((record.id, record.attributes.modified_ns))),
            Some(Err(Refusal::Exists { id: other, .. })) => only_if(id == Some(*other), *state),
            Some(Err(Refusal::Changed)) => only_if(id.is_none(), *state),
            Some(Err(other)) => panic!("{other:?} to {attempt:?}"),
            None => unknown(id.is_none(), Some((record.id, record.attributes.modified_ns))),
        },
        FileOperation::Replace { name: of, record, .. } if of == name => {
            let new = Some((record.id, record.attributes.modified_ns));
            let is = state.is_some_and(|(_, stamp)| stamp == attempt.stamp);
            match answer {
                Some(Ok(_)) => only_if(is || *state == new, new),
                Some(Err(Refusal::Changed)) => only_if(id.is_some(), *state),
                Some(Err(Refusal::NotFound)) => only_if(id.is_none(), *state),
                Some(Err(other)) => panic!("{other:?} to {attempt:?}"),
                None => unknown(is, new),
            }
        }
        FileOperation::SetAttributes { name: of, attributes, .. } if of == name => {
            let new = id.map(|id| (id, attributes.modified_ns));
            let is = state.is_some_and(|(_, stamp)| stamp == attempt.stamp);
            match answer {
                Some(Ok(_)) => only_if(is || state.is_some() && *state == new, new),
                Some(Err(Refusal::Changed)) => only_if(id.is_some(), *state),
                Some(Err(Refusal::NotFound)) => only_if(id.is_none(), *state),
                Some(Err(other)) => panic!("{other:?} to {attempt:?}"),
                None => unknown(is, new),
            }
        }
        FileOperation::Remove { name: of, id: removed } if of == name => match answer {
            Some(Ok(_)) => only_if(id.is_none_or(|id| id == *removed), None),
            Some(Err(Refusal::Changed)) => only_if(id.is_some_and(|id| id != *removed), *state),
            Some(Err(Refusal::NotFound)) => only_if(id.is_none(), *state),
            Some(Err(other)) => panic!("{other:?} to {attempt:?}"),
            None => unknown(id == Some(*removed), None),
        },
        FileOperation::Stat { name: of } if of == name => match answer {
            Some(Ok(FileAnswer::Found { record, .. })) => {
                only_if(*state == Some((record.id, record.attributes.modified_ns)), *state)
            }
            Some(Err(Refusal::NotFound)) => only_if(id.is_none(), *state),
            Some(other) => panic!("{other:?} to {attempt:?}"),
            None => vec![*state],
        },
        FileOperation::Rename { from, id: renamed, .. } if from == name => match answer {
            Some(Ok(_)) if id == Some(*renamed) => vec![None, *state],
            None if id == Some(*renamed) => vec![None],
            _ => vec![*state],
        },
        FileOperation::Rename { to, id: renamed, over, .. } if to == name => {
            let is_free = id.is_none() || *over == Replaceable::File;
            match answer {
                Some(Ok(_)) if id == Some(*renamed) => vec![*state],
                Some(Ok(_)) => only_if(is_free, Some((*renamed, attempt.stamp))),
                Some(Err(Refusal::Exists { id: other, .. })) => {
                    only_if(id == Some(*other) && !is_free, *state)
                }
                Some(Err(Refusal::Changed)) => only_if(is_free, *state),
                Some(Err(other)) => panic!("{other:?} to {attempt:?}"),
                None => unknown(is_free, Some((*renamed, attempt.stamp))),
            }
        }
        _ => return None,
    })
}

/// The state of a file: its name.
fn of_file(
    id: FileId,
    attempt: &Attempt,
    state: &Option<FileName>,
) -> Option<Vec<Option<FileName>>> {
    let answer = attempt.answer.as_ref().map(|(_, answer)| answer);
    let is_at = |name: &FileName| state.as_ref() == Some(name);
    let same = || vec![state.clone()];
    let only_if = |is: bool, next: Option<FileName>| if is { vec![next] } else { vec![] };
    Some(match (&attempt.operation, answer) {
        (FileOperation::Create { name, record }, Some(Ok(_))) if record.id == id => {
            only_if(state.is_none() || is_at(name), Some(name.clone()))
        }
        (FileOperation::Create { name, record }, None) if record.id == id && state.is_none() => {
            vec![Some(name.clone())]
        }
        (FileOperation::Replace { name, record, .. }, Some(Ok(_))) if record.id == id => {
            only_if(is_at(name), state.clone())
        }
        (FileOperation::Remove { name, id: of }, Some(Ok(_))) if *of == id => {
            only_if(is_at(name) || state.is_none(), None)
        }
        (FileOperation::Remove { name, id: of }, None) if *of == id && is_at(name) => vec![None],
        (FileOperation::Rename { from, to, id: of, .. }, Some(Ok(_))) if *of == id => {
            only_if(is_at(from) || is_at(to), Some(to.clone()))
        }
        (FileOperation::Rename { from, to, id: of, .. }, None) if *of == id && is_at(from) => {
            vec![Some(to.clone())]
        }
        // Another file replaces this one.
        (FileOperation::Rename { to, over: Replaceable::File, id: of, .. }, answer)
            if *of != id =>
        {
            match answer {
                Some(Ok(_)) if is_at(to) => vec![None],
                None if is_at(to) => vec![None, state.clone()],
                _ => same(),
            }
        }
        (FileOperation::Stat { name }, Some(Ok(FileAnswer::Found { record, .. }))) => {
            only_if(is_at(name) == (record.id == id), state.clone())
        }
        (FileOperation::Stat { name }, Some(Err(Refusal::NotFound))) => {
            only_if(!is_at(name), state.clone())
        }
        (FileOperation::Stat { .. }, _) => return None,
        (FileOperation::Create { record, .. }, None) if record.id == id => same(),
        (FileOperation::Remove { id: of, .. } | FileOperation::Rename { id: of, .. }, None)
            if *of == id =>
        {
            same()
        }
        _ => return None,
    })
}

/// States, each with the sets of open attempts that may have happened in it.
type Cases<S> = BTreeMap<S, Vec<BTreeSet<usize>>>;

/// Adds a case, unless another one explains all that it explains: one with the same state, in which
/// fewer attempts have happened that have no answer, since such an attempt can happen later or
/// never. Returns whether it was added.
fn add_case<S: Ord>(
    cases: &mut Cases<S>,
    (state, happened): (S, BTreeSet<usize>),
    has_no_answer: impl Fn(&usize) -> bool,
) -> bool {
    let explains = |one: &BTreeSet<usize>, other: &BTreeSet<usize>| {
        one.is_subset(other) && other.difference(one).all(&has_no_answer)
    };
    let some = cases.entry(state).or_default();
    if some.iter().any(|known| explains(known, &happened)) {
        return false;
    }
    some.retain(|known| !explains(&happened, known));
    some.push(happened);
    true
}

/// Applies the attempts in all orders that respect which ended before which began.
fn linearize<S: Clone + Ord + Debug>(
    of: &str,
    history: &[Attempt],
    start: S,
    step: impl Fn(&Attempt, &S) -> Option<Vec<S>>,
) {
    let of_it: Vec<&Attempt> =
        history.iter().filter(|attempt| step(attempt, &start).is_some()).collect();
    let mut moments = Vec::new();
    for (index, attempt) in of_it.iter().enumerate() {
        moments.push((attempt.asked_us, 0, index));
        moments.extend(attempt.answer.as_ref().map(|(at_us, _)| (*at_us, 1, index)));
    }
    moments.sort_unstable();
    let mut open = BTreeSet::new();
    let has_no_answer = |index: &usize| of_it[*index].answer.is_none();
    // The possible states, each with the open attempts that have happened in it.
    let mut cases: Cases<S> = [(start, vec![BTreeSet::new()])].into();
    for (place, (_, is_end, index)) in moments.iter().enumerate() {
        if *is_end == 0 {
            open.insert(*index);
            continue;
        }
        let all = cases.iter().flat_map(|(state, some)| {
            some.iter().map(move |happened| (state.clone(), happened.clone()))
        });
        let mut queue: VecDeque<(S, BTreeSet<usize>)> = all.collect();
        let mut seen = cases.clone();
        let mut next = Cases::new();
        while let Some((state, mut happened)) = queue.pop_front() {
            if happened.remove(index) {
                add_case(&mut next, (state, happened), has_no_answer);
                continue;
            }
            for other in open.iter().filter(|other| !happened.contains(other)) {
                for after in step(of_it[*other], &state).expect("it concerns this") {
                    // An attempt without an answer and without an effect need not be tried.
                    if after == state && of_it[*other].answer.is_none() {
                        continue;
                    }
                    let case = (after, happened.iter().copied().chain([*other]).collect());
                    if add_case(&mut seen, case.clone(), has_no_answer) {
                        queue.push_back(case);
                    }
                }
            }
        }
        if next.is_empty() {
            let told: BTreeMap<_, _> =
                moments[..=place].iter().map(|(_, _, index)| (*index, of_it[*index])).collect();
            let told: Vec<String> = told.values().map(|attempt| format!("{attempt}")).collect();
            panic!(
                "{of}: nothing explains {}; it could be {cases:?} after\n{}",
                of_it[*index],
                told.join("\n")
            );
        }
        cases = next;
        open.remove(index);
    }
}

#[test]
#[should_panic(expected = "nothing explains")]
fn impossible_histories_are_found() {
    let name: FileName = "a".parse().unwrap();
    let stat = |asked_us, answer| Attempt {
        operation: FileOperation::Stat { name: name.clone() },
        stamp: 0,
        asked_us,
        answer: Some((asked_us + 1, answer)),
    };
    let version = RecordVersion { round: Round::default(), sequence: 1 };
    let create = Attempt {
        operation: FileOperation::Create {
            name: name.clone(),
            record: crate::clients::record(FileId(1), 1),
        },
        stamp: 0,
        asked_us: 0,
        answer: Some((5, Ok(FileAnswer::Done { version }))),
    };
    let found = Ok(FileAnswer::Found { version, record: crate::clients::record(FileId(1), 1) });
    check(&[create.clone(), stat(1, Err(Refusal::NotFound)), stat(3, found.clone())]);
    check(&[create, stat(1, found), stat(3, Err(Refusal::NotFound))]);
}
