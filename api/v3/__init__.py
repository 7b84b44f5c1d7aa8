"""The shapes of the Kafka REST Proxy's v3 API: records and their reports, clusters and topics. Owns no state; pure."""
