"""Kafka's byte formats: one module per file kind, bytes in and values out. Must not open, read or write any file."""
