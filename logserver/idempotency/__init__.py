"""Requests with a key: each is stored once."""
