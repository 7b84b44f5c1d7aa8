"""Codecs between bytes and values: one module for each kind of file of a RocketMQ store; no IO."""
