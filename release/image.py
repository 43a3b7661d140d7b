"""Builds an OCI image of core and portal: Debian by mmdebstrap, the package, and s6 as its first process. Nothing is pulled.

The image is one layer, written here: a layout of OCI is four JSON documents and a tar file, and a builder of images would
bring a store of its own. The times in it are the commit's; the packages are the mirror's of the day.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SUITES = {"deb12": "bookworm", "deb13": "trixie"}
MIRROR = "http://deb.debian.org/debian"
PACKAGES = "s6,logrotate,ca-certificates"
PORTS = ("2525/tcp", "2587/tcp", "8443/tcp")
VOLUME = "/var/lib/waypost"
ARCHITECTURES = {"amd64": "amd64", "arm64": "arm64"}  # Debian's name -> that of OCI
MEDIA = "application/vnd.oci.image"
# Run in the tree. The settings and the logs are in the volume, so that one volume is the whole state.
CUSTOMIZE = """
set -eu
cp "$PACKAGE" "$1/var/tmp/waypost.deb"
chroot "$1" env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends /var/tmp/waypost.deb >/dev/null
rm "$1/var/tmp/waypost.deb"
cp -R "$FILES/services" "$1/usr/lib/waypost/services"
cp "$FILES/start" "$FILES/as-portal" "$FILES/healthy" "$1/usr/lib/waypost/"
(cd "$1/usr/lib/waypost" && chmod 755 start as-portal healthy services/*/run)
rm -rf "$1/etc/waypost" "$1/var/log/waypost" "$1"/usr/lib/systemd/system/waypost-* # s6 has the services
ln -s /var/lib/waypost/etc "$1/etc/waypost"
ln -s /var/lib/waypost/log "$1/var/log/waypost"
find "$1/var/lib/waypost" -mindepth 1 -delete
rm -rf "$1"/usr/share/doc/* "$1"/usr/share/man/* "$1"/usr/share/locale/* "$1"/var/cache/* "$1"/var/log/*.log "$1"/var/log/apt
"""


def tree_of(package: Path, suite: str, mirror: str, stage: Path) -> Path:
    """Makes the tree with the package installed; returns a tar file."""
    layer = stage / "layer.tar"
    hook = stage / "customize"
    hook.write_text(f"#!/bin/sh\n{CUSTOMIZE}")
    hook.chmod(0o755)
    subprocess.run(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--include={PACKAGES}",
            f"--customize-hook={hook}",
            suite,
            layer,
            mirror,
        ],
        env=os.environ | {"PACKAGE": str(package.resolve()), "FILES": str(ROOT / "release" / "image")},
        check=True,
        stdout=sys.stderr,
    )
    return layer


class Layout:
    """A directory of blobs by their digests."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.blobs = directory / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)

    def add(self, content: bytes, kind: str) -> dict[str, Any]:
        """Stores a blob; returns its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        (self.blobs / digest).write_bytes(content)
        return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    def add_json(self, document: dict[str, Any], kind: str) -> dict[str, Any]:
        """Stores a document; returns its descriptor."""
        return self.add(json.dumps(document, separators=(",", ":"), sort_keys=True).encode(), kind)


def write(layer: Path, version: str, architecture: str, epoch: int, stage: Path, target: Path) -> None:
    """Writes the image as one archive of OCI, which podman load and skopeo read."""
    content = layer.read_bytes()
    layout = Layout(stage / "layout")
    created = datetime.fromtimestamp(epoch, UTC).isoformat().replace("+00:00", "Z")
    configuration = {
        "created": created,
        "architecture": ARCHITECTURES[architecture],
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/lib/waypost/start"],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "ExposedPorts": {port: {} for port in PORTS},
            "Volumes": {VOLUME: {}},
            "StopSignal": "SIGTERM",
            "Labels": {"org.opencontainers.image.title": "waypost", "org.opencontainers.image.version": version},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
        "history": [{"created": created, "created_by": "make-release --image"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": layout.add_json(configuration, "config.v1+json"),
        "layers": [layout.add(gzip.compress(content, 6, mtime=0), "layer.v1.tar+gzip")],
    }
    name = {"org.opencontainers.image.ref.name": f"localhost/waypost:{version}"}
    index = {"schemaVersion": 2, "manifests": [{**layout.add_json(manifest, "manifest.v1+json"), "annotations": name}]}
    (layout.directory / "index.json").write_text(json.dumps(index))
    (layout.directory / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(layout.directory.rglob("*")):
            if path.is_file():
                member = tarfile.TarInfo(str(path.relative_to(layout.directory)))
                member.size, member.mtime = path.stat().st_size, epoch
                with path.open("rb") as file:
                    archive.addfile(member, file)


def main() -> None:
    """Reads the command line of make-release."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--package", required=True, type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--stage", required=True, type=Path)
    parser.add_argument("--into", required=True, type=Path)
    parser.add_argument("--mirror", default=os.environ.get("DEBIAN_MIRROR", MIRROR))
    given = parser.parse_args()
    _, _, rest = given.package.name.partition("+")
    release, _, architecture = rest.removesuffix(".deb").partition("_")
    layer = tree_of(given.package, SUITES[release], given.mirror, given.stage)
    target = given.into / f"waypost-{given.version}-{architecture}.oci.tar"
    write(layer, given.version, architecture, int(os.environ["SOURCE_DATE_EPOCH"]), given.stage, target)
    shutil.rmtree(given.stage / "layout")
    layer.unlink()
    print(f"{target} ({target.stat().st_size / 1e6:.1f} MB)", file=sys.stderr)


if __name__ == "__main__":
    main()
