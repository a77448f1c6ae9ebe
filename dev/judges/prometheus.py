#!/usr/bin/env python3
"""The metrics of `eyas web`, its alert rules and its dashboard, with a real Prometheus.

`promtool` checks the metrics and the rules, and that each rule fires when it has to
(`prometheus_rules.yaml`). A Prometheus scrapes a cluster that runs tasks, in the
format that it prefers, and answers the query of each rule and of each panel. When the dispatcher is
killed, the alert of it fires.

Needs Debian's package `prometheus`, and the debug build (or EYAS_BIN). What is missing is skipped,
which is said; with CI=true, that is a failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 60
# Metrics without values here: the cluster has no pools.
OF_POOLS = "eyas_pool_"
CONFIGURATION = """
global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: eyas
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ['{target}']}}]
"""


class JudgedError(Exception):
    """What Prometheus does not accept."""


def eyas() -> str:
    target = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target")
    return os.environ.get("EYAS_BIN") or str(target / "debug" / "eyas")


def wait_until(what: str, is_so: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            if found := is_so():
                return found
        time.sleep(0.1)
    raise JudgedError(f"{what}: not within {DEADLINE_S} s")


@contextlib.contextmanager
def running(words: list[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(words, text=True, **more)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def promtool(words: list[str], text: str | None = None) -> None:
    command = ["promtool", *words]
    ended = subprocess.run(command, check=False, input=text, text=True, capture_output=True)
    if ended.returncode:
        raise JudgedError(f"promtool {' '.join(words)}: {ended.stdout}{ended.stderr}")
    print(f"promtool {' '.join(words[:2])}: accepted")


def get(url: str, token: str | None = None) -> str:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        return str(answer.read().decode())


class Prometheus:
    """A Prometheus that has started."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, path: str, **query: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        answer = json.loads(get(url))
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, query: str) -> list[Any]:
        return list(self.ask("query", query=query)["result"])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def queries_of_rules(prometheus: Prometheus) -> dict[str, str]:
    groups = prometheus.ask("rules")["groups"]
    return {rule["name"]: rule["query"] for group in groups for rule in group["rules"]}


def queries_of_panels(dashboard: str) -> list[tuple[str, str]]:
    found = []
    for panel in json.loads(dashboard)["panels"]:
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "10s").replace("$instance", ".*")
            found.append((panel["title"], query))
    return found


def judge(folder: Path, stack: contextlib.ExitStack) -> None:
    environment = {**os.environ, "EYAS_HOME": str(folder / "home")}
    environment.pop("EYAS_ACCESS", None)

    words = [eyas(), "start", "local", "--nodes", "2", "--cluster", "default"]
    out = subprocess.PIPE
    cluster = stack.enter_context(running(words, env=environment, cwd=folder, stdout=out))
    assert cluster.stdout and cluster.stdout.readline(), "the cluster does not start"
    words = [eyas(), "web", "--cluster", "default"]
    web = stack.enter_context(running(words, env=environment, cwd=folder, stdout=out))
    assert web.stdout
    said = re.search(r"http://([^/]+)/\?token=(\S+)", web.stdout.readline())
    assert said, "eyas web prints its URL"
    target, token = said.groups()
    (folder / "token").write_text(token)
    rules = get(f"http://{target}/monitoring/alerts.yaml", token)
    dashboard = get(f"http://{target}/monitoring/dashboard.json", token)
    (folder / "alerts.yaml").write_text(rules)
    promtool(["check", "rules", str(folder / "alerts.yaml")])
    shutil.copy(PROJECT / "dev/judges/prometheus_rules.yaml", folder / "tests.yaml")
    promtool(["test", "rules", str(folder / "tests.yaml")])
    # Prometheus waits minutes before a rule fires; here a second is enough.
    (folder / "rules.yaml").write_text(re.sub(r"for: \d+m", "for: 1s", rules))
    (folder / "input").write_text("content\n" * 1000)
    script = "cat input >&2; sleep 0.05; exit $(({} % 10 == 0))"
    job = [eyas(), "run", "-i", str(folder / "input"), "--array", "1-200", "--", "sh", "-c", script]
    quiet = subprocess.DEVNULL
    stack.enter_context(
        running(job, env=environment, cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet)
    )
    promtool(["check", "metrics"], get(f"http://{target}/metrics", token))

    address = f"127.0.0.1:{free_port()}"
    configuration = CONFIGURATION.format(token=folder / "token", target=target)
    (folder / "prometheus.yml").write_text(configuration)
    words = ["prometheus", f"--config.file={folder / 'prometheus.yml'}"]
    words += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("w") as log:
        process = stack.enter_context(running(words, stderr=log, stdout=log))
    prometheus = Prometheus(address)
    log = folder / "prometheus.log"

    def has_scraped() -> bool:
        if process.poll() is not None:
            raise JudgedError(f"Prometheus has ended: {log.read_text()[-2000:]}")
        return bool(prometheus.values("eyas_dispatcher_up == 1"))

    wait_until("Prometheus has scraped", has_scraped)
    wait_until("tasks have ended", lambda: prometheus.values("eyas_tasks_ended_total >= 180"))
    wait_until("rates are known", lambda: prometheus.values("rate(eyas_inputs_total[10s]) > 0"))
    for name, query in queries_of_rules(prometheus).items():
        prometheus.values(query)
        print(f"rule {name}: answered")
    for title, query in queries_of_panels(dashboard):
        if not prometheus.values(query) and OF_POOLS not in query:
            raise JudgedError(f"panel {title} shows nothing: {query}")
        print(f"panel {title}: answered")
    assert not prometheus.values('ALERTS{alertname="EyasDispatcherDown"}')
    cluster.send_signal(signal.SIGKILL)
    fires = 'ALERTS{alertname="EyasDispatcherDown",alertstate="firing"}'
    wait_until("the alert of the dispatcher fires", lambda: prometheus.values(fires))
    print("the dispatcher was killed: EyasDispatcherDown fires")


def main() -> int:
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    if missing:
        print(f"SKIPPED: {', '.join(missing)}: not installed", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    folder = Path(tempfile.mkdtemp(prefix="eyas-prometheus-"))
    try:
        with contextlib.ExitStack() as stack:
            judge(folder, stack)
    except JudgedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        # The executors of the killed dispatcher end a little later.
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
