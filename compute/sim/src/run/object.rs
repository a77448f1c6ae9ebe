//! Ids of objects.

use eyas_types::ObjectId;

use crate::random::Random;

/// Which tasks share the replicas of an object.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    /// All tasks.
    All,
    /// One task: under first-available, even the tasks of one node share no replicas.
    Task(u32),
}

/// The id of an object. Stores use some of its bytes as a hash, so they are scrambled.
pub(super) fn id_of(object: u32, owner: Owner) -> ObjectId {
    let owner = match owner {
        Owner::All => u32::MAX,
        Owner::Task(task) => task,
    };
    let both = u64::from(owner) << 32 | u64::from(object);
    let mut id = [0; 16];
    id[..8].copy_from_slice(&Random::new(both).next_u64().to_le_bytes());
    id[8..].copy_from_slice(&both.to_le_bytes());
    ObjectId(id)
}

/// The number of the object with this id.
pub(super) fn object_of(id: ObjectId) -> u32 {
    let [.., a, b, c, d, _, _, _, _] = id.0;
    u32::from_le_bytes([a, b, c, d])
}
