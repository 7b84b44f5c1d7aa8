"""Rebuilding: derived files are made from the log."""
