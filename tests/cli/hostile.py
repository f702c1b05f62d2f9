"""Values that strangers, scripts and slips of the hand give to settings and options."""

from __future__ import annotations

NUMBERS = ["0", "-1", "1", "2", "3", "0.5", "-0.5", "1e-3", "1e400", "nan", "inf", "-inf", ".nan", ".inf", "-.inf", "x"]
NUMBERS += ["99999999999", "9" * 30, "1" * 5000, "1" + "0" * 300, "1_000", "0x1f", "07", "08", "+1", "-0", "1,2", "1e9"]
YAML = ["true", "false", "null", "~", "[]", "{}", "[[]]", "[1, 2]", "{a: 1}", "{kind: gru}", "{kind: 5}", "{kind: []}"]
YAML += ["2020-01-01", "2020-99-99", "12:30:45", "0x_", "0b_", "0o8", "!!int x", "!!float x", "!!bool maybe"]
YAML += ["!!timestamp x", "!!binary ===", "!!set {a}", "!!omap [a: 1]", "!!pairs [a: 1]", "!!str 5", "!!null 5"]
YAML += ["!!python/object/apply:os.system [touch ../outside/made]", "!<tag:yaml.org,2002:int> x", "!x y"]
YAML += ["*a", "&a [*a]", "? [1]: 2", "- a", "a: b: c", "{<<: 5}", "{<<: [1]}", "{[1]: 2}", "{{a: 1}: 2}", "<<", "="]
YAML += [
    "{",
    "[1",
    "{a",
    "]",
    ">",
    "|",
    "%",
    "@",
    "`",
    "%YAML 9.9\n---\na",
    "--- a\n--- b",
    "...",
    "{1: 2}",
    "{null: 1}",
]
TEXTS = [
    "",
    " ",
    "-",
    "--",
    "'",
    '"',
    "\\",
    "\t",
    "\n",
    "a\nb",
    "é",
    "中文",
    "🙂",
    "\u202e",
    "\ufeff",
    "\udcff",
    "\x1b[2J",
]
TEXTS += ['"\\ud800"', '"\\x00"', '"\\U0010ffff"', "a,b", ",", "..", "../outside/file", "nope", "x" * 5000, "%s", "{0}"]
WORDS = ["kind", "none", "gru", "lstm", "transformer", "rotary", "additive", "mean", "loss", "bleu", "label", "labels"]
WORDS += [
    "chars",
    "words",
    "bytes",
    "terms",
    "bpe:300",
    "bpe:0",
    "bpe:x",
    "bpe:",
    "bpe:99999999999",
    "jieba",
    "tokenizer",
]
VALUES = NUMBERS + YAML + TEXTS + WORDS

KINDS = ["chars", "words", "terms", "bytes", "bpe:300", "bpe:260", "bpe:0", "bpe:", "bpe:x", "bpe:99999999999", "jieba"]
KINDS += ["tokenizer", "label", "labels", "labels:|", "number", "words:3", ""]
COLUMNS = ["1,2", "2,1", "0", "1", "a,b", "1,1", "", "9,10", "-1", ",", "1,2,3", "99999999999999", "y", "source,target"]
PLACES = ["nope", "data", "/dev/null", "", "-", "nope/nope", "data/empty", "data/bytes", "data/book.txt/x", "x" * 300]
SETS = ["copy", "copy:test", "copy:x", "dates", "x:y", "cmudict:", ":"]
STEPS = ["0", "-1", "x", "nan", "", "1", "[]", "null"]  # what would train for hours if it were right is not among them

SHARES = ["5%", "0", "0%", "100%", "-5%", "nan%", "1e9%", "%", "0.5", "1.5", "fold 1/3", "fold 0/0", "fold 9/3"]
SHARES += ["5% with seed 7", "5% with seed x", f"fold 1/{'9' * 20}", f"5% with seed {'9' * 20}", f"{'9' * 5000}%"]

# What an option is given beside `VALUES`. Where a large number is right, and only slow, it has these alone: see `ONLY`.
OPTIONS = {
    "--valid": [*SHARES, *PLACES],
    "--test": [*PLACES, *SETS],
    "--columns": COLUMNS,
    "--model": ["nope", "data/book.txt", "data/empty.yaml", "/dev/null", "x.yaml", "data", "gru", "transformer"],
    "--from": PLACES,
    "--vectors": [*PLACES, "data/vectors", "data/pairs.tsv"],
    "--freeze": ["source", "encoder", "source,encoder", ",", "."],
    "--size": ["tiny", "TINY", "huge"],
    "--tokens": KINDS,
    "--source-tokens": KINDS,
    "--target-tokens": KINDS,
    "--target": ["label", "labels", "number", "labels:", "y", "a"],
    "--cut": ["head", "tail"],
    "--optimiser": ["adamw", "sgd", "asgd", "muon"],
    "--schedule": ["constant", "inverse-sqrt", "cosine", "plateau"],
    "--precision": ["bf16", "fp32", "fp16"],
    "--device": ["cpu", "cpu", "cuda", "cuda:9", "cuda:x", "meta", "cpu:7", "cpu:-1"],
    "--seed": ["0", "9223372036854775807", "9223372036854775808"],
    "--min-count": ["1", "2", "1000000"],
    "--max-vocab": ["1", "4", "5", "6", "999999999999"],
    "--time": ["0", "1s", "1h", "1ss", "-1s", "9" * 400 + "s", "1" * 5000 + "h", "0.000000001s"],
    "--delimiter": ["tab", "comma", ";", "||", "bar"],
    "--encoding": ["utf-8", "utf-16", "latin-1", "gb18030", "rot13", "hex", "idna", "undefined", "punycode", "zlib"],
    "--tokenize": ["13a", "zh", "intl", "char", "none", "moses", "moses:de", "moses:x", "moses:"],
    "--metrics": ["per", "per,cer", "f1", "accuracy", ","],
    "--recipe": ["nope", "data/empty.yaml", "dates.yaml", "/dev/null", "data/book.txt"],
    "--prompt": ["Once", "loom"],
    "--stop": [".", "\\n"],
    "--output": ["", "data/null", "data/full", "out", "data/book.txt/x", "out/nope/x", "x" * 300, "out/\udcff"],
    "--predictions": ["", "data/null", "data/full", "out", "data/book.txt/x"],
    "--to": ["hf", "tokenizers", "tokenizers", "x"],
    "--way": ["mean", "summary"],
    "--among": PLACES,
}
ONLY = {
    "--max-steps": STEPS,
    "--folds": ["0", "1", "-1", "x", "1000000", "99999999999999999999", "2"],
    "--jobs": ["0", "-1", "x", "2"],
    "--count": ["0", "-1", "x", "2", ""],
    "--length": ["0", "-1", "x", "1", "5", ""],
    "--steps": ["0", "-1", "x", "1.5"],
    "--engine": ["torch", "x", "", "ONNX", "\udcff"],
    "--output": OPTIONS["--output"],
    "--predictions": OPTIONS["--predictions"],
    "--recipe": OPTIONS["--recipe"],
}
