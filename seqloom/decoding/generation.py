"""Going on from a prompt: token by token, as text that can be shown while it is written."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from seqloom.data.batches.collate import pad
from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD, SPECIALS, UNK, alphabet
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.batched import Answer
from seqloom.decoding.random_draws import Draws
from seqloom.decoding.search import Search, sampler
from seqloom.errors import SeqloomError, known
from seqloom.models.seq2seq import Stepper


@dataclass(frozen=True, kw_only=True)
class Course:
    """Where a text begins and how long it goes on. `length`: tokens at most; `stop`: texts before which it ends."""

    length: int = 500
    stop: tuple[str, ...] = ()
    label: str | None = None

    def __post_init__(self) -> None:
        if self.length < 1:
            raise SeqloomError(f"the length is at least 1 token, here {self.length}")
        if not all(self.stop):
            raise SeqloomError("a text to stop at has one character at least")


@dataclass(frozen=True, eq=False)
class Continuation:
    """A language model with its codec. `lines`: it was trained on lines, which begin with <bos> or a label and end with
    <eos>; else on running text. `room`: how many tokens a Transformer keeps in view."""

    model: Stepper
    codec: Codec
    labels: Sequence[str]
    lines: bool
    room: int | None
    device: torch.device

    def pieces(self, prompt: str, search: Search, course: Course, number: int = 0) -> Iterator[str]:
        """What follows `prompt`, piece by piece as it is certain. `number` tells samples from one seed apart."""
        written = Written(self.codec, course.stop, prompt)
        for [chosen] in self._steps([self.encode(prompt, course.label)], search, course.length, [(0, number)]):
            assert chosen is not None  # it has no neighbour with a shorter prompt
            token = chosen[0]
            if token == EOS and self.lines:
                break
            if text := written.add(token):
                yield text
            if written.over:
                return
        if text := written.close():
            yield text

    def answers(
        self,
        prompts: Sequence[str],
        search: Search,
        course: Course,
        labels: Sequence[str | None] | None = None,
        streams: Sequence[tuple[int, int]] | None = None,
    ) -> list[Answer]:
        """What follows each prompt, all at once. `streams`: its place among all that are asked, and which sample of it;
        each draws by these alone, so that it gets the same in any batch."""
        labels = labels or [course.label] * len(prompts)
        rows = [self.encode(prompt, label) for prompt, label in zip(prompts, labels, strict=True)]
        written = [Written(self.codec, course.stop, prompt) for prompt in prompts]
        found: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
        going = set(range(len(prompts)))
        for step in self._steps(rows, search, course.length, streams or [(row, 0) for row in range(len(rows))]):
            for row, chosen in enumerate(step):
                if chosen is None or row not in going:
                    continue
                token = chosen[0]
                found[row][1].append(chosen[1])
                if token == EOS and self.lines:
                    going.discard(row)
                    continue
                found[row][0].append(token)
                written[row].text += written[row].add(token)
                if written[row].over or len(found[row][0]) >= course.length:
                    going.discard(row)
            if not going:
                break
        return [_answer(one, tokens, scores) for one, (tokens, scores) in zip(written, found, strict=True)]

    def encode(self, prompt: str, label: str | None = None) -> list[int]:
        """The ids a text begins with, one at least."""
        if self.lines:
            if self.labels and label is None:
                raise SeqloomError(f"this model writes for a label; choose from: {', '.join(self.labels)}")
            if label is not None and not self.labels:
                raise SeqloomError(f"this model knows no labels, here {label!r}")
            first = BOS if label is None else self.codec.size + self.labels.index(known(label, self.labels, "label"))
            return [first, *self.codec.encode(prompt)]
        if label is not None:
            raise SeqloomError(f"this model knows no labels, here {label!r}")
        if self.codec.kind != "words":
            return self.codec.encode(prompt) or [self._line_end()]
        ids = [number for line in prompt.split("\n") for number in (*self.codec.encode(line), EOS)][:-1]
        return ids or [EOS]

    def _line_end(self) -> int:
        """Where nothing stands before, a line begins."""
        found = self.codec.encode("\n")
        return found[0] if len(found) == 1 and found[0] != UNK else len(SPECIALS)

    @torch.inference_mode()
    def _steps(
        self, rows: list[list[int]], search: Search, length: int, streams: Sequence[tuple[int, int]]
    ) -> Iterator[list[tuple[int, float] | None]]:
        """A token and its log-probability for each row a step; None as long as its prompt goes on.

        All rows step together from where the shortest prompt ends: those with more of it left are given it.
        """
        if search.beam > 1:
            raise SeqloomError("a text goes on by the likeliest token or by a drawn one; there is no beam here")
        draw = sampler(search, Draws(search.seed, streams, self.device)) if search.sample else None
        short, longest = min(map(len, rows)), max(map(len, rows))
        behind = torch.tensor([len(row) for row in rows], device=self.device)  # steps before its first own token
        state = self.model.start(pad([row[: short - 1] for row in rows]).to(self.device), room=self.room)
        now = torch.tensor([[row[short - 1]] for row in rows], device=self.device)
        never = [PAD, BOS, UNK] if self.lines or self.codec.kind == "words" else [PAD, BOS, UNK, EOS]
        for t in range(short, longest + length):
            logits, state = self.model.step(now, state)
            logits = logits[:, -1].float().clone()
            logits[:, never] = float("-inf")
            chosen = logits.argmax(-1) if draw is None else draw(logits, t - behind)
            score = logits.log_softmax(-1).gather(1, chosen[:, None])[:, 0]
            found = zip(rows, chosen.tolist(), score.tolist(), strict=True)
            yield [None if t < len(row) else (token, nats) for row, token, nats in found]
            given = {i: row[t] for i, row in enumerate(rows) if t < len(row)}
            if given:
                chosen[list(given)] = torch.tensor(list(given.values()), device=self.device)
            now = chosen[:, None]


class Written:
    """Tokens as text that grows. What is not yet certain is held back: half a character, or what may become a text to
    stop at."""

    def __init__(self, codec: Codec, stop: Sequence[str], before: str) -> None:
        self.codec, self.stop = codec, stop
        self.text = ""  # for who collects it
        self.over = False
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._blank = codec.kind == "words" and bool(before) and not before[-1].isspace()

    def add(self, token: int) -> str:
        """What can be shown now."""
        return self._let(self._bytes.decode(self._spelled(token)))

    def close(self) -> str:
        """What was held back."""
        text = self._let(self._bytes.decode(b"", final=True))
        return text if self.over else text + self._held

    def _spelled(self, token: int) -> bytes:
        if token < len(SPECIALS):
            self._blank = False
            return b"\n" if token == EOS else SPECIALS[token].encode()
        text, kind = self.codec.tokens[token - len(SPECIALS)], self.codec.kind
        if kind == "words":
            blank, self._blank = b" " * self._blank, True
            return blank + text.encode()
        if kind == "bytes" or kind.startswith("bpe"):
            return bytes(map(ord if kind == "bytes" else alphabet().__getitem__, text))
        return text.encode()

    def _let(self, more: str) -> str:
        text = self._held + more
        ends = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        if ends:
            self.over, self._held = True, ""
            return text[: min(ends)]
        held = max((n for stop in self.stop for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _answer(written: Written, tokens: list[int], scores: list[float]) -> Answer:
    text, total = written.text + ("" if written.over else written.close()), sum(scores)
    return Answer(text, tuple(tokens), total, total, math.exp(total / max(len(scores), 1)))
