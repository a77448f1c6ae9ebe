//! The program `eyas`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    ExitCode::from(eyas_cli::run(&words, None).number())
}
