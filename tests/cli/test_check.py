"""`data check` lists all problems, and `data partition` takes the task that its scheme needs."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commands import run

BROKEN = "1|t|Aspirin and pain\n1\t0\t7\tAspirin\tDrug\tD1\n1\t12\t15\tpain\tX\tD2\n7\n8\n1\tCID\tD1\tD9\n"
UNPLACED = {"relations with a concept that no mention has, left out": 1}


def test_check_lists_every_problem_and_exits_with_one_unless_lenient(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text(BROKEN)
    wanted = ("data", "check", file, "--format", "pubtator")
    plain = run(*wanted, "--show", "2")
    assert plain.code == 1
    rows = plain.stdout.splitlines()
    assert rows[0].startswith(f"{file}:3: mention 12-15 does not match the text there")
    assert rows[1].startswith(f"{file}:4: a line with another id than the title above it")
    assert rows[2:] == [
        "3 problems; --lenient, or data.lenient = true, leaves out:",
        "  2 x a line with another id than the title above it (each document needs its title line)",
        "  1 x mention n-n does not match the text there (check the offsets)",
        "without them: 1 documents, 1 sentences, 1 mentions, 1 entities, 0 relations",
    ]
    found = run(*wanted, "--lenient", "--json").json()
    assert found["mentions"] == 1
    assert found["warnings"] == UNPLACED
    assert [(row["file"], row["line"]) for row in found["problems"]] == [(str(file), line) for line in (3, 4, 5)]
    assert found["left_out"] == {
        "mention n-n does not match the text there": 1,
        "a line with another id than the title above it": 2,
    }
    assert run("data", "stats", file, "--format", "pubtator", "--lenient", "--json").json()["mentions"] == 1


def test_check_says_what_a_cure_would_change(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    rows = ["1|t|Aspirin, pain, ASA", "1\t0\t7\tAspirin\tDrug\tD1", "1\t9\t13\tpain\tProblem\tP1"]
    rows += ["1\t15\t18\tASA\tDrug\tD2", "1\tCID\tD1|D2\tP1", "1\tCID\tD9\tP1"]
    file.write_text("\n".join(rows) + "\n")
    wanted = ("data", "check", file, "--format", "pubtator")
    told = run(*wanted).good().stdout.splitlines()
    assert told[-1] == "with --option joined=same: 2 entities instead of 3, 1 relations instead of 0"
    changes = {"entities": 2, "relations": 1}
    assert run(*wanted, "--json").json()["cures"] == [{"options": {"joined": "same"}, "changes": changes}]
    assert run(*wanted, "--option", "joined=same", "--json").json()["cures"] == []


def test_structural_entropy_takes_the_task_that_it_needs() -> None:
    wanted = ("data", "partition", "--format", "synthetic-documents", "--scheme", "structural_entropy", "--sites", "3")
    assert run(*wanted, "--json").json() == run(*wanted, "--task", "document_re", "--json").json()


def test_many_labels_are_folded_to_the_commonest(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    rows = [f"word\tB-A_kind_of_finding_{i:02}\n\n" for i in range(40) for _ in range(1 + (i < 5))]
    file.write_text("".join(rows))
    wanted = ("data", "partition", file, "--format", "conll", "--task", "ner", "--sites", "1")
    table = run(*wanted).good().stdout
    assert "the 5 commonest of 41 labels, all with --json" in table
    assert "…" not in table
    (site,) = run(*wanted, "--json").json()["sites"]
    assert f" {site['name']} " in table
    assert len(site["labels"]) == 40
