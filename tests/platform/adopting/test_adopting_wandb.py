from __future__ import annotations

import json
import math
import shutil
import struct
import zlib
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.platform.adopting.make_data import DATA

from jestlab.platform.adopting import wandb
from jestlab.platform.adopting.found import FoundRun
from jestlab.platform.adopting.wandb_log import BLOCK_BYTES, records
from jestlab.platform.errors import UserError

(LOG,) = DATA.glob("wandb/*/run-abcd1234.wandb")
WHOLE = LOG.read_bytes()


def check(run: FoundRun) -> None:
    """What make_data.py logs is what is read."""
    assert run.origin == "wandb:lab/jest/abcd1234"
    assert (run.name, run.group, run.tags) == ("first try", "pilot", ("small", "old"))
    assert run.notes == "Two lines:\nthis one."
    assert run.config == {"lr": 0.1, "model": {"width": 128}, "warmup": None, "a.b": "text", "late": True}
    assert list(run.metrics) == ["eval.best", "eval.top1", "final", "loss"]
    assert run.metrics["loss"].steps.tolist() == [0, 1, 2, 3, 4, 20]
    losses = run.metrics["loss"].values.tolist()
    assert math.isnan(losses[2])
    assert losses[:2] + losses[3:] == [1, 1 / 2, 1 / 4, 1 / 5, 7]
    assert run.metrics["eval.top1"].values.tolist() == [step / 8 for step in range(5)]
    assert run.metrics["eval.best"].values.tolist() == [math.inf] * 5
    # Of the summary alone: at the last step.
    assert (run.metrics["final"].steps.tolist(), run.metrics["final"].values.tolist()) == ([20], [0.75])
    assert run.state == "FAILED"
    assert run.host == "somewhere"
    assert run.began is not None and run.ended is not None and run.seconds is not None
    assert timedelta(0) < run.ended - run.began < timedelta(minutes=5)
    assert 0 < run.seconds < 300


@pytest.mark.parametrize(
    "place", [".", "wandb", f"wandb/{LOG.parent.name}", f"wandb/{LOG.parent.name}/{LOG.name}"]
)
def test_a_run_is_read_from_any_folder_around_it(place):
    (run,) = wandb.read(DATA / place)
    check(run)


def test_what_the_installed_library_records(peers_folder):
    (run,) = wandb.read(peers_folder)
    check(run)


def test_a_killed_run_is_running_and_has_what_it_had_logged(tmp_path):
    log = tmp_path / LOG.name
    log.write_bytes(WHOLE[:-1])
    (run,) = wandb.read(log)
    assert (run.state, run.ended) == ("RUNNING", None)
    assert run.metrics["loss"].steps.tolist() == [0, 1, 2, 3, 4, 20]


def test_a_resumed_run_is_one(tmp_path):
    for date, length in (("20200101_000000", 1600), ("20200102_000000", len(WHOLE))):
        folder = tmp_path / f"offline-run-{date}-abcd1234"
        folder.mkdir()
        (folder / LOG.name).write_bytes(WHOLE[:length])
    (run,) = wandb.read(tmp_path)
    check(run)


def test_runs_that_wrote_nothing_are_left_out(tmp_path):
    for name, text in (("run-20200101_000000-aaaaaaaa", WHOLE[:90]), (LOG.parent.name, WHOLE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"run-{name[-8:]}.wandb").write_bytes(text)
    (run,) = wandb.read(tmp_path)
    check(run)
    shutil.rmtree(tmp_path / LOG.parent.name)
    with pytest.raises(UserError, match="nothing to adopt"):
        list(wandb.read(tmp_path))


def test_links_are_not_followed(tmp_path):
    (tmp_path / LOG.parent.name).symlink_to(LOG.parent)
    folder = tmp_path / "run-20200101_000000-aaaaaaaa"
    folder.mkdir()
    (folder / LOG.name).symlink_to(LOG)
    with pytest.raises(UserError, match="no runs of W&B"):
        list(wandb.read(tmp_path))


def test_machine_and_commit_of_older_versions(tmp_path):
    folder = tmp_path / LOG.parent.name
    (folder / "files").mkdir(parents=True)
    (folder / LOG.name).write_bytes(WHOLE)
    metadata = folder / "files" / "wandb-metadata.json"
    metadata.write_text(json.dumps({"host": "no", "gpu": "Fast", "git": {"commit": "c0ffee"}}))
    (run,) = wandb.read(tmp_path)
    assert (run.host, run.device, run.git_commit) == ("somewhere", "Fast", "c0ffee")
    metadata.write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"wandb-metadata\.json: not valid JSON"):
        list(wandb.read(tmp_path))


@pytest.mark.parametrize(
    ("code", "state"), [(0, "COMPLETED"), (1, "FAILED"), (255, "CANCELLED"), (2**64 - 9, "FAILED")]
)
def test_states_by_exit_code(tmp_path, code, state):
    log = tmp_path / "run-x.wandb"
    log.write_bytes(written([message(17, text(1, "x")), message(18, varint(1 << 3) + varint(code))]))
    (run,) = wandb.read(log)
    assert (run.origin, run.name, run.state) == ("wandb:-/-/x", "x", state)


def test_config_and_summary_can_be_nested_and_removed(tmp_path):
    items = [
        message(
            5, item(1, ["model", "width"], "3") + item(1, ["model", "depth"], "4") + item(1, ["_wandb"], "1")
        ),
        message(5, item(2, ["model", "depth"], "") + item(2, ["not", "there"], "")),
        message(3, item(1, ["a"], "1") + item(1, ["loss", "min"], '"NaN"') + item(2, ["a"], "")),
        message(
            2, item(1, ["x"], '{"y": 2, "z": {"_type": "histogram", "bins": 1}}') + item(1, ["_step"], "7")
        ),
    ]
    log = tmp_path / "run-x.wandb"
    log.write_bytes(written([message(17, text(1, "x")), *items]))
    (run,) = wandb.read(log)
    assert run.config == {"model": {"width": 3}}
    assert {name: curve.steps.tolist() for name, curve in run.metrics.items()} == {
        "loss.min": [7],
        "x.y": [7],
    }


@pytest.mark.parametrize(
    "record",
    [
        b"\x0b",
        b"\xff" * 11,
        b"\x12\x7f",
        b"\x10\x01",
        pytest.param(lambda: message(2, item(1, ["x"], "{")), id="json"),
        pytest.param(lambda: message(2, item(1, ["x"], "[" * 100_000)), id="deep json"),
        pytest.param(lambda: message(5, item(1, ["x"] * 5000, "1")), id="deep key"),
        pytest.param(lambda: message(2, item(1, ["x"], "9" * 5000)), id="long number"),
    ],
)
def test_records_that_are_not_valid_are_refused(tmp_path, record):
    log = tmp_path / "run-x.wandb"
    log.write_bytes(written([record() if callable(record) else record]))
    with pytest.raises(UserError, match=r"run-x\.wandb: record 0 is not valid") as error:
        list(wandb.read(log))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("a.wandb", b"PK\3\4 and more", "not a log of W&B"),
        ("a.wandb", WHOLE[:6] + b"\1", "version 1"),
        ("b", None, "no such file or folder"),
    ],
)
def test_other_files_are_refused(tmp_path, name, data, match):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=match):
        list(wandb.read(tmp_path / name))


def test_the_link_that_is_named_is_followed(tmp_path):
    (tmp_path / "link").symlink_to(LOG.parent)
    (run,) = wandb.read(tmp_path / "link")
    check(run)


def test_machine_and_commit_in_the_log(tmp_path):
    environment = text(12, "somewhere") + text(18, "Fast") + message(9, text(1, "url") + text(2, "c0ffee"))
    log = tmp_path / "run-x.wandb"
    log.write_bytes(written([message(17, text(1, "x")), message(26, environment)]))
    (run,) = wandb.read(log)
    assert (run.host, run.device, run.git_commit) == ("somewhere", "Fast", "c0ffee")


# ---- the log


def test_a_length_over_a_block_is_no_end(tmp_path):
    log = tmp_path / "run-x.wandb"
    data = bytearray(written([b"a" * 10, b"b" * 70_000, b"c"]))
    data[12] = 0xFF
    log.write_bytes(data)
    with pytest.raises(UserError, match="damaged at byte 7: a record's piece is longer than its block"):
        list(records(log))


@given(length=st.integers(0, len(WHOLE)), zeros=st.integers(0, 40))
@example(length=0, zeros=0)
def test_a_log_that_was_cut_off_is_a_prefix(tmp_path, length, zeros):
    log = tmp_path / LOG.name
    log.write_bytes(WHOLE[:length] + bytes(zeros) * (length >= 7))
    whole = list(records(LOG))
    try:
        found = list(records(log))
    except UserError:
        # Zeros in the place of a record's end: its checksum is wrong.
        assert zeros
        return
    assert found == whole[: len(found)]
    if not zeros and length == len(WHOLE):
        assert found == whole


@given(offset=st.integers(0, len(WHOLE) - 1), flipped=st.integers(1, 255))
def test_a_flipped_byte_gives_a_prefix_or_an_error_of_one_line(tmp_path, offset, flipped):
    data = bytearray(WHOLE)
    data[offset] ^= flipped
    log = tmp_path / LOG.name
    log.write_bytes(data)
    whole = list(records(LOG))
    found = []
    try:
        for record in records(log):
            found.append(record)
    except UserError as error:
        assert str(log) in str(error) and "\n" not in str(error)
    assert found == whole[: len(found)]
    assert len(found) < len(whole)
    try:
        assert len(list(wandb.read(log))) == 1
    except UserError as error:
        assert str(log) in str(error) and "\n" not in str(error)


@given(sizes=st.lists(st.sampled_from([0, 1, 30, 9000, 32_740, 32_747, 32_754, 32_761, 70_000]), max_size=8))
def test_records_over_blocks(tmp_path, sizes):
    log = tmp_path / "run-x.wandb"
    log.write_bytes(written([bytes([index + 1]) * size for index, size in enumerate(sizes)]))
    assert [len(record) for record in records(log)] == sizes


@given(made=st.lists(st.binary(max_size=60), max_size=4))
def test_any_records_give_runs_or_an_error_of_one_line(tmp_path, made):
    log = tmp_path / "run-x.wandb"
    log.write_bytes(written([message(17, text(1, "x")), *made]))
    try:
        assert len(list(wandb.read(log))) == 1
    except UserError as error:
        assert "\n" not in str(error)


def written(made: list[bytes]) -> bytes:
    """Write a log as LevelDB does."""
    log = bytearray(WHOLE[:7])
    for record in made:
        pieces: list[bytes] = []
        kinds = []
        rest = record
        while rest or not pieces:
            room = BLOCK_BYTES - len(log) % BLOCK_BYTES
            if room < 7:
                log += bytes(room)
                continue
            piece, rest = rest[: room - 7], rest[room - 7 :]
            kind = (1 if not rest else 2) if not pieces else (3 if rest else 4)
            log += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            pieces.append(piece)
            kinds.append(kind)
        assert all(one in (2, 3) for one, _ in pairwise(kinds))
    return bytes(log)


def varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    return message(field, content.encode())


def item(field: int, path: list[str], value_json: str) -> bytes:
    keys = text(1, path[0]) if len(path) == 1 else b"".join(text(2, part) for part in path)
    return message(field, keys + (text(16, value_json) if value_json else b""))


def test_the_tests_write_logs_as_the_library_does():
    assert written(list(records(LOG))) == WHOLE
    assert Path(LOG).name == "run-abcd1234.wandb"
