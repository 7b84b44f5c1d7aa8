"""CRC-32C (Castagnoli), the checksum of Kafka's batches and snapshots. Owns the choice of the library only.

`crc32c(data, value=0)` accepts any buffer (a memoryview avoids a copy) and continues from `value`, an earlier result.
"""

from crc32c import crc32c as crc32c
