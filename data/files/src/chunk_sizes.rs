//! Sizes of chunks.

use eyas_blocks::format::WHOLE_CHUNK_BYTES;
use eyas_types::dfs::Format;

/// A chunk of up to this size is sent within a request, together with other chunks. A larger one
/// has a transfer of its own, and goes from node to node in a chain.
pub const SMALL_CHUNK_BYTES: usize = 64 << 10;

/// Maximum size of a record, and so of a chunk, since writers and readers hold a chunk in memory.
pub const MAX_CHUNK_BYTES: usize = 1 << 30;

/// Maximum size of a chunk of a format. Longer blocks of compressed files are not worth the memory:
/// such a file is one record, which is stored in smaller chunks.
pub(crate) fn max_chunk_bytes(format: Format) -> usize {
    if format.is_compressed() { WHOLE_CHUNK_BYTES as usize } else { MAX_CHUNK_BYTES }
}
