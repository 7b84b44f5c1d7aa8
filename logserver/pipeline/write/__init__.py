"""Writing: a DataFrame, or a stream of DataFrames, into a store's directory or a running server.

options   the options of a write              columns   the columns that a row may have
rows      Arrow to records, by partition      leftovers folders of jobs that no longer run
store     into a directory: tasks stage files, the driver commits them
server    over HTTP: tasks send, each request with a producer's sequence
"""
