"""Conversion of a store between the formats: the rule for one record, and the steps for a whole store.

    mapping                                one message <-> one record; no IO     topic_names: the rule for topics
    message_to_record, record_to_message   the two mappings of the rule          records: records in transit
    request, counters, report              arguments and topics; records that were encoded or left out; the report
    sources                                a store's records, by partition, in the state that recovery would produce
    kafka_writer, rocketmq_writer          a new store's logs, written in pieces; the engine makes all other files
    log_order                              the order of a new RocketMQ log
    kafka_tasks, rocketmq_tasks            the same in parts, side by side
    convert                                the order of the steps

Owns the knowledge of both backends; no other package has it. Must not change the source.
"""
