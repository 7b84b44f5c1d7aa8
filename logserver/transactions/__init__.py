"""The coordinator of transactions.

- `machine`: the states of a transaction and the changes between them, as values; no IO, no clock.
- `ids`: transactional ids, and the ids of single transactions.
- `steps`: which writes a change needs, and in which order.
- `service`: the asynchronous interface for HTTP and for a wire protocol.
"""
