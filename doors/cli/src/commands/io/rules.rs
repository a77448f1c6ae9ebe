//! The rules for storages and job classes.

use std::path::PathBuf;

use eyas_client::home;
use eyas_coordinator::Rules;

use crate::error::CliError;

/// The rules of a file; without a file, the rules in eyas's home, if there are any.
pub(super) fn rules(named: Option<PathBuf>) -> Result<Rules, CliError> {
    let usual =
        || home().ok().map(|home| home.join("io").join("rules.toml")).filter(|path| path.exists());
    Ok(named.or_else(usual).map(|path| Rules::load(&path)).transpose()?.unwrap_or_default())
}
