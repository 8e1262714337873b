"""Small agents, and files of them that a stranger has changed."""

import io
import json
import zipfile

import numpy as np
import pytest

from oda_rl.agents import TwoTimescaleAgent


@pytest.fixture(scope="session")
def small_agent(tmp_path_factory):
    """A file of an online agent with few cells."""
    path = tmp_path_factory.mktemp("small") / "agent.zip"
    TwoTimescaleAgent("CartPole-v1", partition="som", map_shape=(1, 2), seed=0).learn(300).save(
        path
    )
    return path


@pytest.fixture
def changed(tmp_path):
    """Write a file with other metadata or arrays, and valid checksums, and return its path."""

    def write(path, metadata=lambda metadata: None, arrays=lambda arrays: None):
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        meta = json.loads(members.pop("metadata.json"))
        numbers = {name: np.load(io.BytesIO(content)) for name, content in members.items()}
        metadata(meta)
        arrays(numbers)
        changed_path = tmp_path / "changed.zip"
        with zipfile.ZipFile(changed_path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("metadata.json", json.dumps(meta))
            for name, array in numbers.items():
                with archive.open(name, "w") as file:
                    np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
        return changed_path

    return write
