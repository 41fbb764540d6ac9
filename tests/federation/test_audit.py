"""The log shows every edit, deletion, move and cut."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.audit import START, Audit, verify


@pytest.fixture
def log(tmp_path: Path) -> tuple[Path, str]:
    audit = Audit(tmp_path / "audit.jsonl")
    for round in range(5):
        audit.write(round=round, kind="parameters", bytes=100 + round)
    audit.close()
    return tmp_path / "audit.jsonl", audit.head


def test_each_line_holds_the_sha256_of_the_one_before(log: tuple[Path, str]) -> None:
    path, head = log
    lines = path.read_text().splitlines()
    digests = [START, *(sha256(line.encode()).hexdigest() for line in lines)]
    assert [json.loads(line)["previous"] for line in lines] == digests[:-1]
    assert head == digests[-1]
    assert verify(path) == verify(path, head) == 5


def broken(path: Path, lines: list[str], because: str, head: str | None = None) -> None:
    path.write_text("".join(line + "\n" for line in lines))
    with pytest.raises(GrandRoundsError, match=because):
        verify(path, head)


@pytest.mark.parametrize("number", range(4))
def test_an_edited_line_is_found(log: tuple[Path, str], number: int) -> None:
    lines = log[0].read_text().splitlines()
    lines[number] = lines[number].replace('"bytes": 10', '"bytes": 90')
    broken(log[0], lines, f":{number + 2}: the chain is broken")


def test_a_deleted_line_is_found(log: tuple[Path, str]) -> None:
    lines = log[0].read_text().splitlines()
    broken(log[0], lines[:2] + lines[3:], ":3: the chain is broken")
    broken(log[0], lines[1:], ":1: the chain is broken")


def test_moved_lines_are_found(log: tuple[Path, str]) -> None:
    lines = log[0].read_text().splitlines()
    broken(log[0], [lines[0], lines[2], lines[1], *lines[3:]], ":2: the chain is broken")


def test_a_cut_end_and_an_edited_last_line_are_found_by_who_holds_the_head(log: tuple[Path, str]) -> None:
    path, head = log
    lines = path.read_text().splitlines()
    broken(path, lines[:4], "was cut", head)
    assert verify(path) == 4
    broken(path, [*lines[:4], lines[4].replace('"bytes": 104', '"bytes": 904')], "last line edited", head)


def test_an_older_head_is_still_vouched_for(log: tuple[Path, str]) -> None:
    path, head = log
    audit = Audit(path)
    audit.write(round=6)
    audit.close()
    assert verify(path, head) == verify(path, audit.head) == 6


@pytest.mark.parametrize("line", ["not json", "[1]", '{"round": 1}'])
def test_a_line_that_is_no_record_is_named(log: tuple[Path, str], line: str) -> None:
    broken(log[0], [*log[0].read_text().splitlines(), line], ":6: this line was edited or torn")


def test_a_line_torn_by_a_crash_is_put_aside_and_the_log_says_so(log: tuple[Path, str]) -> None:
    path, head = log
    with path.open("a") as file:
        file.write('{"time": 1, "rou')
    audit = Audit(path)
    audit.close()
    lines = path.read_text().splitlines()
    assert verify(path, head) == 6
    assert json.loads(lines[5])["event"] == "recovered"
    assert json.loads(lines[5])["torn_bytes"] == len('{"time": 1, "rou')
    assert json.loads(lines[5])["previous"] == head


def test_a_whole_log_is_gone_on_with_and_a_missing_one_is_an_error(log: tuple[Path, str], tmp_path: Path) -> None:
    Audit(log[0]).close()
    assert verify(log[0], log[1]) == 5
    with pytest.raises(GrandRoundsError, match="cannot read the audit log"):
        verify(tmp_path / "nowhere.jsonl")
