//! The dispatcher's decider: queue, catalog, placement.
