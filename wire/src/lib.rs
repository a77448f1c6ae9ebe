//! Versioned messages and their byte codec.
