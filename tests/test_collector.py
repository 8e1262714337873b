"""The garbage collector pauses, and is afterwards as it was."""

import gc
import importlib

import pytest

from oda_rl._collector import Pause, importing


@pytest.fixture(autouse=True)
def enabled():
    gc.enable()
    yield
    gc.enable()


def test_pauses_overlap():
    pause = Pause()
    pause.begin()
    pause.begin()
    pause.end()
    assert not gc.isenabled()
    pause.end()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    pause = Pause()
    gc.disable()
    pause.begin()
    pause.end()
    assert not gc.isenabled()


def test_the_collector_is_on_again_after_an_import_that_fails():
    with pytest.raises(ModuleNotFoundError), importing():
        importlib.import_module("oda_rl.nothing")
    assert gc.isenabled()
    with importing():
        assert not gc.isenabled()


def test_nothing_is_frozen():
    from oda_rl import ODAClusterer

    ODAClusterer(2).fit([[0.0], [1.0], [2.0], [4.0]])
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
