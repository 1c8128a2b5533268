"""Fixtures of a running server. The environment names it, the components and the data:

SAGGAR_HOST and SAGGAR_API_KEY, a key with `admin`; TEST_LENET and TEST_TELLER, components; TEST_DIGITS, a dataset's directory;
TEST_TLS_HOST, the address of a server with TLS; TEST_TLS_CA and TEST_OTHER_CA, its certificate and that of another one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import saggar


@pytest.fixture(scope="session")
def client() -> Iterator[saggar.Client]:
    with saggar.Client() as client:
        yield client


@pytest.fixture(scope="session")
def lenet() -> Path:
    return Path(os.environ["TEST_LENET"])


@pytest.fixture
def unique() -> str:
    """The end of a name that no other test uses."""
    return os.urandom(4).hex()


@pytest.fixture(scope="session")
def digits(client: saggar.Client, lenet: Path) -> str:
    """A model with a version of its dataset, both of this name."""
    client.data.push(os.environ["TEST_DIGITS"], "digits")
    job = client.jobs.submit(lenet, data="digits", params={"epochs": 3}).wait(timeout=180)
    model, version = job.published[-1].split("@")
    client.models.wait(model, int(version))
    return model


@pytest.fixture(scope="session")
def teller(client: saggar.Client) -> str:
    """A model that streams its text."""
    client.jobs.submit(Path(os.environ["TEST_TELLER"])).wait(timeout=180)
    client.models.wait("teller")
    return "teller"
