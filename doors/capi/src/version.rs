//! The version of the library. The `eyas_version()` of a running program may be newer than the
//! header it was compiled with: functions are added, and those that exist keep their meaning.

use std::ffi::{CString, c_char};
use std::sync::LazyLock;

/// First number of the version of this header.
pub const EYAS_VERSION_MAJOR: u32 = 0;
/// Second number of the version of this header. While the first is 0, another second number is
/// another interface.
pub const EYAS_VERSION_MINOR: u32 = 1;
/// Third number of the version of this header.
pub const EYAS_VERSION_PATCH: u32 = 0;

/// The version of the library that the program runs with: `major << 16 | minor << 8 | patch`.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_version() -> u32 {
    EYAS_VERSION_MAJOR << 16 | EYAS_VERSION_MINOR << 8 | EYAS_VERSION_PATCH
}

/// The same as text, such as `0.1.0`. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_version_text() -> *const c_char {
    static TEXT: LazyLock<CString> =
        LazyLock::new(|| CString::new(env!("CARGO_PKG_VERSION")).unwrap_or_default());
    TEXT.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_version_of_the_package() {
        let header = format!("{EYAS_VERSION_MAJOR}.{EYAS_VERSION_MINOR}.{EYAS_VERSION_PATCH}");
        assert_eq!(header, env!("CARGO_PKG_VERSION"));
    }
}
