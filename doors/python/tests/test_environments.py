"""Environments of workers: packed once, unpacked once a node, and differences told with
both sides.
"""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import venv

import eyas
import pytest
from environment_calls import add_one_word, meet, number, tool
from eyas._environments import archives, finish, packing, worker_start

#: Seconds that nothing here takes.
LONG_S = 60.0

#: Parts of an interpreter's library that workers do not need.
UNWANTED = shutil.ignore_patterns(
    *(
        "test",
        "tests",
        "__pycache__",
        "config-*",
        "idlelib",
        "ensurepip",
        "site-packages",
        "pydoc_data",
        "tkinter",
    )
)

#: What a module of an environment notes about itself, in a file for each process that imports it.
MODULE = """
import os, pathlib
NUMBER = {number}
folder = pathlib.Path({notes!r})
(folder / f"import-{{os.getpid()}}").touch()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv(packing.CACHE_VARIABLE, str(folder))
    return folder / "environments"


def site_of(folder):
    return next(folder.glob("lib/python*/site-packages"))


@pytest.fixture
def environment(tmp_path):
    """A virtual environment with a package that this interpreter does not have."""
    folder, notes = tmp_path / "own venv", tmp_path / "notes"
    notes.mkdir()
    venv.create(folder, with_pip=False)
    (site_of(folder) / "packed_number.py").write_text(MODULE.format(number=1, notes=str(notes)))
    script = folder / "bin" / "tool"
    script.write_text(f"#!{folder}/bin/python\nprint('tool')\n")
    script.chmod(0o755)
    return folder


def unpacked_of(paths):
    """The folders of nodes with unpacked environments, of these places of environments."""
    return {pathlib.Path(path).parent for path in paths}


def archives_in(cache):
    return sorted(path.name for path in cache.iterdir() if path.name.endswith(".tar.gz"))


def test_an_environment_is_unpacked_once_a_node(environment, tmp_path, cache):
    together = tmp_path / "together"
    together.mkdir()
    with eyas.local(nodes=2, max_workers=4, environment=environment) as executor:
        calls = [executor.submit(meet, str(together), 4) for _ in range(4)]
        seen = [call.result(LONG_S) for call in calls]
        assert len({pid for _, _, pid in seen}) == 4
        # Two nodes, and in each one folder for its two workers.
        assert len({prefix for prefix, _, _ in seen}) == 2 == len({inode for _, inode, _ in seen})
        for folder in unpacked_of(prefix for prefix, _, _ in seen):
            assert sorted(path.suffix for path in folder.iterdir()) == ["", ".lock", ".unpacking"]
        assert executor.submit(number).result(LONG_S) == 1
        assert not seen[0][0].startswith(str(environment))
        assert executor.submit(tool).result(LONG_S) == "tool\n"
    assert len(archives_in(cache)) == 1
    # What nodes have unpacked goes with them.
    assert not any(os.path.exists(prefix) for prefix, _, _ in seen)


def test_a_later_session_uses_the_archive_again_and_a_change_makes_another(environment, cache):
    def run():
        with eyas.local(max_workers=1, environment=environment) as executor:
            return executor.submit(number).result(LONG_S)

    assert run() == 1
    (first,) = archives_in(cache)
    before = (cache / first).stat()
    # Compiled modules that a program leaves are no change.
    compiled = site_of(environment) / "__pycache__"
    compiled.mkdir(exist_ok=True)
    (compiled / "other.cpython-39.pyc").write_bytes(b"")
    assert run() == 1
    after = (cache / first).stat()
    assert archives_in(cache) == [first]
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    module = site_of(environment) / "packed_number.py"
    module.write_text(module.read_text().replace("NUMBER = 1", "NUMBER = 22"))
    assert run() == 22
    assert len(archives_in(cache)) == 2


def test_the_same_content_gives_the_same_bytes(environment, cache):
    def digest():
        path = packing.prepare(str(environment), None).archive
        content = pathlib.Path(path).read_bytes()
        os.unlink(path)
        return hashlib.sha256(content).hexdigest()

    assert digest() == digest()


def test_an_archive_goes_to_the_folder_that_nodes_see(environment, tmp_path):
    with eyas.local(max_workers=1, files=True) as outer:
        access = outer._cluster["access"]
        with pytest.raises(ValueError, match="objects=FOLDER"):
            eyas.Executor(access=access, environment=environment)
        objects = tmp_path / "objects"
        with eyas.connect(access=access, environment=environment, objects=objects) as executor:
            assert executor.submit(number).result(LONG_S) == 1
        assert [path.name.partition("-")[0] for path in objects.iterdir()] == ["environment"]
        for _ in range(2):
            with eyas.connect(
                access=access, environment=environment, objects="eyas:///objects"
            ) as executor:
                assert executor.submit(number).result(LONG_S) == 1
        assert [
            path.rpartition("/")[2] for path in outer.files.ls("/objects", detail=False)
        ] == os.listdir(objects)


def test_a_slot_has_an_interpreter_for_each_environment(environment):
    with eyas.local(max_workers=1) as executor:
        inside = executor.with_options(environment=environment)
        seen = [
            (executor.submit(os.getpid).result(LONG_S), inside.submit(os.getpid).result(LONG_S))
            for _ in range(5)
        ]
        assert len(set(seen)) == 1 and len(set(seen[0])) == 2
        assert inside.submit(number).result(LONG_S) == 1


def test_files_and_other_workers_in_an_environment(environment, tmp_path):
    (tmp_path / "in.txt").write_text("some words")
    for reuse in ("process", "fork", "never"):
        with eyas.local(max_workers=1, environment=environment, reuse=reuse) as executor:
            source, target = eyas.File(tmp_path / "in.txt"), eyas.Output(tmp_path / f"{reuse}.txt")
            assert executor.submit(add_one_word, source, target).result(LONG_S) == 1
            assert (tmp_path / f"{reuse}.txt").read_text() == "some words 1"
            # Code of this process goes along, too.
            assert executor.submit(lambda: number() + 1).result(LONG_S) == 2
            assert executor.submit(sum, [1, 2]).result(LONG_S) == 3
            assert executor.submit(len, executor.share([1, 2, 3])).result(LONG_S) == 3


def test_chunks_tiles_and_futures_in_functions_in_an_environment(environment):
    with eyas.local(max_workers=1, environment=environment) as executor:
        assert list(executor.map(abs, range(-4, 0), chunksize=3)) == [4, 3, 2, 1]
        assert list(executor.all_pairs([2, 3], [1, 2], pow)) == [[2, 4], [3, 9]]
        one = executor.submit(abs, -1)
        assert executor.submit(lambda: one).result(LONG_S) == 1


def test_an_unpacking_that_was_killed_is_done_again(environment, tmp_path):
    """A worker that ends while it unpacks, here by its `tar`, leaves nothing that another one takes
    for whole.
    """
    tools = tmp_path / "tools"
    tools.mkdir()
    flag = tmp_path / "was-killed"
    tar = tools / "tar"
    tar.write_text(
        "#!/bin/sh\n"
        f'[ -e "{flag}" ] || {{ touch "{flag}"; mkdir -p "$4/bin"; kill -9 $PPID; kill -9 $$; }}\n'
        f'exec {shutil.which("tar")} "$@"\n'
    )
    tar.chmod(0o755)
    with with_path(f"{tools}:{os.environ['PATH']}"):
        with eyas.local(max_workers=1, environment=environment, retries=2) as executor:
            assert executor.submit(number).result(LONG_S) == 1
    assert flag.exists()


@contextlib.contextmanager
def with_path(path):
    """Set PATH for executors that start meanwhile."""
    before = os.environ["PATH"]
    os.environ["PATH"] = path
    try:
        yield
    finally:
        os.environ["PATH"] = before


def test_a_broken_archive_is_said(environment, cache):
    packed = packing.prepare(str(environment), None)
    content = pathlib.Path(packed.archive).read_bytes()
    pathlib.Path(packed.archive).write_bytes(content[: len(content) // 2])
    with eyas.local(max_workers=1, environment=environment) as executor:
        with pytest.raises(
            eyas.CallFailed, match="own venv cannot be used on .*: cannot unpack"
        ) as raised:
            executor.submit(number).result(LONG_S)
        assert "gzip" in str(raised.value) or "tar" in str(raised.value)
        # Other calls go on.
        assert executor.with_options(environment=None).submit(abs, -1).result(LONG_S) == 1


def test_a_node_without_the_python_of_an_environment_is_said(environment, tmp_path):
    """The build that the environment is for is on no node."""
    packed = packing.prepare(str(environment), None)
    words = packed.words("/")
    index = words.index(packed.build)
    words[index : index + 2] = ["cpython-399 x86_64-linux-gnu", "/nowhere/python3.99"]
    node = tmp_path / "node"
    node.mkdir()
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        [*words, packed.archive],
        env={**os.environ, "PATH": path, "EYAS_NODE_FOLDER": str(node)},
        capture_output=True,
    )
    why = worker_start.failure_in(ended.stderr)
    assert ended.returncode == 1 and why is not None
    assert (
        str(environment) in why
        and "cpython-399" in why
        and f"the node has {sys.implementation.cache_tag}" in why
    )
    assert not [path for path in (node / "environments").iterdir() if not path.suffix]


def test_a_node_keeps_a_bounded_number_of_environments(environment, tmp_path):
    packed = packing.prepare(str(environment), None)
    node = tmp_path / "node"
    here = node / "environments"
    here.mkdir(parents=True)
    for age in range(12):
        (here / f"old{age}").mkdir()
        lock = here / f"old{age}.lock"
        lock.touch()
        os.utime(lock, (age, age))
    # A worker without a socket ends at once, with an error.
    subprocess.run(
        [*packed.words("/"), packed.archive],
        env={**os.environ, "EYAS_NODE_FOLDER": str(node)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    kept = {path.name for path in here.iterdir() if path.is_dir()}
    assert kept == {packed.key, *(f"old{age}" for age in range(5, 12))}


def test_wrong_environments_are_refused(tmp_path, environment):
    with pytest.raises(ValueError, match="there is no environment"):
        eyas.local(max_workers=1, environment=tmp_path / "nothing")
    (tmp_path / "a.csv").touch()
    with pytest.raises(ValueError, match="is no environment: name a virtual environment"):
        eyas.local(max_workers=1, environment=tmp_path / "a.csv")
    about = site_of(environment) / "linked-1.0.dist-info"
    about.mkdir()
    (about / "direct_url.json").write_text(
        json.dumps({"url": "file:///src", "dir_info": {"editable": True}})
    )
    with pytest.raises(ValueError, match="the package linked of .* is editable: .*file:///src"):
        eyas.local(max_workers=1, environment=environment)


def test_requirements_are_built_once(tmp_path, cache):
    source = tmp_path / "package"
    source.mkdir()
    with_wheel(source, "packed_wheel", "1.5")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"--no-index\n--find-links {source}\npacked-wheel\n")

    def version():
        import packed_wheel

        return packed_wheel.__version__

    for _ in range(2):
        with eyas.local(max_workers=1, environment=requirements) as executor:
            assert executor.submit(version).result(LONG_S) == "1.5"
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1
    requirements.write_text(f"--no-index\n--find-links {source}\nthere-is-none\n")
    with pytest.raises(
        ValueError, match="(?s)requirements.txt cannot be installed:.*there-is-none"
    ):
        eyas.local(max_workers=1, environment=requirements)


def with_wheel(folder, name, version):
    """Write a wheel with one module."""
    import zipfile

    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"__version__ = {version!r}\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
        wheel.writestr(
            f"{about}/RECORD", "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"])
        )


def test_a_missing_module_is_told_with_both_sides(tmp_path, monkeypatch):
    """The client has the module in a folder that the worker does not look into."""
    (tmp_path / "only_here.py").write_text("def answer():\n    return 42\n")
    with eyas.local(max_workers=1) as executor:
        monkeypatch.syspath_prepend(str(tmp_path))
        import only_here

        with pytest.raises(ModuleNotFoundError) as raised:
            executor.submit(only_here.answer).result(LONG_S)
    worker, client, _ = raised.value.__notes__
    assert (
        worker.startswith("The worker has no module 'only_here': Python ")
        and platform.node() in worker
    )
    assert (
        f"The client has only_here at {tmp_path}/only_here.py: Python {platform.python_version()}"
        in client
    )
    assert "environment=PATH" in client


def test_a_missing_interpreter_is_told_with_both_sides(tmp_path, monkeypatch):
    with eyas.local(max_workers=1) as outer:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        with eyas.connect(access=outer._cluster["access"]) as executor:
            with pytest.raises(
                eyas.CallFailed, match="cannot start `/nowhere/python`.*environment=PATH"
            ):
                executor.submit(abs, -1).result(LONG_S)


def other_python(version):
    path = pathlib.Path.home() / ".pyenv" / "versions"
    found = sorted(path.glob(f"{version}.*/bin/python{version}")) if path.is_dir() else []
    if not found or sys.version_info[:2] == tuple(map(int, version.split("."))):
        pytest.skip(f"there is no other Python {version} here")
    return found[-1]


@pytest.fixture
def prefix(tmp_path):
    """A prefix as conda makes them: with an interpreter of its own, and its path in a text and in a
    binary file.
    """
    source = other_python("3.13")
    folder, base = tmp_path / "prefix", source.parents[1]
    (folder / "bin").mkdir(parents=True)
    shutil.copy(source, folder / "bin" / "python3.13")
    (folder / "bin" / "python").symlink_to("python3.13")
    shutil.copytree(base / "lib" / "python3.13", folder / "lib" / "python3.13", ignore=UNWANTED)
    placeholder = "/placeholder" + "_" * 200
    (folder / "share").mkdir()
    (folder / "share" / "text.conf").write_text(f"home={folder}\nagain={folder}/share\n")
    spare = len(placeholder) - len(str(folder))
    binary = b"\x7f\0first=" + str(folder).encode() + b"/lib" + bytes(spare + 1) + b"next\0"
    (folder / "share" / "code.bin").write_bytes(binary)
    (folder / "conda-meta").mkdir()
    paths = [
        {"_path": "share/text.conf", "prefix_placeholder": placeholder, "file_mode": "text"},
        {"_path": "share/code.bin", "prefix_placeholder": placeholder, "file_mode": "binary"},
    ]
    (folder / "conda-meta" / "some-1.0-0.json").write_text(
        json.dumps({"paths_data": {"paths": paths}})
    )
    return folder


def test_a_prefix_brings_its_interpreter_and_its_paths_change(prefix):
    with eyas.local(max_workers=1, environment=prefix) as executor:
        assert executor.submit(platform.python_version).result(LONG_S).startswith("3.13.")
        code = "__import__('sys').prefix"
        place = executor.submit(eval, code).result(LONG_S)
        read = (
            "[open(__import__('sys').prefix + '/share/' + name, 'rb').read() for name in "
            "('text.conf', 'code.bin')]"
        )
        text, binary = executor.submit(eval, read).result(LONG_S)
        assert text.decode() == f"home={place}\nagain={place}/share\n"
        assert len(binary) == (prefix / "share" / "code.bin").stat().st_size
        assert binary.startswith(b"\x7f\0first=" + place.encode() + b"/lib\0") and binary.endswith(
            b"\0next\0"
        )
        with pytest.raises(eyas.EnvironmentMismatch) as raised:
            executor.submit(lambda: 1).result(LONG_S)
        told = str(raised.value)
        assert f"the client has Python {platform.python_version()} at {sys.executable}" in told
        assert "the worker has Python 3.13." in told and str(prefix) in told


@pytest.mark.parametrize("new", ["/a", "/a/much/longer/place"])
def test_paths_in_binary_files_keep_their_places(new):
    old, spare = b"/old/place", 20
    content = (
        b"\x01\0"
        + old
        + b"/x:"
        + old
        + b"/y"
        + bytes(2 * spare + 1)
        + b"\x02tail"
        + old
        + bytes(spare + 1)
    )
    changed = finish.replaced_in_binary(content, old, new.encode(), spare)
    assert len(changed) == len(content) and old not in changed
    assert changed.startswith(b"\x01\0" + new.encode() + b"/x:" + new.encode() + b"/y\0")
    assert changed.index(b"\x02tail") == content.index(b"\x02tail")
    with pytest.raises(ValueError):
        finish.replaced_in_binary(content, old, b"/" + b"n" * 100, spare)


def root_of(tmp_path):
    """The root of a small file system with an interpreter."""
    source = other_python("3.13")
    root = tmp_path / "image"
    library = root / "usr" / "local" / "lib" / "python3.13"
    shutil.copytree(source.parents[1] / "lib" / "python3.13", library, ignore=UNWANTED)
    (root / "usr" / "local" / "bin").mkdir()
    shutil.copy(source, root / "usr" / "local" / "bin" / "python3")
    needed = [source, *library.glob("lib-dynload/*.so")]
    told = subprocess.run(["ldd", *map(str, needed)], capture_output=True, text=True).stdout
    for path in {
        word
        for word in told.split()
        if word.startswith("/") and ".so" in word and not word.endswith(":")
    }:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(path), target)
    (root / "marker").write_text("of the image\n")
    return root


def docker_archive(root, path, compress=bytes):
    """Write the archive of an image with two layers; the higher one removes a file of the lower
    one.
    """
    lower, upper = io.BytesIO(), io.BytesIO()
    (root / "removed").write_text("of the lower layer\n")
    with tarfile.open(fileobj=lower, mode="w") as layer:
        layer.add(root, ".")
    with tarfile.open(fileobj=upper, mode="w") as layer:
        layer.addfile(tarfile.TarInfo(".wh.removed"))
        member = tarfile.TarInfo("marker")
        member.size = 6
        layer.addfile(member, io.BytesIO(b"upper\n"))
    manifest = json.dumps([{"Layers": ["lower/layer.tar", "upper/layer.tar"]}]).encode()
    layers = {
        "lower/layer.tar": compress(lower.getvalue()),
        "upper/layer.tar": compress(upper.getvalue()),
    }
    write_image(path, {"manifest.json": manifest, **layers})


def write_image(path, parts):
    with tarfile.open(path, "w") as image:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            image.addfile(member, io.BytesIO(content))


OCI = {"oci-layout": b"{}", "index.json": b'{"manifests": [{"digest": "sha256:a"}]}'}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"manifest.json": b"[]"}, "no `0`"),
        ({"manifest.json": b"{}"}, "no `0`"),
        ({"manifest.json": b"[{}]"}, "no `Layers`"),
        ({"manifest.json": b'[{"Layers": "a"}]'}, "not a list"),
        ({"manifest.json": b'[{"Layers": ["gone.tar"]}]'}, "`gone.tar`"),
        ({"manifest.json": b"not JSON"}, "Expecting value"),
        ({"manifest.json": b"[" * 100_000}, ""),
        ({"oci-layout": b"{}", "index.json": b"{}"}, "no `manifests`"),
        ({"oci-layout": b"{}", "index.json": b'{"manifests": []}'}, "no `0`"),
        ({"oci-layout": b"{}", "index.json": b'{"manifests": [{"digest": 7}]}'}, "`blobs/7`"),
        (OCI, "`blobs/sha256/a`"),
        ({**OCI, "blobs/sha256/a": b'{"config": {}}'}, "no `layers`"),
        ({**OCI, "blobs/sha256/a": b"7"}, "no `layers`"),
        ({**OCI, "blobs/sha256/a": b'{"layers": [{"size": 1}]}'}, "no `digest`"),
        ({**OCI, "blobs/sha256/a": OCI["index.json"]}, "8 indexes"),
    ],
)
def test_a_bad_manifest_is_named(tmp_path, parts, why):
    image = tmp_path / "image.tar"
    write_image(image, parts)
    with pytest.raises(ValueError, match=f"image.tar cannot be read: .*{why}"):
        list(archives.image_entries(image))


def test_an_image_whose_names_begin_with_a_dot_is_read(tmp_path):
    image, layer = tmp_path / "image.tar", tmp_path / "layer.tar"
    write_image(layer, {"marker": b"of the layer\n"})
    manifest = json.dumps([{"Layers": ["layer.tar"]}]).encode()
    write_image(image, {"./manifest.json": manifest, "./layer.tar": layer.read_bytes()})
    contents = {
        member.name: content and content.read() for member, content in archives.image_entries(image)
    }
    assert contents == {"marker": b"of the layer\n"}


def zstd(content):
    return subprocess.run(["zstd", "-q"], input=content, capture_output=True, check=True).stdout


def test_a_hard_link_stays_when_a_higher_layer_replaces_its_other_name(tmp_path):
    root, image = tmp_path / "root", tmp_path / "image.tar"
    root.mkdir()
    for name in ("removed", "marker", "plain"):
        (root / name).write_text(f"{name}\n")
        os.link(root / name, root / f"{name}-too")
    docker_archive(root, image)
    members = {
        member.name: (member, content and content.read())
        for member, content in archives.image_entries(image)
    }
    assert {name: content for name, (_, content) in members.items() if content} == {
        "marker": b"upper\n",
        "marker-too": b"marker\n",
        "plain": b"plain\n",
        "removed-too": b"of the lower layer\n",
    }
    links = {name: member.linkname for name, (member, _) in members.items() if member.islnk()}
    assert links == {"plain-too": "plain"}


@pytest.mark.skipif(
    not (shutil.which("zstd") or os.environ.get("CI")), reason="there is no zstd here"
)
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="tarfile decompresses it")
def test_images_may_be_compressed_with_zstd(tmp_path):
    root, image = tmp_path / "root", tmp_path / "image.tar"
    root.mkdir()
    (root / "marker").write_text("of the image\n")
    docker_archive(root, image, zstd)
    image.write_bytes(zstd(image.read_bytes()))
    contents = {
        member.name: content and content.read() for member, content in archives.image_entries(image)
    }
    assert contents == {"marker": b"upper\n"}
    with (
        with_path("/nowhere"),
        pytest.raises(ValueError, match="image.tar cannot be read: .* install the command"),
    ):
        list(archives.image_entries(image))
    image.write_bytes(image.read_bytes()[:-10])
    with pytest.raises(ValueError, match="image.tar cannot be read: .*zstd"):
        list(archives.image_entries(image))


def can_run_images():
    bwrap = shutil.which("bwrap")
    return (
        bwrap
        and subprocess.run([bwrap, "--bind", "/", "/", "true"], capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not can_run_images(), reason="bwrap cannot start a container here")
@pytest.mark.parametrize("form", ["folder", "docker"])
def test_workers_run_in_an_image(tmp_path, form):
    root = root_of(tmp_path)
    image = root
    if form == "docker":
        image = tmp_path / "image.tar"
        docker_archive(root, image)
    (tmp_path / "in.txt").write_text("four")
    with eyas.local(max_workers=1, environment=image) as executor:
        assert executor.submit(platform.python_version).result(LONG_S).startswith("3.13.")
        names = executor.submit(os.listdir, "/").result(LONG_S)
        assert "marker" in names and "boot" not in names and "removed" not in names
        assert executor.submit(os.path.getsize, "/marker").result(LONG_S) == (
            6 if form == "docker" else 13
        )
        assert executor.submit(os.path.getsize, eyas.File(tmp_path / "in.txt")).result(LONG_S) == 4


def test_an_image_without_a_runtime_is_said(tmp_path):
    (tmp_path / "image.sif").write_bytes(b"SIF")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in "sh tar gzip flock mkdir mv rm touch ls grep tail uname head tr".split():
        (tools / name).symlink_to(shutil.which(name))
    with (
        with_path(str(tools)),
        eyas.local(max_workers=1, environment=tmp_path / "image.sif") as executor,
    ):
        with pytest.raises(
            eyas.CallFailed,
            match="image.sif cannot be used on .* neither apptainer nor singularity",
        ):
            executor.submit(abs, -1).result(LONG_S)


def test_an_image_is_given_to_apptainer(tmp_path):
    """A program in the place of apptainer notes its arguments, and runs the command outside of an
    image.
    """
    (tmp_path / "image.sif").write_bytes(b"SIF")
    tools, notes = tmp_path / "tools", tmp_path / "arguments"
    tools.mkdir()
    (tools / "apptainer").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >{notes}\nshift 5\nexec {sys.executable} "$@"\n'
    )
    (tools / "apptainer").chmod(0o755)
    with with_path(f"{tools}:{os.environ['PATH']}"):
        with eyas.local(max_workers=1, environment=tmp_path / "image.sif") as executor:
            assert executor.submit(abs, -1).result(LONG_S) == 1
    words = notes.read_text().splitlines()
    assert (
        words[:2] == ["exec", "--bind"]
        and words[3].endswith("/image.sif")
        and words[4] == "python3"
    )


def test_links_that_lead_out_bring_their_targets(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "inside"
    (outside / "part").mkdir(parents=True)
    (outside / "part" / "file").write_text("content")
    folder.mkdir()
    (folder / "own").write_text("own")
    (folder / "link").symlink_to("own")
    (folder / "far").symlink_to(outside)
    found = {entry.name: entry.target for entry in archives.entries_of(folder, lambda name: True)}
    assert found == {"own": "", "link": "own", "far": "", "far/part": "", "far/part/file": ""}
    (outside / "back").symlink_to(outside)
    with pytest.raises(ValueError, match="leads back"):
        list(archives.entries_of(folder, lambda name: True))
