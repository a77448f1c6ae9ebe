//! `mount.eyas`: the form of `eyas mount` that `mount` and `/etc/fstab` use. It is the same program
//! under another name, called as `mount.fuse.eyas eyas:CLUSTER FOLDER -o OPTIONS`.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use thiserror::Error;

use crate::error::CliError;
use crate::own_process::own_path;

/// The names of the program under which it mounts.
const NAMES: &[&str] = &["mount.eyas", "mount.fuse.eyas"];

/// Mount options without a value, each with the same option of `eyas mount`.
const FLAGS: &[(&str, &str)] = &[("ro", "--read-only"), ("allow_other", "--allow-other")];

/// Mount options with a value, each with the same option of `eyas mount`.
const VALUES: &[(&str, &str)] = &[
    ("access", "--access"),
    ("scratch", "--scratch"),
    ("timeout", "--timeout"),
    ("chunk_size", "--chunk-size"),
    ("replicas", "--replicas"),
];

/// Options that concern `mount` itself or are always set.
const IGNORED: &[&str] = &[
    "rw", "defaults", "auto", "noauto", "nofail", "_netdev", "user", "users", "nosuid", "nodev",
    "exec", "async", "relatime", "noatime",
];

/// Why a command line of `mount` is refused.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum MountHelperError {
    #[error("{0} needs a cluster and a folder, as in: {0} eyas:CLUSTER FOLDER -o ro")]
    Missing(String),
    #[error(
        "`{0}` is not an option of the mount; there are ro, allow_other, access, scratch, \
         timeout, chunk_size and replicas"
    )]
    Option(String),
}

/// Continues as `eyas mount` if the program has the name of a mount helper. Returns why that is
/// impossible, or nothing if it has another name.
pub(crate) fn called(words: &[OsString]) -> Option<CliError> {
    match mount_words(words) {
        Ok(None) => None,
        Ok(Some((cluster, made))) => match own_path() {
            Ok(program) => {
                let mut command = Command::new(program);
                // Also with an access file, lists of mounts show the name of the cluster that the
                // user has given: `mount -a` compares it.
                Some(
                    command
                        .arg0("eyas")
                        .args(&made[1..])
                        .env("EYAS_CLUSTER", cluster)
                        .exec()
                        .into(),
                )
            }
            Err(error) => Some(error),
        },
        Err(error) => Some(error.into()),
    }
}

/// The cluster and the words of `eyas mount` if the program has the name of a mount helper.
fn mount_words(words: &[OsString]) -> Result<Option<(String, Vec<OsString>)>, MountHelperError> {
    let name = words
        .first()
        .and_then(|first| Path::new(first).file_name())
        .and_then(OsStr::to_str)
        .unwrap_or_default();
    if !NAMES.contains(&name) {
        return Ok(None);
    }
    let (mut places, mut options) = (Vec::new(), Vec::new());
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("-o") => {
                let text =
                    rest.next().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
                options.extend(text.split(',').map(str::to_owned));
            }
            // The type of the file system.
            Some("-t") => drop(rest.next()),
            // Sloppy, fake, without /etc/mtab, verbose.
            Some(flag) if flag.starts_with('-') => {}
            _ => places.push(word.clone()),
        }
    }
    let [cluster, folder] = &places[..] else { return Err(MountHelperError::Missing(name.into())) };
    let mut made: Vec<OsString> = vec!["eyas".into(), "mount".into(), "--detach".into()];
    let cluster = cluster.to_string_lossy();
    let cluster = cluster.strip_prefix("eyas:").unwrap_or(&cluster);
    let has_access = options.iter().any(|option| option.starts_with("access="));
    if !has_access {
        made.extend(["--cluster".into(), cluster.into()]);
    }
    for option in options.iter().filter(|option| !option.is_empty() && !option.starts_with("x-")) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == option) {
            made.push(flag.into());
        } else if let Some((_, long)) =
            VALUES.iter().find(|(name, _)| *name == key && !value.is_empty())
        {
            made.extend([long.into(), value.into()]);
        } else if !IGNORED.contains(&option.as_str()) {
            return Err(MountHelperError::Option(option.clone()));
        }
    }
    made.extend(["--".into(), folder.clone()]);
    Ok(Some((cluster.to_owned(), made)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(line: &str) -> Result<String, MountHelperError> {
        let words: Vec<_> = line.split(' ').map(OsString::from).collect();
        let words = mount_words(&words)?;
        Ok(words.map_or_else(String::new, |(_, words)| {
            words.join(OsStr::new(" ")).into_string().unwrap()
        }))
    }

    #[test]
    fn lines_of_mount_become_those_of_eyas() {
        assert_eq!(made("/usr/bin/eyas dfs ls").unwrap(), "");
        let line = "/sbin/mount.fuse.eyas eyas:lab /mnt -n -o \
                    rw,noauto,x-systemd.automount,timeout=5s,allow_other";
        assert_eq!(
            made(line).unwrap(),
            "eyas mount --detach --cluster lab --timeout 5s --allow-other -- /mnt"
        );
        let line = "mount.eyas eyas:lab /mnt -o ro,access=/etc/eyas/lab.toml";
        assert_eq!(
            made(line).unwrap(),
            "eyas mount --detach --read-only --access /etc/eyas/lab.toml -- /mnt"
        );
        assert_eq!(
            made("mount.eyas eyas:lab"),
            Err(MountHelperError::Missing("mount.eyas".into()))
        );
        assert_eq!(
            made("mount.eyas lab /mnt -o sync"),
            Err(MountHelperError::Option("sync".into()))
        );
    }
}
