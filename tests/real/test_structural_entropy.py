"""FedLCC's unlike sites of CDR: the public code's split to the document, and the paper's reading beside it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from grandrounds.data.formats import read
from grandrounds.data.partition import Unit, partition
from grandrounds.data.structural_entropy import entropies
from tests.real.corpora import DATA

CDR = DATA / "cdr" / "eog" / "train_filter.data"
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not CDR.exists(), reason="CDR in the EOG format is not beside the project; set GRANDROUNDS_DATA"
    ),
]


@pytest.mark.parametrize(
    ("entropy", "low", "high", "wanted", "sizes"),
    [
        (
            "code",
            "4.317658",
            "24.289256",
            {"sites": None, "edges": range(6, 23, 2)},
            [5, 39, 84, 96, 120, 76, 51, 17, 5, 7],
        ),
        ("paper", "0.937156", "2.431470", {"sites": 10}, [1, 6, 14, 21, 78, 129, 124, 76, 38, 13]),
    ],
)
def test_cdr_over_ten_sites(entropy: str, low: str, high: str, wanted: dict[str, object], sizes: list[int]):
    documents = read(CDR, "eog").documents
    h = entropies(documents, entropy)
    assert (f"{min(h):.6f}", f"{max(h):.6f}") == (low, high)
    units = [Unit(str(i), "", {}, (i,), (document,)) for i, document in enumerate(documents)]
    dealt = partition(units, "structural_entropy", seed=1, entropy=entropy, **wanted)  # type: ignore[arg-type]
    assert [len(held) for held in dealt.sites.values()] == sizes
    assert dealt.left_out == ()
    rows = dealt.table([("",)] * len(documents), [document.id for document in documents])
    assert [row.documents for row in rows] == sizes
    spreads = [row.entropy for row in rows if row.entropy]
    assert len(spreads) == 10
    assert (f"{spreads[0].min:.6f}", f"{spreads[-1].max:.6f}") == (low, high)
    assert all(one.max < other.min for one, other in pairwise(spreads))
