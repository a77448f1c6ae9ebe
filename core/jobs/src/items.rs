//! A job's items, encoded one after the other: a million of them take little more memory than their
//! own text.

use alloc::vec::Vec;
use core::ops::Range;

use eyas_types::TaskItem;
use serde::{Deserialize, Serialize};

/// The items of a job, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Items {
    bytes: Vec<u8>,
    /// Where each item ends.
    ends: Vec<u64>,
}

impl Items {
    /// Adds an item.
    pub fn push(&mut self, item: &TaskItem) {
        let bytes = core::mem::take(&mut self.bytes);
        self.bytes = postcard::to_extend(item, bytes).expect("an item can be encoded");
        self.ends.push(self.bytes.len() as u64);
    }

    /// The item with this index.
    ///
    /// # Panics
    /// If there is none.
    pub fn get(&self, index: u32) -> TaskItem {
        postcard::from_bytes(self.encoded(index)).expect("encoded by push")
    }

    /// The template of the item with this index: the first field of its encoding, so that an item
    /// with many inputs is not decoded for it.
    ///
    /// # Panics
    /// If there is none.
    pub fn template(&self, index: u32) -> u16 {
        postcard::take_from_bytes(self.encoded(index)).expect("encoded by push").0
    }

    /// The item with this index with up to `inputs` of its inputs, so that one with a million need
    /// not be decoded for its values.
    ///
    /// # Panics
    /// If there is none.
    pub fn head(&self, index: u32, inputs: usize) -> TaskItem {
        let decode = || {
            let (template, rest) = postcard::take_from_bytes(self.encoded(index))?;
            let (values, rest) = postcard::take_from_bytes(rest)?;
            let (count, mut rest): (usize, _) = postcard::take_from_bytes(rest)?;
            let mut head = TaskItem { template, values, inputs: Vec::new() };
            for _ in 0..count.min(inputs) {
                let (input, after) = postcard::take_from_bytes(rest)?;
                head.inputs.push(input);
                rest = after;
            }
            Ok::<_, postcard::Error>(head)
        };
        decode().expect("encoded by push")
    }

    fn encoded(&self, index: u32) -> &[u8] {
        &self.bytes[self.range(index)]
    }

    fn range(&self, index: u32) -> Range<usize> {
        let index = index as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        start as usize..self.ends[index] as usize
    }

    /// Removes the items from this one on.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.ends.truncate(count);
        self.bytes.truncate(self.ends.last().map_or(0, |end| *end as usize));
    }

    /// Removes values and inputs of these items.
    pub(crate) fn strip(&mut self, is_stripped: impl Fn(u32) -> bool) {
        let mut stripped = Items::default();
        for index in 0..self.ends.len() as u32 {
            if is_stripped(index) {
                let template = self.template(index);
                stripped.push(&TaskItem { template, values: Vec::new(), inputs: Vec::new() });
            } else {
                stripped.bytes.extend_from_slice(self.encoded(index));
                stripped.ends.push(stripped.bytes.len() as u64);
            }
        }
        *self = stripped;
    }

    /// Bytes of the item with this index.
    pub(crate) fn bytes_of(&self, index: u32) -> usize {
        self.range(index).len()
    }

    /// Bytes of all items.
    pub(crate) fn content_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of memory that they take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<u64>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether the encoded items can be decoded, asked of items that come from disk.
    pub fn is_sound(&self) -> bool {
        let mut start = 0;
        self.ends.iter().all(|end| {
            let item = self.bytes.get(start as usize..*end as usize);
            start = *end;
            item.is_some_and(|item| postcard::from_bytes::<TaskItem>(item).is_ok())
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use eyas_types::{Input, InputFrom, Value};

    use super::*;

    #[test]
    fn the_head_of_an_item_is_its_beginning() {
        let input = |object| Input { from: InputFrom::Object(object), name: Some("x".into()) };
        let value = Value { text: "text".into(), input: Some(1) };
        let mut items = Items::default();
        for count in [0, 1, 300] {
            items.push(&TaskItem {
                template: 7,
                values: vec![value.clone()],
                inputs: (0..count).map(input).collect(),
            });
        }
        for index in 0..3 {
            let whole = items.get(index);
            for most in [0, 1, 2, 299, 300, 1000] {
                let inputs = whole.inputs.iter().take(most).cloned().collect();
                assert_eq!(items.head(index, most), TaskItem { inputs, ..whole.clone() });
            }
        }
    }
}
