"""The RocketMQ backend: one commit log, consume queues over it and a key index, as RocketMQ 5.5.0 keeps them."""
