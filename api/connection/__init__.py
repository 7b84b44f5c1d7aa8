"""A connection: the protocol, handshakes, bodies, delivery and headers."""
