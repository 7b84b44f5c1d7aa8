"""The bytes of Kafka's wire protocol: messages, their primitive types and the numbers of errors. No IO."""
