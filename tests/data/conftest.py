"""A small server for downloads, and a dataset that only tests know."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from seqloom.data.datasets import catalog
from seqloom.data.datasets.dataset import Dataset, File

PAIRS = "".join(f"{number}\t{number * number}\n" for number in range(500)).encode()


def _zipped() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("about.txt", "not this one")
        archive.writestr("folder/pairs.txt", PAIRS)
    return packed.getvalue()


class Server(BaseHTTPRequestHandler):
    further: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        bodies = {"/good.tsv": PAIRS, "/other.tsv": b"0\t1\n", "/broken.tsv": PAIRS, "/good.zip": _zipped()}
        bodies |= {"/torn.zip": _zipped()[:200]} | self.further
        body = bodies.get(self.path)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if "broken" in self.path else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture
def served() -> Iterator[dict[str, bytes]]:
    """What that server has besides, by its path."""
    yield Server.further
    Server.further.clear()


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A cache of its own, no mirror, no proxy."""
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("SEQLOOM_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def entry(fresh, monkeypatch) -> Callable[..., Dataset]:
    """Put a dataset with one file at that address into the registry."""

    def make(address: str | None, task: str = "translate", size: int | None = None) -> Dataset:
        dataset = Dataset(
            name="squares",
            task=task,
            about="numbers → their squares",
            sizes={"train": 500},
            licence="CC0",
            citation="nobody 2026",
            home="https://example.org/squares",
            reader="columns",
            files={"train": (File("squares/pairs.tsv", address, hashlib.sha256(PAIRS).hexdigest(), size),)},
        )
        monkeypatch.setitem(catalog.DATASETS, "squares", dataset)
        return dataset

    return make
