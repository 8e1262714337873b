"""A real Chromium without a window, driven by the DevTools protocol: what a page's tests need.

https://chromedevtools.github.io/devtools-protocol
"""

import json
import shutil
import subprocess
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path

from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 30.0  # seconds until something that has to come is given up


def executable() -> str:
    """Where Chromium is."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found is not None, (
        f"none of {', '.join(NAMES)} is on PATH: reports are tested in a real browser; install it, "
        "on Debian with 'apt-get install chromium'"
    )
    return found


@contextmanager
def browser(folder: Path):
    """Start one, with its profile in a folder; gives a function that opens pages."""
    profile = folder / "profile"
    command = [
        executable(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pages = []
    try:
        port = int(_waited(lambda: _port(profile / "DevToolsActivePort")))

        def opened(path: Path, **how) -> "Page":
            pages.append(Page(port, path, **how))
            return pages[-1]

        yield opened
    finally:
        for page in pages:
            page.close()
        process.terminate()
        process.wait(PATIENCE)


class Page:
    """A tab."""

    def __init__(
        self, port: int, path: Path, width: int = 1280, dark: bool = False, still: bool = True
    ) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/json/new?about:blank", method="PUT"
        )
        with urllib.request.urlopen(request) as answer:
            target = json.load(answer)
        self._stack = ExitStack()
        url = target["webSocketDebuggerUrl"]
        self._socket = self._stack.enter_context(connect(url, max_size=None, open_timeout=PATIENCE))
        self._count = 0
        self.complaints: list[str] = []
        self.requests: list[str] = []
        for domain in ("Runtime", "Page", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        self.send("Emulation.setScrollbarsHidden", hidden=True)
        self.prefer(dark, still)
        self.send("Page.navigate", url=path.as_uri())
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")

    def prefer(self, dark: bool, still: bool = True) -> None:
        """Set what the reader prefers."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        self.send("Emulation.setEmulatedMedia", features=features)

    def send(self, method: str, **parameters) -> dict:
        """Send a command and return its result; note what the page complains of meanwhile."""
        self._count += 1
        self._socket.send(json.dumps({"id": self._count, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv(timeout=PATIENCE))
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict) -> None:
        told = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"])[:2000])
        elif event["method"] == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
            self.complaints.append(json.dumps(told["args"])[:2000])
        elif event["method"] == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(json.dumps(told["entry"])[:2000])
        elif event["method"] == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])

    def run(self, expression: str):
        """Return what an expression of JavaScript is."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, json.dumps(answer["exceptionDetails"])[:2000]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        _waited(lambda: self.run(expression))

    def text(self, selector: str) -> str:
        """Return the text of an element."""
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def click(self, selector: str) -> None:
        """Click on the middle of an element."""
        self.drag(selector, [(0.5, 0.5)])

    def drag(self, selector: str, places: list[tuple[float, float]]) -> None:
        """Press the mouse at the first place, move over the others, and let go."""
        self.send("Page.bringToFront")  # a tab behind others waits seconds for each event
        code = (
            f"(() => {{const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]})()"
        )
        x, y, width, height = self.run(code)
        points = [(x + across * width, y + down * height) for across, down in places]
        self._mouse("mousePressed", *points[0])
        for point in points[1:]:
            self._mouse("mouseMoved", *point)
        self._mouse("mouseReleased", *points[-1])

    def _mouse(self, kind: str, x: float, y: float) -> None:
        self.send(
            "Input.dispatchMouseEvent",
            type=kind, x=x, y=y, button="left", buttons=1, clickCount=1,
        )  # fmt: skip

    def press(self, key: str) -> None:
        """Press a key, such as Tab, ArrowUp or Enter."""
        own = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
               "ArrowDown": 40}[key]  # fmt: skip
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key, windowsVirtualKeyCode=own,
                **(text if kind == "keyDown" else {}),
            )  # fmt: skip

    def close(self) -> None:
        """Close the connection."""
        self._stack.close()


def _port(path: Path) -> str | None:
    lines = path.read_text().splitlines() if path.exists() else []
    return lines[0] if len(lines) > 1 else None


def _waited(happened):
    """Return what a function returns as soon as that is something."""
    end = time.monotonic() + PATIENCE
    while not (found := happened()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
    return found
