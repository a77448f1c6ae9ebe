"""Starts a cluster with AstroPortal, and has it judged: see `portal.sh`."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path

import numpy
import pyvo
import requests
from astropy.io import fits
from pyvo.dal.adhoc import DatalinkResults
from pyvo.dal.tap import AsyncTAPJob

HERE = Path(__file__).resolve().parent
PROGRAMS = Path(os.environ["PORTAL_PROGRAMS"])
EYAS = os.environ["EYAS_BIN"]
DEADLINE_S = 120
SUITE = "ca.nrc.cadc.conformance.uws"
# Cases of OpenCADC's suite that are about its own services.
EXCLUDED = {
    "ParametersTest": "sets a parameter of any name; here, unknown ones are refused",
    "ShutdownCommandTest": "has a phase SHUTDOWN, which UWS does not have",
    "PrivateJobListTest": "wants no list of jobs for anybody; here, each account has its own",
    "JobInfoTest": "posts a document in XML, which is a job of other services",
}
CASES = [
    "EmptyJobListTest",
    "JobTest",
    "JobIdTest",
    "GetPhaseTest",
    "DestructionTest",
    "ExecutionDurationTest",
    "QuoteTest",
    "OwnerTest",
    "ResultsTest",
    "ErrorTest",
    "SchemaTest",
]
EDGE = 40


class Site:
    """A cluster of two nodes, its web, a survey, and the portal, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        self.environment = os.environ | {"EYAS_HOME": str(folder / "home"), "TMPDIR": str(folder)}
        self.eyas(
            "start", "local", "--cluster", "judged", "--nodes", "2", "--slots", "1", "--detach"
        )
        web = self.start([EYAS, "web", "--cluster", "judged"], "eyas web: ").split("/?")[0]
        made = self.eyas(
            "web", "token", "create", "--cluster", "judged", "--scope", "submit", "portal"
        )
        (folder / "token").write_text(made)
        self.run(
            PROGRAMS / "survey",
            "--out",
            "sky",
            "--frames",
            "12",
            "--objects",
            "60",
            "--size",
            "400x300",
        )
        self.run(PROGRAMS / "stack", "index", "frames", "--out", "index", cwd=folder / "sky")
        (folder / "surveys.toml").write_text(
            '[[survey]]\nname = "sky"\ntitle = "A survey for practice"\nindex = "sky/index"\n'
            "pixel_scale = 0.396\nquota = 100000\n"
        )
        serve = [str(PROGRAMS / "astroportal"), "serve", "--eyas", web, "--token-file", "token"]
        serve += ["--surveys", "surveys.toml", "--state", "state", "--work", "work"]
        self.url = self.start([*serve, "--allow-host", "localhost"], "astroportal: ").rstrip("/")

    def run(self, *words: str | Path, cwd: Path | None = None, text: str = "") -> str:
        command = [str(word) for word in words]
        done = subprocess.run(
            command,
            cwd=cwd or self.folder,
            env=self.environment,
            input=text,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout

    def eyas(self, *words: str) -> str:
        return self.run(EYAS, *words)

    def start(self, command: list[str], begins: str) -> str:
        """Starts a process. Returns the rest of the line with which it is ready."""
        log = (self.folder / "log").open("a")
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(begins), f"{command}: {line} {(self.folder / 'log').read_text()}"
        return line.removeprefix(begins).strip()

    def account(self, name: str) -> str:
        """Adds an account. Returns a token of it."""
        portal = PROGRAMS / "astroportal"
        self.run(portal, "account", "add", name, "--state", "state", text=f"password of {name}\n")
        return self.run(portal, "account", "token", name, "--state", "state").strip()

    def positions(self) -> str:
        lines = (self.folder / "sky" / "objects.csv").read_text().splitlines()
        return "".join(",".join(line.split(",")[:2]) + "\n" for line in lines)

    def end(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        self.eyas("stop", "--cluster", "judged")


class Passing(http.server.BaseHTTPRequestHandler):
    """Passes requests on to the portal with a token, which the suite of UWS cannot send."""

    protocol_version = "HTTP/1.1"
    portal = ""
    token = ""

    def pass_on(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length) if length else None
        connection = http.client.HTTPConnection(self.portal, timeout=DEADLINE_S)
        headers = {
            name: value for name, value in self.headers.items() if name.lower() != "connection"
        }
        connection.request(
            self.command, self.path, body, headers | {"Authorization": f"Bearer {self.token}"}
        )
        answer = connection.getresponse()
        content = answer.read()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = do_HEAD = pass_on

    def handle(self) -> None:
        # The suite leaves its connections open, and ends.
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *words: object) -> None:
        del format, words


def suite_of_uws(site: Site) -> None:
    """OpenCADC's cases, with the schema of UWS 1.1, which its library has: the suite takes 1.0."""
    jars = Path(os.environ["PORTAL_JARS"])
    schemas = site.folder / "schemas"
    schemas.mkdir()
    library = next(jars.glob("cadc-uws-*.jar"))
    with zipfile.ZipFile(library) as archive:
        (schemas / "UWS-v1.0.xsd").write_bytes(archive.read("UWS-v1.1.xsd"))
        (schemas / "XLINK.xsd").write_bytes(archive.read("XLINK.xsd"))
    properties = site.folder / "properties"
    properties.mkdir()
    positions = site.positions().splitlines()[1].replace(",", " ")
    (properties / "ResultsTest.properties").write_text(
        f"SURVEY=sky\nSIZE={EDGE}\nPOSITIONS={positions}\n"
    )
    (properties / "ErrorTest.properties").write_text("SURVEY=sky\nPOSITIONS=10 80\n")
    Passing.portal, Passing.token = site.url.removeprefix("http://"), site.account("cadc")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Passing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = ["java", f"-Dservice.url=http://localhost:{server.server_port}/async"]
    command += [
        f"-Dproperties.directory={properties}",
        "-cp",
        f"{schemas}:{jars}/*",
        "org.junit.runner.JUnitCore",
    ]
    command += [f"{SUITE}.{case}" for case in CASES]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    server.shutdown()
    said = [line for line in done.stdout.splitlines() if not line.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(said)
    count = next(line for line in said if line.startswith("OK"))
    print(f"ok      OpenCADC's suite of UWS: {count}; excluded: {', '.join(EXCLUDED)}")


def session_of(token: str) -> requests.Session:
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {token}"
    return session


def client_of_the_observatory(site: Site) -> None:
    """pyvo creates, waits, reads and deletes; astropy reads the image."""
    session = session_of(site.account("pyvo"))
    values = {"SURVEY": "sky", "SIZE": EDGE, "PHASE": "RUN"}
    files = {"POSITIONS": ("list.csv", site.positions() + "10,80\n")}
    created = session.post(f"{site.url}/async", data=values, files=files)
    job = AsyncTAPJob(created.url, session=session)
    job.wait(timeout=DEADLINE_S)
    assert job.phase == "COMPLETED", job.phase
    statistics = {row["name"]: row["value"] for row in job.fetch_result()}
    assert (statistics["stacked"], statistics["not_found"]) == ("60", "1"), statistics
    links = {
        link.content_type: link
        for link in DatalinkResults.from_result_url(
            f"{site.url}/links?ID={job.job_id}", session=session
        )
    }
    image = site.folder / "image.fits"
    image.write_bytes(session.get(links["image/fits"].access_url).content)
    with fits.open(image) as opened:
        opened.verify("exception")
        data = opened[0].data
    assert data.shape == (EDGE, EDGE) and numpy.isfinite(data).all()
    assert data[EDGE // 2, EDGE // 2] > 4 * data[: EDGE // 4].std(), "the source is in the middle"
    waiting = AsyncTAPJob(
        session.post(f"{site.url}/async", data={"RUNID": "waits"}).url, session=session
    )
    waiting.execution_duration = 77
    assert (float(str(waiting.execution_duration)), str(waiting.owner)) == (77.0, "pyvo")
    waiting.abort()
    assert waiting.phase == "ABORTED"
    waiting.delete()
    documents = {
        "report.vot": f"{created.url}/results/result",
        "links.vot": f"{site.url}/links?ID={job.job_id}&ID=none",
    }
    for name, url in documents.items():
        (site.folder / name).write_bytes(session.get(url).content)
    print(f"ok      pyvo {pyvo.__version__} as a client, and astropy")
    if shutil.which("stilts") is None:
        skip("stilts is missing; on Debian: apt-get install stilts")
    else:
        for name in documents:
            lint(["stilts", "votlint", f"votable={site.folder / name}"])
        lint(["stilts", "datalinklint", f"votable={site.folder / 'links.vot'}"])
        print("ok      stilts votlint and datalinklint")
    job.delete()
    assert session.get(created.url).status_code == 404


def the_guide_in_python(site: Site) -> None:
    """The lines of Python in the README, as they stand there."""
    page = (HERE.parent / "apps" / "stacking" / "portal" / "README.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    (site.folder / "ada.token").write_text(site.account("guide"))
    (site.folder / "guide.py").write_text(f"url = {site.url!r}\n{code}")
    printed = site.run(sys.executable, "guide.py")
    assert "signal_to_noise" in printed, printed
    with fits.open(site.folder / "stacked.fits") as opened:
        assert opened[0].data.shape == (60, 60)
    print("ok      the lines of Python in the README")


def lint(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    said = (done.stdout + done.stderr).splitlines()
    wrong = [line for line in said if line.startswith(("E-", "W-", "ERROR", "WARNING"))]
    assert done.returncode == 0 and not wrong, "\n".join([*command, *said])


def pages(site: Site, pictures: list[str]) -> None:
    site.account("ada")
    site.account("bob")
    environment = os.environ | {"PORTAL_URL": site.url, "PORTAL_POSITIONS": site.positions()}
    command = ["node", str(HERE / "web" / "portal.mjs"), *pictures]
    done = subprocess.run(command, check=False, env=environment)
    assert done.returncode == 0, "the pages have failed"


def skip(why: str) -> None:
    print(f"SKIPPED: AstroPortal: {why}", file=sys.stderr)
    assert not os.environ.get("CI"), why


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="eyas-portal-"))
    site = Site(folder)
    began = time.monotonic()
    try:
        if os.environ["PORTAL_JARS"]:
            suite_of_uws(site)
        client_of_the_observatory(site)
        the_guide_in_python(site)
        if os.environ["EYAS_CHROMIUM"]:
            pages(site, sys.argv[1:])
        print(f"AstroPortal was judged in {time.monotonic() - began:.0f} s")
    finally:
        site.end()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
