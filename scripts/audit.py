"""Check the licences of the package's dependencies, and look for known vulnerabilities in them.

Licences are in the metadata of what is installed. Vulnerabilities are looked up by pip-audit, which
needs the network; without it, or where the index does not know them, that is said, and no error.
"""

import json
import re
import subprocess
import sys
import tempfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import tyro
from packaging.requirements import Requirement

EXTRAS = "", "cluster", "offline", "onnx", "render", "river", "sb3"
FREE = re.compile(
    r"BSD|MIT|Apache|PSF|Python Software Foundation|ISC|MPL|Mozilla|HPND|Zlib|LGPL|Unlicense|CC0",
    re.IGNORECASE,
)
COMMAND = "pip-audit --no-deps --disable-pip --format json --progress-spinner off --timeout 5 -r"


def add(name: str, extras: tuple[str, ...], found: dict[str, Distribution]) -> None:
    """Add a distribution and all that it needs, as far as it is installed."""
    try:
        one = distribution(name)
    except PackageNotFoundError:  # of another platform, or an extra that is not installed
        return
    if one.name in found:
        return
    found[one.name] = one
    for needed in map(Requirement, one.requires or ()):
        if not needed.marker or any(needed.marker.evaluate({"extra": e}) for e in extras):
            add(needed.name, ("", *needed.extras), found)


def licence(one: Distribution) -> str:
    about = one.metadata
    classifiers = [c for c in about.get_all("Classifier", []) if c.startswith("License")]
    texts = about.get("License-Expression") or "", (about.get("License") or "")[:200], *classifiers
    return " ".join(texts).strip()


def main() -> int:
    found: dict[str, Distribution] = {}
    add("oda-rl", EXTRAS, found)
    del found["oda-rl"]
    faults = [
        f"{name}: {licence(one)!r:.200} is no licence that is known to be free"
        for name, one in found.items()
        if not FREE.search(licence(one))
    ]
    print(f"licences: {len(found)} dependencies")
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder, "requirements.txt")
        pins.write_text("\n".join(f"{o.name}=={o.version.split('+')[0]}" for o in found.values()))
        tool = [Path(sys.executable).with_name("uv"), "tool", "run", *COMMAND.split(), pins]
        try:
            run = subprocess.run(tool, capture_output=True, text=True, timeout=60, check=False)
            packages = json.loads(run.stdout)["dependencies"]
            if not (known := sum("skip_reason" not in package for package in packages)):
                raise ValueError(f"the index has no data on any of {len(packages)} packages")
        except (OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
            print(f"vulnerabilities: not looked up ({type(error).__name__}: {str(error)[:200]})")
        else:
            flaws = [(p, flaw) for p in packages for flaw in p.get("vulns", ())]
            print(f"vulnerabilities: {len(flaws)} in {known} of {len(packages)} packages")
            faults += [f"{p['name']} {p['version']}: {flaw['id']}" for p, flaw in flaws]
    print("".join(f"    {fault}\n" for fault in faults), end="")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(tyro.cli(main, description=__doc__))
