"""Names of transactions: transactional ids, which clients choose, and the ids of single transactions.

Owns which names a client may choose, the form of an id, and the errors about one; must not know states.
The id of a transaction is `PRODUCER_ID-EPOCH`: each transaction has an epoch of its own.
"""

from __future__ import annotations

from typing import Final

from logserver.errors import TransactionEnded, UnknownTransaction
from logserver.transactions import machine
from storage import ProducerEpoch, TransactionStatus
from storage.errors import InvalidArgument

UNNAMED: Final = "logserver.unnamed."
"""The beginning of the transactional ids of transactions that are begun without one; they are used again and again."""
MAX_ID_CHARACTERS: Final = 25  # 19 digits of a producer id, a hyphen and 5 of an epoch


def check_name(transactional_id: str) -> None:
    """Raise InvalidArgument for a transactional id that a client cannot choose."""
    machine.check_id(transactional_id)
    if transactional_id.startswith(UNNAMED):
        raise InvalidArgument(
            f"transactional_id {transactional_id[:80]!r} begins with {UNNAMED}, which is for transactions without one",
            field="transactional_id",
        )


def id_of(producer: ProducerEpoch) -> str:
    """Return the id of a producer's transaction."""
    return f"{producer.producer_id}-{producer.epoch}"


def parsed_id(transaction_id: str) -> ProducerEpoch:
    """Return the producer of an id. Raises UnknownTransaction for a text that is no id."""
    producer_id, _, epoch = transaction_id.partition("-")
    if len(transaction_id) > MAX_ID_CHARACTERS or not (
        _is_number(producer_id) and _is_number(epoch)
    ):
        raise unknown_id(transaction_id)
    return ProducerEpoch(int(producer_id), int(epoch))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def unknown_id(transaction_id: str) -> UnknownTransaction:
    """Return the error of an id that no transaction has."""
    return UnknownTransaction(
        f"no transaction has the id {transaction_id[:80]!r}", id=transaction_id[:80]
    )


def ended_id(transaction_id: str, status: TransactionStatus | None) -> TransactionEnded:
    """Return the error of a transaction that has ended; `status` None: it is not known how."""
    how = "has ended"
    if status is not None:
        how = "was committed" if status in machine.COMMITS else "was rolled back"
    return TransactionEnded(
        f"transaction {transaction_id} {how}: begin another one",
        id=transaction_id,
        state=None if status is None else status.label,
    )
