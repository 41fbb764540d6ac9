"""A paper's table beside ours: what is shown of paper, measurement and quotation."""

from __future__ import annotations

import json

from grandrounds.papers.paper import Cell, PaperTable, Row, Setting

TABLE = PaperTable(
    "table9",
    "A paper, table9: results",
    "percent",
    "method",
    ["P", "F1"],
    [
        Row("Somebody (2001)", [Cell(None), Cell(71.01)], "Before", quoted=True),
        Row("Theirs", [Cell(74.5, [70.0, 80.0, 71.234]), Cell(75.09, [60.0])], "Now"),
        Row("Ours alone", [Cell(), Cell(None, [50.0])], "Now"),
    ],
    ["A note."],
    [Setting("batch size, B", "4", "8")],
    {"theirs": {"training.epochs": 1}, "plain": {}},
    "grandrounds reproduce paper table9",
)


def test_markdown_shows_paper_beside_median_and_range() -> None:
    reported = TABLE.to_markdown()
    assert "| method | P, paper | P, measured | F1, paper | F1, measured |" in reported
    assert "| Theirs | 74.50 | 71.23 (70.00 to 80.00) | 75.09 | 60.00 |" in reported


def test_a_quoted_row_is_marked_and_what_its_paper_leaves_out_is_a_dash() -> None:
    assert "| Somebody (2001) | – | quoted | 71.01 | quoted |" in TABLE.to_markdown()


def test_a_row_that_the_paper_lacks_leaves_its_columns_empty() -> None:
    assert "| Ours alone |  |  |  | 50.00 |" in TABLE.to_markdown()


def test_markdown_tells_command_sections_notes_protocol_and_changes() -> None:
    reported = TABLE.to_markdown()
    for piece in ("`grandrounds reproduce paper table9`", "| *Before* |", "- A note.", "| batch size, B | 4 | 8 |"):
        assert piece in reported
    assert "- theirs: `training.epochs=1`" in reported
    assert "- plain" not in reported


def test_json_holds_the_paper_the_median_and_every_run() -> None:
    reported = json.loads(json.dumps(TABLE.to_dict()))
    assert reported["rows"][1]["cells"]["P"] == {"paper": 74.5, "measured": 71.234, "runs": [70.0, 80.0, 71.234]}
    assert reported["rows"][0]["cells"]["F1"] == {"paper": 71.01, "measured": None}
    assert reported["rows"][0]["quoted"] is True


def test_a_target_that_most_runs_miss_is_missed() -> None:
    assert Cell(9, [7, None, None]).middle is None
    assert Cell(9, [7, 12, None]).middle == 12
    assert Cell(9, [7, 12, 20], mean=True).middle == 13
    assert Cell(9, [7, None], mean=True).middle is None
    assert Row("x", [Cell(9, [7, 12, None])]).texts("rounds") == ["9", "12 (7 to –)"]
    assert Row("x", [Cell(None, [None]), Cell(34, [3])]).texts("rounds") == ["–", "–", "34", "3"]


def test_bytes_and_counts_read_as_people_write_them() -> None:
    assert Row("x", [Cell(423e6, [90_912_340]), Cell(323, [64])]).texts("bytes") == [
        "423 MB",
        "90.9 MB",
        "323 B",
        "64 B",
    ]
    assert Row("x", [Cell(10231, [408])]).texts("count") == ["10\u202f231", "408"]


def test_a_terminal_gets_a_column_for_paper_and_one_for_measured() -> None:
    table = TABLE.to_rich()
    assert [str(column.header) for column in table.columns] == [
        "method",
        "P\npaper",
        "P\nmeasured",
        "F1\npaper",
        "F1\nmeasured",
    ]


def test_a_figure_without_numbers_has_no_column_for_the_paper() -> None:
    figure = PaperTable("figure9", "x", "rounds", "C", ["A"], [Row("C=1", [Cell(None, [3])])])
    assert "| C | A, measured |" in figure.to_markdown()
    assert "| C=1 | 3 |" in figure.to_markdown()
    assert len(figure.to_rich().columns) == 2
