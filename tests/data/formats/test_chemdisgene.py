"""ChemDisGene: abstracts and relations in two files, and two spellings of the same relation."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from grandrounds.data.documents import Relation
from grandrounds.data.formats import read
from grandrounds.errors import DataError, GrandRoundsError

ABSTRACTS = (
    "30|t|Orlistat, lipase and obesity in mice\n"
    "30|a|\n"
    "30\t0\t8\tOrlistat\tChemical\tMESH:D1\n"
    "30\t10\t16\tlipase\tGene\t5406\n"
    "30\t21\t28\tobesity\tDisease\tMESH:D9\n"
    "30\t32\t36\tmice\tSpecies\t10090\n"
    "\n"
    "31|t|Nothing\n"
    "31|a|\n"
    "\n"
)
DERIVED = (
    "30\tchem_gene:decreases^activity\t5406\tMESH:D1\n"
    "30\tchem_disease:therapeutic\tMESH:D9\tMESH:D1\n"
    "30\tgene_disease:marker/mechanism\tMESH:D9\t5406\n"
)
CURATED = (
    "30\tchem^gene:decreases-activity\tMESH:D1\t5406\n"
    "30\tchem^disease:therapeutic\tMESH:D1\tMESH:D9\n"
    "30\tgene^disease:marker/mechanism\t5406\tMESH:D9\n"
)
RELATIONS = (
    Relation("chem_gene:decreases^activity", "MESH:D1", "5406"),
    Relation("chem_disease:therapeutic", "MESH:D1", "MESH:D9"),
    Relation("gene_disease:marker/mechanism", "5406", "MESH:D9"),
)


@pytest.fixture
def abstracts(tmp_path: Path) -> Path:
    path = tmp_path / "dev_abstracts.txt.gz"
    path.write_bytes(gzip.compress(ABSTRACTS.encode()))
    return path


def test_relations_come_from_the_file_named_after_the_abstracts(abstracts: Path):
    (abstracts.parent / "dev_relationships.tsv.gz").write_bytes(gzip.compress(DERIVED.encode()))
    corpus = read(abstracts, "chemdisgene")
    first, second = corpus.documents
    assert [entity.id for entity in first.entities] == ["MESH:D1", "5406", "MESH:D9", "10090"]
    assert first.relations == RELATIONS
    assert second.relations == ()
    assert corpus.warnings == {"relations whose ends were put in the order that their type names": 3}
    assert read(abstracts.parent, "chemdisgene").documents == corpus.documents


def test_the_curated_spelling_gives_the_same_relations(abstracts: Path):
    one, two, three = CURATED.splitlines(keepends=True)
    (abstracts.parent / "approved_relns_ctd_v0.tsv").write_text(one)
    (abstracts.parent / "approved_relns_new_v0.tsv").write_text(two + three)
    corpus = read(abstracts, "chemdisgene", relations="approved_relns_*.tsv")
    assert corpus.documents[0].relations == RELATIONS
    assert corpus.warnings == {}
    part = read(abstracts, "chemdisgene", relations="approved_relns_ctd_v0.tsv")
    assert part.documents[0].relations == RELATIONS[:1]
    elsewhere = read(abstracts, "chemdisgene", relations=str(abstracts.parent / "approved_relns_ctd_v?.tsv"))
    assert elsewhere.documents == part.documents


def test_only_one_kind_is_one_relation_between_two_types(abstracts: Path):
    twice = "30\tchem_gene:affects^binding\t5406\tMESH:D1\n"
    (abstracts.parent / "dev_relationships.tsv").write_text(DERIVED + twice)
    assert read(abstracts, "chemdisgene", only="chem_gene").documents[0].relations == (
        Relation("chem_gene", "MESH:D1", "5406"),
    )
    with pytest.raises(GrandRoundsError, match="did you mean 'gene_disease'"):
        read(abstracts, "chemdisgene", only="gene_diseas")


def test_relations_that_have_no_place_are_counted(abstracts: Path):
    more = (
        "30\tchem_gene:affects^binding\t999\tMESH:D1\n"  # no mention
        "30\tchem_gene:affects^binding\t10090\tMESH:D1\n"  # mentioned as a species only
        "30\tchem_disease:therapeutic\tMESH:D1\tMESH:D9\n"  # the second time
        "32\tchem_disease:therapeutic\tMESH:D9\tMESH:D1\n"  # no such document
    )
    (abstracts.parent / "dev_relationships.tsv").write_text(DERIVED + more)
    corpus = read(abstracts, "chemdisgene")
    assert corpus.documents[0].relations == RELATIONS
    assert corpus.warnings == {
        "relations whose ends were put in the order that their type names": 3,
        "relations with a concept that no mention of its type has, left out": 2,
        "relations given twice, kept once": 1,
        "relations of documents that this corpus file does not have": 1,
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("30\tchem_gene:x\t5406", "3 tab-separated columns, or an empty one; a line has 4: document, type, concept"),
        ("30\tchem_gene:x\t5406\t", "4 tab-separated columns, or an empty one"),
        ("30\tCID\t5406\tMESH:D1", "a type of relation that is not like chem_gene:increases\\^expression"),
    ],
)
def test_bad_lines_are_named_by_file_and_line_but_not_shown(line: str, message: str, abstracts: Path):
    path = abstracts.parent / "dev_relationships.tsv"
    path.write_text(f"{DERIVED}{line}\n")
    with pytest.raises(DataError, match=message) as caught:
        read(abstracts, "chemdisgene")
    assert str(caught.value).startswith(f"{path}:4: ")
    assert "5406" not in str(caught.value)


def test_abstracts_without_relations_are_not_read_as_having_none(abstracts: Path):
    with pytest.raises(DataError, match=r"no dev_relationships\.tsv beside it, gzipped or not; the option 'relations'"):
        read(abstracts, "chemdisgene")
    with pytest.raises(DataError, match="the option 'relations' names no file beside it"):
        read(abstracts, "chemdisgene", relations="gone*.tsv")
    with pytest.raises(DataError, match="the option 'relations' names no file beside it"):
        read(abstracts, "chemdisgene", relations="/")
