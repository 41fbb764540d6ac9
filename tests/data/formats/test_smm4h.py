"""SMM4H: rows of a tweet put together, columns by their header, offsets that do not fit, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Span
from grandrounds.data.formats import align, read
from grandrounds.data.formats.smm4h import TWICE, parse
from grandrounds.errors import DataError

HEADER = "tweet_id\tbegin\tend\ttype\textraction\tdrug\ttweet\tmeddra_code\tmeddra_term\n"
TWEET = '"cymbalta" gave me headaches &amp; no sleep, headaches!'
ROWS = (
    f"11\t19\t28\tADR\theadaches\tcymbalta\t{TWEET}\t10019211\theadache\n"
    f"11\t35\t43\tADR\tno sleep\tcymbalta\t{TWEET}\t10022437\tinsomnia\n"
    "12\t-\t-\t-\t-\ttrazodone\ttrazodone works\t-\t-\n"
    "13\t\t\t\t\t\tI am well \t\t\n"
)


def documents(content: str = HEADER + ROWS, warnings: Counter[str] | None = None) -> list[Document]:
    return list(parse(content, Path("a.tsv"), Counter() if warnings is None else warnings))


def test_the_rows_of_a_tweet_become_one_document():
    warnings: Counter[str] = Counter()
    assert documents(warnings=warnings) == [
        Document(
            "11",
            TWEET,
            (Span(0, 55),),
            (
                Mention(19, 28, "ADR", "T1", "10019211", attributes={"concept_name": "headache"}),
                Mention(35, 43, "ADR", "T2", "10022437", attributes={"concept_name": "insomnia"}),
            ),
            (Entity("T1", "ADR", (0,)), Entity("T2", "ADR", (1,))),
            attributes={"drug": "cymbalta"},
        ),
        Document("12", "trazodone works", (Span(0, 15),), attributes={"drug": "trazodone"}),
        Document("13", "I am well ", (Span(0, 10),)),
    ]
    assert warnings == {}


def test_offsets_that_do_not_fit_are_mended_by_the_extraction_and_counted():
    warnings: Counter[str] = Counter()
    # As counted in the tweet with & for &amp;, then with the last character included, then of what is not there.
    (document,) = documents(
        HEADER
        + f"11\t41\t50\tADR\theadaches\tcymbalta\t{TWEET}\t\t\n"
        + f"11\t35\t42\tADR\tno sleep\tcymbalta\t{TWEET}\t\t\n"
        + f"11\t35\t42\tADR\tvomiting\tcymbalta\t{TWEET}\t\t\n",
        warnings,
    )
    assert [(m.start, document.surface(m)) for m in document.mentions] == [(45, "headaches"), (35, "no sleep")]
    assert warnings == {align.MOVED: 2, align.LOST: 1}


def test_a_mention_given_with_two_codes_is_one_with_both():
    warnings: Counter[str] = Counter()
    again = f"11\t19\t28\tADR\theadaches\tduloxetine\t{TWEET}\t10000000\tother\n"
    document = documents(HEADER + ROWS + again, warnings)[0]
    assert (document.mentions[0].concept, document.mentions[0].attributes) == (
        "10019211|10000000",
        {"concept_name": "headache|other"},
    )
    assert document.attributes == {"drug": "cymbalta|duloxetine"}
    assert warnings == {TWICE: 1}


def test_the_header_says_which_column_is_what():
    warnings: Counter[str] = Counter()
    content = "text\tuser\tID\tStart\tend\tspan\nfelt sick today\tme\t5\t5.0\t9.0\tsick\n"
    (document,) = documents(content, warnings)
    assert document.mentions == (Mention(5, 9, "Entity", "T1"),)
    assert warnings == {"columns of no use here, left out": 1}


def test_a_csv_is_read_with_its_quotes():
    content = 'tweet_id,begin,end,type,extraction,tweet\n5,12,16,ADR,sick,"so ""bad"", sick\ntoday"\n6,,,,,fine\n'
    first, second = documents(content)
    assert (first.text, first.surface(first.mentions[0])) == ('so "bad", sick\ntoday', "sick")
    assert (second.text, second.mentions) == ("fine", ())


def test_files_of_a_folder_are_read(tmp_path: Path):
    (tmp_path / "train.tsv").write_text(HEADER + ROWS)
    assert len(read(tmp_path, "smm4h").documents) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ROWS, "a.tsv:1: a header without the column 'tweet_id'; the first line must name them"),
        ("tweet_id\tbegin\tend\ttype\textraction\n", "a.tsv:1: a header without the column 'tweet'"),
        (HEADER + ROWS + "11\t1\n", "a.tsv:6: 2 columns where the header has 9; no tab or line end"),
        (HEADER + "11\tx\t9\tADR\tsecret\t\tsecret\t\t\n", "a.tsv:2: begin and end must be numbers"),
        (HEADER + "11\t1\t9\tADR\t\t\tsecret\t\t\n", "a.tsv:2: begin and end must be numbers, with the extraction"),
        (HEADER + "11\t\t\tADR\tsecret\t\tsecret\t\t\n", "a.tsv:2: begin and end must be numbers"),
        (HEADER + "\t\t\t\t\t\tsecret\t\t\n", "a.tsv:2: a row without a tweet's id or text"),
        (HEADER + ROWS + "11\t\t\t\t\t\tsecret\t\t\n", "a.tsv:6: a tweet whose text is not that of line 2"),
        ('tweet_id,begin,end,extraction,tweet\n1,,,,"secret\n', "a.tsv:2: a row with a quote that does not end"),
    ],
)
def test_bad_rows_are_named_by_file_and_line_but_not_shown(content: str, message: str):
    with pytest.raises(DataError, match=message) as caught:
        documents(content)
    assert "secret" not in str(caught.value)
