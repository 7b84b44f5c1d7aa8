"""Consumer groups: the members of a group, their partitions and positions, and its committed offsets.

Owns membership, assignment, consumer instances and the path of offsets to the store. Must not know HTTP: every front
end uses the same groups. The server assigns partitions (like Kafka's KIP-848). It passes a new assignment to the
members, which need no protocol of their own.
"""
