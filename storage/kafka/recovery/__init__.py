"""The start: examine every partition, repair after an unclean stop, open."""
