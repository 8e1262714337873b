"""Check the licences of the package's dependencies, and look for known vulnerabilities in them.

Licences are in the metadata of what is installed. Vulnerabilities are looked up by pip-audit, which
needs the network; without it, or where the index does not know them, that is said, and no error.

    python scripts/audit.py
"""

import json
import re
import subprocess
import sys
import tempfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

EXTRAS = ("cluster", "offline", "onnx", "render", "river", "sb3")
FREE = re.compile(
    r"BSD|MIT|Apache|PSF|Python Software Foundation|"
    r"ISC|MPL|Mozilla|HPND|Zlib|LGPL|Unlicense|CC0",
    re.IGNORECASE,
)
SECONDS = 60


def needed(name: str, extras: tuple[str, ...], found: dict[str, Distribution]) -> None:
    """Add a distribution and all that it needs, as far as it is installed."""
    try:
        own = distribution(name)
    except PackageNotFoundError:  # of another platform, or an extra that is not installed
        return
    if own.name in found:
        return
    found[own.name] = own
    for text in own.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            needed(requirement.name, tuple(requirement.extras), found)


def licence(own: Distribution) -> str:
    """Return what a distribution says of its licence."""
    about = own.metadata
    classifiers = [c for c in about.get_all("Classifier", []) if c.startswith("License")]
    return " ".join([about.get("License-Expression") or "", (about.get("License") or "")[:200],
                     *classifiers]).strip()  # fmt: skip


def vulnerabilities(found: dict[str, Distribution]) -> list[str] | str:
    """Return known vulnerabilities, or why they could not be looked up."""
    with tempfile.TemporaryDirectory() as folder:
        pinned = Path(folder, "requirements.txt")
        lines = (f"{own.name}=={own.version.partition('+')[0]}\n" for own in found.values())
        pinned.write_text("".join(lines))
        command = ["pip-audit", "--no-deps", "--disable-pip", "--format", "json",
                   "--progress-spinner", "off", "--timeout", "5", "-r", str(pinned)]  # fmt: skip
        uv = str(Path(sys.executable).with_name("uv"))
        try:
            run = subprocess.run(
                [uv, "tool", "run", *command], capture_output=True, text=True, timeout=SECONDS,
                check=False,
            )  # fmt: skip
            packages = json.loads(run.stdout)["dependencies"]
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        except (ValueError, KeyError):
            return (run.stderr.strip().splitlines() or ["no answer"])[-1]
    return [
        f"{package['name']} {package['version']}: {flaw['id']}, mended in {flaw['fix_versions']}"
        for package in packages
        for flaw in package.get("vulns", ())
    ]


def main() -> int:
    found: dict[str, Distribution] = {}
    needed("oda-rl", EXTRAS, found)
    del found["oda-rl"]
    unknown = [name for name, own in found.items() if not FREE.search(licence(own))]
    print(f"licences: {len(found)} dependencies")
    for name in unknown:
        print(f"    {name}: {licence(found[name])!r:.200} is no licence that is known to be free")
    flaws = vulnerabilities(found)
    if isinstance(flaws, str):
        print(f"vulnerabilities: not looked up ({flaws})")
        flaws = []
    else:
        print(f"vulnerabilities: {len(flaws)} known")
        print("".join(f"    {flaw}\n" for flaw in flaws), end="")
    return int(bool(unknown or flaws))


if __name__ == "__main__":
    sys.exit(main())
