//! Cuts a condition at its outermost `&&`.
//!
//! In the text, not in the tree: a part is shown to people as it was written. `&&` binds tighter than `||` and `?`, so
//! a condition with one of those outside of brackets is one part. Whatever else is doubtful is one part as well, which
//! is never wrong.

/// The parts, in order, without the space around them.
pub(crate) fn of(text: &str) -> Vec<&str> {
    cut(text).unwrap_or_else(|| vec![text.trim()])
}

fn cut(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut depth, mut quote) = (Vec::new(), 0, 0u32, None);
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let next = bytes.get(at + 1);
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')' | b']' | b'}') => depth = depth.checked_sub(1)?,
            // A comment.
            (None, b'/') if next == Some(&b'/') => return None,
            (None, b'?') if depth == 0 => return None,
            (None, b'|') if depth == 0 => return None,
            (None, b'&') if depth == 0 && next == Some(&b'&') => {
                parts.push(text[start..at].trim());
                at += 1;
                start = at + 1;
            }
            (None, _) => {}
        }
        at += 1;
    }
    parts.push(text[start..].trim());
    (quote.is_none() && depth == 0).then_some(parts)
}
