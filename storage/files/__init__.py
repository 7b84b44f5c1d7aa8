"""Files for storage: the one layer between every backend and the disk. Must not know a format.

    fs        the protocols: FileSystem, File, FileLock;  failures: from errno to the error tree
    real      RealFileSystem: system calls;  lock: POSIX record locks, process_id
    overlay   OverlayFileSystem: changes in memory over a read-only base, or over nothing
              tree: its names;  pages: its bytes;  changes: differences from the base
    cached    CachedFile: what the page cache has of a file, without a wait
    handles   HandleCache: an LRU of open files that knows which are dirty
    following FollowingFileSystem: the disk with symbolic links followed, for reading
    skipping  SkippingFileSystem: unreadable bytes are replaced by filler and remembered, for rescue
    atomic    atomic_write: a small file changed in one step;  copy_range: a range of a file
    roots     make_root, and the backend of a directory;  fence: no more writes after a failed write

Only `real`, `following` and `lock` access the disk.
"""

from storage.files.atomic import atomic_write, copy_range, remove_if_present, write_durably
from storage.files.cached import (
    PROMPT_BATCHES,
    PROMPT_READ_BYTES,
    CachedFile,
    PromptBudget,
    WouldWait,
)
from storage.files.failures import is_missing, unless_missing
from storage.files.fence import Fence
from storage.files.fs import MAX_PIECES, Buffer, File, FileLock, FileSystem, Readable
from storage.files.handles import HandleCache
from storage.files.lock import process_id
from storage.files.overlay import OverlayFileSystem
from storage.files.real import RealFileSystem
from storage.files.roots import (
    STORE_FILE,
    UNFINISHED_STORE_FILE,
    Recognized,
    foreign_store,
    holds_no_store,
    make_root,
    stored_backend,
)
from storage.files.symlinks import FollowingFileSystem, real_path
from storage.files.unreadable import SkippingFileSystem, UnreadableRange

__all__ = [
    "MAX_PIECES",
    "PROMPT_BATCHES",
    "PROMPT_READ_BYTES",
    "STORE_FILE",
    "UNFINISHED_STORE_FILE",
    "Buffer",
    "CachedFile",
    "Fence",
    "File",
    "FileLock",
    "FileSystem",
    "FollowingFileSystem",
    "HandleCache",
    "OverlayFileSystem",
    "PromptBudget",
    "Readable",
    "RealFileSystem",
    "Recognized",
    "SkippingFileSystem",
    "UnreadableRange",
    "WouldWait",
    "atomic_write",
    "copy_range",
    "foreign_store",
    "holds_no_store",
    "is_missing",
    "make_root",
    "process_id",
    "real_path",
    "remove_if_present",
    "stored_backend",
    "unless_missing",
    "write_durably",
]
