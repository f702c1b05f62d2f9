"""Patterns and lists that a stranger's input must not make take quadratic time: ten times as much takes ten times as
long, and all of it far less than a bound that no machine misses."""

from __future__ import annotations

import contextlib
import time

import pytest

from seqloom.data.files.header import _NAME, _NUMBER
from seqloom.data.tokenizers.base_tokenizer import CleanedTokenizer, Terms
from seqloom.errors import SeqloomError
from seqloom.metrics.text.moses_tokenizer import LANGUAGES, moses
from seqloom.runs.folder.ensembles import check_once
from seqloom.runs.many.cross_validation import cross_validate
from seqloom.runs.train.job import Job
from seqloom.runs.train.validation_split import parse_valid
from seqloom.training.settings import parse_seconds

LENGTH, BOUND = 50_000, 2.5  # characters, and seconds of the processor; what took quadratic time took five and more
SIGNS = " \t\n0aA9.,'\"`-<\u2160é"
ENDS = ("!", "", "\0", ".")
PAIRS = ("a ", ".1", "1,", ",.", "a'", "a.", "</", "aab", "''", "- ")
READERS = {
    "seconds": parse_seconds,
    "share": parse_valid,
    "number": _NUMBER.fullmatch,
    "name": _NAME.fullmatch,
    "terms": Terms().split,
    "repaired": CleanedTokenizer(Terms(), repair=True).split,
    "known": CleanedTokenizer(Terms(), repair="known", vocabulary=["aa"]).split,
} | {f"moses {language}": lambda text, language=language: moses(text, language) for language in LANGUAGES}


def inputs(every=False):
    for end in ENDS if every else ENDS[:1]:
        for sign in SIGNS:
            yield from (f"{head}{sign * LENGTH}{end}" for head in (("1", "a", "") if every else ("1",)))
        yield from (pair * (LENGTH // len(pair)) + end for pair in PAIRS)


@pytest.mark.parametrize("reader", ["seconds", "share", "number", "name", "terms", "repaired", "known"])
def test_no_text_takes_quadratic_time(reader):
    for text in inputs():
        _timed(READERS[reader], text)


@pytest.mark.parametrize("language", ["en", "fr", "de"])
def test_moses_takes_no_quadratic_time(language):
    """The signs that its patterns are about."""
    for text in (f"1{sign * LENGTH}" for sign in ",.' "):
        _timed(READERS[f"moses {language}"], text)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_no_text_of_many_takes_quadratic_time(reader):
    for text in inputs(every=True):
        _timed(READERS[reader], text)


def _timed(read, text):
    started = time.process_time()
    with contextlib.suppress(SeqloomError):
        read(text)
    assert time.process_time() - started < BOUND, f"{text[:5]!r}…{text[-3:]!r}"


@pytest.mark.parametrize("text", ["fold 1/" + "9" * 5000, "5% with seed " + "9" * 5000, "9" * 5000 + "%"])
def test_shares_of_thousands_of_digits(text):
    """They are refused, or are files that are not there."""
    with contextlib.suppress(SeqloomError):
        assert parse_valid(text) == [text]


def test_many_runs_and_many_folds_are_bounded(tmp_path):
    started = time.process_time()
    with pytest.raises(SeqloomError, match="1,000,000 runs are named; at most 1,000 answer together"):
        check_once([tmp_path] * 10**6)
    job = Job(task="translate", files="x.tsv", output=tmp_path / "run")
    with pytest.raises(SeqloomError, match="--folds takes 2 or more and at most 10,000, here 1000000"):
        cross_validate(job, 10**6)
    assert time.process_time() - started < BOUND
    assert not (tmp_path / "run").exists()
