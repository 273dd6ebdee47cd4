"""What every store must do, on memory, on a directory and on a real S3 server; and what each says when it cannot."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from odradek.objects.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreError,
    StoreUnavailableError,
    StoreURLError,
)
from odradek.objects.stores import ObjectStore, Requests, open_store
from tests.counting import CountingProxy
from tests.s3 import S3Server

_numbers = itertools.count()


@pytest.fixture(params=["memory", "file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return open_store(f"memory://{os.getpid()}-{next(_numbers)}")
    if request.param == "file":
        return open_store(f"file://{tmp_path}/not/there/yet")
    server: S3Server = request.getfixturevalue("s3")
    return open_store(server.new_url(), server.options)


def keys_of(store: ObjectStore, prefix: str = "", after: str | None = None) -> list[str]:
    return [info.key for info in store.list(prefix, after=after)]


def test_an_object_is_read_as_it_was_written(store: ObjectStore) -> None:
    store.put("a/b", b"0123456789")
    store.put("a/c", [b"in ", b"parts"])
    assert (store.get("a/b"), store.get("a/c")) == (b"0123456789", b"in parts")
    assert store.get_range("a/b", 2, 3) == b"234"
    assert store.get_range("a/b", 8, 100) == b"89"
    assert store.get_range("a/b", 10, 5) == b""
    assert store.get_range("a/b", 99, 5) == b""
    assert store.get_range("a/b", 3, 0) == b""
    store.put("a/b", b"anew")
    assert store.get("a/b") == b"anew"


def test_only_a_new_object_is_created(store: ObjectStore) -> None:
    store.put("!late/k", b"first", only_new=True)
    with pytest.raises(ObjectExistsError, match="!late/k is there already"):
        store.put("!late/k", b"second", only_new=True)
    assert store.get("!late/k") == b"first"


def test_of_many_who_create_one_object_one_does(store: ObjectStore) -> None:
    gate = threading.Barrier(8)

    def create(number: int) -> int | None:
        gate.wait()
        try:
            store.put("race/one", b"%d" % number, only_new=True)
        except ObjectExistsError:
            return None
        return number

    with ThreadPoolExecutor(8) as threads:
        (winner,) = [number for number in threads.map(create, range(8)) if number is not None]
    assert store.get("race/one") == b"%d" % winner


def test_what_is_not_there_is_missing(store: ObjectStore) -> None:
    store.put("a/b/c", b"x")
    for key in ("nothing", "a/b", "a/b/c/d"):
        with pytest.raises(ObjectMissingError, match=f"there is no object {key}"):
            store.get(key)
    with pytest.raises(ObjectMissingError):
        store.get_range("nothing", 0, 1)
    assert keys_of(store, "nothing/") == []
    assert store.folders("nothing") == []


def test_a_listing_is_sorted_by_the_whole_key_and_begins_behind_after(store: ObjectStore) -> None:
    names = ["a/1", "a/!x/1", "a/10/1", "a/1-1", "a/2/9/9", "a/2/10", "a/b", "a-b/1", "ab/1", "a/A"]
    for name in names:
        store.put(name, name.encode())
    inside = sorted(name for name in names if name.startswith("a/"))
    assert keys_of(store, "a") == keys_of(store, "a/") == inside
    everything = keys_of(store)
    # SeaweedFS sorts by the names of folders, S3 by whole keys; names of one length, as ours are, sort in either way.
    assert (sorted(everything) if store.url.startswith("s3://") else everything) == sorted(names)
    for after in [*names, "a/", "a/2/!", "a/2/9/!", "a/15/!", "a/!/!", "a/~", "a/00"]:
        assert keys_of(store, "a/", after=after) == [name for name in inside if name > after], after
    assert store.folders("a") == ["!x", "10", "2"]
    assert store.folders("") == ["a", "a-b", "ab"]
    assert next(store.list("a/2/")).size_bytes == 6
    assert next(store.list("a/2/")).modified_ms > 1_700_000_000_000


def test_a_long_listing_comes_page_by_page(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    if store.url.startswith("file://"):
        monkeypatch.setattr(os, "fsync", lambda fd: None)  # a thousand of them take their time
    names = [f"n/{number:05d}" for number in range(1_005)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: store.put(name, b"x"), names))
    before = store.requests.lists
    listing = store.list("n/")
    assert [next(listing).key for _ in range(1_000)] == names[:1_000]
    assert store.requests.lists - before == 1
    assert [info.key for info in listing] == names[1_000:]
    assert store.requests.lists - before == 2
    assert store.delete(names) == 1_005
    assert keys_of(store, "n/") == []


def test_to_delete_what_is_gone_is_no_error(store: ObjectStore) -> None:
    for name in ("d/1/a", "d/1/b", "d/2"):
        store.put(name, b"x")
    assert store.delete(iter(["d/1/a", "d/nothing", "d/1/b"])) == 3
    assert keys_of(store, "d/") == ["d/2"]
    if not store.url.startswith("s3://"):  # SeaweedFS sweeps its folders later
        assert store.folders("d/") == []
    assert store.delete([]) == 0


def test_every_request_is_counted(store: ObjectStore) -> None:
    store.put("k", b"12345")
    with pytest.raises(ObjectExistsError):
        store.put("k", b"12345", only_new=True)
    store.get("k")
    store.get_range("k", 1, 2)
    keys_of(store, "x/")
    store.folders("")
    store.delete(["k"])
    assert store.requests == Requests(puts=2, gets=2, lists=2, deletes=1, sent_bytes=10, received_bytes=7)


def test_a_page_is_one_request_to_the_server_and_no_more_than_is_read(s3: S3Server) -> None:
    url = s3.new_url()
    direct = open_store(url, s3.options)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: direct.put(f"p/{number:04d}", b"x"), range(1_200)))
    with CountingProxy(s3.endpoint) as proxy:
        store = open_store(url, s3.options_of(proxy.endpoint))
        listing = store.list("p/", after="p/0099")
        assert next(listing).key == "p/0100"
        assert proxy.counts() == {"LIST": 1}
        assert sum(1 for _ in listing) == 1_099
        assert proxy.counts() == {"LIST": store.requests.lists} == {"LIST": 2}


def test_a_store_that_is_away_says_so_soon(s3: S3Server) -> None:
    store = open_store("s3://odradek/x", {**s3.options, "aws_endpoint": "http://127.0.0.1:1"}, timeout_ms=1_000)
    asked: list[Callable[[], object]] = [
        lambda: store.put("k", b"x"),
        lambda: store.put("k", b"x", only_new=True),
        lambda: store.get("k"),
        lambda: list(store.list("k")),
        lambda: store.folders(""),
        lambda: store.delete(["k"]),
    ]
    for ask in asked:
        with pytest.raises(StoreUnavailableError, match=r"s3://odradek/x: .*is the store up"):
            ask()


def test_a_wrong_key_of_the_store_is_told_from_a_store_that_is_away(s3: S3Server) -> None:
    store = open_store(s3.new_url(), {**s3.options, "aws_secret_access_key": "wrong"})
    with pytest.raises(StoreError, match="look at the credentials") as raised:
        store.put("k", b"x")
    assert not isinstance(raised.value, StoreUnavailableError)


def test_the_environment_says_where_the_store_is(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    store = open_store(s3.new_url())
    store.put("k", b"x")
    assert store.get("k") == b"x"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("orders", "must begin with one of s3://, gs://, az://, file://, memory://"),
        ("ftp://host", "must begin with"),
        ("s3:///path", "cannot be opened"),
        ("az://container", "cannot be opened"),
        ("file://relative/path", "three slashes"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(url: str, said: str) -> None:
    with pytest.raises(StoreURLError, match=said):
        open_store(url)


def test_a_wrong_option_says_what_is_wrong() -> None:
    with pytest.raises(StoreURLError, match="aws_nothing"):
        open_store("s3://bucket", {"aws_nothing": "1"})


def test_stores_in_memory_are_shared_by_url() -> None:
    url = f"memory://{os.getpid()}-{next(_numbers)}"
    open_store(url).put("k", b"x")
    assert open_store(f"{url}/").get("k") == b"x"
    assert keys_of(open_store(f"{url}-2")) == []


def test_a_directory_shows_neither_parts_of_objects_nor_what_a_killed_writer_left(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    store.put("k", b"x")
    left = tmp_path / "#writing" / "left"
    left.write_bytes(b"half of an obj")
    assert (keys_of(store), store.folders("")) == (["k"], [])
    open_store(f"file://{tmp_path}").put("k", b"x")
    assert left.exists(), "it may be of a writer that is at it"
    os.utime(left, (1, 1))
    open_store(f"file://{tmp_path}").put("k", b"x")
    assert not left.exists()


def test_who_only_reads_a_directory_changes_nothing(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/mistyped")
    assert (keys_of(store), store.folders("")) == ([], [])
    with pytest.raises(ObjectMissingError):
        store.get("k")
    assert list(tmp_path.iterdir()) == []


def test_no_key_leads_out_of_the_directory(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    for key in ("../x", "a/../../x", "/x", "a/./b", "#writing/x", "a\0b"):
        with pytest.raises(ValueError, match="cannot be the key"):
            store.put(key, b"x")
    assert not (tmp_path / "x").exists()


def test_a_path_with_percent_signs_is_read_as_a_url(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/with%20space").put("k", b"x")
    assert (tmp_path / "with space" / "k").read_bytes() == b"x"


def test_a_directory_is_filled_and_emptied_at_once(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")

    def change(number: int) -> None:
        for step in range(20):
            store.put(f"a/b/{number}-{step}", b"x", only_new=True)
            store.delete([f"a/b/{number}-{step}"])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(change, range(4)))
    assert keys_of(store) == []
    assert not (tmp_path / "a").exists()


def test_a_directory_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(StoreURLError, match="cannot be made: Not a directory"):
        open_store(f"file://{tmp_path}/file/below").put("k", b"x")
    with pytest.raises(StoreURLError, match="no directory"):
        open_store(f"file://{tmp_path}/file")


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"file://{tmp_path}")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnavailableError, match="make room there"):
        store.put("k", b"x")
    monkeypatch.undo()
    assert keys_of(store) == []
