"""Groups of Kafka's classic protocol: members assign partitions among themselves.

Owns the members of such groups and their generations, and the bytes by which consumers describe themselves. Must not
know the bytes of a request.
"""
