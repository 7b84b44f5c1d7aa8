"""The description of the machine in a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from logserver.bench import environment
from logserver.bench.processes import Cores

MOUNTS = r"""rootfs / rootfs rw 0 0
/dev/vda / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
/dev/vdb /tmp/with\040space xfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "wanted"),
    [("/data", "ext4"), ("/tmp/data", "tmpfs"), ("/tmp/with space/data", "xfs"), ("/tmpx", "ext4")],
)
def test_the_file_system_is_that_of_the_nearest_mount(
    folder: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several mounts at one path the last counts, since it hides the others."""
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(environment, "MOUNTS", mounts)
    found = environment.environment(Cores(None, None), Path(folder))
    assert found.file_system == wanted
