//! Memory of Python objects, read and written without a copy while other threads of Python run.

use std::ptr::null;
use std::slice;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A new `bytes` object of this length, which `fill` fills.
///
/// # Errors
/// Those of `fill`; if there is not enough memory.
pub(crate) fn filled(
    py: Python<'_>,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> PyResult<usize>,
) -> PyResult<Bound<'_, PyBytes>> {
    let size =
        ffi::Py_ssize_t::try_from(length).map_err(|_| PyMemoryError::new_err("too many bytes"))?;
    // SAFETY: without content, the function returns a new object, or NULL and an exception.
    let object =
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(null(), size)) }?;
    // SAFETY: the object has `length` bytes, and no other reference to it exists. The bytes are
    // only written to: the object is dropped unless all of them were.
    let content = unsafe {
        slice::from_raw_parts_mut(ffi::PyBytes_AsString(object.as_ptr()).cast::<u8>(), length)
    };
    if fill(content)? != length {
        return Err(PyBufferError::new_err("a file has fewer bytes than its size"));
    }
    Ok(object.cast_into()?)
}

/// The bytes of a buffer.
///
/// # Errors
/// If they are not in one piece.
pub(crate) fn bytes(buffer: &PyBuffer<u8>) -> PyResult<&[u8]> {
    let bytes = buffer
        .as_slice_ptr()
        .ok_or_else(|| PyBufferError::new_err("the buffer is not contiguous"))?;
    // SAFETY: the memory is there as long as the buffer. A program that writes to it in another
    // thread meanwhile gets some of both contents, as from every writer of Python.
    Ok(unsafe { bytes.as_ref() })
}

/// The bytes of a buffer, to be written to.
///
/// # Errors
/// If they are not in one piece, or cannot be written to.
pub(crate) fn bytes_mut(buffer: &mut PyBuffer<u8>) -> PyResult<&mut [u8]> {
    let bytes = buffer.as_slice_ptr().filter(|_| !buffer.readonly());
    let mut bytes =
        bytes.ok_or_else(|| PyBufferError::new_err("the buffer is not contiguous and writable"))?;
    // SAFETY: as in `bytes`; the bytes are only written to.
    Ok(unsafe { bytes.as_mut() })
}
