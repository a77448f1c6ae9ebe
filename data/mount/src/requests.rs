//! Running the kernel's requests. Each runs on its own, so that a slow one does not delay others.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fuser::{Errno, INodeNo, InitFlags, KernelConfig};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::failure::{MountFailure, too_slow};
use crate::inode::Inode;
use crate::mounted::Mounted;

/// Largest request of the kernel to read or write.
const MAX_REQUEST_BYTES: u32 = 1 << 20;

/// Maximum number of requests in the background, such as read-ahead.
const MAX_BACKGROUND: u16 = 64;

/// The kernel's requests to a mounted file system.
pub(crate) struct KernelRequests {
    pub mounted: Arc<Mounted>,
    runtime: Handle,
}

impl KernelRequests {
    pub fn new(mounted: Arc<Mounted>) -> Self {
        KernelRequests { mounted, runtime: Handle::current() }
    }

    /// Runs an operation and gives its result to `reply`. Fails it after the time that the user has
    /// set, if it has no content to transfer.
    pub fn run<T: Send + 'static, F>(
        &self,
        operation: &'static str,
        of: u64,
        work: impl FnOnce(Arc<Mounted>) -> F,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) where
        F: Future<Output = Result<T, MountFailure>> + Send + 'static,
    {
        let limit = self.mounted.timeout;
        let work = |mounted| {
            let work = work(mounted);
            async move { timeout(limit, work).await.unwrap_or_else(|_| Err(too_slow(limit))) }
        };
        self.transfer(operation, of, work, reply);
    }

    /// Runs an operation that transfers content, which may take long.
    pub fn transfer<T: Send + 'static, F>(
        &self,
        operation: &'static str,
        of: u64,
        work: impl FnOnce(Arc<Mounted>) -> F,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) where
        F: Future<Output = Result<T, MountFailure>> + Send + 'static,
    {
        let mounted = self.mounted.clone();
        let _entered = self.runtime.enter();
        let mut work = Box::pin(work(mounted.clone()));
        let answer = move |done: Result<T, MountFailure>| {
            reply(done.map_err(|failure| mounted.logged(failure, operation, of)));
        };
        // What needs no answer of the cluster is done at once: a change of threads costs more than
        // most requests.
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => answer(done),
            Poll::Pending => drop(self.runtime.spawn(async move { answer(work.await) })),
        }
    }

    pub fn node(&self, number: INodeNo) -> Result<Arc<Inode>, MountFailure> {
        Ok(self.mounted.entries.inodes.get(number.0).ok_or(Errno::ESTALE)?.0)
    }
}

/// Agrees with the kernel on the requests that it makes.
pub(crate) fn configure(config: &mut KernelConfig) -> io::Result<()> {
    // Without `FUSE_ATOMIC_O_TRUNC`: with it, the kernel truncates a program that is running
    // before it finds that the program may not be opened for writing (`ETXTBSY`).
    let wanted = InitFlags::FUSE_AUTO_INVAL_DATA
        | InitFlags::FUSE_DO_READDIRPLUS
        | InitFlags::FUSE_READDIRPLUS_AUTO
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_ASYNC_DIO
        | InitFlags::FUSE_CACHE_SYMLINKS;
    // An older kernel lacks some of them, and is slower.
    let _ = config.add_capabilities(wanted & config.capabilities());
    config.set_max_write(MAX_REQUEST_BYTES).map_err(|_| io::ErrorKind::InvalidInput)?;
    config.set_max_background(MAX_BACKGROUND).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(())
}
