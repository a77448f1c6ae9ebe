//! Admission at a listener: limits on connections that have not proven a key of the cluster, and
//! which of them is closed when there are too many.
//!
//! Any process that reaches a port can open connections there and send nothing. An honest peer may
//! have the same address (the same machine, or the same NAT), so no address is ever refused. At a
//! limit, the oldest unproven connection is closed instead: of the same address, if that address
//! has reached its own limit; otherwise of the address with the most unproven connections.
//! Addresses with proven connections come last.
//!
//! Silent connections, which have sent nothing, and speaking connections, which have begun to prove
//! a key, have separate limits. An honest peer speaks at once, so silent connections never displace
//! a peer that is proving its key.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Unproven connections of one stage; a further one displaces another.
pub const MAX_UNPROVEN: usize = 256;

/// Unproven connections of one stage from one address, or from one /64 network of IPv6; a further
/// one displaces the oldest.
pub const MAX_UNPROVEN_PER_ADDRESS: usize = 128;

/// A connection has to prove a key within this time.
pub const PROOF_DEADLINE: Duration = Duration::from_secs(5);

/// A flood is logged again after this time without a displaced connection.
pub const QUIET: Duration = Duration::from_secs(60);

/// The stage of an unproven connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Silent,
    Speaking,
}

/// Unproven connections of one stage, oldest first.
#[derive(Default)]
struct UnprovenConnections {
    from: BTreeMap<u64, IpAddr>,
    /// Number of connections of each address.
    counts: HashMap<IpAddr, usize>,
}

/// The decider of admission: no socket, no clock.
struct Arrivals {
    max_in_all: usize,
    max_per_address: usize,
    last: u64,
    silent: UnprovenConnections,
    speaking: UnprovenConnections,
    /// Number of proven connections of each address.
    proven: HashMap<IpAddr, usize>,
    /// Time of the last displacement.
    displaced: Option<Instant>,
}

/// A connection that has to be closed.
#[derive(Debug, PartialEq, Eq)]
struct Displacement {
    number: u64,
    /// Present if the displacement begins a flood, which is logged.
    flood: Option<Flood>,
}

/// An address with too many unproven connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flood {
    from: IpAddr,
    connections: usize,
}

impl UnprovenConnections {
    fn insert(&mut self, number: u64, from: IpAddr) {
        self.from.insert(number, from);
        *self.counts.entry(from).or_insert(0) += 1;
    }

    fn remove(&mut self, number: u64) -> Option<IpAddr> {
        let from = self.from.remove(&number)?;
        take_one(&mut self.counts, from);
        Some(from)
    }

    fn count(&self, from: IpAddr) -> usize {
        self.counts.get(&from).copied().unwrap_or(0)
    }
}

impl Arrivals {
    fn new(max_in_all: usize, max_per_address: usize) -> Self {
        Arrivals {
            max_in_all,
            max_per_address,
            last: 0,
            silent: UnprovenConnections::default(),
            speaking: UnprovenConnections::default(),
            proven: HashMap::new(),
            displaced: None,
        }
    }

    /// A connection has come. Returns its number, and the connection that it displaces.
    fn come(&mut self, now: Instant, from: IpAddr) -> (u64, Option<Displacement>) {
        let displaced = self.make_room(now, from, Stage::Silent);
        self.last += 1;
        self.silent.insert(self.last, from);
        (self.last, displaced)
    }

    /// A connection has sent something. Returns the connection that it displaces. Ignored if it was
    /// displaced itself.
    fn spoke(&mut self, now: Instant, number: u64) -> Option<Displacement> {
        let from = self.silent.remove(number)?;
        let displaced = self.make_room(now, from, Stage::Speaking);
        self.speaking.insert(number, from);
        displaced
    }

    /// A connection has closed, or proven a key.
    fn leave(&mut self, number: u64) {
        if self.silent.remove(number).is_none() {
            self.speaking.remove(number);
        }
    }

    /// Whether the address had fewer than `max` proven connections. Then it has one more.
    fn prove(&mut self, from: IpAddr, max: usize) -> bool {
        let count = self.proven.entry(from).or_insert(0);
        let has_room = *count < max;
        *count += usize::from(has_room);
        has_room
    }

    fn end_proven(&mut self, from: IpAddr) {
        take_one(&mut self.proven, from);
    }

    fn make_room(&mut self, now: Instant, from: IpAddr, stage: Stage) -> Option<Displacement> {
        let unproven = match stage {
            Stage::Silent => &mut self.silent,
            Stage::Speaking => &mut self.speaking,
        };
        let number = if unproven.count(from) >= self.max_per_address {
            unproven.from.iter().find(|(_, other)| **other == from).map(|(number, _)| *number)
        } else if unproven.from.len() >= self.max_in_all {
            let rank = |(number, from): &(&u64, &IpAddr)| {
                (self.proven.contains_key(from), Reverse(unproven.count(**from)), **number)
            };
            unproven.from.iter().min_by_key(rank).map(|(number, _)| *number)
        } else {
            None
        }?;
        let from = unproven.from[&number];
        let connections = unproven.count(from);
        unproven.remove(number);
        let is_quiet = is_quiet_until(now, &mut self.displaced);
        Some(Displacement { number, flood: is_quiet.then_some(Flood { from, connections }) })
    }
}

/// Records an event; whether the previous one was at least [`QUIET`] ago.
fn is_quiet_until(now: Instant, last: &mut Option<Instant>) -> bool {
    last.replace(now).is_none_or(|last| now.saturating_duration_since(last) >= QUIET)
}

fn take_one(counts: &mut HashMap<IpAddr, usize>, from: IpAddr) {
    if let Some(count) = counts.get_mut(&from) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&from);
        }
    }
}

/// What counts as one address: an IPv4 address, or a /64 network of IPv6, because one host may have
/// all of its addresses.
fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

type Close = Box<dyn FnOnce() + Send>;

/// The admission at one listener. Clones share its state.
#[derive(Clone)]
pub struct Admission(Arc<Shared>);

struct Shared {
    /// The listener's name in the log.
    name: &'static str,
    state: Mutex<State>,
}

struct State {
    arrivals: Arrivals,
    /// When the system last could not accept a connection.
    failed: Option<Instant>,
    /// Closes each unproven connection.
    closes: HashMap<u64, Close>,
}

/// An unproven connection, until it is dropped.
pub struct Guest {
    admission: Admission,
    number: u64,
    from: IpAddr,
}

/// A proven connection, until it is dropped.
pub struct ProvenConnection {
    admission: Admission,
    from: IpAddr,
}

impl Admission {
    /// The admission at the listener with this `name`.
    pub fn new(name: &'static str) -> Self {
        Admission::with_bounds(name, MAX_UNPROVEN, MAX_UNPROVEN_PER_ADDRESS)
    }

    /// An admission with other bounds than `MAX_UNPROVEN` and `MAX_UNPROVEN_PER_ADDRESS`.
    pub fn with_bounds(name: &'static str, max_unproven: usize, max_per_address: usize) -> Self {
        let arrivals = Arrivals::new(max_unproven, max_per_address);
        Admission(Arc::new(Shared {
            name,
            state: Mutex::new(State { arrivals, failed: None, closes: HashMap::new() }),
        }))
    }

    /// Registers a connection from `address`. `close` is called if another connection displaces it,
    /// and must not call this type.
    pub fn enter(&self, address: IpAddr, close: impl FnOnce() + Send + 'static) -> Guest {
        let from = origin(address);
        let mut state = self.state();
        let (number, displaced) = state.arrivals.come(Instant::now(), from);
        state.closes.insert(number, Box::new(close));
        self.close(state, displaced);
        Guest { admission: self.clone(), number, from }
    }

    /// Logs that the system cannot accept connections, at most once per `QUIET`.
    pub fn cannot_accept(&self, error: &io::Error) {
        if is_quiet_until(Instant::now(), &mut self.state().failed) {
            tracing::warn!("{}: cannot accept connections for now: {error}", self.0.name);
        }
    }

    fn close(&self, mut state: MutexGuard<'_, State>, displaced: Option<Displacement>) {
        let Some(Displacement { number, flood }) = displaced else { return };
        let close = state.closes.remove(&number);
        drop(state);
        if let Some(close) = close {
            close();
        }
        if let Some(Flood { from, connections }) = flood {
            tracing::warn!(
                "{}: {connections} connections from {from} have not proven a key of the cluster; \
                 the oldest are closed as new ones arrive. The next flood is logged after {} s \
                 without one",
                self.0.name,
                QUIET.as_secs()
            );
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No update can panic half-way.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest {
    /// The connection has sent something.
    pub fn spoke(&self) {
        let mut state = self.admission.state();
        let displaced = state.arrivals.spoke(Instant::now(), self.number);
        self.admission.close(state, displaced);
    }

    /// The connection has proven a key.
    pub fn prove(self) -> ProvenConnection {
        self.prove_up_to(usize::MAX).expect("an address has fewer connections")
    }

    /// The connection has proven a key. `None` if `max` connections from its address have done so,
    /// and are open.
    pub fn prove_up_to(self, max: usize) -> Option<ProvenConnection> {
        let has_room = self.admission.state().arrivals.prove(self.from, max);
        has_room.then(|| ProvenConnection { admission: self.admission.clone(), from: self.from })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut state = self.admission.state();
        state.arrivals.leave(self.number);
        state.closes.remove(&self.number);
    }
}

impl Drop for ProvenConnection {
    fn drop(&mut self) {
        self.admission.state().arrivals.end_proven(self.from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 66));

    fn host(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 1, number])
    }

    /// Limits of 6 connections, and 4 from one address.
    fn arrivals() -> Arrivals {
        Arrivals::new(6, 4)
    }

    fn number_of(displaced: Option<Displacement>) -> Option<u64> {
        displaced.map(|displaced| displaced.number)
    }

    #[test]
    fn no_connection_is_refused_and_the_oldest_silent_one_leaves() {
        let (mut arrivals, now) = (arrivals(), Instant::now());
        for expected in [None, None, None, None, Some(1), Some(2)] {
            assert_eq!(number_of(arrivals.come(now, FLOOD).1), expected);
        }
        assert_eq!(arrivals.silent.from.len(), 4);
    }

    #[test]
    fn silence_does_not_displace_a_peer_that_proves_its_key_from_the_same_address() {
        let (mut arrivals, now) = (arrivals(), Instant::now());
        let (honest, _) = arrivals.come(now, FLOOD);
        assert_eq!(arrivals.spoke(now, honest), None);
        for _ in 0..1000 {
            assert_ne!(number_of(arrivals.come(now, FLOOD).1), Some(honest));
        }
        assert!(arrivals.speaking.from.contains_key(&honest));
        // Speaking connections have a limit, too.
        let spoke = (0..8).map(|_| arrivals.come(now, FLOOD).0).collect::<Vec<_>>();
        let displaced = spoke.into_iter().filter_map(|number| arrivals.spoke(now, number)).count();
        assert_eq!(
            (displaced, arrivals.speaking.from.len()),
            (1, 4),
            "four of the eight were displaced in silence"
        );
    }

    #[test]
    fn the_address_with_the_most_connections_makes_room_and_proven_ones_come_last() {
        let (mut arrivals, now) = (arrivals(), Instant::now());
        assert!(arrivals.prove(host(1), 1) && !arrivals.prove(host(1), 1));
        let [known, first, second] =
            [host(1), host(2), host(2)].map(|from| arrivals.come(now, from).0);
        let flood = [FLOOD; 3].map(|from| arrivals.come(now, from).0);
        for (from, leaves) in [(host(3), flood[0]), (host(4), first), (host(5), flood[1])] {
            assert_eq!(number_of(arrivals.come(now, from).1), Some(leaves), "{from}");
        }
        // One connection each: the oldest is closed, except of the address with a proven
        // connection.
        assert_eq!(number_of(arrivals.come(now, host(6)).1), Some(second));
        assert!(arrivals.silent.from.contains_key(&known));
        arrivals.end_proven(host(1));
        assert_eq!(number_of(arrivals.come(now, host(7)).1), Some(known));
    }

    #[test]
    fn a_flood_is_told_once_until_it_is_quiet() {
        let (mut arrivals, now) = (arrivals(), Instant::now());
        let mut told = |after: Duration| {
            arrivals.come(now + after, FLOOD).1.and_then(|displaced| displaced.flood)
        };
        assert_eq!([0; 4].map(|_| told(Duration::ZERO)), [None; 4]);
        assert_eq!(told(Duration::ZERO), Some(Flood { from: FLOOD, connections: 4 }));
        assert_eq!(told(Duration::from_secs(1)), None);
        assert_eq!(told(QUIET), None, "the pause was too short");
        assert!(told(QUIET * 2).is_some());
    }

    #[test]
    fn an_address_is_one_host() {
        assert_eq!(origin("::ffff:10.0.0.66".parse().unwrap()), FLOOD);
        assert_eq!(
            origin("2001:db8:1:2:3:4:5:6".parse().unwrap()),
            "2001:db8:1:2::".parse::<IpAddr>().unwrap()
        );
    }

    #[test]
    fn closed_connections_are_forgotten() {
        let admission = Admission::with_bounds("test", 2, 2);
        let (closed, is_closed) = std::sync::mpsc::channel();
        let enter = |name| {
            let closed = closed.clone();
            admission.enter(FLOOD, move || closed.send(name).unwrap())
        };
        let first = enter("first");
        let second = enter("second");
        second.spoke();
        let proven = second.prove();
        drop(first);
        let _others = ["third", "fourth"].map(enter);
        assert!(is_closed.try_recv().is_err());
        let _last = enter("fifth");
        assert_eq!(is_closed.try_iter().collect::<Vec<_>>(), ["third"]);
        drop(proven);
        let state = admission.state();
        assert_eq!(
            (state.closes.len(), state.arrivals.proven.len(), state.arrivals.speaking.from.len()),
            (2, 0, 0)
        );
    }
}
