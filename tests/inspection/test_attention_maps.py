"""Attention maps as text and as pictures; costs against counts by hand."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pytest
import torch

from seqloom.data.batches.collate import pad
from seqloom.data.tokenizers.tokenizers import UNK
from seqloom.inspection.attention_maps import CJK_FONTS, AttentionMap, columns
from seqloom.inspection.cost import cost
from seqloom.language import using
from seqloom.models.seq2seq import Seq2Seq


def test_text_shows_where_each_target_token_looked():
    weights = np.array([[[0.9, 0.1, 0.0], [0.0, 0.25, 0.75]]])
    assert AttentionMap(["a", "b", "<eos>"], ["X", "<eos>"], weights, "attention").text().splitlines() == [
        "       a b <",
        "    X  █      a 90%",
        "<eos>    ░ ▓  <eos> 75%",
    ]


def test_wide_characters_keep_theircolumns():
    weights = np.array([[[0.9, 0.1], [0.1, 0.9]]])
    lines = AttentionMap(["中", "e"], ["国", "x"], weights, "attention").text().splitlines()
    assert lines == ["    中 e", "国  ██    中 90%", " x     █  e 90%"]


def test_a_long_source_is_cut_into_blocks():
    weights = np.full((1, 2, 30), 0.01)
    weights[0, 0, 3] = weights[0, 1, 28] = 0.9
    source = list("abcdefghijklmnopqrstuvwxyz1234")
    seen = AttentionMap(source, ["X", "中"], weights, "attention")
    lines = seen.text(40).splitlines()
    assert max(columns(line) for line in lines) <= 40
    heads = [line.split() for line in lines if "%" not in line and line]
    assert [letter for line in heads for letter in line] == source
    assert [line for line in lines if not line] == [""] * (len(heads) - 1)
    assert sum("█" in line for line in lines) == 2
    assert seen.text(40) != seen.text(30)
    assert len(seen.text(200).splitlines()) == 3, "with room enough there is one block"
    assert len(seen.text(1).splitlines()) == 30 * 4 - 1, "with none a block holds one token"


def test_blocks_go_by_the_terminal(monkeypatch):
    seen = AttentionMap(list("中国" * 20), ["x"], np.full((1, 1, 40), 0.025), "attention")
    monkeypatch.setenv("COLUMNS", "60")
    lines = seen.text().splitlines()
    assert len(lines) > 3
    assert 50 < max(map(columns, lines)) <= 60
    assert all("█" not in line for line in lines)


def testcolumns_of_a_terminal():
    assert [columns(text) for text in ("a", "中", "Ａ", "e\u0301", "ｱ", "👩\u200d👧", "")] == [1, 2, 2, 1, 1, 4, 0]


def test_chinese_in_a_picture(tmp_path, recwarn):
    AttentionMap(["中", "国"], ["zhong", "guo"], np.array([[[0.9, 0.1], [0.1, 0.9]]]), "a").plot(tmp_path / "zh.svg")
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist} & set(CJK_FONTS)
    missing = [warning for warning in recwarn if "missing from" in str(warning.message)]
    assert not installed or not missing


def test_heads_are_averaged(tmp_path):
    weights = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    seen = AttentionMap(["longer", "words"], ["x"], weights, "cross")
    assert seen.mean().tolist() == [[0.5, 0.5]]
    seen.plot(tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def costs(model, length):
    tokens = torch.full((1, length), UNK)
    return cost(model, lambda: model(pad([[UNK] * length]), tokens))


def test_costs_are_those_counted_by_hand():
    """Per token 2·in·out operations a matrix; an LSTM has four gates over input and state, here in two directions."""
    encoder, decoder = {"kind": "lstm", "dim": 8}, {"kind": "attentive", "dim": 16, "score": "dot"}
    rows = {row.name: row for row in costs(Seq2Seq(30, 40, encoder, decoder, embedding=12), 10)}
    assert rows["encoder"].operations == 2 * 10 * 2 * (4 * 8 * (12 + 8))
    assert rows["decoder.recurrent"].operations == 10 * 2 * (4 * 16 * (12 + 16))
    assert rows["output"].operations == 10 * 2 * 16 * 40
    assert rows["decoder.attention"].operations == 2 * (2 * 10 * 10 * 16)  # scores, and the mix of values
    assert rows["decoder.combine"].operations == 10 * 2 * 16 * 16 + 10 * 2 * 16 * 16  # over 10 sources and 10 targets
    assert rows[""].operations == sum(row.operations for row in rows.values() if row.depth == 1)
    assert rows[""].parameters == sum(row.parameters for row in rows.values() if row.depth == 1)


def test_a_transformers_costs():
    stack = {"kind": "transformer", "dim": 8, "layers": 1, "heads": 2, "hidden": 16}
    rows = {row.name: row for row in costs(Seq2Seq(30, 40, stack, stack, embedding=8), 6)}
    projections, mixing, feed = 6 * 2 * 8 * 32, 2 * (2 * 6 * 6 * 8), 6 * 2 * 2 * 8 * 16
    assert rows["encoder"].operations == projections + mixing + feed
    assert rows["decoder"].operations == 2 * (projections + mixing) + feed


def test_labels_are_those_the_model_saw(run):
    """With the head cut off, the first tokens of the text are not those that were read."""
    import dataclasses

    import seqloom
    from seqloom.inspection.attention_maps import attention_maps

    texts = dataclasses.replace(seqloom.load(run).texts, max_length=3, cut="head")
    (seen,) = attention_maps(texts, "abcdef", ()).values()
    assert seen.source == ["d", "e", "f", "<eos>"]


def test_a_dollar_sign_is_no_formula(tmp_path):
    AttentionMap(["$a^$", "b"], ["x"], np.array([[[0.5, 0.5]]]), "a").plot(tmp_path / "dollar.svg")


def test_labels_of_a_short_map_do_not_overlap():
    """Neither the tokens that were read, nor the numbers of the scale."""
    pytest.importorskip("matplotlib")
    for source, target, heads in (("ab", ["K"], 4), ("cat", ["K", "AE", "T"], 1), (["the", "cat", "sat"], ["K"], 1)):
        shown = AttentionMap([*source, "<eos>"], target, np.full((heads, len(target), len(source) + 1), 0.3), "layer 1")
        figure = shown.plot()
        figure.canvas.draw()
        axes, scale = figure.axes
        for labels, before, after in (
            (axes.get_xticklabels(), "x1", "x0"),
            (axes.get_yticklabels()[::-1], "y1", "y0"),
            (scale.get_yticklabels(), "y1", "y0"),
        ):
            boxes = [label.get_window_extent() for label in labels]
            assert all(getattr(a, before) <= getattr(b, after) for a, b in pairwise(boxes)), source


def test_a_picture_says_that_it_shows_the_mean_of_heads():
    pytest.importorskip("matplotlib")
    several = AttentionMap(["a", "<eos>"], ["b"], np.full((4, 1, 2), 0.5), "blocks.1.cross").plot()
    assert several.get_supxlabel() == "blocks.1.cross, mean of 4 heads"
    alone = AttentionMap(["a", "<eos>"], ["b"], np.full((1, 1, 2), 0.5), "attention").plot()
    assert alone.get_supxlabel() == ""


@pytest.mark.parametrize(("fonts", "label"), [(["Noto Sans CJK SC"], "源"), ([], "read")])
def test_labels_are_chinese_only_where_a_font_has_them(monkeypatch, fonts, label):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys.modules[AttentionMap.__module__], "_installed", lambda: fonts)
    with using("zh"):
        figure = AttentionMap(["a", "b"], ["x"], np.full((4, 1, 2), 0.5), "cross").plot()
    assert figure.axes[0].get_xlabel() == label
    assert figure.axes[0].get_xaxis().label.get_family()[-len(fonts) :] == fonts or not fonts
