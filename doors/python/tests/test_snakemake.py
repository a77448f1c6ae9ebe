"""Snakemake with jobs on eyas."""

import logging
import os
import pathlib
import signal
import subprocess
import sys
import time
import types
from unittest import mock

import pytest

pytest.importorskip("snakemake")

#: Seconds after which a test fails.
DEADLINE_S = 120.0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("EYAS_ACCESS", "EYAS_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def snakemake(*words, code=0):
    """Run a workflow, and return what it prints."""
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--executor",
        "eyas",
        "--jobs",
        "4",
        "--nocolor",
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    text = done.stdout + done.stderr
    assert done.returncode == code, text
    return text


def test_scatter_and_gather(folder):
    """Shell, script and run, checkpoints, and variables. A success leaves no log."""
    pathlib.Path("Snakefile").write_text(
        """
import os
envvars: "GREETING"
rule all:
    input: "sum.txt", "by_script.txt", "by_run.txt", "seen.txt"
rule numbers:
    output: "in/{i}.txt"
    shell: "echo {wildcards.i} > {output}"
rule square:
    input: "in/{i}.txt"
    output: "out/{i}.txt"
    threads: 64
    resources: mem_mb=100, runtime=10
    shell: "echo $(( $(cat {input}) * $(cat {input}) )) > {output}"
rule gather:
    input: expand("out/{i}.txt", i=range(5))
    output: "sum.txt"
    shell: "cat {input} > {output}; echo \\"$GREETING\\" >> {output}"
rule by_script:
    input: "sum.txt"
    output: "by_script.txt"
    script: "count.py"
rule by_run:
    input: "sum.txt"
    output: "by_run.txt"
    run:
        with open(output[0], "w") as file:
            print(len(open(input[0]).readlines()), file=file)
checkpoint split:
    output: directory("parts")
    conda: "never.yaml"
    container: "docker://never"
    shell: "mkdir {output}; echo x > {output}/x; echo y > {output}/y"
rule see:
    input: "parts/{part}"
    output: "seen/{part}.txt"
    shell: "cp {input} {output}"
def seen(wildcards):
    return expand("seen/{part}.txt", part=sorted(os.listdir(checkpoints.split.get().output[0])))
rule all_seen:
    input: seen
    output: "seen.txt"
    shell: "cat {input} > {output}"
"""
    )
    # Without --software-deployment-method, environments are only read.
    pathlib.Path("never.yaml").write_text("dependencies: []\n")
    pathlib.Path("count.py").write_text(
        "open(snakemake.output[0], 'w').write(open(snakemake.input[0]).read())\n"
    )
    os.environ["GREETING"] = 'two words, a $sign and a "quote"'
    try:
        snakemake()
    finally:
        del os.environ["GREETING"]
    lines = pathlib.Path("sum.txt").read_text().splitlines()
    assert lines == ["0", "1", "4", "9", "16", 'two words, a $sign and a "quote"']
    assert pathlib.Path("by_script.txt").read_text().splitlines() == lines
    assert pathlib.Path("seen.txt").read_text() == "x\ny\n"
    assert pathlib.Path("by_run.txt").read_text() == "6\n"
    assert not [path for path in pathlib.Path(".snakemake/eyas_logs").rglob("*") if path.is_file()]


def test_groups(folder):
    """Jobs of a group are one call."""
    # Without a checkpoint: Snakemake joins groups again after one, and then loses those that run.
    pathlib.Path("Snakefile").write_text(
        """
rule all:
    input: "sum.txt"
rule numbers:
    output: "in/{i}.txt"
    group: "numbers"
    shell: "echo {wildcards.i} > {output}"
rule gather:
    input: expand("in/{i}.txt", i=range(5))
    output: "sum.txt"
    shell: "cat {input} > {output}"
"""
    )
    snakemake("--group-components", "numbers=3")
    assert pathlib.Path("sum.txt").read_text().split() == ["0", "1", "2", "3", "4"]


def test_failure(folder):
    """A failure shows what the job has printed, and where. Snakemake retries it."""
    pathlib.Path("Snakefile").write_text(
        """
rule fails:
    output: "never.txt"
    shell: "echo attempt >> attempts.txt; echo the-reason >&2; exit 3"
"""
    )
    text = snakemake("--retries", "2", code=1)
    assert len(pathlib.Path("attempts.txt").read_text().splitlines()) == 3
    assert "the-reason" in text and " on n1" in text and "Task " in text, text
    logs = list(pathlib.Path(".snakemake/eyas_logs/fails").iterdir())
    assert "the-reason" in logs[0].read_text() and str(logs[0].resolve()) in text


def test_resources():
    """Resources of a job are options of its call."""
    from snakemake_executor_plugin_eyas._resources import options_of

    resources = {
        "mem_mb": 300,
        "runtime": 2,
        "gpu": 1,
        "eyas_requirements": 'node.name == "n1"',
        "tmpdir": "/tmp",
    }
    job = types.SimpleNamespace(threads=8, resources=resources, priority=7)
    expected = {"memory": 500_000_000, "timeout": 120.0, "gpus": 1, "priority": 7}
    assert options_of(job, None) == {"cpus": 8.0, "requirements": 'node.name == "n1"', **expected}
    assert options_of(job, 2.0)["cpus"] == 2.0
    assert options_of(types.SimpleNamespace(threads=0, resources={}), None) == {"cpus": 1.0}


def test_later_attempts_ask_for_more(folder):
    """The memory of a job is enforced, and a later attempt may have more."""
    pathlib.Path("Snakefile").write_text(
        """
rule large:
    output: "large.txt"
    retries: 1
    resources: mem_mb=lambda wildcards, attempt: 50 + 400 * (attempt - 1)
    shell:
        "head -c 400000000 /dev/zero | tail -c 400000000 > /dev/null; "
        "echo {resources.mem_mb} > {output}"
"""
    )
    snakemake()
    assert pathlib.Path("large.txt").read_text() == "450\n"


def test_unknown_cluster(folder):
    pathlib.Path("Snakefile").write_text('rule a:\n    output: "a"\n    shell: "touch {output}"\n')
    text = snakemake("--eyas-access", "nowhere.toml", code=1)
    assert "nowhere.toml" in text and "Traceback" not in text
    assert "--eyas-inputs is 'node' or 'shared'" in snakemake("--eyas-inputs", "here", code=1)


def test_interrupt(folder):
    """An interrupt ends jobs that run, and their processes."""
    pathlib.Path("Snakefile").write_text(
        """
rule endless:
    output: "endless.txt"
    shell: "echo $$ > process.txt; exec sleep 1000"
"""
    )
    command = [sys.executable, "-m", "snakemake", "--executor", "eyas", "--jobs", "1"]
    with subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        deadline = time.monotonic() + DEADLINE_S
        written = pathlib.Path("process.txt")
        while not (written.exists() and written.read_text().strip()):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 1
    assert not pathlib.Path(f"/proc/{written.read_text().strip()}").exists()


def test_copies_of_inputs(folder):
    """Jobs see copies of their inputs under the same paths, read-only. Other files are those of the
    folder.
    """
    pathlib.Path("shared.txt").write_text("shared\n")
    pathlib.Path("state.txt").write_text("0\n")
    device = os.stat("shared.txt")
    pathlib.Path("Snakefile").write_text(
        """
rule all:
    input: expand("out/{i}.txt", i=range(4)), "updated.txt"
rule step:
    input: "shared.txt"
    output: "out/{i}.txt"
    shell:
        "(stat -c %i {input}; cat {input}; echo x 2> /dev/null > {input} || echo kept) > {output}"
rule neighbour:
    input: expand("out/{i}.txt", i=range(4))
    output: "updated.txt"
    shell: "cat {input} state.txt > {output}"
"""
    )
    snakemake("--eyas-inputs", "node", "--eyas-nodes", "2", "--cores", "2")
    inodes = {pathlib.Path(f"out/{number}.txt").read_text().split()[0] for number in range(4)}
    assert len(inodes) <= 2, "a node has more than one copy"
    for number in range(4):
        inode, text, kept = pathlib.Path(f"out/{number}.txt").read_text().splitlines()
        assert (text, kept) == ("shared", "kept")
        assert int(inode) != device.st_ino
    assert pathlib.Path("shared.txt").read_text() == "shared\n"
    assert pathlib.Path("updated.txt").read_text().endswith("kept\n0\n")


def test_files_of_the_cluster(folder):
    """Inputs and outputs are files of the cluster. Jobs get the copies that their nodes have."""
    pytest.importorskip("fsspec")
    from eyas.fs import EyasFileSystem
    from files_cluster import files_cluster

    pathlib.Path("Snakefile").write_text(
        """
NAMES = glob_wildcards(storage.eyas("eyas:///in/{name}.txt")).name
rule all:
    input: "sum.txt"
rule step:
    input: storage.eyas("eyas:///in/{name}.txt")
    output: "out/{name}.txt"
    shell: "(stat -c %h {input}; cat {input}) > {output}"
rule gather:
    input: expand("out/{name}.txt", name=NAMES)
    output: "sum.txt"
    shell: "cat {input} > {output}"
"""
    )
    with files_cluster() as access:
        files = EyasFileSystem(access=str(access))
        for name in "abc":
            files.pipe_file(f"/in/{name}.txt", name.encode() + b"\n")
        words = ["--eyas-access", str(access), "--storage-eyas-access", str(access)]
        words += ["--default-storage-provider", "eyas", "--default-storage-prefix", "eyas:///flow"]
        words += [
            "--shared-fs-usage",
            "persistence",
            "software-deployment",
            "source-cache",
            "sources",
        ]
        snakemake(*words)
        lines = files.cat_file("/flow/sum.txt").decode().split()
        assert lines[1::2] == ["a", "b", "c"]
        # The copy is the one of the node, without another one of its bytes.
        assert all(int(links) > 1 for links in lines[::2])
        assert "Nothing to be done" in snakemake(*words)


def test_folders_of_the_cluster(tmp_path):
    """A folder is stored with what its links lead to. Its name is no pattern, and it replaces the
    old folder whole.
    """
    pytest.importorskip("fsspec")
    from files_cluster import files_cluster
    from snakemake_interface_common.exceptions import WorkflowError
    from snakemake_storage_plugin_eyas import StorageProvider, StorageProviderSettings

    with files_cluster() as access:
        provider = StorageProvider(
            local_prefix=tmp_path / "local",
            logger=logging.getLogger("test"),
            settings=StorageProviderSettings(access=str(access)),
        )
        neighbour, stored = (
            provider.object("eyas:///out/run1"),
            provider.object("eyas:///out/run[1]"),
        )
        for of in (neighbour, stored):
            (of.local_path() / "parts").mkdir(parents=True)
            (of.local_path() / "parts" / "a").write_text("a")
            (of.local_path() / "latest").symlink_to("parts")
            of.store_object()
        assert sorted(stored._below()) == ["/out/run[1]/latest/a", "/out/run[1]/parts/a"]
        (stored.local_path() / "latest").unlink()
        stored.store_object()
        assert list(stored._below()) == ["/out/run[1]/parts/a"]
        with mock.patch.object(
            stored.files, "mv", side_effect=[None, ConnectionError("lost"), None]
        ) as moves:
            with pytest.raises(ConnectionError):
                stored.store_object()
        (_, aside), (_, _), (back, to) = (call.args for call in moves.call_args_list)
        assert (back, to) == (aside, stored.path), "the old folder has its name again"
        (stored.local_path() / "parts" / "round").symlink_to(stored.local_path())
        with pytest.raises(WorkflowError, match="leads back"):
            stored.store_object()
        names = {
            name.rsplit("/", 1)[1].split(".")[0] for name in stored.files.ls("/out", detail=False)
        }
        assert names == {"run1", "run[1]"}
        stored.remove()
        stored.remove()
        assert neighbour.exists() and not stored.exists()


def test_a_mount_that_fails():
    """It says why jobs cannot see copies in place of inputs."""
    from snakemake_executor_plugin_eyas import _job

    show = (
        "import sys; from snakemake_executor_plugin_eyas import _job; "
        "print(_job._show_copies([sys.argv[1:]]))"
    )
    text = subprocess.check_output([sys.executable, "-c", show, "/nowhere", __file__], text=True)
    assert "mount: No such file or directory" in text
    assert _job._show_copies([]) == ""
