//! Named attributes of the cluster's files: what programs note beside the content.

use std::ffi::{CString, c_char, c_void};
use std::sync::{Mutex, PoisonError};

use eyas_client::types::dfs::SetCondition;

use crate::client::EyasClient;
use crate::files::file_name;
use crate::handles::{self, Handle};
use crate::pointers;
use crate::status::{CallError, EyasStatus, call};

/// An attribute that must not be there yet, in `eyas_set_attribute()`.
pub const EYAS_ATTRIBUTE_NEW: u32 = 1;

/// An attribute that must be there already, in `eyas_set_attribute()`.
pub const EYAS_ATTRIBUTE_PRESENT: u32 = 2;

/// The named attributes of a file, folder or link. One thread at a time may use it, because the
/// names and values belong to it.
pub struct EyasAttributes {
    _private: [u8; 0],
}

impl Handle for EyasAttributes {
    type State = Mutex<OpenAttributes>;
    const NAME: &'static str = "eyas_attributes";
}

/// The rest of the attributes.
pub struct OpenAttributes {
    rest: std::vec::IntoIter<(String, Vec<u8>)>,
    /// The name and the value that the caller has pointers to.
    last: (CString, Vec<u8>),
}

/// Sets a named attribute of a file, folder or link to `length` bytes. Renames, changes of the
/// content and copies keep it; a file that `eyas_create()` replaces loses it. A mount shows it as
/// an extended attribute `user.NAME`. `condition` is 0, `EYAS_ATTRIBUTE_NEW` (the status may be
/// `EYAS_STATUS_EXISTS`) or `EYAS_ATTRIBUTE_PRESENT` (it may be `EYAS_STATUS_NO_ATTRIBUTE`). A name
/// has up to 250 bytes, and all names and values of a file together up to 64 KiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_set_attribute(
    client: *mut EyasClient,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    length: usize,
    condition: u32,
) -> EyasStatus {
    call(|| {
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let (file, name) = unsafe { (file_name(path)?, attribute_name(name)?) };
        // SAFETY: the caller passes a pointer to `length` bytes.
        let value = unsafe { pointers::bytes(value, length, "the value of the attribute") }?;
        let condition = match condition {
            0 => SetCondition::None,
            EYAS_ATTRIBUTE_NEW => SetCondition::New,
            EYAS_ATTRIBUTE_PRESENT => SetCondition::Present,
            other => {
                let why = "pass 0, EYAS_ATTRIBUTE_NEW or EYAS_ATTRIBUTE_PRESENT";
                return Err(CallError::invalid(format!("{other} is not a condition: {why}")));
            }
        };
        client
            .on_files(&format!("setting an attribute of {file}"), async |files| {
                files.set_named_attribute(&file, name, value.to_vec(), condition).await
            })
            .map(drop)
    })
}

/// Reads a named attribute of a file, folder or link: writes its value to `buffer`, which has room
/// for `size` bytes, and the number of its bytes to `*length`. With a `size` of 0, only the number.
/// The status is `EYAS_STATUS_NO_ATTRIBUTE` if there is no such attribute, and
/// `EYAS_STATUS_INVALID` if its value is longer than the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_get_attribute(
    client: *mut EyasClient,
    path: *const c_char,
    name: *const c_char,
    buffer: *mut c_void,
    size: usize,
    length: *mut usize,
) -> EyasStatus {
    call(|| {
        pointers::check(length)?;
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let (file, name) = unsafe { (file_name(path)?, attribute_name(name)?) };
        // SAFETY: the caller passes a place for `size` bytes.
        let buffer = unsafe { pointers::buffer(buffer, size) }?;
        let value = client.on_files(&format!("reading an attribute of {file}"), async |files| {
            files.named_attribute(&file, name).await
        })?;
        match buffer.get_mut(..value.len()) {
            Some(place) => place.copy_from_slice(&value),
            None if size == 0 => {}
            None => {
                return Err(CallError::invalid(format!(
                    "the attribute has {} bytes, and the buffer {size}",
                    value.len()
                )));
            }
        }
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(length, value.len()) }
    })
}

/// Removes a named attribute of a file, folder or link. The status is `EYAS_STATUS_NO_ATTRIBUTE` if
/// there is no such attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_remove_attribute(
    client: *mut EyasClient,
    path: *const c_char,
    name: *const c_char,
) -> EyasStatus {
    call(|| {
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let (file, name) = unsafe { (file_name(path)?, attribute_name(name)?) };
        client
            .on_files(&format!("removing an attribute of {file}"), async |files| {
                files.remove_named_attribute(&file, name).await
            })
            .map(drop)
    })
}

/// Looks up the named attributes of a file, folder or link. On success, `*attributes` is a handle
/// to be closed with `eyas_attributes_close()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_attributes_open(
    client: *mut EyasClient,
    path: *const c_char,
    attributes: *mut *mut EyasAttributes,
) -> EyasStatus {
    call(|| {
        pointers::check(attributes)?;
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let file = unsafe { file_name(path) }?;
        let named = client.on_files(&format!("looking up {file}"), async |files| {
            files.named_attributes(&file).await
        })?;
        let rest: Vec<_> =
            named.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
        let opened = handles::open::<EyasAttributes>(Mutex::new(OpenAttributes {
            rest: rest.into_iter(),
            last: Default::default(),
        }));
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(attributes, opened) }
    })
}

/// Writes the name of the next attribute to `*name`, its value to `*value`, and the number of bytes
/// of the value to `*length`. The attributes come in the order of their names. Name and value
/// belong to the attributes, and are valid until the next call with them. The status is
/// `EYAS_STATUS_END` if there is no other attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_attributes_next(
    attributes: *mut EyasAttributes,
    name: *mut *const c_char,
    value: *mut *const c_void,
    length: *mut usize,
) -> EyasStatus {
    call(|| {
        pointers::check(name)?;
        pointers::check(value)?;
        pointers::check(length)?;
        let attributes = handles::get(attributes)?;
        let mut attributes = attributes.lock().unwrap_or_else(PoisonError::into_inner);
        let next = attributes.rest.next().ok_or_else(CallError::end)?;
        attributes.last = (pointers::c_text(next.0), next.1);
        let (text, content) = &attributes.last;
        // SAFETY: the caller passes NULL, or places that can be written to.
        unsafe {
            pointers::put(name, text.as_ptr())?;
            pointers::put(value, content.as_ptr().cast())?;
            pointers::put(length, content.len())
        }
    })
}

/// Closes attributes.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_attributes_close(attributes: *mut EyasAttributes) -> EyasStatus {
    call(|| handles::close(attributes).map(drop))
}

/// The name of an attribute.
///
/// # Safety
/// As [`pointers::text`].
unsafe fn attribute_name<'a>(name: *const c_char) -> Result<&'a str, CallError> {
    // SAFETY: the caller passes NULL, or text that ends with NUL.
    unsafe { pointers::text(name, "the name of the attribute") }
}
