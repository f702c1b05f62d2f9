"""What tests start under torchrun: one training after the other, as a list of keywords in a JSON file says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def torchrun(cases: list[dict[str, Any]], folder: Path, processes: int = 2, restarts: int = 0) -> subprocess.Popen:
    file = folder / "cases.json"
    file.write_text(json.dumps(cases))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += [f"--max-restarts={restarts}", "-m", "tests.runs.train.launched", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, cwd=folder, stderr=subprocess.PIPE, text=True)


def main(file: str) -> None:
    import seqloom

    for case in json.loads(Path(file).read_text()):
        try:
            seqloom.train(**{"task": "translate", "device": "cpu", **case})
        except seqloom.SeqloomError as error:
            sys.exit(f"seqloom: {error}")


if __name__ == "__main__":
    main(sys.argv[1])
