"""The transactions that compaction meets on its way through a log (Kafka's CleanedTransactionMetadata).

Owns the decision which batches belong to aborted transactions, and when the marker of a transaction has no data left;
must not read files. The aborted transactions are known before the walk, from the segments' transaction indexes.
"""

from __future__ import annotations

from collections.abc import Iterable

from storage.kafka.format.batch import ABORT, COMMIT, BatchHeader, ControlMarker
from storage.kafka.format.txn_index import AbortedTransaction


class CleanedTransactions:
    """The state of one walk, which begins at any batch and meets all later batches in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # The next transaction to begin is the last of the list.
        self._to_come = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer id
        self._aborted_with_data: set[int] = set()
        self._committed_with_data: set[int] = set()

    def meet_data(self, header: BatchHeader) -> bool:
        """Return whether a data batch belongs to an aborted transaction, so that its records go."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._aborted_with_data.add(header.producer_id)
            return True
        self._committed_with_data.add(header.producer_id)
        return False

    def meet_marker(
        self, header: BatchHeader, marker: ControlMarker | None
    ) -> tuple[bool, AbortedTransaction | None]:
        """Return whether no data of the marker's transaction is left, and the entry that the transaction index keeps.

        `marker` None: an earlier pass emptied the batch. The walk has met the data that is left: it began at the
        start of the log.
        """
        self._begin_up_to(header.last_offset)
        if marker is None:
            return True, None
        producer_id = header.producer_id
        if marker.type == ABORT:
            entry = self._aborted.pop(producer_id, None)
            had_data = producer_id in self._aborted_with_data
            self._aborted_with_data.discard(producer_id)
            return not had_data, entry if had_data else None
        if marker.type == COMMIT:
            had_data = producer_id in self._committed_with_data
            self._committed_with_data.discard(producer_id)
            return not had_data, None
        return False, None

    def _begin_up_to(self, offset: int) -> None:
        while self._to_come and self._to_come[-1].first_offset <= offset:
            entry = self._to_come.pop()
            self._aborted.setdefault(entry.producer_id, entry)
