"""The race by workers that say what they are told to: who fails is a row that says why, the others run on."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import pytest
import racing
from checkouts import Row, line
from environments import PEERS, AbsentError
from racing import Lane, Pace, Race, race, ratios
from run import arguments, entered
from tables import curves, everybody, glance, judged, like
from targets import ANY, OURS, TABLES, Claim, Work, entrant, works
from workers import Worker

# Answers every turn with the seconds it was given; "die" and "hang" do as they say at the first turn.
WORKER = """
import json, sys, time
print(json.dumps({"versions": {"loom": "1.2"}}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "make":
        answer = {"parameters": int(sys.argv[2])}
    elif asked["do"] == "drop":
        answer = {}
    elif sys.argv[1] == "die":
        sys.exit("MemoryError: the loom is full")
    elif sys.argv[1] == "hang":
        time.sleep(60)
    elif sys.argv[1] == "err":
        answer = {"error": "ValueError: no such | shed"}
    elif asked["do"] == "check":
        answer = {"rows": 100, "tokens": 500, "learns": int(sys.argv[2]), "threads": 1, "workers": 1, "precision": None}
    else:
        answer = {"seconds": float(sys.argv[1]) * asked["passes"], "losses": [2.0, 1.0], "lengths": [int(sys.argv[2])]}
    print(json.dumps(answer), flush=True)
"""


HOLDS = {"words": 100, "tokens": 500, "batches": 2}
WHERE = {"device": "cpu", "threads": 1}


def work(kind: str = "train", *, unit: str = "words/s", claims: tuple[Claim, ...] = (), names: str = "plain") -> Work:
    who = (entrant(OURS, OURS, "model"), *(entrant(f"the {name}", name, "model") for name in names.split()))
    return Work("toy", "weave", kind, unit, {}, 8, who, claims, steps=7)


class Told:
    """Workers by name: (seconds or what it does, parameters or the length it writes)."""

    def __init__(self, script: Path, told: dict[str, tuple[str, int]]) -> None:
        self.script, self.told, self.alive = script, told, {}

    def __call__(self, peer: str) -> Worker:
        if peer not in self.alive:
            self.alive[peer] = Worker([sys.executable, str(self.script), *map(str, self.told[peer])])
        return self.alive[peer]


@pytest.fixture
def told(tmp_path, monkeypatch):
    monkeypatch.setattr(racing, "PAUSE", 0.0)  # nothing is timed here
    script, made = tmp_path / "worker.py", []
    script.write_text(WORKER)

    def make(**told: tuple[str, int]) -> Told:
        made.append(Told(script, told))
        return made[-1]

    yield make
    for one in made:
        for worker in one.alive.values():
            worker.close()


def raced(work: Work, workers: Told, rounds: int = 3, grace: float = 20.0) -> Race:
    pace = Pace(rounds, 0.0, time.monotonic() + 60, grace)
    return race(work, Path("none.npz"), HOLDS, workers, WHERE, pace)


def test_a_figure_is_of_the_median_and_a_ratio_of_the_medians(told):
    done = raced(work(claims=(Claim("fp32", 1.5, 3.0),)), told(seqloom=("0.5", 1000), plain=("1.0", 1005)))
    ours, theirs = done.lanes
    assert done.rate(ours.median) == pytest.approx(200)
    assert ratios(ours, theirs) == pytest.approx([2.0] * 3)
    assert judged(done, done.work.claims[0]) == ("2.00 ×", "≥ 1.5 × the fastest", "≥ 3 × the fastest", "holds")
    rows = everybody([done])
    assert "| weave | seqloom |  | 200 | words/s | 200–200 |  |  | 1,000 | +0.00% | 1.50 → 1.50 |  |" in rows
    assert any("| the plain |  | 100 | words/s | 100–100 | 2.00 | 2.00–2.00 | 1,005 | +0.50% |" in row for row in rows)


@pytest.mark.parametrize(
    ("how", "why"), [("die", "MemoryError: the loom is full"), ("err", "ValueError: no such / shed")]
)
def test_a_worker_that_dies_or_fails_is_a_row_that_says_so(told, how, why):
    done = raced(work(names="plain eole"), told(seqloom=("0.5", 10), plain=(how, 10), eole=("1.0", 10)))
    rows = everybody([done])
    assert any(f"| the plain | absent: {why} |" in row for row in rows)
    assert done.lane("the eole") is not None
    assert done.lane("the plain") is None


def test_a_worker_that_hangs_is_not_waited_for(told):
    start = time.monotonic()
    workers = told(seqloom=("0.5", 10), plain=("hang", 10))
    slow = work()
    done = race(slow, Path("n"), HOLDS, workers, WHERE, Pace(1, 0.0, time.monotonic(), 20.0))
    assert time.monotonic() - start < 30
    assert done.lanes[0].seconds
    assert done.lanes[1].absent == "no time was left"
    with pytest.raises(AbsentError, match="no answer within 1 s"):
        workers("plain").ask(1.0, do="go", name="x", passes=1)


def test_one_that_writes_too_few_tokens_is_out(told):
    done = raced(work("decode"), told(seqloom=("0.5", 7), plain=("0.1", 6)))
    assert done.lanes[0].absent is None
    assert done.lanes[1].absent == "wrote [6] tokens a sentence rather than 7"


def test_a_peer_that_cannot_be_imported_says_why_in_one_line(tmp_path):
    script = tmp_path / "peer.py"
    script.write_text("import no_such_loom\n")
    with pytest.raises(AbsentError, match=r"^ModuleNotFoundError: No module named 'no_such_loom'$"):
        Worker([sys.executable, str(script)])


def test_a_peer_that_was_not_asked_for_has_no_column():
    (left,) = entered(works("cpu", ["transformer"]), [OURS, "eole"])
    assert [one.label for one in left.entrants] == [OURS, f"{OURS} bf16", "eole", "eole bf16"]
    assert left.entrants[0].knobs == ("threads", "compiled")
    (left,) = entered(works("cpu", ["transformer"]), [OURS], ["compiled"])
    assert left.entrants[0].knobs == ("threads",)


def test_a_limit_on_milliseconds_holds_from_below_and_memory_counts(told):
    claims = (Claim("fp32", 6.0, 4.0, None),)
    done = raced(work("decode", unit="ms a word", claims=claims), told(seqloom=("0.5", 7), plain=("1", 7)))
    assert judged(done, claims[0]) == ("5", "≤ 6", "≤ 4", "holds")
    done.lanes[0].seconds = [0.7]
    assert judged(done, claims[0])[3] == "**fails**"
    done.lanes[0].seconds = [0.3]
    assert judged(done, claims[0])[3] == "holds, and the aim"
    done.lanes[0].memory, done.work = 22.0, Work(**{**vars(done.work), "memory": 21.0})
    assert judged(done, claims[0])[3] == "**fails**: 22.0 GB of 21"


def test_a_claim_without_a_peer_is_not_measured(told):
    done = raced(work(claims=(Claim("fp32", 1.5, None),)), told(seqloom=("0.5", 10), plain=("die", 10)))
    assert judged(done, done.work.claims[0])[3] == "not measured"
    assert glance([done])[-1].startswith("| weave, fp32 | words/s | 200 | – |")


def test_a_precision_is_judged_by_peers_in_the_same(told):
    done = Race(next(work for work in TABLES["cpu"] if work.key == "transformer"), {"words": 1}, [])
    done.lanes = [Lane(one, 1, seconds=[1.0]) for one in done.work.entrants]
    for precision in ("fp32", "bf16"):
        assert {lane.entrant.precision for lane in done.peers(precision)} == {precision}
    assert "nn.Transformer bf16" in {lane.entrant.label for lane in done.peers("bf16")}
    assert "nn.Transformer bf16" not in {lane.entrant.label for lane in done.peers("fp32")}
    beside = {lane.entrant.label: like(done, lane).entrant.label for lane in done.lanes}
    assert beside["nn.Transformer bf16"] == f"{OURS} bf16"
    assert beside["nn.Transformer"] == beside[f"{OURS} bf16"] == OURS


def test_curves_stand_beside_each_other(told):
    done = raced(work(), told(seqloom=("0.5", 10), plain=("1", 10)))
    done.curves = {OURS: [4.0, 2.0] * 100, f"{OURS} bf16": [4.5, 2.5] * 100}
    assert curves([done], points=2)[-2:] == ["| 101–200 | 3.0000 | 3.5000 | +0.5000 |", ""]


def test_every_entrant_of_the_tables_has_a_worker_that_knows_its_model():
    folder = Path(sys.modules["run"].__file__).parent / "peers"
    for work in (work for table in TABLES.values() for work in table):
        assert work.entrants[0].label == OURS
        ours = {one.precision for one in work.entrants if one.peer == OURS}
        assert {claim.precision for claim in work.claims} <= ours | {ANY}
        for one in work.entrants:
            assert one.peer in PEERS
            assert f'"{one.variant}"' in (folder / f"{one.peer}.py").read_text()


def test_works_are_chosen_by_kind_or_key():
    assert {work.kind for work in works("cpu", ["decode"])} == {"decode"}
    assert [work.key for work in works("cuda", ["fed", "gpt2"])] == ["fed", "gpt2"]
    assert works("cuda", ["gpt2"], small=True)[0].model["dim"] == 64


def test_the_command_line_is_read(capsys):
    args = arguments(["--device", "cuda", "--only", "train,one-beam", "--peers", "plain", "--seconds", "500"])
    assert (args.table, args.only, args.peers, args.seconds) == ("cuda", ["train", "one-beam"], [OURS, "plain"], 500)
    assert math.isinf(arguments([]).seconds)
    assert arguments(["--quick"]).rounds == 1
    with pytest.raises(SystemExit):
        arguments(["--peers", "plian"])
    assert "'plian' is none of ctranslate2, eole, huggingface, plain" in capsys.readouterr().err


def test_a_checkout_is_slower_where_its_interval_lies_above_the_bound():
    """One slow round of nine does not decide; two checkouts are compared round by round."""
    drift = [1.0, 1.3, 1.0, 0.9, 1.1, 1.0, 1.2, 1.0, 1.0]
    hiccup = Row("a", drift, [1.01 * seconds for seconds in drift[:-1]] + [5.0])
    assert hiccup.interval == pytest.approx((1.01, 1.01))
    assert not hiccup.slower
    worse = Row("b", drift, [0.5, *(1.05 * seconds for seconds in drift[1:])])
    assert worse.slower
    assert "| 1.050 [1.050, 1.050] | slower |" in line(worse)
    assert "it died" in line(Row("c", [], [], "it died"))
