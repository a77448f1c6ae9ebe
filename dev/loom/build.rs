//! Compiles the board, and the models, with `cfg(loom)`, and packages of others without it.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rustc-cfg=loom");
    println!("cargo::rerun-if-changed=build.rs");
}
