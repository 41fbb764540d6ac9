"""What goes wrong ends with exit code 1 and one sentence that names the place and the cure, never with a traceback."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from tests.cli.commands import Outcome, run, start
from tests.conftest import TinyConfig, corpus, sentence, write_corpus

CANARY = "zyzzyvacanary"
SLOW = """
import time
from grandrounds.cli.console import Live
Live.asking = lambda self, round, sites: time.sleep(0.5)
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, tiny_config: TinyConfig) -> Path:
    path = tmp_path_factory.mktemp("bad") / "small.toml"
    path.write_text(tomli_w.dumps(tiny_config()))
    return path


@pytest.fixture
def attempt(config: Path, tmp_path: Path) -> Callable[..., Outcome]:
    """`attempt("federation.rounds=3")` runs the small config so, in the folder `run`."""

    def go(*more: str | Path, prelude: str = "") -> Outcome:
        return run("run", config, *more, "--out", tmp_path / "run", prelude=prelude)

    return go


@pytest.fixture(scope="module")
def undisturbed(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The folder of a run of so many rounds, made once; copy it before you break it."""
    made: dict[int, Path] = {}

    def find(rounds: int) -> Path:
        if rounds not in made:
            made[rounds] = tmp_path_factory.mktemp("undisturbed") / "run"
            run("run", config, f"federation.rounds={rounds}", "--out", made[rounds]).good()
        return made[rounds]

    return find


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


# The config


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("federation.round=3", "unknown config key 'federation.round'; did you mean 'federation.rounds'?"),
        ("rounds=3", "unknown config key 'rounds'; did you mean 'federation.rounds'?"),
        ("trainin.epochs=3", "unknown config key 'trainin'; did you mean 'training'?"),
        ("task.max_lenght=64", "unknown config key 'task.max_lenght'; did you mean 'task.max_length'?"),
        ("sites.a.trian=x", "unknown config key 'sites.a.trian'; did you mean 'sites.a.train'?"),
        ("algorithm.name=fedavgg", "unknown algorithm 'fedavgg'; did you mean 'fedavg'?"),
        (
            "algorithm.name=mine",
            "unknown algorithm 'mine'; did you mean 'moon'? To use an algorithm of your own, name its module with ",
        ),
        ("algorithm.step=1", "algorithm 'fedavg' has no options; remove 'step'"),
        ("data.format=pubtater", "data.format: unknown format 'pubtater'; did you mean 'pubtator'?"),
        ("partition.scheme=idd", "partition.scheme: unknown name 'idd'; did you mean 'iid'?"),
        ("task.name=sentence-re", "task.name: unknown task 'sentence-re'; did you mean 'sentence_re'?"),
        ("task.name=5", "task.name: unknown task '5'; known: "),
        ("federation.rounds=many", "federation.rounds: input should be a valid integer"),
        ("federation.rounds=0", "federation.rounds: input should be greater than or equal to 1 (it is 0)"),
        ("federation.fraction=1.5", "federation.fraction: input should be less than or equal to 1 (it is 1.5)"),
        ("training.learning_rate=-1", "training.learning_rate: input should be greater than 0 (it is -1)"),
        ("training.optimizer=adamm", "training.optimizer: input should be 'adamw', 'adam' or 'sgd' (it is 'adamm')"),
        ("task.blind=perhaps", "task.blind: input should be a valid boolean"),
        ("task=5", "task: input should be a valid dictionary (it is 5)"),
        ("data.train=3", "data.train: input should be a valid string (it is 3)"),
        ("seed=2024-01-01", "seed: input should be a valid integer"),
        ("rounds", "'rounds' is not an override; write it as section.key=value, such as federation.rounds=5"),
    ],
)
def test_a_wrong_config_is_refused_before_anything_is_made(
    attempt: Callable[..., Outcome], tmp_path: Path, override: str, said: str
) -> None:
    assert attempt(override).complaint().startswith(said)
    assert not (tmp_path / "run").exists()


def test_a_config_that_is_not_toml_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("seed = 1\n[data\n")
    said = run("run", tmp_path / "broken.toml", "--out", tmp_path / "run").complaint()
    assert said.startswith(f"config '{tmp_path / 'broken.toml'}' can't be read: ")
    assert "line 2" in said


def test_a_config_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes("# Bücher\n".encode("latin1"))
    assert "latin.toml' can't be read: " in run("run", tmp_path / "latin.toml", "--out", tmp_path / "run").complaint()


def test_a_missing_config_is_named(tmp_path: Path) -> None:
    said = run("run", tmp_path / "none.toml", "--out", tmp_path / "run").complaint()
    assert said == f"there is no config '{tmp_path / 'none.toml'}'; check the path"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model.encoder=no-such/encoder"], "cannot load encoder 'no-such/encoder'"),
        (["device=mps"], "device = 'mps', which this machine or this torch does not have; set device = 'auto'"),
        (["partition.sites=1000"], "units can't be split over 1000 sites; set partition.sites lower"),
        (["model.encoder=tiny", "data.public=0"], "which holds no text; set data.public"),
        (
            ["algorithm.name=validation_only", "data.public=0"],
            "'validation_only' needs the server's public set: set data.public to a share or a file",
        ),
        (["data.format=synthetic", "data.options.hospitals=six"], "data.options.hospitals = 'six'"),
        (["federation.policy=none.toml"], "none.toml' can't be read: "),
    ],
)
def test_what_the_machine_or_the_data_do_not_have_is_named(
    attempt: Callable[..., Outcome], overrides: list[str], said: str
) -> None:
    assert said in attempt(*overrides).complaint()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('allow = ["paramters"]', "unknown payload kind 'paramters'; did you mean 'parameters'?"),
        ('alow = ["parameters"]', "unknown key 'alow'; did you mean 'allow'?"),
        ("max_bytes = 0", "max_bytes: input should be greater than 0"),
        ("allow = [", "can't be read: "),
    ],
)
def test_a_policy_that_can_not_be_followed_is_refused(
    attempt: Callable[..., Outcome], tmp_path: Path, content: str, said: str
) -> None:
    (tmp_path / "policy.toml").write_text(content)
    complaint = attempt(f"federation.policy={tmp_path / 'policy.toml'}").complaint()
    assert f"policy '{tmp_path / 'policy.toml'}'" in complaint
    assert said in complaint


# The corpus


def written(path: Path, *extra: Document) -> str:
    write_corpus(path, [*corpus(60), *extra])
    return f"data.train={path}"


def broken(path: Path, old: str, new: str) -> str:
    """A corpus whose third line is not as it should be."""
    write_corpus(path, corpus(60))
    lines = path.read_text().split("\n")
    assert old in lines[2]
    lines[2] = lines[2].replace(old, new, 1)
    path.write_text("\n".join(lines))
    return f"data.train={path}"


def test_a_missing_corpus_is_named(attempt: Callable[..., Outcome], tmp_path: Path) -> None:
    said = attempt(f"data.train={tmp_path / 'none.jsonl'}").complaint()
    assert said == f"{tmp_path / 'none.jsonl'}: no such file or folder; check the path"


def test_broken_utf8_names_byte_and_line(attempt: Callable[..., Outcome], tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    write_corpus(path, corpus(60))
    data = path.read_bytes().split(b"\n")
    data[2] = data[2].replace(b"pain", b"p\xe4in")
    path.write_bytes(b"\n".join(data))
    said = attempt(f"data.train={path}").complaint()
    assert said.startswith(f"{path}:3: not UTF-8 at byte ")
    assert "iconv" in said


def test_offsets_that_do_not_match_the_text_name_the_line(attempt: Callable[..., Outcome], tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("1|t|Aspirin eased pain.\n1|a|\n1\t0\t7\tAspirin\ttreatment\tA\n1\t15\t19\tpain\tproblem\tB\n")
    said = attempt("data.format=pubtator", f"data.train={path}").complaint()
    assert said.startswith(f"{path}:4: mention 15-19 does not match the text there")
    assert said.endswith("check the offsets")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"start": 3', '"start": 30', "mention 30-7 is empty or inverted; its end must come after its start"),
        ('"start": 3', '"start": -3', "lies outside the text"),
        ('"start": 3', '"start": "3"', "start must be a whole number"),
        ('"mentions"', '"mention"', "did you mean 'mentions'?"),
        ("{", "", "not JSON at column"),
    ],
)
def test_a_malformed_document_names_file_line_and_problem(
    attempt: Callable[..., Outcome], tmp_path: Path, old: str, new: str, said: str
) -> None:
    complaint = attempt(broken(tmp_path / "train.jsonl", old, new)).complaint()
    assert complaint.startswith(f"{tmp_path / 'train.jsonl'}:3: ")
    assert said in complaint


def test_overlapping_mentions_of_a_pair_are_counted_and_said(attempt: Callable[..., Outcome], tmp_path: Path) -> None:
    text = "Insulin dependent diabetes ."
    mentions = (Mention(0, 7, "treatment", "T1"), Mention(0, 26, "problem", "T2"))
    entities = (Entity("T1", "treatment", (0,)), Entity("T2", "problem", (1,)))
    relations = (Relation("TrIP", "T1", "T2", (0, 1)),)
    overlapping = Document("o1", text, (Span(0, len(text)),), mentions, entities, relations, {"hospital": "mercy"})
    outcome = attempt(written(tmp_path / "train.jsonl", overlapping), "federation.rounds=1").good()
    assert "warning: 1 pairs of overlapping mentions, which can't both be marked" in outcome.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["warnings"]["pairs of overlapping mentions, which can't both be marked"] == 1


def test_a_label_outside_the_label_set_is_named(attempt: Callable[..., Outcome]) -> None:
    assert attempt('task.labels=["TrIP"]').complaint() == (
        "relation type 'TeRP' is not in the label set (TrIP); name it in task.labels, or take it out of the corpus"
    )


def test_a_site_with_one_class_takes_part_and_is_said(attempt: Callable[..., Outcome], tmp_path: Path) -> None:
    documents = [d for d in corpus(60) if d.attributes["hospital"] != "mercy" or not d.relations]
    write_corpus(tmp_path / "train.jsonl", documents)
    deal = ("partition.scheme=by", "partition.by=hospital", "partition.sites=4", "federation.rounds=1")
    shares = ("data.public=0", "data.validation=0")
    outcome = attempt(f"data.train={tmp_path / 'train.jsonl'}", *deal, *shares, "--json")
    assert [site["labels"] for site in outcome.json()["sites"]].count({"None": 8}) == 1
    assert "warning: 1 sites whose examples are all of one class" in outcome.stderr


def test_no_training_example_is_said_with_the_keys_to_check(attempt: Callable[..., Outcome], tmp_path: Path) -> None:
    documents = [sentence(f"e{i}", ["The ", ("ct scan", "test"), " was done ."], {}) for i in range(5)]
    write_corpus(tmp_path / "train.jsonl", documents)
    labels = ('task.labels=["TrIP","TeRP"]', 'task.pairs=[["treatment","problem"],["test","problem"]]')
    said = attempt(f"data.train={tmp_path / 'train.jsonl'}", *labels, "data.public=0", "data.validation=0").complaint()
    assert said.startswith("no training example is left for the sites")
    assert "check data.train" in said


def test_a_corpus_without_relations_or_documents_is_said(attempt: Callable[..., Outcome], tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    write_corpus(path, [sentence("e1", ["Nothing here ."], {})])
    assert attempt(f"data.train={path}").complaint().startswith("the corpora hold no relation")
    path.write_text("")
    said = attempt(f"data.train={path}").complaint()
    assert said.startswith(f"{path}: no documents found; is it really in the format 'json'")


def long_document(words: int, mention: int = 1) -> Document:
    """A sentence of so many words with a drug of `mention` words at its start and a problem at its end."""
    drug = " ".join(["aspirin"] * mention)
    parts: list[str | tuple[str, str]] = ["The ", (drug, "treatment"), " eased" * words + " the ", ("pain", "problem")]
    return sentence("long", parts, {(0, 1): "TrIP"}, hospital="mercy", patient="p1")


def test_a_document_of_100_000_tokens_is_read_like_any_other(attempt: Callable[..., Outcome], tmp_path: Path) -> None:
    write_corpus(tmp_path / "test.jsonl", [*corpus(24, "t"), long_document(100_000)])
    train, test = written(tmp_path / "train.jsonl", long_document(100_000)), f"data.test={tmp_path / 'test.jsonl'}"
    result = attempt(train, test, "federation.rounds=1", "--json").json()
    assert sum(site["examples"] for site in result["sites"]) == 43
    assert result["test"]["n"] == 25


def test_a_mention_longer_than_the_window_is_said_with_the_cure(
    attempt: Callable[..., Outcome], tmp_path: Path
) -> None:
    train = written(tmp_path / "train.jsonl", long_document(3, mention=80))
    assert attempt(train, "task.blind=false", "task.max_length=512").complaint() == (
        "two mentions of 80 and 1 word pieces don't fit the window of 64; "
        "raise task.max_length, take an encoder that reads more, or set task.blind"
    )
    shutil.rmtree(tmp_path / "run")
    attempt(train, "task.blind=true", "federation.rounds=1").good()


# Checkpoints


def damaged(folder: Path, round: int, cut: bool = False) -> None:
    path = folder / "checkpoints" / f"round-{round:05d}" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data[: len(data) // 2] if cut else data)


@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_checkpoint_is_passed_over_and_that_is_said(
    attempt: Callable[..., Outcome], undisturbed: Callable[[int], Path], tmp_path: Path, cut: bool
) -> None:
    shutil.copytree(undisturbed(3), tmp_path / "run")
    damaged(tmp_path / "run", 3, cut)
    outcome = attempt("federation.rounds=4", "--resume").good()
    said = "checkpoint of round 3: round-00003/model.safetensors is damaged; the one before is used"
    assert said in outcome.stderr
    assert "going on after round 2" in outcome.stderr
    assert weights(tmp_path / "run") == weights(undisturbed(4))


def test_a_checkpoint_without_one_of_its_files_is_passed_over(
    attempt: Callable[..., Outcome], undisturbed: Callable[[int], Path], tmp_path: Path
) -> None:
    shutil.copytree(undisturbed(3), tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "round-00003" / "state.json").unlink()
    assert "going on after round 2" in attempt("federation.rounds=4", "--resume").good().stderr
    assert weights(tmp_path / "run") == weights(undisturbed(4))


def test_where_the_best_round_is_lost_the_run_goes_back_before_it(
    attempt: Callable[..., Outcome], undisturbed: Callable[[int], Path], tmp_path: Path
) -> None:
    shutil.copytree(undisturbed(2), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["best_round"] == 1
    (tmp_path / "run" / "result.json").unlink()
    shutil.rmtree(tmp_path / "run" / "model")
    damaged(tmp_path / "run", 1)
    attempt("--resume").good()
    assert weights(tmp_path / "run") == weights(undisturbed(2))


def test_without_any_whole_checkpoint_nothing_is_guessed_or_deleted(
    attempt: Callable[..., Outcome], undisturbed: Callable[[int], Path], tmp_path: Path
) -> None:
    shutil.copytree(undisturbed(3), tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        damaged(tmp_path / "run", int(path.name.removeprefix("round-")))
    before = sorted((tmp_path / "run" / "checkpoints").iterdir())
    for _ in range(2):
        said = attempt("federation.rounds=4", "--resume").complaint()
        assert said.startswith(f"there is no whole checkpoint in '{tmp_path / 'run' / 'checkpoints'}' to resume from")
    assert sorted((tmp_path / "run" / "checkpoints").iterdir()) == before


# The folder


def test_a_folder_with_another_run_is_left_alone(
    attempt: Callable[..., Outcome], undisturbed: Callable[[int], Path], tmp_path: Path
) -> None:
    shutil.copytree(undisturbed(2), tmp_path / "run")
    before = (tmp_path / "run" / "result.json").read_bytes()
    assert attempt().complaint() == (
        f"'{tmp_path / 'run'}' holds another run; go on with it by --resume, or choose another folder with --out"
    )
    assert (tmp_path / "run" / "result.json").read_bytes() == before


@pytest.mark.parametrize("resume", [(), ("--resume",)])
def test_a_folder_of_something_else_is_left_alone(
    attempt: Callable[..., Outcome], tmp_path: Path, resume: tuple[str, ...]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    assert attempt(*resume).complaint() == (
        f"'{tmp_path / 'run'}' is not empty and holds no run; choose another folder with --out"
    )
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("content", ["not toml", "colour = 'blue'"])
def test_a_folder_with_somebody_elses_config_is_left_alone(
    attempt: Callable[..., Outcome], tmp_path: Path, content: str
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(content)
    assert f"'{tmp_path / 'run'}/config.toml' is not that of a run" in attempt("--resume").complaint()
    assert (tmp_path / "run" / "config.toml").read_text() == content


def test_a_file_is_no_folder(attempt: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    assert attempt().complaint() == f"'{tmp_path / 'run'}' is a file; choose a folder with --out"


def test_resuming_with_another_config_names_the_key(
    attempt: Callable[..., Outcome], undisturbed: Callable[[int], Path], tmp_path: Path
) -> None:
    shutil.copytree(undisturbed(2), tmp_path / "run")
    said = attempt("training.epochs=7", "--resume").complaint()
    assert said.startswith(f"'{tmp_path / 'run'}' holds a run with another config (training.epochs differ)")
    assert "--out" in said


def test_two_processes_can_not_run_in_one_folder(config: Path, tmp_path: Path) -> None:
    first = start("run", config, "federation.rounds=50", "--out", tmp_path / "run", prelude=SLOW)
    first.until(tmp_path / "run" / "checkpoints" / "round-00000")
    second = run("run", config, "federation.rounds=50", "--out", tmp_path / "run", "--resume")
    assert second.complaint() == (
        f"another process is running in '{tmp_path / 'run'}'; wait for it, or choose another folder"
    )
    first.send(signal.SIGTERM)
    first.wait(5).complaint(130)


# The disk


def failing_sync(call: int) -> str:
    return f"""
import errno, os
sync, count = os.fsync, 0
def fsync(descriptor):
    global count
    count += 1
    if count >= {call}:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    sync(descriptor)
os.fsync = fsync
"""


@pytest.mark.parametrize("call", [1, 3, 8, 15])
def test_after_a_full_disk_the_run_goes_on_to_the_same_bits(
    attempt: Callable[..., Outcome], undisturbed: Callable[[int], Path], tmp_path: Path, call: int
) -> None:
    """The config, the checkpoint before round 1, and later ones."""
    said = attempt("federation.rounds=4", prelude=failing_sync(call)).complaint()
    assert said.startswith("the disk is full: '")
    assert said.endswith("free some space and go on (a run with --resume, a site by joining again)")
    attempt("federation.rounds=4", "--resume").good()
    assert weights(tmp_path / "run") == weights(undisturbed(4))


def test_a_file_larger_than_allowed_is_said_and_the_run_goes_on_later(
    attempt: Callable[..., Outcome], undisturbed: Callable[[int], Path], tmp_path: Path
) -> None:
    prelude = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))"
    said = attempt("federation.rounds=4", prelude=prelude).complaint()
    assert said.startswith("'round-00000' could not be written: File too large; what was saved before is intact")
    attempt("federation.rounds=4", "--resume").good()
    assert weights(tmp_path / "run") == weights(undisturbed(4))


@pytest.mark.parametrize("kilobytes", [4, 8, 12, 16, 20, 1540, 4300, 5688, 5696, 5720])
def test_a_disk_that_fills_at_any_write_is_one_sentence(
    attempt: Callable[..., Outcome], tmp_path: Path, kilobytes: int
) -> None:
    """A real small disk, mounted where only that process sees it: vocabulary, audit, checkpoints, model, report."""
    (tmp_path / "run").mkdir()
    prelude = f"""
import ctypes, os, sys
libc, folder = ctypes.CDLL(None), {str(tmp_path / "run")!r}.encode()
new_mounts, new_user, private = 0x20000, 0x10000000, 0x44000
if libc.unshare(new_mounts | (new_user if os.geteuid() else 0)) or libc.mount(b"none", b"/", None, private, None):
    sys.exit(77)
if libc.mount(b"tmpfs", folder, b"tmpfs", 0, b"size={kilobytes}k"):
    sys.exit(77)
"""
    outcome = attempt("model.encoder=tiny", "federation.rounds=3", prelude=prelude)
    if outcome.code == 77:
        pytest.skip("this machine does not let a process mount a disk of its own")
    if outcome.code or kilobytes < 5000:  # the largest may do, where a model's card or tokenizer is shorter
        assert any(word in outcome.complaint() for word in ("the disk is full", "No space left", "space on the disk"))


# Signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_ends_at_once_and_goes_on_to_the_same_bits(
    config: Path, undisturbed: Callable[[int], Path], tmp_path: Path, number: signal.Signals
) -> None:
    command = ("run", config, "federation.rounds=4", "--out", tmp_path / "run")
    running = start(*command, prelude=SLOW)
    running.until(tmp_path / "run" / "checkpoints" / "round-00002")
    running.send(number)
    said = running.wait(5).complaint(130)
    assert said == "stopped; what was finished is kept, and the same command with --resume goes on"
    assert "going on after round" in run(*command, "--resume").good().stderr
    assert weights(tmp_path / "run") == weights(undisturbed(4))


# Models


def test_a_folder_that_is_no_model_is_named_with_what_it_lacks(corpora: Path, tmp_path: Path) -> None:
    assert run("evaluate", tmp_path, corpora / "test.jsonl").complaint() == (
        f"'{tmp_path}' is not a saved model: it has no grandrounds.json; give the model/ folder of a finished run"
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", None),
        ("model.safetensors", b""),
        ("model.safetensors", b"half"),
        ("grandrounds.json", b"[]"),
        ("grandrounds.json", b'{"task": "sentence_re"'),
        ("grandrounds.json", b'{"task": "sentence_re", "schema": {"options": {"x": 1}, "labels": [], "pairs": []}}'),
        ("encoder.json", b"{}"),
        ("tokenizer.json", None),
        ("tokenizer.json", b"{"),
    ],
)
def test_a_damaged_model_is_named(
    undisturbed: Callable[[int], Path], corpora: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    shutil.copytree(undisturbed(2) / "model", tmp_path / "model")
    whole = (tmp_path / "model" / name).read_bytes()
    if content is None:
        (tmp_path / "model" / name).unlink()
    else:
        (tmp_path / "model" / name).write_bytes(whole[: len(whole) // 2] if content == b"half" else content)
    for command in ("evaluate", "extract"):
        assert f"'{tmp_path / 'model'}'" in run(command, tmp_path / "model", corpora / "test.jsonl").complaint()


@pytest.mark.parametrize("missing", [True, False])
def test_an_encoder_with_damaged_weights_is_named(
    attempt: Callable[..., Outcome], encoder_folder: Callable[[str], Path], tmp_path: Path, missing: bool
) -> None:
    shutil.copytree(encoder_folder("bert"), tmp_path / "bert")
    weights = tmp_path / "bert" / "model.safetensors"
    data = weights.read_bytes()
    weights.unlink()
    if not missing:
        weights.write_bytes(data[: len(data) // 2])
    said = attempt(f"model.encoder={tmp_path / 'bert'}").complaint()
    assert said.startswith(f"the weights of encoder '{tmp_path / 'bert'}' can't be read; fetch them again")


# Privacy


def secret(prefix: str, size: int = 40) -> list[Document]:
    """Documents whose ids, patients, words and mentions all hold the canary."""
    documents = []
    for i in range(size):
        drug, problem = (f"{CANARY}drug{i}", "treatment"), (f"{CANARY}pain{i}", "problem")
        verb = " eased the " if i % 2 else f" {CANARY} not the "
        parts: list[str | tuple[str, str]] = [f"The {CANARY} ", drug, verb, problem, " ."]
        related = {(0, 1): "TrIP"} if i % 2 else {}
        where = {"hospital": "mercy" if i % 4 < 2 else "charity", "patient": f"{CANARY}-{i}"}
        documents.append(sentence(f"{CANARY}-{prefix}{i}", parts, related, **where))
    return documents


@pytest.fixture
def secrets(tmp_path: Path) -> tuple[str, ...]:
    """Overrides for a run whose sites hold the canary; the server's public set does not."""
    parts = {"train": secret("a"), "test": secret("b", 10), "public": corpus(20)}
    for name, documents in parts.items():
        write_corpus(tmp_path / f"{name}.jsonl", documents)
    labels = ('task.labels=["TrIP","TeRP"]', 'task.pairs=[["treatment","problem"]]', "data.validation=0")
    return (*labels, *(f"data.{name}={tmp_path / name}.jsonl" for name in parts))


@pytest.mark.parametrize("algorithm", ["fedavg", "local_only"])
def test_no_word_and_no_id_of_a_site_is_in_any_file_or_message_of_a_run(
    attempt: Callable[..., Outcome], secrets: tuple[str, ...], tmp_path: Path, algorithm: str
) -> None:
    outcome = attempt(*secrets, f"algorithm.name={algorithm}", "model.encoder=tiny", "training.optimizer_state=keep")
    outcome.good()
    assert CANARY not in outcome.stdout + outcome.stderr
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {"audit.jsonl", "metrics.jsonl", "state.json", "tokenizer.json", "report.html"} <= {f.name for f in files}
    assert [path for path in files if CANARY.encode() in path.read_bytes().lower()] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"start": 18', '"start": 90'),
        ('"start": 18', f'"start": "{CANARY}"'),
        ('"text": "', f'"{CANARY}": "'),
        ('"text": "', '"text": '),
        ('"text": "', '"text": ["'),
        ('"id": "', '"id": 7, "id": "'),
        ('"head": "T1"', '"head": "T9"'),
        ('"T2"', '"T1"'),
        ('"hospital": "mercy"', f'"ward": "{CANARY}"'),
        ('"TrIP"', '"PIP"'),
    ],
)
def test_no_word_and_no_id_of_a_site_is_in_a_complaint(
    attempt: Callable[..., Outcome], secrets: tuple[str, ...], tmp_path: Path, old: str, new: str
) -> None:
    path = tmp_path / "train.jsonl"
    lines = path.read_text().split("\n")
    assert old in lines[1]
    lines[1] = lines[1].replace(old, new)
    path.write_text("\n".join(lines))
    deal = ("partition.scheme=by", "partition.by=hospital", "partition.unit=patient", "partition.sites=2")
    said = attempt(*secrets, *deal).complaint()
    assert CANARY not in said
    assert (":2: " in said) == (new not in (f'"ward": "{CANARY}"', '"PIP"')), said


def test_no_word_is_in_a_complaint_about_broken_utf8(
    attempt: Callable[..., Outcome], secrets: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(path.read_bytes().replace(f"{CANARY}drug3".encode(), f"{CANARY}\xe4".encode("latin1"), 1))
    assert CANARY not in attempt(*secrets).complaint()


def test_no_word_is_in_a_complaint_about_offsets(attempt: Callable[..., Outcome], tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text(f"{CANARY}|t|{CANARY} eased pain.\n{CANARY}|a|\n{CANARY}\t1\t8\t{CANARY}\ttreatment\tA\n")
    assert CANARY not in attempt("data.format=pubtator", f"data.train={path}").complaint()


# Patients


def test_a_patient_of_two_corpora_carries_no_test_example_into_training(attempt: Callable[..., Outcome]) -> None:
    """Both corpora have patients p0 to p16."""
    alone = ("partition.unit=patient", "data.public=0", "data.validation=0", "federation.rounds=1")
    result = attempt(*alone, "--json").json()
    assert result["test"]["n"] == 24
    assert sum(site["examples"] for site in result["sites"]) == 60
