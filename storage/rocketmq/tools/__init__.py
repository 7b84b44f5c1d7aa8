"""Looking into a RocketMQ store offline: inspect, dump, find, verify, rebuild."""
