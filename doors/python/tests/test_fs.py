"""Files of the cluster by fsspec."""

import errno
import gc
import io
import os
import pathlib
import pickle
import subprocess
import sys
import tomllib
import zipfile
from concurrent import futures

import eyas
import fsspec
import numpy
import pytest
from eyas.fs import EyasFileSystem
from files_cluster import files_cluster

#: Seconds that nothing here takes.
LONG_S = 60.0

#: Three chunks of 4 MiB and a part of one.
CONTENT = numpy.random.default_rng(7).bytes((12 << 20) + 12345)


@pytest.fixture(scope="module", autouse=True)
def protocol():
    # A linked source tree has no entry points; an installed package does.
    if "eyas" not in fsspec.available_protocols():
        fsspec.register_implementation("eyas", EyasFileSystem)


@pytest.fixture(scope="module")
def access():
    with files_cluster() as access:
        yield str(access)


@pytest.fixture(scope="module")
def fs(access):
    return fsspec.filesystem("eyas", access=access)


@pytest.fixture(scope="module")
def large(fs):
    fs.pipe_file("/large.bin", CONTENT)
    return "/large.bin"


def test_the_package_registers_the_protocol():
    project = tomllib.loads((pathlib.Path(__file__).parents[1] / "pyproject.toml").read_text())
    (name,) = project["project"]["entry-points"]["fsspec.specs"].values()
    assert name == f"{EyasFileSystem.__module__}.{EyasFileSystem.__qualname__}"


def test_any_part_can_be_read(fs, large):
    parts = numpy.random.default_rng(1)
    with fs.open(large) as file:
        for _ in range(200):
            start = int(parts.integers(len(CONTENT) + 10))
            length = int(parts.choice([0, 1, 100, 70_000, 300_000, 5 << 20, 20 << 20]))
            file.seek(start)
            assert file.read(length) == CONTENT[start : start + length]
            assert file.tell() == start + len(CONTENT[start : start + length])
        file.seek(0)
        assert file.read() == CONTENT
        assert file.read() == b""
        file.seek(-5, io.SEEK_END)
        assert file.readline() == CONTENT[-5:].split(b"\n")[0] + (
            b"\n" if b"\n" in CONTENT[-5:] else b""
        )
        with pytest.raises(ValueError):
            file.seek(-1)


@pytest.mark.parametrize("size", [1000, 65536, 262144, 1 << 20, (4 << 20) + 1])
def test_a_file_can_be_read_from_its_beginning_to_its_end(access, large, size):
    # Another session, and no process has checked any chunk.
    pathlib.Path(f"/dev/shm/eyas-checked-{os.getuid()}").unlink(missing_ok=True)
    fs = EyasFileSystem(access=access, skip_instance_cache=True)
    with fs.open(large) as file:
        assert b"".join(iter(lambda: file.read(size), b"")) == CONTENT
    into = bytearray(len(CONTENT) + 5)
    with fs.open(large) as file:
        assert file.readinto(into) == len(CONTENT)
    assert into[:-5] == CONTENT


def test_a_closed_file_cannot_be_read(fs, large):
    with fs.open(large) as file:
        pass
    for size in (-1, 10, 1 << 20):
        with pytest.raises(ValueError, match="closed"):
            file.read(size)


def test_threads_that_read_one_file_get_different_parts(fs, large):
    with fs.open(large) as file, futures.ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(lambda _: file.read(100_000), range(len(CONTENT) // 100_000)))
        assert len({part[:100] for part in parts}) == len(parts)
        assert file.tell() == 100_000 * len(parts)


def test_a_damaged_chunk_in_the_store_reaches_no_reader(fs, access):
    content = CONTENT[: 9 << 20]
    fs.pipe_file("/damaged.bin", content)
    stores = pathlib.Path(access).parent
    changed = 0
    for path in stores.rglob("*"):
        if (
            path.is_file()
            and path.stat().st_size == 4 << 20
            and path.read_bytes() == content[: 4 << 20]
        ):
            path.chmod(0o600)
            with open(path, "r+b") as chunk:
                chunk.write(b"x" + bytes([content[0] ^ 1]))
            changed += 1
            break
    assert changed == 1
    other = EyasFileSystem(access=access, skip_instance_cache=True)
    assert other.cat_file("/damaged.bin") == content
    with other.open("/damaged.bin") as file:
        assert b"".join(iter(lambda: file.read(100_000), b"")) == content


def test_a_file_appears_whole_when_it_is_closed(fs):
    fs.pipe_file("/whole.bin", b"old")
    with fs.open("/whole.bin", "wb") as file:
        file.write(CONTENT)
        assert fs.cat_file("/whole.bin") == b"old"
        assert file.tell() == len(CONTENT)
    assert fs.cat_file("/whole.bin") == CONTENT
    with pytest.raises(ZeroDivisionError), fs.open("/whole.bin", "wb") as file:
        file.write(b"partial")
        raise ZeroDivisionError
    assert fs.cat_file("/whole.bin") == CONTENT


def test_appends(fs):
    for text in ("first\n", "second\n"):
        with fs.open("/notes.txt", "a") as file:
            file.write(text)
    assert fs.cat_file("/notes.txt") == b"first\nsecond\n"
    with fs.open("/notes.txt", "ab") as file:
        assert file.tell() == 13


def test_parts_of_a_file_are_changed(fs):
    content = bytearray(numpy.random.default_rng(7).bytes(300_000))
    fs.pipe_file("/changed.bin", bytes(content), chunk_bytes=64 << 10)
    with fs.open("/changed.bin", "r+b") as file:
        for offset, part in ((10, b"some"), (100_000, bytes(100_000)), (299_998, b"longer")):
            file.seek(offset)
            assert file.read(3) == content[offset : offset + 3]
            file.seek(offset)
            file.write(part)
            content[offset : offset + len(part)] = part
        file.seek(0)
        assert file.read() == content
        assert fs.cat_file("/changed.bin") != content, "nothing appears before the file is closed"
    assert fs.cat_file("/changed.bin") == content
    with fs.open("/changed.bin", "r+b") as file:
        file.truncate(5)
        assert file.seek(0, 2) == 5
    assert fs.cat_file("/changed.bin") == content[:5]
    with pytest.raises(ZeroDivisionError), fs.open("/changed.bin", "r+b") as file:
        file.write(b"partial")
        raise ZeroDivisionError
    assert fs.cat_file("/changed.bin") == content[:5]
    with fs.transaction, fs.open("/changed.bin", "r+b") as file:
        file.write(b"X")
    assert fs.cat_file("/changed.bin") == b"X" + content[1:5]
    with fs.open("/changed.bin", "r+b") as file, pytest.raises(OSError) as raised:
        file.truncate(-1)
    assert raised.value.errno == errno.EINVAL


def test_discarded_changes(fs):
    for name in "ab":
        fs.pipe_file(f"/discarded/{name}", b"content")
    with pytest.raises(ZeroDivisionError), fs.transaction:
        opened = [fs.open(f"/discarded/{name}", "r+b") for name in "ab"]
        for file in opened:
            assert file.read(1) == b"c"
            file.write(b"X")
        raise ZeroDivisionError
    assert all(file.closed for file in opened)
    assert [fs.cat_file(f"/discarded/{name}") for name in "ab"] == [b"content"] * 2
    with fs.open("/discarded/a", "r+b") as file:
        file.drop()
        file.write(b"X")
        assert (file.seek(0, 2), file.read()) == (0, b"")
    with fs.transaction:
        with pytest.raises(ZeroDivisionError), fs.open("/discarded/a", "r+b") as file:
            file.write(b"X")
            raise ZeroDivisionError
        with fs.open("/discarded/b", "r+b") as file:
            file.write(b"X")
    assert [fs.cat_file(f"/discarded/{name}") for name in "ab"] == [b"content", b"Xontent"]


def test_a_change_that_fails(fs):
    fs.pipe_file("/failed.bin", b"content")
    file = fs.open("/failed.bin", "r+b")
    file.write(b"X")
    file.seek(1 << 62)
    file.write(b"too far")
    with pytest.raises(OSError) as raised:
        file.close()
    assert raised.value.errno in (errno.EINVAL, errno.EIO) and file.closed
    assert fs.cat_file("/failed.bin") == b"content"


def test_places_of_blocks(fs):
    fs.pipe_file("/placed.bin", bytes(range(256)) * 1024, chunk_bytes=64 << 10)
    places = fs.block_places("/placed.bin")
    assert [(place["offset"], place["size"], place["block"]) for place in places] == [
        (number << 16, 1 << 16, number) for number in range(4)
    ]
    assert all(node["node"] and node["host"] for place in places for node in place["nodes"])
    assert all(place["nodes"] for place in places)


def test_transactions(fs):
    with fs.transaction:
        for name in "ab":
            with fs.open(f"/transaction/{name}", "wb") as file:
                file.write(b"content")
        assert not fs.exists("/transaction/a")
    assert fs.find("/transaction") == ["/transaction/a", "/transaction/b"]
    with pytest.raises(ZeroDivisionError), fs.transaction:
        with fs.open("/transaction/c", "wb") as file:
            file.write(b"content")
        raise ZeroDivisionError
    assert not fs.exists("/transaction/c")


def test_folders_and_names(fs):
    fs.makedirs("/tree/one/two")
    fs.makedirs("/tree/one/two", exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.makedirs("/tree/one/two")
    with pytest.raises(FileNotFoundError):
        fs.mkdir("/nowhere/below", create_parents=False)
    fs.touch("/tree/one/file.txt")
    assert (fs.isdir("/tree/one"), fs.isfile("/tree/one"), fs.isfile("/tree/one/file.txt")) == (
        True,
        False,
        True,
    )
    assert fs.ls("eyas:///tree/one", detail=False) == ["/tree/one/file.txt", "/tree/one/two"]
    assert fs.ls("/tree/one/file.txt", detail=False) == ["/tree/one/file.txt"]
    assert fs.glob("/tree/**/*.txt") == ["/tree/one/file.txt"]
    assert [folder for folder, _, _ in fs.walk("/tree")] == ["/tree", "/tree/one", "/tree/one/two"]
    assert fs.find("/tree", maxdepth=1) == [] and fs.find("/nowhere") == []
    with pytest.raises(OSError) as raised:
        fs.rmdir("/tree/one")
    assert raised.value.errno == errno.ENOTEMPTY
    with pytest.raises(IsADirectoryError):
        fs.rm("/tree/one")
    fs.mv("/tree/one", "/tree/moved")
    fs.mv("/tree/moved/file.txt", "/tree/")
    assert fs.find("/tree", withdirs=True) == [
        "/tree",
        "/tree/file.txt",
        "/tree/moved",
        "/tree/moved/two",
    ]
    fs.rm("/tree", recursive=True)
    assert not fs.exists("/tree")


def test_a_new_version_has_another_key_checksum_and_time(fs):
    fs.pipe_file("/version.bin", b"one")
    first = fs.info("/version.bin"), fs.ukey("/version.bin"), fs.checksum("/version.bin")
    fs.cp_file("/version.bin", "/copy.bin")
    assert fs.checksum("/copy.bin") == first[2] and fs.ukey("/copy.bin") != first[1]
    fs.pipe_file("/version.bin", b"two")
    assert fs.ukey("/version.bin") != first[1] and fs.checksum("/version.bin") != first[2]
    assert fs.modified("/version.bin").timestamp() >= first[0]["mtime"]
    fs.cp_file("/copy.bin", "/version.bin")
    assert fs.cat_file("/version.bin") == b"one"
    before = fs.modified("/version.bin")
    fs.touch("/version.bin", truncate=False)
    assert fs.modified("/version.bin") > before and fs.created("/version.bin") > before
    assert fs.cat_file("/version.bin") == b"one"


def test_named_attributes(fs):
    fs.pipe_file("/named/file", b"x")
    for path in ("/named", "/named/file"):
        assert fs.info(path)["attributes"] == {}
        fs.setxattr(path, colour=b"r\0d", size=b"", **{"a.b": b"\xff"})
        assert fs.info(path)["attributes"] == {"a.b": b"\xff", "colour": b"r\0d", "size": b""}
        fs.setxattr(path, colour=b"blue", size=None, other=None)
        assert fs.info(path)["attributes"] == {"a.b": b"\xff", "colour": b"blue"}
        assert fs.getxattr(path, "colour") == b"blue"
        assert fs.getxattr(path, "size") is None
    assert "attributes" not in fs.ls("/named", detail=True)[0]
    fs.cp_file("/named/file", "/named/copy")
    fs.mv("/named/file", "/named/moved")
    with fs.open("/named/moved", "r+b") as file:
        file.write(b"X")
    for path in ("/named/copy", "/named/moved"):
        assert fs.getxattr(path, "colour") == b"blue"
    fs.pipe_file("/named/copy", b"new")
    assert fs.info("/named/copy")["attributes"] == {}
    for name, value, expected in (
        ("v", bytes(1 << 16), errno.ENOSPC),
        ("eyas.format", b"x", errno.EINVAL),
        ("n" * 251, b"x", errno.EINVAL),
    ):
        with pytest.raises(OSError) as caught:
            fs.setxattr("/named/copy", **{name: value})
        assert caught.value.errno == expected
    with pytest.raises(FileNotFoundError):
        fs.setxattr("/named/none", colour=b"x")
    with pytest.raises(FileNotFoundError):
        fs.getxattr("/named/none", "colour")
    fs.rm("/named", recursive=True)


def test_ranges_of_several_files(fs, large):
    fs.pipe_file("/small.txt", b"call me ishmael")
    paths = ["/small.txt", large, "/nothing", large]
    parts = fs.cat_ranges(paths, [5, 100, 0, -7], [7, 5_000_000, 1, None])
    assert [parts[0], parts[1], parts[3]] == [b"me", CONTENT[100:5_000_000], CONTENT[-7:]]
    assert isinstance(parts[2], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, 0, 1, on_error="raise")


def test_content_that_is_not_what_its_name_says_is_stored(fs, tmp_path):
    content = b'a,"b\n' * 3
    fs.pipe_file("/odd.csv", content)
    (tmp_path / "odd.csv").write_bytes(content)
    fs.put_file(tmp_path / "odd.csv", "/odd2.csv")
    fs.get_file("/odd2.csv", tmp_path / "again.csv")
    assert fs.cat_file("/odd.csv") == (tmp_path / "again.csv").read_bytes() == content
    with pytest.raises(OSError) as raised, fs.open("/odd3.csv", "wb") as file:
        file.write(content)
    assert raised.value.errno == errno.EBADMSG
    assert not fs.exists("/odd3.csv")
    with fs.open("/odd3.csv", "wb", format="fixed:1") as file:
        file.write(content)
    assert fs.cat_file("/odd3.csv") == content


def test_a_local_copy_has_the_holes_of_the_file(fs, tmp_path):
    content = bytearray(40 << 20)
    content[:3], content[-3:] = b"abc", b"xyz"
    content[17 << 20 : (17 << 20) + 5] = b"12345"
    fs.pipe_file("/sparse", bytes(content), format="fixed:1")
    seen = []

    class Seen(fsspec.Callback):
        def call(self, *args, **options):
            seen.append((self.size, self.value))

    fs.get_file("/sparse", tmp_path / "new" / "sparse", callback=Seen())
    local = tmp_path / "new" / "sparse"
    assert local.read_bytes() == content
    assert local.stat().st_blocks * 512 <= 16 << 20
    assert seen[-1] == (len(content), len(content))
    # What was in the place before is gone, and a file of zeros has its size.
    fs.pipe_file("/zeros", bytes(5 << 20))
    fs.get("/zeros", str(local))
    assert local.read_bytes() == bytes(5 << 20)
    fs.pipe_file("/empty", b"")
    fs.get("/empty", str(local))
    assert local.read_bytes() == b""
    with local.open("wb") as file:
        fs.get_file("/sparse", file)
    assert local.read_bytes() == content
    fs.get("/sparse", os.devnull)


def test_file_systems_and_files_are_pickled(fs, large):
    assert pickle.loads(pickle.dumps(fs)) is fs
    with fs.open(large) as file:
        file.seek(1000)
        again = pickle.loads(pickle.dumps(file))
    assert again.read(10) == CONTENT[1000:1010]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_text_files_are_pickled(fs, compression):
    options = {"encoding": "utf-16", "compression": compression}
    with fs.open("/text", "w", **options) as file:
        file.write("erste Zeile\nzwölf\n")
    with fs.open("/text", "r", **options) as file:
        assert file.readline() == "erste Zeile\n"
        again = pickle.loads(pickle.dumps(file))
    assert again.read() == "zwölf\n"
    assert pickle.loads(pickle.dumps(file)).closed


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_text_has_the_byte_order_mark_of_its_encoding(fs, tmp_path, encoding):
    for mode, text in ("w", ""), ("w", "text\n"), ("a", "more"):
        for opening, path in (open, tmp_path / "marked"), (fs.open, "/marked"):
            with opening(path, mode, encoding=encoding) as file:
                file.write(text)
        assert fs.cat_file("/marked") == (tmp_path / "marked").read_bytes()
    with fs.open("/marked.bz2", "w", encoding=encoding, compression="bz2") as file:
        file.write("text")
    with fs.open("/marked.bz2", compression="bz2") as file:
        assert file.read() == "text".encode(encoding)


def test_a_seek_before_the_beginning_is_refused_at_any_size(fs):
    for size in (0, 1, 21, 22, 100):
        fs.pipe_file("/short", bytes(size))
        with fs.open("/short") as file:
            assert not zipfile.is_zipfile(file)
            with pytest.raises(OSError):
                file.seek(-size - 1, io.SEEK_END)


def test_calls_read_the_files_of_their_cluster(access):
    def count(path):
        with fsspec.open(path) as file:
            return len(file.read()), "EYAS_DFS_NODE" in os.environ

    def store(path):
        with fsspec.open(path, "wb") as file:
            file.write(b"from a call")

    fs = EyasFileSystem(access=access)
    fs.pipe_file("/call.bin", CONTENT)
    registered = ("eyas", "eyas.fs.EyasFileSystem", True)
    register = fsspec.register_implementation
    with eyas.connect(access=access, initializer=register, initargs=registered) as executor:
        assert executor.submit(count, "eyas:///call.bin").result(LONG_S) == (len(CONTENT), True)
        executor.submit(store, "eyas:///from/call.txt").result(LONG_S)
    assert fs.cat_file("/from/call.txt") == b"from a call"


def test_a_child_of_a_fork_connects_for_itself(fs, large):
    with fs.open(large) as file:
        file.read(10)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            said = b"nothing"
            try:
                said = fs.cat_file(large, 0, 10)
                file.read(1 << 20)
            except OSError as error:
                said += str(error).encode()
            finally:
                os.write(writer, said)
                os._exit(0)
        os.close(writer)
        with open(reader, "rb") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        assert said.startswith(CONTENT[:10]) and b"fork" in said[10:]
        assert file.read(10) == CONTENT[10:20]


@pytest.mark.parametrize(
    "wrong, expected",
    [
        (lambda fs: fs.open("/nothing.bin"), FileNotFoundError),
        (lambda fs: fs.info("/nothing.bin"), FileNotFoundError),
        (lambda fs: fs.ls("/nothing"), FileNotFoundError),
        (lambda fs: fs.rm("/nothing"), FileNotFoundError),
        (lambda fs: fs.mv("/nothing", "/other"), FileNotFoundError),
        (lambda fs: fs.open("/folder"), IsADirectoryError),
        (lambda fs: fs.open("/folder", "wb"), IsADirectoryError),
        (lambda fs: fs.pipe_file("/folder/file/below", b""), NotADirectoryError),
        (lambda fs: fs.open("/folder/file", "xb"), FileExistsError),
        (lambda fs: fs.open("/folder/file", "r+"), ValueError),
        (lambda fs: fs.open("/folder/file", "w+b"), ValueError),
        (lambda fs: fs.open("/nothing.bin", "r+b"), FileNotFoundError),
        (lambda fs: fs.open("/folder/file", "r+b", replicas=2), ValueError),
        (lambda fs: fs.open("/folder/file", "wb", format="poems"), ValueError),
        (lambda fs: fs.open("eyas://folder/file"), ValueError),
        (lambda fs: fs.open("/a/../b", "wb"), OSError),
    ],
)
def test_bad_requests(fs, wrong, expected):
    fs.pipe_file("/folder/file", b"content")
    with pytest.raises(expected) as raised:
        wrong(fs)
    assert str(raised.value)


def test_a_cluster_that_is_missing():
    fs = EyasFileSystem(cluster="no-such-cluster", skip_instance_cache=True)
    for wrong in (fs.ls, fs.exists, fs.isdir, fs.open):
        with pytest.raises(ConnectionError, match="no-such-cluster"):
            wrong("/file")


def test_a_key_that_may_only_read(fs, access, tmp_path, large):
    words = [sys.executable, "-m", "eyas", "access", "show", "--access", access, "--role", "read"]
    subprocess.run([*words, "--output", str(tmp_path / "read.toml")], check=True)
    reader = EyasFileSystem(access=tmp_path / "read.toml", skip_instance_cache=True)
    assert reader.cat_file(large) == CONTENT
    for wrong in (
        lambda: reader.pipe_file("/mine.bin", b"content"),
        lambda: reader.rm(large),
        lambda: reader.mkdir("/mine"),
        lambda: reader.mv(large, "/mine.bin"),
        lambda: reader.touch(large, truncate=False),
    ):
        with pytest.raises(PermissionError):
            wrong()
    assert fs.exists(large) and not fs.exists("/mine.bin")


def test_a_cluster_that_ends_while_a_file_is_read():
    with files_cluster(nodes=1) as access:
        fs = EyasFileSystem(access=access, skip_instance_cache=True)
        fs.pipe_file("/file.bin", CONTENT)
        file = fs.open("/file.bin")
        assert file.read(1000) == CONTENT[:1000]
    with file, pytest.raises(OSError) as raised:
        file.seek(9 << 20)
        file.read()
    assert not isinstance(raised.value, FileNotFoundError)


def test_threads_share_a_file(fs, large):
    with fs.open(large) as file, futures.ThreadPoolExecutor(8) as threads:

        def read(start):
            return file.raw._opened.read_at(start, 300_000) == CONTENT[start : start + 300_000]

        assert all(threads.map(read, range(0, len(CONTENT), 250_000)))


@pytest.mark.parametrize(
    "how",
    [
        {"mode": "w"},
        {"mode": "wb"},
        {"mode": "wb", "compression": "gzip"},
        {"mode": "wt", "compression": "gzip"},
    ],
)
def test_a_file_is_replaced_as_a_whole_or_not_at_all(fs, how):
    name, text = "/whole.bin", "text" if "b" not in how["mode"] else b"text"
    with fs.open(name, **how) as file:
        file.write(text)
    content = fs.cat(name)
    with fs.open(name, **{**how, "mode": how["mode"].replace("w", "r")}) as file:
        assert file.read() == text
    with pytest.raises(KeyError), fs.open(name, **how) as file:
        file.write(text * 100_000)
        raise KeyError
    assert fs.cat(name) == content
    with pytest.warns(ResourceWarning, match="was not closed"):
        file = fs.open(name, **how)
        file.write(text * 100_000)
        del file
        gc.collect()
    assert fs.cat(name) == content
    try:
        raise KeyError
    except KeyError:
        with fs.open(name, **how) as file:
            file.write(text * 2)
    assert fs.cat(name) != content, "the exception was another one"


def test_names_with_the_characters_of_patterns_are_removed_alone(fs):
    for name in ("/odd/a1", "/odd/a[1]", "/odd/b*", "/odd/bc"):
        fs.pipe_file(name, b"")
    fs.rm("/odd/a[1]")
    assert fs.find("/odd") == ["/odd/a1", "/odd/b*", "/odd/bc"]
    fs.rm(["/odd/b*"])
    assert fs.find("/odd") == ["/odd/a1", "/odd/bc"]
    fs.rm("/odd/b*")
    assert fs.find("/odd") == ["/odd/a1"]


def test_two_that_append_to_a_new_file_do_not_replace_each_other(fs):
    one, two = fs.open("/log.txt", "ab"), fs.open("/log.txt", "ab")
    one.write(b"one\n")
    two.write(b"two\n")
    one.close()
    with pytest.raises(FileExistsError):
        two.close()
    assert fs.cat("/log.txt") == b"one\n"
