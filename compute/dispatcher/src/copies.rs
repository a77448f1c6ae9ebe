//! Derived copies that tasks read: contents of compressed files, and folders that commands make.

use eyas_jobs::Job;
use eyas_types::compressed::decompressed_name;
use eyas_types::{Input, Name, ObjectId, ObjectSpec, PartOfFile};

/// A derived copy, and what it is made of.
pub(crate) struct CopyToRead {
    pub copy: ObjectId,
    pub source: ObjectId,
    pub source_bytes: u64,
    /// URL of the source.
    pub of: Name,
    /// The object in which nodes give it to each other, if it is a folder.
    pub packed: Option<ObjectId>,
}

impl CopyToRead {
    /// The object that a node without the copy may fetch.
    pub fn given(&self) -> ObjectId {
        self.packed.unwrap_or(self.copy)
    }
}

/// The derived copies that a task reads. A file whose name does not say that it is compressed is
/// seldom compressed: it counts as read itself, so that no node seems to lack a copy of it.
pub(crate) fn copies_of(job: &Job, task: u32) -> Vec<CopyToRead> {
    let item = job.spec.items.get(task);
    let preparations = &job.spec.template_of(&item).preparations;
    let copy = |(input, object): (&Input, Option<(ObjectId, &ObjectSpec)>)| {
        let (source, object) = object?;
        let part = input.from.part()?;
        let copy = part.copy_of(source, preparations)?;
        let is_folder = matches!(part, PartOfFile::Prepared { .. });
        let packed = is_folder.then(|| copy.packed());
        let is_made = !input.is_decompressed() || decompressed_name(object.base_name()).is_some();
        let (source_bytes, of) = (object.size_bytes(), &object.source);
        is_made.then(|| CopyToRead { copy, source, source_bytes, of: of.clone(), packed })
    };
    job.inputs_with_ids(&item).filter_map(copy).collect()
}
