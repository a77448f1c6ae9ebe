//! Programs of several mounts that append to one file: each gets its bytes to the end, and none
//! loses those of another.

use std::sync::Arc;

use eyas_files::{
    ContentDraft, DraftContent, DraftSnapshot, FilesError, FilesErrorKind, NewContent,
};
use eyas_types::dfs::FileName;
use fuser::{Errno, OpenAccMode, OpenFlags};

use crate::failure::MountFailure;
use crate::mounted::{Mounted, NewEntry};
use crate::namespace::file_name;
use crate::nodes::Inode;

/// Maximum number of tries to append to a file that other clients change at the same time.
const MAX_TRIES: usize = 100;

impl Mounted {
    /// Creates a file and opens it. A file that others may create and extend at the same time
    /// appears at once, empty: of two programs that append to a new file, the second one opens that
    /// of the first.
    pub async fn create_and_open(
        &self,
        folder: u64,
        name: &str,
        new: NewEntry,
        flags: OpenFlags,
    ) -> Result<(Arc<Inode>, u64), MountFailure> {
        let path = self.path(folder, name)?;
        let (is_exclusive, appends) = (flags.0 & libc::O_EXCL != 0, flags.0 & libc::O_APPEND != 0);
        let may_write = flags.acc_mode() != OpenAccMode::O_RDONLY;
        match self.create(folder, &path, new, is_exclusive || appends || !may_write).await {
            Err(failure) if failure.errno == Errno::EEXIST && !is_exclusive => {
                let node = self.lookup(folder, name).await?;
                match self.open(node.clone(), flags).await {
                    Ok((handle, _)) => Ok((node, handle)),
                    Err(failure) => {
                        self.nodes.forget(node.number, 1);
                        Err(failure)
                    }
                }
            }
            created => {
                let node = created?;
                let handle = self.open_file(node.clone(), may_write);
                Ok((node, handle))
            }
        }
    }

    /// Appends what programs of this mount have appended to a version that another client has
    /// replaced since. `false` if they have changed other bytes, too, or if the file was replaced
    /// by another one.
    pub async fn append_again(
        &self,
        node: &Inode,
        snapshot: &DraftSnapshot,
    ) -> Result<bool, MountFailure> {
        let is_appended = || node.state().draft.as_ref().is_some_and(ContentDraft::is_appended);
        let Some(base) = snapshot.base.clone().filter(|_| is_appended()) else { return Ok(false) };
        let Some(name) = self.nodes.name(node.number).and_then(|name| file_name(&name).ok()) else {
            return Ok(false);
        };
        let file = match self.append_snapshot(node, &name, snapshot, base.record.size_bytes()).await
        {
            Ok(Some(file)) => Arc::new(file),
            Ok(None) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        node.sent.clear();
        {
            let mut state = node.state();
            let size_bytes = file.record.size_bytes();
            let mut draft = ContentDraft::new(&self.scratch, Some(file.clone()));
            // What was appended meanwhile comes after that.
            let more = match &state.draft {
                Some(draft) => draft.read(snapshot.size_bytes..draft.size_bytes())?,
                None => Vec::new(),
            };
            if !more.is_empty() {
                draft.write(size_bytes, &more, true)?;
            }
            state.attributes = file.record.attributes;
            state.named = Some(file.record.named.clone());
            (state.is_published, state.is_late) = (true, false);
            (state.size_bytes, state.hole_bytes) = (size_bytes, file.record.hole_bytes());
            (state.draft, state.file) = (Some(draft), Some(file));
            state.volatile.clear();
        }
        self.nodes.published(node);
        self.invalidate(node);
        // The next program that opens another version must not trust the attributes of this one.
        let mut state = node.state();
        state.cached = state.file.clone();
        Ok(true)
    }

    /// `None` if the file is no longer the one to which was appended, or may have the bytes
    /// already.
    async fn append_snapshot(
        &self,
        node: &Inode,
        name: &FileName,
        snapshot: &DraftSnapshot,
        from: u64,
    ) -> Result<Option<eyas_files::File>, FilesError> {
        let dfs = &self.namespace.dfs;
        let content = DraftContent {
            dfs: dfs.clone(),
            snapshot: Arc::new(snapshot.clone()),
            runtime: self.runtime.clone(),
        };
        let mut tries = 0;
        loop {
            let now = dfs.lookup(name).await?;
            if now.record.id != node.id || node.sent.has(&now.record) {
                return Ok(None);
            }
            match dfs.append(name, content.reader(from..snapshot.size_bytes), |_| {}).await {
                Err(error) if error.kind == FilesErrorKind::Changed && tries < MAX_TRIES => {
                    tries += 1
                }
                appended => return appended.map(Some),
            }
        }
    }
}
