//! The surveys that a portal offers, from a file that its administrator writes:
//!
//! ```toml
//! [[survey]]
//! name = "sky"
//! title = "A survey for practice"
//! index = "sky/index"       # of `stack index`; the path is relative to this file
//! bands = ["r"]             # left out: the survey has one band
//! pixel_scale = 0.396       # arcsec
//! quota = 1000000           # object-frames of a job
//! ```

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::position_list::is_band;

/// Surveys of a portal.
const MAX_SURVEYS: usize = 100;
/// Largest file of surveys.
const MAX_SURVEYS_BYTES: u64 = 1 << 20;

/// Why the surveys cannot be offered, and what to write.
#[derive(Debug, thiserror::Error)]
pub enum SurveysError {
    #[error("cannot read {path}: {1}; name the file with --surveys", path = .0.display())]
    File(PathBuf, io::Error),
    #[error("{path}: {1}", path = .0.display())]
    Content(PathBuf, String),
}

/// A survey.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survey {
    /// The name in jobs.
    pub name: String,
    /// The name in pages.
    #[serde(default)]
    pub title: String,
    /// Its position index, of `stack index`.
    pub index: PathBuf,
    /// Its bands; empty if it has one.
    #[serde(default)]
    pub bands: Vec<String>,
    /// Arcsec per pixel, for pages.
    pub pixel_scale: f64,
    /// Object-frames of a job.
    pub quota: u64,
    /// Band of frames whose header has none, as it was given to `stack index --band`.
    pub band: Option<String>,
    /// Keyword with the band, as it was given to `stack index --band-keyword`.
    pub band_keyword: Option<String>,
    /// Background of frames without the keyword SKY: `median`, or counts.
    pub sky: Option<String>,
    /// Flux of one count in frames without the keyword CAL.
    pub cal: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    survey: Vec<Survey>,
}

/// All surveys.
pub struct Surveys(Vec<Survey>);

impl Surveys {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self, SurveysError> {
        let file = |why| SurveysError::File(path.to_owned(), why);
        let length = std::fs::metadata(path).map_err(file)?.len();
        if length > MAX_SURVEYS_BYTES {
            let words = format!("it has more than {MAX_SURVEYS_BYTES} bytes");
            return Err(SurveysError::Content(path.to_owned(), words));
        }
        let text = std::fs::read_to_string(path).map_err(file)?;
        let whole = std::path::absolute(path).map_err(file)?;
        let surveys = Self::parsed(&text, whole.parent().unwrap_or(Path::new("/")));
        surveys.map_err(|trouble| SurveysError::Content(path.to_owned(), trouble))
    }

    fn parsed(text: &str, folder: &Path) -> Result<Self, String> {
        let content: Content = toml::from_str(text).map_err(|wrong| wrong.to_string())?;
        let mut surveys = content.survey;
        if surveys.is_empty() || surveys.len() > MAX_SURVEYS {
            return Err(format!("it has to have from one to {MAX_SURVEYS} [[survey]] tables"));
        }
        let mut names = BTreeSet::new();
        for survey in &mut surveys {
            survey.index = folder.join(&survey.index);
            check(survey).map_err(|wrong| format!("survey `{}`: {wrong}", survey.name))?;
            if !names.insert(survey.name.clone()) {
                return Err(format!("two surveys have the name `{}`", survey.name));
            }
        }
        Ok(Surveys(surveys))
    }

    /// All surveys, in the order of the file.
    pub fn all(&self) -> &[Survey] {
        &self.0
    }

    /// A survey by its name.
    pub fn named(&self, name: &str) -> Option<&Survey> {
        self.0.iter().find(|survey| survey.name == name)
    }
}

fn check(survey: &mut Survey) -> Result<(), String> {
    if survey.title.is_empty() {
        survey.title.clone_from(&survey.name);
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if survey.name.is_empty() || survey.name.len() > 64 || !survey.name.chars().all(is_plain) {
        return Err("write a name of up to 64 letters, digits and -._".into());
    }
    if let Some(wrong) = survey.bands.iter().find(|band| !is_band(band)) {
        return Err(format!("`{wrong}` cannot be the name of a band"));
    }
    if survey.band.as_ref().is_some_and(|band| !is_band(band)) {
        return Err("`band` cannot be the name of a band".into());
    }
    let is_key = |key: &String| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        (1..=8).contains(&key.len()) && !key.starts_with('-') && key.chars().all(is_plain)
    };
    if survey.band_keyword.as_ref().is_some_and(|key| !is_key(key)) {
        return Err("`band_keyword` is not a keyword of FITS, such as FILTER".into());
    }
    if !(survey.pixel_scale > 0.0 && survey.pixel_scale.is_finite()) {
        return Err("write pixel_scale in arcsec, such as 0.396".into());
    }
    if survey.cal.is_some_and(|cal| !cal.is_finite()) {
        return Err("`cal` is not a number".into());
    }
    let is_sky = |sky: &String| sky == "median" || sky.parse::<f64>().is_ok_and(f64::is_finite);
    if survey.sky.as_ref().is_some_and(|sky| !is_sky(sky)) {
        return Err("write sky = \"median\", or counts in quotes".into());
    }
    if !survey.index.exists() {
        return Err(format!(
            "{} does not exist: make it with `stack index FRAME… --out …`",
            survey.index.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surveys_are_read_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("index"), "").unwrap();
        let survey = "[[survey]]\nname = \"sky\"\nindex = \"index\"\npixel_scale = 0.396\n\
            quota = 100\nbands = [\"r\", \"i\"]\n";
        let read = |text: &str| Surveys::parsed(text, folder.path());
        let surveys = read(survey).unwrap();
        let sky = surveys.named("sky").unwrap();
        assert_eq!((&*sky.title, &sky.index), ("sky", &folder.path().join("index")));
        for (from, to, words) in [
            ("\"sky\"", "\"a b\"", "write a name"),
            ("\"index\"", "\"none\"", "stack index"),
            ("0.396", "0.0", "arcsec"),
            ("\"i\"", "\"--x\"", "band"),
            ("quota", "quotas", "quotas"),
            ("quota", "sky = \"x\"\nquota", "median"),
        ] {
            let wrong = read(&survey.replace(from, to)).err().unwrap();
            assert!(wrong.contains(words), "{wrong}");
        }
        assert!(read("").is_err());
        assert!(read(&format!("{survey}{survey}")).err().unwrap().contains("two surveys"));
        let none = Surveys::read(&folder.path().join("none")).err().unwrap();
        assert!(none.to_string().contains("--surveys"));
    }
}
