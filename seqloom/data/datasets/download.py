"""Where the files of a named dataset are: in a mirror, among earlier downloads, or at their address; always verified.

$SEQLOOM_DATA names a mirror. A SHA-256 sum is of the content as it stands at the address: a file that a mirror holds
packed (.gz) is unpacked first, so both forms are right. How many bytes that is, is known before: what would become more
is given up while it is read, so that an archive that lies cannot fill memory or disk.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from seqloom.data.datasets.dataset import Dataset, File
from seqloom.errors import SeqloomError
from seqloom.files import default_cache, write_atomic

MIRROR = "SEQLOOM_DATA"
TIMEOUT = 30  # without a byte, after which a server is given up
UNKNOWN_SIZE_BYTES = 1 << 30  # bytes of a file whose size is not known
OTHER_MEMBERS_BYTES = 1 << 26  # bytes that an archive may hold beside the file that is wanted
MAX_MEMBERS = 10_000  # of an archive
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of packing; others are unpacked by zipfile without a limit


def load_file(dataset: Dataset, file: File) -> bytes:
    """The bytes of a file, unpacked and verified. Downloaded if it is not there yet."""
    place = mirror_path(file)
    if place is not None:
        return _verified(_read(place, file), file, place)
    kept = downloads() / file.path
    if kept.is_file():
        raw = _read(kept, file)
        if _digest(raw) == file.sha256:
            return raw  # else it was damaged since, and is downloaded again
    raw = _download(dataset, file)
    _make(kept.parent)
    write_atomic(kept, raw)
    return raw


def local_file(file: File) -> Path | None:
    """Where a file is, if it was downloaded; not verified."""
    kept = downloads() / file.path
    return mirror_path(file) or (kept if kept.is_file() else None)


def mirror_path(file: File) -> Path | None:
    """Where a file is in the mirror, plain or packed; None if it is not, or if there is no mirror."""
    folder = os.environ.get(MIRROR)
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise SeqloomError(f"${MIRROR} names {folder}, which is no folder")
    plain = Path(folder) / file.path
    return next((place for place in (plain, plain.with_name(plain.name + ".gz")) if place.is_file()), None)


def downloads() -> Path:
    return default_cache() / "downloads"


def _max_bytes(file: File) -> int:
    return UNKNOWN_SIZE_BYTES if file.size is None else file.size


def _too_large(place: Path | str, most: int) -> SeqloomError:
    return SeqloomError(f"{place}: not the right content: it holds more than the {most:,} bytes it should; replace it")


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _verified(raw: bytes, file: File, place: Path | str) -> bytes:
    expected, found = file.sha256, _digest(raw)
    if found != expected:
        raise SeqloomError(f"{place}: not the right content: SHA-256 should be {expected} and is {found}; replace it")
    return raw


def _read(place: Path, file: File) -> bytes:
    """What a file holds. Some are packed at their address too: only what the mirror packed is unpacked here."""
    most = _max_bytes(file)
    try:
        plain = place.name == Path(file.path).name
        with place.open("rb") if plain else gzip.open(place) as opened:
            raw = opened.read(most + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SeqloomError(f"{place}: the .gz file is cut off or damaged ({error}); replace it") from error
    except OSError as error:
        raise SeqloomError(f"{place}: cannot be read: {error.strerror or error}") from error
    if len(raw) > most:
        raise _too_large(place, most)
    return raw


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SeqloomError(f"{folder}: cannot be made: {error.strerror or error}") from error


def _download(dataset: Dataset, file: File) -> bytes:
    """From the address into memory, by way of a file that goes away whatever happens."""
    if file.address is None:
        missing = (each.path for each in dataset.all_files() if local_file(each) is None)
        places = " and ".join(f"${MIRROR}/{path}" for path in missing)
        raise SeqloomError(
            f"{dataset.name}: cannot be downloaded in the form that is read here: put it in place by hand as {places} "
            f"(plain or .gz; SHA-256: seqloom data list --json); its home is {dataset.home}"
        )
    _make(default_cache())
    with tempfile.TemporaryDirectory(dir=default_cache(), prefix=".download-") as folder:
        fresh = Path(folder) / "fresh"
        packed = file.address.endswith(".zip")
        with _BoundedFile(fresh, file.address, _max_bytes(file) + (OTHER_MEMBERS_BYTES if packed else 0)) as target:
            _get(file.address, target)
        raw = _member(fresh, file) if packed else fresh.read_bytes()
    return _verified(raw, file, file.address)


def _member(archive: Path, file: File) -> bytes:
    """The file of an archive that has the right sum, whatever its name there; else some other, to be refused."""
    raw, left = b"", _max_bytes(file) + OTHER_MEMBERS_BYTES
    try:
        with zipfile.ZipFile(archive) as opened:
            if len(opened.infolist()) > MAX_MEMBERS:
                raise SeqloomError(f"{file.address}: not the right content: it holds more than {MAX_MEMBERS:,} files")
            for member in opened.infolist():
                if file.size not in (None, member.file_size) or member.compress_type not in COMPRESSIONS:
                    continue  # unread: what it claims to be is another file
                left -= member.file_size
                if left < 0:
                    raise _too_large(str(file.address), _max_bytes(file))
                with opened.open(member) as packed:
                    raw = packed.read(member.file_size + 1)
                if _digest(raw) == file.sha256:
                    return raw
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise SeqloomError(f"{file.address}: not a whole zip file ({error})") from error
    return raw


class _BoundedFile(io.FileIO):
    """A file that takes so many bytes and no more."""

    def __init__(self, path: Path, address: str, most: int) -> None:
        super().__init__(path, "w")
        self.address, self.most = address, most

    def write(self, chunk: Any, /) -> int:
        if self.tell() + len(chunk) > self.most:
            raise _too_large(self.address, self.most)
        return super().write(chunk)


def _get(address: str, target: BinaryIO | io.FileIO) -> None:
    """Download by pooch; whatever goes wrong is one line."""
    try:
        import pooch
        from requests import exceptions
    except ImportError:
        raise SeqloomError(f"{address}: to download it, pip install 'seqloom[data]'; or set ${MIRROR}") from None
    try:
        pooch.HTTPDownloader(timeout=TIMEOUT)(address, target, None)
    except exceptions.HTTPError as error:
        raise SeqloomError(f"{address}: {str(error).partition(' for url')[0]}") from error
    except exceptions.ChunkedEncodingError as error:
        raise SeqloomError(f"{address}: the connection broke before the end; nothing was kept, try again") from error
    except exceptions.Timeout as error:
        raise SeqloomError(f"{address}: no answer within {TIMEOUT} seconds") from error
    except exceptions.ConnectionError as error:
        raise SeqloomError(f"{address}: cannot be reached; without a connection, set ${MIRROR} to a mirror") from error
    except exceptions.RequestException as error:
        raise SeqloomError(f"{address}: could not be downloaded: {error}") from error
    except OSError as error:  # after the others, which are kinds of it
        raise SeqloomError(f"{address}: could not be kept: {error.strerror or error}") from error
