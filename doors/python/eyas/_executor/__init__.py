"""The executor of a client: what it sends, its futures, and the thread that receives results."""
