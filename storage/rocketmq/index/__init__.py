"""What is built from the log: consume queues and the key index, and the dispatcher that builds them."""
