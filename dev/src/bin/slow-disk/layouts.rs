//! What clients of other file systems tell of a file: Lustre's, that its stripes are on all servers
//! of the disk in turns, from the first one on; BeeGFS's, that all are on one.

use clap::ValueEnum;

/// The extended attribute of Lustre.
pub const ATTRIBUTE: &str = "lustre.lov";

/// BeeGFS's ioctls. The kernel passes on no input of the second one: which target is asked for.
const GET_STRIPE_INFO: u32 = 0x800c_6619;
const GET_STRIPE_TARGET: u32 = 0x8106_661a;

/// Number of the target that has all stripes.
const BEEGFS_TARGET: u16 = 3;

/// File system whose way to tell layouts is emulated.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayoutsOf {
    Lustre,
    Beegfs,
}

/// How files are striped, and who tells it.
#[derive(Clone, Copy)]
pub struct TellableLayout {
    pub told_as: LayoutsOf,
    pub servers: u16,
    pub stripe_bytes: u32,
}

impl TellableLayout {
    /// Type of the mount in lists of mounts, after `fuse.`.
    pub fn file_system(self) -> &'static str {
        match self.told_as {
            LayoutsOf::Lustre => "lustre",
            LayoutsOf::Beegfs => "beegfs",
        }
    }

    /// Value of the extended attribute: a plain layout of version 1.
    pub fn attribute(self) -> Option<Vec<u8>> {
        if self.told_as != LayoutsOf::Lustre {
            return None;
        }
        let mut bytes = Vec::new();
        bytes.extend(0x0bd1_0bd0_u32.to_ne_bytes());
        bytes.extend(1_u32.to_ne_bytes());
        // The number of the object, which eyas does not read.
        bytes.extend([0; 16]);
        bytes.extend(self.stripe_bytes.to_ne_bytes());
        bytes.extend(self.servers.to_ne_bytes());
        bytes.extend(0_u16.to_ne_bytes());
        for server in 0..u32::from(self.servers) {
            bytes.extend([0; 20]);
            bytes.extend(server.to_ne_bytes());
        }
        Some(bytes)
    }

    /// Output of an ioctl.
    pub fn answer(self, request: u32) -> Option<Vec<u8>> {
        if self.told_as != LayoutsOf::Beegfs {
            return None;
        }
        match request {
            GET_STRIPE_INFO => {
                let mut info = 1_u32.to_ne_bytes().to_vec();
                info.extend(self.stripe_bytes.to_ne_bytes());
                info.extend(self.servers.to_ne_bytes());
                info.resize(12, 0);
                Some(info)
            }
            GET_STRIPE_TARGET => {
                let mut target = [0, BEEGFS_TARGET].map(u16::to_ne_bytes).concat();
                target.resize(262, 0);
                Some(target)
            }
            _ => None,
        }
    }
}
