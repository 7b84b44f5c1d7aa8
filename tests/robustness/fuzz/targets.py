"""Every fuzz target by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.robustness.fuzz import codings, kafka_formats, rocketmq_formats
from tests.robustness.fuzz.http_bodies import HTTP
from tests.robustness.fuzz.recovery import STORES
from tests.robustness.fuzz.target import Target
from tests.robustness.fuzz.wire_frames import WIRE

TARGETS: Final[Mapping[str, Target]] = {
    target.name: target
    for target in (
        *(codings.NUMBERS, codings.CODECS),
        *(kafka_formats.BATCHES, kafka_formats.FILES),
        *(rocketmq_formats.MESSAGES, rocketmq_formats.FILES),
        *STORES,
        HTTP,
        WIRE,
    )
}
