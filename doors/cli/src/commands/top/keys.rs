//! Keys, from the bytes that a terminal sends for them (ECMA-48 §5.4, and what xterm adds).

/// A key that the view knows, or another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Character(char),
    /// Control and C.
    Interrupt,
    Escape,
    Enter,
    Tab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Other,
}

const ESCAPE: u8 = 0x1b;

/// Longest sequence that is waited for. Longer ones are of no key.
const MAX_SEQUENCE_BYTES: usize = 32;

/// Cuts bytes into keys, also where a key's bytes come in several reads.
#[derive(Default)]
pub(crate) struct KeyReader {
    /// The begin of a key.
    pending: Vec<u8>,
}

impl KeyReader {
    /// The keys that are complete with these bytes.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut used = 0;
        while let Some((key, length)) = first(&self.pending[used..]) {
            keys.push(key);
            used += length;
        }
        self.pending.drain(..used);
        if self.pending.len() > MAX_SEQUENCE_BYTES {
            self.pending.clear();
        }
        keys
    }
}

/// The first key and its length; none if it is not complete.
fn first(bytes: &[u8]) -> Option<(Key, usize)> {
    let key = match *bytes.first()? {
        // Nothing follows the escape key itself, and what a sequence begins with comes in one read.
        ESCAPE if bytes.len() == 1 => Key::Escape,
        ESCAPE => return sequence(&bytes[1..]).map(|(key, length)| (key, length + 1)),
        3 => Key::Interrupt,
        b'\r' | b'\n' => Key::Enter,
        b'\t' => Key::Tab,
        0..0x20 | 0x7f => Key::Other,
        _ => return character(bytes),
    };
    Some((key, 1))
}

/// The key of a sequence after its escape.
fn sequence(bytes: &[u8]) -> Option<(Key, usize)> {
    let introduced = match bytes[0] {
        b'[' => 1,
        b'O' => return Some((final_byte(*bytes.get(1)?, &[]), 2)),
        ESCAPE => return Some((Key::Escape, 0)),
        // Alt and a key.
        _ => return first(bytes),
    };
    let parameters =
        bytes[introduced..].iter().take_while(|byte| (0x20..0x40).contains(*byte)).count();
    let end = introduced + parameters;
    Some((final_byte(*bytes.get(end)?, &bytes[introduced..end]), end + 1))
}

/// The key of the last byte of a sequence and its parameters. Modifiers do not matter.
fn final_byte(byte: u8, parameters: &[u8]) -> Key {
    let number = parameters.split(|byte| *byte == b';').next().unwrap_or_default();
    match (byte, number) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        (b'Z', _) => Key::Tab,
        (b'M', _) if parameters.is_empty() => Key::Enter,
        _ => Key::Other,
    }
}

/// A character in UTF-8; none if bytes of it are missing.
fn character(bytes: &[u8]) -> Option<(Key, usize)> {
    let chunk = bytes.utf8_chunks().next()?;
    if let Some(character) = chunk.valid().chars().next() {
        return Some((Key::Character(character), character.len_utf8()));
    }
    let wrong = chunk.invalid().len();
    // At the end, it may go on; before, it is wrong.
    let is_begun = wrong == bytes.len()
        && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none());
    (!is_begun).then_some((Key::Other, wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_keys() {
        for (bytes, keys) in [
            (&b"qY"[..], &[Key::Character('q'), Key::Character('Y')][..]),
            (b"\x1b", &[Key::Escape]),
            (b"\x1b\x1b", &[Key::Escape, Key::Escape]),
            (b"\x03\r\t\x7f\x01", &[Key::Interrupt, Key::Enter, Key::Tab, Key::Other, Key::Other]),
            (b"\x1b[A\x1b[B\x1bOA\x1bOB", &[Key::Up, Key::Down, Key::Up, Key::Down]),
            (b"\x1b[5~\x1b[6~", &[Key::PageUp, Key::PageDown]),
            (
                b"\x1b[H\x1b[F\x1b[1~\x1b[4~\x1bOH\x1bOF",
                &[Key::Home, Key::End, Key::Home, Key::End, Key::Home, Key::End],
            ),
            (b"\x1b[1;5B\x1b[Z\x1b[15~\x1b[200~", &[Key::Down, Key::Tab, Key::Other, Key::Other]),
            (b"\x1bq", &[Key::Character('q')]),
            ("é日".as_bytes(), &[Key::Character('é'), Key::Character('日')]),
            (b"\xffa", &[Key::Other, Key::Character('a')]),
        ] {
            assert_eq!(KeyReader::default().read(bytes), keys, "{bytes:?}");
            // The same, if bytes come one after the other; but what follows a lone escape is not of
            // its key then.
            let mut reader = KeyReader::default();
            let one_by_one: Vec<_> = bytes.iter().flat_map(|byte| reader.read(&[*byte])).collect();
            assert!(bytes.contains(&ESCAPE) || one_by_one == keys, "{bytes:?}");
        }
        let mut reader = KeyReader::default();
        assert_eq!(
            (reader.read(b"\x1b["), reader.read(b"6"), reader.read(b"~j").len()),
            (vec![], vec![], 2)
        );
        assert_eq!(reader.read(&[b"\x1b[", &[b'0'; 50][..]].concat()), []);
        assert_eq!(
            reader.read(b"q"),
            [Key::Character('q')],
            "no sequence holds up the keys after it"
        );
    }
}
