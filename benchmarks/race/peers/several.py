"""A peer's batches shared out among several processes of it, each with its own threads: who decodes much can run so."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

_TEAM: list[subprocess.Popen[str]] = []  # started once, and asked again by every entrant of this process


class Several:
    """Speaks for its processes: makes the same in each, with every n-th batch, and waits for the slowest."""

    def __init__(self, name: str, order: dict[str, Any]) -> None:
        self.name, self.team = name, _team(order["workers"])
        shares = [{**order, "workers": 1, "share": [n, len(self.team)]} for n in range(len(self.team))]
        told = self._all(*({"do": "make", "order": share} for share in shares))
        self.parameters = told[0]["parameters"]

    def go(self, passes: int) -> list[dict[str, Any]]:
        return self._same({"do": "go", "passes": passes})

    def told(self, done: list[dict[str, Any]]) -> dict[str, Any]:
        return {"lengths": sorted({length for one in done for length in one["lengths"]})}

    def checked(self) -> dict[str, Any]:
        """Together as many rows and tokens as one alone; what else they say must be alike."""
        done = self._same({"do": "check"})
        total = {name: sum(one[name] for one in done) for name in ("rows", "tokens")}
        if any(one[name] != done[0][name] for one in done for name in ("threads", "precision")):
            raise RuntimeError("the processes run by unlike settings")
        return {**done[0], **total, **self.told(done), "workers": len(done)}

    def drop(self) -> None:
        self._same({"do": "drop"})

    def _same(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        return self._all(*[request] * len(self.team))

    def _all(self, *requests: dict[str, Any]) -> list[dict[str, Any]]:
        for process, request in zip(self.team, requests, strict=True):
            assert process.stdin is not None
            process.stdin.write(json.dumps({**request, "name": self.name}) + "\n")
            process.stdin.flush()
        answers = [_heard(process) for process in self.team]  # all of them, or the next would hear an old one
        for answer in answers:
            if "error" in answer:
                raise RuntimeError(answer["error"])
        return answers


def _team(size: int) -> list[subprocess.Popen[str]]:
    """They end when their input does: with this process."""
    while len(_TEAM) < size:
        pipe = subprocess.PIPE
        words = [sys.executable, *(["-P"] if sys.flags.safe_path else []), sys.argv[0]]
        _TEAM.append(subprocess.Popen(words, stdin=pipe, stdout=pipe, encoding="utf-8"))
        _heard(_TEAM[-1])  # its versions
    return _TEAM[:size]


def _heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    return json.loads(line) if line else {"error": "a process of several has died"}
