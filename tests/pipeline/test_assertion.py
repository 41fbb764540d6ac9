"""ConText's rules by example: what a note says of a mention, and which characters say it."""

from __future__ import annotations

import gc
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.pipeline.assertion import CATEGORIES, assert_mentions, trigger_of


def said(text: str, *surfaces: str, sentences: tuple[Span, ...] = ()) -> list[dict[str, str]]:
    """Of each surface, found from left to right, the categories with the text of their triggers."""
    mentions, at = list[Mention](), 0
    for surface in surfaces:
        at = text.index(surface, at)
        mentions.append(Mention(at, at + len(surface), "Problem", f"T{len(mentions) + 1}"))
        at += len(surface)
    document = assert_mentions(Document("note", text, sentences, tuple(mentions)))
    spans = [{category: trigger_of(mention, category) for category in CATEGORIES} for mention in document.mentions]
    return [{c: document.surface(span) for c, span in found.items() if span is not None} for found in spans]


@pytest.mark.parametrize(
    ("text", "mention", "expected"),
    [
        ("She denies chest pain.", "chest pain", {"negated": "denies"}),
        ("There is no evidence of acute infarction.", "acute infarction", {"negated": "no evidence of"}),
        ("CT was negative for pulmonary embolism.", "pulmonary embolism", {"negated": "negative for"}),
        ("Pulmonary embolism was ruled out.", "Pulmonary embolism", {"negated": "was ruled out"}),
        ("No mass is seen.", "mass", {"negated": "No"}),
        ("Lymphadenopathy was not appreciated.", "Lymphadenopathy", {"negated": "was not appreciated"}),
        ("COMPLICATIONS: None.\n\nDRAINS: One.", "COMPLICATIONS", {"negated": "None"}),
        ("He has not had any seizures.", "seizures", {"negated": "not had"}),
        ("Rule out sepsis.", "sepsis", {"possible": "Rule out"}),
        ("Admitted to r/o MI.", "MI", {"possible": "r/o"}),
        ("Cannot exclude a fracture.", "fracture", {"possible": "Cannot exclude"}),
        ("A small abscess cannot be excluded.", "abscess", {"possible": "cannot be excluded"}),
        ("Chest x-ray shows possible pneumonia.", "pneumonia", {"possible": "possible"}),
        ("Anemia, likely secondary to gastritis.", "gastritis", {"possible": "likely secondary to"}),
        ("Her mother had diabetes.", "diabetes", {"family": "mother had"}),
        ("Significant for breast cancer in her maternal aunt.", "breast cancer", {"family": "in her maternal aunt"}),
        ("No family history of gout.", "gout", dict.fromkeys(("negated", "family"), "No family history of")),
        ("A man with a history of gout.", "gout", {"historical": "history of"}),
        ("She is status post cholecystectomy.", "cholecystectomy", {"historical": "status post"}),
        ("He had a pulmonary embolism in 1999.", "pulmonary embolism", {"historical": "in 1999"}),
        ("She had rheumatic fever 20 years ago.", "rheumatic fever", {"historical": "20 years ago"}),
        ("The rash has resolved.", "rash", {"historical": "has resolved"}),
        ("Return for fever.", "fever", {"conditional": "Return for"}),
        ("Call if the patient has bleeding.", "bleeding", {"conditional": "if the patient"}),
        ("Tylenol p.r.n. for headache.", "headache", {"conditional": "p.r.n. for"}),
        ("Tylenol as needed.", "Tylenol", {"conditional": "as needed"}),
        ("The risks of bleeding were discussed.", "bleeding", {"conditional": "risks of"}),
        ("Risks including but not limited to bleeding.", "bleeding", {"conditional": "Risks"}),
        ("She has dyspnea on exertion.", "dyspnea", {"conditional": "on exertion"}),
    ],
)  # fmt: skip
def test_a_trigger_says_it_and_is_shown(text: str, mention: str, expected: dict[str, str]) -> None:
    assert said(text, mention) == [expected]


@pytest.mark.parametrize(
    ("text", "mention"),
    [
        ("There is no increase in the pleural effusion.", "pleural effusion"),
        ("He has not only chest pain.", "chest pain"),
        ("There was no change in the mass.", "mass"),
        ("Cultures grew gram negative sepsis.", "sepsis"),
        ("A three-day history of cough.", "cough"),
        ("HISTORY OF PRESENT ILLNESS: Cough.", "Cough"),
        ("A 60-year-old man with asthma.", "asthma"),
        ("He came here with his mother for a rash.", "rash"),
        ("Mother states he has a fever.", "fever"),
        ("We will treat the infection as soon as possible.", "infection"),
        ("The patient has pneumonia.", "pneumonia"),
    ],
)
def test_what_only_looks_like_a_trigger_says_nothing(text: str, mention: str) -> None:
    assert said(text, mention) == [{}]


@pytest.mark.parametrize(
    ("text", "mentions", "expected"),
    [
        ("No fever but cough.", ("fever", "cough"), [["negated"], []]),
        ("Denies fever, chills, or sweats.", ("fever", "chills", "sweats"), [["negated"]] * 3),
        ("No fever; cough.", ("fever", "cough"), [["negated"], []]),
        ("Denies pain except for headache.", ("pain", "headache"), [["negated"], []]),
        ("Unable to walk without pain because of arthritis.", ("pain", "arthritis"), [["negated"], []]),
        ("No fever. Cough.", ("fever", "Cough"), [["negated"], []]),
        ("History of asthma, now with pneumonia.", ("asthma", "pneumonia"), [["historical"], []]),
        ("Possible stroke, gout.", ("stroke", "gout"), [["possible"], []]),
        ("Rash, but MI was ruled out.", ("Rash", "MI"), [[], ["negated"]]),
        ("If she has fever, start antibiotics.", ("fever", "antibiotics"), [["conditional"]] * 2),
    ],
)
def test_a_scope_ends_at_a_terminator_and_at_the_sentence(
    text: str, mentions: tuple[str, ...], expected: list[list[str]]
) -> None:
    assert [list(found) for found in said(text, *mentions)] == expected


def test_a_scope_has_so_many_words() -> None:
    assert said(f"He did not {'really ' * 7}cough.", "cough") == [{"negated": "not"}]
    assert said(f"He did not {'really ' * 8}cough.", "cough") == [{}]


def test_given_sentences_are_kept_to() -> None:
    text = "No fever\ncough"
    assert said(text, "cough") == [{"negated": "No"}]  # a wrapped line goes on
    assert said(text, "cough", sentences=(Span(0, 8), Span(9, 14))) == [{}]


def test_a_mention_across_sentences_and_one_outside_all_of_them_are_read_too() -> None:
    text = "No fever. Chills. No cough."
    sentences = (Span(0, 9), Span(10, 17))
    assert said(text, "fever. Chills", sentences=sentences) == [{"negated": "No"}]
    assert said(text, "cough", sentences=sentences) == [{"negated": "No"}]


def test_a_heading_speaks_of_its_section_alone() -> None:
    text = "PAST MEDICAL HISTORY:\n1. Asthma.\n2. Gout.\n\nFAMILY HISTORY: Diabetes. No stroke.\n\nEXAM: Edema."
    assert said(text, "Asthma", "Gout", "Diabetes", "stroke", "Edema") == [
        {"historical": "PAST MEDICAL HISTORY:"},
        {"historical": "PAST MEDICAL HISTORY:"},
        {"family": "FAMILY HISTORY:"},
        {"family": "FAMILY HISTORY:", "negated": "No"},
        {},
    ]


def test_a_stronger_category_leaves_the_weaker_out() -> None:
    assert said("Her mother has a history of stroke.", "stroke") == [{"family": "mother has"}]
    assert said("He denies any previous surgery.", "surgery") == [{"negated": "denies"}]
    assert said("The risks include possible stroke.", "stroke") == [{"conditional": "risks include"}]
    assert said("Seen in 2005 for suspected seizures.", "seizures") == [
        {"historical": "in 2005", "possible": "suspected"}
    ]


def test_a_trigger_that_a_mention_begins_or_ends_with_speaks_of_it() -> None:
    assert said("Possible pneumonia.", "Possible pneumonia") == [{"possible": "Possible"}]
    assert said("History of acute pancreatitis.", "acute pancreatitis") == [{"historical": "History of"}]
    assert said("Fracture of an old lady.", "Fracture of an old") == [{}]


def test_attributes_of_other_names_stay_and_those_of_the_categories_are_replaced() -> None:
    before = Mention(3, 8, "Problem", "T1", "C1", attributes={"negated": "yes", "family": "0-1", "score": "0.9"})
    document = Document(
        "n", "No fever.", (Span(0, 9),), (before,), (Entity("e", "Problem", (0,)),), (Relation("r", "e", "e"),)
    )
    after = assert_mentions(document)
    assert after.mentions == (Mention(3, 8, "Problem", "T1", "C1", attributes={"score": "0.9", "negated": "0-2"}),)
    assert (after.entities, after.relations, after.sentences) == (document.entities, document.relations, ((0, 9),))
    assert trigger_of(after.mentions[0], "negated") == Span(0, 2)
    assert trigger_of(after.mentions[0], "family") is None
    assert trigger_of(before, "negated") is None  # "yes" names no characters
    assert assert_mentions(after) == after


def test_nothing_is_nothing() -> None:
    assert assert_mentions(Document("n", "")) == Document("n", "")
    assert assert_mentions(Document("n", "No fever.")) == Document("n", "No fever.")


@pytest.mark.parametrize("text", ["患者否认发热。", "Пациент отрицает боль.", "No 😀 fever", "لا حمى", "İİ no ß"])
def test_other_scripts_are_read_without_harm(text: str) -> None:
    document = assert_mentions(Document("n", text, mentions=(Mention(len(text) - 1, len(text), "P", "T1"),)))
    assert document.text == text
    assert set(document.mentions[0].attributes) <= {"negated"}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["no", "history of", "if", "mother had", "but", "possible", "ruled out", "pain", "\n", ".", ":"]
        )
    ),
    st.data(),
)
def test_triggers_are_always_characters_of_the_text(words: list[str], data: st.DataObject) -> None:
    text = " ".join([*words, "fever"])
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    document = assert_mentions(Document("n", text, mentions=(Mention(start, end, "P", "T1"),)))
    for category in document.mentions[0].attributes:
        span = trigger_of(document.mentions[0], category)
        assert span is not None
        assert 0 <= span.start < span.end <= len(text)


@pytest.mark.parametrize("end", [" ", ". ", "\n\n", " no if possible history of "])
def test_time_is_linear_in_the_text(end: str) -> None:
    def seconds(times: int) -> float:
        piece = f"no history of fever, mother had cough, if pain{end}"
        places = [i * len(piece) + piece.index(word) for i in range(times) for word in ("fever", "cough", "pain")]
        mentions = tuple(Mention(at, at + 4, "P", str(at)) for at in places)
        document = Document("n", piece * times, mentions=mentions)
        gc.disable()  # its time grows with what other tests left in memory
        before = process_time()
        assert_mentions(document)
        passed = process_time() - before
        gc.enable()
        return passed

    seconds(10)  # the phrases are read once
    assert min(seconds(4000) for _ in range(3)) < 10 * min(seconds(1000) for _ in range(3))
