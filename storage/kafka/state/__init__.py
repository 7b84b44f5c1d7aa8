"""What a log directory is besides its logs: settings, identity, topics, epochs and producers."""
