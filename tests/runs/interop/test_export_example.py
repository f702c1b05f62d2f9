"""The example beside an exported model numbers a text as the model does."""

from __future__ import annotations

import json

import pytest
import torch

from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.batched import LengthLimit, TextPredictor
from seqloom.runs.interop import export_example
from tests.conftest import words

ODD = ["Straße", "ＡＢ，a", "İb", "Do <eos> it", "a.b, c", "  two   blanks ", "e\u0301a", "👩‍👩‍👧 b", "ab\u0308"]
CUT = [*ODD, *words(20, seed=4), ""]


@pytest.mark.parametrize("kind", ["chars", "words", "terms", "bytes", "bpe:300"])
@pytest.mark.parametrize(
    ("fold", "half_width", "limit", "cut"),
    [(False, False, None, "tail"), ("lower", True, 3, "tail"), ("casefold", False, 3, "head")],
)
def test_the_example_numbers_a_text_as_the_model_does(kind, fold, half_width, limit, cut, tmp_path):
    codec = Codec.build(kind, [text for text in CUT if "<" not in text][::2], fold=fold, half_width=half_width)
    texts = TextPredictor(torch.nn.Module(), codec, codec, LengthLimit(1.0, 9), torch.device("cpu"), limit, cut)  # pyright: ignore
    about = json.loads(json.dumps(export_example.described(texts)))
    program = export_example.example(texts, export_example._tokenizer(codec, "source", tmp_path), True)
    imports, rest = program.split("here, text = ")
    lines = rest.partition('"step.onnx"))\n')[2].partition("read = {")[0]  # what makes `source`
    for text in CUT:
        known = {"about": about, "special": about["special"], "here": tmp_path, "text": text}
        exec(imports + lines, known)
        assert known["source"] == texts.encode(text), text
