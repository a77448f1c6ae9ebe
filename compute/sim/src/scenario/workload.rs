//! `[workload.KIND]`: the workloads that a scenario can name.

use std::path::Path;

use serde::Deserialize;

use super::amount::{Count, Size, Time};
use super::mistake::ScenarioMistake;
use crate::clock::MAX_TIME_US;
use crate::run::MAX_TASKS;
use crate::trace::{Compute, Trace};
use crate::workload::{
    AllPairs, LOCALITIES, Locality, MonotonicallyIncreasing, Order, Scan, SharedWorkload, SineWave,
    Stacking, Zipf,
};

/// Most objects; each takes some bytes of memory.
const MAX_OBJECTS: u32 = 100_000_000;

/// A number of objects.
type Objects = Count<MAX_OBJECTS>;
/// A number of tasks.
type Tasks = Count<MAX_TASKS>;

/// A kind of workload, with its parameters.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkloadFields {
    MonotonicallyIncreasing(Files),
    SineWave(Files),
    AllPairs(AllPairsFields),
    Stacking(StackingFields),
    Zipf(ZipfFields),
    Uniform(UniformFields),
    Scan(ScanFields),
    Trace(TraceFields),
}

/// Parameters of the paper's workloads whose arrivals follow an equation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Files {
    objects: Option<Objects>,
    size: Option<Size>,
    compute: Option<Time>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AllPairsFields {
    side: Tasks,
    size: Size,
    compute: Time,
    #[serde(default)]
    order: OrderName,
    tile: Option<toml::Spanned<Objects>>,
}

/// Default number of rows and columns of a tile: a million pairs are a thousand tiles.
const TILE: u32 = 32;

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OrderName {
    #[default]
    Rows,
    Random,
    Tiles,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StackingFields {
    locality: toml::Spanned<f64>,
    size: Option<Size>,
    compute: Option<Time>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ZipfFields {
    objects: Objects,
    size: Size,
    tasks: Tasks,
    #[serde(default = "one")]
    exponent: f64,
    #[serde(default)]
    interval: Time,
    compute: Time,
}

fn one() -> f64 {
    1.0
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UniformFields {
    objects: Objects,
    size: Size,
    tasks: Tasks,
    #[serde(default)]
    interval: Time,
    compute: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScanFields {
    objects: Objects,
    size: Size,
    rounds: Tasks,
    #[serde(default)]
    interval: Time,
    compute: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceFields {
    file: toml::Spanned<String>,
    #[serde(default)]
    compute: Compute,
}

/// A mistake, and the byte of the file at which it is; `None` for the start of the section.
pub(super) type MistakeAt = (Option<usize>, ScenarioMistake);

impl WorkloadFields {
    /// The workload. Relative paths start from `folder`.
    pub fn workload(self, seed: u64, folder: &Path) -> Result<SharedWorkload, MistakeAt> {
        Ok(match self {
            WorkloadFields::MonotonicallyIncreasing(fields) => {
                let paper = MonotonicallyIncreasing::paper(seed);
                let (files, file_bytes, compute_us) =
                    fields.or(paper.files, paper.file_bytes, paper.compute_us);
                Box::new(MonotonicallyIncreasing { files, file_bytes, compute_us, seed })
            }
            WorkloadFields::SineWave(fields) => {
                let paper = SineWave::paper(seed);
                let (files, file_bytes, compute_us) =
                    fields.or(paper.files, paper.file_bytes, paper.compute_us);
                Box::new(SineWave { files, file_bytes, compute_us, seed })
            }
            WorkloadFields::AllPairs(fields) => Box::new(fields.all_pairs(seed)?),
            WorkloadFields::Stacking(StackingFields { locality, size, compute }) => {
                let paper = Stacking { locality: row_of(&locality)?, ..Stacking::paper(seed) };
                let file_bytes = size.map_or(paper.file_bytes, |size| size.0);
                let compute_us = compute.map_or(paper.compute_us, |compute| compute.0);
                Box::new(Stacking { file_bytes, compute_us, ..paper })
            }
            WorkloadFields::Zipf(fields) => Box::new(fields.zipf(seed)?),
            WorkloadFields::Uniform(UniformFields { objects, size, tasks, interval, compute }) => {
                let fields = ZipfFields { objects, size, tasks, exponent: 0.0, interval, compute };
                Box::new(fields.zipf(seed)?)
            }
            WorkloadFields::Scan(ScanFields { objects, size, rounds, interval, compute }) => {
                let (_, interval_us) =
                    check_arrivals(u64::from(objects.0) * u64::from(rounds.0), interval)?;
                let (objects, rounds) = (objects.0, rounds.0);
                Box::new(Scan {
                    objects,
                    object_bytes: size.0,
                    rounds,
                    interval_us,
                    compute_us: compute.0,
                })
            }
            WorkloadFields::Trace(TraceFields { file, compute }) => {
                let path = folder.join(file.get_ref());
                let mistake = |e| (Some(file.span().start), ScenarioMistake::Trace(Box::new(e)));
                let trace = Trace::read(&path, compute).map_err(mistake)?;
                Box::new(trace)
            }
        })
    }
}

impl AllPairsFields {
    fn all_pairs(self, seed: u64) -> Result<AllPairs, MistakeAt> {
        let AllPairsFields { side: Count(side), size, compute, order, tile } = self;
        check_arrivals(u64::from(side).pow(2), Time::default())?;
        if let (OrderName::Rows | OrderName::Random, Some(tile)) = (order, &tile) {
            return Err((Some(tile.span().start), ScenarioMistake::TileWithoutTiles));
        }
        let order = match order {
            OrderName::Rows => Order::Rows,
            OrderName::Random => Order::Random(seed),
            OrderName::Tiles => Order::Tiles(tile.map_or(TILE, |tile| tile.get_ref().0)),
        };
        Ok(AllPairs { side, object_bytes: size.0, compute_us: compute.0, order })
    }
}

impl ZipfFields {
    fn zipf(self, seed: u64) -> Result<Zipf, MistakeAt> {
        let ZipfFields { objects, size, tasks, exponent, interval, compute } = self;
        if !(0.0..=10.0).contains(&exponent) {
            return Err((None, ScenarioMistake::Exponent(exponent)));
        }
        let of_objects =
            Zipf { objects: objects.0, object_bytes: size.0, exponent, ..Zipf::default() };
        let (tasks, interval_us) = check_arrivals(tasks.0.into(), interval)?;
        Ok(Zipf { tasks, interval_us, compute_us: compute.0, seed, ..of_objects })
    }
}

impl Files {
    fn or(self, files: u32, file_bytes: u64, compute_us: u64) -> (u32, u64, u64) {
        let Files { objects, size, compute } = self;
        let (objects, size) =
            (objects.map_or(files, |count| count.0), size.map_or(file_bytes, |size| size.0));
        (objects, size, compute.map_or(compute_us, |time| time.0))
    }
}

/// The row of table 3 with this locality.
fn row_of(locality: &toml::Spanned<f64>) -> Result<Locality, MistakeAt> {
    let row = LOCALITIES.into_iter().find(|row| row.locality == *locality.get_ref());
    row.ok_or_else(|| {
        let (given, known) = (*locality.get_ref(), LOCALITIES.map(|row| row.locality));
        (Some(locality.span().start), ScenarioMistake::Locality { locality: given, known })
    })
}

/// Checks the number of tasks and the time of the last arrival.
fn check_arrivals(tasks: u64, Time(interval_us): Time) -> Result<(u64, u64), MistakeAt> {
    if tasks > MAX_TASKS.into() {
        return Err((None, ScenarioMistake::TooManyTasks { tasks, most: MAX_TASKS }));
    }
    if tasks.checked_mul(interval_us).is_none_or(|last_us| last_us > MAX_TIME_US) {
        return Err((None, ScenarioMistake::LateArrivals));
    }
    Ok((tasks, interval_us))
}
