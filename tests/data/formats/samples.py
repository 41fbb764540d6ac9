"""Small files of every format, with words that no error may show; and ways to break them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from grandrounds.data.formats import bioc_json, bioc_xml, documents_json, pubannotation, pubtator

PATH = Path("a.txt")

PUBTATOR = (
    "PMC4711|t|Xenomab and grumpitis\n"
    "PMC4711|a|Quuxoline caused acute and late grumpitis. It did.\n"
    "PMC4711\t0\t7\tXenomab\tChemical\tD1\n"
    "PMC4711\t12\t21\tgrumpitis\tDisease\tD2\n"
    "PMC4711\t22\t31\tQuuxoline\tChemical\t-1\n"
    "PMC4711\t39\t63\tacute and late grumpitis\tDisease\tD2|D3\tacute grumpitis|late grumpitis\n"
    "PMC4711\tCID\tD1\tD2\n"
    "PMC4711\tCID\tD1\tD3\n"
    "\n"
    "12|t|Quuxoline\n"
    "12\t0\t9\tQuuxoline\tChemical\n"
    "\n"
)
CHR = (
    "PMC4711|t|Xenomab and grumpitis\n"
    "PMC4711\t0\t7\tXenomab\tChemMet\tHMDB:1|CHEBI:1\n"
    "PMC4711\t12\t21\tgrumpitis\tChemMet\tCHEBI:2\n"
    "PMC4711\tReact\tCHEBI:1\tCHEBI:2\n"
    "PMC4711\tReact\tCHEBI:2\tHMDB:1|CHEBI:1\n"
)
LIST = "PMC4711\tD1\tD2\nPMC4711\tD1\tD3\n12\tT1\tT1\n13\tD1\tD2\n"
CTD = (
    "PMC4711\tchem_disease:therapeutic\tD2\tD1\n"
    "PMC4711\tchem_disease:marker/mechanism\tD1\tD3\n"
    "12\tchem^gene:increases-expression\tD1\t7\n"
)
TEXT = "Xenomab caused acute and\nlate grumpitis. Quuxoline was stopped.\n"
ANN = (
    "T1\tDrug 0 7\tXenomab\n"
    "T2\tProblem 15 20;30 39\tacute grumpitis\n"
    "T3\tProblem 25 39\tlate grumpitis\n"
    "T4\tDrug 41 50\tQuuxoline\n"
    "R1\tCauses Arg1:T1 Arg2:T2\n"
    "R2\tCauses Arg1:T4 Arg2:T3\n"
    "*\tEquiv T1 T4\n"
    "N1\tReference T1 MESH:D1\tXenomab\n"
    "A1\tCertain T2\n"
    "A2\tDose T1 100 mg\n"
    "E1\tStop:T4 Theme:T1\n"
    "#1\tAnnotatorNotes T1\tgrumpitis again\n"
)
CONLL = (
    "-DOCSTART-\tO\n\nXenomab\tB-Drug\ncauses\tO\nlate\tB-Disease\ngrumpitis\tI-Disease\n.\tO\n\n"
    "-DOCSTART-\tO\n\nQuuxoline\tB-Drug\nhelps\tO\n\nIt\tB-Drug\ndid\tO\n\n"
)
TSV = (
    "index\tsentence\tlabel\n"
    "0\tXenomab shows @GENE$ is in @DISEASE$.\t1\n"
    "1\tNo grumpitis from @DISEASE$ by @GENE$.\t0\n"
    "2\tQuuxoline and @GENE$ and @DISEASE$.\t1\n"
)
I2B2 = "HISTORY :\nXenomab was given for grumpitis .\nQuuxoline levels were sent .\n"
CON = 'c="xenomab" 2:0 2:0||t="treatment"\nc="grumpitis" 2:4 2:4||t="problem"\nc="quuxoline levels" 3:0 3:1||t="test"\n'
REL = (
    'c="xenomab" 2:0 2:0||r="TrAP"||c="grumpitis" 2:4 2:4\n'
    'c="quuxoline levels" 3:0 3:1||r="TeCP"||c="grumpitis" 2:4 2:4\n'
)
EOG = (
    "PMC4711\tXenomab and late grumpitis .|Quuxoline helps grumpitis .\t"
    "1:CID:2\tL2R\tNON-CROSS\t0-1\t2-4\tD1\tXenomab\tChemical\t0\t1\t0\t"
    "D2\tlate grumpitis|grumpitis\tDisease\t2:7\t4:8\t0:1\t"
    "1:NR:2\tL2R\tNON-CROSS\t5-6\t7-8\tD3\tQuuxoline\tChemical\t5\t6\t1\t"
    "D2\tlate grumpitis|grumpitis\tDisease\t2:7\t4:8\t0:1\n"
    "12\tXenomab for grumpitis\tnot_include\tL2R\tNON-CROSS\t0-1\t2-3\tD1\tXenomab\tChemical\t0\t1\t0\t"
    "D2\tgrumpitis\tDisease\t2\t3\t0\n"
)
DOCRED = json.dumps(
    [
        {
            "title": "PMC4711",
            "sents": [["Xenomab", "and", "grumpitis", "."], ["Quuxoline", "helps", "."]],
            "vertexSet": [
                [{"name": "Xenomab", "sent_id": 0, "pos": [0, 1], "type": "DRUG"}],
                [{"name": "grumpitis", "sent_id": 0, "pos": [2, 3], "type": "DISEASE"}],
                [{"name": "Quuxoline", "sent_id": 1, "pos": [0, 1], "type": "DRUG"}],
            ],
            "labels": [{"r": "P1", "h": 0, "t": 1, "evidence": [0]}, {"r": "P2", "h": 2, "t": 1, "evidence": [0, 1]}],
        }
    ],
    indent=1,
)
NRE = (
    "m.1\tm.2\tXenomab\tgrumpitis\t/drug/treats\tXenomab for grumpitis . ###END###\n"
    "m.1\tm.3\tXenomab\tQuuxoline\tNA\tNo Quuxoline , but xenomab . ###END###\n"
    "m.2\tm.2\tgrumpitis\tGrumpitis\t/same\tGrumpitis is grumpitis\t###END###\n"
)
OPENNRE = (
    '{"text": "Xenomab for grumpitis", "h": {"id": "D1", "name": "Xenomab", "pos": [0, 7]}, '
    '"t": {"id": "D2", "name": "grumpitis", "pos": [12, 21]}, "relation": "treats", "pmid": "PMC4711"}\n'
    '{"token": ["Quuxoline", "and", "late", "grumpitis"], "h": {"name": "Quuxoline", "pos": [0, 1]}, '
    '"t": {"id": "D2", "name": "late grumpitis", "pos": [2, 4], "type": "Disease"}, "relation": "NA"}\n'
)
BERE = json.dumps(
    [
        {
            "pmid": "PMC4711",
            "head": {"word": "Xenomab", "id": "D1"},
            "tail": {"word": tail, "id": tail[0]},
            "sentence": f"Xenomab with {tail} .",
            "relation": relation,
        }
        for tail, relation in (("grumpitis", "treats"), ("Quuxoline", "NA"))
    ],
    indent=1,
)
CHEMPROT = (
    '{"text": "<< Xenomab >> blocks late [[ grumpitis ]] >> Quuxoline", "label": "INHIBITOR", "metadata": []}\n'
    '{"text": "Xenomab blocks late << grumpitis >> [[ Quuxoline ]]", "label": "NA", "metadata": []}\n'
)
ADE = (
    "4711|Xenomab caused grumpitis, late grumpitis.|grumpitis|75|84|Xenomab|60|67\n"
    "4711|Xenomab caused grumpitis, late grumpitis.|late grumpitis|86|100|Xenomab|60|67\n"
    "12|Quuxoline and grumpitis|grumpitis|24|33|Quuxoline|10|19\n"
    "12 NEG No Quuxoline.\n"
)
CADEC = (
    "T1\tDrug 0 7\tXenomab\n"
    "T2\tADR 15 20;30 39\tacute grumpitis\n"
    "#1\tAnnotatorNotes T1\tgrumpitis again\n"
    "T3\tADR 25 39\tlate grumpitis\n"
)
SMM4H = (
    "tweet_id\tbegin\tend\ttype\textraction\tdrug\ttweet\tmeddra_code\n"
    "4711\t8\t17\tADR\tgrumpitis\tXenomab\tXenomab grumpitis again\t10\n"
    "4711\t0\t7\tDrug\tXenomab\tXenomab\tXenomab grumpitis again\t\n"
    "12\t-\t-\t-\t-\tQuuxoline\tno Quuxoline\t\n"
)
XML = (
    '<?xml version="1.0" encoding="UTF-8" ?>\n<ClinicalNarrativeTemporalAnnotation>\n<TEXT><![CDATA[\n'
    "Xenomab for grumpitis .\nQuuxoline on 9/9 .\n]]></TEXT>\n<TAGS>\n"
    '<EVENT id="E0" start="1" end="8" text="Xenomab" modality="FACTUAL" polarity="POS" type="TREATMENT" />\n'
    '<EVENT id="E1" start="13" end="22" text="grumpitis" modality="FACTUAL" polarity="POS" type="PROBLEM" />\n'
    '<TIMEX3 id="T0" start="38" end="41" text="9/9" type="DATE" val="1993-09-09" mod="NA" />\n'
    '<TLINK id="TL0" fromID="E0" fromText="Xenomab" toID="T0" toText="9/9" type="BEFORE" />\n'
    "</TAGS>\n</ClinicalNarrativeTemporalAnnotation>\n"
)
JSON = documents_json.render(pubtator.parse(PUBTATOR, PATH))


BIOC_JSON = "".join(bioc_json.render(pubtator.parse(PUBTATOR, PATH), Counter())).replace("}, {", "},\n{")
BIOC_XML = bioc_xml.render(tuple(pubtator.parse(PUBTATOR, PATH)), Counter()).decode().replace("><", ">\n<")
PUBANNOTATION = "".join(pubannotation.render(pubtator.parse(PUBTATOR, PATH), Counter())).replace("}, {", "},\n{")


# A change is (kind, where, what); each takes and gives bytes.


def _lines(data: bytes, where: int, change: Callable[[list[bytes], int], None]) -> bytes:
    lines = data.split(b"\n")
    change(lines, where % len(lines))
    return b"\n".join(lines)


def flip(data: bytes, where: int, what: int) -> bytes:
    i = where % len(data)
    return data[:i] + bytes([data[i] ^ (1 << what % 8)]) + data[i + 1 :]


def insert(data: bytes, where: int, what: int) -> bytes:
    i = where % len(data)
    odd = [b"\t", b"\n", b" ", b"|", b"\0", b"\xff", b"\r", b"-1", b"9" * 30, "β\u2028".encode(), b'"', b"[", b"\\"]
    return data[:i] + odd[what % len(odd)] + data[i:]


def truncate(data: bytes, where: int, what: int) -> bytes:
    return data[: where % len(data)]


def drop_line(data: bytes, where: int, what: int) -> bytes:
    return _lines(data, where, lambda lines, i: lines.pop(i) and None)


def repeat_line(data: bytes, where: int, what: int) -> bytes:
    return _lines(data, where, lambda lines, i: lines.insert(what % len(lines), lines[i]))


def swap_lines(data: bytes, where: int, what: int) -> bytes:
    def swap(lines: list[bytes], i: int) -> None:
        j = what % len(lines)
        lines[i], lines[j] = lines[j], lines[i]

    return _lines(data, where, swap)


def drop_column(data: bytes, where: int, what: int) -> bytes:
    def drop(lines: list[bytes], i: int) -> None:
        separator = b"\t" if b"\t" in lines[i] else b" "
        columns = lines[i].split(separator)
        columns.pop(what % len(columns))
        lines[i] = separator.join(columns)

    return _lines(data, where, drop)


def change_number(data: bytes, where: int, what: int) -> bytes:
    numbers = list(re.finditer(rb"\d+", data))
    if not numbers:
        return data
    found = numbers[where % len(numbers)]
    return data[: found.start()] + str(what % 70).encode() + data[found.end() :]


CHANGES = [flip, insert, truncate, drop_line, repeat_line, swap_lines, drop_column, change_number]
