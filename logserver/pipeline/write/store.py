"""Writes into a store's directory: tasks stage encoded runs next to it, the driver commits them as a whole.

Owns the plan of a write, which the driver makes and tasks carry, and the steps at both ends; must not know Spark. The
atomicity of a commit over a crash is the job of `storage.append_staged`.

    plan_write (driver) -> StoreSink -> stage (each task) -> Staged -> commit, or abort (driver)
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logserver.pipeline.read.options import store_settings, wrong
from logserver.pipeline.write.columns import check_columns
from logserver.pipeline.write.leftovers import new_write_id, remove_leftovers
from logserver.pipeline.write.options import WriteOptions, check_compression
from logserver.pipeline.write.rows import Placing
from storage import (
    LogStore,
    Run,
    StagedFile,
    StagedWrite,
    StagedWriter,
    StoreOptions,
    TopicPartition,
    TopicShape,
    Unit,
    append_staged,
    detect,
    is_pending,
    make_staged,
    open_staged,
    open_store,
    remove_staged,
    staged_form,
    staging_folder,
)
from storage.errors import (
    InvalidArgument,
    RecordTooLarge,
    StoreReadOnly,
    UnrepresentableRecord,
)

if TYPE_CHECKING:
    import pyarrow as pa

RUN_BYTES: Final = 512 << 10
_INDEX: Final = re.compile(r"^record \d+:? ?")
_FIELD: Final = re.compile(r"^(\w+): ")
_ROOM: Final = 4  # at most 3/4 of a topic's limit are filled: headers and length fields come on top


@dataclass(frozen=True, slots=True)
class Task:
    """The task that stages rows: its number in the job; in a stream also the query and its micro-batch."""

    number: int
    query_id: str | None = None
    batch_id: int | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """The result of a task, for the driver. `file` is None if the task had no row. `topics`: see StagedWrite."""

    task: Task
    file: StagedFile | None
    topics: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSink:
    """A planned write; picklable. `write_id` is None for a stream without option queryId; its tasks know the query."""

    path: Path
    backend: str
    exists: bool
    options: WriteOptions
    columns: Mapping[str, int]
    shapes: Mapping[str, TopicShape]
    new_shape: TopicShape
    write_id: str | None

    # ---- a task ----

    def stage(self, batches: Iterable[pa.RecordBatch], task: Task) -> Staged:
        """Encode a task's rows into a file of its own, durable on return. Readers do not see it before the commit.

        Raises InvalidArgument, UnknownPartition, UnrepresentableRecord and RecordTooLarge for a row that cannot be
        stored, and DiskFull. After an error the file is removed.
        """
        placing = Placing(
            self.columns,
            self.options.topic,
            {topic: shape.partitions for topic, shape in self.shapes.items()},
            self.new_shape.partitions,
            task.number,
        )
        name = f"{task.batch_id or 0}-{task.number}-{secrets.token_hex(4)}"
        writer = open_staged(self._folder(task.query_id), name)
        try:
            self._encode(placing, batches, writer)
            file = writer.finish()
        except BaseException:
            writer.discard()
            raise
        return Staged(task, file if file.parts else None, placing.met)

    def _encode(
        self, placing: Placing, batches: Iterable[pa.RecordBatch], writer: StagedWriter
    ) -> None:
        encoder = staged_form(self.backend).encoder()
        with naming_rows(None):
            for partition, records in placing.rows(batches, self._run_bytes()):
                shape = self.shapes.get(partition.topic, self.new_shape)
                with naming_rows(partition):
                    runs = encoder.encode(records, shape, compression=self.options.compression)
                for count, data in runs:
                    writer.add(Run(*partition, count, data))

    def _run_bytes(self) -> int:
        limits = (shape.limit_bytes for shape in (self.new_shape, *self.shapes.values()))
        return max(min(RUN_BYTES, min(limits) * (_ROOM - 1) // _ROOM), 1)

    def _writer(self, query_id: str | None) -> str:
        writer = self.write_id or query_id
        if not writer:
            raise wrong("queryId", "is missing: this stream's query has no id of its own")
        return writer

    def _folder(self, query_id: str | None) -> Path:
        return staging_folder(self.path, self._writer(query_id))

    # ---- the driver ----

    def commit(self, staged: Sequence[Staged], batch_id: int | None = None) -> bool:
        """Append all staged files to the store, durable on return.

        Returns False if the query's micro-batch was committed before, or no task has run. Raises StoreLocked while
        another process has the store, InvalidArgument if the store, or a topic with other partitions, was created
        meanwhile; then nothing is stored.
        """
        staged = sorted(staged, key=lambda one: one.task.number)
        query_id = next((one.task.query_id for one in staged if one.task.query_id), None)
        if batch_id is not None and not staged:
            return False
        folder = self._folder(query_id)
        write = StagedWrite(
            folder=folder,
            files=[one.file for one in staged if one.file is not None],
            topics=self._topics(staged),
            unit=None if batch_id is None else Unit(self._writer(query_id), batch_id),
        )
        done = self._put(write)
        remove_staged(folder)
        remove_leftovers(self.path, own=folder)
        return done

    def _topics(self, staged: Sequence[Staged]) -> Mapping[str, int]:
        found = {topic: count for one in staged for topic, count in one.topics.items()}
        if self.options.topic is not None and not self.exists:
            found.setdefault(self.options.topic, len(self.new_shape.partitions))
        return found

    def _put(self, write: StagedWrite) -> bool:
        options = self._store_options()
        if _is_there(self.path, self.backend):
            if not self.exists and write.unit is None:
                raise InvalidArgument(
                    f"{self.path}: a store was made here while the job ran; nothing was written",
                    field="path",
                )
            with open_store(self.backend, self.path, options) as store:
                return append_staged(store, write)
        make_staged(self.backend, self.path, write, options=options)
        return True

    def _store_options(self) -> StoreOptions:
        return StoreOptions(settings=store_settings(self.options.settings, self.backend))

    def abort(self, staged: Sequence[Staged]) -> None:
        """Remove the staged files, unless the store has recorded them for the append: its next start adds them."""
        query_id = next((one.task.query_id for one in staged if one.task.query_id), None)
        if self.write_id is None and query_id is None:
            return
        folder = self._folder(query_id)
        if not is_pending(self.path, folder):
            remove_staged(folder)


def plan_write(
    options: WriteOptions, fields: Sequence[tuple[str, str]], *, streaming: bool
) -> StoreSink:
    """Check the target and the schema, given as (name, type in Spark's notation), and return the plan of the write.

    A batch opens the store as a writer does, and so fails at once (StoreLocked) while another process has it. Raises
    InvalidArgument for options and columns that do not fit, StoreReadOnly for a directory of a real server that was not
    taken over.
    """
    assert options.path is not None
    path = Path(options.path).resolve()
    backend = _backend(options, path)
    check_compression(options.compression, backend)
    columns = check_columns(fields, topic=options.topic, messages=backend == "rocketmq")
    form = staged_form(backend)
    exists = _is_there(path, backend)
    shapes: Mapping[str, TopicShape] = {}
    new_shape = form.shape(None, "new")
    if exists:
        settings = StoreOptions(settings=store_settings(options.settings, backend))
        with open_store(backend, path, settings, read_only=streaming) as store:
            shapes, new_shape = _shapes(store, options.topic)
    if options.new_partitions is not None:
        _check_count(options, shapes)
        new_shape = new_shape._replace(partitions=range(options.new_partitions))
    write_id = options.query_id if streaming else new_write_id()
    sink = StoreSink(
        path=path,
        backend=backend,
        exists=exists,
        options=options,
        columns=columns,
        shapes=shapes,
        new_shape=new_shape,
        write_id=write_id,
    )
    if write_id is not None:
        remove_leftovers(path, own=staging_folder(path, write_id))
    return sink


def _backend(options: WriteOptions, path: Path) -> str:
    detected = detect(path)
    if detected is None:
        if options.backend is None:
            raise wrong("backend", f"is missing: {path} is to be made, as kafka or rocketmq")
        return options.backend
    if options.backend not in (None, detected.backend):
        raise wrong("backend", f"{path} is a {detected.backend} store, not {options.backend}")
    return detected.backend


def _is_there(path: Path, backend: str) -> bool:
    """Return whether a store to append to exists. Raises InvalidArgument or StoreReadOnly for any other store."""
    detected = detect(path)
    if detected is None:
        return False
    if detected.backend != backend:
        raise wrong("backend", f"{path} is a {detected.backend} store, not {backend}")
    if not detected.adopted:
        raise StoreReadOnly(
            f"{path} belongs to a real {backend} server, and is left alone: take it over with "
            f"`logserver serve --data {path} --write`, or write to a new path",
            path=str(path),
        )
    return True


def _shapes(store: LogStore, topic: str | None) -> tuple[Mapping[str, TopicShape], TopicShape]:
    """Return the shapes of the existing topics, and the shape of any new topic."""
    form = staged_form(store.capabilities.backend)
    known = store.topics()
    wanted = [name for name in known if topic in (None, name)]
    unused = next(name for name in map("new{}".format, itertools.count()) if name not in known)
    return {name: form.shape(store, name) for name in wanted}, form.shape(store, unused)


def _check_count(options: WriteOptions, shapes: Mapping[str, TopicShape]) -> None:
    there = shapes.get(options.topic or "")
    if there is not None and len(there.partitions) != options.new_partitions:
        raise wrong(
            "numPartitions",
            f"topic {options.topic!r} is there, with {len(there.partitions)} partitions",
        )


@contextmanager
def naming_rows(partition: TopicPartition | None) -> Iterator[None]:
    """Add the row's partition and column to the error for a rejected record; an error that names a column stays."""
    where = "a row" if partition is None else f"a row for {partition}"
    try:
        yield
    except (UnrepresentableRecord, RecordTooLarge) as error:
        if error.message.startswith("column "):
            raise
        facts = error.facts()
        rule = _FIELD.sub("", _INDEX.sub("", error.message))
        column = facts.get("field", "value")
        raise type(error)(f"column {column!r} of {where}: {rule}", **facts) from None
