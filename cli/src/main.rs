//! The `eyas` command.

fn main() {}
