#!/usr/bin/env bash
# Build a Kubernetes control plane, the JobSet controller and Kueue, once a machine.
#
# Their versions are those of go.mod here, and of kueue/go.mod: Kueue is built on other releases of the same
# libraries. The binaries lie outside the checkout, in a folder of their own for each go.mod and go.sum. A build
# that is cut off goes on where it was. Prints progress; `build.sh --where` prints the folder of Kubernetes,
# `build.sh --where kueue` that of Kueue, and both build nothing.
set -euo pipefail
cd "$(dirname "$0")"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/jestlab-cluster"
digest_of() { cat "$1/go.mod" "$1/go.sum" | sha256sum | cut -c1-16; }
kubernetes="$cache/$(digest_of .)"
kueue="$cache/kueue-$(digest_of kueue)"
if [ "${1:-}" = --where ]; then
  if [ "${2:-}" = kueue ]; then echo "$kueue"; else echo "$kubernetes"; fi
  exit
fi
if [ -e "$kubernetes/ready" ] && [ -e "$kueue/ready" ]; then exit; fi
if ! command -v go >/dev/null; then
  echo "make cluster: there is no Go, so tests of Kubernetes will skip; install Go 1.26 or newer (go.dev/dl)"
  exit
fi

# build FOLDER MODULE NAME=PACKAGE…: build the packages of a module's pins into a folder.
build() {
  local folder=$1 module=$2 count=0 program name
  shift 2
  for program in "$@"; do
    name=${program%%=*}
    count=$((count + 1))
    if [ -e "$folder/$name" ]; then continue; fi
    echo "make cluster: building $name ($count of $#), which takes minutes the first time"
    CGO_ENABLED=0 nice go build -C "$module" -p 2 -trimpath -buildvcs=false -ldflags "-s -w" \
      -o "$folder/$name.part" "${program#*=}"
    mv "$folder/$name.part" "$folder/$name"
  done
}

# components_of MODULE PACKAGE: the folder of what is applied to a cluster, from the module that is built.
components_of() { echo "$(go -C "$1" list -m -f '{{.Dir}}' "$2")/config/components"; }

build_kubernetes() {
  # the small ones first
  build "$kubernetes" . \
    etcd=go.etcd.io/etcd/server/v3 \
    jobset=sigs.k8s.io/jobset \
    kube-scheduler=k8s.io/kubernetes/cmd/kube-scheduler \
    kube-controller-manager=k8s.io/kubernetes/cmd/kube-controller-manager \
    kube-apiserver=k8s.io/kubernetes/cmd/kube-apiserver
  local config
  config=$(components_of . sigs.k8s.io/jobset)
  install -m 644 "$config/crd/bases/jobset.x-k8s.io_jobsets.yaml" "$kubernetes/jobset-crd.yaml"
  install -m 644 "$config/webhook/manifests.yaml" "$kubernetes/jobset-webhooks.yaml"
  install -m 644 "$config/rbac/role.yaml" "$kubernetes/jobset-role.yaml"
}

build_kueue() {
  build "$kueue" kueue kueue=sigs.k8s.io/kueue/cmd/kueue
  local config
  config=$(components_of kueue sigs.k8s.io/kueue)
  install -m 644 "$config"/crd/bases/*.yaml -t "$kueue"
  install -m 644 "$config/webhook/manifests.yaml" "$kueue/webhooks.yaml"
}

# once FOLDER FUNCTION: build what is not in the folder yet; another checkout may build the same.
once() {
  if [ -e "$1/ready" ]; then return; fi
  mkdir -p "$1"
  exec 9> "$1/lock"
  flock 9
  if [ -e "$1/ready" ]; then return; fi
  "$2"
  touch "$1/ready"
  echo "make cluster: ready in $1"
}

once "$kubernetes" build_kubernetes
once "$kueue" build_kueue
