//! The values of an item.

use serde::{Deserialize, Serialize};

use crate::Name;

/// One column of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// The text as the user wrote it.
    pub text: Name,
    /// If the text names an input: the index of the input in
    /// [`TaskItem::inputs`](crate::TaskItem::inputs), or [`TEMPLATE_INPUT`] and its index in
    /// [`TaskTemplate::inputs`](crate::TaskTemplate::inputs). In the command and the environment,
    /// the placeholder then stands for the staged path. In the names of outputs, it does so only
    /// for an input of the item.
    pub input: Option<u32>,
}

/// The bit by which [`Value::input`] counts in the template. A task has fewer inputs.
pub const TEMPLATE_INPUT: u32 = 1 << 31;

impl Value {
    /// The input of the item that the text names.
    pub fn own_input(&self) -> Option<usize> {
        self.input.filter(|input| input & TEMPLATE_INPUT == 0).map(|input| input as usize)
    }

    /// The input of the template that the text names.
    pub fn template_input(&self) -> Option<usize> {
        self.input
            .filter(|input| input & TEMPLATE_INPUT != 0)
            .map(|input| (input & !TEMPLATE_INPUT) as usize)
    }
}
