"""Verification: queues, index and config files are compared with the log."""
