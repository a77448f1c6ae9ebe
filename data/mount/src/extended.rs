//! Extended attributes, which show where a file is. They can only be read.

use std::collections::BTreeSet;
use std::sync::Arc;

use eyas_files::File;
use eyas_types::dfs::FileKind;
use fuser::Errno;

use crate::failure::MountFailure;
use crate::mounted::Mounted;
use crate::nodes::Inode;

/// The sizes of the chunks, as a JSON array.
const CHUNKS: &str = "user.eyas.chunks";
/// The format of the records.
const FORMAT: &str = "user.eyas.format";
/// The nodes that store each chunk, as a JSON array of arrays.
const REPLICAS: &str = "user.eyas.replicas";

/// The largest value that Linux passes on.
const MAX_VALUE_BYTES: usize = 64 << 10;

/// The names of the extended attributes of an entry, each ended by a NUL byte.
pub(crate) fn extended_names(node: &Inode) -> Vec<u8> {
    match node.state().kind {
        FileKind::File => [CHUNKS, FORMAT, REPLICAS]
            .iter()
            .flat_map(|name| [name.as_bytes(), b"\0"].concat())
            .collect(),
        _ => Vec::new(),
    }
}

impl Mounted {
    /// The value of an extended attribute: of the version of a file that is published.
    pub async fn extended_attribute(
        &self,
        node: &Inode,
        name: &str,
    ) -> Result<Vec<u8>, MountFailure> {
        if ![CHUNKS, FORMAT, REPLICAS].contains(&name) {
            // Programs that hear that there are no such attributes, for example access control
            // lists, ask only once.
            let is_of_users = name.starts_with("user.");
            return Err(if is_of_users { Errno::NO_XATTR } else { Errno::EOPNOTSUPP }.into());
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
