//! The native part of the Python package: the connection of an executor to a cluster, the files
//! of a cluster, and the `eyas` command.

mod blocks;
mod buffers;
mod cluster_error;
mod command;
mod downloads;
mod entries;
mod files;
mod folders;
mod names;
mod objects;
mod results;
mod session;
mod traffic;
mod waiting;

use pyo3::prelude::*;

#[pymodule]
mod _eyas {
    #[pymodule_export]
    use super::blocks::{FilesBlock, FilesMemory, FilesPiece, FilesRun, FilesRunStatus};
    #[pymodule_export]
    use super::cluster_error::ClusterError;
    #[pymodule_export]
    use super::command::main;
    #[pymodule_export]
    use super::entries::{FileChunk, FileEntry};
    #[pymodule_export]
    use super::files::{FilesSession, OpenedFile, WrittenFile};
    #[pymodule_export]
    use super::folders::trusted_folder;
    #[pymodule_export]
    use super::names::{change_file_names, file_names};
    #[pymodule_export]
    use super::results::{CallOutcome, EndedCall};
    #[pymodule_export]
    use super::session::{CallSession, access_path, ask, check_destination, push};
}
