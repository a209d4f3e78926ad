"""Certificates of this machine's loopback address, signed by themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """The files of a certificate and of its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=ebla", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run([*made, "-days", "2", "-keyout", key, "-out", cert, *subject], check=True, capture_output=True)
    return cert, key
