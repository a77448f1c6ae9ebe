//! The shell around core/sched: sessions and the journal.
