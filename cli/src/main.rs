//! The `eyas` command.

mod report;

fn main() {}
