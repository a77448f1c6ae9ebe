//! The bound of this machine: loads from random places of a large table, each of which needs the
//! one before.

use eyas_faults::Dice;

use crate::cluster::processor_time;

/// Entries of 4 bytes in the table: 64 MB, which fit no processor's own cache.
const ENTRIES: usize = 16 << 20;
const LOADS: usize = 2_000_000;

/// Dependent random loads in a second, in processor time.
pub fn per_s() -> f64 {
    let mut dice = Dice::new(1);
    let mut next: Vec<u32> = (0..ENTRIES as u32).collect();
    // Sattolo's algorithm: one cycle through all entries.
    for index in (1..ENTRIES).rev() {
        next.swap(index, (dice.next_u64() % index as u64) as usize);
    }
    let began = processor_time();
    let last = (0..LOADS).fold(0, |at: u32, _| next[at as usize]);
    let took = processor_time() - began;
    std::hint::black_box(last);
    LOADS as f64 / took.as_secs_f64()
}
