//! The real `eyas` command, end to end: real processes, sockets and disks, each test with an eyas
//! home of its own.
//!
//! These tests check what users see: arguments go in, text and files come out. Decisions have their
//! tests beside the code that decides. A test waits for facts, each with a deadline, and never for
//! time to pass; it kills only what it started. When a test ends, its [`support::Home`] checks that
//! nothing was left behind.
//!
//! `EYAS_BIN` names the binary to test; without it, this workspace's is built and used.

mod access;
mod apps;
mod bad_data;
mod capi;
mod chains;
mod commands;
mod compressed;
mod copies;
mod crashes;
mod data_diffusion;
mod devices;
mod dfs;
mod dfs_folders;
mod dfs_lost;
mod dfs_many;
mod documents;
mod elements;
mod experiments;
mod failed_outputs;
mod fan_in;
mod floods;
mod following;
mod formats;
mod get;
mod graph;
mod interrupts;
mod io_mount;
mod io_order;
mod io_programs;
mod io_shared;
mod io_unordered;
mod job_files;
mod kept;
mod keys;
mod leftovers;
mod limits;
mod lists;
mod local_clusters;
mod main_job;
mod map;
mod map_steps;
mod matchmaking;
mod messages;
mod mount;
mod mount_at_boot;
mod mount_changes;
mod mount_failures;
mod mount_power;
mod mount_removed;
mod mount_shared;
mod name_space;
mod name_space_copy;
mod name_space_kept;
mod name_space_parts;
mod name_space_register;
mod named_files;
mod network;
mod node_ends;
mod outputs;
mod overlap;
mod partition;
mod patterns;
mod plain_data;
mod pool;
mod pool_systems;
mod printing;
mod push;
mod reasons;
mod reference;
mod reports;
mod restarts;
mod results;
mod resume;
mod reuse;
mod sandboxes;
mod shim;
mod simulation;
mod slow_disk;
mod support;
mod testbed;
mod waiting;
mod web;
mod web_access;
#[path = "../../../data/store/tests/web/mod.rs"]
mod web_server;
mod web_views;
