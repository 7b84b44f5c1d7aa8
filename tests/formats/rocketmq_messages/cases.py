"""One table of commit log records for both directions: bytes that the real RocketMQ 5.5.0 wrote, and their content."""

from __future__ import annotations

from dataclasses import dataclass

from storage.model import RawMessage
from storage.rocketmq.format.message import HOSTS_V6, MAGIC_V1, MAGIC_V2, Message
from storage.rocketmq.format.message_encoding import Placement
from storage.rocketmq.format.scan import records_in, walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A commit log record: its name, its bytes as hexadecimal text, and its content."""

    name: str
    text: str
    message: Message

    @property
    def data(self) -> bytes:
        """The stored bytes."""
        return bytes.fromhex(self.text)

    def __str__(self) -> str:
        return self.name


def new_message(message: Message) -> RawMessage:
    """Return the message that the sender of a stored record gave."""
    return RawMessage(
        body=message.body,
        properties=message.properties,
        flag=message.flag,
        sys_flag=message.sys_flag & ~HOSTS_V6,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )


def placement(message: Message) -> Placement:
    """Return the placement of a stored record."""
    return Placement(
        topic=message.topic.encode(),
        magic=message.magic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        store_timestamp_ms=message.store_timestamp_ms,
        store_host=message.store_host,
    )


def field_positions(message: Message) -> dict[str, tuple[int, int]]:
    """Return (position, size) of each field of a record, computed from the layout drawing alone."""
    born, stored = len(message.born_host), len(message.store_host)
    sizes = {
        "size": 4,
        "magic": 4,
        "body_crc": 4,
        "queue_id": 4,
        "flag": 4,
        "queue_offset": 8,
        "physical_offset": 8,
        "sys_flag": 4,
        "born_timestamp_ms": 8,
        "born_host": born,
        "store_timestamp_ms": 8,
        "store_host": stored,
        "reconsume_times": 4,
        "prepared_transaction_offset": 8,
        "body length": 4,
        "body": len(message.body),
        "topic length": 1 if message.magic == MAGIC_V1 else 2,
        "topic": len(message.topic.encode()),
        "properties length": 2,
        "properties": len(message.properties),
    }
    found = {}
    position = 0
    for name, size in sizes.items():
        found[name] = (position, size)
        position += size
    assert position == message.size
    return found


CASES = [
    Case(
        name="no properties",
        text="0000006e daa320a7 531519f1 00000000 00000000 0000000000000035 0000000000023cde 00000000 "
        "0000018bd0a62a73 0a01020700009c42 0000018bd0a62d4f c0a802c800002a9f 00000000 0000000000000000 "
        "00000009 6974656d2d3838383b 0a 6f726465725f70616964 0000",
        message=Message(
            size=110,
            magic=MAGIC_V1,
            body_crc=1393891825,
            queue_id=0,
            flag=0,
            queue_offset=53,
            physical_offset=146654,
            sys_flag=0,
            born_timestamp_ms=1700012632691,
            born_host=bytes.fromhex("0a01020700009c42"),
            store_timestamp_ms=1700012633423,
            store_host=bytes.fromhex("c0a802c800002a9f"),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"item-888;",
            topic="order_paid",
            properties=b"",
        ),
    ),
    Case(
        name="an empty body, a user's flag",
        text="000000b9 daa320a7 00000000 00000000 496f6e65 0000000000000037 000000000000fc70 00000000 "
        "0000018bd0a3c28b 0a01020700009c42 0000018bd0a3c3ab c0a802c800002a9f 00000000 0000000000000000 "
        "00000000 0a 256f7264657225782d31 0054 "
        "4b455953016b333402554e49515f4b455901394533373739423131384234303030303030453830303030303030303032 "
        "333202726567696f6e0165752d3302574149540166616c73650254414753015461674202",
        message=Message(
            size=185,
            magic=MAGIC_V1,
            body_crc=0,
            queue_id=0,
            flag=1232039525,
            queue_offset=55,
            physical_offset=64624,
            sys_flag=0,
            born_timestamp_ms=1700012475019,
            born_host=bytes.fromhex("0a01020700009c42"),
            store_timestamp_ms=1700012475307,
            store_host=bytes.fromhex("c0a802c800002a9f"),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"",
            topic="%order%x-1",
            properties=b"KEYS\x01k34\x02UNIQ_KEY\x019E3779B118B4000000E8000000000232\x02region\x01eu-3\x02WAIT\x01false\x02TAGS\x01TagB\x02",
        ),
    ),
    Case(
        name="tag, key and unique key",
        text="0000007c daa320a7 666c3671 00000001 00000000 0000000000000058 0000000000009797 00000000 "
        "0000018c15ae405c 0a010c0700009c4c 0000018c15ae41de c0a80cc800002a9f 00000000 0000000000000000 "
        "00000001 69 08 6f726465725f7431 0018 4b45595301686f7420636f6c642d39025441475301543002",
        message=Message(
            size=124,
            magic=MAGIC_V1,
            body_crc=1718367857,
            queue_id=1,
            flag=0,
            queue_offset=88,
            physical_offset=38807,
            sys_flag=0,
            born_timestamp_ms=1701170790492,
            born_host=bytes.fromhex("0a010c0700009c4c"),
            store_timestamp_ms=1701170790878,
            store_host=bytes.fromhex("c0a80cc800002a9f"),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"i",
            topic="order_t1",
            properties=b"KEYS\x01hot cold-9\x02TAGS\x01T0\x02",
        ),
    ),
    Case(
        name="no separator after the last property",
        text="0000008c daa320a7 078810cf 00000000 00000000 0000000000000002 0000000000045194 00000000 "
        "0000018bd21b00d3 0a01040700009c44 0000018bd21b030d c0a804c800002a9f 00000000 0000000000000000 "
        "0000000a 6974656d2d3333373b69 0b 6f726465725f70726f7073 001c "
        "4b455953016e6f656e6402544147530150026c6173740176616c7565",
        message=Message(
            size=140,
            magic=MAGIC_V1,
            body_crc=126357711,
            queue_id=0,
            flag=0,
            queue_offset=2,
            physical_offset=283028,
            sys_flag=0,
            born_timestamp_ms=1700037066963,
            born_host=bytes.fromhex("0a01040700009c44"),
            store_timestamp_ms=1700037067533,
            store_host=bytes.fromhex("c0a804c800002a9f"),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"item-337;i",
            topic="order_props",
            properties=b"KEYS\x01noend\x02TAGS\x01P\x02last\x01value",
        ),
    ),
    Case(
        name="a topic that is no ASCII",
        text="0000011e daa320a7 325fb042 00000000 00000000 0000000000000000 0000000000045220 00000000 "
        "0000018bd21b024c 0a01040700009c44 0000018bd21b033f c0a804c800002a9f 00000000 0000000000000000 "
        "0000000c 6974656d2d3931363b697465 78 "
        "e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298 "
        "e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298 "
        "e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298e4b8bbe9a298 003f "
        "4b45595301e994ae02554e49515f4b455901444141363644313331384234303030303030324130303030303030303030 "
        "3432025441475301e6a087e7adbe02",
        message=Message(
            size=286,
            magic=MAGIC_V1,
            body_crc=845131842,
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=283168,
            sys_flag=0,
            born_timestamp_ms=1700037067340,
            born_host=bytes.fromhex("0a01040700009c44"),
            store_timestamp_ms=1700037067583,
            store_host=bytes.fromhex("c0a804c800002a9f"),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"item-916;ite",
            topic="主题" * 20,
            properties=b"KEYS\x01\xe9\x94\xae\x02UNIQ_KEY\x01DAA66D1318B40000002A000000000042\x02TAGS\x01\xe6\xa0\x87\xe7\xad\xbe\x02",
        ),
    ),
    Case(
        name="prepared: no number in its queue",
        text="000000c9 daa320a7 39053480 00000000 00000000 0000000000000000 000000000000082b 00000004 "
        "0000018bd3935470 0a01060700009c46 0000018bd3935491 c0a806c800002a9f 00000000 0000000000000007 "
        "00000028 6974656d2d3235313b6974656d2d3330373b6974656d2d3332363b6974656d2d3239383b6974656d 08 "
        "6f726465725f7478 003e "
        "4b455953017261772d3702554e49515f4b45590131373135363037353138423430303030303030383030303030303030 "
        "3030303802544147530152415702",
        message=Message(
            size=201,
            magic=MAGIC_V1,
            body_crc=956642432,
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=2091,
            sys_flag=4,
            born_timestamp_ms=1700061729904,
            born_host=bytes.fromhex("0a01060700009c46"),
            store_timestamp_ms=1700061729937,
            store_host=bytes.fromhex("c0a806c800002a9f"),
            reconsume_times=0,
            prepared_transaction_offset=7,
            body=b"item-251;item-307;item-326;item-298;item",
            topic="order_tx",
            properties=b"KEYS\x01raw-7\x02UNIQ_KEY\x011715607518B400000008000000000008\x02TAGS\x01RAW\x02",
        ),
    ),
    Case(
        name="rolled back",
        text="000000ca daa320a7 78ef3093 00000000 00000000 0000000000000000 00000000000013b8 0000000c "
        "0000018bd39395ea 0a01060700009c46 0000018bd3939756 c0a806c800002a9f 00000000 0000000000000011 "
        "00000028 6974656d2d3536353b6974656d2d363b6974656d2d3839363b6974656d2d3738393b6974656d2d39 08 "
        "6f726465725f7478 003f "
        "4b455953017261772d313702554e49515f4b455901313731353630373531384234303030303030313330303030303030 "
        "303030313902544147530152415702",
        message=Message(
            size=202,
            magic=MAGIC_V1,
            body_crc=2028941459,
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=5048,
            sys_flag=12,
            born_timestamp_ms=1700061746666,
            born_host=bytes.fromhex("0a01060700009c46"),
            store_timestamp_ms=1700061747030,
            store_host=bytes.fromhex("c0a806c800002a9f"),
            reconsume_times=0,
            prepared_transaction_offset=17,
            body=b"item-565;item-6;item-896;item-789;item-9",
            topic="order_tx",
            properties=b"KEYS\x01raw-17\x02UNIQ_KEY\x011715607518B400000013000000000019\x02TAGS\x01RAW\x02",
        ),
    ),
    Case(
        name="committed",
        text="00000118 daa320a7 56cc1aba 00000000 00000000 0000000000000000 00000000000005c1 00000008 "
        "0000018bd393409b 0a01060700009c46 0000018bd393432e c0a806c800002a9f 00000000 000000000000030b "
        "0000003c "
        "6974656d2d3539353b6974656d2d3932353b6974656d2d3830353b6974656d2d3731323b6974656d2d3633373b697465 "
        "6d2d3530333b6974656d2d39 08 6f726465725f7478 0079 "
        "5245414c5f544f504943016f726465725f7478024b4559530174782d33025452414e5f4d5347017472756502554e4951 "
        "5f4b4559013137313536303735313842343030303030303035303030303030303030303035025047524f5550016f7264 "
        "65725f70670254414753015458025245414c5f514944013002",
        message=Message(
            size=280,
            magic=MAGIC_V1,
            body_crc=1456216762,
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=1473,
            sys_flag=8,
            born_timestamp_ms=1700061724827,
            born_host=bytes.fromhex("0a01060700009c46"),
            store_timestamp_ms=1700061725486,
            store_host=bytes.fromhex("c0a806c800002a9f"),
            reconsume_times=0,
            prepared_transaction_offset=779,
            body=b"item-595;item-925;item-805;item-712;item-637;item-503;item-9",
            topic="order_tx",
            properties=b"REAL_TOPIC\x01order_tx\x02KEYS\x01tx-3\x02TRAN_MSG\x01true\x02UNIQ_KEY\x011715607518B400000005000000000005\x02PGROUP\x01order_pg\x02TAGS\x01TX\x02REAL_QID\x010\x02",
        ),
    ),
    Case(
        name="born host IPv6",
        text="000000cc daa320a7 35a9fc7b 00000001 00000000 0000000000000000 0000000000039e1e 00000010 "
        "0000018bd21ad265 20010db80004000000000000000000170000c354 0000018bd21ad2a2 c0a804c800002a9f 00000000 "
        "0000000000000000 0000001f 6974656d2d3534393b6974656d2d3139363b6974656d2d3130353b6974656d 08 "
        "6f726465725f7636 003e "
        "4b45595301686f73742d3102554e49515f4b455901444141363644313331384234303030303030304630303030303030 "
        "3030303135025441475301683102",
        message=Message(
            size=204,
            magic=MAGIC_V1,
            body_crc=900332667,
            queue_id=1,
            flag=0,
            queue_offset=0,
            physical_offset=237086,
            sys_flag=16,
            born_timestamp_ms=1700037055077,
            born_host=bytes.fromhex("20010db80004000000000000000000170000c354"),
            store_timestamp_ms=1700037055138,
            store_host=bytes.fromhex("c0a804c800002a9f"),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"item-549;item-196;item-105;item",
            topic="order_v6",
            properties=b"KEYS\x01host-1\x02UNIQ_KEY\x01DAA66D1318B40000000F000000000015\x02TAGS\x01h1\x02",
        ),
    ),
    Case(
        name="store host IPv6",
        text="000000cd daa320a7 751e33b3 00000000 00000000 0000000000000001 0000000000039eea 00000020 "
        "0000018bd21ad2dd 0a01040700009c44 0000018bd21ad626 fd00000400000000000000000001ffff00002a9f 00000000 "
        "0000000000000000 00000020 6974656d2d3539333b6974656d2d3239313b6974656d2d3331313b6974656d2d 08 "
        "6f726465725f7636 003e "
        "4b45595301686f73742d3202554e49515f4b455901444141363644313331384234303030303030313030303030303030 "
        "3030303136025441475301683202",
        message=Message(
            size=205,
            magic=MAGIC_V1,
            body_crc=1964913587,
            queue_id=0,
            flag=0,
            queue_offset=1,
            physical_offset=237290,
            sys_flag=32,
            born_timestamp_ms=1700037055197,
            born_host=bytes.fromhex("0a01040700009c44"),
            store_timestamp_ms=1700037056038,
            store_host=bytes.fromhex("fd00000400000000000000000001ffff00002a9f"),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"item-593;item-291;item-311;item-",
            topic="order_v6",
            properties=b"KEYS\x01host-2\x02UNIQ_KEY\x01DAA66D1318B400000010000000000016\x02TAGS\x01h2\x02",
        ),
    ),
    Case(
        name="both hosts IPv6, several tags",
        text="000000de daa320a7 27197e6a 00000001 00000000 0000000000000003 000000000003a2f5 00000032 "
        "0000018bd21ae5fd 20010db80004000000000000000000170000c354 0000018bd21ae7ba "
        "fd00000400000000000000000001ffff00002a9f 00000000 0000000000000000 00000025 "
        "6974656d2d3130383b6974656d2d3233313b6974656d2d3437353b6974656d2d3839373b69 08 6f726465725f7636 003e "
        "4b45595301686f73742d3702554e49515f4b455901444141363644313331384234303030303030313530303030303030 "
        "3030303231025441475301683702",
        message=Message(
            size=222,
            magic=MAGIC_V1,
            body_crc=655982186,
            queue_id=1,
            flag=0,
            queue_offset=3,
            physical_offset=238325,
            sys_flag=50,
            born_timestamp_ms=1700037060093,
            born_host=bytes.fromhex("20010db80004000000000000000000170000c354"),
            store_timestamp_ms=1700037060538,
            store_host=bytes.fromhex("fd00000400000000000000000001ffff00002a9f"),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"item-108;item-231;item-475;item-897;i",
            topic="order_v6",
            properties=b"KEYS\x01host-7\x02UNIQ_KEY\x01DAA66D1318B400000015000000000021\x02TAGS\x01h7\x02",
        ),
    ),
    Case(
        name="version 2: a topic of 128 characters",
        text="00000145 daa320ab 4395a3ab 00000000 00000000 0000000000000000 000000000003adab 00000000 "
        "0000018bd21af299 0a01040700009c44 0000018bd21af4bc c0a804c800002a9f 00000000 0000000000000000 "
        "00000028 6974656d2d3539323b6974656d2d3739343b6974656d2d3332373b6974656d2d3937383b6974656d 0080 "
        "6f65666768696a6b6c6d6e6f707172737475767778797a6162636465666768696a6b6c6d6e6f70717273747576777879 "
        "7a6162636465666768696a6b6c6d6e6f707172737475767778797a6162636465666768696a6b6c6d6e6f707172737475 "
        "767778797a6162636465666768696a6b6c6d6e6f707172737475767778797a61 0041 "
        "4b455953016c742d313238206c7402554e49515f4b455901444141363644313331384234303030303030314630303030 "
        "3030303030303331025441475301543002",
        message=Message(
            size=325,
            magic=MAGIC_V2,
            body_crc=1133880235,
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=241067,
            sys_flag=0,
            born_timestamp_ms=1700037063321,
            born_host=bytes.fromhex("0a01040700009c44"),
            store_timestamp_ms=1700037063868,
            store_host=bytes.fromhex("c0a804c800002a9f"),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"item-592;item-794;item-327;item-978;item",
            topic=("o" + "efghijklmnopqrstuvwxyzabcd" * 5)[:128],
            properties=b"KEYS\x01lt-128 lt\x02UNIQ_KEY\x01DAA66D1318B40000001F000000000031\x02TAGS\x01T0\x02",
        ),
    ),
]


def walked(
    data: bytes, position: int, end: int, physical_offset: int, *, check_crc: bool = True
) -> tuple[list[tuple[int, int]], int, str]:
    """Return ([(physical offset, size)] of the good records from `position` on, the position after them, why the walk
    ended); `physical_offset` is that of the byte at `position`.
    """
    stop, last, reason = walk(data, position, end, check_crc=check_crc)
    records = records_in(data, position, stop, physical_offset - position)
    assert last == (position + records[-1][0] - physical_offset if records else -1)
    return records, stop, reason
