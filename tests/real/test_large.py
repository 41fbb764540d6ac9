"""A file of 100 MB takes each reader of an exchange format ten times the CPU time of one of 10 MB.

pytest -m real -s tests/real/test_large.py      prints the seconds; no corpus is needed
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data.formats import each
from tests.data.formats.large import EXCHANGE, one_long_document, store

pytestmark = pytest.mark.real


@pytest.mark.parametrize("format", EXCHANGE)
def test_a_hundred_megabytes_take_ten_times_as_long_as_ten(format: str, tmp_path: Path) -> None:
    document = one_long_document(20)
    store(format, document * 100, tmp_path / "sample")
    per_document = (tmp_path / "sample").stat().st_size / 100
    seconds = []
    for size in (1e7, 1e8):
        path, count = tmp_path / "file", round(size / per_document)
        store(format, document * count, path)
        began = time.process_time()
        assert sum(1 for _ in each(format, [path], Counter())) == count
        seconds.append(time.process_time() - began)
        print(f"{format}: {path.stat().st_size / 1e6:.0f} MB in {seconds[-1]:.1f} CPU seconds")
    assert seconds[1] < 20 * seconds[0]
