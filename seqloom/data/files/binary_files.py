"""Recognizing binary files, and what to give instead."""

from __future__ import annotations

from pathlib import Path

AUDIO = "audio ({}), not text: the tasks of the command line read no sounds; give their transcripts, a text a line"
PICTURE = "a picture ({}), not text: the tasks of the command line read no pictures; give their captions"
ARCHIVE = "an archive ({}), not text: unpack it and name the files in it"
SHEET = "a spreadsheet ({}), not text: save it as CSV (UTF-8)"
TABLE = "{} of columns in binary form, not text: write it as CSV, TSV or JSON lines"
# The first bytes of files, what they are, and by which name.
_STARTS = (
    (b"fLaC", AUDIO, "FLAC"),
    (b"OggS", AUDIO, "Ogg"),
    (b"ID3", AUDIO, "MP3"),
    (b"\xff\xfb", AUDIO, "MP3"),
    (b"\x89PNG\r\n", PICTURE, "PNG"),
    (b"\xff\xd8\xff", PICTURE, "JPEG"),
    (b"GIF8", PICTURE, "GIF"),
    (b"II*\0", PICTURE, "TIFF"),
    (b"MM\0*", PICTURE, "TIFF"),
    (b"%PDF-", "a {}, not text: save its text as a plain file", "PDF"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1", SHEET, "of an old Office"),
    (b"\x1f\x8b", "compressed by {}: give it a name that ends in .gz", "gzip"),
    (b"BZh", ARCHIVE, "bzip2"),
    (b"\xfd7zXZ", ARCHIVE, "xz"),
    (b"7z\xbc\xaf", ARCHIVE, "7z"),
    (b"\x28\xb5\x2f\xfd", ARCHIVE, "zstd"),
    (b"PAR1", TABLE, "Parquet"),
    (b"ARROW1", TABLE, "Arrow"),
    (b"\x89HDF", TABLE, "HDF5"),
    (b"\x93NUMPY", TABLE, "a NumPy array"),
    (b"SQLite format 3", TABLE, "a SQLite database"),
)
_ENDINGS = {
    AUDIO: {".wav", ".mp3", ".flac", ".ogg", ".opus", ".m4a", ".aac", ".aiff", ".wma"},
    PICTURE: {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm"},
}
_KINDS = {AUDIO: "audio", PICTURE: "pictures"}


def binary_format(head: bytes) -> str | None:
    """The format of a binary file by its first bytes, and what to do; None if it may be text."""
    if head[:4] == b"RIFF" and head[8:12] in (b"WAVE", b"WEBP"):
        return (AUDIO if head[8:12] == b"WAVE" else PICTURE).format(head[8:12].decode())
    if head.startswith(b"PK\x03\x04"):
        return SHEET.format("Excel") if b"xl/" in head[:4096] else ARCHIVE.format("zip")
    return next((message.format(name) for start, message, name in _STARTS if head.startswith(start)), None)


def binary_majority(paths: list[Path]) -> str | None:
    """What most files of a folder are, if not text, as "audio (a.wav, b.wav, …)"."""
    for kind, endings in _ENDINGS.items():
        found = [path for path in paths if path.suffix.lower() in endings]
        if 2 * len(found) > len(paths):
            names = ", ".join(path.name for path in found[:3]) + (", …" if len(found) > 3 else "")
            return f"{_KINDS[kind]} ({names}), not texts{kind.partition('not text')[2]}"
    return None
