#!/usr/bin/env bash
# Build a Kubernetes control plane and the JobSet controller at the versions of go.mod, once a machine.
#
# The binaries lie outside the checkout, in a folder of their own for each go.mod and go.sum. A build that is
# cut off goes on where it was. Prints progress; `build.sh --where` prints the folder and builds nothing.
set -euo pipefail
cd "$(dirname "$0")"

digest=$(cat go.mod go.sum | sha256sum | cut -c1-16)
folder="${XDG_CACHE_HOME:-$HOME/.cache}/jestlab-cluster/$digest"
if [ "${1:-}" = --where ]; then echo "$folder"; exit; fi
if [ -e "$folder/ready" ]; then exit; fi
if ! command -v go >/dev/null; then
  echo "make cluster: there is no Go, so tests of Kubernetes will skip; install Go 1.26 or newer (go.dev/dl)"
  exit
fi

mkdir -p "$folder"
exec 9> "$folder/lock"
flock 9  # another checkout may build the same
if [ -e "$folder/ready" ]; then exit; fi

# name=package, the small ones first
programs=(
  etcd=go.etcd.io/etcd/server/v3
  jobset=sigs.k8s.io/jobset
  kube-scheduler=k8s.io/kubernetes/cmd/kube-scheduler
  kube-controller-manager=k8s.io/kubernetes/cmd/kube-controller-manager
  kube-apiserver=k8s.io/kubernetes/cmd/kube-apiserver
)
count=0
for program in "${programs[@]}"; do
  name=${program%%=*} package=${program#*=}
  count=$((count + 1))
  if [ -e "$folder/$name" ]; then continue; fi
  echo "make cluster: building $name ($count of ${#programs[@]}), which takes minutes the first time"
  CGO_ENABLED=0 nice go build -p 2 -trimpath -buildvcs=false -ldflags "-s -w" -o "$folder/$name.part" "$package"
  mv "$folder/$name.part" "$folder/$name"
done

# What is applied to a cluster that has JobSet, from the module that its controller was built from.
config=$(go list -m -f '{{.Dir}}' sigs.k8s.io/jobset)/config/components
install -m 644 "$config/crd/bases/jobset.x-k8s.io_jobsets.yaml" "$folder/jobset-crd.yaml"
install -m 644 "$config/webhook/manifests.yaml" "$folder/jobset-webhooks.yaml"
install -m 644 "$config/rbac/role.yaml" "$folder/jobset-role.yaml"
touch "$folder/ready"
echo "make cluster: Kubernetes is ready in $folder"
