"""The garbage collector pauses, and is afterwards as it was."""

import gc
import importlib
import weakref

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


def test_what_was_made_meanwhile_is_old_afterwards():
    pause, searched = Pause(), []
    pause.begin()
    made = [[] for _ in range(100_000)]
    gc.callbacks.append(lambda phase, about: searched.append(about["generation"]))
    try:
        pause.end()
        made.extend([] for _ in range(100))
    finally:
        gc.callbacks.pop()
    assert gc.get_count()[0] < 1000 < len(made)
    assert searched == []  # new ones are searched from some hundreds on


def test_circles_that_were_made_meanwhile_are_found():
    class Thing:
        pass

    pause = Pause()
    pause.begin()
    thing = Thing()
    thing.itself, found = thing, weakref.ref(thing)
    del thing
    pause.end()
    gc.collect()
    assert found() is None


def test_what_somebody_has_frozen_stays_so():
    gc.collect()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        pause = Pause()
        pause.begin()
        pause.end()
        assert gc.get_freeze_count() >= frozen > 0
    finally:
        gc.unfreeze()


def test_nothing_is_frozen():
    from oda_rl import ODAClusterer

    ODAClusterer(2).fit([[0.0], [1.0], [2.0], [4.0]])
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
