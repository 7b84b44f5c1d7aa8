"""The coordinator of transactions.

- `machine`: the states of a transaction and the changes between them, as values; no IO, no clock.
- `steps`: which writes a change needs, and in which order.
- `service`: the asynchronous interface for HTTP and for a wire protocol.
"""
