#!/bin/sh
# Puts the image's agent on the node under its version and tells the container runtime about it by
# CDI. A version that is there already is left alone: running jobs have it mapped. Older ones stay.
set -eu
version=${1:?usage: install.sh VERSION}
from=${TIDEMARK_AGENT_FROM:-/usr/lib/tidemark/libtidemark_cupti.so}
node=${TIDEMARK_AGENT_ON_NODE:-/var/lib/tidemark/agent}
into=${TIDEMARK_AGENT_INTO:-/agent}
cdi=${TIDEMARK_CDI:-/etc/cdi}
file=libtidemark_cupti-$version.so
if [ ! -e "$into/$file" ]; then
  cp "$from" "$into/.$file.new"
  chmod 0444 "$into/.$file.new"
  mv "$into/.$file.new" "$into/$file"
fi
cat >"$cdi/.tidemark.json.new" <<JSON
{
  "cdiVersion": "0.5.0",
  "kind": "tidemark.dev/agent",
  "devices": [{
    "name": "default",
    "containerEdits": {
      "env": ["CUDA_INJECTION64_PATH=/opt/tidemark/$file"],
      "mounts": [
        {"hostPath": "$node/$file", "containerPath": "/opt/tidemark/$file", "options": ["ro", "nosuid", "nodev", "bind"]},
        {"hostPath": "/run/tidemark", "containerPath": "/run/tidemark", "options": ["ro", "nosuid", "nodev", "noexec", "bind"]}
      ]
    }
  }]
}
JSON
mv "$cdi/.tidemark.json.new" "$cdi/tidemark.json"
