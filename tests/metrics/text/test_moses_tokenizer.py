"""Tokens by the rules of Moses: each case worked by hand after its description, and as sacremoses cuts them."""

from __future__ import annotations

import gzip
import os
import re
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import SeqloomError
from seqloom.metrics.text.moses_tokenizer import LANGUAGES, language_of, moses

CASES = [
    ("en", "A man's head, isn't it?", "a man 's head , isn 't it ?"),
    ("en", "The boys' dog of the 1990's.", "the boys ' dog of the 1990 's ."),
    ("en", "'Quoted' it's, 'so'.", "'quoted ' it 's , ' so ' ."),
    ("de", 'Er sagt "Hallo" (laut) & geht...', 'er sagt " hallo " ( laut ) & geht ...'),
    ("de", "Die große Straße, ß bleibt.", "die große straße , ß bleibt ."),
    ("de", "Geht's? Wie geht's Max'.", "geht ' s ? wie geht ' s max ' ."),
    ("fr", "L'homme qu'on n'a pas vu, aujourd'hui.", "l' homme qu' on n' a pas vu , aujourd' hui ."),
    ("it", "L'uomo dell'isola.", "l' uomo dell' isola ."),
    ("cs", "Pes apod. 3 kočky.", "pes apod. 3 kočky ."),
    ("en", "Dogs apod. 3 cats.", "dogs apod . 3 cats ."),
    ("en", "See pp. 3 and pp. (4).", "see pp. 3 and pp . ( 4 ) ."),
    ("en", "10,000 T-Shirts,rot,3.5 kg", "10,000 t-shirts , rot , 3.5 kg"),
    ("en", "Past E.S.E. Electronics in the U.S.", "past e.s.e. electronics in the u.s."),
    ("en", "St. Bernard Nr. 5 am 3. Mai.", "st. bernard nr . 5 am 3. mai ."),
    ("de", "Um 12. (Mai) bzw. 3.", "um 12. ( mai ) bzw. 3."),
    ("en", 'Zwei Sätze. "Ja"', 'zwei sätze . " ja "'),
    ("en", "snake_case 50% 5² ½", "snake _ case 50 % 5 ² ½"),
    ("en", "a,,5 .' x.'", "a , ,5 . ' x . '"),
    ("en", "  .  ", "."),
    ("en", "", ""),
]


@pytest.mark.parametrize(("language", "text", "tokens"), CASES)
def test_tokens(language, text, tokens):
    assert " ".join(moses(text, language)) == tokens


def test_cutting_twice_changes_nothing():
    once = " ".join(moses("Two dogs, e.g. 3 (big) ones, ran..."))
    assert " ".join(moses(once)) == once


@settings(max_examples=150, deadline=None)
@given(
    language=st.sampled_from(LANGUAGES),
    text=st.lists(
        st.sampled_from(
            [*"aAsSéßÑ09., '\"-`…½²?!()&_\t", "...", "..", "'s", ". ", "vs.", "z.B.", "bzw.", "12.", " pp. "]
        ),
        max_size=12,
    ).map("".join),
)
def test_what_sacremoses_cuts(language, text):
    assert moses(text, language) == theirs(language).tokenize(text.lower(), escape=False)


@cache
def theirs(language):
    return pytest.importorskip("sacremoses").MosesTokenizer(language)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_real_sentences_are_cut_as_sacremoses_does(language):
    folder = Path(os.environ.get("SEQLOOM_DATA", "missing"))
    files = [*folder.glob(f"multi30k/raw/*.{language}.gz"), *folder.glob("tatoeba/eng-fra.txt.gz")]
    column = {"en": 0, "fr": 1}.get(language)
    lines = {
        line if file.match("multi30k/raw/*") else line.split("\t")[column or 0]
        for file in files
        if file.match("multi30k/raw/*") or column is not None
        for line in gzip.decompress(file.read_bytes()).decode().splitlines()
    }
    if not lines:
        pytest.skip("needs Multi30k and Tatoeba under $SEQLOOM_DATA")
    some = sorted(lines)[::4]
    unlike = [one for one in some if moses(one, language) != theirs(language).tokenize(one.lower(), escape=False)]
    assert len(lines) > 25_000
    assert unlike == []


@pytest.mark.parametrize(
    "text", ["' " * 20_000, "a'" * 20_000, "," * 40_000, "." * 40_000, "a." * 20_000, "²" * 40_000]
)
def test_time_grows_with_the_text(text):
    started = time.perf_counter()
    moses(text, "en")
    moses(text, "fr")
    assert time.perf_counter() - started < 2


def test_a_language_is_named():
    assert (language_of("13a"), language_of("moses:de"), language_of("moses")) == (None, "de", "en")
    for name in ("moses:xx", "moses:", "moses:de:en"):
        with pytest.raises(SeqloomError, match=re.escape(f"{name!r}: the languages of moses are cs, de, en")):
            language_of(name)
