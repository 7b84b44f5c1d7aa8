"""Writing: a DataFrame, or a stream of them, into a store's directory or a running server.

options   what a write was asked for          columns   which columns a row may have
rows      Arrow to records, by partition      errors    what a row is refused with
store     into a directory: tasks stage files, the driver commits them
server    over HTTP: tasks send, each request with a producer's sequence
"""
