#!/bin/sh
# Checks what is in deploy/ without a container engine: runs the RUN lines of the Dockerfile on the
# committed sources, lays out what the image gets, and asks the binary from there; validates every
# configuration; and, where the programs are installed, checks unit, manifests, Envoy's file and alerts. It
# says what it does not check for lack of a program.
#
#   deploy/check.sh [TARGET_DIR]     where the build goes; a temporary folder unless given
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
pid=
trap 'test -z "$pid" || kill "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT
say() { printf '%s\n' "deploy/check.sh: $*"; }
fail() { say "FAILED: $*"; exit 1; }
unchecked=
# has PROGRAM WHERE WHAT: whether the program is there; if not, what is not checked for it is told.
has() {
  command -v "$1" > /dev/null && return
  say "NOT CHECKED: $3, as there is no $1 ($2)"
  unchecked="$unchecked, $3"
  return 1
}

# The stage `build`.
mkdir "$work/src"
git -C "$root" archive HEAD | tar -x -C "$work/src"
if [ $# -gt 0 ]; then
  mkdir -p "$1"
  ln -s "$(cd "$1" && pwd)" "$work/src/target"
fi
sed -n '/^FROM .* AS build/,/^FROM gcr/ s/^RUN //p' "$root/deploy/Dockerfile" > "$work/steps"
test "$(wc -l < "$work/steps")" -ge 3 || fail "the Dockerfile has no build steps"
while IFS= read -r step; do
  say "$step"
  (cd "$work/src" && sh -c "$step") || fail "$step"
done < "$work/steps"

# The image has glibc and libgcc, and nothing else to link to.
binary=$work/src/image/usr/local/bin/tollgate
foreign=$(ldd "$binary" | grep -vE 'linux-vdso|libc\.so|libm\.so|libgcc_s|ld-linux|libpthread|libdl|librt' || true)
test -z "$foreign" || fail "the binary needs $foreign"
"$binary" --version

# Every configuration, as its container has it.
mkdir "$work/k8s"
for name in tollgate.yaml rules.yaml; do
  sed -n "/^  $name: |/,/^---/ s/^    //p" "$root/deploy/kubernetes/tollgate.yaml" > "$work/k8s/$name"
done
"$binary" validate "$work/k8s/tollgate.yaml" "$work/k8s/rules.yaml" "$root/deploy/compose/tollgate.yaml"

# It starts, gets ready and stops.
cat > "$work/tollgate.yaml" <<YAML
listen: { http: 127.0.0.1:0, grpc: 127.0.0.1:0, admin: 127.0.0.1:0 }
rules_from: { kind: file, path: k8s/rules.yaml }
state_dir: state
YAML
"$binary" serve --config "$work/tollgate.yaml" 2> "$work/log" &
pid=$!
tries=0
until grep -q ' serving ' "$work/log"; do
  tries=$((tries + 1))
  test $tries -lt 100 || fail "it does not serve: $(cat "$work/log")"
  sleep 0.1
done
admin=$(sed -n 's/.* serving .*admin=\([0-9.:]*\) .*/\1/p' "$work/log")
"$binary" rules show --admin "$admin"
kill -TERM "$pid"
wait "$pid" || fail "it did not stop with 0"
pid=

if has systemd-analyze "apt-get install systemd" "the unit"; then
  # The unit names the installed binary.
  sed "s|/usr/local/bin/tollgate|$binary|" "$root/deploy/systemd/tollgate.service" > "$work/tollgate.service"
  systemd-analyze verify "$work/tollgate.service" || fail "the unit"
  say "unit verified"
fi
if has kubectl "apt-get install kubernetes-client" "the manifests"; then
  printf 'resources: [tollgate.yaml]\n' > "$work/k8s/kustomization.yaml"
  cp "$root/deploy/kubernetes/tollgate.yaml" "$work/k8s/tollgate.yaml"
  kubectl kustomize "$work/k8s" | grep -c '^kind:' | grep -qx 5 || fail "the manifests"
  say "manifests read"
fi
envoy=${TOLLGATE_ENVOY:-$root/target/tools/envoy/envoy/_bin/envoy}
command -v "$envoy" > /dev/null || envoy=envoy
if has "$envoy" "cargo xtask setup" "envoy.yaml"; then
  "$envoy" --mode validate -c "$root/deploy/compose/envoy.yaml" || fail "envoy.yaml"
fi
if has promtool "apt-get install prometheus" "the alerts"; then
  promtool check rules "$root/deploy/prometheus/tollgate.rules.yaml" || fail "the alerts"
  promtool test rules "$root/deploy/prometheus/tollgate.test.yaml" || fail "when they alert"
fi
if test -n "$unchecked"; then
  say "in order but for what is not checked: ${unchecked#, }"
else
  say "all in order"
fi
