"""A headless Chromium driven over its debugging pipe with the standard library alone."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe"),
)
# The browser reads commands from descriptor 3 and writes answers to 4; both may be taken in this process.
LAUNCH = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(commands, 3), os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """The path of a Chromium, if one is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab; every event that arrives is kept."""

    def __init__(self, program: str, profile: Path, seconds: float = 60.0) -> None:
        self.deadline = time.monotonic() + seconds
        self.events: list[dict] = []
        self._number, self._rest = 0, b""
        theirs_in, self._commands = os.pipe()
        self._answers, theirs_out = os.pipe()
        self._errors = (profile.parent / "browser.log").open("w+b")
        command = [sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out)]
        self._process = subprocess.Popen(
            [*command, program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._commands)  # the browser ends with its pipe
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)
        self._errors.close()

    def open(self, address: str) -> None:
        """Load a page to the end."""
        self.call("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def evaluate(self, script: str) -> object:
        """The value of a JavaScript expression, as JSON carries it; promises are waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def call(self, method: str, **parameters: object) -> dict:
        """Send a command and wait for its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self) -> dict:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, self.deadline - time.monotonic()))
            data = os.read(self._answers, 1 << 20) if ready else b""
            if not data:
                self._errors.seek(0)
                log = self._errors.read().decode(errors="replace")[-2000:]
                raise TimeoutError(f"no answer from the browser; its log ends in:\n{log}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message
