"""Records of topics that a RocketMQ broker compacts, read from the broker's own logs of them."""
