"""`data check` for tagged sentences: broken lines, tags that violate their scheme, duplicates and overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from seqloom.data.checks import problems
from seqloom.data.checks.suspicious_text import SuspiciousText
from seqloom.data.encoding.encode import source_hash
from seqloom.data.encoding.statistics import MOST_COMMON, counter_statistics
from seqloom.data.encoding.tag_schemes import detect_scheme, not_in_scheme, suggest_tag, violations
from seqloom.data.files.columns import ReadOptions
from seqloom.data.formats.conll import LONGEST, Sentence, TaggedFile, inspect_file, sentence_blocks, too_long
from seqloom.data.formats.pairs import Problem
from seqloom.plural import counted


def check(files: list[str], *, max_length: int | None = None, reading: ReadOptions | None = None) -> Report:
    """Check `files` (see `conll`). Iterate over the report for the problems.

    Errors are lines that training would refuse, and sentences of more than `max_length` words. Warnings: tags
    that violate their scheme (see `tag_schemes`), suspicious characters and line ends (see `suspicious_text`),
    duplicate sentences, and sentences of the first file that appear again in a later one.
    """
    reading = reading or ReadOptions()
    return Report([inspect_file(file, reading) for file in files], LONGEST if max_length is None else max_length)


class Report(problems.Report):
    """Of tagged sentences."""

    def __init__(self, sources: list[TaggedFile], max_length: int = LONGEST) -> None:
        self.sources, self.max_length = sources, max_length

    @property
    def notes(self) -> list[str]:
        return [note for source in self.sources for note in source.notes]

    def _problems(self) -> Iterator[Problem]:
        seen: dict[bytes, str] = {}
        for source in self.sources:
            self._statistics.append(Statistics(source))
            yield from self._file(self._statistics[-1], seen)

    def _file(self, statistics: Statistics, seen: dict[bytes, str]) -> Iterator[Problem]:
        """The problems of one file. `seen`: where the sentences of the first file are."""
        source, marks = statistics.source, SuspiciousText(statistics.source.form)
        own: dict[bytes, int] = {}
        sentences: list[Sentence] = []
        for block in sentence_blocks(source, marks.observe):
            found = block.problems or [problem for problem in [too_long(block, source, self.max_length)] if problem]
            yield from (*found, *marks.problems)
            marks.problems.clear()
            if found:
                statistics.broken += 1
                continue
            sentence = block.sentence(source.file)
            statistics.add(sentence)
            sentences.append(sentence)
            yield from _duplicates(sentence, own, seen)
        yield from marks.problems
        if not statistics.sentences and not statistics.broken:
            yield Problem(source.file, 1, "the file holds no sentences", code="empty")
        yield from marks.line_ends()
        yield from self._scheme_problems(sentences, statistics)
        if source is self.sources[0]:
            seen.update({key: f"{source.file}:{line}" for key, line in own.items()})

    def _scheme_problems(self, sentences: list[Sentence], statistics: Statistics) -> Iterator[Problem]:
        """Violations of the scheme, which is known only after all tags."""
        statistics.scheme = scheme = detect_scheme(sentence.tags for sentence in sentences)
        if scheme is None:
            return
        odd_tags = {tag for tag in statistics.tags if not_in_scheme(tag, scheme)}
        sound = [tag for tag in statistics.tags if tag not in odd_tags]
        for sentence in sentences:
            for place, tag in enumerate(sentence.tags):
                if tag in odd_tags:
                    hint = f"; did you mean {found!r}?" if (found := suggest_tag(tag, sound)) else ""
                    reason = f"the tag {tag!r} is none of the scheme {scheme.upper()}{hint}"
                    yield Problem(sentence.file, sentence.lines[place], reason, "warning", "tag")
            for place, reason in violations(sentence.tags, scheme):
                message = f"{reason}, which {scheme.upper()} does not allow"
                yield Problem(sentence.file, sentence.lines[place], message, "warning", "scheme")


def _duplicates(sentence: Sentence, own: dict[bytes, int], seen: dict[bytes, str]) -> Iterator[Problem]:
    key, line = source_hash(sentence.text, b""), sentence.lines[0]
    if key in own:
        yield Problem(sentence.file, line, f"duplicate: the sentence of line {own[key]}", "warning", "duplicate")
    elif key in seen:
        reason = f"overlap: the sentence stands already in {seen[key]}"
        yield Problem(sentence.file, line, reason, "warning", "overlap")
    own.setdefault(key, line)


@dataclass
class Statistics:
    """Statistics of one file."""

    source: TaggedFile
    sentences: int = 0  # usable ones
    broken: int = 0
    scheme: str | None = None
    lengths: Counter[int] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    tags: Counter[str] = field(default_factory=Counter)

    def add(self, sentence: Sentence) -> None:
        self.sentences += 1
        self.lengths[len(sentence.words)] += 1
        self.words.update(sentence.words)
        self.tags.update(sentence.tags)

    def to_json(self) -> dict[str, Any]:
        return {
            "files": [self.source.file],
            "form": self.source.form,
            "sentences": self.sentences,
            "broken": self.broken,
            "words": self.words.total(),
            "distinct_words": len(self.words),
            "scheme": self.scheme,
            "tags": dict(self.tags.most_common()),
            "lengths": counter_statistics(self.lengths),
            "told": self.summary(),
        }

    def summary(self) -> list[str]:
        """The same in lines for display."""
        lengths = counter_statistics(self.lengths)
        scheme = f" ({self.scheme.upper()})" if self.scheme else ""
        commonest = ", ".join(f"{tag} {count:,}" for tag, count in self.tags.most_common(MOST_COMMON))
        return [
            f"{self.source.file}: {counted(self.sentences, 'sentences')} ({self.source.form}), "
            f"{counted(self.words.total(), 'words')}, {len(self.words):,} distinct; "
            f"{counted(len(self.tags), 'tags')}{scheme}",
            f"  words a sentence: mean {lengths['mean']:.1f}, median {lengths['median']:g}, 95 % ≤ {lengths['p95']:g}, "
            f"longest {lengths['longest']:,}",
            f"  tags: {commonest}",
        ]
