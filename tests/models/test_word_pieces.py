"""A vocabulary from counts alone: nothing rare leaves, and pieces are those that BERT's own trainer learns."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from grandrounds.errors import ConfigError
from grandrounds.models.word_pieces import by_person, count_strings, cut, learn_pieces, piece_counts, words_in

SYLLABLES = ("car", "di", "o", "my", "pa", "thy", "neph", "ro", "itis", "hepa", "gas", "tri", "c")


def notes(number: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(300)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    return [" ".join(rng.choices(words, weights, k=60)) for _ in range(number)]


def has(text: str, string: str) -> bool:
    """Whether a word of the text has the string where it stands: from its start, or within."""
    inside = string.startswith("##")
    return any(string[2:] in word[1:] if inside else word.startswith(string) for word in words_in(text))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 10_000), st.integers(2, 8))
def test_every_string_is_in_as_many_documents_as_was_said(seed: int, least: int) -> None:
    documents = notes(12, seed)
    counts = count_strings(documents, least)
    assert counts
    for string in counts:
        assert sum(has(text, string) for text in documents) >= least


def test_a_canary_is_in_no_upload_in_whole_and_common_words_are() -> None:
    documents = [*notes(40), "cardiomyopathy zanardiq777", "zanardiq777 again", "zanardiq777"]
    counts = count_strings(documents, 4)
    assert not [string for string in counts if "zanard" in string or "q777" in string]
    common = Counter(word for text in documents for word in set(words_in(text)))
    assert {word for word, number in common.items() if number >= 4} <= counts.keys()
    assert "zanardiq777" in count_strings(documents, 3)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 10_000), st.integers(2, 8))
def test_parts_of_rare_words_are_in_rare_words_of_enough_documents(seed: int, least: int) -> None:
    """That a common word has them, too, does not count."""
    documents = notes(12, seed)
    common = {word for word, n in Counter(w for d in documents for w in set(words_in(d))).items() if n >= least}
    rare = [" ".join(word for word in words_in(text) if word not in common) for text in documents]
    for string in count_strings(rare, least):
        assert sum(has(text, string) for text in rare) >= least


def test_a_rare_word_within_a_common_one_is_not_told() -> None:
    documents = ["johnson rested"] * 5 + ["johns rested", "thomas rested"]
    assert count_strings(documents, 5) == {"johnson": 5, "rested": 7}
    parts = count_strings([*documents, *(f"john{letter}" for letter in "abcde")], 5)
    assert parts["john"] == 6  # of johns and five others
    assert "johns" not in parts


def test_documents_of_a_patient_are_one_and_so_are_equal_texts() -> None:
    texts = by_person([("7", "rest"), (None, "pain"), ("7", "fever"), (None, "pain"), ("7", "rest"), ("8", "pain")])
    assert texts == ["rest\nfever", "pain"]


def test_a_note_under_five_names_is_one_document() -> None:
    assert count_strings(by_person((str(i), "jean valjean") for i in range(5)), 5) == {}


def test_a_vocabulary_too_small_for_the_letters_is_refused() -> None:
    counts = {"abc": 3, "cab": 2}  # a, c at the start of words; ##a, ##b, ##c within
    assert learn_pieces(counts, 5) == ["##a", "##b", "##c", "a", "c"]
    with pytest.raises(ConfigError, match=r"of 9 word pieces has no room for all letters, .* are 5,"):
        learn_pieces(counts, 4)


def test_what_is_counted_is_the_text() -> None:
    """Letters are counted once for each time that they occur, but for the few that too few documents would tell of."""
    documents = notes(30)
    counts = count_strings(documents, 5)
    letters = Counter(letter for text in documents for word in words_in(text) for letter in word)
    counted = Counter[str]()
    for string, times in counts.items():
        for letter in string.removeprefix("##"):
            counted[letter] += times
    assert counted <= letters
    assert counted.total() > 0.99 * letters.total()


def test_pieces_are_those_of_the_peer_s_trainer() -> None:
    """But for ties, which the peer breaks by numbers that it draws."""
    rng = random.Random(1)
    words = {"".join(rng.choices("abcdefgh", k=rng.randint(3, 7))) for _ in range(400)}
    reported = {word: 100 + i for i, word in enumerate(sorted(words))}
    ours = learn_pieces(reported, 150)
    peer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    peer.normalizer, peer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    repeated = (word for word, times in reported.items() for _ in range(times))
    peer.train_from_iterator(repeated, trainers.WordPieceTrainer(vocab_size=150, show_progress=False))
    assert len(ours) == 150
    assert len(set(ours) & peer.get_vocab().keys()) >= 147
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(["[UNK]", *ours])}, unk_token="[UNK]"))
    for word in list(words)[:100]:
        assert cut(word, set(ours)) == tokenizer.encode(word).tokens


def test_pieces_by_hand() -> None:
    """Of a ##b ##a ##b three times and ##a ##b twice, ##a ##b is commonest; then a ##b and ##b ##ab are alike, and
    the one that is first in the alphabet is joined, then what is left."""
    pieces = learn_pieces({"##ab": 2, "abab": 3, "b": 1}, 100)
    assert pieces == ["##a", "##b", "a", "b", "##ab", "##bab", "abab"]
    assert learn_pieces({"ab": 1}, 100) == ["##b", "a"]  # once is too rare


def test_the_order_of_counts_does_not_matter() -> None:
    counts = count_strings(notes(50), 3)
    backwards = dict(reversed(list(counts.items())))
    assert learn_pieces(counts, 300) == learn_pieces(backwards, 300)
    assert count_strings(reversed(notes(50)), 3) == counts


def test_a_word_without_pieces_is_unknown() -> None:
    assert cut("ab", {"a", "##b"}) == ["a", "##b"]
    assert cut("abc", {"a", "##b"}) is None
    assert cut("ba", {"a", "##b"}) is None


def test_pieces_are_counted_as_words_are_cut() -> None:
    counts = {"fevers": 3, "##vers": 2, "fun": 5}
    pieces = ["[UNK]", "f", "fe", "##ver", "##s", "##v", "##un"]
    assert piece_counts(counts, pieces) == [0, 5, 3, 5, 5, 0, 5]  # fe ##ver ##s, ##ver ##s, f ##un
