//! The table of handles. A handle is a number that is never used again, in the guise of a pointer.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::status::{CallError, EyasStatus};

/// A kind of handle, as C has it: an incomplete type.
pub(crate) trait Handle {
    /// The state behind the handle.
    type State: Any + Send + Sync;
    /// The name of the type in C.
    const NAME: &'static str;
}

/// Handles are multiples of this number, like pointers to anything.
const ALIGNMENT: usize = 16;

/// The number of the next handle.
static NEXT: AtomicUsize = AtomicUsize::new(1);

static TABLE: LazyLock<RwLock<HashMap<usize, Entry>>> = LazyLock::new(RwLock::default);

struct Entry {
    /// Process that has made the handle.
    process: u32,
    state: Arc<dyn Any + Send + Sync>,
}

/// Makes a handle of this state.
pub(crate) fn open<H: Handle>(state: H::State) -> *mut H {
    let number = NEXT.fetch_add(1, Ordering::Relaxed) * ALIGNMENT;
    write().insert(number, Entry { process: std::process::id(), state: Arc::new(state) });
    std::ptr::without_provenance_mut(number)
}

/// The state behind a handle.
pub(crate) fn get<H: Handle>(handle: *const H) -> Result<Arc<H::State>, CallError> {
    let table = read();
    let entry = table.get(&handle.addr()).ok_or_else(|| not_open::<H>(handle))?;
    if entry.process != std::process::id() {
        let message = format!(
            "this {} was made before the process was forked: a child has to connect by itself",
            H::NAME
        );
        return Err(CallError::new(EyasStatus::BadHandle, message));
    }
    Arc::downcast(entry.state.clone()).map_err(|_| {
        CallError::new(EyasStatus::BadHandle, format!("this handle is not an {}", H::NAME))
    })
}

/// Closes a handle, and returns its state. After that, the handle is not valid, but calls of other
/// threads that use it end normally.
pub(crate) fn close<H: Handle>(handle: *const H) -> Result<Arc<H::State>, CallError> {
    let state = get(handle)?;
    match write().remove(&handle.addr()) {
        Some(_) => Ok(state),
        None => Err(not_open::<H>(handle)),
    }
}

fn not_open<H: Handle>(handle: *const H) -> CallError {
    let why = if handle.is_null() { "is NULL" } else { "is closed, or was never open" };
    CallError::new(EyasStatus::BadHandle, format!("this {} {why}", H::NAME))
}

fn read() -> RwLockReadGuard<'static, HashMap<usize, Entry>> {
    // The table is whole after each change.
    TABLE.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, HashMap<usize, Entry>> {
    TABLE.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Number;
    impl Handle for Number {
        type State = u32;
        const NAME: &'static str = "number";
    }
    struct Text;
    impl Handle for Text {
        type State = String;
        const NAME: &'static str = "text";
    }

    #[test]
    fn a_handle_is_valid_until_it_is_closed() {
        let number = open::<Number>(7);
        assert_eq!(*get(number).unwrap(), 7);
        assert_eq!(get(number.cast::<Text>()).unwrap_err().status, EyasStatus::BadHandle);
        assert_eq!(*close(number).unwrap(), 7);
        assert!(close(number).unwrap_err().message.contains("closed"));
        assert!(get(std::ptr::null::<Number>()).unwrap_err().message.contains("NULL"));
        assert_ne!(open::<Number>(8), number, "a number is not used again");
    }
}
