"""Power cuts while a partition is moved into another kind of segments: one good partition stands under the name."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from odradek.clock import ManualClock
from odradek.disk.real import RealDisk
from odradek.log.backends.choice import Kind, found_kind
from odradek.log.convert import convert
from odradek.log.store import LogStore
from tests.fault.unsynced import NoShimError, compile_shim, lose_unsynced, shim_environment
from tests.log.support import START_MS, LogOnDisk, batch, log_config, store_config, values_of
from tests.log.test_convert import ORDERS, Mortals, shared_of

pytest.importorskip("rocksdict")

CUTS = 5
STEPS_MAX = 45  # a conversion that has not ended by then is done
VALUES = [b"%d" % number + bytes(300) for number in range(9)]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Skips where there is no compiler."""
    try:
        return compile_shim(tmp_path_factory.mktemp("shim"))
    except NoShimError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("was", "now"), [("file", "rocksdb"), ("rocksdb", "sqlite"), ("sqlite", "file")])
def test_a_power_cut_at_any_step_leaves_one_good_partition(tmp_path: Path, shim: Path, was: Kind, now: Kind) -> None:
    data, journal = tmp_path / "data", tmp_path / "journal"
    data.mkdir()
    on_disk = LogOnDisk(RealDisk(), str(data / "orders-0"), segment_backend=was, segment_bytes=1024)
    for value in VALUES:
        on_disk.log.append(batch(value))
    on_disk.log.close()
    config, chance, lost = log_config(), random.Random(f"{was} {now}"), 0
    for cut, steps in enumerate([*(chance.randrange(STEPS_MAX) for _ in range(CUTS)), 1 << 20]):
        with closing(Mortals(shim_environment(shim, data, journal))) as mortals:
            died = mortals.dies(on_disk.directory, now, steps)
        loss = lose_unsynced(data, journal, cut)
        lost += loss.writes + loss.names
        kind = found_kind(RealDisk(), on_disk.directory)
        assert kind in ((was, now) if died else (now,))
        with LogStore(RealDisk(), str(data), store_config(), ManualClock(START_MS), lambda _: config) as store:
            assert not store.offline
            assert ORDERS not in store.reports, "nothing was in doubt"
            assert values_of(store.logs[ORDERS]) == VALUES
        assert sorted(path.name for path in data.iterdir()) == [".lock", "clean-stop", "orders-0"]
        if kind == now:
            convert(shared_of(RealDisk()), on_disk.directory, was, config, lambda _: None)
    assert lost, "nothing was lost: this shows nothing"
