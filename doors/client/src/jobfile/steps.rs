//! The order of the steps of a job file with `[[map]]` tables.
//!
//! Tasks of which none waits for a map step that another one of them precedes are one job. A map
//! step is driven by the client. So tasks and map steps alternate: first the tasks that wait for no
//! map step, then the map steps that wait for none but these, and so on. For example, tasks `a`, a
//! map `m` after `a`, and tasks `b` after `m` are three steps.

use std::collections::HashMap;

use eyas_types::mistake::nearest;
use thiserror::Error;

/// What the tables of a file wrongly say of their order.
#[derive(Debug, Error)]
pub enum StepOrderError {
    /// `after` names a table that does not exist earlier in the file.
    #[error(
        "`after` names `{id}`, but no earlier table has this id{}: write that table before this \
         one",
        near.as_ref().map_or_else(String::new, |near| format!(" (the nearest is `{near}`)"))
    )]
    Unknown {
        /// The id.
        id: String,
        /// The known id that is most like it.
        near: Option<String>,
    },
    /// A task is after a task.
    #[error(
        "`after` of a task names map steps, and `{0}` is a task: a task that has inputs = [{{ task \
         = \"{0}\" }}] runs after it; leave `{0}` out of `after`"
    )]
    AfterTask(String),
    /// A task reads the output of a task of another job.
    #[error(
        "the task runs after a map step, and so in another job than task `{0}`, whose output it \
         reads: let `{0}` write a file with `to`, and name this file as the input"
    )]
    AcrossSteps(String),
    /// Two tables have the same id.
    #[error("two tables have the id `{0}`: give each table an id of its own")]
    SameId(String),
}

/// A table of the file.
pub(super) struct StepTable<'a> {
    pub id: Option<&'a str>,
    pub is_map: bool,
    /// Ids of tables that end before.
    pub after: Vec<&'a str>,
    /// Ids of tasks whose outputs the tasks of the table read.
    pub reads: Vec<&'a str>,
}

/// The tables, by their places, of each step: all tables of tasks of one job, or one map step.
///
/// # Errors
/// The first table that cannot be ordered, and why.
pub(super) fn in_order(tables: &[StepTable]) -> Result<Vec<Vec<usize>>, (usize, StepOrderError)> {
    let mut known = HashMap::new();
    let mut levels = Vec::new();
    for (place, table) in tables.iter().enumerate() {
        let level = level_of(table, tables, &known, &levels).map_err(|why| (place, why))?;
        levels.push(level);
        if let Some(id) = table.id
            && known.insert(id, place).is_some()
        {
            return Err((place, StepOrderError::SameId(id.to_owned())));
        }
    }
    let mut steps = Vec::new();
    for level in 0..=levels.iter().copied().max().unwrap_or(0) {
        let of_level = || (0..tables.len()).filter(|place| levels[*place] == level);
        let tasks: Vec<_> = of_level().filter(|place| !tables[*place].is_map).collect();
        steps.extend(Some(tasks).filter(|tasks| !tasks.is_empty()));
        steps.extend(of_level().filter(|place| tables[*place].is_map).map(|place| vec![place]));
    }
    Ok(steps)
}

/// The level of a table: number of times that map steps and tasks alternate before it.
fn level_of(
    table: &StepTable,
    tables: &[StepTable],
    known: &HashMap<&str, usize>,
    levels: &[usize],
) -> Result<usize, StepOrderError> {
    let mut level = 0;
    for id in &table.after {
        let Some(place) = known.get(id) else {
            let near = nearest(id, known.keys().copied()).map(str::to_owned);
            return Err(StepOrderError::Unknown { id: (*id).to_owned(), near });
        };
        if !table.is_map && !tables[*place].is_map {
            return Err(StepOrderError::AfterTask((*id).to_owned()));
        }
        level = level.max(levels[*place] + usize::from(!table.is_map));
    }
    // Unknown ids are found when the tasks are read.
    let read = || table.reads.iter().filter_map(|id| Some((*id, levels[*known.get(id)?])));
    level = read().map(|(_, of_read)| of_read).fold(level, usize::max);
    match read().find(|(_, of_read)| *of_read != level) {
        Some((id, _)) => Err(StepOrderError::AcrossSteps(id.to_owned())),
        None => Ok(level),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &'static str) -> StepTable<'static> {
        let mut words = text.split(' ');
        let (kind, id) = (words.next().unwrap(), words.next());
        let mut table =
            StepTable { id, is_map: kind == "map", after: Vec::new(), reads: Vec::new() };
        for word in words {
            match word.strip_prefix('<') {
                Some(read) => table.reads.push(read),
                None => table.after.push(word),
            }
        }
        table
    }

    fn order(tables: &[&'static str]) -> Result<Vec<Vec<usize>>, (usize, String)> {
        let tables: Vec<_> = tables.iter().map(|text| table(text)).collect();
        in_order(&tables).map_err(|(place, why)| (place, why.to_string()))
    }

    #[test]
    fn tasks_and_maps_alternate() {
        let steps = |tables: &[&'static str]| order(tables).unwrap();
        assert_eq!(steps(&["map m"]), [[0]]);
        assert_eq!(steps(&["task a", "map m a", "map n m", "task b m"]), [[0], [1], [2], [3]]);
        // Tasks that wait for nothing are one job, also where a map stands between them.
        assert_eq!(steps(&["task a", "map m", "task b", "task c <a"]), [vec![0, 2, 3], vec![1]]);
        assert_eq!(
            steps(&["map m", "task b m", "task c <b", "map n c"]),
            [vec![0], vec![1, 2], vec![3]]
        );
    }

    #[test]
    fn an_impossible_order_is_refused() {
        for (tables, place, says) in [
            (&["map means", "task b meens"][..], 1, "(the nearest is `means`)"),
            (&["task b m", "map m"], 0, "no earlier table has this id"),
            (&["task a", "task b a"], 1, "leave `a` out of `after`"),
            (&["task a", "map m", "task b m <a"], 2, "let `a` write a file with `to`"),
            (&["task a", "map a"], 1, "two tables have the id `a`"),
        ] {
            let (at, said) = order(tables).unwrap_err();
            assert!(at == place && said.contains(says), "{tables:?}: {said}");
        }
    }
}
