"""Files that were made to do harm: every one ends in one line that names it, or is read as what it is."""

import gzip
import io
import os
import pickle
import random
import struct
import zipfile

import numpy as np
import pytest

from tests.data.child import outcomes
from tests.data.test_datasets import write_cifar10, write_fashion

ROWS = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)
BATCH = {"data": ROWS, "labels": [0, 1]}


# ---------------------------------------------------------------- pickles, opcode by opcode


def text(value: str) -> bytes:
    return pickle.BINUNICODE + struct.pack("<I", len(value.encode())) + value.encode()


def blob(value: bytes) -> bytes:
    return pickle.BINBYTES + struct.pack("<I", len(value)) + value


def number(value: int) -> bytes:
    return pickle.dumps(value, 2)[2:-1]


def call(name: str, *arguments: bytes) -> bytes:
    return pickle.GLOBAL + name.encode() + b"\n" + pickle.MARK + b"".join(arguments) + pickle.TUPLE + pickle.REDUCE


def build(target: bytes, *state: bytes) -> bytes:
    return target + pickle.MARK + b"".join(state) + pickle.TUPLE + pickle.BUILD


def dtype(name: str, *state: bytes) -> bytes:
    made = call("numpy\ndtype", text(name), number(0), number(1))
    return build(made, *state) if state else made


NDARRAY = pickle.GLOBAL + b"numpy\nndarray\n"
EMPTY = call("numpy.core.multiarray\n_reconstruct", NDARRAY, pickle.MARK + number(0) + pickle.TUPLE, blob(b"b"))


def shape(*sides: int) -> bytes:
    return pickle.MARK + b"".join(map(number, sides)) + pickle.TUPLE


def array(kind: bytes, sides: bytes, content: bytes) -> bytes:
    return build(EMPTY, number(1), sides, kind, pickle.NEWFALSE, content)


def nested(levels: int, opcodes: bytes = pickle.TUPLE1) -> bytes:
    return pickle.EMPTY_TUPLE + opcodes * levels


def doubling(levels: int, make: bytes) -> bytes:
    """A container that holds the last one twice, and so on: 2 ** levels leaves in a few bytes."""
    return (
        text("a")
        + pickle.MEMOIZE
        + b"".join(make.replace(b"?", pickle.BINGET + bytes([level])) + pickle.MEMOIZE for level in range(levels))
    )


TWO_OF = pickle.MARK + b"??" + pickle.TUPLE
LIST_OF_TWO = pickle.EMPTY_LIST + pickle.MARK + b"??" + pickle.APPENDS


def batch(data: bytes, labels: bytes = pickle.EMPTY_LIST + number(0) + pickle.APPEND, *more: bytes) -> bytes:
    items = text("data") + data + text("labels") + labels + b"".join(more)
    return pickle.PROTO + b"\4" + pickle.EMPTY_DICT + pickle.MARK + items + pickle.SETITEMS + pickle.STOP


ROW = array(dtype("u1"), shape(1, 3072), blob(bytes(3072)))
POINTERS = blob(b"\x41" * 3072)
OBJECT_FLAGS = (number(3), text("|"), pickle.NONE, pickle.NONE, pickle.NONE, number(8), number(1), number(63))
FIELDS = pickle.EMPTY_DICT + text("a") + pickle.MARK + dtype("O") + number(2**20) + pickle.TUPLE + pickle.SETITEM
NAMES = pickle.MARK + text("a") + pickle.TUPLE
FAR_FIELD = dtype("V8", number(3), text("|"), pickle.NONE, NAMES, FIELDS, number(8), number(1), number(63))
OWN_CONTENT = (
    pickle.MARK + number(1) + shape(1, 3072) + dtype("u1") + pickle.NEWFALSE + pickle.BINGET + b"\0" + pickle.TUPLE
)
PICKLES = {
    "an object dtype over bytes of the file": batch(array(dtype("O"), shape(384), POINTERS)),
    "a void dtype with the flags of objects": batch(array(dtype("V8", *OBJECT_FLAGS), shape(384), POINTERS)),
    "an object field far behind its record": batch(array(FAR_FIELD, shape(384), POINTERS)),
    "an item size of two gigabytes": batch(
        array(
            dtype("V8", *OBJECT_FLAGS[:5], number(2**31 - 1), number(1), number(0)), shape(1, 3072), blob(bytes(3072))
        )
    ),
    "an array with a list for its content": batch(array(dtype("O"), shape(1), pickle.EMPTY_LIST)),
    "an array that is its own content": batch(EMPTY + pickle.MEMOIZE + OWN_CONTENT + pickle.BUILD),
    "an array without content": batch(EMPTY),
    "more rows than bytes": batch(array(dtype("u1"), shape(10**6, 3072), blob(bytes(3072)))),
    "a shape that overflows": batch(array(dtype("u1"), shape(2**31 - 1, 2**31 - 1), blob(b""))),
    "a shape of large numbers": batch(array(dtype("u1"), shape(2**62, 4), blob(b""))),
    "a negative shape": batch(array(dtype("u1"), shape(-1, -3072), blob(bytes(3072)))),
    "a shape nested without end": batch(array(dtype("u1"), doubling(200, TWO_OF), blob(bytes(3072)))),
    "a type nested without end": batch(
        array(call("numpy\ndtype", doubling(200, TWO_OF)), shape(1, 3072), blob(bytes(3072)))
    ),
    "a key nested without end": batch(ROW, pickle.EMPTY_LIST, doubling(200, TWO_OF), number(1)),
    "labels nested without end": batch(ROW, doubling(200, LIST_OF_TWO)),
    "labels that are floats": batch(ROW, pickle.EMPTY_LIST + pickle.BINFLOAT + bytes(8) + pickle.APPEND),
    "labels that are arrays": batch(ROW, ROW),
    "a label of many digits": batch(ROW, pickle.EMPTY_LIST + number(10**600) + pickle.APPEND),
    "tuples nested by the million as a key": batch(ROW, pickle.EMPTY_LIST, nested(2_000_000), number(1)),
    "a memo of four billion": batch(pickle.EMPTY_LIST + pickle.LONG_BINPUT + b"\xff\xff\xff\xff"),
    "a memo of a hundred million": batch(pickle.EMPTY_LIST + pickle.LONG_BINPUT + struct.pack("<I", 10**8)),
    "a terabyte of bytes": batch(pickle.BYTEARRAY8 + struct.pack("<Q", 2**40)),
    "an exabyte of bytes": batch(pickle.BINBYTES8 + struct.pack("<Q", 2**60)),
    "a frame of an exabyte": pickle.PROTO + b"\4" + pickle.FRAME + struct.pack("<Q", 2**60) + b"N.",
    "a persistent object": batch(text("a") + pickle.BINPERSID),
    "an extension": batch(pickle.EXT1 + b"\1"),
    "an instance": batch(pickle.MARK + pickle.INST + b"os\nsystem\n"),
    "a new object": batch(NDARRAY + pickle.EMPTY_TUPLE + pickle.NEWOBJ),
    "code": batch(call("posix\nmkdir", text("attacked"))),
    "code of numpy": batch(call("numpy\nfrombuffer", blob(b"a"))),
    "a call of an array's class": batch(build(NDARRAY, number(1))),
    "a name that sets the terminal's title": batch(call("os.\x1b]0;owned\x07\x1b[2Jfssl: all is well\r\nsystem")),
    "a name of a million letters": batch(call("a" * 10**6 + "\nb")),
    "a stack that is empty": pickle.PROTO + b"\4" + pickle.REDUCE + pickle.STOP,
    "text": b"<html>404 not found</html>",
    "nothing": b"",
}


@pytest.fixture(scope="module")
def pickled(tmp_path_factory):
    root, cases = tmp_path_factory.mktemp("pickles"), []
    for place, content in enumerate((PICKLES | READ).values()):
        (root / str(place)).mkdir()
        write_cifar10(root / str(place), 2)
        (root / str(place) / "cifar-10-batches-py/data_batch_2").write_bytes(content)
        cases.append((root / str(place), "cifar10"))
    return dict(zip(PICKLES | READ, outcomes(cases), strict=True))


READ = {  # what is said of bytes beside that they are bytes concerns no image
    "bytes with the flags of objects": batch(array(dtype("u1", *OBJECT_FLAGS), shape(1, 3072), POINTERS)),
    "a dtype that is built twice": batch(array(build(dtype("u1"), *OBJECT_FLAGS), shape(1, 3072), POINTERS)),
}


def one_clear_error(result: dict, file: str) -> None:
    assert result["end"] == "DataError", result
    assert file in result["message"]
    assert result["message"].isprintable()  # one line, and nothing for a terminal
    assert len(result["message"]) < 600
    assert result["megabytes"] < 1200


@pytest.mark.parametrize("case", PICKLES)
def test_a_pickle_that_was_made_to_do_harm_is_refused_in_one_line(pickled, case):
    one_clear_error(pickled[case], "data_batch_2")


@pytest.mark.parametrize("case", READ)
def test_bytes_that_are_called_objects_are_read_as_bytes(pickled, case):
    assert (pickled[case]["end"], pickled[case]["images"]) == ("read", 9)


def test_many_arrays_over_one_content_take_no_memory(tmp_path):
    """A hundred arrays that share ten megabytes, of which one is used."""
    content = blob(bytes(3000 * 3072)) + pickle.MEMOIZE
    one = array(dtype("u1"), shape(3000, 3072), pickle.BINGET + b"\0")
    labels = pickle.EMPTY_LIST + pickle.MARK + number(0) * 3000 + pickle.APPENDS
    more = text("more") + pickle.EMPTY_LIST + pickle.MARK + one * 100 + pickle.APPENDS
    write_cifar10(tmp_path)
    first = one.replace(pickle.BINGET + b"\0", content)
    (tmp_path / "cifar-10-batches-py/test_batch").write_bytes(batch(first, labels, more))
    (result,) = outcomes([(tmp_path, "cifar10")])
    assert result["end"] == "read"
    assert result["megabytes"] < 200


# ---------------------------------------------------------------- idx and npz


def idx(sides: list[int], content: bytes, kind: int = 8, dimensions: int | None = None) -> bytes:
    count = len(sides) if dimensions is None else dimensions
    return gzip.compress(bytes((0, 0, kind, count)) + struct.pack(f">{len(sides)}I", *sides) + content)


IDX = {
    "a bomb": gzip.compress(bytes(2**28 + 2**20), 1),
    "255 dimensions": idx([1] * 255, b"a"),
    "no dimensions": idx([], b"a"),
    "dimensions without their sizes": idx([], b"", dimensions=3),
    "a size of minus one": idx([2**32 - 1, 28, 28], bytes(28 * 28)),
    "sizes that overflow": idx([2**31, 2**31, 4], b""),
    "fewer bytes than sizes": idx([30, 28, 28], bytes(29 * 28 * 28)),
    "more bytes than sizes": idx([30, 28, 28], bytes(31 * 28 * 28)),
    "images without pixels": idx([30, 0, 0], b""),
    "images that are not square": idx([30, 2, 392], bytes(30 * 784)),
    "floats": idx([30, 28, 28], bytes(30 * 784), kind=13),
    "no gzip": bytes(1000),
    "nothing": b"",
}


def npy(header: str, content: bytes = b"", version: bytes = b"\1\0") -> bytes:
    head = header.encode() + b"\n"
    length = struct.pack("<H" if version == b"\1\0" else "<I", len(head))
    return b"\x93NUMPY" + version + length + head + content


def saved(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def described(kind: str, sides: str, fortran: str = "False") -> str:
    return f"{{'descr': {kind}, 'fortran_order': {fortran}, 'shape': {sides}}}"


IMAGES = saved(np.zeros((4, 28, 28), np.uint8))
LABELS = saved(np.arange(4, dtype=np.int64)[:, None])
NPZ = {  # of train_images, or of what is named
    "objects": npy(described("'|O'", "(4, 28, 28)"), pickle.dumps([1])),
    "records of objects": npy(described("[('a', '|O')]", "(4,)"), bytes(32)),
    "floats": npy(described("'<f8'", "(4, 28, 28)"), bytes(4 * 28 * 28 * 8)),
    "an item of two gigabytes": npy(described("'|V2147483647'", "(4, 28, 28)")),
    "a header that is a call": npy("__import__('os').mkdir('attacked')"),
    "a header of brackets": npy("(" * 9000),
    "a header without end": npy("{'descr': '" + "a" * 60_000),
    "a negative shape": npy(described("'|u1'", "(-4, -28, 28)"), bytes(4 * 784)),
    "a shape of truths": npy(described("'|u1'", "(True, True, True)"), b"a"),
    "a shape that overflows": npy(described("'|u1'", "(4294967296, 4294967296, 16)")),
    "a shape of a terabyte": npy(described("'|u1'", "(1073741824, 32, 32)")),
    "more bytes than the shape": npy(described("'|u1'", "(4, 28, 28)"), bytes(10**6)),
    "version nine": npy(described("'|u1'", "(4, 28, 28)"), bytes(4 * 784), version=b"\x09\0"),
    "version two": npy(described("'|u1'", "(4, 28, 28)"), bytes(4 * 784), version=b"\2\0"),  # a header of up to 4 GiB
    "a bomb": npy(described("'|u1'", f"({2**18 + 2**10}, 32, 32)"), bytes(2**28 + 2**20)),
    "images that are not square": saved(np.zeros((4, 28, 27), np.uint8)),
    "images of five channels": saved(np.zeros((4, 28, 28, 5), np.uint8)),
    "a pickle": pickle.dumps(ROWS),
    "nothing": b"",
}
OTHER = {
    "a label of 62 bits": {"train_labels": saved(np.array([[0], [1], [2], [2**62]]))},
    "a negative label": {"train_labels": saved(np.array([[0], [1], [2], [-1]]))},
    "labels that are lists": {"train_labels": saved(np.arange(4))},
    "no labels": {"train_labels": saved(np.zeros((0, 1), np.int64))},
    "fewer labels": {"train_labels": saved(np.arange(3)[:, None])},
}
ARCHIVES = {
    "a member twice": lambda good: good,
    "a method that unpacks without limit": lambda good: archive(zipfile.ZIP_BZIP2),
    "an array in place of an archive": lambda good: IMAGES,
    "a pickle in place of an archive": lambda good: pickle.dumps(BATCH),
    "half an archive": lambda good: good[: len(good) // 2],
    "a flipped bit": lambda good: good[:60] + bytes([good[60] ^ 1]) + good[61:],
    "a locked member": lambda good: good.replace(b"PK\1\2\x14\3\x14\0\0", b"PK\1\2\x14\3\x14\0\1"),
}


def archive(method: int = zipfile.ZIP_DEFLATED, **members: bytes) -> bytes:
    good = {"train_images": IMAGES, "train_labels": LABELS, "test_images": IMAGES, "test_labels": LABELS}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in (good | members).items():
            file.writestr(f"{name}.npy", content)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """By format and case."""
    root = tmp_path_factory.mktemp("others")
    stored = archive()
    files = {("idx", case): content for case, content in IDX.items()}
    files |= {("npz", case): archive(train_images=content) for case, content in NPZ.items()}
    files |= {("npz", case): archive(**members) for case, members in OTHER.items()}
    files |= {("npz", case): make(stored) for case, make in ARCHIVES.items()}
    cases = []
    for place, ((kind, _), content) in enumerate(files.items()):
        here = root / str(place)
        if kind == "idx":
            write_fashion(here / "fashion-mnist")
            (here / "fashion-mnist/train-images-idx3-ubyte.gz").write_bytes(content)
        else:
            (here / "medmnist").mkdir(parents=True)
            (here / "medmnist/toymnist.npz").write_bytes(content)
        cases.append((here, "fashion-mnist" if kind == "idx" else "medmnist/toymnist"))
    return dict(zip(files, outcomes(cases), strict=True))


@pytest.mark.parametrize("case", IDX)
def test_an_idx_file_that_does_not_hold_what_it_says_is_refused_in_one_line(others, case):
    one_clear_error(others["idx", case], "fashion-mnist")


@pytest.mark.parametrize("case", [*NPZ, *OTHER, *list(ARCHIVES)[1:]])
def test_an_npz_file_that_does_not_hold_what_it_says_is_refused_in_one_line(others, case):
    one_clear_error(others["npz", case], "toymnist.npz")


def test_the_archive_that_the_others_are_made_of_is_read(others):
    assert others["npz", "a member twice"]["end"] == "read"


# ---------------------------------------------------------------- what is no file, and what is damaged anyhow


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path):
    """A pipe that nobody writes to, a device without end, a folder, a file of nothing that says it is very large."""
    places = []
    for name in ("pipe", "device", "folder", "huge"):
        (tmp_path / name).mkdir()
        write_cifar10(tmp_path / name, 2)
        path = tmp_path / name / "cifar-10-batches-py/data_batch_1"
        path.unlink()
        places.append(path)
    os.mkfifo(places[0])
    places[1].symlink_to("/dev/zero")
    places[2].mkdir()
    with places[3].open("wb") as file:
        file.truncate(2**40)
    results = outcomes([(path.parent.parent, "cifar10") for path in places])
    for result in results:
        one_clear_error(result, "data_batch_1")
    assert all("not a regular file" in result["message"] for result in results[:3])
    assert "more than 268,435,456 bytes" in results[3]["message"]


def damaged(content: bytes, draws: random.Random) -> bytes:
    """Bits flipped, bytes cut out, put in, or doubled."""
    content = bytearray(content)
    for _ in range(draws.choice((1, 1, 2, 8))):
        place, length = draws.randrange(len(content)), draws.choice((1, 2, 4, 16))
        if draws.random() < 0.5:  # near the beginning, where the structure is
            place = min(place, draws.randrange(200))
        match draws.randrange(4):
            case 0:
                content[place] ^= 1 << draws.randrange(8)
            case 1:
                del content[place : place + length]
            case 2:
                content[place:place] = draws.randbytes(length)
            case 3:
                content[place : place + length] = b"\xff" * length
    return bytes(content) or b"a"


def test_files_damaged_at_random_are_read_or_refused_in_one_line(tmp_path):
    """400 files: no crash, no other error, no hang."""
    draws, cases = random.Random(0), []
    python2 = pickle.dumps(BATCH, 2).replace(b"numpy._core", b"numpy.core")
    for place in range(400):
        here = tmp_path / str(place)
        here.mkdir()
        match place % 4:
            case 0 | 1:
                write_cifar10(here, 2)
                good = python2 if place % 4 else pickle.dumps(BATCH, 4)
                (here / "cifar-10-batches-py/test_batch").write_bytes(damaged(good, draws))
                cases.append((here, "cifar10"))
            case 2:
                write_fashion(here / "fashion-mnist", "")
                path = here / "fashion-mnist/train-images-idx3-ubyte"
                path.write_bytes(damaged(path.read_bytes(), draws))
                cases.append((here, "fashion-mnist"))
            case 3:
                (here / "medmnist").mkdir()
                (here / "medmnist/toymnist.npz").write_bytes(damaged(archive(), draws))
                cases.append((here, "medmnist/toymnist"))
    results = outcomes(cases, in_one=40)
    ends = [result["end"] for result in results]
    assert set(ends) == {"read", "DataError"}, [case for case in results if case["end"] not in ("read", "DataError")]
    assert 50 < ends.count("DataError") < 400  # a flipped bit of a pixel is a pixel
    for result in results:
        if result["end"] == "DataError":
            one_clear_error(result, str(tmp_path))
