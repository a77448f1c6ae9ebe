#!/usr/bin/env bash
# Packages as users install them: lintian and rpmlint are content, and dpkg, rpm and tar install a program that runs,
# with its completions and manual pages. The packages are made of what cargo has built for tests; `make dist` makes
# those for users in the same way.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export EYAS_HOME=$place/home TMPDIR=$place

dev/tools/dist.sh dev
cd "$target/dist"
sha256sum --check --quiet SHA256SUMS

lintian --allow-root --fail-on error,warning ./*.deb
rpmlint --config "$OLDPWD/dev/packaging/rpmlint.toml" ./*.rpm

# Runs a program that was installed below a folder, and looks at what came with it.
try() {
    local usr=$1 zsh=$2
    "$usr/bin/eyas" --version
    [ "$("$usr/bin/eyas" run --report none -k --array 1-3 -- echo {} | tr '\n' ' ')" = '1 2 3 ' ]
    bash -n "$usr/share/bash-completion/completions/eyas"
    [ -s "$usr/share/zsh/$zsh/_eyas" ]
    [ -s "$usr/share/fish/vendor_completions.d/eyas.fish" ]
    gzip -dc "$usr/share/man/man1/eyas-run.1.gz" | grep -q 'each.*line'
}

mkdir -p "$place"/deb/var/lib/dpkg/{info,updates,triggers}
touch "$place/deb/var/lib/dpkg/status"
# The new root has no libc, of which the package depends.
dpkg --root="$place/deb" --force-depends --install ./*.deb >/dev/null 2>&1
dpkg --root="$place/deb" --verify eyas
try "$place/deb/usr" vendor-completions

rpm --root "$place/rpm" --nodeps --install ./*.rpm
rpm --root "$place/rpm" --verify --nodeps eyas
try "$place/rpm/usr" site-functions

mkdir "$place/tar"
tar -xzf ./*.tar.gz -C "$place/tar" --strip-components 1
try "$place/tar" site-functions
echo 'the packages can be installed, and their program runs'
