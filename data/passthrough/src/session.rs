//! A mount from its beginning to its end.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use eyas_mount::guardian::MountGuardian;
use eyas_mount::serving::serve;
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::fs::{Mode, OFlags};
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::filesystem::{PassthroughFiles, TrustTerms};
use crate::nodes::PassedNodes;

/// Maximum number of requests that are carried out at the same time, each by a thread: a request
/// that waits for its turn blocks its thread.
const MAX_TOGETHER: usize = 64;
/// Maximum number of them that are in the background, such as read-ahead. The others are for
/// requests that a program waits for.
const MAX_BACKGROUND: u16 = 48;

/// Time that the storage has to store changes of mapped files before the mount ends.
const STORING_PATIENCE: Duration = Duration::from_secs(30);

/// The type of such mounts in lists of mounts, after `fuse.`. Agents know it, too
/// (`data/coordinator/src/storage_name.rs`).
const TYPE: &str = "eyas-io";

/// Why a folder was not mounted, or not unmounted in good order.
#[derive(Debug, Error)]
pub enum OrderedMountError {
    /// The folder with the content cannot be used.
    #[error("cannot order {}: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The mount point cannot be used.
    #[error("cannot mount on {}: {source}", place.display())]
    Place {
        /// The mount point.
        place: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The folder with the content, or the mount point, is a file.
    #[error("{} is not a folder", .0.display())]
    NotFolder(PathBuf),
    /// The mount point has content that the mount would hide.
    #[error(
        "cannot mount on {}: it is not empty. Choose an empty folder, or the folder whose content \
         is to be ordered", .0.display()
    )]
    NotEmpty(PathBuf),
    /// The mount point is in the folder, so the mount would contain itself.
    #[error(
        "cannot mount on {}: it is in {}, and the mount would contain itself. Choose a place \
         outside, or that folder itself", place.display(), folder.display()
    )]
    Inside {
        /// The mount point.
        place: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// The folder is in such a mount.
    #[error("{} is ordered already: it is in a mount of `eyas io mount`", .0.display())]
    Ordered(PathBuf),
    /// The kernel has no FUSE, or this process may not use it.
    #[error(
        "cannot open /dev/fuse: {0}. Load the kernel module `fuse`, and let this user read and \
         write the device"
    )]
    Device(io::Error),
    /// The kernel or `fusermount3` has refused the mount.
    #[error(
        "cannot mount on {}: {source}. Only root, or a user with the program `fusermount3`, may \
         mount", place.display()
    )]
    Refused {
        /// The mount point.
        place: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The guardian, which unmounts the folder if this process is killed, cannot be started.
    #[error("cannot start the guardian of the mount: {0}")]
    Guardian(io::Error),
    /// Serving the kernel has failed.
    #[error("the mount has ended: {0}")]
    Serving(io::Error),
    /// The folder cannot be unmounted.
    #[error("cannot unmount: {0}. Unmount the folder with `umount` or `fusermount3 -u`")]
    Unmounting(io::Error),
}

/// A folder and the place where its content is to be mounted, which may be used for this. Both
/// paths are absolute and without symbolic links.
#[derive(Clone, Debug)]
pub struct MountPlace {
    /// Folder with the content.
    pub folder: PathBuf,
    /// The mount point.
    pub place: PathBuf,
}

impl MountPlace {
    /// Checks a folder, and the place where its content is to be mounted.
    ///
    /// # Errors
    /// If one of them is missing or no folder, if the place is in the folder, or if the place is
    /// another folder that has content.
    pub fn check(folder: &Path, place: &Path) -> Result<Self, OrderedMountError> {
        let in_folder = |source| OrderedMountError::Folder { folder: folder.to_owned(), source };
        let in_place = |source| OrderedMountError::Place { place: place.to_owned(), source };
        let (folder, place) =
            (folder.canonicalize().map_err(in_folder)?, place.canonicalize().map_err(in_place)?);
        if let Some(file) = [&folder, &place].into_iter().find(|path| !path.is_dir()) {
            return Err(OrderedMountError::NotFolder(file.clone()));
        }
        if is_ordered(&folder).map_err(in_folder)? {
            return Err(OrderedMountError::Ordered(folder));
        }
        if place != folder {
            if place.starts_with(&folder) {
                return Err(OrderedMountError::Inside { place, folder });
            }
            if place.read_dir().map_err(in_place)?.next().is_some() {
                return Err(OrderedMountError::NotEmpty(place));
            }
        }
        Ok(MountPlace { folder, place })
    }
}

/// Whether a folder is in such a mount.
fn is_ordered(folder: &Path) -> io::Result<bool> {
    let device = rustix::fs::stat(folder)?.st_dev;
    let number = format!(" {}:{} ", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let kind = format!(" - fuse.{TYPE} ");
    Ok(mounts.lines().any(|mount| mount.contains(&number) && mount.contains(&kind)))
}

/// A mounted folder.
pub struct OrderedMount {
    place: PathBuf,
    serving: JoinHandle<io::Result<()>>,
    guardian: MountGuardian,
}

impl OrderedMount {
    /// Mounts the content of a folder. `is_static`: the folder does not change meanwhile, so the
    /// kernel looks up its names and attributes once. `eyas`: this program, which is started once
    /// more as guardian of the mount.
    ///
    /// # Errors
    /// If the folder or FUSE cannot be used.
    pub async fn begin(
        on: &MountPlace,
        is_static: bool,
        eyas: &Path,
    ) -> Result<Self, OrderedMountError> {
        let MountPlace { folder, place } = on.clone();
        let in_folder =
            |source: io::Error| OrderedMountError::Folder { folder: folder.clone(), source };
        // Opened before the mount covers it.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&folder, flags, Mode::empty());
        let nodes = root.and_then(PassedNodes::new).map_err(|error| in_folder(error.into()))?;
        File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .map_err(OrderedMountError::Device)?;
        // Programs have masks of their own.
        rustix::process::umask(Mode::empty());
        let notifier = Arc::new(OnceLock::new());
        let trust = if is_static { TrustTerms::STATIC } else { TrustTerms::CHANGING };
        let files = PassthroughFiles::new(nodes, trust, notifier.clone(), MAX_BACKGROUND);
        let config = configuration(&folder);
        let mut guardian = MountGuardian::start(eyas).map_err(OrderedMountError::Guardian)?;
        let at = place.clone();
        let mounting = spawn_blocking(move || {
            Session::new(files, &at, &config)
                .map_err(|source| OrderedMountError::Refused { place: at, source })
        });
        let session = mounting.await.unwrap_or_else(eyas_panics::resume)?;
        _ = notifier.set(session.notifier());
        let serving = serve(session).map_err(OrderedMountError::Serving)?;
        guardian.watch(&place).map_err(OrderedMountError::Guardian)?;
        Ok(OrderedMount { place, serving, guardian })
    }

    /// Returns when the folder was unmounted, for example by `umount`.
    ///
    /// # Errors
    /// If serving the kernel has failed.
    pub async fn ended(&mut self) -> Result<(), OrderedMountError> {
        let served = (&mut self.serving).await.unwrap_or_else(eyas_panics::resume);
        self.guardian.dismiss();
        served.map_err(OrderedMountError::Serving)
    }

    /// Unmounts. Files that are still open can no longer be used.
    ///
    /// # Errors
    /// If the folder cannot be unmounted.
    pub async fn end(self) -> Result<(), OrderedMountError> {
        let OrderedMount { place, guardian, .. } = self;
        let (stored, storing) = oneshot::channel();
        // Not a task of the runtime, which would wait for it: storage may never answer.
        std::thread::spawn(move || {
            store_mapped(&place);
            // The mount may have ended meanwhile.
            let _ = stored.send(());
        });
        if timeout(STORING_PATIENCE, storing).await.is_err() {
            tracing::warn!("the storage does not answer: changes of mapped files may be lost");
        }
        let unmounting = spawn_blocking(move || guardian.unmount().map(|()| guardian));
        let unmounted = unmounting.await.unwrap_or_else(eyas_panics::resume);
        unmounted.map_err(OrderedMountError::Unmounting)?.dismiss();
        Ok(())
    }
}

/// How the content of a folder is mounted.
fn configuration(folder: &Path) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        // A comma would end the option.
        MountOption::FSName(folder.display().to_string().replace(',', "_")),
        // The option `Subtype` is not passed to the kernel.
        MountOption::CUSTOM(format!("subtype={TYPE}")),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::RW,
    ];
    config.acl = SessionACL::Owner;
    config.n_threads = Some(MAX_TOGETHER);
    config.clone_fd = true;
    config
}

/// Has the kernel write back the pages that programs have changed in mapped files. Other changes
/// are never in the kernel's cache alone.
fn store_mapped(place: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let stored = rustix::fs::open(place, flags, Mode::empty()).and_then(rustix::fs::syncfs);
    if let Err(error) = stored {
        tracing::warn!("changes of mapped files may not be stored: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_cannot_be_used_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        for folder in ["folder/inside", "empty", "full/content"] {
            std::fs::create_dir_all(path(folder)).unwrap();
        }
        std::fs::write(path("file"), "").unwrap();
        std::os::unix::fs::symlink("folder", path("link")).unwrap();
        let check = |folder, place| {
            let checked = MountPlace::check(&path(folder), &path(place));
            checked.map(|checked| checked.place).map_err(|error| error.to_string())
        };
        let real = home.path().canonicalize().unwrap();
        assert_eq!(check("folder", "empty"), Ok(real.join("empty")));
        assert_eq!(check("folder", "link"), Ok(real.join("folder")), "the folder itself");
        for (folder, place, expected) in [
            ("missing", "empty", "cannot order"),
            ("folder", "missing", "cannot mount on"),
            ("file", "empty", "is not a folder"),
            ("folder", "file", "is not a folder"),
            ("folder", "full", "it is not empty"),
            ("folder", "folder/inside", "would contain itself"),
            ("link", "folder/inside", "would contain itself"),
        ] {
            let error = check(folder, place).expect_err("it cannot be used");
            assert!(error.contains(expected), "{folder} at {place}: {error}");
        }
    }
}
