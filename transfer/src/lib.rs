//! Serving and fetching objects between nodes.
