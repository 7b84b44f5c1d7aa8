"""Derived files of the log: consume queues and the key index, and the dispatcher that builds them."""
