"""MCP servers of the SDK over HTTP, each started once for all tests."""

import datetime as dt
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .rig import Site

Start = Callable[[str], str]


@pytest.fixture(scope="session")
def sdk_site() -> Iterator[Start]:
    """Return a function that starts a kind of site at most once, and returns its address."""
    running: dict[str, tuple[subprocess.Popen[str], str]] = {}

    def start(mode: str) -> str:
        if mode not in running:
            process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("sdk_site.py")), mode],
                stdout=subprocess.PIPE,
                text=True,
            )
            assert process.stdout is not None
            running[mode] = (process, process.stdout.readline().strip())
        return running[mode][1]

    yield start
    for process, _ in running.values():
        process.kill()
        process.communicate()


@pytest.fixture
def site() -> Iterator[Site]:
    """A web server that answers 404, except where the test adds a path."""
    with Site() as site:
        yield site


@pytest.fixture
def self_signed(tmp_path: Path) -> ssl.SSLContext:
    """A certificate for localhost that only its owner believes in."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    begin = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + dt.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "certificate.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context
