#!/usr/bin/env bash
# Shows that users can install quotient: a module that knows nothing of this repository gets, builds and runs
# every package of each published module, from a file-system proxy of a release of the last commit under another
# module path, and once more from the clone with the lines that the README gives for go.mod. Modules of others come
# from this machine's module cache, and those that it lacks from GOPROXY. caddyquotient is got and its packages are
# found, but it is not built, since with these settings all of Caddy would be compiled again: make apart builds it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=github.com/owner/name
version=v0.1.0
cache=$(go env GOMODCACHE) proxies=$(go env GOPROXY)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

git clone --quiet --no-tags . "$dir/repo"
cd "$dir/repo"
git switch --quiet --force-create main # the checkout may be of no branch
git config user.name "A Test"
git config user.email test@example.com
path=$(sed -n 's/^module //p' go.mod)
make --no-print-directory release VERSION="$version" MODULE=$root ONLY=tags
if git grep -nF "$path"; then
  echo "the module path is not replaced there"
  exit 1
fi
read -ra modules <<<"$(make --no-print-directory published)"

# The proxy is what the go command makes of the tags.
export GOWORK=off GOFLAGS="-mod=mod -modcacherw -trimpath" GONOSUMDB=$root CGO_ENABLED=0
for module in "${modules[@]}"; do
  path=$root/$module
  GOMODCACHE=$dir/tags GONOPROXY=$root GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.file://$dir/repo.insteadOf \
    GIT_CONFIG_VALUE_0=https://$root GIT_ALLOW_PROTOCOL=file go mod download "${path%/.}@$version"
  if git show "$version:./$module/go.mod" | grep -n '=>'; then
    echo "$module: go.mod replaces a module: go install would refuse it"
    exit 1
  fi
done
export GOMODCACHE=$dir/modules GOBIN=$dir/bin
export GOPROXY=file://$dir/tags/cache/download,file://$cache/cache/download,$proxies

# program PATTERN writes a program here that imports all packages of PATTERN that users may import.
program() {
  local package packages
  packages=$(go list -f '{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}' "$1" | grep -vE '/internal(/|$)') || return 1
  {
    echo "package main"
    for package in $packages; do echo "import _ \"$package\""; done
    echo 'func main() { println("ran") }'
  } >main.go
}

# run builds the program here and runs it.
run() {
  if [[ $module == caddyquotient ]]; then
    go list -deps . >/dev/null
  else
    go build -o program . && ./program 2>/dev/null
  fi
}

lines=$(grep '^go mod edit -replace ' "$dir/repo/README.md" || true)
for module in "${modules[@]}"; do
  path=$root/$module
  mkdir -p "$dir/user/$module" "$dir/neighbour/$module"

  cd "$dir/user/$module"
  printf 'module user\n\ngo 1.26.0\n' >go.mod
  go get "${path%/.}@$version" 2>"$dir/log" || { cat "$dir/log"; exit 1; }
  if program "${path%/.}/..."; then
    run
  fi
  echo "from the proxy: $module"

  [[ $lines && $module != . && $module != cmd/* ]] || continue # they are for packages to import, until these are published
  cd "$dir/neighbour/$module"
  printf 'module user\n\ngo 1.26.0\n' >go.mod
  bash -e <<<"$(sed "s#poolsize/redis#$module#g; s#\.\./quotient#$dir/repo#g" <<<"$lines")"
  cp "$dir/user/$module/main.go" .
  run
  echo "with the README's lines: $module"
done
go install "$root/cmd/quotient@$version"
"$GOBIN/quotient" --version | grep -F "quotient $version "
