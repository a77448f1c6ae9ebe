//! Agents and a coordinator that share a storage, under faults: their real state, on one simulated
//! clock.
//!
//! Agents, the coordinator, nodes and programs die and come back, are cut off and are slow. Files
//! are rewritten, shortened and replaced while windows of them are under way. Memory is short;
//! agents of other users, and agents that give parts of other versions, take part. Each read must
//! give what a plain read could have given at that time; no call may wait without an end; and when
//! the programs have ended, no process keeps anything.
//!
//! What they do not try: the library `preload/` and the sessions between agents, which
//! `program.rs` and `world.rs` act out; an agent without a coordinator; several storages, layouts
//! and full tables; two programs that share a descriptor. The first bytes of a piece stand for all
//! of it. `dev/tests/end_to_end/io_*.rs` and `dev/judges/io_nodes.py` run the real programs.
//!
//! `cargo test` tries 60 seeds, or as many as `EYAS_SEEDS=10000` says. `make soak MINUTES=10` tries
//! new ones for that time. `EYAS_SEED=17 make soak` repeats a seed that failed.

mod cases;
mod node;
mod program;
mod storage;
mod world;
