"""The page that says at which price the answer flips."""

import json
import re
from itertools import pairwise
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "flip" / "index.html").read_text(encoding="utf-8")
FOUND = re.search(r'id="data">(.*?)</script>', PAGE, re.DOTALL)
DATA = json.loads(FOUND[1] if FOUND else "{}")


def test_every_curve_has_ordered_intervals_and_is_slower_per_user_under_more_load() -> None:
    assert len(DATA["curves"]) > 30
    for name, curve in DATA["curves"].items():
        loads, speeds = ([point[at] for point in curve["points"]] for at in (0, 1))
        assert loads == sorted(loads), name
        assert all(after <= before * 1.1 for before, after in pairwise(speeds)), name
        for _, _, middle, low, high in curve["points"]:
            assert 0 < low <= middle <= high, name


def test_every_dot_has_its_source() -> None:
    dots = [dot for curve in DATA["curves"].values() for dot in curve["dots"]]
    assert dots
    assert all(url.startswith("https://") and speed > 0 and rate > 0 for speed, rate, _, url in dots)


def test_the_page_loads_nothing() -> None:
    without_data = PAGE.replace(FOUND[1] if FOUND else "", "")
    assert re.findall(r"(?:src|href)=", without_data) == []
    assert "default-src 'none'" in without_data
