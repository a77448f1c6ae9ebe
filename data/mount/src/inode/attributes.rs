//! The attributes of an entry.

use eyas_files::File;
use eyas_types::dfs::{
    AttributeChange, Attributes, FileKind, NamedAttributeError, NamedAttributes, NamedChange,
};

use crate::cluster_entry::ClusterEntry;
use crate::times::now_ns;

/// The attributes of an entry, as programs of this mount see them.
#[derive(Debug)]
pub(crate) struct EntryAttributes {
    present: Attributes,
    /// The named attributes, if they are known.
    named: Option<NamedAttributes>,
}

impl EntryAttributes {
    pub fn new(found: &ClusterEntry, is_published: bool) -> Self {
        let named = match &found.file {
            Some(file) => Some(file.record.named.clone()),
            None => (!is_published).then(NamedAttributes::default),
        };
        EntryAttributes { present: found.attributes, named }
    }

    pub fn present(&self) -> Attributes {
        self.present
    }

    pub fn named(&self) -> Option<&NamedAttributes> {
        self.named.as_ref()
    }

    /// The content has changed, or the entries of a folder have.
    pub fn written_now(&mut self) {
        let now_ns = now_ns();
        (self.present.modified_ns, self.present.changed_ns) = (now_ns, now_ns);
    }

    /// A program has changed attributes, of which the cluster does not know.
    pub fn change_here(&mut self, change: &AttributeChange) {
        self.present = self.present.with(change, now_ns());
    }

    /// The same for a named attribute.
    pub fn change_named_here(
        &mut self,
        attribute: &str,
        change: &NamedChange,
    ) -> Result<(), NamedAttributeError> {
        let named = self.named.clone().unwrap_or_default();
        self.named = Some(named.with(attribute, change)?);
        self.present.changed_ns = now_ns();
        Ok(())
    }

    /// The cluster has these attributes, and knows of all changes.
    pub fn set(&mut self, cluster: Attributes) {
        self.present = cluster;
    }

    /// The cluster has these attributes. It does not know the time of a write that is not published
    /// (`is_written`), nor, of a folder, that of the last change of its entries.
    pub fn learn(&mut self, cluster: Attributes, kind: &FileKind, is_written: bool) {
        let Attributes { modified_ns, changed_ns, .. } = self.present;
        self.present = cluster;
        if is_written || (kind.is_folder() && modified_ns > cluster.modified_ns) {
            self.present.modified_ns = modified_ns;
            self.present.changed_ns = changed_ns.max(cluster.changed_ns);
        }
    }

    pub fn set_named(&mut self, version: &File) {
        self.named = Some(version.record.named.clone());
    }

    pub fn forget_named(&mut self) {
        self.named = None;
    }
}
