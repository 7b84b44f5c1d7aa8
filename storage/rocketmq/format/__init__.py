"""Bytes in, values out: one module per kind of file of a RocketMQ store; no IO."""
