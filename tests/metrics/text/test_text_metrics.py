"""The table of metrics and `score`."""

import json
import math
import subprocess
import sys
import time

import jiwer
import numpy as np
import pytest
import sacrebleu

from seqloom.data.tokenizers.graphemes import graphemes
from seqloom.errors import SeqloomError
from seqloom.metrics.bootstrap import interval
from seqloom.metrics.text.text_metrics import METRICS, higher_is_better, score
from seqloom.version import __version__

WORDS = ["the", "a", "dog", "cat", "man", "sees", "bites", "likes", "big", "small", "old", "red", "and"]


def corpus(n, seed=0):
    """n references of 5 to 12 words and predictions with about one word in five exchanged."""
    random = np.random.default_rng(seed)
    references = [[WORDS[i] for i in random.integers(len(WORDS), size=random.integers(5, 13))] for _ in range(n)]
    predictions = [[w if random.random() > 0.2 else WORDS[random.integers(len(WORDS))] for w in r] for r in references]
    return [" ".join(p) for p in predictions], [(" ".join(r),) for r in references]


def test_phonemes_worked_by_hand():
    predictions = ["K AE1 T", "D AO1 G Z", "R EH1 D"]
    references = [("K AE1 T",), ("D AO1 G",), ("R IY1 D", "R EH1 D")]
    scores = score(predictions, references, split=str.split, metrics=["per", "wer", "exact_match"])
    assert scores.metrics == pytest.approx({"per": 100 / 9, "wer": 100 / 9, "exact_match": 200 / 3})
    assert scores.signature["per"] == f"per|refs:closest|case:mixed|version:{__version__}"
    assert scores.count == 3


def test_per_uses_the_targets_tokens():
    scores = score(["abcd"], [("abce",)], split=lambda s: [s[:2], s[2:]], metrics=["per", "cer", "wer"])
    assert scores.metrics == {"per": 50, "cer": 25, "wer": 100}


def test_every_metric_equals_its_trusted_reference():
    predictions, references = corpus(50)
    predictions[3] = ""
    first = [several[0] for several in references]
    scores = score(predictions, references, split=str.split, samples=100)
    assert scores.metrics == pytest.approx(
        {
            "per": 100 * jiwer.wer(first, predictions),
            "cer": 100 * jiwer.cer(first, predictions),
            "wer": 100 * jiwer.wer(first, predictions),
            "exact_match": 100 * sum(p == r for p, r in zip(predictions, first, strict=True)) / 50,
            "bleu": sacrebleu.corpus_bleu(predictions, [first]).score,
            "chrf": sacrebleu.corpus_chrf(predictions, [first]).score,
        }
    )


def test_every_interval_contains_its_score_within_three_seconds():
    predictions, references = corpus(1000)
    start = time.process_time()
    scores = score(predictions, references, split=str.split)
    assert time.process_time() - start < 3
    assert set(scores.intervals) == set(METRICS)
    for name, (low, high) in scores.intervals.items():
        assert low < scores.metrics[name] < high
        assert high - low < 10


@pytest.mark.parametrize("name", ["per", "exact_match", "bleu", "chrf"])
def test_intervals_equal_scoring_each_draw_anew(name):
    predictions, references = corpus(40)

    def anew(rows):
        drawn = [predictions[i] for i in rows], [references[i] for i in rows]
        return score(*drawn, split=str.split, metrics=[name], samples=0).metrics[name]

    expected = interval(anew, 40, samples=30, seed=5)
    ours = score(predictions, references, split=str.split, samples=30, seed=5).intervals[name]
    assert ours == pytest.approx(expected)


def test_tokenize_reaches_bleu():
    chinese = score(["我喜欢红苹果"], [("我喜欢青苹果",)], split=list, metrics=["bleu"], tokenize="zh", samples=0)
    assert chinese.metrics["bleu"] == pytest.approx(
        sacrebleu.corpus_bleu(["我喜欢红苹果"], [["我喜欢青苹果"]], tokenize="zh").score
    )
    assert "tok:zh" in chinese.signature["bleu"]


def test_chinese_characters_worked_by_hand():
    """One of six is wrong, one of five is missing; tokens that are characters give the same rate."""
    predictions, references = ["我喜欢红苹果", "你好世界"], [("我喜欢青苹果",), ("你好新世界",)]
    scores = score(predictions, references, split=graphemes, metrics=["cer", "per", "wer"], samples=0).metrics
    assert scores == pytest.approx({"cer": 200 / 11, "per": 200 / 11, "wer": 100})
    assert scores["cer"] == pytest.approx(100 * jiwer.cer([several[0] for several in references], predictions))


def test_exact_match_is_full_just_where_no_character_errs():
    same = score([" a b ", "c"], [("x", "a b"), ("c ",)], split=str.split, samples=0).metrics
    assert (same["exact_match"], same["cer"]) == (100, 0)
    cased = score(["A b"], [("a b",)], split=str.split, samples=0).metrics
    assert cased["exact_match"] == 0
    assert cased["cer"] > 0


def test_no_examples_and_empty_texts():
    nothing = score([], [], split=str.split)
    assert nothing.count == 0
    assert all(math.isnan(value) for value in nothing.metrics.values())
    assert nothing.to_json()["metrics"]["per"] is None
    empty = score(["", "a"], [("",), ("", "b")], split=str.split, samples=20)
    assert all(math.isfinite(value) for value in empty.metrics.values())
    assert empty.metrics["exact_match"] == 50


def test_json_is_strict_and_round():
    scores = score(*corpus(5), split=str.split, samples=10)
    loaded = json.loads(json.dumps(scores.to_json(), allow_nan=False))
    assert loaded["metrics"] == scores.metrics
    assert tuple(loaded["intervals"]["per"]) == scores.intervals["per"]
    assert loaded["signature"] == scores.signature
    assert loaded["count"] == 5
    json.dumps(score([], [], split=str.split).to_json(), allow_nan=False)


def test_the_seed_decides():
    data = corpus(30)
    first, again, other = (score(*data, split=str.split, metrics=["per"], seed=s, samples=50) for s in (1, 1, 2))
    assert first == again
    assert first.intervals != other.intervals
    assert score(*data, split=str.split, metrics=["per"], samples=0).intervals == {}
    assert score(*data, split=str.split, metrics=[]).metrics == {}


def test_direction():
    assert {name for name in METRICS if higher_is_better(name)} == {"exact_match", "bleu", "chrf"}


def test_errors():
    with pytest.raises(SeqloomError, match="did you mean 'bleu'"):
        score(["a"], [("a",)], split=str.split, metrics=["blue"])
    with pytest.raises(SeqloomError, match="unknown metric"):
        higher_is_better("accuracy")
    with pytest.raises(SeqloomError, match="2 predictions but 1 references"):
        score(["a", "b"], [("a",)], split=str.split)
    with pytest.raises(SeqloomError, match="prediction 1 has no reference"):
        score(["a"], [()], split=str.split)
    with pytest.raises(SeqloomError, match="put it into a tuple"):
        score(["ab"], ["ab"], split=str.split)
    with pytest.raises(SeqloomError, match="samples"):
        score(["a"], [("a",)], split=str.split, samples=-1)


def test_every_metric_cites_its_source():
    for function in METRICS.values():
        assert function.__doc__
        assert any(year in function.__doc__ for year in ("2002", "2004", "2008", "2015", "2016"))


def test_nothing_heavy_at_import():
    heavy = ("torch", "sacrebleu", "rapidfuzz", "jiwer")
    modules = "bootstrap, metric, perplexity, text.bleu_chrf, text.error_rates, text.text_metrics, text.textbook_bleu"
    imports = "; ".join(f"import seqloom.metrics.{name}" for name in modules.split(", "))
    code = f"import sys; {imports}; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
