"""A store as Kafka clients see it: the contract, and its implementations for the formats.

Owns what stands between a front end of Kafka's protocol and a backend; must not know that protocol.
"""
