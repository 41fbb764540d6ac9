"""Word vectors: read from what others publish, streamed, and put where their words are."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError, DataError
from grandrounds.models.encoder import Encoder
from grandrounds.models.word_pieces import SPECIAL, count_strings
from grandrounds.models.words import read_vectors, word_tokenizer, words_of
from grandrounds.simulation.prepare import prepare
from tests.conftest import DISTANT_RE, TinyConfig

VECTORS = {"the": [0.5, -1.0, 2.0], "eased": [1.0, 0.25, -3.0], "naïve": [4.0, 5.0, 6.0]}


def glove(path: Path, header: str = "") -> Path:
    lines = [f"{word} {' '.join(map(str, vector))}\n" for word, vector in VECTORS.items()]
    path.write_text(header + "".join(lines), encoding="utf-8")
    return path


def word2vec(path: Path, newline: bytes = b"\n") -> Path:
    body = b"".join(word.encode() + b" " + struct.pack("<3f", *vector) + newline for word, vector in VECTORS.items())
    path.write_bytes(b"3 3\n" + body)
    return path


@pytest.mark.parametrize("kind", ["glove", "fasttext", "word2vec", "word2vec without newlines"])
def test_each_kind_of_file_gives_the_same_vectors(kind: str, tmp_path: Path) -> None:
    match kind:
        case "glove":
            path = glove(tmp_path / "v")
        case "fasttext":
            path = glove(tmp_path / "v", "3 3\n")
        case "word2vec":
            path = word2vec(tmp_path / "v")
        case _:
            path = word2vec(tmp_path / "v", b"")
    assert {word: vector.tolist() for word, vector in read_vectors(path).items()} == VECTORS
    assert read_vectors(path, {"eased", "other"}).keys() == {"eased"}
    assert list(read_vectors(path, most=2)) == ["the", "eased"]


def test_a_glove_file_of_two_numbers_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("a 1\nb 2\n")
    assert {word: vector.tolist() for word, vector in read_vectors(tmp_path / "v").items()} == {"a": [1.0], "b": [2.0]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"the 1 2\neased 1\n", "line 2: a vector of 1 numbers, and others have 2"),
        (b"the 1 2\neased 1 2 3\n", "line 2: a vector of 3 numbers, and others have 2"),
        (b"the 1 x\n", "line 1: not a word and its numbers"),
        (b"2 3\nthe \x00\x00\x80?", "ends within word 1 of 2"),
        (b"", "none of the words"),
    ],
)
def test_a_damaged_file_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes(content)
    with pytest.raises(DataError, match=said):
        read_vectors(tmp_path / "v")
    with pytest.raises(DataError, match="can't be read"):
        read_vectors(tmp_path / "none")


def test_a_name_of_several_words_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("the 1 2\n. . . 3 4\nat name@domain.com 5 6\n. 7 8\n")
    found = {word: vector.tolist() for word, vector in read_vectors(tmp_path / "v").items()}
    assert found == {"the": [1.0, 2.0], ".": [7.0, 8.0]}


def test_words_are_in_small_letters_and_the_rare_are_unknown() -> None:
    words = words_of(["The pain eased.", "the pain, THE end"])
    assert words == ["the", "pain"]
    tokenizer = word_tokenizer(words)
    assert tokenizer.convert_ids_to_tokens(tokenizer("The end: pain")["input_ids"]) == ["the", "[UNK]", "[UNK]", "pain"]


def test_vectors_stand_at_their_words_and_others_are_drawn(tmp_path: Path) -> None:
    encoder = Encoder.find("words", (), ["the dose the dose"], glove(tmp_path / "v"))
    assert len(encoder.tokenizer) == 7  # five special ones, the, dose
    torch.manual_seed(0)
    weight = encoder.build().embeddings.weight.detach().numpy()  # type: ignore[union-attr,operator]
    place = encoder.tokenizer.get_vocab()
    np.testing.assert_array_equal(weight[place["the"]], VECTORS["the"])
    assert np.abs(weight[place["dose"]]).max() > 0
    assert encoder.width == 3
    whole = Encoder.find("words", (), [], glove(tmp_path / "v"), 2)
    assert set(whole.tokenizer.get_vocab()) >= {"the", "eased"}
    assert len(whole.tokenizer) == 7


def test_a_name_with_underscores_is_one_word_where_the_vectors_have_it(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("the 1 2\nkarl_lagerfeld 3 4\nkarl 5 6\n_ 7 8\nlady_gaga 9 9\n")
    text = "Karl_Lagerfeld met the karl_lagerfelds, Karl_Marx and (karl_lagerfeld)."
    expected = ["karl_lagerfeld", "met", "the", "karl", "_", "lagerfelds", ",", "karl", "_", "marx", "and", "(",
                "karl_lagerfeld", ")", "."]  # fmt: skip

    def split(encoder: Encoder) -> list[str]:
        (ids,) = encoder.pieces([text])
        words: list[str] = encoder.tokenizer.convert_ids_to_tokens(ids)
        return [known if known != "[UNK]" else word for known, word in zip(words, expected, strict=True)]

    public = Encoder.find("words", (), [text], tmp_path / "v")
    assert split(public) == expected
    assert "lady_gaga" not in public.tokenizer.get_vocab()  # it does not occur
    both = Encoder.find("words", (), [text], tmp_path / "v", 100)
    assert split(both) == expected
    assert {"lady_gaga", "karl"} <= set(both.tokenizer.get_vocab())
    both.save(tmp_path / "saved")
    assert split(Encoder.saved(tmp_path / "saved")) == expected
    weight = both.build().embeddings.weight.detach()  # type: ignore[union-attr,operator]
    assert weight[both.tokenizer.get_vocab()["karl_lagerfeld"]].tolist() == [3, 4]
    (tmp_path / "other").write_text("the 1 2\n")
    assert "karl_lagerfeld" not in Encoder.find("words", (), [text], tmp_path / "other").tokenizer.get_vocab()


def test_a_run_takes_the_vectors_words_or_the_publics(tiny_config: TinyConfig, tmp_path: Path) -> None:
    glove(tmp_path / "v")
    model = {"encoder": "words", "vectors": str(tmp_path / "v")}
    words = {}
    for vocabulary in (None, "both", "vectors", "public"):
        content = tiny_config(task=DISTANT_RE, model={**model, **({"vocabulary": vocabulary} if vocabulary else {})})
        made = prepare(make_config(content), tmp_path, tmp_path / str(vocabulary))
        words[vocabulary] = set(made.spec.encoder.tokenizer.get_vocab())
        weight = made.model.encoder.embeddings.weight  # type: ignore[union-attr]
        row = made.spec.encoder.tokenizer.get_vocab()["the"]
        assert weight[row].tolist() == VECTORS["the"]  # type: ignore[index]
    assert words["public"] & {"naïve", "showed"} == {"showed"}
    assert words["vectors"] & {"naïve", "showed"} == {"naïve"}
    assert words[None] == words["both"] == words["vectors"] | words["public"]


def test_words_of_the_sites_are_those_that_enough_of_a_site_s_documents_have(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    glove(tmp_path / "v")
    model = {"encoder": "words", "vectors": str(tmp_path / "v"), "vocabulary": "sites", "vocabulary_documents": 4}
    content = tiny_config(task={"name": "ner"}, model=model)
    made = prepare(make_config(content), tmp_path, tmp_path / "run")
    place = made.spec.encoder.tokenizer.get_vocab()
    assert "the" in place
    assert made.model.words.weight[place["the"]].tolist() == VECTORS["the"]  # type: ignore[union-attr,index]
    listed = (tmp_path / "run" / "vocabulary" / "pieces.txt").read_text().split()
    assert set(listed) | set(SPECIAL) == set(place)
    few = prepare(make_config(content, {"model.vocabulary_documents": 1}), tmp_path, tmp_path / "one")
    more = few.spec.encoder.tokenizer.get_vocab()
    assert place.keys() < more.keys()
    # A word begins with the same vector, whatever else is known.
    ours, theirs = (one.model.words.weight for one in (made, few))  # type: ignore[union-attr]
    assert all(ours[place[word]].equal(theirs[more[word]]) for word in place)  # type: ignore[index]
    drawn = [ours[place[word]] for word in listed if word not in VECTORS]  # type: ignore[index]
    assert len({tuple(row.tolist()) for row in drawn}) == len(drawn)
    assert float(torch.stack(drawn).detach().abs().max()) <= 1  # the square root of 3 over the width
    # Between hosts the same words come in a file.
    file = tmp_path / "run" / "vocabulary" / "pieces.txt"
    named = prepare(make_config(content, {"model.vocabulary": str(file)}), tmp_path, tmp_path / "named")
    assert named.model.words.weight.equal(ours)  # type: ignore[union-attr,operator]
    file.write_text("pain\n##s\n")
    with pytest.raises(ConfigError, match="must have a whole word a line"):
        prepare(make_config(content, {"model.vocabulary": str(file)}), tmp_path, tmp_path / "pieces")


def test_the_count_of_whole_words_is_by_documents() -> None:
    texts = ["the fever , the pain", "fever again", "Fever and pain"]
    assert count_strings(texts, 2, whole=True) == {"fever": 3, "pain": 2}
    assert any(string.startswith("##") for string in count_strings(texts, 2))


@pytest.mark.parametrize(
    "model",
    [{"encoder": "tiny", "vectors": "v"}, *({"encoder": "words", "vocabulary": v} for v in ("vectors", "both"))],
)
def test_settings_that_would_say_nothing_are_refused(
    model: dict[str, str], tiny_config: TinyConfig, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"model\.vectors"):
        prepare(make_config(tiny_config(task=DISTANT_RE, model=model)), tmp_path, tmp_path / "run")
