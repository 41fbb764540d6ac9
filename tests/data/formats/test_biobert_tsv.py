"""BioBERT's TSV: exact values and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import read
from grandrounds.errors import DataError

BLINDED = {"blinded": "yes"}


def test_train_rows_have_no_header(tmp_path: Path):
    path = tmp_path / "train.tsv"
    path.write_text('"@DISEASE$" needs @GENE$.\t1\n@GENE$ is not @DISEASE$.\t0\n')
    first, second = read(path, "biobert-tsv").documents
    assert first == Document(
        "train.tsv:1",
        '"@DISEASE$" needs @GENE$.',
        (Span(0, 25),),
        (Mention(1, 10, "DISEASE", "T1", attributes=BLINDED), Mention(18, 24, "GENE", "T2", attributes=BLINDED)),
        (Entity("T1", "DISEASE", (0,)), Entity("T2", "GENE", (1,))),
        (Relation("associated", "T2", "T1", (1, 0)),),
    )
    assert second.id == "train.tsv:2"
    assert [mention.type for mention in second.mentions] == ["GENE", "DISEASE"]
    assert second.relations == ()


def test_test_rows_have_a_header_and_an_index(tmp_path: Path):
    path = tmp_path / "test.tsv"
    path.write_text("index\tsentence\tlabel\n0\t@CHEMICAL$ acts on @DISEASE$.\t1\n")
    (document,) = read(path, "biobert-tsv", relation="acts").documents
    assert (document.id, document.text) == ("test.tsv:2", "@CHEMICAL$ acts on @DISEASE$.")
    assert document.relations == (Relation("acts", "T1", "T2", (0, 1)),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("secret @GENE$ @DISEASE$\t2\n", "a.tsv:1: a label that is not 0 or 1"),
        ("secret @GENE$ @DISEASE$ 1\n", "a.tsv:1: 1 tab-separated columns where sentence and label should be"),
        ("0\tsecret @GENE$ @DISEASE$\t1\n", "a.tsv:1: 3 tab-separated columns where sentence and label"),
        ("index\tsentence\tlabel\nsecret\t1\n", "a.tsv:2: 2 tab-separated columns where index, sentence and label"),
        ("index\tsecret\tlabel\n", "a.tsv:1: a header with other columns"),
        ("@GENE$ and @DISEASE$\t0\nsecret @GENE$\t1\n", "a.tsv:2: 1 placeholders where there should be two"),
        ("secret @GENE$ @GENE$\t1\n", "a.tsv:1: 2 placeholders where there should be two, of different kinds"),
        ("secret @GENE$ @GENE$ @DISEASE$\t1\n", "a.tsv:1: 3 placeholders"),
    ],
)
def test_bad_rows_are_named_by_file_and_line_but_not_shown(content: str, message: str, tmp_path: Path):
    (tmp_path / "a.tsv").write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / "a.tsv", "biobert-tsv")
    assert "secret" not in str(caught.value)
