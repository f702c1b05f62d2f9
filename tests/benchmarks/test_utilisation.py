"""How busy a GPU was, from what nvidia-smi says."""

from __future__ import annotations

from utilisation import Sample, between, line, parsed


def test_lines_of_nvidia_smi():
    assert parsed("87, 412.33", 1.5) == Sample(1.5, 87.0, 412.33)
    assert parsed("[N/A], 412.33", 1.5) is None
    assert parsed("", 1.5) is None


def test_a_stretch_and_its_means():
    samples = [Sample(float(at), busy, 100.0) for at, busy in enumerate((0, 40, 100, 100, 100, 0))]
    stretch = between(samples, 1.0, 4.0)
    assert [sample.busy for sample in stretch] == [40, 100, 100, 100]
    assert line("it", stretch) == "| it | 3 | 85.0 | 100 | 25.0 | 100 |"
    assert line("it", []).count("–") == 5
