"""Pictures of pages and of terminals, as small PNG files."""

from __future__ import annotations

import base64
import fcntl
import html
import io
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.fixtures.browser import Browser

_COLOURS: Final = 128
_HOME: Final = "\x1b[H"
_NO_COLOUR: Final = re.compile(r"\x1b\[[\d;?]*[^\d;?m]")
_TERMINAL: Final = """\
<!doctype html><meta charset=utf-8><style>
body {{ margin: 0; background: #16181d; color: #e4e7ec; }}
pre {{ margin: 1rem; font: 14px/17px "DejaVu Sans Mono", monospace; width: max-content; }}
</style><pre>{}</pre>"""


@dataclass(frozen=True)
class Camera:
    """Takes pictures of what a browser shows.

    folder: Where the pictures are written.
    """

    browser: Browser
    folder: Path

    def take(self, name: str, url: str, size: tuple[int, int], scheme: str = "light") -> None:
        """Open a page and take a picture."""
        self.browser.open(url, width=size[0], scheme=scheme)
        self.keep(name, size)

    def keep(self, name: str, size: tuple[int, int]) -> None:
        """Write what the browser shows now."""
        from PIL import Image

        window = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", window)
        # No bar at the side: what is beside the window is no part of the picture.
        self.browser.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        self.browser.run("return document.fonts.ready.then(() => true)")
        shot = self.browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        picture = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
        path = self.folder / f"{name}.png"
        picture.quantize(_COLOURS).save(path, optimize=True)
        print(f"{path}  {picture.width} x {picture.height}, {path.stat().st_size:,} bytes")  # noqa: T201  # a program

    def take_terminal(self, name: str, text: str, folder: Path) -> None:
        """Take a picture of what a terminal shows."""
        page = folder / f"{name}.html"
        page.write_text(_TERMINAL.format(_as_html(text)), encoding="utf-8")
        self.browser.open(page.as_uri(), width=1600)
        box = self.browser.run(
            "const box = document.querySelector('pre').getBoundingClientRect();"
            "return [Math.ceil(box.right) + 16, Math.ceil(box.bottom) + 16]"
        )
        self.keep(name, (int(box[0]), int(box[1])))


def last_frame(command: Sequence[str], columns: int, seconds: float) -> str:
    """Run a program that refreshes in place on a terminal, and return what it showed last."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown, end = b"", time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0 and process.poll() is None:
            if select.select([ours], [], [], left)[0]:
                shown += os.read(ours, 65536)
    finally:
        process.terminate()
        process.wait(30)
        os.close(ours)
    frames = [frame for frame in shown.decode(errors="replace").split(_HOME) if frame.strip()]
    if len(frames) < 2:
        raise RuntimeError(f"{command[0]} showed no screen:\n{shown.decode(errors='replace')[-2000:]}")
    return frames[-2]


def _as_html(text: str) -> str:
    """Render colours and weights of a terminal as HTML."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=200, file=io.StringIO(), force_terminal=True)
    # Colours stay; what clears lines or moves the cursor is no text.
    lines = _NO_COLOUR.sub("", text).replace("\r", "").rstrip().split("\n")
    console.print(Text.from_ansi("\n".join(line.rstrip() for line in lines)), soft_wrap=True)
    made = console.export_html(inline_styles=True, code_format="{code}")
    return made.replace("color: #000000", "color: inherit") or html.escape(text)
