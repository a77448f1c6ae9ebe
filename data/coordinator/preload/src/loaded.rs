//! Functions of the libraries that the loader searches after this one (`RTLD_NEXT`), found without
//! the loader.
//!
//! `dlsym` takes a lock, so a call in a signal handler must not use it; and to look all functions
//! up in advance costs a small program a twentieth of its time. So this library remembers where
//! the symbol tables are when it is loaded, and looks a function up at its first use, without a
//! lock. Libraries that are there when the program starts stay until it ends.
//!
//! The tables are those of the System V ABI with the hash table of GNU (`DT_GNU_HASH`).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use libc::dl_phdr_info;

/// Libraries that are remembered. Further ones are left to `dlsym`.
const MAX_LIBRARIES: usize = 16;
/// Bits of a word of the hash table's filter.
const WORD_BITS: u32 = usize::BITS;

const DT_NULL: usize = 0;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;

/// Type of a symbol that is a function, and the bits of its `st_info` that say so.
const STT_FUNC: u8 = 2;
const TYPE_BITS: u8 = 0xf;
/// Mark of a version that is only for programs that were linked with it.
const HIDDEN: u16 = 0x8000;

#[cfg(target_pointer_width = "32")]
use libc::Elf32_Sym as Symbol;
#[cfg(target_pointer_width = "64")]
use libc::Elf64_Sym as Symbol;

/// Entry of a library's dynamic section: a tag, and a number or an address.
#[repr(C)]
struct DynamicEntry {
    tag: usize,
    value: usize,
}

/// Tables of a library.
struct Library {
    base: AtomicUsize,
    symbols: AtomicPtr<Symbol>,
    names: AtomicPtr<c_char>,
    /// Null if the library has no versions.
    versions: AtomicPtr<u16>,
    hash: AtomicPtr<u32>,
}

impl Library {
    const fn unknown() -> Library {
        Library {
            base: AtomicUsize::new(0),
            symbols: AtomicPtr::new(ptr::null_mut()),
            names: AtomicPtr::new(ptr::null_mut()),
            versions: AtomicPtr::new(ptr::null_mut()),
            hash: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

static LIBRARIES: [Library; MAX_LIBRARIES] = [const { Library::unknown() }; MAX_LIBRARIES];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);

const UNKNOWN: u32 = 0;
const BEING_LISTED: u32 = 1;
const KNOWN: u32 = 2;

/// Address of the first function of this name in the libraries after this one. `None`: it was not
/// found in those that are known, and `dlsym` has to be asked.
pub(crate) fn find(name: &CStr, hash: u32) -> Option<*mut c_void> {
    if STATE.load(Ordering::Acquire) != KNOWN {
        list();
    }
    let known = STATE.load(Ordering::Acquire) == KNOWN;
    let count = if known { COUNT.load(Ordering::Relaxed) } else { 0 };
    // SAFETY: the tables are those of libraries that stay.
    let found =
        LIBRARIES[..count].iter().find_map(|library| unsafe { library.find(name, hash) })?;
    match found {
        NamedSymbol::Function(address) => Some(address),
        NamedSymbol::Other => None,
    }
}

/// A symbol of the wanted name in a library.
enum NamedSymbol {
    Function(*mut c_void),
    /// Something that is found in another way, such as a function that a resolver chooses.
    Other,
}

/// Hash of a name in the tables.
pub(crate) const fn hash_of(name: &CStr) -> u32 {
    let bytes = name.to_bytes();
    let (mut hash, mut place) = (5381_u32, 0);
    while place < bytes.len() {
        hash = hash.wrapping_mul(33).wrapping_add(bytes[place] as u32);
        place += 1;
    }
    hash
}

impl Library {
    /// # Safety
    /// The tables are those of a library that stays loaded.
    unsafe fn find(&self, name: &CStr, hash: u32) -> Option<NamedSymbol> {
        let table = self.hash.load(Ordering::Relaxed).cast_const();
        let symbols = self.symbols.load(Ordering::Relaxed).cast_const();
        // SAFETY: the hash table has a head of four numbers, a filter, and a chain for each bucket,
        // which ends at an odd hash; it leads to symbols of the library.
        unsafe {
            let (buckets, first) = (*table, *table.add(1));
            let (filters, shift) = (*table.add(2), *table.add(3));
            let filter = table.add(4).cast::<usize>();
            let word = *filter.add((hash / WORD_BITS % filters) as usize);
            let bits = 1_usize << (hash % WORD_BITS) | 1_usize << ((hash >> shift) % WORD_BITS);
            if word & bits != bits {
                return None;
            }
            let heads = filter.add(filters as usize).cast::<u32>();
            let chains = heads.add(buckets as usize);
            let mut place = *heads.add((hash % buckets) as usize);
            loop {
                let found = *chains.add(place.checked_sub(first)? as usize);
                let symbol = &*symbols.add(place as usize);
                if found | 1 == hash | 1 && self.is_defined(symbol, place, name) {
                    if symbol.st_info & TYPE_BITS != STT_FUNC {
                        return Some(NamedSymbol::Other);
                    }
                    let base = self.base.load(Ordering::Relaxed);
                    let address = base.wrapping_add(symbol.st_value as usize);
                    return Some(NamedSymbol::Function(ptr::with_exposed_provenance_mut(address)));
                }
                if found & 1 == 1 {
                    return None;
                }
                place += 1;
            }
        }
    }

    /// Whether a symbol has this name and is the library's own, in the version for new programs.
    ///
    /// # Safety
    /// The symbol is at this place in the library's table.
    unsafe fn is_defined(&self, symbol: &Symbol, place: u32, name: &CStr) -> bool {
        let versions = self.versions.load(Ordering::Relaxed);
        let names = self.names.load(Ordering::Relaxed).cast_const();
        symbol.st_value != 0
            && symbol.st_shndx != 0
            // SAFETY: there is a version for each symbol, and its name is a C string.
            && unsafe {
                (versions.is_null() || *versions.add(place as usize) & HIDDEN == 0)
                    && CStr::from_ptr(names.add(symbol.st_name as usize)) == name
            }
    }
}

/// Remembers the libraries.
extern "C" fn list() {
    let begin = STATE.compare_exchange(UNKNOWN, BEING_LISTED, Ordering::Acquire, Ordering::Relaxed);
    if begin.is_err() {
        return;
    }
    let mut is_later = false;
    // SAFETY: `look_at` is given what it expects.
    unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut is_later).cast()) };
    STATE.store(KNOWN, Ordering::Release);
}

/// Looks at a library, in the order in which the loader searches. `is_later`: a flag that is set
/// after this library.
unsafe extern "C" fn look_at(
    info: *mut dl_phdr_info,
    _size: libc::size_t,
    is_later: *mut c_void,
) -> c_int {
    let count = COUNT.load(Ordering::Relaxed);
    // SAFETY: the loader gives its description of a library, and the flag is `list`'s.
    unsafe {
        let (info, is_later) = (&*info, &mut *is_later.cast::<bool>());
        let base = info.dlpi_addr as usize;
        let parts = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        if !*is_later {
            let own = (list as extern "C" fn()) as usize;
            *is_later = parts.iter().any(|part| {
                let start = base.wrapping_add(part.p_vaddr as usize);
                let end = start.wrapping_add(part.p_memsz as usize);
                part.p_type == libc::PT_LOAD && (start..end).contains(&own)
            });
            return 0;
        }
        let Some(dynamic) = parts.iter().find(|part| part.p_type == libc::PT_DYNAMIC) else {
            return 0;
        };
        let Some(library) = LIBRARIES.get(count) else { return 1 };
        let entries = base.wrapping_add(dynamic.p_vaddr as usize);
        // Behind a library without these tables, the loader's own search has to decide.
        if !library.read(base, ptr::with_exposed_provenance(entries)) {
            return 1;
        }
        COUNT.store(count + 1, Ordering::Relaxed);
    }
    0
}

impl Library {
    /// Remembers the tables of the library with this dynamic section. Returns whether it has all.
    ///
    /// # Safety
    /// The dynamic section is that of a library that is loaded at `base`.
    unsafe fn read(&self, base: usize, mut entry: *const DynamicEntry) -> bool {
        let (mut symbols, mut names, mut versions, mut hash) = (0, 0, 0, 0);
        // SAFETY: the section ends with `DT_NULL`.
        unsafe {
            while (*entry).tag != DT_NULL {
                let value = (*entry).value;
                // Some loaders leave offsets there.
                let address = if value < base { base.wrapping_add(value) } else { value };
                match (*entry).tag {
                    DT_SYMTAB => symbols = address,
                    DT_STRTAB => names = address,
                    DT_VERSYM => versions = address,
                    DT_GNU_HASH => hash = address,
                    _ => {}
                }
                entry = entry.add(1);
            }
        }
        self.base.store(base, Ordering::Relaxed);
        self.symbols.store(ptr::with_exposed_provenance_mut(symbols), Ordering::Relaxed);
        self.names.store(ptr::with_exposed_provenance_mut(names), Ordering::Relaxed);
        self.versions.store(ptr::with_exposed_provenance_mut(versions), Ordering::Relaxed);
        self.hash.store(ptr::with_exposed_provenance_mut(hash), Ordering::Relaxed);
        symbols != 0 && names != 0 && hash != 0
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = list;
