"""CRC-32C (Castagnoli), the checksum of Kafka's batches and snapshots. Owns the choice of the library, nothing else.

`crc32c(data, value=0)` takes any buffer (a memoryview saves the copy) and goes on from `value`, an earlier result.
"""

from crc32c import crc32c as crc32c
