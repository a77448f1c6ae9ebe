//! The objects in the folder of a store that no process uses. Only names are read: no content is
//! verified.

use std::path::Path;

use eyas_types::ObjectId;

use crate::index::{OBJECTS, parse_file_name};

/// The ids of the objects in the folder of a store, in no particular order; none if there is no
/// store.
pub fn stored_objects(store: &Path) -> Vec<ObjectId> {
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries(&store.join(OBJECTS)).flat_map(|folder| entries(&folder.path()));
    files
        .filter_map(|file| parse_file_name(file.file_name().to_str()?).map(|(id, ..)| id))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectStore;

    #[test]
    fn objects_are_listed_without_a_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        assert!(stored_objects(&path).is_empty());
        let (store, _) = ObjectStore::open(path.clone()).unwrap();
        let id = ObjectId([0xab; 16]);
        store.put(id, b"data").unwrap();
        drop(store);
        assert_eq!(stored_objects(&path), [id]);
    }
}
