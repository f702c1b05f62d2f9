"""Living processes, one a peer, spoken to by lines of JSON. One that dies or does not answer says why, and is gone."""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
from typing import Any

from environments import AbsentError

START = 300.0  # seconds to import everything; a cold disk is slow


class Worker:
    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.heard: queue.Queue[str] = queue.Queue()
        self.noise = tempfile.TemporaryFile()  # noqa: SIM115
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self.noise, env=environment, encoding="utf-8"
        )
        threading.Thread(target=self._listen, daemon=True).start()
        self.versions: dict[str, str] = self._answer(START)["versions"]

    def ask(self, seconds: float, **request: Any) -> dict[str, Any]:
        """Its answer; AbsentError where it has none, or where that is an error."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise AbsentError(self._why()) from error
        return self._answer(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.heard.put(line)
        self.heard.put("")

    def _answer(self, seconds: float) -> dict[str, Any]:
        try:
            line = self.heard.get(timeout=max(seconds, 1.0))
        except queue.Empty as error:
            self.close()
            raise AbsentError(f"no answer within {seconds:.0f} s") from error
        if not line:
            raise AbsentError(self._why())
        answer = json.loads(line)
        if "error" in answer:
            raise AbsentError(answer["error"])
        return answer

    def _why(self) -> str:
        """The last line that it wrote, which of a traceback is what went wrong."""
        status = self.process.wait()
        self.noise.seek(0)
        lines = self.noise.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip()[:200] if lines else f"died with status {status}"
