"""The Kafka backend: a log directory as the real broker writes it, one module per part of it."""
