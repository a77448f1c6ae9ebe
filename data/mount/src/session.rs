//! A mount from its beginning to its end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use eyas_files::DfsClient;
use fuser::{Config, MountOption, Session, SessionACL};
use thiserror::Error;
use tokio::task::JoinHandle;

use crate::guardian::{MountGuardian, is_mounted};
use crate::mounted::Mounted;
use crate::new_files::NewFiles;
use crate::reading::THREADS;
use crate::requests::KernelRequests;
use crate::serving::serve;

/// Number of KiB that the kernel reads ahead of a program, in requests of up to 1 MiB.
const READ_AHEAD_KB: u32 = 1024;

/// Why a folder was not mounted, or not unmounted in good order.
#[derive(Debug, Error)]
pub enum MountError {
    /// The mount point cannot be used.
    #[error("cannot mount on {}: {source}", folder.display())]
    MountPoint {
        /// The mount point.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The mount point is a file.
    #[error("cannot mount on {}: it is not a folder", .0.display())]
    NotFolder(PathBuf),
    /// There is a mount of eyas on the mount point.
    #[error(
        "cannot mount on {}: files of a cluster are mounted there already. Unmount them first",
        .0.display()
    )]
    Mounted(PathBuf),
    /// The kernel has no FUSE, or this process may not use it.
    #[error(
        "cannot open /dev/fuse: {0}. Load the kernel module `fuse`, and let this user read and \
         write the device"
    )]
    Device(io::Error),
    /// The kernel or `fusermount3` has refused the mount.
    #[error(
        "cannot mount on {}: {source}. Only root, or a user with the program `fusermount3`, may \
         mount; another user's access needs `user_allow_other` in /etc/fuse.conf",
        folder.display()
    )]
    Refused {
        /// The mount point.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The scratch folder cannot be used.
    #[error(
        "cannot use the scratch folder {}: {source}. Choose another one with --scratch",
        folder.display()
    )]
    Scratch {
        /// The scratch folder.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The guardian, which unmounts the folder if this process is killed, cannot be started.
    #[error("cannot start the guardian of the mount: {0}")]
    Guardian(io::Error),
    /// Serving the kernel has failed.
    #[error("the mount has ended: {0}")]
    Serving(io::Error),
}

/// How a folder is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Name of the cluster, which lists of mounts show.
    pub cluster: String,
    /// Folder for the drafts of files that are being written.
    pub scratch: PathBuf,
    /// Time after which an operation fails if the cluster does not answer.
    pub timeout: Duration,
    /// Target size of the chunks of new files, bytes.
    pub chunk_bytes: u64,
    /// Number of replicas of new files.
    pub replication: u8,
    /// Whether files can only be read.
    pub is_read_only: bool,
    /// This program, which is started once more as guardian of the mount.
    pub eyas: PathBuf,
    /// Whether users other than the one who mounts may use the mount.
    pub is_for_all_users: bool,
}

/// A mounted folder.
pub struct Mount {
    mounted: Arc<Mounted>,
    serving: JoinHandle<io::Result<()>>,
    guardian: MountGuardian,
}

impl Mount {
    /// Mounts the files of the cluster on a folder.
    ///
    /// # Errors
    /// If the folder, FUSE, the scratch folder or the cluster cannot be used.
    pub async fn begin(
        dfs: DfsClient,
        folder: &Path,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let in_folder = |source| MountError::MountPoint { folder: folder.to_owned(), source };
        let folder = std::fs::canonicalize(folder).map_err(in_folder)?;
        if !folder.is_dir() {
            return Err(MountError::NotFolder(folder));
        }
        if is_mounted(&folder) {
            return Err(MountError::Mounted(folder));
        }
        std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .map_err(MountError::Device)?;
        eyas_files::Scratch::file_in(&options.scratch)
            .map_err(|source| MountError::Scratch { folder: options.scratch.clone(), source })?;
        let MountOptions { scratch, timeout, chunk_bytes, replication, .. } = options.clone();
        // Programs then get an error when they open a file, and not when they have written it.
        let is_read_only = options.is_read_only || !dfs.may_write();
        if is_read_only != options.is_read_only {
            tracing::warn!(
                "the access file has a key of the role `read`: programs can only read files of \
                 the mount"
            );
        }
        let new_files = NewFiles { chunk_bytes, replication };
        let mounted = Arc::new(Mounted::new(dfs, scratch, timeout, new_files));
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(format!("eyas:{}", options.cluster)),
            // The option `Subtype` is not passed to the kernel.
            MountOption::CUSTOM("subtype=eyas".into()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            if is_read_only { MountOption::RO } else { MountOption::RW },
        ];
        config.acl = if options.is_for_all_users { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let mut guardian = MountGuardian::start(&options.eyas).map_err(MountError::Guardian)?;
        let (requests, place) = (KernelRequests::new(mounted.clone()), folder.clone());
        let mounting = tokio::task::spawn_blocking(move || {
            Session::new(requests, &folder, &config)
                .map_err(|source| MountError::Refused { folder, source })
        });
        let session = mounting.await.unwrap_or_else(eyas_panics::resume)?;
        mounted.kernel_cache.mounted(session.notifier());
        let serving = serve(session).map_err(MountError::Serving)?;
        guardian.watch(&place).map_err(MountError::Guardian)?;
        tokio::spawn(mounted.clone().publish_again());
        if !is_read_only {
            let mounted = mounted.clone();
            tokio::spawn(async move { mounted.removed.remove_left_copies().await });
        }
        // Done before the caller knows of the mount: a folder that is being looked at cannot be
        // unmounted.
        tokio::task::spawn_blocking(move || read_ahead(&place))
            .await
            .unwrap_or_else(eyas_panics::resume);
        Ok(Mount { mounted, serving, guardian })
    }

    /// Returns when the folder was unmounted, for example by `umount`.
    ///
    /// # Errors
    /// If serving the kernel has failed.
    pub async fn ended(&mut self) -> Result<(), MountError> {
        let served = (&mut self.serving).await.unwrap_or_else(eyas_panics::resume);
        self.mounted.end().await;
        self.guardian.dismiss();
        served.map_err(MountError::Serving)
    }

    /// Unmounts, and publishes what programs have written to files that are still open.
    ///
    /// # Errors
    /// If the folder cannot be unmounted.
    pub async fn end(self) -> Result<(), MountError> {
        let guardian = self.guardian;
        let unmounting = tokio::task::spawn_blocking(move || guardian.unmount().map(|()| guardian));
        let unmounted = unmounting.await.unwrap_or_else(eyas_panics::resume);
        let mut guardian = unmounted.map_err(MountError::Serving)?;
        self.mounted.end().await;
        guardian.dismiss();
        Ok(())
    }
}

/// Has the kernel read further ahead than the 128 KiB that it permits by itself. Only root may set
/// this; with less, the mount is slower.
fn read_ahead(folder: &Path) {
    let set = || {
        let device = rustix::fs::stat(folder)?.st_dev;
        let [major, minor] = [rustix::fs::major(device), rustix::fs::minor(device)];
        std::fs::write(
            format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"),
            READ_AHEAD_KB.to_string(),
        )
    };
    if let Err(error) = set() {
        tracing::debug!("the kernel reads as far ahead as it does by itself: {error}");
    }
}
