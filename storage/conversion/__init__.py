"""Conversion of a store between the formats: the rule for one record, and the way of all of them.

    rule_to_kafka, rule_to_rocketmq   one message <-> one record; no IO        names: the same for topics
    sources                           what a store holds, partition by partition, as recovery would leave it
    kafka_logs, rocketmq_log          a new store's logs, written in pieces, and the rest made by the engine
    report                            what was converted, encoded, and left out
    converting                        the order of the steps

The one place that knows both backends. Must not change the source.
"""
