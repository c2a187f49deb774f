#!/usr/bin/env bash
# Makes a release in a clone, and pushes nothing: release.sh VERSION [MODULE] [tags|artifacts], which make release runs.
# docs/release.md says what comes before it and after it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$1 plain=${1#v} only=${3:-}
from=$(sed -n 's/^module //p' go.mod)
to=${2:-$from}
today=$(date -u +%F)
export from to version plain today
goreleaser=github.com/goreleaser/goreleaser/v2@v2.15.0
read -ra modules <<<"$(make --no-print-directory published)"
tags=("${modules[@]/%//$version}")
tags=("${tags[@]#./}")

fail() {
  echo "$*" >&2
  exit 1
}

check() {
  [[ $version =~ ^v[01](\.(0|[1-9][0-9]*)){2}$ ]] || fail "VERSION is '$version', want one like v0.1.0"
  [[ $to =~ ^([a-z0-9-]+\.)+[a-z]+(/[A-Za-z0-9_.~-]+)+$ ]] || fail "MODULE is '$to', want one like github.com/owner/name"
  [[ $only =~ ^(tags|artifacts)?$ ]] || fail "ONLY is '$only', want tags, artifacts or nothing"
}

# move replaces the module path, in code, go.mod, documents and links, and sorts imports and requires anew.
move() {
  local file
  git grep -zlIF -e "$from" | xargs -0 perl -pi -e 's/\Q$ENV{from}\E/$ENV{to}/g'
  git diff -z --name-only -- '*.go' | xargs -0 gofmt -w
  for file in $(git ls-files -- '*go.mod'); do
    go mod edit -fmt "$file"
  done
}

# tag commits to main what it changes there, and makes all tags on a commit beside main. A user's build ignores replace
# lines, and go install refuses them: so that commit has them in go.work only, for builds in a checkout before the push.
# It is not merged, since main would then require its own past versions. If a step fails, main is as it was.
tag() {
  local start dir tag path
  [ "$(git rev-parse --abbrev-ref HEAD)" = main ] || fail "the branch is not main"
  [ -z "$(git status --porcelain)" ] || fail "files are not committed"
  for tag in "${tags[@]}"; do
    ! git rev-parse --quiet --verify "refs/tags/$tag" >/dev/null || fail "the tag $tag exists"
  done
  grep -qE "^## \[${plain//./\\.}\] - " CHANGELOG.md || fail "CHANGELOG.md has no section '## [$plain] - unreleased'"
  start=$(git rev-parse HEAD)
  trap 'git switch --quiet --force main; git reset --quiet --hard '"$start" EXIT
  [ "$to" = "$from" ] || move
  perl -pi -e 's/^(## \[\Q$ENV{plain}\E\]) - unreleased$/$1 - $ENV{today}/' CHANGELOG.md
  perl -pi -e 's/^(\s*version:) [0-9.]+/$1 $ENV{plain}/; s/^(appVersion:) "[0-9.]+"/$1 "$ENV{plain}"/' $(git ls-files '*Chart.yaml')
  git diff --quiet || git commit --quiet --all --message="Prepare $version"
  git switch --quiet --detach
  for dir in "${modules[@]}"; do
    perl -ni -e 'next if m{\Q$ENV{to}\E\S* => }; s{(\Q$ENV{to}\E\S*) v0\.0\.0\S*}{$1 $ENV{version}}; print' "$dir/go.mod"
    go mod edit -fmt "$dir/go.mod"
    path=$to/$dir
    go work edit -replace="${path%/.}@$version=./$dir"
  done
  go list -deps -test work >/dev/null
  git commit --quiet --allow-empty --all --message="Release $version"
  for tag in "${tags[@]}"; do
    git tag --annotate --message="$tag" "$tag"
  done
  trap - EXIT
  git switch --quiet main
}

# artifacts fills dist with what goes to other places than the repository, made from a clone at the tag.
artifacts() {
  local dir
  dir=$(mktemp -d)
  trap 'rm -rf '"$dir" EXIT
  rm -rf dist
  mkdir dist
  git -c advice.detachedHead=false clone --quiet --branch "$version" . "$dir/repo"
  git -C deploy/helm archive --format=tar.gz -o "$PWD/dist/quotient-$plain.tgz" "$version" quotient
  if go run "$goreleaser" --version >"$dir/log" 2>&1; then
    (cd "$dir/repo" && GORELEASER_CURRENT_TAG=$version go run "$goreleaser" release --clean --skip=publish)
    mv "$dir"/repo/dist/*.{tar.gz,zip,txt} dist
  else
    left+=("binaries: go cannot get $goreleaser: $(tail -n 1 "$dir/log")")
  fi
  if docker info >/dev/null 2>&1; then
    docker build --quiet -f "$dir/repo/deploy/proxy/Dockerfile" -t "quotient:$plain" "$dir/repo"
  else
    left+=("image: no Docker daemon answers; that its program builds is tested")
    make -C "$dir/repo" --no-print-directory image
  fi
}

check
left=()
[ "$only" = artifacts ] || tag
[ "$only" = tags ] || artifacts
[ "$only" = tags ] || echo "dist has" dist/*
[ "${#left[@]}" = 0 ] || printf 'left out: %s\n' "${left[@]}"
! git grep -nE "(is not|isn't) published|not published yet" "$version" -- '*.md' ':!docs/release.md' ||
  echo "delete these sentences first, and make the tags again"
cat <<END
Nothing is pushed. Look at the commits with git log -2 -p $version, then:
  1. git push --atomic origin main ${tags[*]}
  2. attach dist's .tar.gz, .zip and checksums.txt to the release $version on the repository's page
  3. git switch --detach $version; docker buildx build --platform linux/amd64,linux/arm64 \\
       -f deploy/proxy/Dockerfile -t REGISTRY/quotient:$plain --push .; git switch main
  4. helm push dist/quotient-$plain.tgz oci://REGISTRY/charts
  5. go install $to/cmd/quotient@$version
END
