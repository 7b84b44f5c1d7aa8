"""Log compaction (Kafka's LogCleaner): of each key, a partition keeps the newest record."""
