"""The order of the modules of a long run, and which modules one process runs together.

Owns both for a parallel run (`-n`); must not know the tests. A process gets whole modules, so a module's setup (a
broker, a compiled shim) runs once. The longest modules begin first: otherwise one of them runs alone at the end. In the
list, modules that need the processors alternate with modules that wait for brokers and virtual machines.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from xdist.scheduler import LoadFileScheduling

ROOT: Final = Path(__file__).resolve().parent.parent
ON_SPARK: Final = "modules that use the session of Spark"
"""A session is started once in each process that uses it, for some ten seconds, and becomes faster as it works: so one
process runs all these modules, one after the other."""
LONGEST: Final = (
    ON_SPARK,
    "tests/robustness/test_explorer.py",
    "tests/bench/test_bench_brokers.py",
    "tests/test_release.py",
    "tests/interop/rocketmq/test_real_rocketmq_broker.py",
    "tests/damage/test_random_damage.py",
    "tests/pipeline/jobs/test_cluster.py",
    "tests/pipeline/sink/test_sink_killed.py",
    "tests/pipeline/test_notebook.py",
    "tests/robustness/fuzz/test_fuzz.py",
    "tests/interop/rocketmq/test_real_rocketmq_timers.py",
    "tests/robustness/test_compaction.py",
    "tests/interop/rocketmq/test_real_rocketmq_transactions.py",
    "tests/test_first_hour.py",
    "tests/wire/test_java_tools.py",
    "tests/scripts/test_server_script.py",
    "tests/robustness/test_staged_append.py",
    "tests/robustness/test_error_sweep.py",
    "tests/unit/rocketmq/recovery/test_power.py",
    "tests/robustness/test_seeded_bugs.py",
    "tests/http/test_schemathesis.py",
    "tests/robustness/test_flipped_bytes.py",
    "tests/interop/rocketmq/test_real_rocketmq_held_out.py",
    "tests/http/test_abuse.py",
    "tests/robustness/test_killed_names.py",
    "tests/unit/rocketmq/test_bench_rocketmq.py",
)
USES_SESSION: Final = re.compile(r"\bspark: SparkSession\b")


def unit(node_id: str) -> str:
    """Return the unit that one process runs whole: the module of this test, or all modules that use the session."""
    module = node_id.partition("::")[0]
    return ON_SPARK if _uses_session(module) else module


@cache
def _uses_session(module: str) -> bool:
    path = ROOT / module
    return path.is_file() and USES_SESSION.search(path.read_text()) is not None


def rank(node_id: str) -> int:
    """Return the place of a test's module in the order of a long run."""
    found = unit(node_id)
    return LONGEST.index(found) if found in LONGEST else len(LONGEST)


def scheduler(config: Any, log: Any) -> Any:
    """Return pytest-xdist's scheduler of whole modules, changed to hand out the units of `unit`."""
    found = LoadFileScheduling(config, log)
    found._split_scope = unit
    return found
