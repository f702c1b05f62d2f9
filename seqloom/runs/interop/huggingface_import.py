"""`seqloom import hf`: a local folder of Hugging Face's Marian, Pegasus, BART or mBART as an ordinary run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seqloom.build import build
from seqloom.data.prepare.pairs import DataOptions
from seqloom.data.tokenizers.tokenizers import EOS, make_tokenizer
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.batched import LengthLimit
from seqloom.documents import read_json
from seqloom.errors import SeqloomError
from seqloom.files import write_json
from seqloom.models.seq2seq import MODELS
from seqloom.options import checked
from seqloom.runs import config as configs
from seqloom.runs.folder.environment import environment
from seqloom.runs.interop.huggingface_files import BOUND, SHIFT, HfFolder, convert, read_folder
from seqloom.safety import content_errors
from seqloom.tasks.presets import suited
from seqloom.training.checkpoint import load_weights, save_weights, weights
from seqloom.training.settings import Training
from seqloom.version import FORMAT, IMPORTED, __version__

# Generation settings that have no counterpart here, and the values at which they do nothing.
IDLE = {
    "min_length": (0, None),
    "min_new_tokens": (0, None),
    "no_repeat_ngram_size": (0, None),
    "encoder_no_repeat_ngram_size": (0, None),
    "repetition_penalty": (1.0, None),
    "begin_suppress_tokens": (None,),
    "early_stopping": (False, None),
}


@dataclass(frozen=True)
class Imported:
    """Where the run is, what it is, and what the user should know about how the model was meant to be used."""

    folder: Path
    model_type: str
    parameters: int
    notes: list[str]


def import_hf(path: str | Path, output: str | Path, *, ids: bool = False) -> Imported:
    """Write the model of a Hugging Face folder as a run folder. `ids`: without a tokenizer, texts are their numbers."""
    folder = Path(output)
    if folder.exists():
        raise SeqloomError(f"{folder}: is there already; name another --output")
    with content_errors(path):
        theirs = read_folder(Path(path))
        codecs = _number_codecs(theirs) if ids else _tokenizer_codecs(theirs)
        model, tensors = convert(theirs, source_end=_end(codecs[0], theirs.eos))
        made = build(MODELS, model, source_size=codecs[0].size, target_size=codecs[1].size)
        load_weights(made, tensors, theirs.folder)
        decoding, notes = _decoding(theirs)
        data = DataOptions(source_tokens=codecs[0].kind, target_tokens=codecs[1].kind, max_length=_room(model))
        config = {
            "format": FORMAT,
            "seqloom": __version__,
            "task": "translate",
            "preset": {"model": theirs.config["model_type"], "size": IMPORTED},
            "data": asdict(data),
            "model": model,
            "training": asdict(Training.of(suited("translate", model))),
            "decoding": decoding,
            "inputs": {"train": [str(path)], "valid": None},
        }
    folder.mkdir(parents=True)
    save_weights(folder / "model.safetensors", weights(made))
    for name, codec in zip(("source", "target"), codecs, strict=True):
        write_json(folder / f"{name}.json", codec.to_json())
    write_json(folder / "env.json", environment())
    configs.save(folder, config)  # last: a folder with a config is a run
    count = sum(parameter.numel() for parameter in made.parameters())
    return Imported(folder, theirs.config["model_type"], count, notes)


def _room(model: Mapping[str, Any]) -> int | None:
    """How many tokens a text may have: a table of positions ends somewhere, and <eos> needs the last."""
    places = [model[part]["position"].get("longest") for part in ("encoder", "decoder")]
    return min((place - 1 for place in places if place is not None), default=None)


def _decoding(theirs: HfFolder) -> tuple[dict[str, Any], list[str]]:
    """The `decoding` section, and notes on what their generation config asks for and a run's config does not hold."""
    asked, eos = theirs.generation, theirs.eos
    longest = asked.get("max_length") or theirs.need("max_position_embeddings")
    forced, banned = asked.get("forced_bos_token_id"), asked.get("bad_words_ids") or []
    for number in (*({words[0] for words in banned if len(words) == 1}), *(asked.get("suppress_tokens") or []), forced):
        if number is not None and number >= theirs.sizes[1]:
            raise SeqloomError(f"their generation settings name the token {number} of {theirs.sizes[1]}")
    never = {words[0] for words in banned if len(words) == 1} | set(asked.get("suppress_tokens") or [])
    limit = min(longest - 1, theirs.need("max_position_embeddings"))  # theirs counts the start token
    ours = theirs.config.get(BOUND)
    decoding = {
        **(
            checked(LengthLimit, ours, BOUND)
            if isinstance(ours, dict)
            else {"ratio": 1.0, "longest": limit, "limit": limit}
        ),
        "first": None if forced is None else _number(forced, eos),
        "close": asked.get("forced_eos_token_id") is not None,
        "never": sorted(_number(number, eos) for number in never),
    }
    odd = [f"{name}={asked[name]}" for name, idle in IDLE.items() if asked.get(name) not in idle]
    odd += ["bad_words_ids of several tokens"] if any(len(words) > 1 for words in banned) else []
    odd += ["bad_words_ids without renormalize_logits"] if never and not asked.get("renormalize_logits") else []
    notes = [f"their generation settings without a counterpart here: {', '.join(odd)}"] if odd else []
    if (beams := asked.get("num_beams") or 1) > 1:
        notes.append(f"it was meant for --beam {beams} --alpha {asked.get('length_penalty') or 1.0}")
    return decoding, notes


def _number(theirs: int, eos: int) -> int:
    return EOS if theirs == eos else theirs + SHIFT


def _number_codecs(theirs: HfFolder) -> tuple[Codec, Codec]:
    """Texts are their ids in decimal with blanks between: what an experiment without a tokenizer reads and writes."""
    source, target = (
        Codec("words", make_tokenizer("words"), [str(number) for number in range(size)]) for size in theirs.sizes
    )
    return source, target


def _tokenizer_codecs(theirs: HfFolder) -> tuple[Codec, Codec]:
    """From tokenizer.json; the target has its own in target/ or takes the same."""
    file, own = theirs.folder / "tokenizer.json", theirs.folder / "target" / "tokenizer.json"
    if not file.is_file():
        raise SeqloomError(
            f"{theirs.folder}: has no tokenizer.json (a Marian folder with source.spm must be converted first); "
            "--ids imports the model alone, for texts that are its ids"
        )
    source = _wrapped(file, theirs.sizes[0])
    target = _wrapped(own, theirs.sizes[1]) if own.is_file() else source
    if (end := _end(target, theirs.eos)) != theirs.eos:
        raise SeqloomError(
            f"{file}: ends a text with {target.token(end + SHIFT)!r}, the model with "
            f"{target.token(theirs.eos + SHIFT)!r}: a language after the end is not supported; "
            "--ids imports the model alone"
        )
    return source, target


def _wrapped(file: Path, size: int) -> Codec:
    stored = read_json(file)
    try:
        splitter: Any = make_tokenizer("tokenizer", tokenizer=stored)
    except Exception as error:  # the library raises nothing more precise
        raise SeqloomError(f"{file}: not a tokenizer.json: {error}") from error
    if (most := max(splitter.names, default=0)) >= size:
        raise SeqloomError(f"{file}: has the id {most}, the model only {size} ids")
    return Codec("tokenizer", splitter, [splitter.names.get(number, f"<unused {number}>") for number in range(size)])


def _end(codec: Codec, eos: int) -> int:
    """Which of their ids ends a text of this codec."""
    end = getattr(codec.splitter, "end", None)
    return eos if end is None else end
