//! Reading files of the cluster.

use std::ffi::{c_char, c_void};

use eyas_client::files::FileReader;

use crate::client::{ClientOwner, EyasClient};
use crate::files::{EyasFileInfo, file_name};
use crate::handles::{self, Handle};
use crate::pointers;
use crate::status::{EyasStatus, call};

/// A file of the cluster that is open for reading, at the version that it had when it was opened.
/// Threads may use one reader at the same time.
pub struct EyasReader {
    _private: [u8; 0],
}

impl Handle for EyasReader {
    type State = OpenReader;
    const NAME: &'static str = "eyas_reader";
}

/// An open file, and the client that has opened it.
pub struct OpenReader {
    client: ClientOwner,
    open: FileReader,
}

/// Opens a file for reading. On success, `*reader` is a handle to be closed with
/// `eyas_reader_close()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_open(
    client: *mut EyasClient,
    path: *const c_char,
    reader: *mut *mut EyasReader,
) -> EyasStatus {
    call(|| {
        pointers::check(reader)?;
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let name = unsafe { file_name(path) }?;
        let open = client.on_files(&format!("opening {name}"), async |files| {
            FileReader::open(files, &name).await
        })?;
        let opened = handles::open::<EyasReader>(OpenReader { client, open });
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(reader, opened) }
    })
}

/// Writes the size and the attributes of the open file to `*info`, as `eyas_stat()` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_reader_info(
    reader: *mut EyasReader,
    info: *mut EyasFileInfo,
    size: usize,
) -> EyasStatus {
    call(|| {
        let found = EyasFileInfo::of_file(handles::get(reader)?.open.file());
        // SAFETY: the caller passes NULL, or a place for as many bytes as it says.
        unsafe { pointers::put_struct(info, size, EyasFileInfo::FIRST_SIZE, found) }
    })
}

/// Reads up to `length` bytes from `offset` into `buffer`, and writes their number to `*count`. It
/// is less than `length` only at the end of the file, and 0 beyond it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_read(
    reader: *mut EyasReader,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
    count: *mut usize,
) -> EyasStatus {
    call(|| {
        pointers::check(count)?;
        // SAFETY: the caller passes room for as many bytes as it says.
        let buffer = unsafe { pointers::buffer(buffer, length) }?;
        let reader = handles::get(reader)?;
        // The thread waits for the result anyway, so it may as well wait for a disk.
        let read = match reader.open.read_local(offset, buffer) {
            Some(read) => read,
            None => {
                let what = format!("reading {}", reader.open.file().name);
                reader.client.wait(&what, reader.open.read_on_this_thread(offset, buffer))?
            }
        };
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(count, read) }
    })
}

/// Closes a file that was open for reading.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_reader_close(reader: *mut EyasReader) -> EyasStatus {
    call(|| handles::close(reader).map(drop))
}
