"""Every cell, score, position and activation obeys the laws."""

import pytest

from tests import laws

stepping = pytest.mark.parametrize("make", laws.stepping_parts())
reading = pytest.mark.parametrize("make", laws.reading_parts())
both = pytest.mark.parametrize("make", [*laws.stepping_parts(), *laws.reading_parts()])


@stepping
def test_prefix(make):
    laws.prefix(make)


@stepping
def test_causality(make):
    laws.causality(make)


@stepping
def test_pick(make):
    laws.picking(make)


@reading
def test_padding(make):
    laws.padding(make)


@both
def test_twin(make):
    laws.twin(make)


@both
def test_reporting(make):
    laws.reporting(make)


@both
def test_dtypes(make):
    laws.dtypes(make)


@both
def test_devices(make):
    laws.devices(make)


@both
def test_saving(make):
    laws.saving(make)


@both
def test_gradients_are_what_small_changes_do(make):
    laws.gradient_check(make, fast=True)
