"""Where each corpus can be had, under which terms, and how its files must be: what is said where one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Source(NamedTuple):
    how: str
    """Before the paths that it goes to."""
    form: str
    """Of what lies there."""


_N2C2 = "sign the data use agreement at the n2c2 portal of Harvard's DBMI (portal.dbmi.hms.harvard.edu)"
_BIOBERT = "take BioBERT's relation-extraction archive (github.com/dmis-lab/biobert, fold 1) and put"
_BLINDED = (
    "tab-separated: train has sentence and label without a header, test has index, sentence and label with one, and "
    "mentions are blinded as @GENE$ and @DISEASE$"
)
_EOG = "prepare it as edge-oriented graphs do (github.com/fenchri/edge-oriented-graph) and put"
_EOG_FORM = "the EOG format: a document a line, tab-separated, its id, its sentences joined by |, then 17 fields a pair"
_PUBTATOR = "the PubTator format: a title line, an abstract line, then a line a mention and a relation"
_CONLL = "the CoNLL format: a token, a tab and its tag a line, with an empty line between sentences"
_DOCRED = "DocRED's JSON: one list of documents with title, sents, vertexSet and labels"
_OPENNRE = "OpenNRE's JSON lines: text, h and t with id, name and pos, relation"

SOURCES: Mapping[str, Source] = {
    "i2b2": Source(
        f"{_N2C2} and put its folders of .txt, .con and .rel files in",
        "as released, in folders such as beth/txt, beth/concept and beth/rel, or beside one another",
    ),
    "i2b2-2012": Source(
        f"{_N2C2} and put its folders of .xml files in",
        "a file a note, with TEXT, EVENT, TIMEX3 and TLINK, as released",
    ),
    "gad": Source(_BIOBERT, _BLINDED),
    "eu-adr": Source(_BIOBERT, _BLINDED),
    "cdr": Source(_EOG, _EOG_FORM),
    "cdr-pubtator": Source("take BioCreative V's CDR corpus (biocreative.bioinformatics.udel.edu) and put", _PUBTATOR),
    "chr": Source("take it from NaCTeM (nactem.ac.uk/CHR) and put", _PUBTATOR),
    "gda": Source(_EOG, _EOG_FORM),
    "docred": Source("take it from github.com/thunlp/DocRED and put", _DOCRED),
    "re-docred": Source("take it from github.com/tonytan48/Re-DocRED and put", _DOCRED),
    "chemdisgene": Source(
        "take it from its authors' repository (github.com/chanzuckerberg/ChemDisGene) and put",
        "the PubTator format, gzipped, each with its ..._relationships.tsv.gz beside it",
    ),
    "nyt10": Source(
        "take it from OpenNRE (github.com/thunlp/OpenNRE, benchmark/download_nyt10.sh), or bring NRE's text to that "
        "format by 'grandrounds data convert --format nre --to opennre', and put",
        _OPENNRE,
    ),
    "mirgene": Source(
        "take it from its authors' repository (github.com/leebird/bionlp17), bring it to OpenNRE's JSON lines, and put",
        _OPENNRE,
    ),
    "bere-dti": Source(
        "take it from its authors' repository (github.com/haiya1994/BERE) and put",
        "one JSON array of sentences with head, tail and relation",
    ),
    "gids": Source(
        "take it from its authors' repository (github.com/SharmisthaJat/RE-DS-Word-Attention-Models) and put",
        "NRE's text, tab-separated, each sentence with ###END###",
    ),
    "cadec": Source(
        "take it from CSIRO's data access portal (data.csiro.au, under its licence) and put its folders 'text' and "
        "'original' into",
        "text/LIPITOR.1.txt beside original/LIPITOR.1.ann, in BRAT's format",
    ),
    "ade": Source(
        "take version 2 from its authors (Gurulingappa et al., 2012, sites.google.com/site/adecorpus) and put",
        "as released, a relation a line, its fields parted by |",
    ),
    "smm4h": Source(
        "register for the shared task of 2019 (healthlanguageprocessing.org/smm4h), whose tweets come under Twitter's "
        "terms, and put the training file of task 2 as",
        "tab-separated, with the header tweet_id, begin, end, type, extraction, drug, tweet",
    ),
    "psytar": Source("take it from its authors (Zolnoori et al., 2019), in the CoNLL format, and put", _CONLL),
    "bc5cdr": Source("take BioCreative V's CDR corpus in the CoNLL format and put", _CONLL),
    "server-text": Source("put the part of a corpus that no platform has as", _CONLL),
    "mimic-iii": Source(
        "get access at PhysioNet (physionet.org/content/mimiciii, after its training, under its agreement) and put",
        "the table of notes as released, unpacked, with the columns SUBJECT_ID, CATEGORY, ISERROR and TEXT",
    ),
    "mtsamples": Source(
        "take its reports (mtsamples.com), a JSON line each with 'text' and 'specialty', and put them as",
        "JSON lines with id, specialty and text",
    ),
}
