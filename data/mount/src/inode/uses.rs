//! Which programs have a file open, and what is kept for them until they close it.

use std::sync::Arc;

use eyas_files::{File, FileReader, RetainedFile};

/// The programs that have a file open.
#[derive(Debug, Default)]
pub(crate) struct OpenUses {
    /// Number of open handles.
    handles: u32,
    /// Number of open handles that may write.
    writers: u32,
    /// Reads the content, from the first read until no program has the file open.
    reader: Option<Arc<FileReader>>,
    /// Copies of the content, from when the file is removed or replaced until no program has it
    /// open.
    retained: Option<Arc<RetainedFile>>,
}

impl OpenUses {
    pub fn is_open(&self) -> bool {
        self.handles > 0
    }

    pub fn has_writers(&self) -> bool {
        self.writers > 0
    }

    pub fn retained(&self) -> Option<&Arc<RetainedFile>> {
        self.retained.as_ref()
    }

    pub fn opened(&mut self, may_write: bool) {
        self.handles += 1;
        self.writers += u32::from(may_write);
    }

    pub fn closed(&mut self, may_write: bool) {
        self.handles -= 1;
        self.writers -= u32::from(may_write);
        if self.handles == 0 {
            self.reader = None;
        }
    }

    /// The reader of a version, which `begin` makes if there is none. It goes on where the reader
    /// of an earlier version was, if the content is the same.
    pub fn reader(
        &mut self,
        file: &Arc<File>,
        begin: impl FnOnce() -> FileReader,
    ) -> Arc<FileReader> {
        let reader = match &self.reader {
            Some(reader) if Arc::ptr_eq(reader.file(), file) => return reader.clone(),
            Some(before) => before.renewed(file.clone()),
            None => begin(),
        };
        self.reader.insert(Arc::new(reader)).clone()
    }

    pub fn retain(&mut self, retained: Arc<RetainedFile>) {
        self.retained = Some(retained);
    }

    pub fn take_retained(&mut self) -> Option<Arc<RetainedFile>> {
        self.retained.take()
    }
}
