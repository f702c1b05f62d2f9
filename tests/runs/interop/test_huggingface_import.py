"""Imported models write what Hugging Face writes: token for token, greedy and beam, with everything their configs ask.

The models learn a small task by a few steps, so that answers differ in content and length and end by themselves.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

import seqloom
from seqloom import Search, SeqloomError
from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.runs.interop.huggingface_import import import_hf
from seqloom.training.checkpoint import read_tensors

V, LONGEST = 60, 14
SIZES = {
    "vocab_size": V,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 40,
}
MARIAN = {"pad_token_id": 59, "eos_token_id": 0, "decoder_start_token_id": 59, "forced_eos_token_id": 0}
BART = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": 2}
FAMILIES = {
    "marian": ("MarianMTModel", "MarianConfig", {**MARIAN, "activation_function": "swish", "scale_embedding": True}),
    "bart": ("BartForConditionalGeneration", "BartConfig", {**BART, "activation_function": "gelu"}),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", {**BART, "activation_function": "relu"}),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", {**BART, "scale_embedding": True}),
}
GENERATION = {
    "marian": {**MARIAN, "bad_words_ids": [[59]], "renormalize_logits": True},
    "bart": {**BART, "forced_bos_token_id": 0},
    "pegasus": BART,
    "mbart": BART,
}


def rows(sequences, value):
    width = max(map(len, sequences))
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in sequences])


def sentences(count, draw, lead=()):
    return [[*lead, *(draw.randrange(3, V - 1) for _ in range(draw.randint(1, 14)))] for _ in range(count)]


def made(kind, **changes):
    """A model of theirs in which every parameter matters."""
    model, config, own = FAMILIES[kind]
    torch.manual_seed(3)
    other = getattr(transformers, model)(getattr(transformers, config)(**SIZES | own | changes))
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            if kind in ("bart", "mbart") or "embed_positions" not in name:
                start = 1.0 if "norm" in name and name.endswith("weight") else 0.0
                parameter.copy_(start + torch.randn_like(parameter) * (0.15 if parameter.dim() == 2 else 0.1))
        other.final_logits_bias.normal_(std=0.3)
    other.generation_config = transformers.GenerationConfig(**GENERATION[kind], max_length=LONGEST)
    return other.eval()


def taught(kind, steps=150):
    """Backwards, numbers times seven, every fifth one left out."""
    other, draw = made(kind), random.Random(5)
    lead = [0] if kind == "bart" else []
    eos, pad = other.config.eos_token_id, other.config.pad_token_id
    optimiser = torch.optim.Adam(other.train().parameters(), lr=4e-3)
    for _ in range(steps):
        asked = sentences(32, draw)
        labels = [[*lead, *(3 + 7 * x % 56 for x in reversed(row) if x % 5), eos] for row in asked]
        asked = [[*lead, *row, eos] for row in asked]
        mask = rows([[1] * len(row) for row in asked], 0)
        other(input_ids=rows(asked, pad), attention_mask=mask, labels=rows(labels, -100)).loss.backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    if kind == "marian":
        other.final_logits_bias[0, pad] += 20.0  # it would always be written, if its config did not forbid it
    return other.eval()


def generated(other, asked, **options) -> Iterator[list[int]]:
    """What theirs writes, without its first and last token; batches of mixed lengths."""
    eos, pad = other.config.eos_token_id, other.config.pad_token_id
    for start in range(0, len(asked), 40):
        batch = [[*row, eos] for row in asked[start : start + 40]]
        mask = rows([[1] * len(row) for row in batch], 0)
        for row in other.generate(rows(batch, pad), attention_mask=mask, do_sample=False, **options)[:, 1:].tolist():
            yield row[: row.index(eos)] if eos in row else row


def text(row):
    return " ".join(map(str, row))


@pytest.fixture(scope="module", params=["marian", "bart"])
def both(request, tmp_path_factory):
    """Theirs, and ours as it comes out of the run folder; in float64, so that ties within rounding do not decide."""
    folder = tmp_path_factory.mktemp(request.param)
    other = taught(request.param)
    other.save_pretrained(folder / "hf")
    import_hf(folder / "hf", folder / "run", ids=True)
    ours = seqloom.load(folder / "run", "cpu")
    ours.model.double()
    return other.double(), ours


@pytest.mark.parametrize(
    ("beam", "alpha"),
    [(1, 1.0), (5, 0.6), *(pytest.param(*more, marks=pytest.mark.slow) for more in ((4, 1.0), (3, 0.0), (4, 2.0)))],
)
def test_200_sentences_get_the_same_tokens(both, beam, alpha):
    other, ours = both
    asked = sentences(200, random.Random(1), [0] if other.config.model_type == "bart" else [])
    wanted = list(generated(other, asked, num_beams=beam, length_penalty=alpha, early_stopping=False))
    answers = ours.answers([text(row) for row in asked], Search(beam=beam, alpha=alpha), rows=40)
    found = [[int(word) for word in answer[0].text.split()] for answer in answers]
    assert found == wanted
    lengths = [len(row) for row in wanted]
    assert len({text(row) for row in wanted}) >= 50, "answers that are all alike would equal anything"
    assert len(set(lengths)) >= 8
    assert sum(length == LONGEST - 2 for length in lengths) < 100, "most end by themselves"


def test_scores_are_theirs(both):
    other, ours = both
    asked = sentences(20, random.Random(2), [0] if other.config.model_type == "bart" else [])
    for row in asked:
        batch = rows([[*row, other.config.eos_token_id]], 0)
        options = {"num_beams": 4, "num_return_sequences": 4, "output_scores": True, "return_dict_in_generate": True}
        wanted = other.generate(batch, attention_mask=torch.ones_like(batch), do_sample=False, **options)
        (answers,) = ours.answers([text(row)], Search(beam=4, n_best=4))
        assert [a.score for a in answers] == pytest.approx(wanted.sequences_scores.tolist(), abs=2e-5)


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_logits_are_theirs(kind, changes, tmp_path):
    compare_logits(made(kind, **changes), tmp_path)


def test_two_vocabularies(tmp_path):
    changes = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 50, "pad_token_id": 49}
    other = made("marian", **changes, decoder_start_token_id=49)
    other.generation_config = transformers.GenerationConfig(eos_token_id=0, pad_token_id=49, decoder_start_token_id=49)
    compare_logits(other, tmp_path, target=50)


def compare_logits(other, tmp_path, target=V):
    """Ours is theirs plus four; eos has moved to <eos>; the rest has no share in the softmax."""
    other.save_pretrained(tmp_path / "hf")
    import_hf(tmp_path / "hf", tmp_path / "run", ids=True)
    ours = seqloom.load(tmp_path / "run", "cpu")
    ours.model.double()
    config, draw = other.double().config, random.Random(4)
    asked = [[*row, config.eos_token_id] for row in sentences(7, draw)]
    written = torch.tensor([[draw.randrange(3, target) for _ in range(6)] for _ in asked])
    start = torch.full((7, 1), config.decoder_start_token_id)
    mask = rows([[1] * len(row) for row in asked], 0)
    wanted = other(
        input_ids=rows(asked, config.pad_token_id),
        attention_mask=mask,
        decoder_input_ids=torch.cat([start, written], 1),
    ).logits.log_softmax(-1)
    sources = seqloom.decoding.batched.pad([ours.texts.encode(text(row[:-1])) for row in asked])
    found = ours.model(sources, torch.cat([torch.full((7, 1), BOS), written + 4], 1)).log_softmax(-1)
    moved = [EOS if number == config.eos_token_id else number + 4 for number in range(target)]
    assert (found[..., moved] - wanted).abs().max() < 1e-6  # their table of sinusoids is in float32, as ours
    rest = sorted(set(range(target + 4)) - set(moved))
    assert found[..., rest].exp().max() == 0.0
    assert wanted.std() > 0.1


def test_a_shared_matrix_is_stored_once_and_stays_shared(both):
    _, ours = both
    assert ours.model.source.weight is ours.model.target.weight
    assert ours.model.output.weight is ours.model.target.weight
    stored = read_tensors(ours.folder / "model.safetensors")
    assert [name for name in stored if name in ("source.weight", "target.weight", "output.weight")] == ["source.weight"]


def with_tokenizer(folder):
    """Words of letters, as BART's: <s> … </s>."""
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3} | {f"Ġw{n}": n for n in range(4, V - 1)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("Ġ")
    tokenizer.decoder = decoders.Metaspace("Ġ")
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>"])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=False)
    tokenizer.enable_padding(length=30)  # what a stored tokenizer may ask for must not reach us
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    return tokenizer


def test_text_to_text_with_their_tokenizer(tmp_path):
    other = made("bart")
    other.save_pretrained(tmp_path / "hf")
    tokenizer = with_tokenizer(tmp_path / "hf")
    import_hf(tmp_path / "hf", tmp_path / "run")
    ours = seqloom.load(tmp_path / "run", "cpu")
    texts = ["w5 w6 w7", "w40", "w9 nobody knows w12", "w10 w10 e\u0301 w58"]
    encoded = [tokenizer.encode(one).ids for one in texts]
    assert [ours.texts.encode(one) for one in texts] == [[*(n + 4 for n in row[:-1]), EOS] for row in encoded]
    wanted = generated(other, [row[:-1] for row in encoded])
    assert ours.predict(texts) == [tokenizer.decode(row) for row in wanted]
    assert ours.attention("w5 w6").source == ["<s>", "Ġw5", "Ġw6", "<eos>"]
    data = tmp_path / "test.tsv"
    data.write_text("w5 w6\tw7\nw8\tw9 w10\n")
    assert ours.evaluate(data).metrics["perplexity"] < 1e6  # nothing that is never written is asked for


def test_shards_are_put_together(tmp_path):
    made("marian").save_pretrained(tmp_path / "whole")
    made("marian").save_pretrained(tmp_path / "parts", max_shard_size="10KB")
    assert (tmp_path / "parts" / "model.safetensors.index.json").exists()
    for name in ("whole", "parts"):
        import_hf(tmp_path / name, tmp_path / f"{name}-run", ids=True)
    first, second = (read_tensors(tmp_path / f"{name}-run" / "model.safetensors") for name in ("whole", "parts"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_their_generation_config_asks_for_is_said(tmp_path):
    other = made("bart")
    more = {"num_beams": 4, "length_penalty": 2.0, "no_repeat_ngram_size": 3, "min_length": 5}
    other.generation_config = transformers.GenerationConfig(**GENERATION["bart"], **more, max_length=LONGEST)
    other.save_pretrained(tmp_path / "hf")
    done = import_hf(tmp_path / "hf", tmp_path / "run", ids=True)
    assert any("no_repeat_ngram_size=3" in note and "min_length=5" in note for note in done.notes)
    assert any("--beam 4 --alpha 2.0" in note for note in done.notes)
    decoding = seqloom.load(tmp_path / "run", "cpu").config["decoding"]
    assert decoding["first"] == 4  # <s>
    assert decoding["close"]
    assert decoding["limit"] == LONGEST - 1


def broken(folder, *, config=None, tensors=None, drop=()):
    made("marian").save_pretrained(folder)
    if config is not None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
    stored = load_file(folder / "model.safetensors")
    stored = {name: tensor for name, tensor in (stored | (tensors or {})).items() if name not in drop}
    save_file(stored, folder / "model.safetensors")
    return folder


WRONG = [
    ({"config": {"model_type": "marain"}}, ["marain", "did you mean 'marian'"]),
    ({"config": {"model_type": "t5"}}, ["t5", "bart, marian, mbart, pegasus"]),
    ({"config": {"activation_function": "gelu_new"}}, ["activation_function", "gelu_new"]),
    ({"config": {"d_model": None}}, ["config.json", "d_model"]),
    ({"config": {"eos_token_id": 60}}, ["eos_token_id", "60"]),
    ({"config": {"decoder_layers": 2}}, ["model.decoder.layers.2.", "no place"]),
    ({"config": {"encoder_ffn_dim": 32}}, ["model.encoder.layers.0.fc1.weight", "(24, 16)", "(32, 16)"]),
    ({"drop": ["model.encoder.layers.1.fc2.bias"]}, ["model.encoder.layers.1.fc2.bias", "missing"]),
    ({"tensors": {"model.extra.weight": torch.zeros(2)}}, ["model.extra.weight", "no place"]),
    ({"tensors": {"lm_head.weight": torch.zeros(V, 16)}}, ["lm_head.weight", "differ"]),
]


@pytest.mark.parametrize(("change", "parts"), WRONG, ids=[parts[0] for _, parts in WRONG])
def test_what_does_not_fit_is_named(change, parts, tmp_path):
    folder = broken(tmp_path / "hf", **change)
    if "config" in change:  # so that the id is read from where it was changed
        (folder / "generation_config.json").unlink()
    with pytest.raises(SeqloomError) as caught:
        import_hf(folder, tmp_path / "run", ids=True)
    assert all(part in str(caught.value) for part in parts), caught.value
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path):
    made("bart", vocab_size=40).save_pretrained(tmp_path / "hf")
    with_tokenizer(tmp_path / "hf")
    with pytest.raises(SeqloomError, match="has the id 58, the model only 40 ids"):
        import_hf(tmp_path / "hf", tmp_path / "run")
    (tmp_path / "hf" / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(SeqloomError, match=r"not a tokenizer\.json"):
        import_hf(tmp_path / "hf", tmp_path / "run")


def test_an_index_cannot_lead_outside_its_folder(tmp_path):
    made("marian").save_pretrained(tmp_path / "hf", max_shard_size="10KB")
    index = tmp_path / "hf" / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model-00001", "../model-00001"))
    with pytest.raises(SeqloomError, match="outside"):
        import_hf(tmp_path / "hf", tmp_path / "run", ids=True)


def test_an_imported_run_has_all_that_a_run_has(both):
    _, ours = both
    names = {file.name for file in ours.folder.iterdir()}
    assert names == {"config.yaml", "source.json", "target.json", "model.safetensors", "env.json"}
    assert {"format", "seqloom", "task", "preset", "data", "model", "training", "decoding", "inputs"} == set(
        ours.config
    )
    assert all(a != b for a, b in pairwise(ours.predict(["3 4 5", "30 20 10 50 7 9 11", "8"])))
