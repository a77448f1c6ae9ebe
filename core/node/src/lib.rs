//! The executor's decider: slots, store accounting, eviction, staging.
