"""The commit log: a sequence of files, the records in them, and the walk through them."""
