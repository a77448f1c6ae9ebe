//! `eyas run --tag`: lines of output that begin with the item of their task.

use std::borrow::Cow;

/// Puts a tag before each line of a stream, which comes in parts.
pub(super) struct LineTag {
    tag: Option<Vec<u8>>,
    is_line_begun: bool,
}

impl LineTag {
    /// The item becomes the tag, with a tab; without an item, nothing changes.
    pub fn new(item: Option<&[u8]>) -> Self {
        LineTag { tag: item.map(|item| [item, b"\t"].concat()), is_line_begun: false }
    }

    /// The next part of the stream.
    pub fn part<'a>(&mut self, part: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(tag) = &self.tag else { return Cow::Borrowed(part) };
        let mut tagged = Vec::with_capacity(part.len() + tag.len());
        for line in part.split_inclusive(|byte| *byte == b'\n') {
            if !self.is_line_begun {
                tagged.extend_from_slice(tag);
            }
            tagged.extend_from_slice(line);
            self.is_line_begun = !line.ends_with(b"\n");
        }
        Cow::Owned(tagged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_one_tag() {
        let mut tag = LineTag::new(Some(b"a b"));
        assert_eq!(&*tag.part(b"one\ntw"), b"a b\tone\na b\ttw");
        assert_eq!(&*tag.part(b"o\n"), b"o\n");
        assert_eq!(&*tag.part(b""), b"");
        assert_eq!(&*tag.part(b"\n"), b"a b\t\n");
        assert_eq!(&*LineTag::new(None).part(b"one\ntwo"), b"one\ntwo");
    }
}
