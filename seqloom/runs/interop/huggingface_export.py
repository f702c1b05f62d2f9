"""`seqloom export`: a run as a Hugging Face folder, or its codecs as tokenizer.json.

Which architecture holds a model exactly follows from its norms. Marian and Pegasus have sinusoids with all sines before
all cosines, BART and mBART a trained table, which holds any positions up to its length. Ids stay ours. Where source and
target have each their own vocabulary, Marian has a matrix for each; the others have one for both: the target's rows,
then the source's, of which none is ever written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from seqloom.build import complete
from seqloom.data.tokenizers.tokenizer_json import special_names, tokenizer_json
from seqloom.data.tokenizers.tokenizers import BOS, EOS, PAD, UNK
from seqloom.decoding.batched import LengthLimit
from seqloom.errors import SeqloomError
from seqloom.files import write_atomic, write_json
from seqloom.models.seq2seq import MODELS
from seqloom.parts.positions.absolute import sinusoids
from seqloom.runs.interop.huggingface_files import BOUND, EMBEDDINGS, HEAD, NEVER, SHARED
from seqloom.runs.interop.huggingface_weights import (
    ATTENTION,
    FAMILIES,
    OFFSET,
    SIDES,
    Family,
    Tensors,
    deinterleaved,
    name_map,
    to_hf,
    unsupported_setting,
)
from seqloom.runs.load import load_one
from seqloom.training.checkpoint import weights

LONGEST = 1024  # places in a table of sinusoids, which by itself has no end
SHARED_SETTINGS = (
    "dim",
    "norm",
    "activation",
    "scale_embeddings",
    "embedding_norm",
    "position",
)  # they have one setting for both sides


def export_tokenizers(run: str | Path, output: str | Path) -> Path:
    """Write source/tokenizer.json, which ends texts with <eos>, and target/tokenizer.json, with <bos> before them."""
    folder, texts = _new_folder(output), _translator(run).texts
    found = {side: tokenizer_json(codec, side) for side, codec in (("source", texts.source), ("target", texts.target))}
    for side, value in found.items():
        (folder / side).mkdir(parents=True)
        write_json(folder / side / "tokenizer.json", value)
    return folder


def export_hf(run: str | Path, output: str | Path) -> str:
    """Write a run's Transformer as a Hugging Face folder; gives the model_type that holds it."""
    folder, made = _new_folder(output), _translator(run)
    model, texts = complete(MODELS, made.config["model"]), made.texts  # an older run's config has fewer keywords
    model_type = find_model_type(model, str(run))
    union = not model["share_embeddings"] and model_type != "marian"
    tensors = _tensors(weights(texts.model), model, FAMILIES[model_type], union)
    shift = texts.target.size if union else 0
    tokenizers = {
        folder: (texts.source, tokenizer_json(texts.source, "source", shift)),
        folder / "target": (texts.target, tokenizer_json(texts.target, "labels")),
    }
    for place, (codec, value) in tokenizers.items():
        place.mkdir(parents=True)
        write_json(place / "tokenizer.json", value)
        named = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), special_names(codec), strict=True))
        about = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **named}
        write_json(place / "tokenizer_config.json", about)
    write_json(folder / "generation_config.json", _generation(texts.bound))
    write_atomic(folder / "model.safetensors", safetensors.torch.save(tensors, {"format": "pt"}))
    sizes: dict[str, Any] = {"vocab_size": texts.source.size + shift}
    if texts.bound.limit is None:  # for importing it again: theirs cannot say how a source bounds its target
        sizes[BOUND] = {"ratio": texts.bound.ratio, "longest": texts.bound.longest}
    if model_type == "marian":
        sizes |= {
            "decoder_vocab_size": texts.target.size,
            "share_encoder_decoder_embeddings": model["share_embeddings"],
        }
    write_json(folder / "config.json", _config(model, model_type) | sizes)
    return model_type


def find_model_type(model: dict[str, Any], run: str) -> str:
    """The model_type that can hold a model of this config exactly; what none can hold is named."""

    def refuse(setting: str, why: str) -> None:
        raise SeqloomError(f"{run}: no model of Hugging Face's holds {setting}: {why}")

    stacks = {side: model[side] for side in SIDES}
    for side, stack in stacks.items():
        if stack["kind"] != "transformer":
            refuse(f"{side}.kind={stack['kind']}", "only Transformers can be exported")
        if (score := stack["score"]["kind"]) != "scaled":
            refuse(f"{side}.score={score}", "theirs is scaled")
        if (kind := stack["norm_kind"]["kind"]) != "layer":
            refuse(f"{side}.norm_kind={kind}", "theirs is layer")
        if stack["residual"] != "add":
            refuse(f"{side}.residual={stack['residual']}", "theirs is add")
        if (mixer := stack.get("mixer", ATTENTION)["kind"]) != "attention":
            refuse(f"{side}.mixer={mixer}", "theirs is attention")
        if (position := stack["position"]["kind"]) not in ("sinusoidal", "learned"):
            refuse(f"{side}.position={position}", "theirs are sinusoidal or learned")
    if setting := unsupported_setting(model):
        refuse(setting, "theirs have no such choice")
    encoder, decoder = stacks.values()
    for name in SHARED_SETTINGS:
        if encoder[name] != decoder[name]:
            refuse(f"encoder.{name} other than decoder.{name}", f"{encoder[name]} and {decoder[name]}")
    if model["embedding"] != encoder["dim"]:
        refuse(f"embedding={model['embedding']}", f"theirs is as wide as encoder.dim, {encoder['dim']}")
    switches = encoder["norm"], encoder["embedding_norm"]
    found = next(name for name, family in FAMILIES.items() if (family.norm, family.enter_norm) == switches)
    if found == "marian" and encoder["position"]["kind"] == "learned":
        refuse(
            "position=learned with norm=after and embedding_norm=false", "Marian's are sinusoids; BART norms embeddings"
        )
    return found


def _tensors(ours: Tensors, config: dict[str, Any], family: Family, union: bool) -> Tensors:
    """The weights under their names."""
    ours.setdefault("target.weight", ours["source.weight"])
    ours.setdefault("output.weight", ours["target.weight"])
    position, dim = config["encoder"]["position"], config["encoder"]["dim"]
    if position.get("layout") == "interleaved" and not family.learned:
        ours, position = deinterleaved(ours), {**position, "layout": "halves"}
    found: Tensors = {}
    if family.norm == "before" or family.learned:  # Marian makes its own table
        sines = sinusoids(LONGEST, dim, halves=position.get("layout") == "halves")
        for side in SIDES:
            table = ours.get(f"{side}.enter.position.weight", sines)
            found[f"model.{side}.embed_positions.weight"] = torch.cat(
                [table.new_zeros(OFFSET * family.learned, dim), table]
            )
    found |= to_hf(ours, name_map(family, (config["encoder"]["layers"], config["decoder"]["layers"])))
    found |= _embeddings(ours, config["tie_embeddings"], config["share_embeddings"], union)
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def _embeddings(ours: Tensors, tie: bool, share: bool, union: bool) -> Tensors:
    """Embeddings and output; with `union` the source's rows stand after the target's."""
    source, target, output = (ours[f"{name}.weight"] for name in ("source", "target", "output"))
    bias = ours["output.bias"]
    if union:
        bias = torch.cat([bias, bias.new_full((len(source),), NEVER)])
        output = torch.cat([output, torch.zeros_like(source)])
        source = target = torch.cat([target, source])
    found = {"final_logits_bias": bias[None]}
    if not tie:
        found[HEAD] = output
    if share or union:
        found[SHARED] = source
    if not tie or not (share or union):
        found |= dict(zip(EMBEDDINGS, (source, target), strict=True))
    return found


def _config(model: dict[str, Any], model_type: str) -> dict[str, Any]:
    encoder, decoder = (model[side] for side in SIDES)
    found: dict[str, Any] = {"model_type": model_type, "architectures": [FAMILIES[model_type].architecture]}
    for side, stack in zip(SIDES, (encoder, decoder), strict=True):
        found[f"{side}_layers"] = stack["layers"]
        found[f"{side}_attention_heads"] = stack["heads"]
        found[f"{side}_ffn_dim"] = stack["hidden"]
    return found | {
        "d_model": encoder["dim"],
        "activation_function": encoder["activation"],
        "scale_embedding": encoder["scale_embeddings"],
        "dropout": encoder["dropout"],
        "activation_dropout": encoder["dropout"],
        "attention_dropout": 0.0,
        "max_position_embeddings": encoder["position"].get("longest", LONGEST),
        "tie_word_embeddings": model["tie_embeddings"],
        "is_encoder_decoder": True,
        "dtype": "float32",
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": None,
    }


def _generation(bound: LengthLimit) -> dict[str, Any]:
    """What makes `generate` search as we do: a length for all targets, and what is never written."""
    return {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "max_length": 1 + bound(1_000_000),  # theirs counts the start token
        "suppress_tokens": sorted({PAD, BOS, UNK, *bound.never}),
        "renormalize_logits": True,
        "forced_bos_token_id": bound.first,
        "forced_eos_token_id": EOS if bound.close else None,
    }


def _translator(run: str | Path) -> Any:
    made = load_one(run, "cpu")
    if (task := made.config["task"]) != "translate":
        raise SeqloomError(f"{run}: is a model of the task {task}; what is exported is of translate")
    return made


def _new_folder(output: str | Path) -> Path:
    folder = Path(output)
    if folder.exists():
        raise SeqloomError(f"{folder}: is there already; name another --output")
    return folder
