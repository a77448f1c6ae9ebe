#!/usr/bin/env bash
# Makes what users install, in target/dist: a tarball, a .deb, an .rpm, and with `release` a wheel. Each has the program
# `eyas`, which contains the library that `eyas io run` loads, completions for shells, and manual pages.
#
#     dev/tools/dist.sh release   with zig's linker: needs glibc 2.17 (2012) or later
#     dev/tools/dist.sh dev       of what cargo has built for tests; needs the glibc of this machine
#
# Needs dpkg-deb and rpmbuild; on Debian and Ubuntu: apt-get install dpkg rpm.
set -euo pipefail
cd "$(dirname "$0")/../.."
profile=${1:-release}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
dist=$target/dist
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
machine=$(uname -m)
for program in dpkg-deb rpmbuild objdump; do
    command -v "$program" >/dev/null || {
        echo "$program is missing. On Debian and Ubuntu: apt-get install dpkg rpm binutils" >&2
        exit 1
    }
done

rm -rf "$dist"
mkdir -p "$dist"
case $profile in
release)
    # It builds the program, too.
    dev/tools/wheel.sh release
    cp "$target"/python/wheels/*.whl "$dist"
    built=$target/$machine-unknown-linux-gnu/release/eyas
    deb=-Zxz rpm=w19.zstdio
    ;;
dev)
    cargo build --locked --workspace --all-targets
    built=$target/debug/eyas
    # Quick rather than small.
    deb=-Zgzip\ -z1 rpm=w1.gzdio
    ;;
*)
    echo "dev/tools/dist.sh knows no $profile: release or dev" >&2
    exit 2
    ;;
esac

# The same bytes each time: all times are those of the last commit. Not before the build: libraries in C would be
# compiled again for each commit, and with them what needs them.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
export SOURCE_DATE_EPOCH

# The newest version of glibc of which the program uses a symbol.
glibc=$(objdump -T "$built" | grep -o 'GLIBC_2\.[0-9.]*' | sort -uV | tail -n 1)
glibc=${glibc#GLIBC_}

# One tree for all: the tarball has its content without usr/, and packages add what their systems want.
root=$dist/root
install -d "$root"/usr/share/{bash-completion/completions,fish/vendor_completions.d,zsh/site-functions,man/man1,doc/eyas}
install -D "$built" "$root/usr/bin/eyas"
strip --strip-all "$root/usr/bin/eyas"
"$built" completion bash >"$root/usr/share/bash-completion/completions/eyas"
"$built" completion fish >"$root/usr/share/fish/vendor_completions.d/eyas.fish"
"$built" completion zsh >"$root/usr/share/zsh/site-functions/_eyas"
"$built" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1
install -m 644 README.md CHANGELOG.md "$root/usr/share/doc/eyas"
find "$root" -exec chmod u=rwX,go=rX {} +

# A file of dev/packaging with what is only known now. Values go through files' names only, so `|` is free.
filled() {
    sed -e "s|@VERSION@|$version|g" -e "s|@GLIBC@|$glibc|g" -e "s|@ROOT@|$dist/rpm-root|g" \
        -e "s|@DEB_ARCH@|$(dpkg --print-architecture)|g" -e "s|@KIB@|$(du -sk "$root" | cut -f 1)|g" \
        -e "s|@DATE@|$(date -uR -d "@$SOURCE_DATE_EPOCH")|g" \
        -e "s|@RPM_DATE@|$(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')|g" "dev/packaging/$1"
}
stamp() { find "$1" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +; }

name=eyas-$version-$machine-linux
cp -a "$root/usr" "$dist/$name"
install -m 644 LICENSE "$dist/$name"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$dist" -c "$name" |
    gzip -n >"$dist/$name.tar.gz"

cp -a "$root" "$dist/deb-root"
(
    cd "$dist/deb-root"
    mv usr/share/zsh/site-functions usr/share/zsh/vendor-completions
    rm usr/share/doc/eyas/CHANGELOG.md
    mkdir DEBIAN
)
gzip -9n <CHANGELOG.md >"$dist/deb-root/usr/share/doc/eyas/changelog.gz"
filled changelog | gzip -9n >"$dist/deb-root/usr/share/doc/eyas/changelog.Debian.gz"
install -D -m 644 dev/packaging/lintian-overrides "$dist/deb-root/usr/share/lintian/overrides/eyas"
filled copyright >"$dist/deb-root/usr/share/doc/eyas/copyright"
filled control >"$dist/deb-root/DEBIAN/control"
(cd "$dist/deb-root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$dist/deb-root" -exec chmod u=rwX,go=rX {} +
stamp "$dist/deb-root"
# shellcheck disable=SC2086
dpkg-deb --root-owner-group $deb --build "$dist/deb-root" "$dist" >/dev/null

cp -a "$root" "$dist/rpm-root"
install -D -m 644 LICENSE "$dist/rpm-root/usr/share/licenses/eyas/LICENSE"
stamp "$dist/rpm-root"
filled eyas.spec >"$dist/eyas.spec"
rpmbuild --quiet -bb --target "$machine" --define "_topdir $dist/rpmbuild" --define "_rpmdir $dist" \
    --define '_rpmfilename %{name}-%{version}-%{release}.%{arch}.rpm' --define 'debug_package %{nil}' \
    --define '__os_install_post %{nil}' --define '_build_id_links none' --define "_binary_payload $rpm" \
    --define '_buildhost eyas' --define 'use_source_date_epoch_as_buildtime 1' \
    "$dist/eyas.spec"

rm -rf "$root" "$dist/deb-root" "$dist/rpm-root" "$dist/rpmbuild" "$dist/eyas.spec" "${dist:?}/$name"
(cd "$dist" && sha256sum -- * >SHA256SUMS && ls -l)
echo "needs glibc $glibc or later"
