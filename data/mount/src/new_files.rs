//! How entries begin that programs of this mount make.

use eyas_files::WriteOptions;
use eyas_types::dfs::{Attributes, RecordFormat};

use crate::times::now_ns;

/// The bit of a folder whose new entries get the group of the folder.
const SETGID: u16 = 0o2000;

/// The user that makes a new entry, and its mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
}

impl NewEntry {
    /// The attributes of the entry in a folder with these attributes.
    pub fn attributes(self, folder: Option<Attributes>, is_folder: bool) -> Attributes {
        let now_ns = now_ns();
        let NewEntry { uid, mut gid, mode } = self;
        let mut mode = (mode & 0o7777) as u16;
        if let Some(folder) = folder.filter(|folder| folder.mode & SETGID != 0) {
            gid = folder.gid;
            mode |= if is_folder { SETGID } else { 0 };
        }
        Attributes { mode, uid, gid, modified_ns: now_ns, changed_ns: now_ns }
    }
}

/// How new files are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFiles {
    /// Target size of their chunks.
    pub chunk_bytes: u64,
    pub replication: u8,
}

impl NewFiles {
    pub fn options(self, format: RecordFormat) -> WriteOptions {
        let NewFiles { chunk_bytes, replication } = self;
        WriteOptions { chunk_bytes, replication, ..WriteOptions::of(format) }
    }
}
