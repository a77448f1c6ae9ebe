//! What a pool shows of itself: its counts, its requests, and why each node stays or has left.

use eyas_wire::view::pool::{PoolNodeView, PoolView};

use super::*;

impl Pool {
    pub fn view(&self, now_us: u64, in_full: bool) -> PoolView {
        let (state, why) = match &self.status {
            PoolStatus::Active => ("active", self.backing_off().or_else(|| self.states_failure.clone())),
            PoolStatus::Paused(why) => ("paused", Some(why.clone())),
            PoolStatus::Capped(why) => ("capped", Some(why.clone())),
            PoolStatus::Closing => ("closing", None),
        };
        let draining = self.nodes.values().filter(|node| node.is_draining).count() as u32;
        let requests = self.requests.iter().filter(|_| in_full);
        PoolView {
            pool: self.name.clone(),
            system: self.options.system.clone(),
            state: state.into(),
            why,
            nodes: self.nodes.len() as u32 - draining,
            draining,
            requested: self.provisioner.requested(),
            waits: self.why_requested_wait(now_us),
            wanted: self.provisioner.wanted(),
            waiting: self.waiting,
            min_nodes: self.options.min_nodes,
            max_nodes: self.options.max_nodes,
            nodes_requested: self.counts.nodes_requested,
            nodes_granted: self.counts.nodes_granted,
            nodes_given_back: self.counts.nodes_given_back,
            failures: self.counts.failures,
            node_seconds: self.counts.node_seconds,
            price: self.options.price,
            cost: self.cost(),
            excluded: self.failed_hosts.views(now_us),
            folder: self.folder.path().display().to_string(),
            node_list: self.nodes.values().filter(|_| in_full).map(|node| self.view_node(now_us, node)).collect(),
            departed: self.departed.iter().filter(|_| in_full).cloned().collect(),
            requests: requests.map(|(number, request)| request.view(*number)).collect(),
            events: self.events.iter().filter(|_| in_full).cloned().collect(),
        }
    }

    /// Why no request is made now, if requests have failed.
    fn backing_off(&self) -> Option<String> {
        (self.failures_in_row > 0).then(|| {
            format!(
                "the last {} failed: {}",
                units::format_count(self.failures_in_row.into(), "request"),
                self.last_failure
            )
        })
    }

    fn view_node(&self, now_us: u64, node: &PoolNode) -> PoolNodeView {
        let (state, why) = self.state_of(now_us, node);
        PoolNodeView {
            node: node.name.clone(),
            host: node.host.clone(),
            request: node.request,
            state: state.into(),
            why,
            until_unix_ms: node.until_us / 1000,
        }
    }

    /// The state of a node, and why it stays or leaves.
    fn state_of(&self, now_us: u64, node: &PoolNode) -> (&'static str, String) {
        let idle_us = now_us.saturating_sub(node.idle_since_us);
        let idle = units::format_duration_us(idle_us);
        let timeout = units::format_duration_us(self.options.idle_timeout_us);
        let leaves = node.leaves.as_deref().unwrap_or_default();
        if node.is_released {
            return ("leaving", format!("it was told to stop: {leaves}"));
        }
        if node.is_draining && node.is_busy {
            return ("draining", format!("it leaves after its {}: {leaves}", units::format_count(node.tasks, "task")));
        }
        if node.is_draining {
            return ("draining", format!("it leaves when other nodes have what only it holds: {leaves}"));
        }
        if node.is_busy {
            return ("busy", format!("it has {}", units::format_count(node.tasks, "task")));
        }
        let why = if self.provisioner.staying() <= self.provisioner.wanted() {
            let wanted = units::format_count(self.provisioner.wanted().into(), "node");
            format!("it has had no task for {idle}; the work, or --min-nodes, is worth {wanted}")
        } else if let Some(kept) = self.why_kept(node).filter(|_| idle_us >= self.options.idle_timeout_us) {
            format!("it has had no task for {idle}; {kept}")
        } else {
            format!("it has had no task for {idle}, and leaves after {timeout} (--idle-timeout)")
        };
        ("idle", why)
    }

    /// Why an idle node is worth keeping.
    fn why_kept(&self, node: &PoolNode) -> Option<String> {
        (node.refill_us > 0).then(|| {
            let refill = units::format_duration_us(node.refill_us);
            format!("it is kept for {refill}, because it would take as long to fetch again what only it holds")
        })
    }

    /// Says once of an idle node that it is kept for what it holds.
    pub(super) fn explain_idle(&mut self, now_us: u64, id: ExecutorId) {
        let Some(node) = self.nodes.get(&id) else { return };
        let is_over = !node.is_busy && now_us >= node.idle_since_us + self.options.idle_timeout_us;
        let is_crowded = self.provisioner.staying() > self.provisioner.wanted();
        if node.is_draining || node.is_explained || !is_over || !is_crowded {
            return;
        }
        let Some(text) = self.why_kept(node).map(|kept| format!("node {} stays without tasks: {kept}", node.name))
        else {
            return;
        };
        self.note(now_us, text);
        self.nodes.get_mut(&id).expect("found above").is_explained = true;
    }
}
