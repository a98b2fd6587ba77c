"""What docs/service.md says to type, asked of a service; and the files that it offers for putting it to use."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from threading import Thread

import pytest
import uvicorn

import knnmt
from knnmt.cli.serve import serve
from knnmt.service import child_process
from knnmt.service.config import ServiceConfig, read_config
from knnmt.service.http.app import make_app
from knnmt.service.service import Service
from support import ROOT, warm
from support.our_files import write_files
from support.pages import blocks, commands, compare

PAGE = ROOT / "docs/service.md"
DEPLOY = ROOT / "deploy"
pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a service as the page starts it."""
    monkeypatch.setattr(child_process, "start_process", warm.Popen)
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    knnmt.build("projekt.tmx", "projekt.store", device="cpu")
    config = ServiceConfig(stores={"software": tmp_path / "projekt.store"}, data=tmp_path / "served")
    listening = socket.create_server(("127.0.0.1", 0))
    with knnmt.Translator(device="cpu") as translator:
        server = uvicorn.Server(uvicorn.Config(make_app(Service(config, translator)), log_config=None))
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_what_the_guide_says_to_type_works(address: str) -> None:
    tried = 0
    for block in blocks(PAGE):
        place = f"docs/service.md, line {block.line}"
        for command in commands(block) if block.language == "console" else ():
            if command.text.startswith("curl "):
                typed = command.text.replace("127.0.0.1:8500", address)
                said = subprocess.run(["bash", "-c", typed], capture_output=True, text=True, check=True).stdout
                compare(command.output, said, place)
                tried += 1
        if block.language == "python":
            with redirect_stdout(StringIO()) as printed:
                exec(block.text.replace("127.0.0.1:8500", address), {})
            compare(re.findall(r"# → (.+)$", block.text, re.MULTILINE), printed.getvalue(), place)
            tried += 1
    assert tried >= 6


def test_the_offered_settings_are_settings(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "serve.toml", tmp_path)
    config = read_config(tmp_path / "serve.toml", {})
    assert (config.data, config.keys, config.host) == (tmp_path / "data", tmp_path / "keys.json", "127.0.0.1")
    assert config.stores == {"software": tmp_path / "software.store"}
    proxied = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert f"proxy_pass http://127.0.0.1:{config.port};" in proxied
    assert f"proxy_read_timeout {config.limits.wait_seconds + 10:.0f}s;" in proxied
    assert config.limits.upload_bytes == 1 << 30  # 1g there
    assert f"reverse_proxy 127.0.0.1:{config.port} " in (DEPLOY / "Caddyfile").read_text(encoding="utf-8")


def test_the_image_is_made_with_care() -> None:
    """What hadolint looks for, as far as it can go wrong here; it is asked itself, too, where there is one."""
    path = DEPLOY / "Dockerfile"
    joined = re.sub(r"\\\n\s*", "", path.read_text(encoding="utf-8"))
    steps = [line.split(maxsplit=1) for line in joined.splitlines() if line and not line.startswith("#")]
    of_kind = {kind: [rest for name, rest in steps if name == kind] for kind, _ in steps}
    assert all(re.fullmatch(r"[\w./-]+:\d[\w.-]*( AS \w+)?", each) for each in of_kind["FROM"]), "a version is named"
    assert "ADD" not in of_kind
    for run in of_kind["RUN"]:
        assert "apt-get install" not in run or ("--no-install-recommends" in run and "rm -rf /var/lib/apt" in run)
        assert "pip install" not in run or ("--no-cache-dir" in run and "--constraint" in run)
    kinds = [name for name, _ in steps]
    last = len(kinds) - kinds[::-1].index("FROM")
    assert of_kind["USER"] == ["10001"]
    assert "USER" in kinds[last:]
    for each in (*of_kind["ENTRYPOINT"], *of_kind["CMD"]):
        assert each.startswith("["), "as words, so that signals reach the service"
    for copied in of_kind["COPY"]:
        sources = [] if copied.startswith("--from") else copied.split()[:-1]
        assert all((ROOT / each).exists() for each in sources)
        assert all(f"!{each}" in (DEPLOY / "Dockerfile.dockerignore").read_text().split() for each in sources)
    options = re.findall(r'"(--[a-z-]+)"', of_kind["CMD"][0])
    assert {each[2:].replace("-", "_") for each in options} <= set(serve.__annotations__)
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    if hadolint := shutil.which("hadolint", path=places):
        subprocess.run([hadolint, path], check=True)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "knnmt.service").read_text(encoding="utf-8").replace("/opt/knnmt/bin/knnmt", "/bin/true")
    (tmp_path / "knnmt.service").write_text(unit, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "knnmt.service"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
