"""What all formats share: names, options, paths, encodings."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data.documents import Document
from grandrounds.data.formats import FORMATS, read, write
from grandrounds.errors import DataError, GrandRoundsError

PUBTATOR = "1|t|Aspirin\n1|a|\n1\t0\t7\tAspirin\tDrug\tD1\n\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text(PUBTATOR)
    return path


def test_every_format_is_listed_under_its_name():
    assert set(FORMATS) >= {"pubtator", "brat", "conll", "biobert-tsv", "i2b2-2010", "docred", "eog", "json"}
    assert set(FORMATS) >= {"chemdisgene", "opennre", "nre", "bere"}
    assert set(FORMATS) >= {"ade", "cadec", "smm4h", "i2b2-2012"}
    assert all(name == format.name and format.description for name, format in FORMATS.items())


def test_unknown_formats_and_options_suggest_the_nearest(file: Path):
    with pytest.raises(GrandRoundsError, match=r"unknown format 'pubtater'; did you mean 'pubtator'\?"):
        read(file, "pubtater")
    with pytest.raises(GrandRoundsError, match=r"format 'conll': unknown option 'schema'; did you mean 'scheme'\?"):
        read(file, "conll", schema="BIO")
    with pytest.raises(GrandRoundsError, match="format 'docred' takes no options; remove 'scheme'"):
        read(file, "docred", scheme="BIO")
    with pytest.raises(GrandRoundsError, match="option 'token_column' of format 'conll' must be of type int"):
        read(file, "conll", token_column="first")


def test_one_path_several_a_folder_and_gzip_give_the_same_documents(file: Path):
    packed = file.parent / "b.txt.gz"
    packed.write_bytes(gzip.compress(PUBTATOR.encode()))
    (file.parent / "README.md").write_text("no corpus")
    one = read(str(file), "pubtator").documents
    assert read(packed, "pubtator").documents == one
    both = read([file, packed], "pubtator")
    assert both.documents == one + one
    assert both.warnings == {"documents with the id of an earlier one": 1}
    folder = read(file.parent, "pubtator")
    assert folder.documents == both.documents
    assert folder.warnings["files or folders passed over, not ending in .txt or .pubtator"] == 1


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_a_missing_path_says_so(format: str, tmp_path: Path):
    with pytest.raises(DataError, match=r"gone: no such file or folder; check the path"):
        read(tmp_path / "gone", format)


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_nothing_to_read_says_so(format: str, tmp_path: Path):
    with pytest.raises(DataError, match=f"no documents found; is it really in the format '{format}'"):
        read(tmp_path, format)
    with pytest.raises(DataError, match="no documents found"):
        read([], format)


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_broken_utf8_is_named_by_line_and_byte(format: str, tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"      \n1|a|\xff\xfe\n")
    with pytest.raises(DataError, match=r"a\.txt:2: not UTF-8 at byte 11; convert the file"):
        read(path, format)


def test_a_torn_gzip_file_says_so(tmp_path: Path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(PUBTATOR.encode())[:-9])
    with pytest.raises(DataError, match="not a whole gzip file; fetch it again"):
        read(path, "pubtator")


@pytest.mark.parametrize("format", ["opennre", "nre"])
def test_files_that_are_streamed_are_told_of_in_the_same_words(format: str, tmp_path: Path):
    torn, folder = tmp_path / "a.txt.gz", tmp_path / "folder"
    torn.write_bytes(gzip.compress(b"\n" * 999)[:-9])
    folder.mkdir()
    with pytest.raises(DataError, match="not a whole gzip file; fetch it again"):
        read(torn, format)
    with pytest.raises(DataError, match="can't be read"):
        list(FORMATS[format].reader(folder, Counter()))


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(file: Path, tmp_path: Path):
    windows = tmp_path / "windows.txt"
    windows.write_bytes(b"\xef\xbb\xbf" + PUBTATOR.replace("\n", "\r\n").encode())
    assert read(windows, "pubtator").documents == read(file, "pubtator").documents


def test_formats_that_only_read_refuse_to_write(tmp_path: Path):
    with pytest.raises(
        GrandRoundsError, match="'biobert-tsv' can be read, not written; write one of bioc, bioc-json, brat"
    ):
        write("biobert-tsv", [], tmp_path / "a.tsv")


def test_an_unwritable_place_says_so(file: Path):
    documents = read(file, "pubtator").documents
    with pytest.raises(DataError, match="can't be written"):
        write("pubtator", documents, file / "below-a-file.txt")
    with pytest.raises(DataError, match="half of a surrogate pair"):
        write("pubtator", [Document("1", "\ud800")], file)
