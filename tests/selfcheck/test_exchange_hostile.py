"""Files of strangers: no bytes give a traceback, no word raises a level, nothing is changed or overwritten."""

import copy
import json
import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parproof.cli import main
from parproof.evidence.audit import reading
from parproof.evidence.canonical import file_digest
from parproof.evidence.exchange import importing, original, reasons
from parproof.evidence.exchange.contract import LEVELS
from parproof.evidence.schemas import violations

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "fixtures" / "exchange").rglob("*") if path.is_file())
DOCUMENTS = [json.loads(path.read_text()) for path in EXAMPLES if path.suffix == ".json"]
ODD = [
    None,
    True,
    -1,
    0,
    1e308,
    10**19,
    "",
    "x",
    "\ud800",
    "\x1b[2J",
    [],
    {},
    [[]],
    [None],
    {"a": {}},
    float("nan"),
]


def assessed(folder, data):
    """All of a file with these bytes, as JSON; the exit status is one of three."""
    path = folder / "foreign"
    path.write_bytes(data)
    found = importing.import_files([path])
    assert importing.exit_status(found) in (0, 1, 2)
    assert main(["import", str(path)]) == importing.exit_status(found)
    for imported in found:
        described = json.loads(json.dumps(importing.describe(imported), allow_nan=False))
        assert list(violations("import", described)) == []
    return found


def places(value):
    """Every (holder, name) of a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield value, name
        yield from places(item)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_no_garbage_gives_a_traceback(data, tmp_path_factory):
    """It is unreadable, and exit status 2."""
    assert importing.exit_status(assessed(tmp_path_factory.mktemp("g"), data)) == 2


@settings(max_examples=300, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**9))
def test_no_odd_value_anywhere_gives_a_traceback(seed, tmp_path_factory):
    """Any leaf or branch of any example replaced or removed, a few at a time."""
    chance = random.Random(seed)
    document = copy.deepcopy(chance.choice(DOCUMENTS))
    for _ in range(chance.randrange(1, 4)):
        found = list(places(document))
        if not found:
            break
        holder, name = chance.choice(found)
        if isinstance(holder, dict) and chance.random() < 0.3:
            del holder[name]
        else:
            holder[name] = copy.deepcopy(chance.choice(ODD))
    assessed(tmp_path_factory.mktemp("o"), json.dumps(document).encode())


@settings(max_examples=150, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**9))
def test_no_cut_or_edit_of_a_text_gives_a_traceback(seed, tmp_path_factory):
    """Tables above all: columns lost, numbers torn apart."""
    chance = random.Random(seed)
    data = bytearray(chance.choice([path for path in EXAMPLES if path.suffix != ".json"]).read_bytes())
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(data))
        if chance.random() < 0.5:
            del data[place : place + chance.randrange(1, 200)]
        else:
            data[place : place + 1] = chance.choice(
                [b"9" * 50, b"e", b".", b" ", b"\n", b"nan", b"\xff", b"#"]
            )
        if not data:
            break
    assessed(tmp_path_factory.mktemp("t"), bytes(data))


WORDS = [
    *LEVELS,
    "real_multi_gpu_zero_stage",
    "accept",
    "ready_for_review",
    "ok",
    "pass",
    "training_state_parallel",
]
FIELDS = [
    "evidence_level",
    "decision",
    "status",
    "role",
    "correctness",
    "failure",
    "level",
    "attested",
    "quality",
]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    which=st.integers(0, len(DOCUMENTS) - 1),
    typed=st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(WORDS)),
)
def test_no_word_raises_a_level(which, typed, tmp_path_factory):
    """Whatever level, decision, role or status is typed in: it supports no more than before, and never a benchmark."""
    typed.pop("failure", None)
    folder = tmp_path_factory.mktemp("w")
    before = assessed(folder, json.dumps(DOCUMENTS[which]).encode())[0].assessment.at_most()[0]
    (after,) = assessed(folder, json.dumps(DOCUMENTS[which] | typed).encode())
    assert after.assessment is not None
    assert LEVELS.index(after.assessment.at_most()[0]) <= LEVELS.index(before) <= LEVELS.index("gpu_smoke")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"\xff\xfe{\x00", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": ' + b"9" * 40 + b"}", "integer of 40 digits"),
        (b'{"a": 1}', "not recognised"),
        (b"[1, 2]", "not recognised"),
        (b"hello\n", "no table"),
        (b"a\0b", "NUL"),
        (b'{"schema": "parproof-record/v1"}\n' * 3, "next: parproof audit DIR"),
    ],
    ids=range(10),
)
def test_what_cannot_be_read_is_named_and_ends_with_2(data, why, tmp_path, capsys):
    """With the reason, and no traceback."""
    path = tmp_path / "foreign"
    path.write_bytes(data)
    assert main(["import", str(path)]) == 2
    assert why in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "# size count type " + "time algbw " * 40_000,
        "# Collective test starting: " + "a" * 400_000 + "!",
        json.dumps(DOCUMENTS[-1] | {"metrics": {"sum" * 200_000: 1, "payload" * 100_000: 1}}),
        json.dumps(
            DOCUMENTS[-1] | {"metrics": {f"total_kernel_wire_bytes_overflow_{n}": 1 for n in range(20_000)}}
        ),
    ],
    ids=["header", "program", "long_names", "many_names"],
)
def test_no_text_makes_a_pattern_search_without_end(text, tmp_path):
    """Words are cut before patterns are searched for in them; the time limit of every test stands over this."""
    assessed(tmp_path, text.encode())


def test_only_regular_files_are_opened(tmp_path, capsys):
    """A link, a directory, a pipe that never ends, and a file that is too large."""
    secret = tmp_path / "secret"
    secret.write_text(json.dumps(DOCUMENTS[0]))
    (tmp_path / "link").symlink_to(secret)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "folder", "pipe", "absent"):
        assert main(["import", str(tmp_path / name)]) == 2
        assert "unreadable" in capsys.readouterr().out
    os.truncate(secret, reading.MAX_FILE_BYTES + 1)
    with pytest.raises(original.Unreadable, match="more than"):
        original.read(secret)


def test_companions_stand_beside_and_originals_stay_as_they_are(tmp_path, capsys):
    """Named by the digest of the original, which they carry; and written once."""
    files = [Path(shutil.copy(path, tmp_path / f"{path.parent.name}-{path.name}")) for path in EXAMPLES]
    before = {path: file_digest(path) for path in files}
    command = ["import", *map(str, files), "--output", str(tmp_path / "out")]
    assert main(command) == 1
    assert {path: file_digest(path) for path in files} == before
    written = [json.loads(path.read_text()) for path in (tmp_path / "out").iterdir()]
    assert {companion["original"]["sha256"] for companion in written} == set(before.values())
    assert len(written) == len(files) + 1  # one file holds two runs
    assert main(command) == 2
    assert "nothing is overwritten" in capsys.readouterr().err


def test_a_file_counts_once(tmp_path, capsys):
    """Under its own name, and under another."""
    twin = shutil.copy(EXAMPLES[-1], tmp_path / "twin.json")
    for second in (EXAMPLES[-1], twin):
        capsys.readouterr()
        main(["import", str(EXAMPLES[-1]), str(second), "--json"])
        ids = [
            {finding["id"] for finding in found["findings"]} for found in json.loads(capsys.readouterr().out)
        ]
        assert ["same-file" in found for found in ids] == [False, True]


def test_words_of_the_file_do_not_steer_the_terminal(tmp_path, capsys):
    """In its name, and in what it says."""
    path = tmp_path / "a\x1b[2Jb"
    path.write_text(
        json.dumps(DOCUMENTS[0] | {"decision": "\x1b[2J\nforeign.json: supports all", "project": "\u202e"})
    )
    main(["import", str(path)])
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


def test_every_reason_is_on_the_page_with_its_sentence(capsys):
    """And `--reasons` lists them."""
    page = (ROOT / "docs" / "exchange.md").read_text()
    told = reasons.FINDINGS | reasons.LIMITS
    assert len(told) == len(reasons.FINDINGS) + len(reasons.LIMITS)
    assert [name for name, sentence in told.items() if f"| `{name}` | {sentence} |" not in page] == []
    assert set(reasons.FINDINGS) >= reasons.SPOILS
    assert main(["import", "--reasons"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(told)
