//! The attributes of entries: those of each entry, and those that users have named.

use eyas_types::dfs::{AttributeChange, NamedAttributes, NamedChange};
use fuser::Errno;

use super::Entries;
use crate::failure::MountFailure;
use crate::inode::{Inode, ROOT};

impl Entries {
    /// Changes attributes. Those of a file that was never published are kept until it is.
    pub async fn set_attributes(
        &self,
        node: &Inode,
        change: AttributeChange,
    ) -> Result<(), MountFailure> {
        let _publishing = node.publishing.lock().await;
        {
            let mut state = node.state();
            if state.is_local() || node.number == ROOT {
                state.change_here(&change);
                return Ok(());
            }
        }
        let Some(name) = self.inodes.name(node.number) else { return Ok(()) };
        let found = self.namespace.set_attributes(&name, &change).await?;
        node.state().changed(found, change.modified_ns.is_some());
        Ok(())
    }

    /// The named attributes of an entry. The root has none, since it has no record.
    pub async fn named_attributes(&self, node: &Inode) -> Result<NamedAttributes, MountFailure> {
        let is_known = {
            let state = node.state();
            state.named().is_some() && !state.trusted_for().is_zero()
        };
        if !is_known {
            self.refresh(node).await?;
        }
        Ok(node.state().named().cloned().unwrap_or_default())
    }

    /// Changes a named attribute. That of a file that was never published is kept until it is.
    pub async fn change_named(
        &self,
        node: &Inode,
        attribute: &str,
        change: NamedChange,
    ) -> Result<(), MountFailure> {
        if node.number == ROOT {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let _publishing = node.publishing.lock().await;
        {
            let mut state = node.state();
            if state.is_local() {
                return Ok(state.change_named_here(attribute, &change)?);
            }
        }
        let Some(name) = self.inodes.name(node.number) else { return Ok(()) };
        let found = self.namespace.change_named(&name, attribute, change).await?;
        node.state().changed(found, false);
        Ok(())
    }
}
