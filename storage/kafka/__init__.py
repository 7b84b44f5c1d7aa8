"""The Kafka backend: reads and writes log directories in the real broker's format, one module per part of it."""
