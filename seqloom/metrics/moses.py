"""Tokens as papers on Multi30k score them: by the rules of the Moses tokenizer, in lower case."""

from __future__ import annotations

import re

# What is neither letter, digit, blank nor one of . , - ' ` stands alone; dots in a row stay together.
_SIGN = re.compile(r"([^\w\s.,'`-]|_)")
_DOTS = re.compile(r"\.{2,}")
_COMMA = re.compile(r"(?<!\d),|,(?!\d)")  # not the one in 10,000
_LETTER = r"[^\W\d_]"
# 's, 't and 're go with what follows them; an apostrophe that touches a letter on one side alone stands by itself.
_WITHIN = re.compile(rf"(?<={_LETTER})'(?={_LETTER})|(?<=\d)'(?=s)")
_ALONE = re.compile(rf"(?<!{_LETTER})'(?!{_LETTER})|(?<![\w])'(?={_LETTER})|(?<={_LETTER})'(?!{_LETTER})")


def moses(text: str) -> list[str]:
    """The tokens of a sentence, in lower case (Koehn et al. 2007, tokenizer.perl of Moses, English apostrophes).

    Multi30k's own tokens (Elliott et al. 2016) were made so. A full stop stays with its word if the word has another
    within, as u.s., or if a small letter follows: in lower case that holds for every abbreviation in a sentence, so no
    list of them is needed. Signs are not written as entities: &quot; and " are one token either way.
    """
    text = _DOTS.sub(lambda dots: f" {dots[0]} ", _SIGN.sub(r" \1 ", text.lower()))
    text = _ALONE.sub(" ' ", _COMMA.sub(" , ", text))
    words = _WITHIN.sub(" '", text).split()
    return [token for place, word in enumerate(words) for token in _stopped(word, words[place + 1 : place + 2])]


def _stopped(word: str, after: list[str]) -> list[str]:
    """A word, and its full stop by itself where that ends a sentence."""
    stem = word[:-1]
    if not word.endswith(".") or not stem or stem.endswith("."):
        return [word]
    within = "." in stem and any(letter.isalpha() for letter in stem)
    return [word] if within or (after and after[0][0].islower()) else [stem, "."]
