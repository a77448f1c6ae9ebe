//! Flows of bytes over shared links: network cards, disks, a switch, persistent storage. Flows
//! share links max-min fairly: no flow could be faster without slowing down a flow that is not
//! faster than itself.
//!
//! Each link has a *level*: the rate of the flows that it is the bottleneck of. The rate of a flow
//! is the lowest level of its links. A link computes its level from the rates that its flows get
//! elsewhere. Flows that get less than the level elsewhere are *held* to that rate. The others, the
//! link's *own* flows, share the remaining capacity evenly. A link announces a changed level to its
//! flows, and they announce it to their other links, until nothing changes. This is max-min
//! fairness, computed only where something changed (Charny, Clark, Jain: Congestion control
//! with explicit rate indication, 1995).
//!
//! Two things make this fast for thousands of flows on one link. First, the received bytes are not
//! counted for each flow: the link counts the bytes that each of its own flows was served, and a
//! flow ends when that count reaches the flow's mark. A new level moves no mark. Second, a change
//! of level within a tolerance is not announced: capacities and fairness hold up to that tolerance.
//!
//! A flow may be *relayed*: its source is still receiving the same bytes in the flow above. A
//! relayed flow is no faster than the flow above, and ends at least one piece later. While no link
//! bounds it, the difference between the bytes that the two flows lack stays constant, so the bytes
//! of the relayed flow need no count of their own.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use smallvec::SmallVec;

use crate::clock::Ns;

/// Bytes that a relay receives before it can pass them on: the piece size of executors, 128 KiB.
pub const PIECE_BYTES: f64 = 131_072.0;
/// Relative change of a level that is not announced: 0.1 %.
pub const TOLERANCE: f64 = 1e-3;
/// Rounding error of a link's count, in bytes.
const SLACK_BYTES: f64 = 0.5;
/// Most stale marks of a link: this number, plus the number of flows that it times.
const STALE_MARKS: usize = 64;

/// A link between nodes or to a disk or storage, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(u32);

/// A flow that has not ended. Ids are reused after the end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId(u32);

struct Link {
    bytes_per_ns: f64,
    crossing: Vec<Crossing>,
    /// Number of flows in `crossing` that this link is the bottleneck of.
    own: u32,
    /// Sum of the rates of the other flows.
    held: f64,
    /// Lower bound of the rates that own flows get elsewhere, and upper bound of the rates of held
    /// flows.
    least_own: f64,
    most_held: f64,
    /// Rate of each own flow; infinite if there are none.
    level: f64,
    /// The level that was last announced to the flows.
    told: f64,
    /// Bytes that each own flow was served until `since`.
    served: f64,
    since: Ns,
    /// Marks of the flows that this link times. A mark is kept as the bits of a positive float,
    /// which sort as the float does.
    marks: BinaryHeap<Reverse<(u64, FlowId, u64)>>,
    timed: usize,
    /// Number of this link's valid entry in `ends`.
    forecast: u32,
    is_dirty: bool,
    has_moved: bool,
}

/// A flow on a link.
struct Crossing {
    flow: FlowId,
    is_own: bool,
    /// Rate that the flow's other links allow.
    elsewhere: f64,
}

struct Flow {
    /// The flow's links, each with the flow's index in that link's `crossing`.
    way: SmallVec<[(LinkId, u32); 6]>,
    above: Option<FlowId>,
    below: SmallVec<[FlowId; 2]>,
    /// The rate that was last announced to the links.
    rate: f64,
    timer: Timer,
    /// Number of its valid entry in `marks`; 0 if there is none.
    marked: u64,
    tag: u32,
}

/// What bounds a flow, and so determines the bytes that it lacks.
#[derive(Clone, Copy)]
enum Timer {
    /// Not known yet.
    Unknown { lacks: f64 },
    /// A link: the flow ends when the link's count reaches the mark.
    Link { link: LinkId, mark: f64 },
    /// The flow above: this flow lacks `more` bytes than that one.
    Above { more: f64 },
}

/// See the [module's](self) documentation.
pub struct Flows {
    now: Ns,
    tolerance: f64,
    links: Vec<Link>,
    flows: Vec<Option<Flow>>,
    free: Vec<FlowId>,
    dirty: VecDeque<LinkId>,
    to_refresh: Vec<FlowId>,
    moved: Vec<LinkId>,
    /// Number of marks made so far.
    marked: u64,
    /// For each link, the time at which its first flow ends.
    ends: BinaryHeap<Reverse<(Ns, LinkId, u32)>>,
}

impl Flows {
    /// A network without links and flows. Relative changes of a level up to `tolerance` are not
    /// announced.
    pub fn new(tolerance: f64) -> Self {
        Flows {
            now: 0,
            tolerance,
            links: Vec::new(),
            flows: Vec::new(),
            free: Vec::new(),
            dirty: VecDeque::new(),
            to_refresh: Vec::new(),
            moved: Vec::new(),
            marked: 0,
            ends: BinaryHeap::new(),
        }
    }

    /// Adds a link.
    pub fn link(&mut self, bytes_per_s: f64) -> LinkId {
        self.links.push(Link {
            bytes_per_ns: bytes_per_s * 1e-9,
            crossing: Vec::new(),
            own: 0,
            held: 0.0,
            least_own: f64::INFINITY,
            most_held: 0.0,
            level: f64::INFINITY,
            told: f64::INFINITY,
            served: 0.0,
            since: 0,
            marks: BinaryHeap::new(),
            timed: 0,
            forecast: 0,
            is_dirty: false,
            has_moved: false,
        });
        LinkId(self.links.len() as u32 - 1)
    }

    /// Starts a flow of `bytes` over at least one link, each named once. `above` is the flow that
    /// it is relayed from. [`end_by`](Self::end_by) returns `tag` when the flow ends.
    pub fn start(
        &mut self,
        now: Ns,
        bytes: f64,
        links: &[LinkId],
        above: Option<FlowId>,
        tag: u32,
    ) -> FlowId {
        self.now = now;
        let flow = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            FlowId(self.flows.len() as u32 - 1)
        });
        let mut way = SmallVec::new();
        for id in links {
            let link = &mut self.links[id.0 as usize];
            way.push((*id, link.crossing.len() as u32));
            link.crossing.push(Crossing { flow, is_own: true, elsewhere: f64::INFINITY });
            link.own += 1;
            self.mark_dirty(*id);
        }
        if let Some(above) = above {
            self.flow_mut(above).below.push(flow);
        }
        let (below, rate, timer) = (SmallVec::new(), f64::NAN, Timer::Unknown { lacks: bytes });
        let begun = Flow { way, above, below, rate, timer, marked: 0, tag };
        self.flows[flow.0 as usize] = Some(begun);
        self.to_refresh.push(flow);
        flow
    }

    /// Aborts a flow from which no flow is relayed. Returns the bytes that it lacked.
    pub fn stop(&mut self, now: Ns, flow: FlowId) -> f64 {
        self.now = now;
        let lacks = self.lacks(flow);
        let gone = self.remove(flow);
        assert!(gone.below.is_empty(), "what is relayed from a flow is stopped before it");
        lacks
    }

    /// Bytes that a flow has still to receive.
    pub fn lacks(&self, flow: FlowId) -> f64 {
        let (mut flow, mut sum) = (self.flow(flow), 0.0);
        loop {
            match (flow.timer, flow.above) {
                (Timer::Unknown { lacks }, _) => return sum + lacks,
                (Timer::Link { link, mark }, _) => {
                    return sum + (mark - self.served(link)).max(0.0);
                }
                (Timer::Above { more }, above) => {
                    sum += more;
                    flow = self.flow(above.expect("it is bound by the flow above"));
                }
            }
        }
    }

    /// Flows that are relayed from this flow.
    pub fn below(&self, flow: FlowId) -> &[FlowId] {
        &self.flow(flow).below
    }

    /// The tag of a flow.
    pub fn tag(&self, flow: FlowId) -> u32 {
        self.flow(flow).tag
    }

    /// Time at which the next flow ends, if nothing changes. Call [`settle`](Self::settle) after
    /// the last change.
    pub fn next_end(&mut self) -> Option<Ns> {
        while let Some(Reverse((at, link, forecast))) = self.ends.peek() {
            if self.links[link.0 as usize].forecast == *forecast {
                return Some(*at);
            }
            self.ends.pop();
        }
        None
    }

    /// Removes the flows that have ended by `now`, and adds their tags to `ended`.
    pub fn end_by(&mut self, now: Ns, ended: &mut Vec<u32>) {
        while self.next_end().is_some_and(|at| at <= now) {
            self.now = now;
            let Reverse((_, link, _)) = self.ends.pop().expect("looked at above");
            self.note_moved(link);
            let served = self.served(link) + SLACK_BYTES;
            while let Some((_, flow)) = self.first_mark(link).filter(|(mark, _)| *mark <= served) {
                if let Some(above) = self.flow(flow).above {
                    // The flow got ahead of the flow above by changes that were not announced.
                    self.set_timer(flow, Some(link), self.lacks(above) + PIECE_BYTES);
                } else {
                    for below in std::mem::take(&mut self.flow_mut(flow).below) {
                        self.lose_above(below);
                    }
                    ended.push(self.remove(flow).tag);
                }
            }
        }
    }

    /// Makes all rates fair again after the changes of one instant.
    pub fn settle(&mut self) {
        self.refresh_all();
        while let Some(link) = self.dirty.pop_front() {
            self.links[link.0 as usize].is_dirty = false;
            self.find_level(link);
            self.refresh_all();
        }
        while let Some(link) = self.moved.pop() {
            self.links[link.0 as usize].has_moved = false;
            let first = self.first_mark(link);
            let now = self.now;
            let forecast = &mut self.links[link.0 as usize];
            forecast.forecast = forecast.forecast.wrapping_add(1);
            if let Some((mark, _)) = first {
                let ns = ((mark - forecast.served) / forecast.level).max(0.0).ceil();
                let at = forecast.since.saturating_add(ns as u64).max(now);
                self.ends.push(Reverse((at, link, self.links[link.0 as usize].forecast)));
            }
        }
    }

    /// Rate of a flow, in bytes per second.
    pub fn bytes_per_s(&self, flow: FlowId) -> f64 {
        let mut flow = self.flow(flow);
        loop {
            match (flow.timer, flow.above) {
                (Timer::Unknown { .. }, _) => return 0.0,
                (Timer::Link { link, .. }, _) => return self.links[link.0 as usize].level * 1e9,
                (Timer::Above { .. }, above) => {
                    flow = self.flow(above.expect("it is bound by the flow above"))
                }
            }
        }
    }

    // ---- levels

    /// Computes the level of a link, and announces it if it has changed by more than the tolerance.
    fn find_level(&mut self, id: LinkId) {
        let link = &mut self.links[id.0 as usize];
        let level = link.fair_level();
        if level != link.level {
            (link.served, link.since) = (link.served_at(self.now), self.now);
            link.level = level;
            self.note_moved(id);
        }
        let link = &mut self.links[id.0 as usize];
        let is_near = (link.level - link.told).abs() <= self.tolerance * link.told.min(link.level);
        if link.level != link.told && !is_near {
            link.told = link.level;
            self.to_refresh.extend(link.crossing.iter().map(|crossing| crossing.flow));
        }
    }

    fn refresh_all(&mut self) {
        while let Some(flow) = self.to_refresh.pop() {
            self.refresh(flow);
        }
    }

    /// Computes a flow's rate from the announced levels, and announces it to the flow's links and
    /// to the flows relayed from it.
    fn refresh(&mut self, id: FlowId) {
        // The flow may have ended since.
        let Some(flow) = &self.flows[id.0 as usize] else { return };
        // Find the two lowest bounds. The rate of the flow above is the first candidate.
        let above = flow.above.map(|above| (self.flow(above).rate, None));
        let bounds =
            flow.way.iter().map(|(link, _)| (self.links[link.0 as usize].told, Some(*link)));
        let (mut least, mut next, mut bound) = (f64::INFINITY, f64::INFINITY, None);
        for (rate, by) in above.into_iter().chain(bounds) {
            if rate < least {
                (next, least, bound) = (least, rate, by);
            } else if rate < next {
                next = rate;
            }
        }
        let is_above = flow.above.is_some() && bound.is_none() && least.is_finite();
        let has_changed = flow.rate != least;
        let is_timed_so = match flow.timer {
            Timer::Unknown { .. } => bound.is_none() && !is_above,
            Timer::Link { link, .. } => bound == Some(link),
            Timer::Above { .. } => is_above,
        };
        for place in 0..flow.way.len() {
            let (link, crossing) = self.flow(id).way[place];
            self.tell(link, crossing as usize, if bound == Some(link) { next } else { least });
        }
        if !is_timed_so {
            self.set_timer(id, bound, self.lacks(id));
        }
        let flow = self.flows[id.0 as usize].as_mut().expect("looked at above");
        flow.rate = least;
        if has_changed {
            self.to_refresh.extend(&flow.below);
        }
    }

    /// The flow's other links allow another rate.
    fn tell(&mut self, id: LinkId, place: usize, elsewhere: f64) {
        let link = &mut self.links[id.0 as usize];
        let crossing = &mut link.crossing[place];
        let before = std::mem::replace(&mut crossing.elsewhere, elsewhere);
        if crossing.is_own {
            link.least_own = link.least_own.min(elsewhere);
            if elsewhere >= link.level {
                return;
            }
            crossing.is_own = false;
            link.own -= 1;
            link.held += elsewhere;
        } else if before != elsewhere {
            link.held += elsewhere - before;
        } else {
            return;
        }
        link.most_held = link.most_held.max(elsewhere);
        self.mark_dirty(id);
    }

    fn mark_dirty(&mut self, id: LinkId) {
        if !std::mem::replace(&mut self.links[id.0 as usize].is_dirty, true) {
            self.dirty.push_back(id);
        }
    }

    // ---- ends

    fn remove(&mut self, id: FlowId) -> Flow {
        self.leave_timer(id);
        let gone = self.flows[id.0 as usize].take().expect("only flows that are there end");
        for (link, place) in &gone.way {
            let crossings = &mut self.links[link.0 as usize];
            crossings.leave(*place as usize);
            if let Some(Crossing { flow: moved, .. }) = crossings.crossing.get(*place as usize) {
                let moved = *moved;
                let way = &mut self.flow_mut(moved).way;
                way.iter_mut().find(|(other, _)| other == link).expect("it crosses the link").1 =
                    *place;
            }
            self.mark_dirty(*link);
        }
        if let Some(above) = gone.above {
            self.flow_mut(above).below.retain(|below| *below != id);
        }
        self.free.push(id);
        gone
    }

    /// The flow above has ended: its node has all bytes now.
    fn lose_above(&mut self, id: FlowId) {
        let lacks = self.lacks(id).max(PIECE_BYTES);
        self.flow_mut(id).above = None;
        self.leave_timer(id);
        self.flow_mut(id).timer = Timer::Unknown { lacks };
        self.to_refresh.push(id);
    }

    /// Lets a link, or the flow above, time a flow that lacks `lacks` bytes.
    fn set_timer(&mut self, id: FlowId, by: Option<LinkId>, lacks: f64) {
        self.leave_timer(id);
        let timer = match (by, self.flow(id).above) {
            (Some(link), _) => Timer::Link { link, mark: lacks + self.served(link) },
            (None, Some(above)) => Timer::Above { more: (lacks - self.lacks(above)).max(0.0) },
            (None, None) => Timer::Unknown { lacks },
        };
        self.flow_mut(id).timer = timer;
        if let Timer::Link { link, mark } = timer {
            self.mark(link, id, mark);
        }
    }

    /// Adds the mark on a link's count at which a flow ends.
    fn mark(&mut self, id: LinkId, flow: FlowId, mark: f64) {
        self.marked += 1;
        self.flow_mut(flow).marked = self.marked;
        self.note_moved(id);
        let link = &mut self.links[id.0 as usize];
        link.marks.push(Reverse((mark.to_bits(), flow, self.marked)));
        link.timed += 1;
        if link.marks.len() > 2 * link.timed + STALE_MARKS {
            let mut marks = std::mem::take(&mut link.marks);
            marks.retain(|Reverse((_, flow, marked))| self.is_marked(*flow, *marked));
            self.links[id.0 as usize].marks = marks;
        }
    }

    /// The flow is no longer timed.
    fn leave_timer(&mut self, id: FlowId) {
        if let Timer::Link { link, .. } = self.flow(id).timer {
            self.flow_mut(id).marked = 0;
            self.links[link.0 as usize].timed -= 1;
            self.note_moved(link);
        }
    }

    /// The first valid mark on a link's count, and its flow.
    fn first_mark(&mut self, link: LinkId) -> Option<(f64, FlowId)> {
        while let Some(Reverse((mark, flow, marked))) =
            self.links[link.0 as usize].marks.peek().copied()
        {
            if self.is_marked(flow, marked) {
                return Some((f64::from_bits(mark), flow));
            }
            self.links[link.0 as usize].marks.pop();
        }
        None
    }

    /// Whether a mark is the flow's valid one.
    fn is_marked(&self, flow: FlowId, marked: u64) -> bool {
        self.flows[flow.0 as usize].as_ref().is_some_and(|flow| flow.marked == marked)
    }

    fn note_moved(&mut self, id: LinkId) {
        if !std::mem::replace(&mut self.links[id.0 as usize].has_moved, true) {
            self.moved.push(id);
        }
    }

    fn served(&self, link: LinkId) -> f64 {
        self.links[link.0 as usize].served_at(self.now)
    }

    fn flow(&self, id: FlowId) -> &Flow {
        self.flows[id.0 as usize].as_ref().expect("the flow has not ended")
    }

    fn flow_mut(&mut self, id: FlowId) -> &mut Flow {
        self.flows[id.0 as usize].as_mut().expect("the flow has not ended")
    }
}

impl Link {
    fn served_at(&self, now: Ns) -> f64 {
        // A flow with an infinite level is given another one before time advances.
        if self.level.is_finite() {
            self.served + self.level * (now - self.since) as f64
        } else {
            self.served
        }
    }

    /// The level at which the flows use up the capacity; infinite if they cannot.
    fn fair_level(&mut self) -> f64 {
        let level = self.even_share();
        let still_stands = if self.own == 0 {
            self.held <= self.bytes_per_ns * (1.0 + f64::EPSILON * 1024.0)
        } else {
            self.most_held <= level && level <= self.least_own
        };
        if still_stands {
            return level;
        }
        // Start with all flows as own flows. The level only rises until no more flows are held
        // elsewhere.
        (self.own, self.held, self.most_held) = (self.crossing.len() as u32, 0.0, 0.0);
        self.crossing.iter_mut().for_each(|crossing| crossing.is_own = true);
        loop {
            let (level, own_before) = (self.even_share(), self.own);
            self.least_own = f64::INFINITY;
            for crossing in self.crossing.iter_mut().filter(|crossing| crossing.is_own) {
                if crossing.elsewhere < level {
                    crossing.is_own = false;
                    self.own -= 1;
                    self.held += crossing.elsewhere;
                    self.most_held = self.most_held.max(crossing.elsewhere);
                } else {
                    self.least_own = self.least_own.min(crossing.elsewhere);
                }
            }
            if self.own == own_before || self.own == 0 {
                return self.even_share();
            }
        }
    }

    fn even_share(&self) -> f64 {
        if self.own == 0 {
            f64::INFINITY
        } else {
            (self.bytes_per_ns - self.held).max(0.0) / f64::from(self.own)
        }
    }

    /// Removes a flow from the link.
    fn leave(&mut self, place: usize) {
        let gone = self.crossing.swap_remove(place);
        if gone.is_own {
            self.own -= 1;
        } else {
            self.held -= gone.elsewhere;
        }
        if self.crossing.is_empty() {
            (self.held, self.least_own, self.most_held) = (0.0, f64::INFINITY, 0.0);
        }
    }
}

#[cfg(test)]
mod tests;
