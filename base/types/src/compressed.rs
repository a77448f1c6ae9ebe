//! Names of compressed files.

use alloc::vec::Vec;

/// The ends of the names of compressed files, and what replaces them.
const ENDS: [(&str, &str); 9] = [
    (".tgz", ".tar"),
    (".tbz2", ".tar"),
    (".txz", ".tar"),
    (".tzst", ".tar"),
    (".gz", ""),
    (".bgz", ""),
    (".bz2", ""),
    (".xz", ""),
    (".zst", ""),
];

/// The name of a compressed file's content, such as `a.fits` for `a.fits.gz` and `b.tar` for
/// `b.tgz`. `None` if the name does not say that the file is compressed.
pub fn decompressed_name(name: &[u8]) -> Option<Vec<u8>> {
    ENDS.iter().find_map(|(end, instead)| {
        let begin = name.len().checked_sub(end.len())?;
        let is_name = name[..begin].last().is_some_and(|last| *last != b'/');
        (is_name && name[begin..].eq_ignore_ascii_case(end.as_bytes()))
            .then(|| [&name[..begin], instead.as_bytes()].concat())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_is_compressed() {
        for (name, expected) in [
            ("a.fits.gz", Some("a.fits")),
            ("d/a.FITS.GZ", Some("d/a.FITS")),
            ("b.tgz", Some("b.tar")),
            ("b.tar.zst", Some("b.tar")),
            (".gz", None),
            ("d/.gz", None),
            ("gz", None),
            ("a.gz.txt", None),
        ] {
            let found = decompressed_name(name.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{name}");
        }
    }
}
