"""A Transformer behind CTranslate2, which searches by itself: greedy and beam.

Greedy search, and the best of a beam with alpha 0, equal ours. With another alpha the two may stop at different steps:
theirs when PATIENCE times the beam's width of hypotheses has ended, ours when no live one scores better than the worst
of the best ended ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqloom.data.tokenizers.tokenizer_json import special_names
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.batched import Answer, TextPredictor
from seqloom.decoding.hypotheses import Hypothesis
from seqloom.decoding.search_options import BEAM, GREEDY, Search
from seqloom.errors import SeqloomError
from seqloom.runs.interop.onnx_run import check_position

PATIENCE = 2.0  # of 200 words, beam 4: all as ours, in 1.19 of the time of 1.0, by which 10 to 19 differ


class Ct2Model(nn.Module):
    """A model that CTranslate2 runs; it only predicts. `max_positions` of source and target, None if unlimited;
    `names` of the tokens of both."""

    max_positions: Sequence[int | None]
    names: tuple[list[str], list[str]]
    translator: Any

    def __init__(self, folder: Path, max_positions: Sequence[int | None], names: tuple[list[str], list[str]]) -> None:
        super().__init__()
        self.max_positions, self.names, self.translator = max_positions, names, _translator(folder)
        self.ids = {name: number for number, name in enumerate(names[1])}

    def forward(self, *inputs: Any) -> Any:
        raise SeqloomError("the engine ct2 only answers: for likelihoods and looking inside use the run by torch")


@dataclass(frozen=True, eq=False)
class Ct2Texts(TextPredictor):
    """Texts whose `model` is Held."""

    @property
    def held(self) -> Ct2Model:
        return self.model  # pyright: ignore[reportReturnType]

    def answers(self, texts: Iterable[str], search: Search, rows: int = 64, ahead: int = 16) -> Iterator[list[Answer]]:
        if search.sample:
            raise SeqloomError("the engine ct2 does not sample by our rules; leave --sample out, or use --engine onnx")
        if search.kind not in (GREEDY, BEAM):
            raise SeqloomError(f"the engine ct2 has no decoding {search.kind}; use --engine onnx")
        if search.first is not None or self.bound.first is not None:
            raise SeqloomError("the engine ct2 has no first token for every target (decoding.first); use --engine onnx")
        if not set(search.never) <= set(self.bound.never):
            raise SeqloomError("the engine ct2 knows what is never written from the run alone; use --engine onnx")
        return super().answers(texts, search, rows, ahead)

    def decoded(
        self, sources: Sequence[list[int]], limits: list[int], search: Search, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Their search takes one length limit, so that each limit is a batch of its own."""
        by_limit: dict[int, list[int]] = defaultdict(list)
        for row, limit in enumerate(limits):
            check_position(self.held.max_positions[0], len(sources[row]), "source")
            by_limit[limit].append(row)
        hypotheses: dict[int, list[Hypothesis]] = {}
        for limit, rows in by_limit.items():
            hypotheses |= zip(rows, self._search([sources[row] for row in rows], limit, search), strict=True)
        return [hypotheses[row] for row in range(len(sources))]

    def _search(self, sources: Sequence[list[int]], limit: int, search: Search) -> list[list[Hypothesis]]:
        names, ids = self.held.names[0], self.held.ids
        longest = limit - search.close  # a certain <eos> need not be searched for
        reach = min(longest, self.held.max_positions[1] or longest)
        results = self.held.translator.translate_batch(
            [[names[token] for token in source] for source in sources],
            beam_size=search.beam,
            num_hypotheses=search.beam,
            length_penalty=search.alpha if search.beam > 1 else 0.0,
            patience=PATIENCE if search.alpha else 1.0,
            max_decoding_length=reach,
            min_decoding_length=0,
            max_input_length=0,
            return_scores=True,
        )
        found = []
        for result in results:
            tokens = [tuple(ids[name] for name in hypothesis) for hypothesis in result.hypotheses]
            if reach < longest and max(map(len, tokens)) == reach:
                check_position(reach, reach + 1, "target")
            scored = [_hypothesis(*pair, reach, search) for pair in zip(tokens, result.scores, strict=True)]
            found.append(sorted(scored, key=lambda one: -one.score)[: search.n_best])
        return found

    def scored(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """The logarithm of the probability of every token of the targets, <eos> after them."""
        read, write = self.held.names
        found = self.held.translator.score_batch(
            [[read[token] for token in source] for source in sources],
            [[write[token] for token in target] for target in targets],
            max_input_length=0,
        )
        return [one.log_probs for one in found]


def _hypothesis(tokens: tuple[int, ...], score: float, most: int, search: Search) -> Hypothesis:
    """With our score, which counts a certain <eos> as a token; theirs does not."""
    if search.beam == 1:
        return Hypothesis(tokens, score, score)
    counted = len(tokens) + (len(tokens) < most)
    log_probability = score * counted**search.alpha
    return Hypothesis(
        tokens, log_probability / min(len(tokens) + 1, most + search.close) ** search.alpha, log_probability
    )


def load_ct2(folder: Path, max_positions: Sequence[int | None], texts: TextPredictor) -> Ct2Texts:
    """The texts with the CTranslate2 model of a folder in place of theirs."""
    model: Any = Ct2Model(folder, max_positions, (token_names(texts.source), token_names(texts.target)))
    return Ct2Texts(model, texts.source, texts.target, texts.bound, texts.device, texts.max_length, texts.cut)


def token_names(codec: Codec) -> list[str]:
    """The names of all tokens by id."""
    return [*special_names(codec), *codec.tokens]


def _translator(folder: Path) -> Any:
    try:
        import ctranslate2
    except ImportError as error:
        raise SeqloomError("the engine ct2 needs ctranslate2: pip install 'seqloom[export]'") from error
    try:
        return ctranslate2.Translator(str(folder), device="cpu", intra_threads=torch.get_num_threads())
    except RuntimeError as error:
        raise SeqloomError(f"{folder}: CTranslate2 cannot open it: {str(error).splitlines()[0]}") from error
