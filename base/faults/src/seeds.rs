//! Which seeds a fault test tries, and how a seed that failed is named.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tries the seeds that the environment asks for:
///
/// - `EYAS_SEED=17`: this one, and prints its outcome. This repeats a failure.
/// - `EYAS_SOAK_MINUTES=10`: new seeds for 10 minutes (`make soak MINUTES=10`).
/// - otherwise the first `EYAS_SEEDS` seeds, by default the first `usual_seeds`. Only then does
///   this return the outcomes, for the caller to assert that enough faults happened in them.
///
/// `try_seed` panics when the seed fails. The seed is printed then, with the command that tries it
/// again.
pub fn try_seeds<T: Debug>(usual_seeds: u64, try_seed: impl Fn(u64) -> T) -> Option<Vec<T>> {
    let try_seed = |seed| {
        let _named = NamedOnPanic(seed);
        try_seed(seed)
    };
    if let Some(seed) = number("EYAS_SEED") {
        println!("{:?}", try_seed(seed));
        return None;
    }
    if let Some(minutes) = number("EYAS_SOAK_MINUTES") {
        soak(Duration::from_secs(60 * minutes), try_seed);
        return None;
    }
    Some((0..number("EYAS_SEEDS").unwrap_or(usual_seeds)).map(try_seed).collect())
}

/// Runs a case twice, and returns its outcome.
///
/// # Panics
/// If the outcomes differ: then a seed that failed could not be repeated.
pub fn run_twice<C: Debug, T: Debug + PartialEq>(case: &C, run: impl Fn(&C) -> T) -> T {
    let outcome = run(case);
    assert_eq!(outcome, run(case), "the same seed gave two different runs: {case:?}");
    outcome
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a whole number")))
}

/// Tries new seeds until `time` has passed. The first one is the time of day, so each soak tries
/// other seeds.
fn soak<T>(time: Duration, try_seed: impl Fn(u64) -> T) {
    let began = Instant::now();
    let first =
        SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_millis()
            as u64;
    let seeds = (first..).take_while(|_| began.elapsed() < time).map(try_seed).count();
    println!("{seeds} seeds from {first} on: nothing has failed");
}

/// Prints how to repeat a run when the run panics.
struct NamedOnPanic(u64);

impl Drop for NamedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to try this seed again: EYAS_SEED={} make soak", self.0);
        }
    }
}
