"""Letters that are repeated too often: the vocabulary says how many there should be."""

from __future__ import annotations

from seqloom.data.prepare.labels import LabelOptions
from seqloom.data.prepare.request import PrepareRequest
from seqloom.data.tokenizers.base_tokenizer import CleanedTokenizer
from seqloom.data.tokenizers.tokenizers import Words
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.tasks.classify.task import TASK

LINES = [
    "a bad film\tno",
    "so bad\tno",
    "a baaad film\tno",
    "a gooood film\tyes",
    "good\tyes",
    "a god\tyes",
    "good\tyes",
]


def ready(tmp_path, **options):
    file = tmp_path / "films.tsv"
    file.write_text("".join(f"{line}\n" for line in [*LINES, "soooo hmmmm\tno"]))
    return TASK.prepare(
        PrepareRequest(
            [str(file)], 0.0, LabelOptions(shorten_repeats=True, **options), seed=7, cache=tmp_path / "cache"
        )
    )


def counted(found) -> dict[str, int]:
    return dict(found.facts["vocabulary"]["source"]["commonest"])


def test_known_words_say_how_many_letters(tmp_path):
    found = ready(tmp_path, split_version=2)
    counts = counted(found)
    assert counts["bad"] == 3
    assert counts["good"] == 3
    assert counts["so"] == 2
    assert counts["hmm"] == 1  # nobody knows better
    assert "baad" not in counts
    again = Codec.from_json(found.source.to_json())
    assert again.splitter.split("baaaaad goooood hmmm goood sooo bad") == ["bad", "good", "hmm", "good", "so", "bad"]


def test_training_and_prediction_mend_alike(tmp_path):
    found = ready(tmp_path, split_version=2)
    rows = found.train.corpus if hasattr(found.train, "corpus") else found.prepared.train
    sources = [rows.sources([row]).tokens[0].tolist() for row in range(len(rows))]
    for line, ids in zip([*LINES, "soooo hmmmm"], sources, strict=True):
        assert found.source.encode(line.split("\t")[0]) == [number for number in ids if number > 2]


def test_older_runs_leave_two(tmp_path):
    assert counted(ready(tmp_path))["baad"] == 1
    old = Codec.from_json(ready(tmp_path).source.to_json())
    assert old.splitter.split("baaad gooood") == ["baad", "good"]


def test_many_repeated_letters_end():
    cleaned = CleanedTokenizer(Words(), repair="known", vocabulary=["abab"])
    assert cleaned.split("aaabbbaaabbb") == ["abab"]
    assert cleaned.split("abc" * 3 + "aaabbb" * 200) == ["abc" * 3 + "aabb" * 200]
