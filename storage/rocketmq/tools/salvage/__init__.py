"""Salvage: what can be read is copied to a new directory."""
