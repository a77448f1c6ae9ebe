//! Which class is next: mClock (Gulati, Merchant and Varman 2010), the quality of service that
//! io-coordination §8 asks for.
//!
//! Each class has three tags. Each tag advances by what the class is granted, divided by what the
//! class is to have:
//!
//! - the *reservation tag* is a time: if it has passed, the class has had less than its reservation
//!   and goes first;
//! - the *limit tag* is a time: until it has passed, the class has had its limit and must wait;
//! - the *weight tag* counts bytes divided by the weight: among the remaining classes the smallest
//!   goes first.
//!
//! The server has a [`VirtualTime`], as in start-time fair queuing (Goyal, Vin and Cheng 1996): the
//! weight tag from which the last grant was counted. A class that has requests again starts from
//! there, also if no other class has requests at that moment. So the share of a class is about the
//! time in which it has requests, and never about the past.
//!
//! Example: classes A, with a reservation of 40 MB/s, B, with a limit of 10 MB/s, and C, with
//! weight 100, all want more than the server's 100 MB/s. A gets 40, B gets 10 at most, C the rest.
//! What a class gets by its weight does not count against its reservation.

use crate::config::ClassQos;
use crate::rate::duration_us;

/// Bytes divided by a weight, in units of 2^-20 bytes, so that small requests and large weights
/// divide well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WeightedBytes(u128);

impl WeightedBytes {
    const UNITS_PER_BYTE: u128 = 1 << 20;

    fn add(&mut self, bytes: u64, weight: u32) {
        self.0 += u128::from(bytes) * Self::UNITS_PER_BYTE / u128::from(weight.max(1));
    }
}

/// The tags of one class.
#[derive(Debug, Default)]
pub(crate) struct ClassTags {
    qos: ClassQos,
    reservation_tag_us: u64,
    limit_tag_us: u64,
    weight_tag: WeightedBytes,
}

/// Weight tag of the last grant, before the grant was counted. It never goes back.
///
/// For example, B alone has had 10,000 grants of 1 MB, and A asks for the first time while B's last
/// grant is under way and no request waits. The virtual time is 9,999 MB, and A starts there. From
/// 0 on, A would have 10,000 grants before B had another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VirtualTime(WeightedBytes);

impl VirtualTime {
    /// One of these classes, which have requests, is about to be granted something. The time is the
    /// smallest weight tag of those within their limits, which is the class's own if it was chosen
    /// by its weight. A grant by reservation says nothing of the weights: with 40 MB/s reserved and
    /// a weight of 1, a class soon has a tag far beyond that of a class with weight 100.
    pub fn advance<'a>(&mut self, now_us: u64, classes: impl Iterator<Item = &'a ClassTags>) {
        let within_limit = classes.filter(|tags| tags.limit_tag_us <= now_us);
        self.0 = within_limit
            .map(|tags| tags.weight_tag)
            .min()
            .map_or(self.0, |least| self.0.max(least));
    }

    /// The server is idle: no class has requests, and none is being executed. From now on all
    /// classes start alike, including those that reservations gave more than their shares.
    pub fn idle<'a>(&mut self, classes: impl Iterator<Item = &'a ClassTags>) {
        self.0 = classes.map(|tags| tags.weight_tag).fold(self.0, Ord::max);
    }
}

/// The tag by which a class was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChosenBy {
    Reservation,
    Weight,
}

impl ClassTags {
    pub fn new(qos: ClassQos) -> Self {
        ClassTags { qos, ..ClassTags::default() }
    }

    /// The class has requests again. Unused rate is not saved up: no tag stays in the past. For
    /// example, where the virtual time is 1 GB, a class that has had nothing so far begins at 1 GB.
    pub fn wake(&mut self, now_us: u64, virtual_time: VirtualTime) {
        self.reservation_tag_us = self.reservation_tag_us.max(now_us);
        self.limit_tag_us = self.limit_tag_us.max(now_us);
        self.weight_tag = self.weight_tag.max(virtual_time.0);
    }

    /// Counts a grant to the class. For example a grant of 1 MB moves the reservation tag of a
    /// class with 40 MB/s by 25,000 us, the limit tag of a class with 10 MB/s by 100,000 us, and
    /// the weight tag of a class with weight 4 by 250,000 bytes.
    pub fn spend(&mut self, chosen_by: ChosenBy, bytes: u64) {
        let ClassQos { reservation_bytes_per_s, limit_bytes_per_s, weight } = self.qos;
        if let (ChosenBy::Reservation, Some(per_s)) = (chosen_by, reservation_bytes_per_s) {
            self.reservation_tag_us =
                self.reservation_tag_us.saturating_add(duration_us(bytes, per_s));
        }
        if let Some(per_s) = limit_bytes_per_s {
            self.limit_tag_us = self.limit_tag_us.saturating_add(duration_us(bytes, per_s));
        }
        self.weight_tag.add(bytes, weight);
    }

    /// Time from which the class has had less than its reservation, if it has one.
    fn reservation_due_us(&self) -> Option<u64> {
        self.qos.reservation_bytes_per_s.map(|_| self.reservation_tag_us)
    }
}

/// The next of the classes that have requests; or, if all have reached their limits, the time at
/// which one may go. `None`: no class has requests.
pub(crate) fn next<'a, Id: Copy + Ord>(
    now_us: u64,
    classes: impl Iterator<Item = (Id, &'a ClassTags)> + Clone,
) -> Option<Result<(Id, ChosenBy), u64>> {
    let reserved = classes.clone().filter_map(|(id, tags)| Some((tags.reservation_due_us()?, id)));
    if let Some((_, id)) = reserved.clone().filter(|(due_us, _)| *due_us <= now_us).min() {
        return Some(Ok((id, ChosenBy::Reservation)));
    }
    let within_limit = classes.clone().filter(|(_, tags)| tags.limit_tag_us <= now_us);
    if let Some((_, id)) = within_limit.map(|(id, tags)| (tags.weight_tag, id)).min() {
        return Some(Ok((id, ChosenBy::Weight)));
    }
    let due_us = reserved.map(|(due_us, _)| due_us);
    Some(Err(classes.map(|(_, tags)| tags.limit_tag_us).chain(due_us).min()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Megabytes a second that each class is granted within ten seconds, if all always want more
    /// than the server has.
    fn granted_mb(classes: &[ClassQos], mb_per_s: u64) -> alloc::vec::Vec<u64> {
        let mut all: alloc::vec::Vec<_> = classes.iter().map(|qos| ClassTags::new(*qos)).collect();
        let mut granted = vec![0; all.len()];
        let mut now_us = 1;
        all.iter_mut().for_each(|tags| tags.wake(now_us, VirtualTime::default()));
        while now_us < 10_000_000 {
            match next(now_us, all.iter().enumerate()).expect("all classes have requests") {
                Ok((class, chosen_by)) => {
                    all[class].spend(chosen_by, 100_000);
                    granted[class] += 1;
                    now_us += 100_000 / mb_per_s;
                }
                Err(until_us) => now_us = until_us,
            }
        }
        granted.iter().map(|granted| granted / 10).collect()
    }

    const PLAIN: ClassQos =
        ClassQos { reservation_bytes_per_s: None, limit_bytes_per_s: None, weight: 1 };

    #[test]
    fn classes_share_by_weight() {
        let granted = granted_mb(&[PLAIN, ClassQos { weight: 3, ..PLAIN }], 100);
        assert!(granted[0].abs_diff(250) <= 1 && granted[1].abs_diff(750) <= 1, "{granted:?}");
    }

    #[test]
    fn reservations_are_met_and_limits_are_kept() {
        let reserved = ClassQos { reservation_bytes_per_s: Some(40_000_000), ..PLAIN };
        let limited = ClassQos { limit_bytes_per_s: Some(10_000_000), ..PLAIN };
        let heavy = ClassQos { weight: 100, ..PLAIN };
        let granted = granted_mb(&[reserved, limited, heavy], 100);
        assert!(granted[0] >= 399 && granted[1] <= 101 && granted[2] >= 480, "{granted:?}");
        let alone = granted_mb(&[limited], 100);
        assert!(alone[0].abs_diff(100) <= 1, "{alone:?}");
    }

    #[test]
    fn an_idle_class_saves_nothing_up() {
        let mut time = VirtualTime::default();
        let (mut busy, mut late) = (ClassTags::new(PLAIN), ClassTags::new(PLAIN));
        busy.wake(0, time);
        for _ in 0..10_000 {
            time.advance(0, [&busy].into_iter());
            busy.spend(ChosenBy::Weight, 1_000_000);
        }
        // Whether the busy class has requests at this moment or not.
        late.wake(5, time);
        time.advance(5, [&late].into_iter());
        late.spend(ChosenBy::Weight, 1_000_000);
        busy.wake(5, time);
        assert_eq!(late.weight_tag, busy.weight_tag);
    }

    #[test]
    fn a_class_that_waits_for_its_limit_does_not_hold_the_virtual_time_back() {
        let mut time = VirtualTime::default();
        let limited = ClassQos { limit_bytes_per_s: Some(1), ..PLAIN };
        let (mut limited, mut busy, mut late) =
            (ClassTags::new(limited), ClassTags::new(PLAIN), ClassTags::new(PLAIN));
        limited.wake(0, time);
        limited.spend(ChosenBy::Weight, 1_000);
        for _ in 0..1_000 {
            time.advance(0, [&limited, &busy].into_iter());
            busy.spend(ChosenBy::Weight, 1_000);
        }
        late.wake(0, time);
        late.spend(ChosenBy::Weight, 1_000);
        assert_eq!(late.weight_tag, busy.weight_tag);
    }

    #[test]
    fn a_grant_by_reservation_does_not_put_new_classes_behind() {
        let mut time = VirtualTime::default();
        let reserved = ClassQos { reservation_bytes_per_s: Some(40_000_000), ..PLAIN };
        let (mut reserved, mut heavy) =
            (ClassTags::new(reserved), ClassTags::new(ClassQos { weight: 100, ..PLAIN }));
        for _ in 0..1_000 {
            time.advance(0, [&reserved, &heavy].into_iter());
            reserved.spend(ChosenBy::Reservation, 1_000_000);
            time.advance(0, [&reserved, &heavy].into_iter());
            heavy.spend(ChosenBy::Weight, 1_000_000);
        }
        let mut late = ClassTags::new(PLAIN);
        late.wake(0, time);
        assert!(late.weight_tag <= heavy.weight_tag && heavy.weight_tag < reserved.weight_tag);
        // Where all are idle, the past is over.
        time.idle([&reserved, &heavy].into_iter());
        heavy.wake(0, time);
        assert_eq!(heavy.weight_tag, reserved.weight_tag);
    }
}
