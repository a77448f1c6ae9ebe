//! Splits a condition into the conditions that `&&` joins, at any depth: `a && (b && c)` has three
//! parts.
//!
//! Splitting works on the text and not on the syntax tree, because people are shown parts as they
//! were written. `&&` binds tighter than `||` and `?`, so a condition with one of those outside
//! brackets is one part. Any doubtful text is one part as well, which is always correct.

/// A byte outside strings and comments, with its position and the number of open brackets around
/// it. A bracket does not count as around itself.
struct Byte {
    at: usize,
    byte: u8,
    depth: u32,
}

/// The parts in order, without surrounding space and brackets.
pub(crate) fn of(text: &str) -> Vec<&str> {
    let whole = text.trim();
    let parts: Vec<_> = split(whole).unwrap_or_default().into_iter().flat_map(of).collect();
    // Brackets around a single condition are kept.
    if parts.len() > 1 { parts } else { vec![whole] }
}

/// Splits one level: the parts that `&&` joins, or the text inside brackets. `None` if the text is
/// neither.
fn split(text: &str) -> Option<Vec<&str>> {
    let bytes = bytes(text)?;
    let outside: Vec<_> = bytes.iter().filter(|byte| byte.depth == 0).collect();
    if let [Byte { at: 0, byte: b'(', .. }, Byte { at, byte: b')', .. }] = outside[..] {
        return (at + 1 == text.len()).then(|| vec![&text[1..*at]]);
    }
    if outside.iter().any(|byte| matches!(byte.byte, b'?' | b'|')) {
        return None;
    }
    let ands = outside.windows(2).filter(|pair| pair[0].byte == b'&' && pair[1].byte == b'&');
    let mut places: Vec<_> = ands.map(|pair| pair[0].at).collect();
    if places.is_empty() {
        return None;
    }
    places.push(text.len());
    let mut start = 0;
    let parts = places.into_iter().map(|end| {
        let part = &text[start..end];
        start = end + 2;
        part
    });
    Some(parts.collect())
}

/// `None` if brackets or quotes are left open.
fn bytes(text: &str) -> Option<Vec<Byte>> {
    let mut found = Vec::new();
    let mut depth = 0u32;
    let mut quote = None;
    let all = text.as_bytes();
    let mut at = 0;
    while at < all.len() {
        let byte = all[at];
        match (quote, byte) {
            (Some(_), b'\\') => at += 1,
            (Some(open), _) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'/') if all.get(at + 1) == Some(&b'/') => {
                // A comment goes to the end of its line.
                at += text[at..].find('\n').unwrap_or(text.len() - at);
            }
            (None, b'(' | b'[' | b'{') => {
                found.push(Byte { at, byte, depth });
                depth += 1;
            }
            (None, b')' | b']' | b'}') => {
                depth = depth.checked_sub(1)?;
                found.push(Byte { at, byte, depth });
            }
            (None, b' ' | b'\t' | b'\n' | b'\r') => {}
            (None, _) => found.push(Byte { at, byte, depth }),
        }
        at += 1;
    }
    (quote.is_none() && depth == 0).then_some(found)
}
