"""Every encoder and every variant of every decoder obeys the laws, and so do whole models."""

import pytest

from tests import laws

ENCODERS = [pytest.param(laws.encoder(choice), id=f"encoder {choice['kind']}") for choice in laws.encoder_choices()]
REVERSIBLE = {"kind": "transformer", "residual": "reversible"}
ENCODERS.append(pytest.param(laws.encoder(REVERSIBLE), id="encoder transformer reversible"))
VARIANTS = laws.decoder_choices()
DECODERS = [pytest.param(laws.decoder(choice), id=f"decoder {laws.named(choice)}") for choice in VARIANTS]
READERS = [pytest.param(laws.decoder_reads(choice), id=f"reader {laws.named(choice)}") for choice in VARIANTS]
PAIRS = list(zip(laws.encoder_choices(), VARIANTS[::8], strict=False))
MODELS = [pytest.param(laws.model(e, d), id=f"model {e['kind']} {laws.named(d)}") for e, d in PAIRS]
# A few of the variants, every kind among them, for the laws that cost most.
SOME = [*DECODERS[::3], *MODELS]


@pytest.mark.parametrize("make", [*DECODERS, *MODELS])
def test_prefix(make):
    laws.prefix(make)


@pytest.mark.parametrize("make", [*DECODERS, *MODELS])
def test_causality(make):
    laws.causality(make)


@pytest.mark.parametrize("make", [*DECODERS, *MODELS])
def test_pick(make):
    laws.picking(make)


@pytest.mark.parametrize("make", [*ENCODERS, *READERS])
def test_padding(make):
    laws.padding(make)


@pytest.mark.parametrize("make", [*ENCODERS, *DECODERS, *MODELS])
def test_twin(make):
    laws.twin(make)


@pytest.mark.parametrize("make", [*ENCODERS, *SOME])
def test_reporting(make):
    laws.reporting(make)


@pytest.mark.parametrize("make", [*ENCODERS, *SOME])
def test_dtypes(make):
    laws.dtypes(make)


@pytest.mark.parametrize("make", [*ENCODERS, *DECODERS, *MODELS])
def test_devices(make):
    laws.devices(make)


@pytest.mark.parametrize("make", [*ENCODERS, *SOME])
def test_saving(make):
    laws.saving(make)


@pytest.mark.parametrize("make", [*ENCODERS, *SOME])
def test_gradients_are_what_small_changes_do(make):
    laws.gradient_check(make, fast=True)
