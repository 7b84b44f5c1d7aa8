"""Verification: every file is compared with the log."""
