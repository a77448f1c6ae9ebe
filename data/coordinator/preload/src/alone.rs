//! What stands in for Rust's standard library in the library that programs load, which
//! `doors/cli/build.rs` builds without unwinding.

/// Nothing in this library panics, as far as its authors know.
#[panic_handler]
fn abort(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: it may be called anywhere.
    unsafe { libc::abort() }
}

// Tables of `core`, which was compiled to unwind, refer to this function. Nothing unwinds here. The
// name is hidden, so that it does not take the place of the program's own function.
core::arch::global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    ".byte 0",
);
