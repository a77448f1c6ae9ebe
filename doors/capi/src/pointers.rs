//! Conversions of what callers point to. Every function here trusts its caller as the documentation
//! of the C library says: a text ends with NUL, an array has its length, a place for a result can
//! be written to.

use std::ffi::{CStr, CString, c_char, c_void};

use crate::status::CallError;

/// Text that ends with NUL.
///
/// # Safety
/// `text` is NULL, or points to bytes that end with NUL and do not change during the call of the
/// library.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, CallError> {
    // SAFETY: the caller passes NULL, or text that ends with NUL.
    unsafe { optional_text(text, what) }?
        .ok_or_else(|| CallError::invalid(format!("{what} is NULL")))
}

/// The same; NULL means that there is no text.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn optional_text<'a>(
    text: *const c_char,
    what: &str,
) -> Result<Option<&'a str>, CallError> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so it points to text that ends with NUL.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map(Some)
        .map_err(|_| CallError::invalid(format!("{what} is not UTF-8: {text:?}")))
}

/// Bytes with a length. NULL is possible if there are none.
///
/// # Safety
/// `bytes` points to `length` bytes that do not change during the call of the library.
pub(crate) unsafe fn bytes<'a>(
    bytes: *const c_void,
    length: usize,
    what: &str,
) -> Result<&'a [u8], CallError> {
    match (bytes.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(CallError::invalid(format!("{what} is NULL"))),
        // SAFETY: not null, so it points to `length` bytes.
        (false, _) if length <= isize::MAX as usize => {
            Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), length) })
        }
        (false, _) => Err(CallError::invalid(format!("{what} has {length} bytes"))),
    }
}

/// A place for bytes. NULL is possible if there is no room for any.
///
/// # Safety
/// `length` bytes at `buffer` can be written to, and nothing else uses them during the call of the
/// library.
pub(crate) unsafe fn buffer<'a>(
    buffer: *mut c_void,
    length: usize,
) -> Result<&'a mut [u8], CallError> {
    match (buffer.is_null(), length) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(no_place()),
        // SAFETY: not null, so `length` bytes at it can be written to.
        (false, _) if length <= isize::MAX as usize => {
            Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length) })
        }
        (false, _) => Err(CallError::invalid(format!("the buffer has {length} bytes"))),
    }
}

/// An array of texts.
///
/// # Safety
/// `texts` points to `count` pointers, each as for [`text`].
pub(crate) unsafe fn texts<'a>(
    texts: *const *const c_char,
    count: usize,
    what: &str,
) -> Result<Vec<&'a str>, CallError> {
    if texts.is_null() && count > 0 {
        return Err(CallError::invalid(format!("{what} is NULL")));
    }
    // SAFETY: the caller passes NULL, or text that ends with NUL.
    (0..count).map(|index| unsafe { text(*texts.add(index), what) }).collect()
}

/// Writes a result.
///
/// # Safety
/// `place` is NULL, or can be written to.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Result<(), CallError> {
    if place.is_null() {
        return Err(no_place());
    }
    // SAFETY: not null, so it can be written to.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes the first `size` bytes of a struct, whose later fields a caller may not know. A caller
/// that knows more gets zeros for what this version does not have.
///
/// # Safety
/// `place` is NULL, or `size` bytes at it can be written to. `T` has no padding at its end that
/// matters to callers.
pub(crate) unsafe fn put_struct<T: Copy>(
    place: *mut T,
    size: usize,
    first_size: usize,
    value: T,
) -> Result<(), CallError> {
    check_struct(place, size, first_size)?;
    let known = size.min(size_of::<T>());
    // SAFETY: `known` is at most the size of both; the rest lies within the caller's `size` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), place.cast::<u8>(), known);
        place.cast::<u8>().add(known).write_bytes(0, size - known);
    }
    Ok(())
}

/// Reads a struct, whose later fields a caller may not know; they are zero then.
///
/// # Safety
/// `place` is NULL, or points to `size` bytes of a struct of this kind. Zeros are a valid `T`.
pub(crate) unsafe fn get_struct<T: Copy>(
    place: *const T,
    size: usize,
    first_size: usize,
) -> Result<Option<T>, CallError> {
    if place.is_null() {
        return Ok(None);
    }
    if size < first_size {
        return Err(CallError::invalid(format!(
            "the size of the options is {size}, and must be at least {first_size}"
        )));
    }
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: at most the size of both is copied, and the caller chooses a `T` of which zeros are
    // valid.
    unsafe {
        value
            .as_mut_ptr()
            .cast::<u8>()
            .copy_from_nonoverlapping(place.cast::<u8>(), size.min(size_of::<T>()));
        Ok(Some(value.assume_init()))
    }
}

/// Checks a place for a result before the work is done, so that a handle is not lost.
pub(crate) fn check<T>(place: *mut T) -> Result<(), CallError> {
    if place.is_null() { Err(no_place()) } else { Ok(()) }
}

/// Checks a place for a struct before the work is done, so that no result is lost.
pub(crate) fn check_struct<T>(
    place: *mut T,
    size: usize,
    first_size: usize,
) -> Result<(), CallError> {
    check(place)?;
    let small = || {
        CallError::invalid(format!(
            "the size of the result is {size}, and must be at least {first_size}"
        ))
    };
    if size < first_size { Err(small()) } else { Ok(()) }
}

fn no_place() -> CallError {
    CallError::invalid("the pointer to the place of the result is NULL")
}

/// A text for the caller, without the NULs that it may have.
pub(crate) fn c_text(text: impl Into<Vec<u8>>) -> CString {
    let text: Vec<u8> = text.into().into_iter().filter(|byte| *byte != 0).collect();
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::EyasStatus;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Grown {
        old: u64,
        new: u64,
    }

    #[test]
    fn callers_get_the_fields_that_they_know() {
        let value = Grown { old: 1, new: 2 };
        let mut place = [7u64; 4];
        let (at, size) = (place.as_mut_ptr().cast::<Grown>(), size_of::<Grown>());
        // SAFETY: the place has 32 bytes.
        unsafe {
            put_struct(at, 8, 8, value).unwrap();
            assert_eq!(*at, Grown { old: 1, new: 7 });
            put_struct(at, 24, 8, value).unwrap();
            assert_eq!(put_struct(at, 7, 8, value).unwrap_err().status, EyasStatus::Invalid);
            assert_eq!(get_struct(at, 8, 8).unwrap(), Some(Grown { old: 1, new: 0 }));
            assert_eq!(get_struct(at, size + 8, 8).unwrap(), Some(value));
            assert_eq!(get_struct(std::ptr::null::<Grown>(), 0, 8).unwrap(), None);
        }
        assert_eq!(place, [1, 2, 0, 7]);
    }

    #[test]
    fn the_first_versions_of_structs_are_as_they_were() {
        assert_eq!(
            size_of::<crate::attributes::EyasQuota>(),
            crate::attributes::EyasQuota::FIRST_SIZE
        );
        assert_eq!(size_of::<crate::block::EyasPiece>(), 32);
        assert_eq!(size_of::<crate::block::EyasRunInfo>(), 16);
        assert_eq!(crate::files::EyasFileInfo::FIRST_SIZE, 40);
        assert_eq!(size_of::<crate::job::EyasJobInfo>(), 56);
        assert_eq!(size_of::<crate::places::EyasBlockPlace>(), 48);
        assert_eq!(size_of::<crate::results::EyasTaskResult>(), 88);
        assert_eq!(size_of::<crate::writer::EyasWriteOptions>(), 24);
        assert_eq!(size_of::<crate::block::EyasRunOptions>(), 32);
    }
}
