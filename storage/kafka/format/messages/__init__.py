"""Kafka's messages, read and written by one table of their schemas.

Owns the table (schemas.txt, made by scripts/kafka_schemas from Kafka's jars), the codec that follows it, and the
mapping from records of internal topics to messages; must not do IO except to load its own table. The modules:

    codec    decode and encode a message by name and version: requests, responses, headers, records of internal topics
    schema   the table: fields of a message, in which versions and of which type
    records  key and value of a record in `__consumer_offsets`, `__transaction_state`, `__share_group_state`,
             `__remote_log_metadata` and `__cluster_metadata`, `.checkpoint` snapshots of it included
"""
