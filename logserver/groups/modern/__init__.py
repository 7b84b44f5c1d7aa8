"""Groups of Kafka's new protocol (KIP-848): the server assigns partitions, and members take and give them up.

Owns the members of such groups, their epochs, and the assignors. Must not know the bytes of a request.
"""
