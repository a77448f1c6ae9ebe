//! Shows files and nodes of the file system, as tables and as JSON.

use std::collections::BTreeSet;

use eyas_client::files::{
    BlockHolder, BlockPlace, DfsMembership, File, Listing, LostChunk, Member, NodeLoad, Recovery,
    Usage, VerifyReport,
};
use eyas_client::types::dfs::{Attributes, Chunk, FileKind, FileName, NodeId};
use eyas_client::types::shown::{MAX_QUOTED_CHARS, shortened, shown};
use eyas_client::types::units::{format_bytes, format_count, format_duration_us};
use eyas_client::view::files::{
    AttributeView, BadReplicaView, ChunkView, FileShape, FileView, FilesNodeView, FilesUsageView,
    LostChunkView, RecoveryView, ReplicaView, VerifiedView,
};

use crate::clock::unix_us;
use crate::error::CliError;
use crate::print::{out, say};
use crate::show::{self, Table};

/// `ls`
pub(crate) fn list(files: &[Listing], long: bool, json: bool) -> Result<(), CliError> {
    if json {
        return show::json(
            "files",
            &files.iter().map(|file| entry(file, None)).collect::<Vec<_>>(),
        );
    }
    let headings = ["MODE", "OWNER", "SIZE", "AGE", "NAME"];
    let mut table = Table::new(if long { &headings } else { &headings[2..] });
    for Listing { name, kind, size_bytes, attributes, .. } in files {
        let (size, shown) = match kind {
            FileKind::File => (format_bytes(*size_bytes), name.to_string()),
            FileKind::Folder => ("-".into(), format!("{name}/")),
            FileKind::SymbolicLink(target) => ("-".into(), format!("{name} -> {target}")),
        };
        let row =
            [mode(kind, attributes), owner(attributes), size, age(attributes.modified_us()), shown];
        table.row(row.into_iter().skip(if long { 0 } else { 2 }).collect());
    }
    table.print()
}

/// Kind and permissions as `ls -l` shows them.
fn mode(kind: &FileKind, attributes: &Attributes) -> String {
    let kind = match kind {
        FileKind::File => '-',
        FileKind::Folder => 'd',
        FileKind::SymbolicLink(_) => 'l',
    };
    let bits = attributes.mode;
    let permission =
        |(place, letter): (usize, char)| if bits >> (8 - place) & 1 == 1 { letter } else { '-' };
    let mut letters: Vec<char> = "rwxrwxrwx".chars().enumerate().map(permission).collect();
    for (bit, place, set) in [(11, 2, 's'), (10, 5, 's'), (9, 8, 't')] {
        if bits >> bit & 1 == 1 {
            letters[place] = if letters[place] == 'x' { set } else { set.to_ascii_uppercase() };
        }
    }
    std::iter::once(kind).chain(letters).collect()
}

fn owner(attributes: &Attributes) -> String {
    format!("{}:{}", attributes.uid, attributes.gid)
}

/// The view of an entry.
fn entry(listing: &Listing, shape: Option<FileShape>) -> FileView {
    let Listing { name, id, kind, size_bytes, attributes, .. } = listing;
    let (kind, target) = match kind {
        FileKind::File => ("file", None),
        FileKind::Folder => ("folder", None),
        FileKind::SymbolicLink(target) => ("link", Some(target.clone())),
    };
    FileView {
        name: name.clone(),
        kind: kind.into(),
        target,
        id: id.to_string(),
        size_bytes: *size_bytes,
        modified_us: attributes.modified_us(),
        mode: format!("{:04o}", attributes.mode),
        uid: attributes.uid,
        gid: attributes.gid,
        attributes: None,
        shape,
    }
}

/// `put`, `append`
pub(crate) fn files(files: &[File]) -> Result<(), CliError> {
    show::json("files", &files.iter().map(|file| view(file, None)).collect::<Vec<_>>())
}

/// `stat`
pub(crate) fn stat(file: &File, json: bool) -> Result<(), CliError> {
    let record = &file.record;
    if json {
        return show::json("file", &view(file, None));
    }
    let attributes = &record.attributes;
    let owner = format!("{} {}", mode(&record.kind, attributes), owner(attributes));
    let age = age(attributes.modified_us());
    match &record.kind {
        FileKind::File => {
            let size = format_bytes(record.size_bytes());
            let chunks = format_count(record.chunks.len() as u64, "chunk");
            out!("{}: {size} in {chunks}; {owner}", file.name)?;
            out!(
                "records: {}; chunks of {}; replicas: {}; written {} ago; id {}",
                *record.format,
                format_bytes(record.chunk_bytes),
                record.replication,
                age,
                record.id
            )?;
        }
        FileKind::Folder => out!("{}: folder; {owner}; changed {age} ago", file.name)?,
        FileKind::SymbolicLink(target) => {
            out!("{}: symbolic link to {target}; {owner}; made {age} ago", file.name)?;
        }
    }
    for (name, value) in record.named.iter() {
        let value = shown(value).to_string();
        out!("attribute {}: {}", shown(name), shortened(&value, MAX_QUOTED_CHARS))?;
    }
    Ok(())
}

/// `show`
pub(crate) fn chunks(file: &File, places: &[BlockPlace], json: bool) -> Result<(), CliError> {
    if json {
        return show::json("file", &view(file, Some(places)));
    }
    let mut table = Table::new(&["CHUNK", "OFFSET", "SIZE", "NODES"]);
    for (index, place) in places.iter().enumerate() {
        let mut nodes: Vec<_> = replicas(place)
            .into_iter()
            .map(|replica| replica.address.unwrap_or(format!("{} (missing)", replica.node)))
            .collect();
        if nodes.is_empty() {
            nodes.push("(zeros)".into());
        }
        let (offset, size) = (place.offset.to_string(), format_bytes(place.size_bytes));
        table.row(vec![index.to_string(), offset, size, nodes.join(" ")]);
    }
    table.print()
}

/// A connected node.
pub(crate) fn node(
    member: &Member,
    membership: &DfsMembership,
    usage: Option<Usage>,
    load: Option<NodeLoad>,
) -> FilesNodeView {
    FilesNodeView {
        node: member.node.to_string(),
        address: Some(member.address.to_string()),
        is_member: membership.has_joined(member.node),
        chunks: usage.map(|usage| usage.chunks),
        bytes: usage.map(|usage| usage.bytes),
        free_bytes: Some(usage.map_or(member.free_bytes, |usage| usage.free_bytes)),
        damaged: usage.map(|usage| usage.damaged),
        damaged_bytes: usage.map(|usage| usage.damaged_bytes),
        disk_load: load.map(|load| load.disk()),
        processor_load: load.map(|load| load.processors()),
    }
}

/// A member that is not connected.
pub(crate) fn missing(node: NodeId) -> FilesNodeView {
    let (address, chunks, bytes, free_bytes, damaged, damaged_bytes) = Default::default();
    let (disk_load, processor_load) = Default::default();
    FilesNodeView {
        node: node.to_string(),
        address,
        is_member: true,
        chunks,
        bytes,
        free_bytes,
        damaged,
        damaged_bytes,
        disk_load,
        processor_load,
    }
}

/// `du`
pub(crate) fn usage(usage: FilesUsageView, json: bool) -> Result<(), CliError> {
    if json {
        return show::json("usage", &usage);
    }
    out!("{} in {}", format_bytes(usage.bytes), format_count(usage.files, "file"))?;
    nodes(usage.nodes)?;
    if usage.is_settled == Some(false) {
        out!("new members are still receiving records of files: no node should be stopped now")?;
    }
    Ok(())
}

/// Prints the nodes, if there are any.
pub(crate) fn nodes(nodes: Vec<FilesNodeView>) -> Result<(), CliError> {
    if nodes.is_empty() {
        return Ok(());
    }
    let damaged: u64 = nodes.iter().filter_map(|node| node.damaged).sum();
    let damaged_bytes = nodes.iter().filter_map(|node| node.damaged_bytes).sum();
    let mut table =
        Table::new(&["NODE", "ADDRESS", "STATE", "CHUNKS", "SIZE", "FREE", "DISK", "CPU"]);
    for node in nodes {
        let shown = |text: Option<String>| text.unwrap_or_else(|| "?".into());
        let state = match (&node.address, node.is_member) {
            (None, _) => "missing",
            (Some(_), true) => "member",
            (Some(_), false) => "joining",
        };
        let chunks = node.chunks.map(|chunks| chunks.to_string());
        let sizes = [node.bytes, node.free_bytes].map(|bytes| shown(bytes.map(format_bytes)));
        let row = [node.node, shown(node.address), state.into(), shown(chunks)];
        let percent = |load: Option<f64>| shown(load.map(|load| format!("{:.0}%", load * 100.0)));
        let loads = [node.disk_load, node.processor_load].map(percent);
        table.row(row.into_iter().chain(sizes).chain(loads).collect());
    }
    table.print()?;
    if damaged > 0 {
        out!("damaged copies of chunks, kept aside: {damaged} ({})", format_bytes(damaged_bytes))?;
    }
    Ok(())
}

/// `recover`
pub(crate) fn recovery(recovery: &Recovery) -> Result<(), CliError> {
    let texts = |nodes: &BTreeSet<NodeId>| nodes.iter().map(NodeId::to_string).collect();
    let view = match recovery {
        Recovery::Recovered(members) => {
            RecoveryView { members: texts(members), missing: Vec::new() }
        }
        Recovery::Missing(missing) => RecoveryView { members: Vec::new(), missing: texts(missing) },
    };
    show::json("recovery", &view)
}

/// `verify`: the results of all files
pub(crate) fn verified(all: &[(FileName, VerifyReport)], json: bool) -> Result<(), CliError> {
    let texts = |nodes: &[NodeId]| nodes.iter().map(NodeId::to_string).collect::<Vec<_>>();
    let replica = |name: &FileName, (place, node): &(usize, NodeId)| BadReplicaView {
        name: name.clone(),
        chunk: *place as u64,
        node: node.to_string(),
    };
    let lost_chunk = |name: &FileName, lost: &LostChunk| LostChunkView {
        name: name.clone(),
        chunk: lost.index as u64,
        offset: lost.range.start,
        size_bytes: lost.range.end - lost.range.start,
        damaged_on: texts(&lost.damaged_on),
        silent: texts(&lost.silent),
    };
    let mut view = VerifiedView {
        files: all.len() as u64,
        bad: Vec::new(),
        silent: Vec::new(),
        lost: Vec::new(),
    };
    for (name, verified) in all {
        view.bad.extend(verified.bad.iter().map(|pair| replica(name, pair)));
        view.silent.extend(verified.silent.iter().map(|pair| replica(name, pair)));
        view.lost.extend(verified.lost.iter().map(|lost| lost_chunk(name, lost)));
    }
    if json {
        return show::json("verified", &view);
    }
    let VerifiedView { files, bad, silent, lost } = view;
    for BadReplicaView { name, chunk, node } in &bad {
        out!("{name}: chunk {chunk} is missing or damaged on node {node}; it will be replaced")?;
    }
    for BadReplicaView { name, chunk, node } in &silent {
        out!("{name}: chunk {chunk} could not be checked on node {node}, which does not answer")?;
    }
    lost.iter().try_for_each(|lost| out!("{}", sentence(lost)))?;
    let (files, bad) = (format_count(files, "file"), format_count(bad.len() as u64, "replica"));
    say!(
        "{files} verified, {bad} missing or damaged, {} lost",
        format_count(lost.len() as u64, "chunk")
    );
    let names: BTreeSet<_> = lost.iter().map(|lost| &lost.name).collect();
    for name in names {
        say!(
            "`eyas dfs restore COPY {name}` restores the lost chunks from a local copy of the file"
        );
    }
    Ok(())
}

/// The message about a lost chunk.
fn sentence(lost: &LostChunkView) -> String {
    let LostChunkView { name, chunk, offset, size_bytes, damaged_on, silent } = lost;
    let last = (offset + size_bytes).saturating_sub(1);
    let what = format!("{name}: chunk {chunk} (bytes {offset} to {last})");
    let kept = match damaged_on.is_empty() {
        true => String::new(),
        false => format!("; damaged copies are kept on {}", damaged_on.join(", ")),
    };
    match silent.is_empty() {
        true => format!("{what} is lost: no node has a good copy{kept}"),
        false => {
            let nodes = silent.join(", ");
            format!(
                "{what} cannot be read: no node that answers has a good copy; {nodes} may have \
                 one{kept}"
            )
        }
    }
}

/// The view of a file; with the places of its chunks, also these.
fn view(file: &File, places: Option<&[BlockPlace]>) -> FileView {
    let record = &file.record;
    let chunk = |(chunk, place): (&Chunk, &BlockPlace)| ChunkView {
        object: chunk.object,
        offset: place.offset,
        size_bytes: chunk.size_bytes,
        checksum: format!("{:016x}", chunk.checksum),
        replicas: replicas(place),
    };
    let shape = FileShape {
        format: *record.format,
        chunk_bytes: record.chunk_bytes,
        replication: record.replication,
        chunks: record.chunks.iter().zip(places.unwrap_or_default()).map(chunk).collect(),
    };
    let attribute =
        |(name, value): (&str, &[u8])| AttributeView { name: name.to_owned(), value: value.into() };
    let listing = Listing::of(file.name.clone(), record);
    let shape = record.kind.eq(&FileKind::File).then_some(shape);
    FileView {
        attributes: Some(record.named.iter().map(attribute).collect()),
        ..entry(&listing, shape)
    }
}

fn replicas(place: &BlockPlace) -> Vec<ReplicaView> {
    let view = |holder: &BlockHolder| ReplicaView {
        node: holder.node.to_string(),
        address: holder.address.map(|address| address.to_string()),
    };
    place.holders.iter().map(view).collect()
}

fn age(modified_us: u64) -> String {
    format_duration_us(unix_us().saturating_sub(modified_us))
}
