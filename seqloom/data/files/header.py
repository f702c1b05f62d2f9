"""Detecting a header line: by known column names, and by how it differs from the other lines.

In doubt it is data: an example taken for a header is lost, a header read as data is one bad example of many. Every
decision is reported in a note.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

LINES_COMPARED = 500  # lines after the first
_FEW = 20  # lines that are enough to judge
_WORDS = """
text texts sentence sentences sent source sources src target targets tgt input inputs output outputs question answer
word words token tokens form lemma pronunciation pronunciations phoneme phonemes ipa grapheme graphemes pinyin
hanzi romanization transliteration spelling spellings label labels lbl class classes category categories tag tags pos
upos xpos ner chunk entity entities prompt completion response instruction review reviews rating ratings stars
sentiment emotion intent intents utterance utt slots topic title headline subject message messages content comment
comments tweet tweets document documents doc feedback id ids idx index score scores polarity toxic toxicity language
lang translation original transcription transcript speaker author reference premise hypothesis claim query passage
summary correct incorrect misspelling misspelled corrected correction raw clean noisy normalized
normalised after term definition singular plural feats features feature deprel head misc number nr date data
name surname nationality country origin value description satz sätze quelle ziel wort wörter klasse kategorie etikett
bewertung frage antwort aussprache übersetzung deutsch englisch texte phrase phrases cible mot étiquette classe
catégorie avis note prononciation traduction anglais français texto oración frase fuente etiqueta clase categoría
palabra pregunta respuesta reseña traducción pronunciación sentença rótulo palavra testo parola etichetta domanda
risposta tekst zin zdanie etykieta metin etiket cümle текст предложение слово метка класс категория перевод вопрос
ответ отзыв оценка тональность произношение транскрипция النص نص التصنيف تصنيف كلمة جملة
"""
# Chinese, Japanese and Korean names, which are joined without a blank: 文本内容, 类别标签.
_PARTS = """
文本 内容 正文 标签 标记 标注 句子 句 语句 类别 类型 类 分类 词 词语 单词 词性 字 汉字 拼音 读音 发音 音标
原文 原句 译文 译句 源 源文 源语 目标 目标语 语言 语种 标题 评论 评价 情感 情绪 极性 星级 评分 分数 得分
用户 新闻 问题 问句 提问 答案 答句 回答 回复 输入 输出 实体 命名 序号 编号 中文 英文 英语 意图 话题 主题
领域 查询 描述 名称 姓名 国籍 摘要 数据 结果 標籤 標記 標註 類別 類型 類 分類 詞 詞語 單詞 詞性 漢字 讀音
發音 音標 譯文 目標 語言 標題 評論 評價 評分 新聞 問題 回覆 輸入 輸出 實體 命名實體 編號 話題 主題 內容 文
テキスト ラベル カテゴリ カテゴリー タイトル レビュー 単語 読み 品詞 訳文 質問 入力 出力 感情 日本語 英語 翻訳
문장 텍스트 레이블 라벨 단어 품사 발음 원문 번역 질문 답변 입력 출력 리뷰 감정 분류 카테고리 제목 내용
"""
# Names of columns, but also values of columns (such as languages of surnames), and some are words.
_LANGUAGES = """
english german french spanish italian portuguese dutch russian chinese japanese korean arabic turkish latin en de fr
es it pt nl ru zh ja ko ar tr pl cs sv da fi hu ro el he hi vi uk eng deu fra spa ita rus zho jpn kor
"""
LANGUAGES = frozenset(_LANGUAGES.split())
KNOWN = frozenset(_WORDS.split()) | LANGUAGES
_COMPOUND = re.compile(f"(?:{'|'.join(_PARTS.split())})+")
_NUMBER = re.compile(r"\s*[-+]?(\d[\d.,]*|\.\d+)([eE][-+]?\d+)?(\s*%)?\s*")
_NAME = re.compile(r"#?\s*[^\W\d][\w#.\-/()（）: ]{0,39}")
# A letter of a script other than Latin; phonetic signs count as Latin.
_NON_LATIN = re.compile("[^\\W\\d_\\u0000-\\u02ff\\u1d00-\\u1eff]")
_BETWEEN = re.compile(r"[\s_\-./#()（）:]+|(?<=[a-z])(?=[A-Z])")


def is_header(first: Sequence[str], rest: Sequence[Sequence[str]], columns: Sequence[int] | None = None) -> bool:
    """Whether `first` is a header for the lines `rest`. `columns`: those that are read; None: all."""
    cells = [cell.strip().strip("\"'") for cell in first]
    while len(cells) > 2 and not cells[-1]:
        cells.pop()  # trailing empty cells of spreadsheets
    if len({cell.casefold() for cell in cells}) < len(cells) or not all(map(_is_name, cells[1:])):
        return False
    if not (_is_name(cells[0]) or (not cells[0] and len(cells) > 2)):  # pandas writes no name for the index
        return False
    read = [column for column in columns or range(len(cells)) if column < len(cells)]
    beside = {
        column: [row[column].strip() for row in islice(rest, LINES_COMPARED) if column < len(row)] for column in read
    }
    if any(cells[column] and cells[column] in others for column, others in beside.items()):
        return False  # it comes again, so it is a value
    usual = {
        column
        for column, cell in enumerate(cells)
        if is_column_name(cell) and not _is_language_value(cell, beside.get(column, ()))
    }
    if any(cells[column].lower() not in LANGUAGES for column in read):
        codes = {column for column in usual if len(cells[column]) == 2 and cells[column].lower() in LANGUAGES}
        usual -= codes  # he, it and no are also words
    words = len(usual)
    if usual.issuperset(read) or (words >= 2 and 2 * words >= len(cells)):
        return True
    clear = any(cells[column].lower() not in LANGUAGES for column in usual)
    signs = {_difference(cells[column], others) for column, others in beside.items()}
    if signs == {"new"}:
        return False  # few examples, each of them many times
    return "kind" in signs or signs >= {"new", "short"} or (clear and signs != {""})


def is_column_name(cell: str) -> bool:
    """Whether it is a plausible column name: `text`, `Source Text`, `inputText`, `label_1`, `文本内容`."""
    parts = [part.lower().rstrip("0123456789") for part in _BETWEEN.split(cell.strip())]
    parts = [part for part in parts if part]
    return bool(parts) and all(part in KNOWN or _COMPOUND.fullmatch(part) for part in parts)


def _is_language_value(cell: str, others: Sequence[str]) -> bool:
    """Whether it is a language in a column of languages: then it is a value."""
    if cell.lower() not in LANGUAGES:
        return False
    others = [other for other in others if other]
    return bool(others) and 2 * sum(other.lower() in LANGUAGES for other in others) >= len(others)


def _is_name(cell: str) -> bool:
    return _NAME.fullmatch(cell) is not None and len(cell.split()) <= 3


def _difference(cell: str, others: Sequence[str]) -> str:
    """How a cell differs from its column: of another "kind", "short" among long ones, "new" among few that repeat, or
    not ("")."""
    others = [other for other in others if other]
    if len(others) >= _FEW // 2 and all(map(_NUMBER.fullmatch, others)):
        return "kind"
    if len(others) < _FEW:
        return ""
    if all(map(_NON_LATIN.search, others)) and not _NON_LATIN.search(cell):
        return "kind"
    if all(re.search(r"\d", other) for other in others) and not re.search(r"\d", cell):
        return "kind"
    if sum(len(other.split()) >= 3 for other in others) >= 0.95 * len(others) and len(cell.split()) < 3:
        return "short"
    counts = Counter(others)
    once = sum(count == 1 for count in counts.values())  # probability that the next value is new (Good 1953)
    return "new" if 5 * len(counts) <= len(others) and 200 * once <= len(others) else ""
