//! Pools files: pools that a site, or a user, has described once, so that a name stands for a batch
//! system and all its options. A file has a table for each pool, whose keys are the options of
//! `eyas pool add` without `--`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use clap::Args;
use eyas_client::home;
use eyas_session::private::PrivateError;
use eyas_session::trusted;
use serde::Serialize;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::CliError;
use crate::pool_args::{PoolArgs, parse_pool_words};

/// The file of a site.
const OF_SITE: &str = "/etc/eyas/pools.toml";
/// Name of a user's own file, in eyas's home.
const OF_USER: &str = "pools.toml";
/// Variable with the path of a further file.
const VARIABLE: &str = "EYAS_POOLS";

/// A pools file cannot be used.
#[derive(Debug, Error)]
pub(crate) enum PoolFileError {
    /// The file cannot be read.
    #[error("cannot read the pools file {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another user could have written the file.
    #[error("the pools file {path} is not read, because it names commands that eyas runs: {why}")]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// What another user could do.
        why: PrivateError,
    },
    /// The file is not TOML.
    #[error("{path}, line {line}: {why}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The fault, as a sentence.
        why: String,
    },
    /// A key of a pool cannot be used.
    #[error("{path}, line {line}: key `{key}` of pool `{pool}`: {why}")]
    Key {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Name of the pool.
        pool: String,
        /// The key.
        key: String,
        /// The fault, as a sentence.
        why: String,
    },
    /// A pool has no batch system.
    #[error(
        "{path}, line {line}: pool `{pool}` has no key `system`: write for example system = \
         \"slurm\""
    )]
    NoSystem {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Name of the pool.
        pool: String,
    },
}

/// A pool that a file describes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DescribedPool {
    /// Name of the pool.
    pub pool: String,
    /// Name of its batch system.
    pub system: String,
    /// For people who choose a pool.
    pub description: String,
    /// The file.
    pub file: PathBuf,
    /// Its options.
    #[serde(skip)]
    pub args: PoolArgs,
}

/// Which pools files are read.
#[derive(Args)]
pub(crate) struct PoolFileArgs {
    /// Also read the pools that this file describes [default: /etc/eyas/pools.toml, pools.toml in
    /// eyas's home, $EYAS_POOLS]
    #[arg(long, value_name = "FILE")]
    pools: Option<PathBuf>,
}

impl PoolFileArgs {
    /// The pools of all files, in the order of their names. Files are read in the order of the
    /// site, the user, `$EYAS_POOLS` and `--pools`; a pool replaces one of the same name in an
    /// earlier file.
    pub fn pools(&self) -> Result<Vec<DescribedPool>, CliError> {
        let of_variable =
            std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let usual = [Some(PathBuf::from(OF_SITE)), home().ok().map(|home| home.join(OF_USER))];
        let named = [of_variable, self.pools.clone()];
        let files = usual.into_iter().flatten().map(|path| (path, false));
        let files = files.chain(named.into_iter().flatten().map(|path| (path, true)));
        let mut pools = BTreeMap::new();
        for (path, must_exist) in files {
            match text_of(&path) {
                Ok(text) => pools
                    .extend(read(&path, &text)?.into_iter().map(|pool| (pool.pool.clone(), pool))),
                Err(PoolFileError::Unreadable { source, .. })
                    if source.kind() == ErrorKind::NotFound && !must_exist => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(pools.into_values().collect())
    }

    /// The system and options for a word of the command line, and whether the word is a pool of a
    /// pools file; else it is a batch system. Options of the command line replace those of the
    /// file.
    pub fn system_and_options(
        &self,
        word: &str,
        args: PoolArgs,
    ) -> Result<(String, PoolArgs, bool), CliError> {
        Ok(match self.pools()?.into_iter().find(|pool| pool.pool == word) {
            Some(pool) => (pool.system, args.over(pool.args), true),
            None => (word.to_owned(), args, false),
        })
    }
}

/// The text of a file that no other user could have written.
fn text_of(path: &Path) -> Result<String, PoolFileError> {
    let unreadable = |source| PoolFileError::Unreadable { path: path.to_owned(), source };
    let real = trusted::file(path).map_err(|why| match why {
        PrivateError::Io { source, .. } => unreadable(source),
        PrivateError::OtherKind { .. } => unreadable(io::Error::other(why.to_string())),
        why => PoolFileError::Untrusted { path: path.to_owned(), why },
    })?;
    std::fs::read_to_string(real).map_err(unreadable)
}

/// The pools of a file.
fn read(path: &Path, text: &str) -> Result<Vec<DescribedPool>, PoolFileError> {
    let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        PoolFileError::Syntax {
            path: path.to_owned(),
            line: line(at),
            why: error.message().to_owned(),
        }
    })?;
    let pool = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let pool: &Cow<'_, str> = name.get_ref();
        let line_of_name = line(name.span().start);
        let Some(keys) = value.get_ref().as_table() else {
            let why =
                format!("`{pool}` is not a table: begin the description of a pool with [{pool}]");
            return Err(PoolFileError::Syntax { path: path.to_owned(), line: line_of_name, why });
        };
        let (mut system, mut description, mut words, mut verbatim) =
            (None, String::new(), Vec::new(), Vec::new());
        for (key, value) in keys {
            let wrong = |why: String| PoolFileError::Key {
                path: path.to_owned(),
                line: line(key.span().start),
                pool: pool.clone().into_owned(),
                key: key.get_ref().clone().into_owned(),
                why,
            };
            let values = texts(value.get_ref())
                .ok_or_else(|| wrong("a value of this type is not used here".into()))?;
            match (&**key.get_ref(), &values[..]) {
                ("system", [name]) => system = Some(name.clone()),
                ("description", [text]) => description.clone_from(text),
                ("system" | "description", _) => return Err(wrong("write one text".into())),
                ("options", _) => verbatim = values,
                (key, _) => {
                    let of_key: Vec<_> =
                        values.iter().map(|value| format!("--{key}={value}")).collect();
                    // Each key is read alone first, so that an error has its line.
                    parse_pool_words(of_key.clone()).map_err(|error| wrong(reason(&error)))?;
                    words.extend(of_key);
                }
            }
        }
        let no_system = || PoolFileError::NoSystem {
            path: path.to_owned(),
            line: line_of_name,
            pool: pool.clone().into_owned(),
        };
        let system = system.ok_or_else(no_system)?;
        let words = words.into_iter().chain(["--".to_owned()]).chain(verbatim);
        let args = parse_pool_words(words).map_err(|error| PoolFileError::Syntax {
            path: path.to_owned(),
            line: line_of_name,
            why: format!("pool `{pool}`: {}", reason(&error)),
        })?;
        let pool = pool.clone().into_owned();
        Ok(DescribedPool { pool, system, description, file: path.to_owned(), args })
    };
    table.get_ref().iter().map(pool).collect()
}

/// The values of a key as words: one, those of an array, or `name=value` for each key of a table.
/// `None` for other types.
fn texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    let one = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        _ => None,
    };
    match value {
        DeValue::Array(values) => values.iter().map(|value| one(value.get_ref())).collect(),
        DeValue::Table(table) => {
            let pair = |(name, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
                Some(format!("{}={}", name.get_ref(), one(value.get_ref())?))
            };
            table.iter().map(pair).collect()
        }
        value => one(value).map(|text| vec![text]),
    }
}

/// The first sentence of an error of the command line, and its hint.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("error:") || line.starts_with("tip:"));
    lines.map(|line| line.trim_start_matches("error: ")).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const GOOD: &str = r#"
        [long]
        system = "slurm"
        description = "Nodes for up to a day"
        time-limit = "1d"
        max-nodes = 20
        price = 0.4
        label = { site = "a" }
        executor-option = ["--cache=50GB"]
        options = ["--partition=long"]
    "#;

    #[test]
    fn a_file_that_others_could_write_is_refused() {
        let set_mode = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap()
        };
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("p.toml");
        std::fs::write(&file, GOOD).unwrap();
        let pools = || PoolFileArgs { pools: Some(file.clone()) }.pools();
        for (of_folder, of_file, is_read) in [
            (0o755, 0o644, true),
            (0o1777, 0o644, true),
            (0o755, 0o664, false),
            (0o777, 0o644, false),
        ] {
            set_mode(&folder, of_folder);
            set_mode(&file, of_file);
            let said = pools().err().map(|why| why.to_string());
            assert_eq!(said.is_none(), is_read, "{said:?}");
            assert!(said.is_none_or(|said| said.contains("chmod go-w")));
        }
        set_mode(&folder, 0o755);
        std::fs::remove_file(&file).unwrap();
        assert!(pools().unwrap_err().to_string().contains("cannot read the pools file"));
    }

    #[test]
    fn tables_are_options() {
        let pools = read(Path::new("p.toml"), GOOD).unwrap();
        let [long] = &pools[..] else { panic!("{pools:?}") };
        let options = long.args.clone().options(&long.system).unwrap();
        assert_eq!((options.system.as_str(), options.max_nodes, options.price), ("slurm", 20, 0.4));
        assert_eq!(options.time_limit_us, 86_400_000_000);
        assert_eq!(
            (&options.verbatim[..], &options.executor_options[..]),
            (&["--partition=long".to_owned()][..], &["--cache=50GB".to_owned()][..])
        );
        assert_eq!(options.labels["site"], "a");
        // Words of the command line count more.
        let own = parse_pool_words(["--max-nodes=3", "--label=gpu=1", "--", "-A", "x"]).unwrap();
        let both = own.over(long.args.clone()).options("slurm").unwrap();
        assert_eq!((both.max_nodes, both.time_limit_us), (3, 86_400_000_000));
        assert_eq!(both.verbatim, ["--partition=long", "-A", "x"]);
        assert_eq!(both.labels.len(), 2);
    }

    #[test]
    fn errors_name_file_line_and_key() {
        let says = |text: &str| read(Path::new("p.toml"), text).unwrap_err().to_string();
        let first = "[a]\nsystem = \"slurm\"\n";
        for (text, expected) in [
            (
                format!("{first}max-node = 3\n"),
                "p.toml, line 3: key `max-node` of pool `a`: unexpected argument",
            ),
            (
                format!("{first}\ntime-limit = \"soon\"\n"),
                "p.toml, line 4: key `time-limit` of pool `a`: invalid value",
            ),
            (
                format!("{first}max-nodes = true\n"),
                "p.toml, line 3: key `max-nodes` of pool `a`: a value of this type",
            ),
            ("[a]\nmax-nodes = 3\n".into(), "p.toml, line 1: pool `a` has no key `system`"),
            ("\nmax-nodes = 3\n".into(), "p.toml, line 2: `max-nodes` is not a table"),
            (format!("{first}max-nodes ="), "p.toml, line 3: "),
            (format!("{first}system = \"sge\"\n"), "p.toml, line 3: duplicate key"),
        ] {
            assert!(says(&text).starts_with(expected), "{}", says(&text));
        }
        assert!(says(&format!("{first}max-node = 3\n")).contains("--max-nodes"), "a hint");
    }
}
