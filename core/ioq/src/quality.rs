//! Which class is next: reservations first, then weights, within limits (mClock, Gulati, Merchant and Varman 2010; the
//! quality of service that io-coordination §8 asks for).
//!
//! Each class has three tags, each a clock that goes on by what it is granted, divided by what it is to have: the
//! reservation's and the limit's are times, so a class is behind its reservation or above its limit if that tag is past or
//! to come; the share's orders classes by weight. What is granted by weight does not count against the reservation.

use crate::budget::duration_us;
use crate::config::Quality;

/// Parts of a byte that shares are counted in, so that weights divide well.
const SHARE: u128 = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Tags {
    quality: Quality,
    reservation_us: u64,
    limit_us: u64,
    pub share: u128,
}

/// By which of its controls a class is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Reservation,
    Weight,
}

impl Tags {
    pub fn new(quality: Quality) -> Self {
        Tags { quality, ..Tags::default() }
    }

    /// It wants something, after it wanted nothing: what it did not use meanwhile is gone. `share` is the least of those who
    /// want something.
    pub fn wake(&mut self, now_us: u64, share: Option<u128>) {
        self.reservation_us = self.reservation_us.max(now_us);
        self.limit_us = self.limit_us.max(now_us);
        self.share = self.share.max(share.unwrap_or(0));
    }

    pub fn spend(&mut self, turn: Turn, bytes: u64) {
        let Quality { reservation_bytes_per_s, limit_bytes_per_s, weight } = self.quality;
        if let (Turn::Reservation, Some(per_s)) = (turn, reservation_bytes_per_s) {
            self.reservation_us = self.reservation_us.saturating_add(duration_us(bytes, per_s));
        }
        if let Some(per_s) = limit_bytes_per_s {
            self.limit_us = self.limit_us.saturating_add(duration_us(bytes, per_s));
        }
        self.share += u128::from(bytes) * SHARE / u128::from(weight.max(1));
    }

    /// From when on it is behind its reservation, if it has any.
    fn reserved_us(&self) -> Option<u64> {
        self.quality.reservation_bytes_per_s.map(|_| self.reservation_us)
    }
}

/// Who is next of those who want something, or when there will be somebody. None: nobody wants anything.
pub(crate) fn next<'a, Id: Copy + Ord>(
    now_us: u64,
    classes: impl Iterator<Item = (Id, &'a Tags)> + Clone,
) -> Option<Result<(Id, Turn), u64>> {
    let reserved = classes.clone().filter_map(|(id, tags)| Some((tags.reserved_us()?, id)));
    if let Some((_, id)) = reserved.clone().filter(|(due_us, _)| *due_us <= now_us).min() {
        return Some(Ok((id, Turn::Reservation)));
    }
    let within_limit = classes.clone().filter(|(_, tags)| tags.limit_us <= now_us);
    if let Some((_, id)) = within_limit.map(|(id, tags)| (tags.share, id)).min() {
        return Some(Ok((id, Turn::Weight)));
    }
    let reserved_us = reserved.map(|(due_us, _)| due_us);
    Some(Err(classes.map(|(_, tags)| tags.limit_us).chain(reserved_us).min()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// What each of some classes that always want more is granted of so many megabytes a second, in ten seconds.
    fn granted_mb(qualities: &[Quality], mb_per_s: u64) -> alloc::vec::Vec<u64> {
        let mut all: alloc::vec::Vec<_> = qualities.iter().map(|quality| Tags::new(*quality)).collect();
        let mut granted = vec![0; all.len()];
        let mut now_us = 1;
        all.iter_mut().for_each(|tags| tags.wake(now_us, None));
        while now_us < 10_000_000 {
            match next(now_us, all.iter().enumerate()).expect("all want something") {
                Ok((class, turn)) => {
                    all[class].spend(turn, 100_000);
                    granted[class] += 1;
                    now_us += 100_000 / mb_per_s;
                }
                Err(until_us) => now_us = until_us,
            }
        }
        granted.iter().map(|granted| granted / 10).collect()
    }

    const PLAIN: Quality = Quality { reservation_bytes_per_s: None, limit_bytes_per_s: None, weight: 1 };

    #[test]
    fn classes_have_what_their_weights_say() {
        let granted = granted_mb(&[PLAIN, Quality { weight: 3, ..PLAIN }], 100);
        assert!(granted[0].abs_diff(250) <= 1 && granted[1].abs_diff(750) <= 1, "{granted:?}");
    }

    #[test]
    fn what_is_reserved_is_had_and_what_is_limited_is_not_passed() {
        let reserved = Quality { reservation_bytes_per_s: Some(40_000_000), ..PLAIN };
        let limited = Quality { limit_bytes_per_s: Some(10_000_000), ..PLAIN };
        let heavy = Quality { weight: 100, ..PLAIN };
        let granted = granted_mb(&[reserved, limited, heavy], 100);
        assert!(granted[0] >= 399 && granted[1] <= 101 && granted[2] >= 480, "{granted:?}");
        let alone = granted_mb(&[limited], 100);
        assert!(alone[0].abs_diff(100) <= 1, "{alone:?}");
    }

    #[test]
    fn who_wanted_nothing_has_nothing_saved_up() {
        let (mut busy, mut late) = (Tags::new(PLAIN), Tags::new(PLAIN));
        busy.wake(0, None);
        (0..1_000).for_each(|_| busy.spend(Turn::Weight, 1_000));
        late.wake(5, Some(busy.share));
        assert_eq!(late.share, busy.share);
    }
}
