"""Words that are a noun or a verb by a word that stands before them, at a distance that is known. Generated.

"we know the , as so often , saw ." and "we know they , as so often , saw .": the word before the first comma decides,
and nothing else does. So a model that predicts it right knows what stood so many words before.
"""

from __future__ import annotations

from collections.abc import Iterator

from seqloom.data.datasets.dataset import Dataset
from seqloom.data.datasets.synthetic.sequences import Draw

Sentence = list[tuple[str, str]]  # words and their tags, as of Universal Dependencies

VERBS = "saw watch rest play drink dream answer work walk talk dance laugh fish paint sail march"
WORDS = dict.fromkeys(VERBS.split(), "VERB") | {"can": "AUX", "will": "AUX"}  # else all are nouns
DETERMINERS = ("the", "this", "every", "another", "each")
PRONOUNS = ("they", "we", "you", "I")
PEOPLE = ("people", "children", "teachers", "neighbours", "friends", "farmers")
WHO = [*((word, "PRON") for word in PRONOUNS), *((word, "NOUN") for word in PEOPLE)]
# What takes both an object and a clause, so that what follows is open.
KNOW = ("know", "remember", "forget", "notice", "mention", "mean", "understand", "hear")
OPENINGS = [[], [("now", "ADV")], [("sometimes", "ADV")], [("in", "ADP"), ("spring", "NOUN")]]
ENDS = [[], [("again", "ADV")], [("there", "ADV")], [("at", "ADP"), ("night", "NOUN")]]
# What can stand between commas anywhere; neither a determiner nor a pronoun is among it.
_ASIDES = """perhaps/ADV
however/ADV
luckily/ADV
sadly/ADV
clearly/ADV
of/ADP course/NOUN
for/ADP example/NOUN
in/ADP short/ADJ
at/ADP least/ADV
as/ADV so/ADV often/ADV
so/ADV to/PART speak/VERB
to/PART be/AUX honest/ADJ
for/ADP better/ADJ or/CCONJ worse/ADJ
from/ADP time/NOUN to/ADP time/NOUN
as/ADV often/ADV as/ADP possible/ADJ
between/ADP morning/NOUN and/CCONJ late/ADJ evening/NOUN
in/ADP cold/ADJ and/CCONJ windy/ADJ places/NOUN"""
ASIDES: list[Sentence] = [
    [(word, tag) for word, _, tag in (each.partition("/") for each in aside.split())] for aside in _ASIDES.splitlines()
]
MAX_DISTANCE = 20  # words back to the one that decides
DISTANCES = (1, *range(4, MAX_DISTANCE + 1))  # an aside is one word and two commas at least


def ambiguous_words(dataset: Dataset, split: str) -> Iterator[Sentence]:
    """Sentences in pairs: a noun in one, a verb in the other, all else alike (pairs as in the Winograd schemas,
    Levesque et al. 2012; tags as in Nivre et al. 2020). One in 18 has each distance; no pair is in two splits."""
    draw, seen = Draw(7), set()
    for name, size in dataset.sizes.items():
        for number in range(size // 2):
            pair = _pair(draw, DISTANCES[number % len(DISTANCES)])
            while not seen.isdisjoint(map(tuple, pair)):
                pair = _pair(draw, DISTANCES[number % len(DISTANCES)])
            seen.update(map(tuple, pair))
            if name == split:
                yield from pair
        if name == split:
            return


def word_and_distance(sentence: Sentence) -> tuple[int, int]:
    """Where the word stands that is a noun or a verb, and how far before it the one that decides."""
    at = next(place for place, (word, _) in enumerate(sentence) if word in WORDS)
    decides = next(place for place in range(2, len(sentence)) if sentence[place - 1][0] in KNOW)
    return at, at - decides


def _pair(draw: Draw, distance: int) -> tuple[Sentence, Sentence]:
    before = [*draw.one(OPENINGS), draw.one(WHO), (draw.one(KNOW), "VERB")]
    between = _between(draw, distance - 1)
    word, after = draw.one(list(WORDS)), [*draw.one(ENDS), (".", "PUNCT")]
    noun = [*before, (draw.one(DETERMINERS), "DET"), *between, (word, "NOUN"), *after]
    return noun, [*before, (draw.one(PRONOUNS), "PRON"), *between, (word, WORDS[word]), *after]


def _between(draw: Draw, size: int) -> Sentence:
    """Asides of exactly `size` tokens together with their commas."""
    if not size:
        return []
    comma, found = (",", "PUNCT"), [(",", "PUNCT")]
    while len(found) < size:
        left = size - len(found) - 1
        # One word and a comma must still fit after it, or nothing at all.
        fitting = [aside for aside in ASIDES if len(aside) == left or len(aside) <= left - 2]
        found += [*draw.one(fitting), comma]
    return found
