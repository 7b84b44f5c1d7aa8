"""Consumer groups: who reads which partition, from where, and what a group has committed.

Owns membership, assignment, consumer instances and the way of offsets to the store. Must not know
HTTP: every front end uses the same groups. The server assigns (as Kafka's KIP-848 does); members
are told of a new assignment and need no protocol of their own.
"""
