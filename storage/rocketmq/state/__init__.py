"""What a store directory is besides its records: settings, config files, topics and group offsets."""
