"""Kafka's wire protocol in front of the service: the connections of Kafka clients, and an answer to each request."""
