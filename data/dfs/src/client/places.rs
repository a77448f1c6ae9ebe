//! Where the blocks of a file are: for programs that go to their data.

use std::net::{IpAddr, SocketAddr};

use eyas_types::dfs::{Chunk, NodeId};

use crate::client::{DfsClient, File};

/// A stored chunk of a file, and the nodes that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// The number of its block. A program that processes records reads whole blocks: each is one chunk, except in a
    /// file that is one record, whose chunks are all of one block.
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

impl DfsClient {
    /// The places of all chunks of a file, in order, as this client knows the nodes now.
    pub fn places(&self, file: &File) -> Vec<BlockPlace> {
        let known = self.known();
        let holder = |node: &NodeId| BlockHolder {
            node: *node,
            address: known.members.get(node).map(|member| member.address),
            is_near: self.near() == Some(*node),
        };
        let chunks =
            file.record.blocks().enumerate().flat_map(|(block, chunks)| chunks.iter().map(move |chunk| (block, chunk)));
        let mut offset = 0;
        let place = |(block, chunk): (usize, &Chunk)| {
            let begins = offset;
            offset += chunk.size_bytes;
            let holders = chunk.replicas.iter().map(holder).collect();
            BlockPlace { offset: begins, size_bytes: chunk.size_bytes, block, holders }
        };
        chunks.map(place).collect()
    }
}
