"""Search: records by key and time."""
