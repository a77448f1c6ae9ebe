//! Tries each target with the inputs that were kept for it, and with random changes of them.
//!
//! `make test` tries each target for a second, and `make fuzz PARSER=globs SECONDS=60` one for a
//! minute, from another seed each time. An input that ends the process, takes long or much memory
//! is left in a file, which the test names, and which becomes a file of `corpus/` when the parser
//! is mended.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use eyas_faults::Dice;
use eyas_fuzz::{TARGETS, Target};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How long each target is tried without `EYAS_FUZZ_SECONDS`.
const SECONDS: u64 = 1;
/// Longest input, bytes.
const MAX_BYTES: usize = 1 << 14;
/// Time after which an input takes too long. Code that is not optimised takes some milliseconds on
/// a machine that does nothing else.
const MAX_TIME: Duration = Duration::from_secs(60);
/// Memory of the process, bytes. The allocator ends the process if a target wants more.
const MAX_MEMORY: u64 = 4 << 30;
/// Numbers at which arithmetic goes wrong.
const EDGES: [u64; 8] = [0, 1, 0x7f, 0x80, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];

/// The input that is being tried, in a file that is left if the process ends.
struct CurrentInput {
    path: PathBuf,
    file: File,
    target: Target,
    /// Number of inputs that were begun and ended. While it stays odd, one is being read.
    moves: Arc<AtomicU64>,
}

impl CurrentInput {
    fn new(target: Target) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.input", target.name));
        let file = File::create(&path).expect("the folder of tests can be written to");
        let moves = Arc::new(AtomicU64::new(0));
        let (watched, shown) = (Arc::clone(&moves), path.clone());
        std::thread::spawn(move || {
            loop {
                let seen = watched.load(Ordering::Relaxed);
                std::thread::sleep(MAX_TIME);
                if seen % 2 == 1 && watched.load(Ordering::Relaxed) == seen {
                    eprintln!("an input takes longer than {MAX_TIME:?}: {}", shown.display());
                    std::process::abort();
                }
            }
        });
        CurrentInput { path, file, target, moves }
    }

    fn read(&self, input: &[u8]) {
        self.file
            .set_len(input.len() as u64)
            .and_then(|()| self.file.write_all_at(input, 0))
            .expect("it is kept");
        self.moves.fetch_add(1, Ordering::Relaxed);
        (self.target.read)(input);
        self.moves.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for CurrentInput {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "the input is in {}: it belongs to dev/fuzz/corpus/{}",
                self.path.display(),
                self.target.name
            );
        } else {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let files =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort_unstable();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// An input with some changes.
fn changed(dice: &mut Dice, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = dice.any(corpus).expect("there are inputs");
    for _ in 0..=dice.below(4) {
        let at = dice.below(input.len() as u64 + 1) as usize;
        let end = at + dice.below((input.len() - at).min(64) as u64 + 1) as usize;
        match dice.below(7) {
            0 if at < input.len() => input[at] ^= 1 << dice.below(8),
            1 if at < input.len() => input[at] = dice.next_u64() as u8,
            2 => drop(input.drain(at..end)),
            3 => {
                let again = input[at..end].repeat(1 + dice.below(20) as usize);
                input.splice(at..at, again);
            }
            4 => {
                let other = dice.any(corpus).expect("there are inputs");
                let from = dice.below(other.len() as u64 + 1) as usize;
                input.splice(at..end, other[from..].iter().copied());
            }
            5 => {
                let number = dice.any(&EDGES).expect("there are some").wrapping_add(dice.below(2));
                let bytes =
                    if dice.chance(500) { number.to_le_bytes() } else { number.to_be_bytes() };
                let size = dice.any(&[1, 2, 4, 8]).expect("there are some");
                input.splice(at..end, bytes[..size].iter().copied());
            }
            _ => {
                let digits = dice.any(&EDGES).expect("there are some").to_string();
                input.splice(at..end, digits.bytes());
            }
        }
    }
    input.truncate(MAX_BYTES);
    input
}

fn try_inputs(name: &str) {
    let limit = Rlimit { current: Some(MAX_MEMORY), ..getrlimit(Resource::As) };
    setrlimit(Resource::As, limit).expect("a limit can be lowered");
    let target =
        *TARGETS.iter().find(|target| target.name == name).expect("there is such a target");
    let (tried, corpus) = (CurrentInput::new(target), corpus(name));
    corpus.iter().for_each(|input| tried.read(input));
    let seconds = std::env::var("EYAS_FUZZ_SECONDS")
        .ok()
        .map(|text| text.parse().expect("a number of seconds"));
    let seed = seconds.map_or(1, |_| {
        SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_nanos() as u64
    });
    let (mut dice, until) =
        (Dice::new(seed), Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS)));
    let mut count = 0;
    while Instant::now() < until {
        tried.read(&changed(&mut dice, &corpus));
        count += 1;
    }
    println!("{name}: {} kept inputs, and {count} changes of them from seed {seed}", corpus.len());
}

/// A test for each target.
macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            try_inputs(stringify!($name));
        })*

        #[test]
        fn each_target_has_a_test() {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

tests! { frames greetings records globs names templates jobs expressions formats images }
