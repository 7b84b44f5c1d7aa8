"""Kafka's bytes: one module per file kind, bytes in and values out. Must not open, read or write any file."""
