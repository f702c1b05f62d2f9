"""Text generation from a prompt, token by token, as text that can be shown while it is generated."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from seqloom.data.batches.collate import pad
from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD, SPECIALS, UNK, byte_alphabet
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.batched import Answer
from seqloom.decoding.random_draws import Draws
from seqloom.decoding.sampling import sampler
from seqloom.decoding.search_options import GREEDY, SAMPLE, Search
from seqloom.errors import SeqloomError, known
from seqloom.models.seq2seq import Stepper


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """`length`: tokens at most; `stop`: texts before which it ends; `label`: what the text is generated for."""

    length: int = 500
    stop: tuple[str, ...] = ()
    label: str | None = None

    def __post_init__(self) -> None:
        if self.length < 1:
            raise SeqloomError(f"the length is at least 1 token, here {self.length}")
        if not all(self.stop):
            raise SeqloomError("a text to stop at has one character at least")


@dataclass(frozen=True, eq=False)
class TextGenerator:
    """A language model with its vocabulary. `lines`: it was trained on lines, which begin with <bos> or a label and end
    with <eos>; else on running text. `room`: how many tokens a Transformer sees at most."""

    model: Stepper
    codec: Codec
    labels: Sequence[str]
    lines: bool
    room: int | None
    device: torch.device

    def stream(self, prompt: str, search: Search, options: GenerationOptions, number: int = 0) -> Iterator[str]:
        """The continuation of `prompt`, in parts as soon as they are certain. `number`: which sample of the seed."""
        written = StreamedText(self.codec, options.stop, prompt)
        for [chosen] in self._steps([self.encode(prompt, options.label)], search, options.length, [(0, number)]):
            assert chosen is not None  # in a batch of one there is no shorter prompt
            token = chosen[0]
            if token == EOS and self.lines:
                break
            if text := written.add(token):
                yield text
            if written.stopped:
                return
        if text := written.close():
            yield text

    def answers(
        self,
        prompts: Sequence[str],
        search: Search,
        options: GenerationOptions,
        labels: Sequence[str | None] | None = None,
        streams: Sequence[tuple[int, int]] | None = None,
    ) -> list[Answer]:
        """The continuation of each prompt, in one batch. `streams`: its position in the input and the number of its
        sample; random draws depend on these alone, so that a prompt gets the same answer in any batch."""
        labels = labels or [options.label] * len(prompts)
        rows = [self.encode(prompt, label) for prompt, label in zip(prompts, labels, strict=True)]
        written = [StreamedText(self.codec, options.stop, prompt) for prompt in prompts]
        generated: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
        active = set(range(len(prompts)))
        for step in self._steps(rows, search, options.length, streams or [(row, 0) for row in range(len(rows))]):
            for row, chosen in enumerate(step):
                if chosen is None or row not in active:
                    continue
                token = chosen[0]
                generated[row][1].append(chosen[1])
                if token == EOS and self.lines:
                    active.discard(row)
                    continue
                generated[row][0].append(token)
                written[row].text += written[row].add(token)
                if written[row].stopped or len(generated[row][0]) >= options.length:
                    active.discard(row)
            if not active:
                break
        return [_answer(one, tokens, scores) for one, (tokens, scores) in zip(written, generated, strict=True)]

    def encode(self, prompt: str, label: str | None = None) -> list[int]:
        """The ids that the text begins with, at least one."""
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
        """The id of a line end, which stands before an empty prompt: a text begins as a line does."""
        ids = self.codec.encode("\n")
        return ids[0] if len(ids) == 1 and ids[0] != UNK else len(SPECIALS)

    @torch.inference_mode()
    def _steps(
        self, rows: list[list[int]], search: Search, length: int, streams: Sequence[tuple[int, int]]
    ) -> Iterator[list[tuple[int, float] | None]]:
        """A token and its log-probability for each row a step; None as long as its prompt goes on.

        All rows step together from where the shortest prompt ends; longer prompts are fed until they end.
        """
        if search.kind not in (GREEDY, SAMPLE):
            raise SeqloomError(f"text is generated by greedy search or by sampling; there is no {search.kind} here")
        draw = sampler(search, Draws(search.seed, streams, self.device)) if search.sample else None
        short, longest = min(map(len, rows)), max(map(len, rows))
        prompt_lengths = torch.tensor([len(row) for row in rows], device=self.device)
        state = self.model.start(pad([row[: short - 1] for row in rows]).to(self.device), room=self.room)
        tokens = torch.tensor([[row[short - 1]] for row in rows], device=self.device)
        never = [PAD, BOS, UNK] if self.lines or self.codec.kind == "words" else [PAD, BOS, UNK, EOS]
        for t in range(short, longest + length):
            logits, state = self.model.step(tokens, state)
            logits = logits[:, -1].float().clone()
            logits[:, never] = float("-inf")
            chosen = logits.argmax(-1) if draw is None else draw(logits, t - prompt_lengths)
            score = logits.log_softmax(-1).gather(1, chosen[:, None])[:, 0]
            results = zip(rows, chosen.tolist(), score.tolist(), strict=True)
            yield [None if t < len(row) else (token, log_p) for row, token, log_p in results]
            forced = {i: row[t] for i, row in enumerate(rows) if t < len(row)}
            if forced:
                chosen[list(forced)] = torch.tensor(list(forced.values()), device=self.device)
            tokens = chosen[:, None]


class StreamedText:
    """Tokens as growing text. What is not yet certain is held back: half a character, or the start of a stop text."""

    def __init__(self, codec: Codec, stop: Sequence[str], before: str) -> None:
        self.codec, self.stop = codec, stop
        self.text = ""  # collected by the caller
        self.stopped = False
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._space = codec.kind == "words" and bool(before) and not before[-1].isspace()

    def add(self, token: int) -> str:
        """What can be shown now."""
        return self._release(self._bytes.decode(self._bytes_of(token)))

    def close(self) -> str:
        """What was held back."""
        text = self._release(self._bytes.decode(b"", final=True))
        return text if self.stopped else text + self._pending

    def _bytes_of(self, token: int) -> bytes:
        if token < len(SPECIALS):
            self._space = False
            return b"\n" if token == EOS else SPECIALS[token].encode()
        text, kind = self.codec.tokens[token - len(SPECIALS)], self.codec.kind
        if kind == "words":
            space, self._space = b" " * self._space, True
            return space + text.encode()
        if kind == "bytes" or kind.startswith("bpe"):
            return bytes(map(ord if kind == "bytes" else byte_alphabet().__getitem__, text))
        return text.encode()

    def _release(self, more: str) -> str:
        text = self._pending + more
        ends = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        if ends:
            self.stopped, self._pending = True, ""
            return text[: min(ends)]
        pending = max((n for stop in self.stop for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        self._pending = text[len(text) - pending :]
        return text[: len(text) - pending]


def _answer(written: StreamedText, tokens: list[int], scores: list[float]) -> Answer:
    text, total = written.text + ("" if written.stopped else written.close()), sum(scores)
    return Answer(text, tuple(tokens), total, total, math.exp(total / max(len(scores), 1)))
