#!/usr/bin/env bash
# bench/peers.sh PYTHON VENV PEERS: an environment with the peers, that also sees what is in the project's own.
set -euo pipefail
python=$1 venv=$2 peers=$3
rm -rf "$peers"
"$python" -m venv "$peers"
house=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
own=$("$peers/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "import site; site.addsitedir('$house')" > "$own/house.pth"
"$peers/bin/python" -m pip install --quiet --disable-pip-version-check -r bench/peers-requirements.txt
