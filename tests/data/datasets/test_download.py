"""Files of datasets: from a mirror, from earlier downloads, by download; always verified, and never half."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import socket
import struct
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from seqloom.data.datasets import catalog, download
from seqloom.errors import SeqloomError
from tests.data.conftest import PAIRS

RIGHT = hashlib.sha256(PAIRS).hexdigest()


def left(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


def refused(*told: str) -> None:
    """The dataset cannot be had: one line that says why."""
    with pytest.raises(SeqloomError) as caught:
        catalog.files("squares", "train")
    text = str(caught.value)
    assert "\n" not in text
    for part in told:
        assert part in text


@pytest.mark.parametrize("name", ["good.tsv", "good.zip"])
def test_a_download_is_verified_kept_and_silent(server, entry, fresh, capfd, name):
    entry(f"{server}/{name}")
    [path] = catalog.files("squares", "train")
    assert path.read_bytes() == PAIRS
    assert (fresh / "downloads" / "squares" / "pairs.tsv").read_bytes() == PAIRS
    assert capfd.readouterr() == ("", "")
    assert not list(fresh.glob(".download-*"))


def test_what_was_downloaded_needs_no_connection(server, entry, fresh):
    entry(f"{server}/good.tsv")
    catalog.files("squares", "train")
    dataset = entry("http://127.0.0.1:9/gone.tsv")
    assert len(list(dataset.examples("train"))) == 500
    kept = fresh / "downloads" / "squares" / "pairs.tsv"
    kept.write_bytes(PAIRS[:-3])  # damaged since
    dataset = entry(f"{server}/good.tsv")
    assert len(list(dataset.examples("train"))) == 500
    assert kept.read_bytes() == PAIRS


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("missing.tsv", ["404"]),
        ("other.tsv", ["SHA-256", RIGHT, hashlib.sha256(b"0\t1\n").hexdigest()]),
        ("broken.tsv", ["connection broke"]),
        ("torn.zip", ["not a whole zip file"]),
    ],
)
def test_a_failed_download_leaves_nothing(server, entry, fresh, name, told):
    entry(f"{server}/{name}")
    refused(f"{server}/{name}", *told)
    assert left(fresh) == []
    assert not list(fresh.glob(".download-*"))


def test_without_a_connection(entry, fresh):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        entry(f"http://127.0.0.1:{unused.getsockname()[1]}/good.tsv")
    refused("cannot be reached", "$SEQLOOM_DATA")
    assert left(fresh) == []


def test_a_silent_server_is_given_up(entry, fresh, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        entry(f"http://127.0.0.1:{silent.getsockname()[1]}/good.tsv")
        refused("no answer within")
    assert left(fresh) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_while_downloading(server, entry, fresh, monkeypatch):
    entry(f"{server}/good.tsv")
    real = download._get
    monkeypatch.setattr(download, "_get", lambda address, target: real(address, Path("/dev/full")))
    refused("No space left on device")
    assert left(fresh) == []


def test_a_full_disk_while_keeping(server, entry, fresh, monkeypatch):
    entry(f"{server}/good.tsv")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused("could not be written", "No space left on device")
    assert left(fresh) == []


def test_without_pooch(server, entry, monkeypatch):
    entry(f"{server}/good.tsv")
    monkeypatch.setitem(sys.modules, "pooch", None)
    refused("pip install 'seqloom[data]'")


def test_what_cannot_be_downloaded_is_put_in_place_by_hand(entry):
    assert catalog.state(entry(None)) == "by hand"
    refused("by hand", "$SEQLOOM_DATA/squares/pairs.tsv", "https://example.org/squares")


@pytest.mark.parametrize("packed", [False, True])
def test_a_mirror_is_verified_plain_or_packed(entry, fresh, tmp_path, monkeypatch, packed):
    dataset = entry(None)
    place = tmp_path / "mirror" / "squares" / ("pairs.tsv.gz" if packed else "pairs.tsv")
    place.parent.mkdir(parents=True)
    monkeypatch.setenv("SEQLOOM_DATA", str(tmp_path / "mirror"))
    for content, told in ((PAIRS[:-1], RIGHT), (PAIRS, None)):
        place.write_bytes(gzip.compress(content) if packed else content)
        if told:
            refused(str(place), RIGHT, hashlib.sha256(content).hexdigest())
            assert left(fresh) == []
    assert catalog.state(dataset) == "in the mirror"
    assert catalog.files("squares", "train")[0].read_bytes() == PAIRS
    if packed:
        place.write_bytes(place.read_bytes()[:-9])
        with pytest.raises(SeqloomError, match="cut off or damaged"):
            dataset.examples("train")


def bomb(way: int = zipfile.ZIP_DEFLATED, size: int = 1 << 27, count: int = 1, lie: bool = False) -> bytes:
    """An archive of zeros; one that lies claims the size of the file that is wanted."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", way) as archive:
        for number in range(count):
            archive.writestr(str(number), bytes(size))
    raw = packed.getvalue()
    return raw.replace(struct.pack("<L", size), struct.pack("<L", len(PAIRS))) if lie else raw


@pytest.mark.parametrize("way", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("lie", [False, True])
def test_an_archive_that_lies_is_not_unpacked(server, served, entry, fresh, monkeypatch, way, lie):
    served["/bomb.zip"] = bomb(way, 1 << 24, lie=lie)
    entry(f"{server}/bomb.zip", size=len(PAIRS))
    pytest.importorskip("pooch")  # loaded before memory is counted
    tracemalloc.start()
    try:
        refused(f"{server}/bomb.zip")
        assert tracemalloc.get_traced_memory()[1] < 1 << 22, "of the 16 MiB that it unpacks to"
    finally:
        tracemalloc.stop()
    assert left(fresh) == []


def test_archives_of_too_many_files_and_too_many_bytes(server, served, entry, fresh, monkeypatch):
    monkeypatch.setattr(download, "MAX_MEMBERS", 10)
    monkeypatch.setattr(download, "OTHER_MEMBERS_BYTES", 1 << 12)
    for name, raw, told in (
        ("many.zip", bomb(size=0, count=11), "more than 10 files"),
        ("long.zip", bomb(zipfile.ZIP_STORED, 1 << 16), "more than the"),
        ("long.tsv", PAIRS + b"1", f"more than the {len(PAIRS):,} bytes"),
    ):
        served[f"/{name}"] = raw
        entry(f"{server}/{name}", size=len(PAIRS))
        refused(f"{server}/{name}", told)
        assert left(fresh) == []


def test_of_an_unknown_size_there_is_a_limit(server, served, entry, fresh, monkeypatch):
    monkeypatch.setattr(download, "UNKNOWN_SIZE_BYTES", 1 << 16)
    monkeypatch.setattr(download, "OTHER_MEMBERS_BYTES", 1 << 16)
    served["/bomb.zip"] = bomb(size=1 << 20)
    entry(f"{server}/bomb.zip")
    refused(f"{server}/bomb.zip", "more than the 65,536 bytes")


@pytest.mark.parametrize("packed", [False, True])
def test_a_mirror_with_more_than_it_should_is_not_read_to_its_end(entry, fresh, tmp_path, monkeypatch, packed):
    place = tmp_path / "mirror" / "squares" / ("pairs.tsv.gz" if packed else "pairs.tsv")
    place.parent.mkdir(parents=True)
    monkeypatch.setenv("SEQLOOM_DATA", str(tmp_path / "mirror"))
    place.write_bytes(gzip.compress(bytes(1 << 24)) if packed else bytes(1 << 24))
    entry(None, size=len(PAIRS))
    tracemalloc.start()
    try:
        refused(str(place), f"more than the {len(PAIRS):,} bytes")
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_a_mirror_that_is_not_there(entry, monkeypatch, tmp_path):
    entry(None)
    monkeypatch.setenv("SEQLOOM_DATA", str(tmp_path / "nowhere"))
    refused("$SEQLOOM_DATA names", "no folder")


def test_get_copies_what_is_no_text(server, entry, fresh, tmp_path):
    entry(f"{server}/good.tsv", "pictures")
    assert catalog.get("squares") == [fresh / "downloads" / "squares" / "pairs.tsv"]
    assert catalog.get("squares", tmp_path / "mine") == [tmp_path / "mine" / "pairs.tsv"]
    assert (tmp_path / "mine" / "pairs.tsv").read_bytes() == PAIRS


def test_states(server, entry, fresh):
    dataset = entry(f"{server}/good.tsv")
    assert catalog.state(dataset) == "to download"
    catalog.get("squares")
    assert catalog.state(dataset) == "cached"
