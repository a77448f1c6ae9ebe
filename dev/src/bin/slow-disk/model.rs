//! Model of a disk: when a request is done. A pure decision without clock or I/O.
//!
//! The disk serves requests in the order of arrival and never reorders them; its users are judged
//! by their order. Bytes are transferred at the disk's rate. A request that does not begin at the
//! byte after the previous request, in the same file, costs a seek. A limit on requests a second is
//! a minimum duration of each.
//!
//! A disk with several channels is like several disks with the same files: a request goes to the
//! channel that is free first. If files are striped, each channel has its stripes only, and a
//! request is done when all channels have served their parts of it.
//!
//! Changes of folders are served one at a time, apart from the channels: by one server of metadata,
//! which holds a folder's lock.

/// Costs of the disk. A rate of 0 is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    pub seek_ns: u64,
    pub bytes_per_s: u64,
    /// Rate of writes.
    pub written_bytes_per_s: u64,
    /// What a request costs in addition that begins at the first byte of a file: finding the file.
    pub open_ns: u64,
    /// Duration of a change of a folder.
    pub change_ns: u64,
    pub least_ns: u64,
    pub channels: u64,
    /// Bytes of a stripe; 0: files are not striped over the channels.
    pub stripe_bytes: u64,
}

impl Rates {
    /// Costs of a disk whose files are not striped, which writes as fast as it reads, and finds
    /// files and changes folders at once.
    pub fn new(seek_ms: f64, megabytes_per_second: f64, iops: f64, channels: u64) -> Self {
        let bytes_per_s = (megabytes_per_second * 1e6) as u64;
        Self {
            stripe_bytes: 0,
            seek_ns: (seek_ms * 1e6) as u64,
            bytes_per_s,
            written_bytes_per_s: bytes_per_s,
            open_ns: 0,
            change_ns: 0,
            least_ns: if iops > 0.0 { (1e9 / iops) as u64 } else { 0 },
            channels,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

/// A range of bytes of a numbered file.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub direction: Direction,
    pub file: u64,
    pub offset: u64,
    pub bytes: u64,
}

/// A channel serves one request at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    pub free_at_ns: u64,
    /// File and end of the last request.
    pub file: u64,
    pub end: u64,
}

/// State and counters of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// At least one.
    pub channels: Vec<Channel>,
    pub requests: u64,
    pub seeks: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub busy_ns: u64,
    /// When the server of metadata is free, and the changes of folders that it has served.
    pub changing_until_ns: u64,
    pub changes: u64,
}

/// Transfer time.
pub fn bytes_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000).checked_div(bytes_per_s.into()).unwrap_or(0) as u64
}

impl Disk {
    /// A disk that has served nothing.
    pub fn new(rates: &Rates) -> Self {
        let channels = vec![Channel::default(); rates.channels.max(1) as usize];
        Disk {
            channels,
            requests: 0,
            seeks: 0,
            read_bytes: 0,
            written_bytes: 0,
            busy_ns: 0,
            changing_until_ns: 0,
            changes: 0,
        }
    }

    /// Serves a change of a folder that arrives now. Returns when it is done.
    pub fn change(&mut self, rates: &Rates, now_ns: u64) -> u64 {
        self.changes += 1;
        self.changing_until_ns = self.changing_until_ns.max(now_ns) + rates.change_ns;
        self.changing_until_ns
    }

    /// Serves a request that arrives now. Returns when it is done.
    pub fn serve(&mut self, rates: &Rates, now_ns: u64, request: Request) -> u64 {
        if rates.stripe_bytes == 0 {
            let free = (0..self.channels.len()).min_by_key(|at| self.channels[*at].free_at_ns);
            return self.serve_at(free.expect("there is always one"), rates, now_ns, request);
        }
        let (stripe, channels) = (rates.stripe_bytes, self.channels.len() as u64);
        let (mut at, end, mut done_ns) = (request.offset, request.offset + request.bytes, now_ns);
        while at < end {
            let number = at / stripe;
            let bytes = (stripe - at % stripe).min(end - at);
            // The stripes of a channel follow each other there.
            let offset = number / channels * stripe + at % stripe;
            let part = Request { offset, bytes, ..request };
            let channel = (number % channels) as usize;
            done_ns = done_ns.max(self.serve_at(channel, rates, now_ns, part));
            at += bytes;
        }
        done_ns
    }

    /// Serves a request at this channel.
    fn serve_at(&mut self, at: usize, rates: &Rates, now_ns: u64, request: Request) -> u64 {
        let channel = &mut self.channels[at];
        let goes_on = (channel.file, channel.end) == (request.file, request.offset);
        let seek_ns = if goes_on { 0 } else { rates.seek_ns };
        let open_ns = if request.offset == 0 { rates.open_ns } else { 0 };
        let bytes_per_s = match request.direction {
            Direction::Read => rates.bytes_per_s,
            Direction::Write => rates.written_bytes_per_s,
        };
        let transfer_ns = bytes_ns(request.bytes, bytes_per_s);
        let cost_ns = (seek_ns + open_ns + transfer_ns).max(rates.least_ns);
        self.requests += 1;
        self.seeks += u64::from(!goes_on);
        match request.direction {
            Direction::Read => self.read_bytes += request.bytes,
            Direction::Write => self.written_bytes += request.bytes,
        }
        self.busy_ns += cost_ns;
        let free_at_ns = channel.free_at_ns.max(now_ns) + cost_ns;
        *channel = Channel { free_at_ns, file: request.file, end: request.offset + request.bytes };
        free_at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn read(file: u64, offset: u64, bytes: u64) -> Request {
        Request { direction: Direction::Read, file, offset, bytes }
    }

    #[test]
    fn stripes_are_served_at_the_same_time() {
        let rates = Rates { stripe_bytes: 100_000, ..Rates::new(8.0, 100.0, 0.0, 2) };
        let mut disk = Disk::new(&rates);
        // Two stripes of one channel and one of the other.
        assert_eq!(disk.serve(&rates, 0, read(1, 0, 300_000)), 10 * MS);
        assert_eq!(disk.seeks, 2);
        assert_eq!(disk.serve(&rates, 10 * MS, read(1, 300_000, 100_000)), 11 * MS, "it goes on");
        assert_eq!(disk.serve(&rates, 20 * MS, read(1, 0, 1)), 28 * MS + 10);
        assert_eq!(disk.serve(&rates, 20 * MS, read(1, 400_000, 100_000)), 37 * MS + 10);
        assert_eq!((disk.seeks, disk.requests), (4, 6));
    }

    #[test]
    fn only_sequential_requests_are_spared_the_seek() {
        let rates = Rates::new(8.0, 100.0, 0.0, 1);
        let mut disk = Disk::new(&rates);
        let cases = [
            (read(1, 0, 100_000), 9),       // the first
            (read(1, 100_000, 100_000), 1), // the next bytes
            (read(1, 200_001, 100_000), 9), // one byte left out
            (read(1, 300_000, 100_000), 9), // one byte again
            (read(2, 400_000, 100_000), 9), // another file
        ];
        for (request, cost_ms) in cases {
            let before = disk.channels[0].free_at_ns;
            assert_eq!(disk.serve(&rates, 0, request), before + cost_ms * MS, "{request:?}");
        }
        assert_eq!(
            (disk.requests, disk.seeks, disk.read_bytes, disk.written_bytes),
            (5, 4, 500_000, 0)
        );
        assert_eq!(disk.busy_ns, 37 * MS);
    }

    #[test]
    fn an_idle_disk_begins_when_it_is_asked() {
        let rates = Rates::new(8.0, 100.0, 0.0, 1);
        let mut disk = Disk::new(&rates);
        assert_eq!(disk.serve(&rates, 50 * MS, read(1, 0, 100_000)), 59 * MS);
        assert_eq!(disk.serve(&rates, 51 * MS, read(1, 100_000, 100_000)), 60 * MS);
        assert_eq!(disk.serve(&rates, 100 * MS, read(1, 200_000, 100_000)), 101 * MS);
    }

    #[test]
    fn a_cap_on_requests_is_a_least_time() {
        let rates = Rates::new(0.0, 100.0, 500.0, 1);
        let mut disk = Disk::new(&rates);
        assert_eq!(disk.serve(&rates, 0, read(1, 0, 4096)), 2 * MS);
        assert_eq!(disk.serve(&rates, 0, read(1, 4096, 1_000_000)), 12 * MS);
    }

    #[test]
    fn without_rates_nothing_costs_time() {
        let write = Request { direction: Direction::Write, ..read(1, 7, 1 << 40) };
        let rates = Rates::new(0.0, 0.0, 0.0, 1);
        let mut disk = Disk::new(&rates);
        assert_eq!(disk.serve(&rates, 5, write), 5);
        assert_eq!(disk.written_bytes, 1 << 40);
    }

    #[test]
    fn writes_first_bytes_and_changes_of_folders_have_costs_of_their_own() {
        let rates = Rates {
            written_bytes_per_s: 50_000_000,
            open_ns: 6 * MS,
            change_ns: 12 * MS,
            ..Rates::new(0.0, 100.0, 0.0, 1)
        };
        let mut disk = Disk::new(&rates);
        assert_eq!(disk.serve(&rates, 0, read(1, 0, 100_000)), 7 * MS, "the file is found first");
        assert_eq!(disk.serve(&rates, 7 * MS, read(1, 100_000, 100_000)), 8 * MS);
        let write = Request { direction: Direction::Write, ..read(2, 100_000, 100_000) };
        assert_eq!(disk.serve(&rates, 8 * MS, write), 10 * MS);
        // Changes wait for each other, and not for reads and writes.
        assert_eq!([disk.change(&rates, 0), disk.change(&rates, 0)], [12 * MS, 24 * MS]);
        assert_eq!(disk.change(&rates, 100 * MS), 112 * MS);
        assert_eq!(disk.changes, 3);
    }

    #[test]
    fn channels_serve_at_the_same_time() {
        let rates = Rates::new(8.0, 100.0, 0.0, 2);
        let mut disk = Disk::new(&rates);
        let done_ms: Vec<u64> = [0, 200_000, 100_000]
            .map(|offset| disk.serve(&rates, 0, read(1, offset, 100_000)) / MS)
            .into();
        assert_eq!(done_ms, [9, 9, 10], "the third goes on where the first ended");
    }
}
