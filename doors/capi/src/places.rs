//! Where the blocks of the cluster's files are.

use std::ffi::{CString, c_char};
use std::ptr::null;
use std::sync::{Mutex, PoisonError};

use eyas_client::files::{BlockHolder, BlockPlace, DfsClient, FilesError};

use crate::client::EyasClient;
use crate::files::file_name;
use crate::handles::{self, Handle};
use crate::pointers;
use crate::status::{CallError, EyasStatus, call};

/// The places of the chunks of a file. One thread at a time may use it, because the texts belong to
/// it.
pub struct EyasPlaces {
    _private: [u8; 0],
}

impl Handle for EyasPlaces {
    type State = Mutex<OpenPlaces>;
    const NAME: &'static str = "eyas_places";
}

/// The rest of the places.
pub struct OpenPlaces {
    rest: std::vec::IntoIter<PlacedReplica>,
    /// The texts that the caller has pointers to.
    last: [Option<CString>; 2],
}

/// A replica of a chunk, or zeros without one.
struct PlacedReplica {
    offset: u64,
    size_bytes: u64,
    block: u64,
    holder: Option<BlockHolder>,
}

/// A replica of a chunk of a file. A chunk with several replicas comes several times; zeros that no
/// node stores come once, without a node.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EyasBlockPlace {
    /// Where the chunk begins in the file.
    pub offset: u64,
    /// Size of the chunk, bytes.
    pub size_bytes: u64,
    /// The number of the chunk's block. A program that processes records reads whole blocks: each
    /// is one chunk, except in a file that is one record, whose chunks are all of one block.
    pub block: u64,
    /// The node that has the chunk; NULL for zeros that no node stores.
    pub node: *const c_char,
    /// The address of the node's host; NULL while the node is not connected.
    pub host: *const c_char,
    /// 1 if the node is that of this machine, as its executor has told this process.
    pub is_near: u32,
}

impl EyasBlockPlace {
    /// Bytes of the first version of this struct.
    const FIRST_SIZE: usize = 48;
}

/// Looks up where the chunks of a file are, to run programs where their data is. On success,
/// `*places` is a handle to be closed with `eyas_places_close()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_places_open(
    client: *mut EyasClient,
    path: *const c_char,
    places: *mut *mut EyasPlaces,
) -> EyasStatus {
    call(|| {
        pointers::check(places)?;
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let name = unsafe { file_name(path) }?;
        let looked_up = async |files: DfsClient| {
            let file = files.stat(&name).await?;
            Ok::<_, FilesError>(files.places(&file).await)
        };
        let found = client.on_files(&format!("looking up {name}"), looked_up)?;
        let rest: Vec<_> = found.into_iter().flat_map(replicas).collect();
        let opened = handles::open::<EyasPlaces>(Mutex::new(OpenPlaces {
            rest: rest.into_iter(),
            last: [None, None],
        }));
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(places, opened) }
    })
}

/// The replicas of a chunk; without any, the chunk itself.
fn replicas(place: BlockPlace) -> Vec<PlacedReplica> {
    let BlockPlace { offset, size_bytes, block, holders } = place;
    let replica = |holder| PlacedReplica { offset, size_bytes, block: block as u64, holder };
    match holders.is_empty() {
        true => vec![replica(None)],
        false => holders.into_iter().map(Some).map(replica).collect(),
    }
}

/// Writes the next replica to `*place`, which has `size` bytes: pass `sizeof *place`. The replicas
/// come in the order of the file. The texts belong to the places, and are valid until the next call
/// with them. The status is `EYAS_STATUS_END` if there is no other replica.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_places_next(
    places: *mut EyasPlaces,
    place: *mut EyasBlockPlace,
    size: usize,
) -> EyasStatus {
    call(|| {
        pointers::check_struct(place, size, EyasBlockPlace::FIRST_SIZE)?;
        let places = handles::get(places)?;
        let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
        let PlacedReplica { offset, size_bytes, block, holder } =
            places.rest.next().ok_or_else(CallError::end)?;
        let node = holder.as_ref().map(|holder| pointers::c_text(holder.node.to_string()));
        let host = holder
            .as_ref()
            .and_then(BlockHolder::host)
            .map(|host| pointers::c_text(host.to_string()));
        places.last = [node, host];
        let [node, host] =
            places.last.each_ref().map(|text| text.as_ref().map_or(null(), |text| text.as_ptr()));
        let is_near = holder.is_some_and(|holder| holder.is_near).into();
        let found = EyasBlockPlace { offset, size_bytes, block, node, host, is_near };
        // SAFETY: the caller passes NULL, or a place for as many bytes as it says.
        unsafe { pointers::put_struct(place, size, EyasBlockPlace::FIRST_SIZE, found) }
    })
}

/// Closes places.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_places_close(places: *mut EyasPlaces) -> EyasStatus {
    call(|| handles::close(places).map(drop))
}
