"""Exported runs give the same answers in transformers, and come back the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
import transformers
from tokenizers import Tokenizer

import seqloom
from seqloom import Search, SeqloomError
from seqloom.data.batches.collate import pad
from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.runs.interop.huggingface_export import export_hf, export_tokenizers, find_model_type
from seqloom.runs.interop.huggingface_import import import_hf
from tests.conftest import words, write_pairs
from tests.laws import heads_of

SMALL = {"encoder.dim": 16, "decoder.dim": 16, "embedding": 16, "encoder.heads": 2, "decoder.layers": 1}
WORDS = words(60, seed=9)


def sides(**keywords):
    return {f"{side}.{name}": value for side in ("encoder", "decoder") for name, value in keywords.items()}


def trained(folder, settings, steps=80, tokens=("chars", "words"), data=None):
    pairs = data or write_pairs(folder.with_suffix(".tsv"), words(300))
    return seqloom.train(
        "translate",
        pairs,
        output=folder,
        model="transformer",
        size="tiny",
        data={"source_tokens": tokens[0], "target_tokens": tokens[1]},
        training={"max_steps": steps, "batch_rows": 32, "learning_rate": 5e-3, "warmup": 30},
        settings={**SMALL, **settings},
        device="cpu",
        quiet=True,
    )


CASES = {
    "pegasus": ("pegasus", {}),
    "pegasus, untied": ("pegasus", {"tie_embeddings": False}),
    "pegasus, learned": ("pegasus", sides(position="learned")),
    "marian": ("marian", sides(norm="after")),
    "marian, untied": ("marian", {**sides(norm="after", activation="gelu", scale=False), "tie_embeddings": False}),
    "bart": ("bart", sides(norm="after", embedding_norm=True, position="learned", activation="silu")),
    "bart, sinusoids": ("bart", sides(norm="after", embedding_norm=True)),
    "mbart": ("mbart", sides(embedding_norm=True, position={"kind": "learned", "longest": 64})),
}


def compare(run, folder, texts):
    """Tokens from text, logits, greedy and beam search, in transformers and here."""
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    source, target = (
        transformers.AutoTokenizer.from_pretrained(folder),
        transformers.AutoTokenizer.from_pretrained(folder / "target"),
    )
    ours = seqloom.load(run, "cpu")
    # Ours may bound a target by its source's length; theirs cannot.
    limit = theirs.generation_config.max_length - 1
    object.__setattr__(ours.texts, "bound", replace(ours.texts.bound, limit=limit))
    asked = source(texts, return_tensors="pt", padding=True)
    labels = [ours.texts.target.encode(text) for text in ours.predict(texts)]
    assert [target(ours.texts.target.decode(row))["input_ids"] for row in labels] == [[*row, EOS] for row in labels]
    fed = pad([[BOS, *row] for row in labels])
    wanted = theirs(asked["input_ids"], attention_mask=asked["attention_mask"], decoder_input_ids=fed.tokens).logits
    found = ours.model(pad([ours.texts.encode(text) for text in texts]), fed.tokens)
    real = torch.arange(fed.tokens.size(1)) < fed.lengths[:, None]
    size = ours.texts.target.size
    assert (wanted.log_softmax(-1)[..., :size] - found.log_softmax(-1))[real].abs().max() < 1e-4
    for beam in (1, 4):
        mask = asked["attention_mask"]
        rows = theirs.generate(asked["input_ids"], attention_mask=mask, num_beams=beam, do_sample=False)
        assert target.batch_decode(rows, skip_special_tokens=True) == ours.predict(texts, Search(beam=beam))


VARIANTS = ("pegasus, untied", "marian, untied", "bart, sinusoids")  # of cases that are tested anyway


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case in VARIANTS else case for case in CASES]
)
def test_transformers_writes_what_the_run_writes(case, tmp_path):
    expected, settings = CASES[case]
    run = trained(tmp_path / "run", settings, steps=120)
    assert export_hf(tmp_path / "run", tmp_path / "hf") == expected
    compare(tmp_path / "run", tmp_path / "hf", WORDS)
    # Nothing is lost when they save it themselves.
    transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").save_pretrained(tmp_path / "saved")
    for name in ("tokenizer.json", "target"):
        (tmp_path / "hf" / name).rename(tmp_path / "saved" / name)
    import_hf(tmp_path / "saved", tmp_path / "again")
    ours = run.load("cpu").predict(WORDS)
    assert len(set(ours)) > 2
    assert seqloom.load(tmp_path / "again", "cpu").predict(WORDS) == ours


def test_one_vocabulary_for_both_sides(tmp_path):
    data = tmp_path / "copy.tsv"
    data.write_text("".join(f"{word}\t{word[::-1]}\n" for word in words(200)))
    trained(tmp_path / "run", {"share": True, **sides(norm="after")}, tokens=("chars", "chars"), data=data)
    assert export_hf(tmp_path / "run", tmp_path / "hf") == "marian"
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["share_encoder_decoder_embeddings"]
    compare(tmp_path / "run", tmp_path / "hf", WORDS)


def test_what_was_imported_can_be_exported(tmp_path):
    trained(tmp_path / "run", sides(norm="after"))
    export_hf(tmp_path / "run", tmp_path / "hf")
    import_hf(tmp_path / "hf", tmp_path / "again")
    assert export_hf(tmp_path / "again", tmp_path / "more") == "marian"
    compare(tmp_path / "again", tmp_path / "more", WORDS[:20])


def test_an_older_runs_config_lacks_newer_keywords(tmp_path):
    import yaml

    trained(tmp_path / "run", {}, steps=2)
    path = tmp_path / "run" / "config.yaml"
    config = yaml.safe_load(path.read_text())
    del config["model"]["share_embeddings"]
    for side in ("encoder", "decoder"):
        for name in ("scale_embeddings", "embedding_norm"):
            del config["model"][side][name]
        del config["model"][side]["position"]["layout"]
    path.write_text(yaml.safe_dump(config))
    assert export_hf(tmp_path / "run", tmp_path / "hf") == "pegasus"
    resumed = seqloom.train(
        "translate", tmp_path / "run.tsv", output=tmp_path / "run", training={"max_steps": 3}, resume=True, quiet=True
    )
    assert resumed.step == 3


def test_tokenizers(run, tmp_path):
    export_tokenizers(run, tmp_path / "out")
    ours = seqloom.load(run, "cpu").texts
    source, target = (
        Tokenizer.from_file(str(tmp_path / "out" / side / "tokenizer.json")) for side in ("source", "target")
    )
    assert source.encode("chadé").ids == ours.encode("chadé")
    assert target.encode("CH AH D").ids == [BOS, *ours.target.encode("CH AH D"), EOS]
    assert target.decode(target.encode("CH AH D").ids) == "CH AH D"


REFUSED = [
    (sides(position="rotary"), "encoder.position=rotary"),
    (sides(position="none"), "encoder.position=none"),
    (sides(score="dot"), "encoder.score=dot"),
    (sides(norm_kind="rms"), "encoder.norm_kind=rms"),
    (sides(residual="dense"), "encoder.residual=dense"),
    ({"encoder.mixer": "window"}, "encoder.mixer=window"),
    ({"encoder.norm": "after"}, "encoder.norm other than decoder.norm"),
    ({"embedding": 8, "tie_embeddings": False}, "embedding=8"),
    (sides(norm="after", position="learned"), "position=learned"),
    ({"encoder": "gru"}, "encoder.kind=recurrent"),
    (sides(position="alibi"), "encoder.position=alibi"),
    ({"decoder.cross.normalizer": "relu"}, "decoder.cross.normalizer=relu"),
    ({"encoder.global_tokens": 2}, "encoder.global_tokens=2"),
    ({"views": "each"}, "views=each"),
]


def test_as_many_heads_of_keys_is_as_usual():
    from seqloom.runs.config import compose

    config = compose("translate", "transformer", "tiny", {}, {}, sides(mixer=heads_of(4)))["model"]
    assert config["encoder"]["heads"] == 4
    assert find_model_type(config, "runs/mine") == "pegasus"


@pytest.mark.parametrize(("settings", "named"), REFUSED, ids=[named for _, named in REFUSED])
def test_what_no_architecture_holds_is_refused_by_name(settings, named):
    from seqloom.runs.config import compose

    config = compose("translate", "transformer", "tiny", {}, {}, settings)["model"]
    with pytest.raises(SeqloomError) as caught:
        find_model_type(config, "runs/mine")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
