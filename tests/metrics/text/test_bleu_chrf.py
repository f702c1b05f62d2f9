"""BLEU and chrF equal what sacreBLEU itself prints."""

import pytest
import sacrebleu

from seqloom.errors import SeqloomError
from seqloom.metrics.text.bleu_chrf import bleu, chrf, reference_streams, tokenizer_advice
from seqloom.metrics.text.moses_tokenizer import moses

PREDICTIONS = ["The dog bit the man .", "It wasn't surprising.", "", "The man had just bitten him, hard."]
FIRST = ["The dog bit the man.", "It was not unexpected.", "Nothing was said.", "The man bit him first, and hard."]
SECOND = ["The dog had bit the man.", "No one was surprised.", "Silence.", "The man had bitten the dog."]
ONE = [(line,) for line in FIRST]


@pytest.mark.parametrize("tokenize", ["13a", "intl", "zh", "char", "none"])
def test_bleu_with_one_reference_equals_sacrebleu(tokenize):
    expected = sacrebleu.corpus_bleu(PREDICTIONS, [FIRST], tokenize=tokenize).score
    ours = bleu(PREDICTIONS, ONE, tokenize=tokenize)
    assert ours.score == pytest.approx(expected, abs=1e-9)
    assert 0 < ours.score < 100
    assert ours.signature == f"BLEU|nrefs:1|case:mixed|eff:no|tok:{tokenize}|smooth:exp|version:{sacrebleu.__version__}"


@pytest.mark.parametrize("language", ["en", "fr"])
def test_moses_is_bleu_over_its_tokens_in_lower_case(language):
    lines = [[" ".join(moses(line, language)) for line in side] for side in (PREDICTIONS, FIRST)]
    ours = bleu([line.upper() for line in PREDICTIONS], ONE, tokenize=f"moses:{language}")
    assert ours.score == pytest.approx(sacrebleu.corpus_bleu(lines[0], [lines[1]], tokenize="none").score, abs=1e-9)
    version = f"smooth:exp|version:{sacrebleu.__version__}"
    assert ours.signature == f"BLEU|nrefs:1|case:lc|eff:no|tok:moses-{language}|{version}"


def test_moses_without_a_language_is_english_and_says_so():
    assert bleu(PREDICTIONS, ONE, tokenize="moses").signature == bleu(PREDICTIONS, ONE, tokenize="moses:en").signature
    hint = tokenizer_advice(ONE, "moses")
    assert hint is not None
    assert "moses:de" in hint
    assert tokenizer_advice(ONE, "moses:en") is None
    with pytest.raises(SeqloomError, match="the languages of moses are"):
        bleu(PREDICTIONS, ONE, tokenize="moses:e")
    with pytest.raises(SeqloomError, match="are one text; put it into a tuple"):
        bleu(PREDICTIONS, FIRST, tokenize="moses:en")


def test_the_tokenizer_matters():
    assert bleu(PREDICTIONS, ONE, tokenize="13a").score != bleu(PREDICTIONS, ONE, tokenize="char").score


def test_bleu_worked_by_hand():
    # p = 4/5, 2/4, 1/3, 1/4 with the exponential smoothing of the last (no match: 1 / (2 · 2)), no brevity penalty.
    ours = bleu(["a b c x d"], [("a b c y d",)], tokenize="none").score
    assert ours == pytest.approx(100 * (4 / 5 * 2 / 4 * 1 / 3 * 1 / 4) ** 0.25)


def test_chrf_with_one_reference_equals_sacrebleu():
    ours = chrf(PREDICTIONS, ONE)
    assert ours.score == pytest.approx(sacrebleu.corpus_chrf(PREDICTIONS, [FIRST]).score, abs=1e-9)
    assert ours.signature == f"chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}"


def test_two_references_equal_sacrebleu():
    both = list(zip(FIRST, SECOND, strict=True))
    assert bleu(PREDICTIONS, both).score == pytest.approx(sacrebleu.corpus_bleu(PREDICTIONS, [FIRST, SECOND]).score)
    assert chrf(PREDICTIONS, both).score == pytest.approx(sacrebleu.corpus_chrf(PREDICTIONS, [FIRST, SECOND]).score)
    assert "nrefs:2|" in bleu(PREDICTIONS, both).signature


def test_a_missing_reference_is_left_out_and_not_taken_for_an_empty_one():
    varying = [(FIRST[0], SECOND[0]), (FIRST[1],)]
    assert reference_streams(varying) == [[FIRST[0], FIRST[1]], [SECOND[0], None]]
    ours = bleu(["The dog had bit the man.", "It"], varying)
    assert ours.table[1, 1] == 5  # the length of "It was not unexpected ."; an empty reference would be the closer one
    assert "nrefs:var" in ours.signature


def test_repeating_a_reference_changes_nothing():
    assert bleu(PREDICTIONS, [(line, line) for line in FIRST]).score == pytest.approx(bleu(PREDICTIONS, ONE).score)


def test_advice_for_chinese_alone():
    chinese = [("我喜欢 iPhone。", "not looked at"), ("今天天气很好",)]
    assert "--tokenize zh" in str(tokenizer_advice(chinese, "13a"))
    assert tokenizer_advice(chinese, "zh") is None
    for other in ([("the cat 猫",)], [("ひらがなだけ",)], [("안녕하세요",)], [("",)], []):
        assert tokenizer_advice(other, "13a") is None


def test_empty_input():
    for measure in (bleu, chrf):
        assert measure([""], [("",)]).score == 0
        assert measure([""], [("a b c d",)]).score == 0
        nothing = measure([], [])
        assert nothing.score != nothing.score  # not a number
        assert nothing.signature


def test_errors():
    with pytest.raises(SeqloomError, match="did you mean 'char'"):
        bleu(["a"], [("a",)], tokenize="chr")
    with pytest.raises(SeqloomError, match="put it into a tuple"):
        chrf(["a b"], ["a b"])
