"""The log of a partition: segments, the batches in them, appends and reads."""
