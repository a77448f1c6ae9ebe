//! Where the blocks of a file are: for programs that go to their data.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use eyas_types::dfs::{Chunk, FileRecord, NodeId};

use crate::protocol::Member;

/// A stored chunk of a file, and the nodes that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// The number of its block. A program that processes records reads whole blocks: each is one
    /// chunk, except in a file that is one record, whose chunks are all of one block.
    pub block: usize,
    /// The nodes with a replica. None for zeros that no node stores.
    pub holders: Vec<BlockHolder>,
}

/// A node that has a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHolder {
    /// The node.
    pub node: NodeId,
    /// Its address for sessions; `None` while it is not connected.
    pub address: Option<SocketAddr>,
    /// Whether it is the node on the machine of this client.
    pub is_near: bool,
}

impl BlockHolder {
    /// The address of its host; `None` while the node is not connected.
    pub fn host(&self) -> Option<IpAddr> {
        self.address.map(|address| address.ip())
    }
}

/// The places of all chunks of a file, in order, when these members are alive.
pub(super) fn places_of(
    record: &FileRecord,
    members: &BTreeMap<NodeId, Member>,
    near: Option<NodeId>,
) -> Vec<BlockPlace> {
    let holder = |node: &NodeId| BlockHolder {
        node: *node,
        address: members.get(node).map(|member| member.address),
        is_near: near == Some(*node),
    };
    let mut offset = 0;
    let mut places = Vec::with_capacity(record.chunks.len());
    for (block, chunks) in record.blocks().enumerate() {
        for Chunk { size_bytes, replicas, .. } in chunks {
            let holders = replicas.iter().map(holder).collect();
            places.push(BlockPlace { offset, size_bytes: *size_bytes, block, holders });
            offset += size_bytes;
        }
    }
    places
}
