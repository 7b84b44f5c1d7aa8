"""The sparse indexes of a segment: offset, time and aborted transactions."""
