"""The start: examine the store, repair after an unclean stop, open."""
