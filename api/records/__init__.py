"""Records in bodies and answers: read from JSON, NDJSON and v3, written as JSON, NDJSON and events."""
