#!/bin/sh
# Links the shared library from the static one, and installs both, the headers and eyas.pc:
#     doors/capi/install.sh ARCHIVE PREFIX [DESTDIR]
set -eu
archive=$1
prefix=$2
root=${3:-}$prefix
here=$(dirname "$0")
number() { sed -n "s/^#define EYAS_VERSION_$1 //p" "$here/include/eyas.h"; }
major=$(number MAJOR)
version=$major.$(number MINOR).$(number PATCH)
mkdir -p "$root/lib/pkgconfig" "$root/include"
# rustc's own shared libraries have no versions of symbols.
${CC:-cc} -shared -o "$root/lib/libeyas.so.$version" -Wl,-soname,"libeyas.so.$major" \
    -Wl,--version-script,"$here/eyas.map" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro,-z,now -Wl,--strip-all -lgcc_s -lpthread -lm -ldl
ln -sf "libeyas.so.$version" "$root/lib/libeyas.so.$major"
ln -sf "libeyas.so.$major" "$root/lib/libeyas.so"
cp "$archive" "$root/lib/libeyas.a"
cp "$here/include/eyas.h" "$here/include/eyas.hpp" "$root/include/"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/eyas.pc.in" > "$root/lib/pkgconfig/eyas.pc"
