"""Whether the first line of a file names its columns: by known words, and by how unlike the others it is.

In doubt it does not: to take an example for names loses it, but a line of names that is read as data is one example of
many. Whatever is decided is said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

LOOKED = 500  # lines after the first that it is compared with
_FEW = 20  # lines from which something can be said of all
_WORDS = """
text texts sentence sentences source sources src target targets tgt input inputs output outputs question answer
word words token tokens form lemma pronunciation pronunciations pron phoneme phonemes ipa grapheme graphemes
spelling spellings label labels class classes category categories tag tags pos upos xpos ner chunk entity
entities prompt completion response instruction review reviews rating ratings stars sentiment emotion intent
intents utterance topic title headline subject message messages content comment comments tweet tweets document
documents doc id ids idx index score scores polarity language lang translation original transcription transcript
reference premise hypothesis query passage summary correct incorrect misspelling misspelled corrected correction
feats features feature deprel head misc number nr date name value description english german french spanish
italian portuguese dutch russian chinese japanese korean arabic turkish latin en de fr es it pt nl ru zh ja ko
ar tr pl cs sv da fi hu ro el he hi vi uk eng deu fra spa ita rus zho jpn kor 文本 标签 句子 语句 类别 分类 词
词语 单词 字 词性 标注 原文 译文 内容 标题 评论 情感 源 目标 源语言 目标语言 问题 答案 输入 输出 拼音 实体 语言
序号 编号 中文 英文 汉字 意图 话题 评分 satz sätze quelle ziel wort wörter klasse kategorie etikett bewertung
frage antwort aussprache deutsch englisch texte phrase cible mot étiquette classe catégorie avis note anglais
français texto frase fuente etiqueta clase categoría palabra
"""
KNOWN = frozenset(_WORDS.split())
_NUMBER = re.compile(r"\s*[-+]?(\d[\d.,]*|\.\d+)([eE][-+]?\d+)?(\s*%)?\s*")
_NAME = re.compile(r"#?\s*[^\W\d][\w#.\-/() ]{0,39}")
_FOREIGN = re.compile("[^\\W\\d_\\u0000-\\u024f\\u1e00-\\u1eff]")  # a letter of a script other than the Latin


def is_header(first: Sequence[str], rest: Sequence[Sequence[str]], columns: Sequence[int] | None = None) -> bool:
    """Whether `first` names the columns of the lines `rest` after it. `columns`: those that are read; None: all."""
    cells = [cell.strip().strip("\"'") for cell in first]
    while len(cells) > 2 and not cells[-1]:
        cells.pop()  # as spreadsheets leave them
    if len({cell.casefold() for cell in cells}) < len(cells) or not all(map(_is_name, cells[1:])):
        return False
    if not (_is_name(cells[0]) or (not cells[0] and len(cells) > 2)):  # pandas leaves the number of a row without one
        return False
    read = [column for column in columns or range(len(cells)) if column < len(cells)]
    beside = {column: [row[column].strip() for row in islice(rest, LOOKED) if column < len(row)] for column in read}
    if any(cells[column] and cells[column] in others for column, others in beside.items()):
        return False  # it comes again, so it is a value
    words = sum(known(cell) for cell in cells)
    if all(known(cells[column]) for column in read) or (words >= 2 and 2 * words >= len(cells)):
        return True
    signs = {_unlike(cells[column], others) for column, others in beside.items()}
    if signs == {"new"}:
        return False  # few examples, each of them many times
    return "kind" in signs or signs >= {"new", "short"} or (words > 0 and signs != {""})


def known(cell: str) -> bool:
    """Whether a column may well be called so: `text`, `Source Text`, `label_1`."""
    parts = [part.rstrip("0123456789") for part in re.split(r"[\s_\-./#()]+", cell.strip().lower())]
    parts = [part for part in parts if part]
    return bool(parts) and all(part in KNOWN for part in parts)


def _is_name(cell: str) -> bool:
    return _NAME.fullmatch(cell) is not None and len(cell.split()) <= 3


def _unlike(cell: str, others: Sequence[str]) -> str:
    """How a cell differs from all others of its column: of another "kind" altogether, "short" beside long ones, "new"
    among few that come again and again, or not ("")."""
    others = [other for other in others if other]
    if len(others) >= _FEW // 2 and all(map(_NUMBER.fullmatch, others)):
        return "kind"
    if len(others) < _FEW:
        return ""
    if all(map(_FOREIGN.search, others)) and not _FOREIGN.search(cell):
        return "kind"
    if all(re.search(r"\d", other) for other in others) and not re.search(r"\d", cell):
        return "kind"
    if sum(len(other.split()) >= 3 for other in others) >= 0.95 * len(others) and len(cell.split()) < 3:
        return "short"
    return "new" if 5 * len(set(others)) <= len(others) else ""
