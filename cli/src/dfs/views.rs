//! How files and nodes of the file system are shown, to people and as JSON.

use std::collections::BTreeSet;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use eyas_client::files::{File, Listing, Member, Membership, Recovery, Usage};
use eyas_client::types::dfs::{Chunk, FileName, NodeId};
use eyas_client::types::units::{format_bytes, format_count, format_duration_us};
use eyas_client::view::files::{
    BadReplicaView, ChunkView, FileShape, FileView, FilesNodeView, FilesUsageView, RecoveryView, ReplicaView,
    VerifiedView,
};

use crate::show::{self, Table};

/// `ls`
pub(crate) fn list(files: &[Listing], json: bool) -> io::Result<()> {
    if json {
        let view = |file: &Listing| FileView {
            name: file.name.clone(),
            id: file.id.to_string(),
            size_bytes: file.size_bytes,
            modified_us: file.modified_us,
            shape: None,
        };
        return show::json("files", &files.iter().map(view).collect::<Vec<_>>());
    }
    let mut table = Table::new(&["SIZE", "AGE", "NAME"]);
    for file in files {
        table.row(vec![format_bytes(file.size_bytes), age(file.modified_us), file.name.to_string()]);
    }
    table.print()
}

/// `put`, `append`
pub(crate) fn files(files: &[File]) -> io::Result<()> {
    show::json("files", &files.iter().map(|file| view(file, None)).collect::<Vec<_>>())
}

/// `stat`
pub(crate) fn stat(file: &File, json: bool) -> io::Result<()> {
    let record = &file.record;
    if json {
        return show::json("file", &view(file, None));
    }
    let (size, chunks) = (format_bytes(record.size_bytes()), format_count(record.chunks.len() as u64, "chunk"));
    println!("{}: {size} in {chunks}", file.name);
    println!(
        "records: {}; chunks of {}; replicas: {}; written {} ago; id {}",
        record.format,
        format_bytes(record.chunk_bytes),
        record.replication,
        age(record.modified_us),
        record.id
    );
    Ok(())
}

/// `show`
pub(crate) fn chunks(file: &File, membership: &Membership, json: bool) -> io::Result<()> {
    if json {
        return show::json("file", &view(file, Some(membership)));
    }
    let mut table = Table::new(&["CHUNK", "OFFSET", "SIZE", "NODES"]);
    let mut offset = 0;
    for (place, chunk) in file.record.chunks.iter().enumerate() {
        let replicas = replicas(chunk, Some(membership)).into_iter();
        let nodes: Vec<_> =
            replicas.map(|replica| replica.address.unwrap_or(format!("{} (gone)", replica.node))).collect();
        table.row(vec![place.to_string(), offset.to_string(), format_bytes(chunk.size_bytes), nodes.join(" ")]);
        offset += chunk.size_bytes;
    }
    table.print()
}

/// `du`
pub(crate) fn usage(files: u64, bytes: u64, nodes: &[(Member, bool, Option<Usage>)], json: bool) -> io::Result<()> {
    let view = |(member, is_member, usage): &(Member, bool, Option<Usage>)| FilesNodeView {
        node: member.node.to_string(),
        address: member.address.to_string(),
        is_member: *is_member,
        chunks: usage.map(|usage| usage.chunks),
        bytes: usage.map(|usage| usage.bytes),
        free_bytes: usage.map_or(member.free_bytes, |usage| usage.free_bytes),
    };
    let nodes: Vec<_> = nodes.iter().map(view).collect();
    if json {
        return show::json("usage", &FilesUsageView { files, bytes, nodes });
    }
    println!("{} in {}", format_bytes(bytes), format_count(files, "file"));
    if nodes.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["NODE", "ADDRESS", "STATE", "CHUNKS", "SIZE", "FREE"]);
    for node in nodes {
        let shown = |number: Option<String>| number.unwrap_or_else(|| "?".into());
        let (chunks, bytes) =
            (shown(node.chunks.map(|chunks| chunks.to_string())), shown(node.bytes.map(format_bytes)));
        let state = if node.is_member { "member" } else { "joining" };
        table.row(vec![node.node, node.address, state.into(), chunks, bytes, format_bytes(node.free_bytes)]);
    }
    table.print()
}

/// `recover`
pub(crate) fn recovery(recovery: &Recovery) -> io::Result<()> {
    let texts = |nodes: &BTreeSet<NodeId>| nodes.iter().map(NodeId::to_string).collect();
    let view = match recovery {
        Recovery::Recovered(members) => RecoveryView { members: texts(members), missing: Vec::new() },
        Recovery::Missing(missing) => RecoveryView { members: Vec::new(), missing: texts(missing) },
    };
    show::json("recovery", &view)
}

/// `verify`
pub(crate) fn verified(files: u64, bad: &[(FileName, usize, NodeId)], json: bool) -> io::Result<()> {
    let view = |(name, place, node): &(FileName, usize, NodeId)| BadReplicaView {
        name: name.clone(),
        chunk: *place as u64,
        node: node.to_string(),
    };
    if json {
        let bad = bad.iter().map(view).collect();
        return show::json("verified", &VerifiedView { files, bad });
    }
    for (name, place, node) in bad {
        println!("{name}: chunk {place} is missing or damaged on node {node}; it will be replaced");
    }
    let (files, bad) = (format_count(files, "file"), format_count(bad.len() as u64, "replica"));
    eprintln!("eyas: {files} verified, {bad} missing or damaged");
    Ok(())
}

/// With its chunks, if it is said who there is.
fn view(file: &File, membership: Option<&Membership>) -> FileView {
    let record = &file.record;
    let mut offset = 0;
    let mut chunk = |chunk: &Chunk| {
        let begins = offset;
        offset += chunk.size_bytes;
        ChunkView {
            object: chunk.object,
            offset: begins,
            size_bytes: chunk.size_bytes,
            checksum: format!("{:016x}", chunk.checksum),
            replicas: replicas(chunk, membership),
        }
    };
    let shape = FileShape {
        format: record.format,
        chunk_bytes: record.chunk_bytes,
        replication: record.replication,
        chunks: record.chunks.iter().filter(|_| membership.is_some()).map(&mut chunk).collect(),
    };
    FileView {
        name: file.name.clone(),
        id: record.id.to_string(),
        size_bytes: record.size_bytes(),
        modified_us: record.modified_us,
        shape: Some(shape),
    }
}

fn replicas(chunk: &Chunk, membership: Option<&Membership>) -> Vec<ReplicaView> {
    let address = |node: NodeId| {
        let alive = membership.into_iter().flat_map(|membership| &membership.alive);
        alive.into_iter().find(|member| member.node == node).map(|member| member.address.to_string())
    };
    chunk.replicas.iter().map(|node| ReplicaView { node: node.to_string(), address: address(*node) }).collect()
}

fn age(modified_us: u64) -> String {
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    format_duration_us(now_us.saturating_sub(modified_us))
}
