"""Attention maps: attention weights with their source and target tokens."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.data.batches.collate import cut, pad
from seqloom.data.tokenizers.tokenizers import BOS, EOS, SPECIALS
from seqloom.decoding.batched import TextPredictor
from seqloom.errors import SeqloomError
from seqloom.language import _, language, using
from seqloom.models.ensemble import Ensemble
from seqloom.parts.attention.multi_head import MultiHeadAttention
from seqloom.parts.attention.single_head import Attention
from seqloom.parts.probe import watch

SHADES = " ░▒▓█"
CELL = 0.36  # inches of a figure
CJK_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei", "SimHei", "PingFang SC")


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """Weights of one layer, [heads, T, S]: row t is the attention while target token t was written."""

    source: list[str]
    target: list[str]
    weights: np.ndarray
    layer: str

    def mean(self) -> np.ndarray:
        """[T, S], the mean over heads."""
        return self.weights.mean(0)

    def text(self, width: int | None = None) -> str:
        """The map as text: a line a target token, its weights as shades, and the token with the largest weight.

        A source too long for `width` columns (None: those of the terminal) is cut into blocks, one above the other.
        """
        weights = self.mean()
        name_width = max(columns(token) for token in self.target)
        names = [f"{' ' * (name_width - columns(token))}{token}" for token in self.target]
        mosts = [f"{self.source[int(row.argmax())]} {row.max():.0%}" for row in weights]
        heads = [token[:1] or " " for token in self.source]
        room = (width or shutil.get_terminal_size().columns) - name_width - 4 - max(map(columns, mosts))
        blocks = []
        for start, end in _blocks([columns(head) + 1 for head in heads], room + 1):
            lines = [" " * (name_width + 2) + " ".join(heads[start:end])]
            for name, row, most in zip(names, weights[:, start:end], mosts, strict=True):
                shades = [SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)] for weight in row]
                cells = " ".join(shade * columns(head) for shade, head in zip(shades, heads[start:end], strict=True))
                lines.append(f"{name}  {cells}  {most}")
            blocks.append("\n".join(lines))
        return "\n\n".join(blocks)

    def plot(self, path: str | Path | None = None) -> Any:
        """A figure of the map (needs the `plots` extra). With `path` it is saved there."""
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise SeqloomError("plots need matplotlib: pip install 'seqloom[plots]'") from error
        rows, columns = len(self.target), len(self.source)
        beside = 1.7 + 0.09 * max(map(len, self.target))  # left and right of the cells
        figure = Figure(figsize=(beside + CELL * columns, 1.3 + CELL * rows), layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(self.mean(), cmap="Blues", vmin=0.0, vmax=1.0, aspect="equal")
        fonts = _fonts("".join(self.source + self.target))
        rotation = 90 if _labels_overlap(self.source) else 0
        axes.set_xticks(range(columns), self.source, rotation=rotation, family=fonts, parse_math=False)
        axes.set_yticks(range(rows), self.target, family=fonts, parse_math=False)
        read, written, weight, heads = _labels(len(self.weights))
        axes.set_xlabel(read, family=_fonts(read))
        axes.set_ylabel(written, family=_fonts(written))
        axes.xaxis.set_label_position("top")
        axes.xaxis.tick_top()
        bar = figure.colorbar(image, ax=axes, shrink=0.8, ticks=(0.0, 0.5, 1.0))
        bar.set_label(weight, family=_fonts(weight))
        if len(self.weights) > 1:
            figure.supxlabel(f"{self.layer}{heads}", fontsize=8, family=_fonts(heads))
        if path is not None:
            figure.savefig(path)
        return figure


@torch.inference_mode()
def attention_maps(texts: TextPredictor, source: str, tokens: tuple[int, ...]) -> dict[str, AttentionMap]:
    """Every attention over the source while writing `tokens`, by the name of the layer, first to last.

    The tokens are fed as in training (teacher forcing), so they may be a prediction or a reference.
    """
    model = texts.model.eval()
    if isinstance(model, Ensemble):
        raise SeqloomError("several models together have no attention of their own: look at one of them")
    encoded = texts.encode(source)
    written = [BOS, *tokens]
    readers = {
        name
        for name, part in model.decoder.named_modules()
        if isinstance(part, Attention) or (isinstance(part, MultiHeadAttention) and part.is_cross)
    }
    if not readers:
        raise SeqloomError(
            "this model has no attention: its decoder sees the source as one vector; "
            "choose a model whose name ends in -attention, or transformer"
        )
    with watch(model.decoder) as seen:
        model(pad([encoded]).to(texts.device), torch.tensor([written], device=texts.device))
    source_tokens = [*cut(texts.source.display_tokens(source), texts.max_length, texts.cut), SPECIALS[EOS]]
    target_tokens = [texts.target.token(token) for token in (*tokens, EOS)]
    # A decoder that steps reports [1, 1, S] per step, others [1, T, S] or [1, heads, T, S].
    joined = {
        name: torch.cat([one.reshape(-1, *one.shape[-2:]) for one in seen[name]], 1) for name in seen if name in readers
    }
    return {
        name: AttentionMap(source_tokens, target_tokens, weights.float().cpu().numpy(), name)
        for name, weights in joined.items()
    }


def _blocks(widths: list[int], room: int) -> Iterator[tuple[int, int]]:
    """Split a row of cells into blocks of at most `room` columns, at least one cell each: (start, end)."""
    start = used = 0
    for cell, width in enumerate(widths):
        if used + width > room and cell > start:
            yield start, cell
            start, used = cell, 0
        used += width
    yield start, len(widths)


def columns(text: str) -> int:
    """How many columns of a terminal the text takes: Chinese characters and emoji take two, marks and joiners none."""
    return sum(
        0
        if unicodedata.category(letter) in ("Mn", "Me", "Cf")
        else 2
        if unicodedata.east_asian_width(letter) in "WF"
        else 1
        for letter in text
    )


def _labels_overlap(labels: list[str]) -> bool:
    """Whether adjacent labels, each centered in its cell, would overlap."""
    letter = 0.09  # inches, about
    return any(letter * (columns(a) + columns(b)) / 2 > 0.95 * CELL for a, b in pairwise(labels))


def _fonts(text: str) -> list[str]:
    """Families to draw the text with: also one with Chinese, Japanese and Korean, where it is needed and installed."""
    from matplotlib import font_manager, rcParams

    default = list(rcParams["font.family"])
    if all(ord(letter) < 0x2E80 for letter in text):
        return default
    found = _installed()
    if not found:  # matplotlib's list may be older than the font
        for path in font_manager.findSystemFonts():
            if "cjk" in path.lower():
                font_manager.fontManager.addfont(path)
        found = _installed()
    return default + found


def _labels(heads: int) -> tuple[str, ...]:
    """Axis labels of a figure, in the language of this context; in English if no font has its letters."""
    _fonts(_("weight"))  # so that installed fonts are known
    with using(language() if _installed() else "en"):
        return _("read"), _("written"), _("weight"), _(", mean of {heads} heads", heads=heads)


def _installed() -> list[str]:
    """The installed CJK_FONTS."""
    from matplotlib import font_manager

    names = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in CJK_FONTS if name in names]
