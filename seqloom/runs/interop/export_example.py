"""What an exported ONNX folder carries beside its graphs, so that it can be used without Seqloom: the names of all
tokens, the special ids, tokenizers where they can be written down, and an example of a few lines."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from seqloom.data.tokenizers.base_tokenizer import TERM
from seqloom.data.tokenizers.graphemes import cluster_pattern
from seqloom.data.tokenizers.tokenizer_json import special_names, tokenizer_json
from seqloom.data.tokenizers.tokenizers import BOS, EOS, FULL_WIDTH, PAD, UNK
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.batched import TextPredictor
from seqloom.errors import SeqloomError
from seqloom.files import write_atomic, write_json
from seqloom.runs.interop.onnx_run import ENCODER, STEP, OnnxSession
from seqloom.version import __version__

JOINS = {"chars": "", "words": " ", "terms": " ", "jieba": "", "bytes": ""}
CUTS = {  # how the example cuts a text, as Python says it
    "chars": 're.findall(about["pattern"], text, re.S)',
    "terms": 're.findall(about["pattern"], text)',
    "words": "text.split()",
    "bytes": 'text.encode().decode("latin-1")',
}
TOKENS, EXAMPLE = "tokens.json", "example.py"
SPECIAL = {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK}
LARGE = 1_000_000  # tokens of a source: whatever bounds the target then is a bound for all


def write_example(texts: TextPredictor, folder: Path) -> None:
    """Into the folder with both graphs, which carry the same in their metadata."""
    encoder, step = OnnxSession(folder / ENCODER), OnnxSession(folder / STEP)
    state = {name: shape for name, shape in step.inputs.items() if name != "tokens"}
    # What was not written yet has no steps: the sizes that only a run knows are 0.
    empty = {name: [1, 1, *(n if isinstance(n, int) else 0 for n in shape[2:])] for name, shape in state.items()}
    about = described(texts) | {"reads": list(encoder.inputs), "read": encoder.outputs, "state": empty}
    write_json(folder / TOKENS, about)
    reads, writes = _tokenizer(texts.source, "source", folder), _tokenizer(texts.target, "target", folder)
    write_atomic(folder / EXAMPLE, example(texts, reads, writes))
    common = {"seqloom": __version__, "special": json.dumps(SPECIAL)}
    for name, side in ((ENCODER, "source"), (STEP, "target")):
        _label(folder / name, common | {"tokens": json.dumps(about[side], ensure_ascii=False)})


def described(texts: TextPredictor) -> dict[str, Any]:
    """Ids, names and rules, as JSON can hold them. An answer has `ratio` times the source's tokens and `more`, but at
    `most` so many."""
    bound, source = texts.bound, texts.source
    pattern = cluster_pattern() if source.kind == "chars" else TERM.pattern if source.kind == "terms" else None
    more: dict[str, Any] = {} if pattern is None else {"pattern": pattern}
    more |= {"wide": {code: chr(plain) for code, plain in FULL_WIDTH.items()}} if source.half_width else {}
    last = (bound.limit or 10) - bound.close  # an answer that must end has room for nothing beside its end
    return {
        "special": SPECIAL,
        "source": _side(texts.source),
        "target": _side(texts.target),
        "never": sorted({PAD, BOS, UNK, *bound.never}),
        "length": {"ratio": 0.0 if bound.limit else bound.ratio, "more": last, "most": bound(LARGE) - bound.close},
        **more,
    }


def _side(codec: Codec) -> dict[str, Any]:
    """`names` by id, the special ones first."""
    names = [*special_names(codec), *codec.tokens]
    return {"cut": codec.kind, "fold": codec.fold, "half_width": codec.half_width, "names": names}


def _tokenizer(codec: Codec, side: str, folder: Path) -> bool:
    """Writes SIDE-tokenizer.json; false where the library has no such rule."""
    with suppress(SeqloomError):
        value = tokenizer_json(codec, side if side == "source" else "labels")
        write_json(folder / f"{side}-tokenizer.json", value)
        return True
    return False


def _label(file: Path, values: dict[str, str]) -> None:
    import onnx

    model = onnx.load(file)
    onnx.helper.set_model_props(model, values)
    onnx.save(model, file)


def example(texts: TextPredictor, reads: bool, writes: bool) -> str:
    """A program of a few lines that answers one text greedily, by onnxruntime and numpy alone where tokens are
    characters, bytes or words; by the tokenizers library too where they are not."""
    source, target = texts.source, texts.target
    wide = "text.translate({int(code): sign for code, sign in about['wide'].items()})"
    plain = f'unicodedata.normalize("NFC", {wide if source.half_width else "text"})'
    if source.fold:
        plain = f'unicodedata.normalize("NFC", {plain}.{"lower" if source.fold == "lower" else "casefold"}())'
    read, cut = _reading(texts, plain, reads)
    if target.kind not in JOINS and writes:
        joined = 'Tokenizer.from_file(str(here / "target-tokenizer.json")).decode(output)'
    else:
        joined = f"{JOINS.get(target.kind, ' ')!r}.join(names[token] for token in output)"
        joined += '.encode("latin-1").decode("utf-8", "replace")' if target.kind == "bytes" else ""
    first = texts.bound.first
    token = "logits.argmax()" if first is None else f"logits.argmax() if len(output) > 1 else {first}"
    library = "from tokenizers import Tokenizer\n" if "Tokenizer." in read + joined else ""
    more = " and tokenizers" if library else ""
    return PROGRAM.format(library=library, more=more, read=read, cut=cut, joined=joined, token=token)


def _reading(texts: TextPredictor, plain: str, reads: bool) -> tuple[str, str]:
    """The lines that make the text ready, and what then gives the ids of its tokens; `plain` is its normal form."""
    source, limit = texts.source, texts.max_length
    kept = "" if limit is None else f"[:{limit}]" if texts.cut == "tail" else f"[-{limit}:]"
    end = '[special["eos"]]'
    if source.kind not in CUTS and reads:
        read = 'cutter = Tokenizer.from_file(str(here / "source-tokenizer.json"))\n'
        read += "" if source.kind == "tokenizer" else "cutter.encode_special_tokens = True  # a written <eos> is text\n"
        return read, f"cutter.encode(text).ids[:-1]{kept} + {end}"
    read = f"text = {plain}\nids = {{name: id for id, name in enumerate(about['source']['names']) if id > 3}}\n"
    read += "" if source.kind in CUTS else "# The text is cut already, with blanks between its tokens.\n"
    tokens = CUTS.get(source.kind, "text.split()")
    return read, f'[ids.get(token, special["unk"]) for token in {tokens}{kept}] + {end}'


PROGRAM = '''\
"""Answers a text greedily, as in: python example.py "a text". Needs onnxruntime{more}, and nothing of Seqloom's."""

import json, math, pathlib, re, sys, unicodedata
import numpy as np, onnxruntime
{library}
here, text = pathlib.Path(__file__).parent, sys.argv[1]
about = json.loads((here / "tokens.json").read_text("utf-8"))
names, special, length, state = about["target"]["names"], about["special"], about["length"], about["state"]
encoder, step = (onnxruntime.InferenceSession(here / name) for name in ("encoder.onnx", "step.onnx"))
{read}source = {cut}
read = {{"tokens": np.array([source]), "lengths": np.array([len(source)])}}
first = zip(about["read"], encoder.run(about["read"], {{name: read[name] for name in about["reads"]}}))
known = {{name: np.zeros(shape, np.float32) for name, shape in state.items() if name.startswith("row_")}}
known |= {{name: value[:, None] if name.startswith("row_") else value for name, value in first}}
output = [special["bos"]]
for _ in range(min(math.ceil(length["ratio"] * len(source)) + length["more"], length["most"])):
    logits, *rows = step.run(None, {{"tokens": np.array([output[-1:]]), **{{name: known[name] for name in state}}}})
    logits[..., about["never"]] = -np.inf
    output.append(int({token}))
    if output[-1] == special["eos"]:
        break
    known |= {{f"row_{{number}}": row for number, row in enumerate(rows)}}
output = [token for token in output[1:] if token != special["eos"]]
print({joined})
'''
