#!/bin/sh
# Build the base of the container, once, and the container from it: image.sh FOLDER SOURCE NAME [RECIPE]
#
# With RECIPE, a Dockerfile in SOURCE, it builds this one, as a reader of docs/how-to/container.md does.
# Needs root, buildah and debootstrap, no daemon and no registry. It runs in a mount namespace of its own
# (`unshare --mount`), so that no mount outlives it. In FOLDER are buildah's storage, the base, and under NAME:
# digest, of the image; inspected.json, what buildah says of it; tree, its files.
#
# How this machine reaches a package index is handed to the build as secrets: its certificate authorities, and its
# settings of pip and uv. The image keeps neither.
set -eu
folder=$1 source=$2 name=$3
mkdir -p "$folder" && cd "$folder"

# Overlays are quicker, and need a file system that takes them.
driver=vfs
mkdir -p probe/lower probe/upper probe/work probe/merged
if mount -t overlay none -o lowerdir=probe/lower,upperdir=probe/upper,workdir=probe/work probe/merged 2>/dev/null
then umount probe/merged; driver=overlay
fi
rm -rf probe

build() {
  buildah --storage-driver="$driver" --root "$folder/storage-$driver" --runroot "$folder/run-$driver" "$@"
}

base=localhost/jestlab-base
if ! build inspect --type image "$base" >/dev/null 2>&1; then
  echo "image.sh: debootstrap makes the base, once" >&2
  rm -rf base && debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm base >base.log
  # These are this machine's.
  rm -f base/etc/hostname base/etc/resolv.conf
  container=$(build from scratch)
  cp -a base/. "$(build mount "$container")"
  build commit --quiet --rm "$container" "$base" >/dev/null
  rm -rf base base.log
fi

secrets=$(mktemp -d)
trap 'rm -rf "$secrets"' EXIT
env | grep -E '^(PIP|UV)_[A-Z_]*(INDEX|HOST|TIMEOUT)[A-Z_]*=|^(https?|no|all)_proxy=|^(HTTPS?|NO|ALL)_PROXY=' |
  sed "s/'/'\\\\''/g; s/=\(.*\)/='\1'/" >"$secrets/machine" || :
# pip's settings in files, too: a build reads none of this machine's files.
python3 -m pip config list 2>/dev/null |
  sed -n "s/^[a-z]*\.\(index-url\|extra-index-url\|trusted-host\)=\('.*'\)$/\1 \2/p" |
  while read -r key value; do
    variable=$(echo "$key" | tr 'a-z-' 'A-Z_')
    echo "PIP_$variable=$value"
    case "$key" in index-url) echo "UV_DEFAULT_INDEX=$value" ;; extra-index-url) echo "UV_INDEX=$value" ;; esac
  done >>"$secrets/machine"
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
cp "$certificates" "$secrets/certificates"

stage() {
  build bud --quiet --layers --isolation chroot --network host \
    --secret "id=machine,src=$secrets/machine" --secret "id=certificates,src=$secrets/certificates" \
    --build-arg "BASE=$base" --build-arg "ACCELERATOR=${ACCELERATOR:-cpu}" "$@" "$source" >/dev/null
}
if test -n "${4:-}"; then
  # A reader's recipe has no secrets: pip finds this machine's authorities and index in files.
  { echo "[global]"; echo "cert = /etc/ssl/certs/ca-certificates.crt"; } >"$secrets/pip.conf"
  sed -n "s/^PIP_\(INDEX_URL\|EXTRA_INDEX_URL\|TRUSTED_HOST\)='\(.*\)'$/\1 = \2/p" "$secrets/machine" |
    tr 'A-Z_' 'a-z-' >>"$secrets/pip.conf"
  stage --file "$source/$4" --build-arg "TORCH=$TORCH" --volume "$secrets/pip.conf:/etc/pip.conf:ro" \
    --volume "$secrets/certificates:/etc/ssl/certs/ca-certificates.crt:ro" --tag "localhost/$name"
else
  # Stages that sources do not change are named, so that they are kept when what has no name is removed.
  stage --target dependencies --tag localhost/jestlab-dependencies
  stage --target system --tag localhost/jestlab-system
  stage --tag "localhost/$name"
fi

new=$folder/$name.new
rm -rf "$new" && mkdir "$new"
build inspect --type image --format '{{.FromImageDigest}}' "localhost/$name" >"$new/digest"
build inspect --type image "localhost/$name" >"$new/inspected.json"
container=$(build from --pull-never "localhost/$name")
cp -a "$(build mount "$container")" "$new/tree"
build rm "$container" >/dev/null
# Layers of older builds that no named image needs.
build rmi --prune >/dev/null 2>&1 || :
rm -rf "$name.old"
if test -e "$name"; then mv "$name" "$name.old"; fi
mv "$new" "$name"
