//! Extended attributes. `user.NAME` is the named attribute NAME of an entry, which programs set.
//! Those of `user.eyas.` show where a file is and can only be read; a list does not have them, as
//! programs that copy all attributes of a list would then fail.

use std::collections::BTreeSet;
use std::sync::Arc;

use eyas_files::File;
use eyas_types::dfs::{
    FileKind, NamedAttributeError, NamedAttributes, NamedChange, OWN_ATTRIBUTES, SetCondition,
};
use fuser::Errno;

use crate::failure::MountFailure;
use crate::mounted::Mounted;
use crate::nodes::{Inode, ROOT};
use crate::times::now_ns;

/// The beginning of the names of extended attributes that users may set, in Linux.
const USER: &str = "user.";

/// The sizes of the chunks, as a JSON array.
const CHUNKS: &str = "eyas.chunks";
/// The format of the records.
const FORMAT: &str = "eyas.format";
/// The nodes that store each chunk, as a JSON array of arrays.
const REPLICAS: &str = "eyas.replicas";

/// The largest value that Linux passes on.
const MAX_VALUE_BYTES: usize = 64 << 10;

impl Mounted {
    /// The names of the extended attributes of an entry, each ended by a NUL byte.
    pub async fn extended_names(&self, node: &Inode) -> Result<Vec<u8>, MountFailure> {
        let named = self.named_attributes(node).await?;
        let names = named.iter().flat_map(|(name, _)| [USER, name, "\0"].concat().into_bytes());
        Ok(names.collect())
    }

    /// The value of an extended attribute.
    pub async fn extended_attribute(
        &self,
        node: &Inode,
        name: &str,
    ) -> Result<Vec<u8>, MountFailure> {
        let attribute = of_users(name)?;
        if attribute.starts_with(OWN_ATTRIBUTES) {
            return self.own_attribute(node, attribute).await;
        }
        let named = self.named_attributes(node).await?;
        Ok(named.get(attribute).ok_or(Errno::NO_XATTR)?.to_vec())
    }

    /// Sets an extended attribute, with the flags of `setxattr`.
    pub async fn set_extended(
        &self,
        node: &Inode,
        name: &str,
        value: Vec<u8>,
        flags: i32,
    ) -> Result<(), MountFailure> {
        let condition = match flags {
            0 => SetCondition::None,
            libc::XATTR_CREATE => SetCondition::New,
            libc::XATTR_REPLACE => SetCondition::Present,
            _ => return Err(Errno::EINVAL.into()),
        };
        self.change_named(node, settable(name)?, NamedChange::Set { value, condition }).await
    }

    pub async fn remove_extended(&self, node: &Inode, name: &str) -> Result<(), MountFailure> {
        self.change_named(node, settable(name)?, NamedChange::Remove).await
    }

    /// The value of an attribute that is shown of the version of a file that is published.
    async fn own_attribute(&self, node: &Inode, name: &str) -> Result<Vec<u8>, MountFailure> {
        if ![CHUNKS, FORMAT, REPLICAS].contains(&name) {
            return Err(Errno::NO_XATTR.into());
        }
        if node.state().file.is_none() {
            self.refresh(node).await?;
        }
        let file = node.state().file.clone().filter(|file| file.record.kind == FileKind::File);
        let value = shown(&file.ok_or(Errno::NO_XATTR)?, name);
        if value.len() > MAX_VALUE_BYTES {
            Err(Errno::E2BIG.into())
        } else {
            Ok(value.into_bytes())
        }
    }

    /// The named attributes of an entry. The root has none, since it has no record.
    async fn named_attributes(&self, node: &Inode) -> Result<NamedAttributes, MountFailure> {
        let is_known = {
            let state = node.state();
            state.named.is_some() && !state.trusted_for().is_zero()
        };
        if !is_known {
            self.refresh(node).await?;
        }
        Ok(node.state().named.clone().unwrap_or_default())
    }

    /// Changes a named attribute. That of a file that was never published is kept until it is.
    async fn change_named(
        &self,
        node: &Inode,
        attribute: &str,
        change: NamedChange,
    ) -> Result<(), MountFailure> {
        if node.number == ROOT {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let _publishing = node.publishing.lock().await;
        let is_local = {
            let mut state = node.state();
            let is_local = !state.is_published || state.is_removed;
            if is_local {
                let named = state.named.clone().unwrap_or_default();
                state.named = Some(named.with(attribute, &change)?);
                state.attributes.changed_ns = now_ns();
            }
            is_local
        };
        let Some(name) = self.nodes.name(node.number).filter(|_| !is_local) else { return Ok(()) };
        let found = self.namespace.change_named(&name, attribute, change).await?;
        let mut state = node.state();
        // The time of the last write may be that of the draft.
        state.attributes.changed_ns = found.attributes.changed_ns;
        if let Some(file) = found.file {
            state.renew(file);
        }
        Ok(())
    }
}

impl From<NamedAttributeError> for MountFailure {
    fn from(error: NamedAttributeError) -> Self {
        let errno = match error {
            NamedAttributeError::Name(_) => Errno::EINVAL,
            NamedAttributeError::Exists(_) => Errno::EEXIST,
            NamedAttributeError::Missing(_) => Errno::NO_XATTR,
            NamedAttributeError::Full(_) => Errno::ENOSPC,
        };
        errno.into()
    }
}

/// The name of the attribute without `user.`. Programs that hear that there are no other ones, for
/// example access control lists, ask only once.
fn of_users(name: &str) -> Result<&str, MountFailure> {
    Ok(name.strip_prefix(USER).ok_or(Errno::EOPNOTSUPP)?)
}

/// The same, if programs may set the attribute.
fn settable(name: &str) -> Result<&str, MountFailure> {
    let attribute = of_users(name)?;
    if attribute.starts_with(OWN_ATTRIBUTES) { Err(Errno::EPERM.into()) } else { Ok(attribute) }
}

fn shown(file: &Arc<File>, name: &str) -> String {
    let chunks = &file.record.chunks;
    let values: Vec<String> = match name {
        FORMAT => return file.record.format.to_string(),
        CHUNKS => chunks.iter().map(|chunk| chunk.size_bytes.to_string()).collect(),
        _ => {
            let nodes = chunks.iter().map(|chunk| chunk.replicas.iter().collect::<BTreeSet<_>>());
            let names = nodes.map(|nodes| {
                nodes.into_iter().map(|node| format!("\"{node}\"")).collect::<Vec<_>>()
            });
            names.map(|names| format!("[{}]", names.join(","))).collect()
        }
    };
    format!("[{}]", values.join(","))
}
