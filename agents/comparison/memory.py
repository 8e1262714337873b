"""How much memory a process has had."""

import sys
from pathlib import Path


def peak_megabytes() -> float:
    """Return the most memory that this process has had, in MB.

    The system's own count (``getrusage``) includes what the parent had when it started a child.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
