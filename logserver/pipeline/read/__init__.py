"""Reading: the records of a store as a DataFrame, or as a stream of micro-batches.

options   the options of a read               schema    the columns, as Spark's Kafka source has them
ranges    partitions and offsets of a read    pruning   filters that narrow them
batch     Spark's readers of a batch          stream    Spark's reader of a stream
arrow     the columns of a split as Arrow record batches
"""
