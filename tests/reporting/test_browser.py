"""In a real browser: nothing is asked of the network, nothing is complained of, nothing of a stranger's runs."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from seqloom.reporting.pages.comparison import compare
from seqloom.reporting.pages.run_page import report
from tests.reporting.runs import hostile, whole

CHROMIUM = shutil.which("chromium")
FLAGS = ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking")
FLAGS += ("disable-component-update", "disable-sync", "enable-logging=stderr", "v=0", "dump-dom")
FLAGS += ("host-resolver-rules=MAP * ~NOTFOUND",)  # the browser's own errands go nowhere
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


def visit(page: str, folder) -> tuple[str, list[str], set[str]]:
    """The page after the browser has read it, what stood on the console, and what it asked for."""
    file, log = folder / "page.html", folder / "net.json"
    file.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [
            str(CHROMIUM),
            *(f"--{flag}" for flag in FLAGS),
            f"--user-data-dir={folder / 'profile'}",
            f"--log-net-log={log}",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    # What the browser asks for itself (the time, its maker) has no origin.
    asked = {one["url"] for one in events if one.get("initiator", "not an origin") != "not an origin"}
    return done.stdout, console, {url for url in asked if not url.startswith(("file:", "chrome:", "data:"))}


@pytest.mark.parametrize("page", [report(whole()), report(hostile()), compare([whole(), hostile()])])
def test_a_page_asks_for_nothing_and_runs_nothing(page, tmp_path):
    shown, console, asked = visit(page, tmp_path)
    assert "Made by Seqloom" in shown
    assert "<script" not in shown
    assert console == []
    assert asked == set()


def test_this_test_would_notice(tmp_path):
    """Without our policy a picture is asked for and a script speaks."""
    bad = "<!doctype html><script>console.error('spoken')</script><img src='http://127.0.0.1:9/x.png'>"
    _, console, asked = visit(bad, tmp_path)
    assert any("spoken" in line for line in console)
    assert "http://127.0.0.1:9/x.png" in asked


def test_the_policy_stops_what_escaping_might_miss(tmp_path):
    bad = report(whole()).replace(
        "<main>", "<main><script>document.title='got'</script><img src='http://127.0.0.1:9/x'>"
    )
    shown, console, asked = visit(bad, tmp_path)
    assert "<title>got" not in shown
    assert len(console) >= 2  # the browser says what it refused
    assert asked == set()
