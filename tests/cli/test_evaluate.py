"""Scores of Chinese: sacreBLEU's own tokenizer, characters, and widths."""

from __future__ import annotations

import json

import pytest
import sacrebleu

from tests.cli.conftest import one_line

PAIRS = {
    "wo ai bei jing": "我爱北京。",
    "wo men qu bei jing": "我们去北京。",
    "ni hao ma": "你好吗？",
    "wo xi huan ping guo": "我喜欢苹果！",
    "ta men xi huan bei jing": "他们喜欢北京。",
    "jin tian shi ２０２４ nian": "今天是２０２４年。",
}


def write(path, pairs):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs.items()))
    return path


def trained(seqloom, tmp_path, *more):
    folder, data = tmp_path / "run", write(tmp_path / "zh.tsv", PAIRS)
    settings = ["--valid", "0%", "--max-steps", 150, "--size", "tiny", "--rate", 0.01, "--quiet", "--device", "cpu"]
    settings += ["--set", "training.valid_every=150"]  # an epoch is one step here
    assert seqloom("train", "translate", data, "--output", folder, *settings, *more)[0] == 0
    return folder, data


def test_chinese_bleu_equals_sacrebleu_and_is_suggested(seqloom, tmp_path):
    folder, _ = trained(seqloom, tmp_path, "--target-tokens", "chars")
    test = write(tmp_path / "test.tsv", PAIRS | {"ni hao ma": "你好啊？", "wo ai bei jing": "我很爱北京！"})
    arguments = ["evaluate", folder, test, "--json", "--predictions", tmp_path / "said.txt"]
    status, out, err = seqloom(*arguments, "--tokenize", "zh")
    assert (status, err) == (0, "")
    result = json.loads(out)
    said = (tmp_path / "said.txt").read_text().splitlines()
    references = [line.split("\t")[1] for line in test.read_text().splitlines()]
    expected = sacrebleu.corpus_bleu(said, [references], tokenize="zh")
    assert result["metrics"]["bleu"] == pytest.approx(expected.score)
    assert "tok:zh" in result["signature"]["bleu"]
    assert result["metrics"]["per"] == pytest.approx(result["metrics"]["cer"]), "tokens are characters here"
    assert 0 < result["metrics"]["cer"] < 30
    _, out, err = seqloom(*arguments)
    assert "--tokenize zh" in err
    assert err.count("\n") == 1
    assert json.loads(out)["metrics"]["bleu"] != result["metrics"]["bleu"]
    assert seqloom(*arguments, "--metrics", "cer")[2] == "", "no BLEU, no advice about it"
    one_line(seqloom(*arguments, "--tokenize", "zhh"), "did you mean 'zh'")


def test_german_in_lower_case_keeps_its_letters_and_names_its_tokens(seqloom, tmp_path):
    folder, data = tmp_path / "run", write(tmp_path / "de.tsv", {"a white dog": "Ein weißer Hund.", "he": "Er ist's."})
    train = ["train", "translate", data, "--output", folder, "--valid", "0%", "--max-steps", 1, "--size", "tiny"]
    one_line(seqloom(*train, "--lowercase", "--fold"), "--lowercase and --casefold exclude one another", "keeps ß")
    one_line(
        seqloom(*train, "--set", "data.lowercase=lowr"), "unknown value of lowercase 'lowr'", "did you mean 'lower'"
    )
    assert seqloom(*train, "--quiet", "--device", "cpu", "--lowercase", "--target-tokens", "words")[0] == 0
    assert "lowercase: lower" in (folder / "config.yaml").read_text()
    assert "weißer" in json.loads((folder / "target.json").read_text())["tokens"]
    evaluate = ["evaluate", folder, data, "--json", "--metrics", "bleu"]
    status, out, err = seqloom(*evaluate, "--tokenize", "moses:de")
    assert (status, err) == (0, "")
    signature = json.loads(out)["signature"]["bleu"]
    assert "|case:lc|" in signature
    assert "|tok:moses-de|" in signature
    assert signature.endswith("|lowercase")
    _, out, err = seqloom(*evaluate, "--tokenize", "moses")
    assert "tok:moses-en|" in json.loads(out)["signature"]["bleu"]
    assert "of other languages name theirs: moses:cs, moses:de" in err
    one_line(seqloom(*evaluate, "--tokenize", "moses:gr"), "the languages of moses are", "moses:de")


def test_words_and_widths_from_train_to_evaluate(seqloom, tmp_path):
    pytest.importorskip("rjieba")
    folder, data = trained(seqloom, tmp_path, "--target-tokens", "jieba", "--half-width")
    assert json.loads((folder / "target.json").read_text())["half_width"]
    sources = tmp_path / "sources.txt"
    sources.write_text("jin tian shi 2024 nian\njin tian shi ２０２４ nian\n")
    said = seqloom("predict", folder, sources)[1].splitlines()
    assert said == ["今天是2024年。"] * 2
    result = json.loads(seqloom("evaluate", folder, data, "--json", "--tokenize", "zh")[1])
    assert result["metrics"]["exact_match"] == 100, "references are made plain as well"
    assert all(text.endswith("|half-width") for text in result["signature"].values())
    _, out, _ = seqloom("evaluate", folder, data, "--tokenize", "zh")
    assert "|half-width" in out


def test_latin_references_get_no_advice(seqloom, run, pairs):
    assert seqloom("evaluate", run, pairs)[2] == ""
