//! Authenticated, framed TLS connections between eyas processes.
