"""A client of Kafka brokers with the calls of LogClient, over confluent-kafka (the extra `kafka`)."""
