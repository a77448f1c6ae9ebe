//! The parameters of a job: values that are checked when they are set. No text of a user becomes a
//! part of a command but a name of a band, of which the characters are checked.

use serde::{Deserialize, Serialize};

use crate::position_list::is_band;
use crate::problem::Problem;
use crate::surveys::{Survey, Surveys};

/// Edge of a region, pixels.
const DEFAULT_SIZE: u16 = 100;
const MAX_SIZE: u16 = 2048;
/// Longest label of a job, bytes.
const MAX_RUN_ID_BYTES: usize = 200;

/// How cutouts are weighted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    /// All the same.
    #[default]
    None,
    /// By the column `weight` of the list.
    List,
    /// Also by the inverse of the variance of each region's background.
    Variance,
}

impl Weights {
    /// All values, with their names in pages.
    pub const ALL: [(Weights, &str); 3] = [
        (Weights::None, "none"),
        (Weights::List, "the column weight of the list"),
        (Weights::Variance, "the list's, and the inverse variance of the background"),
    ];

    /// The value in parameters.
    pub fn name(self) -> &'static str {
        match self {
            Weights::None => "none",
            Weights::List => "list",
            Weights::Variance => "variance",
        }
    }
}

/// What a job stacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StackParams {
    pub survey: Option<String>,
    /// None for all bands, or for the bands of the list.
    pub band: Option<String>,
    pub size: Option<u16>,
    #[serde(default)]
    pub weights: Weights,
    /// Positions of the list, if there is one.
    #[serde(default)]
    pub positions: u64,
}

/// Names of the parameters, for messages.
const KNOWN: &str = "SURVEY, BAND, SIZE, WEIGHTS, POSITIONS and RUNID";

impl StackParams {
    /// The edge of a region, pixels.
    pub fn edge(&self) -> u16 {
        self.size.unwrap_or(DEFAULT_SIZE)
    }

    /// Sets a parameter by its name in upper case. An empty value resets it.
    pub fn set(&mut self, name: &str, value: &str, surveys: &Surveys) -> Result<(), Problem> {
        match (name, value) {
            ("SURVEY", "") => self.survey = None,
            ("SURVEY", name) if surveys.named(name).is_some() => self.survey = Some(name.into()),
            ("SURVEY", name) => {
                let names: Vec<_> = surveys.all().iter().map(|survey| &*survey.name).collect();
                let names = names.join(", ");
                return Err(Problem::wrong(format!(
                    "there is no survey `{}`: write one of {names}",
                    short(name)
                )));
            }
            ("BAND", "") => self.band = None,
            ("BAND", band) if is_band(band) => self.band = Some(band.into()),
            ("BAND", band) => {
                let words = format!("`{}` cannot be the name of a band", short(band));
                return Err(Problem::wrong(words));
            }
            ("SIZE", "") => self.size = None,
            ("SIZE", size) => match size.parse() {
                Ok(size) if (1..=MAX_SIZE).contains(&size) => self.size = Some(size),
                _ => {
                    let words =
                        format!("SIZE is the edge of a region: write 1 to {MAX_SIZE} pixels");
                    return Err(Problem::wrong(words));
                }
            },
            ("WEIGHTS", name) => {
                let named = Weights::ALL.iter().find(|(weights, _)| weights.name() == name);
                let none = name.is_empty().then_some(Weights::None);
                let weights = named.map(|(weights, _)| *weights).or(none);
                let wrong = || Problem::wrong("write WEIGHTS=none, list or variance");
                self.weights = weights.ok_or_else(wrong)?;
            }
            // Of DALI and UWS: they have no meaning here.
            ("REQUEST" | "VERSION" | "RESPONSEFORMAT" | "LANG", _) => {}
            (other, _) => {
                let other = short(other);
                return Err(Problem::wrong(format!(
                    "there is no parameter `{other}`: the parameters are {KNOWN}"
                )));
            }
        }
        Ok(())
    }

    /// Checks that the job can run. Returns its survey.
    pub fn check<'a>(&self, surveys: &'a Surveys) -> Result<&'a Survey, Problem> {
        let name = self
            .survey
            .as_deref()
            .ok_or_else(|| Problem::wrong("the job has no survey: set SURVEY before it runs"))?;
        let survey = surveys.named(name).ok_or_else(|| {
            Problem::wrong(format!("the survey `{name}` is no longer offered: set another SURVEY"))
        })?;
        if self.positions == 0 {
            return Err(Problem::wrong("the job has no positions: set POSITIONS before it runs"));
        }
        if let Some(band) = &self.band
            && !survey.bands.is_empty()
            && !survey.bands.contains(band)
        {
            return Err(Problem::wrong(format!(
                "the survey `{name}` has no band `{band}`: its bands are {}",
                survey.bands.join(", ")
            )));
        }
        Ok(survey)
    }
}

/// Checks the label of a job.
pub fn run_id(text: &str) -> Result<Option<String>, Problem> {
    match text.len() <= MAX_RUN_ID_BYTES && !text.chars().any(char::is_control) {
        true => Ok(Some(text.to_owned()).filter(|text| !text.is_empty())),
        false => Err(Problem::wrong(format!(
            "RUNID has up to {MAX_RUN_ID_BYTES} bytes and no control characters"
        ))),
    }
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}
