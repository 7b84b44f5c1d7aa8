"""Conversion of a store between the formats: the rule for one record, and the steps for a whole store.

    rule                                   one message <-> one record; no IO     topic_names: the rule for topics
    message_in_record, record_in_message   the two mappings of the rule          shapes: records in transit
    sources, column_records                a store's records, by partition, in the state that recovery would produce
    kafka_logs, rocketmq_log               a new store's logs, written in pieces; the engine makes all other files
    segments_in_parts, files_in_parts      the same in parts, side by side       log_in_parts: the steps of the latter
    tally, foresight                       records converted, encoded, left out  earlier: an earlier target
    order, selection                       the arguments; the selected topics
    converting                             the order of the steps

Owns the knowledge of both backends; no other package has it. Must not change the source.
"""
