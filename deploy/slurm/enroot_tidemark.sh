#!/bin/sh
# /etc/enroot/hooks.d/95-tidemark.sh: the same for containers of enroot and pyxis. The agent links
# only glibc 2.28 and later, so the host's file works in the image; the folder with the socket is
# mounted whole, so that a daemon that restarts is found again.
set -eu
[ -r /usr/lib/tidemark/libtidemark_cupti.so ] || exit 0
enroot-mount --root "${ENROOT_ROOTFS}" - <<MOUNTS
/usr/lib/tidemark /usr/lib/tidemark none x-create=dir,bind,ro,nosuid,nodev
/run/tidemark /run/tidemark none x-create=dir,bind,nosuid,nodev,noexec
MOUNTS
